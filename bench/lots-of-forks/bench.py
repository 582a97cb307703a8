# SPDX-License-Identifier: GPL-2.0
"""Many small processes: shells with pipelines, many mappings, deep forks, and the memory for reverse mapping."""

from bench.core import Aim, Benchmark, Figure, Options


def script(options: Options) -> str:
    """Return the guest's script."""
    pipelines = 50 if options.icount and not options.quick else options.pick(200, 10, 1)
    lines = [
        "cp /bin/busybox .; ln -sf busybox cat; ln -sf busybox wc",
        f"./lots_of_forks {options.pick(10, 10, 2)} {pipelines} ./busybox",
        f"./vmas 300 {options.pick(32, 32, 2)}",
    ]
    if not options.tiny:
        lines.append("./vmas 1000 0")
    lines.append(f"./slabs {options.pick(100, 100, 3)} {options.pick(1000, 1000, 50)}")
    return "\n".join(lines)


BENCHMARK = Benchmark(
    name="lots-of-forks",
    title="ten shells running cat | wc; fork and exit by mappings and by fork depth",
    features=("fork", "rmap"),
    programs=("lots_of_forks", "vmas", "slabs"),
    script=script,
    shown=("us_per_pipeline", "sys_s", "us", "anon_vma", "anon_vma_chain", "slab_kB"),
    by_clock=frozenset({"sys_s"}),
    native=("real_s", "user_s", "sys_s"),
    main=({"vmas": "300", "depth": "32", "writes": "none"}, "us"),
    boots=(("icount", 1), ("time", 3)),
    aims=(
        Aim("fork+exit with 300 mappings", "us", {"vmas": "300", "depth": "0"}, 0.65),
        Aim("fork+exit with 1000 mappings", "us", {"vmas": "1000", "depth": "0"}, 0.65, headline=True),
        Aim("fork+exit at depth 32 without writes, against depth 0", "us", {"vmas": "300", "depth": "32",
            "writes": "none"}, 1.5, against="on", other={"depth": "0"}, headline=True),
        Aim("slab of 100 children with 1000 mappings between fork and exec", "slab_kB", {"state": "before_exec"}, 0.1),
        Aim("slab of 100 idle children, one mapping in ten written", "slab_kB", {"state": "idle"}, 0.5, headline=True),
        Aim("the pipelines", "us_per_pipeline", {}, 1.0),
        Aim("system time of the pipelines by the clock, on 2 CPUs", "sys_s", {}, 1.0, clock="time"),
        Aim("off: every row", "us", {}, 1.01, column="off"),
    ),
    figures=(
        Figure("Morton, August 2002, 4 CPUs", "lots_of_forks, sys: with reverse mapping, and with the speed-up", 107,
               95.8, "s"),
        Figure("Morton, August 2002, 4 CPUs", "lots_of_forks, real: the same two", 39.3, 35.9, "s"),
        Figure("Cole, August 2002, 2 CPUs", "lots_of_forks, sys: the same two", 34.3, 31.5, "s"),
    ),
)
