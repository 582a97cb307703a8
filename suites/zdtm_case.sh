#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Freeze and thaw a program of zdtm: zdtm_case.sh WAY PROGRAM [ARGUMENT...]
# where WAY is once, iterative or lazy. The program says when it is ready, by its pidfile, and after a SIGTERM what it
# found, in its outfile. APART is a command that starts it apart from this script. The status is 1 if it found a fault
# or could not start, and 2 if CRIU could not freeze or thaw it.
set -e
way=$1 name=${2##*/}
dir=$(mktemp -d "$TMPDIR/zdtm.XXXXXX")
cp "$2" "$dir"
cd "$dir"
mkdir first last
# What the guest's own script has open is no business of the program, and CRIU cannot freeze all of it.
for fd in /proc/self/fd/*; do
	fd=${fd##*/}
	[ "$fd" -le 2 ] || eval "exec $fd>&-"
done
trap 'pkill -KILL -f "^$dir/$name" || true' EXIT
criu_does() {
	criu "$@" --log-file log && return
	tail -n 30 "${images:-last}/log"
	exit 2
}
$APART "$dir/$name" --pidfile="$name.pid" --outfile="$name.out" "${@:3}" < /dev/null > started 2>&1 || {
	cat started "$name".out* || true
	exit 1
}
pid=$(< "$name.pid")
grep -H shared_tables "/proc/$pid/quire" 2> /dev/null || true
how=()
if [ "$way" = iterative ]; then
	images=first criu_does pre-dump --tree "$pid" --track-mem --images-dir first
	sleep 0.2
	how=(--track-mem --prev-images-dir ../first)
fi
criu_does dump --tree "$pid" --images-dir last "${how[@]}"
how=()
if [ "$way" = lazy ]; then
	criu lazy-pages --images-dir last --log-file lazy &
	until [ -e last/lazy-pages.socket ]; do
		kill -0 $!
		sleep 0.1
	done
	how=(--lazy-pages)
fi
criu_does restore --restore-detached --images-dir last "${how[@]}"
kill -TERM "$pid"
while [ -e "/proc/$pid" ] && [ ! -e "$name.out" ]; do
	sleep 0.1
done
cat "$name.out" "$name.out.inprogress" 2> /dev/null || true
grep -q PASS "$name.out" || { ls; cat started; exit 1; }
