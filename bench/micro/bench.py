# SPDX-License-Identifier: GPL-2.0
"""Small operations: the gate for "off costs nothing"."""

from bench.core import Aim, Benchmark, Options


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
    # mmap_munmap and brk have two repeatable costs, 6 % apart. On every kernel, a boot leaves the slabs of their areas
    # in one of two states.
    least=True,
    boots=(("icount", 5),),
    main=({"op": "fork_exec_exit"}, "ns"),
    aims=(
        Aim("off: every operation", "ns", {}, 1.01, column="off", headline=True),
        Aim("on, all features: every operation", "ns", {}, 1.01),
        Aim("on, all features: fork and exit of a small static program", "ns", {"op": "fork_exit"}, 0.96),
    ),
)
