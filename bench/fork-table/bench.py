# SPDX-License-Identifier: GPL-2.0
"""The fork table of 2002: the overhead for creating N tasks, by the pages they have touched."""

from bench.core import Aim, Benchmark, Figure, Options


def script(options: Options) -> str:
    """Return the guest's script."""
    return f"""./fork_table {options.pick(262144, 16384, 256)} {options.pick(300, 100, 3)} ./tiny
./fork_table pin {options.pick(65536, 16384, 1024)} {options.pick(20, 10, 3)}"""


SMALL = ("0", "16", "64", "256")

BENCHMARK = Benchmark(
    name="fork-table",
    title="overhead for creating tasks: fork, exec and exit by the number of touched pages",
    features=("fork", "rmap"),
    programs=("fork_table", "tiny"),
    script=script,
    shown=("us_per_process",),
    native=("seconds", "overhead_seconds", "us_per_process", "us_per_process_per_page"),
    main=({"step": "fork", "pages": "16384"}, "us_per_process"),
    aims=(
        Aim("fork() alone, 1 GB touched, times fewer", "us_per_process", {"step": "fork", "pages": "262144"}, 100,
            "times", headline=True),
        Aim("fork+exit+wait, 64 MB touched, against an empty process", "us_per_process",
            {"step": "fork+exit", "pages": "16384"}, 1.2, against="on", other={"pages": "0"}, headline=True),
        Aim("fork+exit+wait, 1 GB touched, against an empty process", "us_per_process",
            {"step": "fork+exit", "pages": "262144"}, 2.5, against="on", other={"pages": "0"}),
        Aim("fork() alone, 256 MB in tables of its own, once a page was pinned, against never", "us_per_process",
            {"step": "fork-own-pinned", "pages": "65536"}, 1.2, against="on", other={"step": "fork-own"}),
        Aim("fork() alone, 0 to 256 pages", "us_per_process", {"step": "fork", "pages": SMALL}, 1.01),
        Aim("fork+exit+wait, 0 to 256 pages", "us_per_process", {"step": "fork+exit", "pages": SMALL}, 1.01),
        Aim("fork+exec+exit+wait, 0 to 256 pages", "us_per_process", {"step": "fork+exec+exit", "pages": SMALL}, 1.01),
        Aim("off: every row", "us_per_process", {}, 1.01, column="off"),
    ),
    figures=(
        Figure("McCracken, October 2002", "fork, 40 MB of shared memory touched", 28.4, 3.4, "ms"),
        Figure("McCracken, October 2002", "fork+exit, 40 MB", 44.2, 4.1, "ms"),
        Figure("McCracken, October 2002", "fork+exec+exit, 40 MB", 49.3, 10.7, "ms"),
        Figure("McCracken, October 2002", "fork+exec+exit, 400 kB (slower)", 6.5, 7.7, "ms"),
        Figure("on-demand fork, EuroSys 2021", "fork, 1 GB (published: 65 times faster)", 6.5, 0.1, "ms"),
    ),
)
