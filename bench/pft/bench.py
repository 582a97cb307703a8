# SPDX-License-Identifier: GPL-2.0
"""Page-fault test."""

from bench.core import Benchmark, Options


def script(options: Options) -> str:
    """Return the guest's script."""
    mb = options.pick(512, 128, 8)
    threads = (1,) if options.icount or options.tiny else (1, 2)
    lines = []
    for mode, reps in (("burst", options.pick(3, 2, 1)), ("sustained", options.pick(8, 4, 1))):
        for t in threads:
            for n in (1, 64, 4096, 0) if not options.quick else (1, 0):
                lines.append(f"./pft {mb} {reps} {t} huge {n} {mode}")
            for n in (1, 16, 0) if not options.quick else (1, 0):
                lines.append(f"./pft {mb // 4 or 1} {reps} {t} small {n} {mode}")
    return "\n".join(lines)


BENCHMARK = Benchmark(
    name="pft",
    title="page faults a second by page size, threads and lines touched",
    features=("prezero",),
    programs=("pft",),
    script=script,
    shown=("fault/wsec", "flt/cpu/s"),
    more_is_better=frozenset({"fault/wsec", "flt/cpu/s"}),
    native=("User", "System", "Wall", "flt/cpu/s", "fault/wsec"),
    note="under TCG a rep stos is emulated in steps, which overstates what zeroing costs",
    icount_note="a rep stos counts one instruction for each iteration, which overstates what zeroing costs; "
    "the daemon's own instructions on the one CPU count where it runs inside a repetition",
    main=({"mode": "burst", "page": "2M", "Threads": "1", "lines": "1"}, "fault/wsec"),
)
