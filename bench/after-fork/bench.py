# SPDX-License-Identifier: GPL-2.0
"""What a fork costs afterwards: touching pages, and page tables."""

from bench.core import Aim, Benchmark, Figure, Options


def script(options: Options) -> str:
    """Return the guest's script."""
    return f"""./after_fork {options.pick(16384, 16384, 512)}
./pagetables {options.pick(200, 50, 3)} {options.pick(65536, 4096, 512)}
./single_writes {options.pick(65536, 16384, 512)}"""


MANY = {"children": "200", "pages": "65536", "state": "untouched"}

BENCHMARK = Benchmark(
    name="after-fork",
    title="touching pages after fork, and page-table memory of many children",
    features=("fork", "rmap"),
    programs=("after_fork", "pagetables", "single_writes"),
    script=script,
    shown=("ns_per_page", "first_ns", "worst_ns", "pagetables_kB", "touched_kB"),
    icount_note="the copy of a page (rep movs) counts one instruction for each iteration",
    one_event=frozenset({"worst_ns"}),
    main=({"state": "untouched"}, "pagetables_kB"),
    aims=(
        Aim("rewriting after the child has gone", "ns_per_page", {"case": "rewrite_child_gone"}, 0.02, headline=True),
        Aim("rewriting while the child lives", "ns_per_page", {"case": "rewrite_child_lives"}, 1.05, headline=True),
        Aim("page tables of 200 children of a 256 MB process, only those for the 256 MB, times less", "touched_kB",
            MANY, 50, "times", headline=True),
        Aim("page tables of the same children, all (stack, text and upper levels of each too), times less",
            "pagetables_kB", MANY, 50, "times"),
    ),
    figures=(
        Figure("COW PTE, RFC 1, May 2022", "PageTables added by a fork, 1 GB", 2100, 92, "kB"),
        Figure("COW PTE, RFC 2, September 2022", "mean write after fork, 512 MB", 0.742, 0.045, "us"),
    ),
)
