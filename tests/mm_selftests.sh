#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Run the kernel's own mm selftests in a guest: mm_selftests.sh FOLDER TEST...
# where a TEST is a program and its arguments in one word.
# Prints each one's output between "== TEST" and "== TEST status N".
# SLOWDOWN multiplies the limit of each.
# They want swap and some huge pages, which the guest's disks do not give.
cd "$1" || exit 1
shift
# Processes and segments as small as theirs share, too.
for knob in fork/mixed fork/min_tables shm/min_tables; do
	[ ! -e /sys/kernel/mm/quire/$knob ] || echo 1 > /sys/kernel/mm/quire/$knob
done
echo 64 > /proc/sys/vm/nr_hugepages
if [ ! -e /tmp/mm_selftests.swap ]; then
	touch /tmp/mm_selftests.swap
	echo 512M > /sys/block/zram0/disksize
	mkswap /dev/zram0 > /dev/null && swapon /dev/zram0
fi
for test; do
	echo "== $test"
	# Split into words on purpose.
	timeout $((200 * ${SLOWDOWN:-1})) ./$test 2>&1
	echo "== $test status $?"
done
