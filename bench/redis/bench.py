# SPDX-License-Identifier: GPL-2.0
"""Redis: the fork for a snapshot, the latencies while the snapshot is written, and the snapshot's content."""

from bench.core import Aim, Benchmark, Figure, Options


def script(options: Options) -> str:
    """Return the guest's script: a large data set for the times, a small one for the snapshot's contents."""
    keys = options.pick(1000000, 200000, 2000)
    return f"""serve() {{
    mkdir -p "$1"
    redis-server --port 0 --unixsocket "$PWD/$1.sock" --save "" --enable-debug-command yes \\
        --dir "$PWD/$1" --daemonize no --appendonly no >"$1.log" 2>&1 &
    server=$!
}}
stop() {{
    kill "$server"
    wait "$server" || true
}}
serve large
./redis_client "$PWD/large.sock" {keys} 700 || {{ cat large.log; exit 1; }}
stop
rm -rf large
serve small
./redis_client "$PWD/small.sock" {options.pick(20000, 20000, 500)} 700 digest-before >/dev/null || exit 1
stop
mv small copy
serve copy
./redis_client "$PWD/copy.sock" digest >digest-loaded
stop
if cmp -s digest-before digest-loaded; then echo "@phase=snapshot | same=1"; else echo "@phase=snapshot | same=0"; fi"""


BENCHMARK = Benchmark(
    name="redis",
    title="redis-server: BGSAVE's fork, and SET latencies at rest and during the save",
    features=("fork", "rmap"),
    programs=("redis_client",),
    script=script,
    shown=("latest_fork_usec", "first_fork_usec", "worst_fork_usec", "mean_us", "p50_us", "p99_us", "p99.9_us",
           "max_us", "rdb_last_cow_kB", "same"),
    more_is_better=frozenset({"same"}),
    one_event=frozenset({"first_fork_usec", "worst_fork_usec", "max_us"}),
    icount_note="one CPU: the saving child and the server take turns; use --clock",
    main=({"phase": "fork"}, "latest_fork_usec"),
    boots=(("time", 3),),
    aims=(
        Aim("BGSAVE's fork, times faster", "latest_fork_usec", {"phase": "fork"}, 10, "times", clock="time",
            headline=True),
        Aim("p99.9 of SETs during the save", "p99.9_us", {"phase": "saving"}, 1.0, clock="time"),
        Aim("the snapshot holds what was there at the fork", "same", {"phase": "snapshot"}, 1, "value", clock="time",
            more_is_better=True),
    ),
    figures=(
        Figure("on-demand fork, EuroSys 2021", "Redis: mean time of the snapshot's fork", 7.40, 0.12, "ms"),
    ),
)
