# SPDX-License-Identifier: GPL-2.0
"""PostgreSQL, whose connections all map one pool of shared memory."""

import dataclasses

from bench.core import Aim, Benchmark, Figure, Options
from bench.lib import postgresql


def rates(options: Options) -> str:
    """Return the lines that measure selects of long connections, and of short ones."""
    return f"""tps() {{ awk '/^tps/ {{ print $3; exit }}' "$1"; }}
bench -S -c 8 -j 2 -t {options.pick(400, 100, 5)} >kept
echo "@run=select clients=8 | tps=$(tps kept)"
bench -S -C -c 20 -j 2 -t {options.pick(20, 5, 1)} >storm
echo "@run=connect clients=20 | tps=$(tps storm)\""""


def pool(rows: int) -> str:
    """Return the lines that make nothing.sql, and pool.sql, which reads four tables of so many pages."""
    return f"""for table in filler1 filler2 filler3 filler4; do
    # One row a page, so that to count the rows is to look at each page.
    ask "create table $table (page text); alter table $table alter page set storage plain;
        insert into $table select repeat('x', 8000) from generate_series(1, {rows})" >/dev/null
    echo "select count(*) from $table;"
done >pool.sql
echo 'select 1;' >nothing.sql"""


def page_tables(readers: int, rows: int) -> str:
    """Return the lines that count the page tables of connections, with and without having read the pool."""
    return f"""tables() {{
    cat /proc/sys/vm/stat_refresh
    awk '/^PageTables:/ {{ print $2 }}' /proc/meminfo
}}
ask() {{ as "$bin/psql" -At -h "$PWD" -c "$1" postgres; }}
advisory() {{ ask "select count(*) from pg_locks where locktype = 'advisory' and $1"; }}
until_locks() {{ while [ "$(advisory "$1")" -lt "$2" ]; do sleep 0.3; done; }}
# The readers wait for a lock after their scan, so that all of them exist when page tables are measured.
mkfifo hold
as "$bin/psql" -q -h "$PWD" postgres <hold >/dev/null &
exec 9>hold
{pool(rows)}
for read in nothing pool; do
    echo 'select pg_advisory_lock(1);' >&9
    until_locks granted 1
    echo 'select pg_advisory_lock_shared(1);' >>$read.sql
    before=$(tables)
    bench -f $read.sql -c {readers} -j 2 -t 1 >scan &
    job=$!
    until_locks "not granted" {readers}
    used=$(($(tables) - before))
    echo "@run=read_$read clients={readers} | pagetables_kB=$used"
    [ $read = nothing ] && own=$used
    echo 'select pg_advisory_unlock(1);' >&9
    wait "$job"
done
echo "@run=pool_alone clients={readers} | pagetables_kB=$((used - own))"
exec 9>&-"""


def script(options: Options) -> str:
    """Return the guest's script: many short connections, few long ones, and many that have each read the whole pool."""
    # Where instructions are counted, on one slow CPU, less is enough: the counts do not scatter.
    few = dataclasses.replace(options, quick=options.quick or options.icount)
    pool_mb = few.pick(1024, 256, 64)
    # Four tables that fill the pool together: a scan of more than a quarter of it would go through a small ring.
    rows = pool_mb * 128 * 15 // 64
    return f"""{postgresql.cluster(pool_mb, "max_connections = 250")}
as {postgresql.START} || {{ cat log; exit 1; }}
bench() {{ as "$bin/pgbench" -n -h "$PWD" "$@" postgres 2>>pgbench.log || {{ cat pgbench.log; exit 1; }}; }}
as "$bin/pgbench" -i -q -h "$PWD" -s {options.pick(10, 5, 1)} postgres >init.log 2>&1 || {{ cat init.log; exit 1; }}
{rates(options)}
{page_tables(few.pick(100, 40, 4), rows)}
as "$bin/pg_ctl" -m fast -D data stop >/dev/null
cd .."""


BENCHMARK = Benchmark(
    name="postgres",
    title="PostgreSQL: selects, connection storms, and page tables of connections that read the whole pool",
    features=("shm", "fork", "rmap", "text", "prezero"),
    knobs=("fork/mixed=1",),
    programs=(),
    script=script,
    shown=("tps", "pagetables_kB"),
    more_is_better=frozenset({"tps"}),
    note="an emulated TLB and cache are not those of hardware, where sharing gave a database 25 to 49 % in 2006",
    icount_note="tps is per 10^9 instructions of one CPU, of clients and servers together",
    main=({"run": "read_pool"}, "pagetables_kB"),
    timeout=2400,
    boots=(("time", 1), ("icount", 1)),
    smoke=False,
    aims=(
        Aim("selects a second", "tps", {"run": "select"}, 1.0, clock="time", more_is_better=True),
        Aim("connections a second", "tps", {"run": "connect"}, 1.25, clock="time", more_is_better=True),
        Aim("selects by instructions", "tps", {"run": "select"}, 1.0, more_is_better=True),
        Aim("connections by instructions", "tps", {"run": "connect"}, 1.25, more_is_better=True),
        Aim("page tables of 100 connections that have read the pool of 1 GB, times less", "pagetables_kB",
            {"run": "read_pool"}, 20, "times", clock="time", headline=True),
        Aim("of these, what the pool adds to connections that have read nothing, times less", "pagetables_kB",
            {"run": "pool_alone"}, 20, "times", clock="time"),
    ),
    figures=(
        Figure("mshare, Wartak, June 2025", "pgbench -S, 16000 clients (130 to 140 thousand before)", 135000, 189000,
               "tps"),
    ),
)
