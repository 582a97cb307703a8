#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# stress-ng's memory stressors, verifying what they read, with swap on zram: stress.sh SECONDS

# Small processes and segments share, too, and the libraries' tables.
for knob in fork/mixed fork/min_tables shm/min_tables; do
	[ ! -e /sys/kernel/mm/quire/$knob ] || echo 1 > /sys/kernel/mm/quire/$knob
done
cd /dev/shm || exit 1
echo 256M > /sys/block/zram0/disksize
mkswap /dev/zram0 > /dev/null && swapon /dev/zram0
stress-ng --temp-path /dev/shm --timeout "$1" --verify --metrics-brief --oom-avoid \
	--fork 1 --forkheavy 1 --forkheavy-procs 200 --vm 1 --vm-bytes 48M --mmapfork 1 \
	--mremap 1 --mremap-bytes 8M --mprotect 1 --madvise 1 \
	--rmap 1 --mmap 1 --mmap-bytes 48M --memfd 1 --memfd-bytes 48M --memfd-fds 8 \
	--shm 1 --shm-bytes 16M --shm-objs 4 --shm-sysv 1 --shm-sysv-bytes 16M --shm-sysv-segs 2 2>&1
status=$?
"$(dirname "$0")/checks.sh" || exit 1
exit $status
