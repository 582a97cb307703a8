# SPDX-License-Identifier: GPL-2.0
"""Redis: the fork of a snapshot and the latencies while it is written."""

from bench.core import Benchmark, Options


def script(options: Options) -> str:
    """Return the guest's script."""
    keys = options.pick(1000000, 200000, 2000)
    return f"""redis-server --port 0 --unixsocket "$PWD/sock" --save "" --enable-debug-command yes \
    --dir "$PWD" --daemonize no --appendonly no >redis.log 2>&1 &
server=$!
./redis_client "$PWD/sock" {keys} 700 || {{ cat redis.log; exit 1; }}
kill "$server"
wait "$server" || true"""


BENCHMARK = Benchmark(
    name="redis",
    title="redis-server: BGSAVE's fork, and SET latencies at rest and during the save",
    features=("fork", "rmap"),
    programs=("redis_client",),
    script=script,
    shown=("latest_fork_usec", "mean_us", "p50_us", "p99_us", "max_us", "rdb_last_cow_kB"),
    icount_note="one CPU: the saving child and the server take turns; use --clock",
    main=({"phase": "fork"}, "latest_fork_usec"),
)
