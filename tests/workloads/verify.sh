#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Every page that is handed out as zero is looked at, while kscrubd zeroes all it can: verify.sh SECONDS
# A third of the time each, the last at least: stress-ng's verifying memory stressors, a storm of swapping to zram, and
# all of its stressors of the class vm, one after the other.
feature=/sys/kernel/mm/quire/prezero
third=$(($1 / 3))
cd /dev/shm || exit 1
echo 512M > /sys/block/zram0/disksize
mkswap /dev/zram0 > /dev/null && swapon /dev/zram0 || exit 1
echo always > /sys/kernel/mm/transparent_hugepage/enabled
echo 1 > $feature/verify
echo 0 > $feature/scrub_order_min
echo 1 > $feature/scrub_unused
echo 10 > $feature/sleep_milliseconds
echo 500 > /proc/sys/vm/scrub_start
echo 900 > /proc/sys/vm/scrub_stop
echo 0 > /proc/sys/vm/scrub_load
status=0
stress() { stress-ng --temp-path /dev/shm --verify --oom-avoid --metrics-brief "$@" 2>&1 || status=1; }
stress --timeout $third --vm 1 --vm-bytes 96M --mmap 1 --mmap-bytes 96M --shm 1 --fork 1 --brk 1 --stack 1
free_kb=$(awk '/^MemAvailable/ { print $2 }' /proc/meminfo)
stress --timeout $third --vm 2 --vm-bytes $((free_kb * 6 / 10))k --vm-keep
# Not what needs a device, another kernel's feature, or memory that cannot be had.
out=mmaphuge,physpage,userfaultfd,watchdog,swap,tmpfs,oom-pipe
stressors=$(stress-ng --class vm? 2>&1 | sed 's/.*stressors: //' | wc -w)
# Some cannot have the memory that they want, which stress-ng counts as unsuccessful; what verifies says "fail:".
stress-ng --temp-path /dev/shm --verify --oom-avoid --class vm --sequential 1 --exclude $out \
	--timeout $((third / stressors + 1)) --vm-bytes 96M --mmap-bytes 96M --mremap-bytes 8M 2>&1 | tee class.log
grep -q ' fail: ' class.log && status=1
grep -q 'run completed' class.log || status=1
for name in hit_order0 hit_large hit_huge miss_order0 scrubbed_pages wasted_pages lost_taken; do
	echo "$name $(cat $feature/stats/$name)"
done
grep -E '^pswp' /proc/vmstat
"$(dirname "$0")/checks.sh" || status=1
exit $status
