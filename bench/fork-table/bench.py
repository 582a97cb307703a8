# SPDX-License-Identifier: GPL-2.0
"""The fork table of 2002."""

from bench.core import Benchmark, Options


def script(options: Options) -> str:
    """Return the guest's script."""
    return f"./fork_table {options.pick(262144, 16384, 256)} {options.pick(300, 100, 3)} ./tiny"


BENCHMARK = Benchmark(
    name="fork-table",
    title="fork, exec and exit by the number of touched pages",
    features=("fork", "rmap"),
    programs=("fork_table", "tiny"),
    script=script,
    shown=("us_per_process", "ns_per_page"),
    native=("seconds_total", "us_per_process", "ns_per_page"),
    main=({"step": "fork", "pages": "16384"}, "us_per_process"),
)
