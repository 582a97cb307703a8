# SPDX-License-Identifier: GPL-2.0
"""The machine probe: what the primitives cost."""

from bench.core import Benchmark, Options


def script(options: Options) -> str:
    """Return the guest's script."""
    return f"./machine {options.pick(65536, 16384, 64)} {options.pick(4000, 2000, 50)}"


BENCHMARK = Benchmark(
    name="machine",
    title="what the primitives cost here",
    features=(),
    programs=("machine",),
    script=script,
    shown=("ns",),
    icount_note="instructions know no caches: hot and cold, and all sizes, count the same",
)
