#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# A snapshot holds what was in memory when it was asked for, however much is written meanwhile.
# redis.sh [KEYS [ROUNDS [NAME [cow]]]]; NAME is redis or valkey. Prints the digests, and with cow what the server tells
# to have copied during a snapshot of which it changed a known part, with its tables copied by fork and with them shared.
set -e
keys=${1:-60000}
rounds=${2:-2}
name=${3:-redis}
dir=$(mktemp -d /dev/shm/redis.XXXXXX)
cli="$name-cli -s $dir/s"
start() {
	"$name-server" --port 0 --unixsocket "$dir/s" --save "" --dir "$dir" --daemonize yes \
		--enable-debug-command yes --logfile "$dir/log" "$@" > /dev/null
	for _ in $(seq 300); do
		$cli ping 2> /dev/null | grep -q PONG && return
		sleep 0.1
	done
	cat "$dir/log"
	exit 1
}
start
$cli debug populate "$keys" key 500 > /dev/null
for round in $(seq "$rounds"); do
	before=$($cli debug digest)
	$cli bgsave > /dev/null
	"$name-benchmark" -s "$dir/s" -q -t set -n 8000 -r 1000 -d 300 -c 4 > /dev/null
	for _ in $(seq 600); do
		$cli info persistence | grep -q rdb_bgsave_in_progress:0 && break
		sleep 0.1
	done
	$cli info persistence | grep -E 'rdb_last_bgsave_status|rdb_last_cow_size'
	cp "$dir/dump.rdb" "$dir/$round.rdb"
	$cli shutdown nosave || true
	start --dbfilename "$round.rdb"
	after=$($cli debug digest)
	echo "round $round: $before $after"
	[ "$before" = "$after" ]
done
# Changes a quarter of the keys while a snapshot is on its way. Values of this size are not dismissed by the child.
cow() {
	for delay in 300 3000 30000; do
		$cli config set rdb-key-save-delay $delay > /dev/null
		$cli bgsave > /dev/null
		seq 0 999 | sed 's/.*/SETRANGE key:& 0 changed/' | $cli > /dev/null
		during=$($cli info persistence | grep -c rdb_bgsave_in_progress:1 || true)
		for _ in $(seq 6000); do
			$cli info persistence | grep -q rdb_bgsave_in_progress:0 && break
			sleep 0.1
		done
		[ "$during" = 0 ] || return 0
	done
	return 1
}
if [ "${4:-}" = cow ]; then
	# A server that has freed nothing: what its allocator gives back meanwhile would count as the child's own.
	$cli shutdown nosave || true
	start --dbfilename empty.rdb
	$cli debug populate 4000 key 2000 > /dev/null
	pid=$($cli info server | sed -n 's/^process_id:\([0-9]*\).*/\1/p')
	shared=/sys/kernel/mm/quire/fork/stats/tables_shared
	for policy in 0 1; do
		echo $policy > "/proc/$pid/quire"
		before=$(< $shared)
		cow
		echo "policy $policy: $(($(< $shared) - before)) tables shared," \
			"$($cli info persistence | tr -d '\r' | grep rdb_last_cow_size)"
	done
fi
$cli shutdown nosave || true
rm -rf "$dir"
"$(dirname "$0")/checks.sh"
