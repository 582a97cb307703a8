# SPDX-License-Identifier: GPL-2.0
"""Redis and PostgreSQL in a memory cgroup with a tight limit, with swap in compressed memory."""

from bench.core import Aim, Benchmark, Options
from bench.lib import postgresql

# Limits in percent: REDIS of what a snapshot needs, which is nine eighths of the server's memory, and POOL of the pool
# that the connections read.
REDIS = (120, 90)
POOL = 70
PREPARE = """echo +memory >/sys/fs/cgroup/cgroup.subtree_control
echo 3G >/sys/block/zram0/disksize; mkswap /dev/zram0 >/dev/null
swapon /dev/zram0
group() { mkdir /sys/fs/cgroup/$1; group=/sys/fs/cgroup/$1; before=0; }
# Reclaim uses the sizes of the LRU lists, which may be four seconds old (mem_cgroup_flush_stats_ratelimited()). If most
# pages have become active since then, it scans none of them, and setting a limit ends in the OOM killer.
limit() { sleep 5; echo $1K >$group/memory.max; }
# Count the kills since the last call.
killed() { now=$(awk '/^oom_kill / { print $2 }' $group/memory.events); killed=$((now - before)); before=$now; }
"""


def redis(options: Options) -> str:
    """Return the lines that save while keys are set: without a limit, with some room, and with too little."""
    keys = options.pick(1000000, 200000, 2000)
    client = f'./redis_client "$PWD/redis.sock" {keys} 700'
    lines = [f"""group redis
mkdir -p redis
(echo 0 >$group/cgroup.procs; exec redis-server --port 0 --unixsocket "$PWD/redis.sock" --save "" \\
    --enable-debug-command yes --dir "$PWD/redis" --daemonize no --appendonly no) >redis.log 2>&1 &
server=$!
{client} >free || {{ cat redis.log; exit 1; }}
grep -a phase=saving free
need=$(($(awk '/^VmRSS:/ {{ print $2 }}' /proc/$server/status) * 9 / 8))"""]
    for percent in REDIS:
        lines.append(f"""limit=$((need * {percent} / 100))
limit $limit
{client} again limit_{percent} || cat redis.log
killed
echo "@phase=limit_{percent} keys={keys} | limit_kB=$limit oom_kills=$killed\"""")
    return "\n".join([*lines, "kill $server; wait $server || true; rm -rf redis"])


def postgres(options: Options) -> str:
    """Return the lines with which 40 connections read random rows of a pool that does not fit into the limit."""
    pool_mb = options.pick(1024, 256, 64)
    rows = pool_mb * 128 * 15 // 16
    return f"""group postgres
{postgresql.cluster(pool_mb)}
(echo 0 >$group/cgroup.procs; as {postgresql.START}) || {{ cat log; exit 1; }}
# One row per page, found by its place in the file.
as "$bin/psql" -q -h "$PWD" postgres -c "create table filler (page text); alter table filler alter page
    set storage plain; insert into filler select repeat('x', 8000) from generate_series(1, {rows})"
cat >row.sql <<END
\\set page random(0, {rows - 1})
select length(page) from filler where ctid = ('(' || :page || ',1)')::tid;
END
run() {{
    rm -f times.*
    as "$bin/pgbench" -n -h "$PWD" -f row.sql -c 40 -j 2 -t $2 -l --log-prefix="$PWD/times" postgres >out 2>>log ||
        cat out log
    killed
    cat times.* | awk '{{ print $3 }}' | sort -n >sorted
    echo "@run=$1 clients=40 | tps=$(awk '/^tps/ {{ print $3; exit }}' out)" \\
        "p99.9_us=$(sed -n "$(($(wc -l <sorted) * 999 / 1000))p" sorted) oom_kills=$killed"
}}
run all {options.pick(1500, 500, 10)}
limit {pool_mb * 1024 * POOL // 100}
run limit_{POOL} {options.pick(500, 250, 5)}
as "$bin/pg_ctl" -m immediate -D data stop >/dev/null
cd .."""


def script(options: Options) -> str:
    """Return the guest's script."""
    return "\n".join([PREPARE, redis(options), postgres(options)])


LIMITED = {"phase": tuple(f"limit_{percent}" for percent in REDIS)}

BENCHMARK = Benchmark(
    name="limits",
    title="Redis that saves, and PostgreSQL's pool, in a memory cgroup that has no room for them",
    features=("fork", "shm", "rmap"),
    programs=("redis_client",),
    script=script,
    shown=("sets_per_s", "p99.9_us", "tps", "limit_kB", "oom_kills"),
    more_is_better=frozenset({"sets_per_s", "tps"}),
    one_event=frozenset({"max_us", "oom_kills"}),
    icount_note="one CPU: the saving child and the server take turns; use --clock",
    note="Redis' limits are a part of nine eighths of its server's memory before the first",
    main=({"phase": "limit_90"}, "sets_per_s"),
    timeout=3600,
    boots=(("time", 3),),
    smoke=False,
    aims=(
        Aim("Redis saves under its limit: SETs a second", "sets_per_s", LIMITED, 1.0, clock="time",
            more_is_better=True),
        Aim("Redis saves under its limit: p99.9 of SETs", "p99.9_us", LIMITED, 1.0, clock="time"),
        Aim("PostgreSQL under its limit: selects a second", "tps", {"run": f"limit_{POOL}"}, 1.0, clock="time",
            more_is_better=True),
        Aim("PostgreSQL under its limit: p99.9 of selects", "p99.9_us", {"run": f"limit_{POOL}"}, 1.0, clock="time"),
        Aim("processes that the OOM killer took", "oom_kills", {}, 0, "value", clock="time"),
    ),
)
