# SPDX-License-Identifier: GPL-2.0
"""Page-fault test."""

from bench.core import Aim, Benchmark, Figure, Options

# The cost of a fault without the clear limits the gain.
CEILING = ("hardware's ceiling is some 1.5 times for 4 KB pages, and 7.5 (as measured in 2004) to 10 times for 2 MiB "
           "pages")
LINES = {"huge": (1, 64, 4096, 0), "small": (1, 16, 0)}  # 0: the whole page


def script(options: Options) -> str:
    """Return the guest's script.

    By the clock, sustained repetitions fault 4 GB, which is three times what the pool of a 4 GB guest holds
    (scrub_stop: 30 %). When instructions are counted there is one CPU and nothing is zeroed meanwhile, so there are few
    repetitions.
    """
    mb = options.pick(256 if options.icount else 512, 128, 8)
    alone = options.icount or options.tiny
    modes = [("burst", options.pick(3, 2, 1)), ("sustained", 2 if alone else options.pick(8, 4, 1))]
    if not alone:
        modes.append(("busy", options.pick(3, 2, 1)))
    lines = []
    for mode, reps in modes:
        for threads in (1,) if alone or mode == "busy" else (1, 2):
            for page, size in (("huge", mb), ("small", mb // 4)):
                again = 4 * reps if mode == "sustained" and page == "small" and not alone else reps
                for n in LINES[page] if options.icount and mode == "burst" and not options.quick else (1, 0):
                    lines.append(f"./pft {size} {again} {threads} {page} {n} {mode}")
    return "\n".join(lines)


BURST = {"mode": "burst", "Threads": "1", "lines": "1"}

BENCHMARK = Benchmark(
    name="pft",
    title="page faults a second by page size, threads and lines touched",
    features=("prezero",),
    programs=("pft",),
    script=script,
    shown=("fault/wsec", "cpu_ns_per_fault"),
    more_is_better=frozenset({"fault/wsec"}),
    native=("User", "System", "Wall", "flt/cpu/s", "fault/wsec"),
    note=f"under TCG a rep stos is emulated in steps, which overstates what zeroing costs; {CEILING}",
    icount_note="a rep stos counts one instruction for each iteration, which overstates what zeroing costs; "
    f"the daemon's own instructions on the one CPU count where it runs inside a repetition; {CEILING}",
    main=({"mode": "burst", "page": "2M", "Threads": "1", "lines": "1"}, "fault/wsec"),
    boots=(("icount", 1), ("time", 3)),
    aims=(
        Aim("a 2 MiB fault from a filled pool, instructions", "cpu_ns_per_fault", {**BURST, "page": "2M"}, 15000,
            "value", headline=True),
        Aim("a 4 KB fault from a filled pool, instructions fewer (the clear is 4096)", "cpu_ns_per_fault",
            {**BURST, "page": "4K"}, 4000, "less", headline=True),
        Aim("sustained 2 MiB faults over three times the pool, one idle CPU, faults a second", "fault/wsec",
            {"mode": "sustained", "page": "2M", "Threads": "1", "lines": "1"}, 1.8, clock="time", more_is_better=True),
        Aim("4 KB faults from a filled pool, by the clock", "fault/wsec", {**BURST, "page": "4K"}, 1.3, clock="time",
            more_is_better=True),
        Aim("2 MiB faults from a filled pool, by the clock", "fault/wsec", {**BURST, "page": "2M"}, 20, clock="time",
            more_is_better=True),
        Aim("2 MiB faults, busy CPUs, empty pool, CPU time of a fault", "cpu_ns_per_fault",
            {"mode": "busy", "page": "2M", "lines": "1"}, 1.02, clock="time"),
        Aim("4 KB faults, busy CPUs, empty pool, CPU time of a fault", "cpu_ns_per_fault",
            {"mode": "busy", "page": "4K"}, 1.02, clock="time"),
        Aim("off: every row", "cpu_ns_per_fault", {"mode": "burst"}, 1.01, column="off"),
    ),
    figures=(
        Figure("Lameter, December 2004", "pft 1 GB, 1 thread, pool full", 69585, 524292, "flt/cpu/s"),
        Figure("Lameter, December 2004", "pft sustained, 1 thread of 8 CPUs", 69567, 267953, "fault/wsec"),
        Figure("Lameter, December 2004", "pft sustained, 8 threads of 8 CPUs", 179791, 221701, "fault/wsec"),
        Figure("Lameter, December 2004", "pool full, all 128 lines of a page touched", 69585, 102300, "flt/cpu/s"),
    ),
)
