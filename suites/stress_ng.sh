# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
# Set up cases of stress-ng; suites/cases.sh reads this. All that a case has must fit into little memory and swap.
cgroup=/sys/fs/cgroup/cases
echo +memory > /sys/fs/cgroup/cgroup.subtree_control
mkdir $cgroup
echo 256M > $cgroup/memory.max
# stress-ng puts its files into the current folder.
cd "$TMPDIR" || exit 1
