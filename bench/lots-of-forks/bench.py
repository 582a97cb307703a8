# SPDX-License-Identifier: GPL-2.0
"""Many small processes: shells with pipelines, many mappings, deep forks."""

from bench.core import Benchmark, Options


def script(options: Options) -> str:
    """Return the guest's script."""
    depth = options.pick(32, 32, 2)
    lines = [
        "cp /bin/busybox .; ln -sf busybox cat; ln -sf busybox wc",
        f"./lots_of_forks {options.pick(10, 10, 2)} {options.pick(50, 10, 1)} ./busybox",
        f"./vmas 300 {depth}",
    ]
    if not options.tiny:
        lines += ["./vmas 1000 0", "./chains 1000 100"]
    return "\n".join(lines)


BENCHMARK = Benchmark(
    name="lots-of-forks",
    title="ten shells running cat | wc; fork and exit by mappings and by fork depth",
    features=("fork", "rmap"),
    programs=("lots_of_forks", "vmas", "chains"),
    script=script,
    shown=("us_per_pipeline", "us", "sum_kb"),
    native=("real_s", "user_s", "sys_s"),
    main=({"vmas": "300", "depth": "32", "writes": "none"}, "us"),
)
