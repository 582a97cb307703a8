#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Compute what it costs to reclaim memory that many processes share, on machines larger than those measured.

Four ways to reclaim a page are compared. On vanilla each user has its own page-table entry. In the other three the
users share one entry. In two of these all CPUs flush, for each page or for each batch of reclaim, and reclaim need not
know who the users are. In the third, reclaim walks over all users, and their CPUs flush for each batch; this is what
quire does.

This is arithmetic and no measurement. What goes into it:

instructions a page:   10,200, plus 2,220 for each user, if each user has its own entry; 11,150, plus 1,495 for each
                       user, if they share one. Counted by `bench/run --icount --quick pressure`, reclaim of what fork
                       shares, columns off and on. The difference between 50 and 8 users gives the cost of a user, and
                       the rest is that of the page.
users that are walked: all; only one if all CPUs flush. Assumed: such a walk may end at the first user.
flushes a page:        one for 32 pages, SWAP_CLUSTER_MAX in include/linux/swap.h of Linux 6.12. A page with a dirty
                       entry needs a flush of its own before it is written out: set_tlb_ubc_flush_pending() in
                       mm/rmap.c, shrink_folio_list() in mm/vmscan.c. The benchmark's case single, pageout, two
                       threads counts these flushes.
CPUs that are told:    those that run users at the time (--running), or all. Counted by `bench/run --clock --quick
                       pressure`: reclaim in batches interrupts no CPU that runs no user; a flush of all CPUs
                       interrupts each of them once (case punch, two users).
an instruction:        0.5 ns. Assumed.
a flush:               1,000 ns, plus 200 ns for each CPU that is told: https://unseel.com/cs/tlb-shootdown, an
                       overview.
an interrupt:          404 ns of the CPU that gets it: 1,212 cycles at 3 GHz, from the Shinjuku paper (NSDI 2019).
a TLB miss:            10 ns: https://notes.elimelt.com/operating-systems/benchmarks/tlb.html
misses after a flush:  64 on each CPU that flushes (--hot-pages). Assumed.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from pathlib import Path

if not __package__:  # it is run as a program
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from guest import cli

PAGE = 4096
ENTRY = 8
BATCH = 32
INSTRUCTION_NS = 0.5
FLUSH_NS = 1000.0
FLUSH_CPU_NS = 200.0
INTERRUPT_NS = 404.0
MISS_NS = 10.0
GB = 1 << 30
SIZES = ((2, 2), (16, 8), (16, 50), (128, 50), (128, 1000))  # CPUs and users of the second table

PAPER = """# What reclaim costs where tables are shared

`bench/pressure/simulate.py` prints this page; `--help` names what can be changed, `--json` prints the numbers alone.
{doc}
## {gb:g} GB of {users:,} users on {cpus} CPUs

One task reclaims all of it. {running} CPUs run users; the others run unrelated tasks. In the first table the pages are
clean: swap or a file has the same content, so reclaim flushes in batches where it can:

{table}

In the second table all pages are dirty. Each is flushed before it is written out, whichever CPUs flush:

{dirty}

"tables" is the memory of the last-level page tables; "walks" and "flushes" are the time of the task that reclaims. The
last two columns are about a CPU that runs no user: how often it is interrupted, and what part of its time it loses.

## Other machines

{gb:g} GB of clean pages; half of the CPUs run users. Numbers are seconds of the task that reclaims. If all CPUs flush,
the part of its time that a CPU without users loses is beside them:

{sizes}

With more users, reclaim spends more of its time on walks over them, whether each has its own entry or they share one.
A flush of all CPUs saves these walks, but other tasks pay for it: each page, or each batch, interrupts all CPUs.
"""


@dataclasses.dataclass(frozen=True)
class Machine:
    """The machine on which memory is reclaimed, and the users of that memory."""

    cpus: int = 128
    users: int = 1000
    gb: float = 300.0
    running: int = 64
    dirty: float = 0.0
    hot_pages: int = 64

    @property
    def pages(self) -> float:
        """Return how many pages are reclaimed."""
        return self.gb * GB / PAGE


@dataclasses.dataclass(frozen=True)
class Way:
    """How a page is reclaimed: instructions for it and for each user walked, its entries, who flushes and how often."""

    name: str
    page: int
    user: int
    shared: bool
    all_flush: bool
    batches: bool


WAYS = (
    Way("vanilla", 10_200, 2_220, shared=False, all_flush=False, batches=True),
    Way("shared, all CPUs, each page", 11_150, 1_495, shared=True, all_flush=True, batches=False),
    Way("shared, all CPUs, each batch", 11_150, 1_495, shared=True, all_flush=True, batches=True),
    Way("shared, users' CPUs, each batch", 11_150, 1_495, shared=True, all_flush=False, batches=True),
)


@dataclasses.dataclass(frozen=True)
class Cost:
    """What one way costs on a machine; "other" is a CPU that runs no user."""

    way: str
    table_gb: float
    walk_s: float
    flush_s: float
    total_s: float
    interrupts: float
    other_interrupts: float
    other_share: float


def cost(way: Way, machine: Machine) -> Cost:
    """Return what one way costs on a machine."""
    walked = min(machine.users, 1) if way.all_flush else machine.users
    walk_s = machine.pages * (way.page + walked * way.user) * INSTRUCTION_NS / 1e9
    told = machine.cpus - 1 if way.all_flush else min(machine.running, machine.users, machine.cpus - 1)
    share = machine.dirty + (1 - machine.dirty) / BATCH if way.batches else 1.0
    flushes = machine.pages * share if told else 0.0
    flush_s = flushes * (FLUSH_NS + told * FLUSH_CPU_NS) / 1e9
    other = flushes if way.all_flush else 0.0
    lost_s = other * (INTERRUPT_NS + machine.hot_pages * MISS_NS) / 1e9
    return Cost(
        way=way.name,
        table_gb=machine.pages * ENTRY * (1 if way.shared else machine.users) / GB,
        walk_s=walk_s,
        flush_s=flush_s,
        total_s=walk_s + flush_s,
        interrupts=flushes * told,
        other_interrupts=other,
        other_share=min(1.0, lost_s / (walk_s + flush_s)),
    )


def markdown(header: list[str], rows: list[list[str]]) -> str:
    """Return a table; all columns but the first hold numbers."""
    rule = ["---"] + ["---:"] * (len(header) - 1)
    return "\n".join("| " + " | ".join(cells) + " |" for cells in [header, rule, *rows])


def main_table(costs: list[Cost]) -> str:
    """Return the table of one machine."""
    header = ["way", "tables, GB", "walks, s", "flushes, s", "both, s", "interrupts sent", "interrupted", "lost"]
    return markdown(header, [
        [one.way, f"{one.table_gb:,.1f}", f"{one.walk_s:,.0f}", f"{one.flush_s:,.0f}", f"{one.total_s:,.0f}",
         f"{one.interrupts:,.0f}", f"{one.other_interrupts:,.0f}", f"{one.other_share:.1%}"] for one in costs])


def sizes_table(machine: Machine) -> str:
    """Return the table of machines of other sizes."""
    header = ["CPUs, users", *(f"{way.name}{', lost' if way.all_flush else ''}" for way in WAYS)]
    rows = []
    for cpus, users in SIZES:
        other = dataclasses.replace(machine, dirty=0.0, cpus=cpus, users=users, running=max(1, cpus // 2))
        costs = [cost(way, other) for way in WAYS]
        rows.append([f"{cpus}, {users:,}", *(f"{one.total_s:,.0f}{f', {one.other_share:.1%}' if way.all_flush else ''}"
                                             for way, one in zip(WAYS, costs, strict=True))])
    return markdown(header, rows)


def paper(machine: Machine) -> str:
    """Return the whole page."""
    _, _, told = (__doc__ or "").partition("\n\n")
    before, mark, inputs = told.partition("What goes into it:")
    doc = f"\n{before}{mark}\n\n```\n{inputs.strip()}\n```\n"
    clean, dirty = (main_table([cost(way, dataclasses.replace(machine, dirty=part_dirty)) for way in WAYS])
                    for part_dirty in (0.0, 1.0))
    values = {**dataclasses.asdict(machine), "table": clean, "dirty": dirty}
    return PAPER.format(doc=doc, sizes=sizes_table(machine), **values)


def positive(text: str) -> float:
    """Return a number above 0."""
    value = float(text)
    if not value > 0:
        raise argparse.ArgumentTypeError("takes a number above 0")
    return value


def part(text: str) -> float:
    """Return a number from 0 to 1."""
    value = float(text)
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError("takes a part, from 0 to 1")
    return value


def parse(argv: list[str] | None) -> argparse.Namespace:
    """Return the command line's values."""
    usual = Machine()
    parser = cli.Parser(prog="bench/pressure/simulate.py", description=__doc__,
                        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cpus", type=int, default=usual.cpus, metavar="N", help=f"CPUs (default {usual.cpus})")
    parser.add_argument("--users", type=int, default=usual.users, metavar="N",
                        help=f"processes that use the memory (default {usual.users})")
    parser.add_argument("--gb", type=positive, default=usual.gb, metavar="GB",
                        help=f"memory that is reclaimed (default {usual.gb:g})")
    parser.add_argument("--running", type=int, metavar="N", help="CPUs that run users (default: half of them)")
    parser.add_argument("--dirty", type=part, default=usual.dirty, metavar="PART",
                        help="with --json: part of the pages that is dirty (default 0)")
    parser.add_argument("--hot-pages", type=int, default=usual.hot_pages, metavar="N",
                        help=f"pages in use between two flushes (default {usual.hot_pages})")
    parser.add_argument("--json", action="store_true", help="print the machine and the costs as JSON")
    args = parser.parse_args(argv)
    if args.running is None:
        args.running = max(1, args.cpus // 2)
    if args.cpus < 1 or args.users < 1 or args.hot_pages < 0 or not 0 <= args.running <= args.cpus:
        parser.error("--cpus and --users take numbers from 1 on, --running one from 0 to that of the CPUs")
    return args


def main(argv: list[str] | None = None) -> int:
    """Print the page, or the numbers."""
    args = parse(argv)
    machine = Machine(args.cpus, args.users, args.gb, args.running, args.dirty, args.hot_pages)
    if args.json:
        costs = [dataclasses.asdict(cost(way, machine)) for way in WAYS]
        print(json.dumps({"machine": dataclasses.asdict(machine), "costs": costs}, indent=1))
    else:
        sys.stdout.write(paper(machine))
    return 0


if __name__ == "__main__":
    sys.exit(main())
