#!/bin/busybox sh
# SPDX-License-Identifier: GPL-2.0
# The init of a guest of its own, which hibernates to /dev/vda with a filled pool. `how=` on the kernel's command line
# is what /sys/power/disk is told: test_resume restores the image in the same boot, shutdown waits for the next one.
/bin/busybox mkdir -p /proc /sys /dev
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t debugfs debugfs /sys/kernel/debug
# Where no message of the kernel comes in between.
exec > /dev/ttyS1 2>&1
feature=/sys/kernel/mm/quire/prezero
how=$(sed 's/.*how=\([a-z_]*\).*/\1/' /proc/cmdline)
stat() { cat $feature/stats/"$1"; }

# A boot that finds an image does not come back from this.
cat /sys/block/vda/dev > /sys/power/resume 2> /dev/null
mkswap /dev/vda > /dev/null && swapon /dev/vda || echo "no swap"
echo 0 > /proc/sys/vm/scrub_start
echo 1 > $feature/scrub_unused
echo 1 > $feature/enabled
echo 1 > $feature/verify
dd if=/dev/urandom of=/data bs=1M count=32 2> /dev/null
sum=$(md5sum < /data)
echo 4 > /proc/sys/vm/nr_hugepages
echo 1 > $feature/scrub_now
echo "hugetlb: $(stat hugetlb_zeroed_pages)"
echo "before: $(($(stat zeroed_pages) > 0))"
echo "$how" > /sys/power/disk
echo disk > /sys/power/state
echo "hibernated: $?"
echo "after: $(stat zeroed_pages)"
[ "$sum" = "$(md5sum < /data)" ] && echo "data: same"
echo $(cat /sys/kernel/debug/quire/prezero_check)
echo 1 > $feature/scrub_now
echo "again: $(($(stat zeroed_pages) > 0))"
echo "state: $(cat $feature/state)"
/prezero_basic -t rounds_of_dirtying
# The last close of the port waits until all is out.
exec > /dev/null 2>&1
poweroff -f
