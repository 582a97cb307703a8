#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# The features' own walks over every process, and what was counted: prints both, fails where a walk complains.
status=0
[ ! -e /sys/kernel/mm/quire ] || [ -e /sys/kernel/debug/quire ] || mount -t debugfs none /sys/kernel/debug 2>/dev/null
for check in pt_check rmap_check rmap_check_files prezero_check; do
	file=/sys/kernel/debug/quire/$check
	[ -e $file ] || continue
	said=$(cat $file) || status=1
	echo "$check: $said"
	if grep -qE '(missing|chain_errors|unlinked|stale_migrations|dirty_blocks|miscounted_pages) [1-9]|[1-9][0-9]* complaints' <<< "$said"; then
		echo "$check complains"
		status=1
	fi
done
for feature in /sys/kernel/mm/quire/*/state; do
	grep -q disabled_by_warning "$feature" && { echo "$feature: disabled by a warning"; status=1; }
done
grep -H . /sys/kernel/mm/quire/*/stats/* | grep -v ':0$'
exit $status
