# SPDX-License-Identifier: GPL-2.0
"""What fork leaves to be paid later."""

from bench.core import Benchmark, Options


def script(options: Options) -> str:
    """Return the guest's script."""
    pages = options.pick(16384, 4096, 512)
    lines = [f"./after_fork {options.pick(65536, 16384, 512)}", f"./pagetables {options.pick(50, 50, 3)} {pages}"]
    if not options.quick:
        lines.append(f"./pagetables 200 {pages}")
    lines.append(f"./single_writes {options.pick(65536, 16384, 512)}")
    return "\n".join(lines)


BENCHMARK = Benchmark(
    name="after-fork",
    title="touching pages after fork, and page-table memory of many children",
    features=("fork", "rmap"),
    programs=("after_fork", "pagetables", "single_writes"),
    script=script,
    shown=("ns_per_page", "first_ns", "worst_ns", "pagetables_kB", "kB_per_child"),
    icount_note="the copy of a page (rep movs) counts one instruction for each iteration",
    main=({"children": "50", "state": "untouched"}, "pagetables_kB"),
)
