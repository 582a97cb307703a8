#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Run a test of xfstests: xfstests_case.sh FOLDER FILESYSTEM TEST
# in the folder where it is built. The status is 77 if the test does not run here, and says why. What a test that fails
# prints, and its log's end, follow.
export FSTYP=$2
cd "$1" || exit 126
# What the last test left behind is no fault of this one.
for folder in "$TEST_DIR" "$SCRATCH_MNT"; do
	mountpoint -q "$folder" && umount "$folder"
done
wipefs -q -a "$TEST_DEV" "$SCRATCH_DEV"
"mkfs.$FSTYP" -q "$TEST_DEV" || exit 126
./check "$3"
status=$?
[ ! -e "$RESULT_BASE/$3.notrun" ] || exit 77
[ $status = 0 ] || tail -v -n 40 "$RESULT_BASE/$3".{out.bad,full,dmesg} 2> /dev/null
exit $status
