# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
# Set up the kernel's own selftests; suites/cases.sh reads this.
cgroups=/sys/fs/cgroup/cgroup.subtree_control
for controller in $(< /sys/fs/cgroup/cgroup.controllers); do
	echo "+$controller" > $cgroups
done
