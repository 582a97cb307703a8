# SPDX-License-Identifier: GPL-2.0
"""Small operations: the gate for "off costs nothing"."""

from bench.core import Benchmark, Options


def script(options: Options) -> str:
    """Return the guest's script."""
    return f"./micro {options.pick(2, 1, 1)} ./tiny ./data"


BENCHMARK = Benchmark(
    name="micro",
    title="small operations, which no feature may slow down",
    features=("fork", "shm", "prezero", "text", "rmap"),
    programs=("micro", "tiny"),
    script=script,
    shown=("ns",),
    main=({"op": "fork_exec_exit"}, "ns"),
)
