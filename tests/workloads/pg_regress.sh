#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# PostgreSQL's own regression suite, twenty sessions at a time, on a server whose pool has many page tables:
# pg_regress.sh PREFIX SUITE, of which tests/pg_regress.py makes the second for the server in the first.
# Prints each test's outcome between "== pg_regress" and "== pg_regress status N", where the failed ones differ from
# what is expected, and what the features' walks say while the server still runs.
# SLOWDOWN multiplies the limit.
prefix=$1
suite=$2
# Processes and segments as small as theirs share, too, and fork shares the libraries' tables.
for knob in fork/mixed fork/min_tables shm/min_tables; do
	[ ! -e /sys/kernel/mm/quire/$knob ] || echo 1 > /sys/kernel/mm/quire/$knob
done
export PATH=$prefix/bin:$PATH PGHOST=/dev/shm/pg_regress
as_postgres() {
	setpriv --reuid postgres --regid postgres --clear-groups -- "$@"
}
# The server itself reads the suite's data and writes next to it, as another user than the one who made it.
cp -r "$suite" "$PGHOST" || exit 1
cp "$prefix"/lib/{autoinc,refint}.so "$PGHOST" || exit 1
chown -R postgres:postgres "$PGHOST"
cd "$PGHOST" || exit 1
as_postgres initdb --pgdata cluster --no-locale --encoding UTF8 --no-sync --no-instructions > /dev/null || exit 1
cat >> cluster/postgresql.conf <<END
listen_addresses = ''
unix_socket_directories = '$PGHOST'
shared_buffers = 256MB
huge_pages = off
fsync = off
# What the suite's own server is given, and less log to keep in memory.
max_prepared_transactions = 2
max_wal_size = 256MB
END
server() {
	as_postgres pg_ctl --pgdata cluster --silent --wait --timeout 300 --log "$PGHOST/log" "$@" || {
		cat log
		exit 1
	}
}
server start
# Its words are these up to PostgreSQL 15, and TAP with more words since.
outcomes() {
	local line number=0
	while IFS= read -r line; do
		if [[ $line =~ ^(test|\ \ )\ +([^ ]+)\ +\.\.\.\ (ok|FAILED|failed) ]]; then
			# What has failed in lower case is ignored: it fails by chance.
			[ "${BASH_REMATCH[3]}" = FAILED ] && line=not || line=
			echo "${line:+not }ok $((++number)) ${BASH_REMATCH[2]}"
		elif [[ $line =~ ^(not\ )?ok\ +([0-9]+)\ +[-+]\ ([^ ]+) ]]; then
			echo "${BASH_REMATCH[1]}ok ${BASH_REMATCH[2]} ${BASH_REMATCH[3]}"
		else
			echo "# $line"
		fi
	done
}
echo "== pg_regress"
as_postgres timeout $((2400 * ${SLOWDOWN:-1})) "$prefix/lib/pgxs/src/test/regress/pg_regress" --bindir="$prefix/bin" \
	--inputdir="$PGHOST" --outputdir="$PGHOST" --dlpath="$PGHOST" --schedule="$PGHOST/parallel_schedule" \
	--host="$PGHOST" --max-concurrent-tests=20 2>&1 | outcomes
status=${PIPESTATUS[0]}
grep -q 'was terminated by signal' log && echo "not ok 0 no session crashed" || echo "ok 0 no session crashed"
echo "== pg_regress status $status"
[ ! -e regression.diffs ] || head -n 400 regression.diffs | sed 's/^/# /'
# Its sessions have ended, but the server's own processes share with each other. Said as tests/group.py looks for it.
if [ -e /sys/kernel/mm/quire ]; then
	said=$("$(dirname "$0")/checks.sh" 2>&1) || echo "@@ the walks complain"
	echo "$said"
fi
server --mode fast stop
cd /
rm -rf "$PGHOST"
