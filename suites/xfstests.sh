# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
# Set up tests of xfstests; suites/cases.sh reads this. They have two disks in compressed memory; xfstests_cases.py
# makes the file system that they begin with. What they say is on the file system of all cases.
for name in TEST SCRATCH; do
	disk=zram$(< /sys/class/zram-control/hot_add)
	echo 4G > "/sys/block/$disk/disksize"
	mkdir -p "/run/xfstests/$name" $TMPDIR/xfstests
	export "${name}_DEV=/dev/$disk"
done
export TEST_DIR=/run/xfstests/TEST SCRATCH_MNT=/run/xfstests/SCRATCH RESULT_BASE=$TMPDIR/xfstests
