#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# stress-ng's memory stressors, verifying what they read, with swap on zram: stress.sh SECONDS

# fork shares the libraries' tables, too.
[ ! -e /sys/kernel/mm/quire/fork/mixed ] || echo 1 > /sys/kernel/mm/quire/fork/mixed
cd /dev/shm || exit 1
echo 256M > /sys/block/zram0/disksize
mkswap /dev/zram0 > /dev/null && swapon /dev/zram0
stress-ng --temp-path /dev/shm --timeout "$1" --verify --metrics-brief --oom-avoid \
	--fork 1 --vm 1 --vm-bytes 48M --mmapfork 1 --mremap 1 --mremap-bytes 8M --mprotect 1 \
	--rmap 1 --mmap 1 --mmap-bytes 48M --memfd 1 --memfd-bytes 48M --shm 1 --shm-sysv 1 2>&1
status=$?
"$(dirname "$0")/checks.sh" || exit 1
exit $status
