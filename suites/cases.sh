#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Run cases of a suite in a guest: cases.sh SETUP LIMIT CASE...
# where a CASE is a name, a space and a command line for the shell, in one word. LIMIT is in seconds.
# SETUP is the suite's own script. It is read before the cases, which inherit what it exports; if it sets `cgroup` to
# the folder of a control group, they run there.
# Prints each one's output between "== NAME" and "== NAME status N". N is 124 if the case has passed its limit. Such a
# case may leave anything behind, so it is the last: the caller goes on in another guest.
# SLOWDOWN multiplies all limits, those of the cases' own library, too.
export SLOWDOWN=${SLOWDOWN:-1} TMPDIR=/run/cases
setup=$1
limit=$(($2 * SLOWDOWN))
shift 2
# Processes and segments as small as theirs share, too.
for knob in fork/mixed fork/min_tables shm/min_tables; do
	[ ! -e /sys/kernel/mm/quire/$knob ] || echo 1 > /sys/kernel/mm/quire/$knob
done
# There is swap, a disk for more, and a file system on one.
echo 1G > /sys/block/zram0/disksize
mkswap /dev/zram0 > /dev/null && swapon /dev/zram0
disk=zram$(< /sys/class/zram-control/hot_add)
echo 1G > /sys/block/$disk/disksize
mkfs.ext4 -q /dev/$disk && mkdir -p $TMPDIR && mount /dev/$disk $TMPDIR && chmod 1777 $TMPDIR
cgroup=
. "$setup"
# The OOM killer spares this shell, and not the cases.
echo -900 > /proc/self/oom_score_adj
for one; do
	name=${one%% *}
	begun=$SECONDS
	echo "== $name"
	cgroup=$cgroup setsid bash -c 'echo $$ > /run/cases.session; echo 0 > /proc/self/oom_score_adj
		[ -z "$cgroup" ] || echo $$ > "$cgroup/cgroup.procs"
		exec timeout -k 10 "$0" bash -c "$1"' "$limit" "${one#* }" < /dev/null 2>&1
	status=$?
	# timeout(1) says 137 of a case that it had to kill, and of one that the OOM killer has killed before the limit.
	[ $status != 137 ] || [ $((SECONDS - begun)) -lt $limit ] || status=124
	pkill -KILL -s "$(< /run/cases.session)"
	# A case's last line may have no end.
	printf '\n== %s status %d\n' "$name" $status
	[ $status != 124 ] || exit 0
done
