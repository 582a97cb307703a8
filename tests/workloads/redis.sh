#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# A snapshot holds what was in memory when it was asked for, however much is written meanwhile.
# redis.sh [KEYS [ROUNDS [NAME]]]; NAME is redis or valkey. Prints the digests.
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
$cli shutdown nosave || true
rm -rf "$dir"
"$(dirname "$0")/checks.sh"
