#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# CRIU freezes processes that share page tables, once while they go on and once for good, and thaws them: criu.sh [lazy]
# With lazy, their memory is given back page by page as they fault, through userfaultfd.
set -e
dir=$(mktemp -d /dev/shm/criu.XXXXXX)
mkdir "$dir/first" "$dir/last"
for knob in fork/min_tables shm/min_tables; do
	[ ! -e /sys/kernel/mm/quire/$knob ] || echo 1 > /sys/kernel/mm/quire/$knob
done
await() {
	for _ in $(seq 1200); do
		[ ! -e "$1" ] || return 0
		sleep 0.1
	done
	echo "no $1"
	return 1
}
freeze() {
	criu "$1" --tree "$pid" --track-mem --images-dir "$dir/$2" --log-file log "${@:3}" && return
	tail -40 "$dir/$2/log"
	return 1
}
setsid "$(dirname "$0")/frozen.py" "$dir" < /dev/null > "$dir/out" 2>&1 &
pid=$!
await "$dir/ready"
grep -H shared_tables /proc/$pid/quire || true
freeze pre-dump first
kill -USR1 $pid
await "$dir/written"
freeze dump last --prev-images-dir ../first
wait $pid || true
"$(dirname "$0")/checks.sh"
how=()
if [ "$1" = lazy ]; then
	# criu writes a byte when it serves pages. Before that, restore fails.
	mkfifo "$dir/serves"
	criu lazy-pages --images-dir "$dir/last" --log-file lazy --status-fd 3 3> "$dir/serves" &
	timeout 120 head -c 1 "$dir/serves" > "$dir/served" || true
	[ -s "$dir/served" ] || {
		tail -40 "$dir/last/lazy"
		exit 1
	}
	how=(--lazy-pages)
fi
criu restore --restore-detached --images-dir "$dir/last" --log-file restored "${how[@]}" || {
	tail -40 "$dir/last/restored"
	exit 1
}
grep -H shared_tables /proc/$pid/quire || true
kill -USR2 $pid
await "$dir/verdict"
cat "$dir/verdict"
[ ! "$1" = lazy ] || wait
"$(dirname "$0")/checks.sh"
grep -qx 'wrong pages: \[0, 0, 0, 0\]' "$dir/verdict"
