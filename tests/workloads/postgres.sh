#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# PostgreSQL under concurrent writers and readers, then stopped the hard way and recovered: the money adds up, every
# page's checksum and every index is right. postgres.sh [CLIENTS [TRANSACTIONS [SCALE]]]
set -e
clients=${1:-8}
transactions=${2:-40}
scale=${3:-1}
# fork shares the libraries' tables, too.
[ ! -e /sys/kernel/mm/quire/fork/mixed ] || echo 1 > /sys/kernel/mm/quire/fork/mixed
bin=$(ls -d /usr/lib/postgresql/*/bin | tail -n 1)
export PATH=$bin:$PATH PGHOST=/dev/shm/pgsql PGUSER=postgres PGDATABASE=bench
data=$PGHOST/data
as_postgres() {
	setpriv --reuid postgres --regid postgres --clear-groups -- "$@"
}
mkdir "$PGHOST"
chown postgres:postgres "$PGHOST"
cd "$PGHOST"
as_postgres initdb --pgdata "$data" --data-checksums --no-sync --no-instructions > /dev/null
server() {
	as_postgres pg_ctl --pgdata "$data" --silent --wait --timeout 300 --log "$PGHOST/log" "$@" || {
		cat "$PGHOST/log"
		exit 1
	}
}
options="-k $PGHOST -c listen_addresses= -c shared_buffers=96MB -c max_connections=200 -c autovacuum=off"
server --options "$options" start
createdb bench
pgbench --initialize --quiet --scale "$scale" --init-steps dtgvp 2> /dev/null
pgbench --client "$clients" --transactions "$transactions" --no-vacuum > "$PGHOST/write" 2>&1 &
writers=$!
pgbench --client "$clients" --transactions "$transactions" --no-vacuum --select-only --connect > "$PGHOST/read" 2>&1
wait $writers || { cat "$PGHOST/write"; exit 1; }
grep processed "$PGHOST/write" "$PGHOST/read"
sums="select (select sum(abalance) from pgbench_accounts) = (select sum(delta) from pgbench_history)
	and (select sum(tbalance) from pgbench_tellers) = (select sum(bbalance) from pgbench_branches)
	and (select count(*) from pgbench_history) = $((clients * transactions))"
[ "$(psql --no-align --tuples-only --command "$sums")" = t ]
server --mode immediate stop
server --options "$options" start
[ "$(psql --no-align --tuples-only --command "$sums")" = t ]
psql --quiet --command 'create extension amcheck'
pg_amcheck --heapallindexed
server --mode fast stop
pg_checksums --check --pgdata "$data" | grep 'Bad checksums'
echo "postgres: the sums are right before and after a crash"
cd /
rm -rf "$PGHOST"
"$(dirname "$0")/checks.sh"
