# SPDX-License-Identifier: GPL-2.0
"""Many processes over one shared segment."""

from bench.core import Benchmark, Options


def script(options: Options) -> str:
    """Return the guest's script."""
    return f"./shm_table {options.pick(256, 64, 4)} {options.pick(200, 40, 10)}"


BENCHMARK = Benchmark(
    name="shm-table",
    title="page tables, faults and time of many processes over one shared segment",
    features=("shm",),
    programs=("shm_table",),
    script=script,
    shown=("pagetables_kB", "faults", "ms", "last_process_ms"),
    main=({"processes": "40"}, "pagetables_kB"),
)
