# SPDX-License-Identifier: GPL-2.0
"""The README's table by workload: what to switch on, what was measured to be gained and to be lost, and when not to.

A figure is a row of a result: it is named here, and its numbers come from bench/results. Words without a figure say
what no benchmark measures; they have no measured numbers in them. Where the list of results begins with those of
installed kernels, a figure is of these if its benchmark was measured there, and marked as lean otherwise.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from bench import core, table

HEADER = ["workload", "switch on", "measured gain", "measured cost", "not for"]
NONE = "not measured"


@dataclasses.dataclass(frozen=True)
class Fact:
    """A figure, and what it is of. Its row is the one that decides an aim, if `aim` is that aim's text.

    Otherwise `metric`, `where` and `clock` say which row. `unit` is given where the two values say more than their
    ratio does.
    """

    what: str
    benchmark: str
    aim: str = ""
    metric: str = ""
    where: Mapping[str, str] = dataclasses.field(default_factory=dict)
    clock: str = "icount"
    unit: str = ""

    def judged(self) -> core.Aim | None:
        """Return the aim, or one that stands for the row; None if the benchmark has no such aim."""
        benchmark = core.load(self.benchmark)
        if self.aim:
            return next((aim for aim in benchmark.aims if aim.text == self.aim), None)
        return core.Aim(self.what, self.metric, self.where, 1.0, clock=self.clock,
                        more_is_better=self.metric in benchmark.more_is_better)

    def finding(self, results: list[dict]) -> core.Finding | None:
        """Return the figure's finding; None if it was not measured."""
        aim = self.judged()
        return core.achieved(aim, core.find(results, self.benchmark, aim.clock)) if aim else None


@dataclasses.dataclass(frozen=True)
class Workload:
    """A row of the table. `docs` are the pages that explain it, `knobs` are like those of a benchmark.

    `limit` says what bounds the gains, and `also` what else there is to the costs.
    """

    name: str
    docs: tuple[str, ...]
    features: tuple[str, ...]
    gains: tuple[Fact, ...]
    costs: tuple[Fact, ...]
    never: str
    knobs: tuple[str, ...] = ()
    also: str = ""
    limit: str = ""

    @property
    def facts(self) -> tuple[Fact, ...]:
        """Return all figures of the row."""
        return self.gains + self.costs


WORKLOADS = (
    Workload(
        "Redis or Valkey snapshots", ("fork", "rmap"), ("fork", "rmap"),
        gains=(
            Fact("BGSAVE's fork", "redis", aim="BGSAVE's fork, times faster", unit="us"),
        ),
        costs=(
            Fact("p99.9 of SETs before the first save", "redis", metric="p99.9_us", where={"phase": "rest"},
                 clock="time", unit="us"),
            Fact("the first write to each 2 MiB during the save", "after-fork", metric="first_ns",
                 where={"case": "single_writes"}, unit="instructions"),
        ),
        also="a worker can do that ahead (`fork/background_tables_per_s`); this gives up the memory that sharing saves",
        never="heaps of transparent huge pages, which fork copies as Linux does; "
              "processes with fewer than 16 page tables (`VmPTE` below 64 kB)",
    ),
    Workload(
        "PostgreSQL without huge pages", ("shm", "fork"), ("shm", "fork", "rmap"), knobs=("fork/mixed=1",),
        gains=(
            Fact("page tables of 100 connections that have read a pool of 1 GB", "postgres",
                 aim="page tables of 100 connections that have read the pool of 1 GB, times less", unit="kB"),
            Fact("connections a second", "postgres", aim="connections a second"),
        ),
        costs=(
            Fact("reading a segment that nobody else has read", "shm-table", metric="ms",
                 where={"kind": "memfd", "access": "read", "processes": "1"}),
        ),
        also="the pool is in no process's RSS; with `fork/mixed` a child copies its libraries' tables as it faults",
        never="servers whose `huge_pages` are in use: these have no tables to share; pools below 32 MiB",
    ),
    Workload(
        "fork servers and zygotes", ("fork", "rmap"), ("fork", "rmap"),
        gains=(
            Fact("fork() of 1 GB", "fork-table", aim="fork() alone, 1 GB touched, times fewer"),
            Fact("fork and exit with 1000 mappings", "lots-of-forks", aim="fork+exit with 1000 mappings"),
            Fact("page tables of 200 children of 256 MB", "after-fork", unit="kB",
                 aim="page tables of the same children, all (stack, text and upper levels of each too), times less"),
        ),
        costs=(
            Fact("system time of shell pipelines", "lots-of-forks",
                 aim="system time of the pipelines by the clock, on 2 CPUs"),
            Fact("the first write to each 2 MiB", "after-fork", metric="first_ns", where={"case": "single_writes"}),
        ),
        also="for children that use few of their libraries, `fork/mixed` shares those tables, too; others pay for it",
        never="children that write all over the parent's memory; "
              "parents with fewer than 16 page tables (`VmPTE` below 64 kB: only `rmap` helps)",
    ),
    Workload(
        "compile farms, large binaries", ("text",), ("text",),
        gains=(
            Fact("page faults of a program of 483 MB, run again after a second", "text",
                 aim="page faults of 483 MB text, executed again after a second, times fewer"),
            Fact("the same where a second is 10^9 counted instructions", "text",
                 aim="page faults of 64 and 483 MB text, executed again after a second, times fewer"),
            Fact("its start-up then", "text", aim="start-up of 64 and 483 MB, executed again after a second"),
            Fact("instructions of llc with libLLVM, run again after a second", "programs", metric="cpu_s",
                 where={"program": "libLLVM", "start": "after_1s"}),
        ),
        costs=(
            Fact("system time of its first start-up", "text", aim="start-up of 483 MB, first execution, system time"),
            Fact("system time of its second, at once", "text",
                 aim="start-up of 483 MB, second execution at once, system time"),
            Fact("instructions of llc's first start", "programs", metric="cpu_s",
                 where={"program": "libLLVM", "start": "first"}),
            Fact("time of compiles beside other load", "compile", aim="a compile under load, by the clock"),
        ),
        also="placed programs keep 19 of 28 random address bits",
        never="programs that run once; text on tmpfs; files that are open for writing",
    ),
    Workload(
        "JVMs and VMs that touch memory in advance, transparent huge pages", ("prezero",), ("prezero",),
        knobs=("prezero/scrub_unused=1",),
        gains=(
            Fact("a 2 MiB fault, page written in full", "pft", metric="cpu_ns_per_fault",
                 where={"mode": "burst", "page": "2M", "lines": "32768"}),
            Fact("a 4 KB fault, page written in full", "pft", metric="cpu_ns_per_fault",
                 where={"mode": "burst", "page": "4K", "lines": "64"}),
            Fact("2 MiB faults a second over three times the pool, one idle CPU", "pft",
                 aim="sustained 2 MiB faults over three times the pool, one idle CPU, faults a second"),
        ),
        costs=(
            Fact("4 KB faults a second of two threads on two CPUs, no pause", "pft", metric="fault/wsec", clock="time",
                 where={"mode": "sustained", "page": "4K", "Threads": "2"}),
            Fact("CPU time of a 2 MiB fault while all CPUs are busy", "pft",
                 aim="2 MiB faults, busy CPUs, empty pool, CPU time of a fault"),
        ),
        limit="the gain on hardware is at most some 1.5 times for 4 KB pages and 7.5 to 10 times for 2 MiB pages",
        also="idle CPUs zero memory instead of sleeping; with `scrub_unused`, by default 0 in a virtual machine, its "
             "host has to back all that is zeroed",
        never="machines without idle CPUs or with free memory in pieces; virtual machines that use little of their "
              "memory; `init_on_free=1`",
    ),
)


def installed(result: dict | None) -> bool:
    """Say whether a result is of installed kernels; Debian's is not of one build with ours, so off differs from it."""
    return bool(result and result.get("packages"))


def score(aim: core.Aim, found: core.Finding) -> str:
    """Return what a finding scores, in the terms in which bound() states the aim."""
    return change(found) if aim.how in ("ratio", "times") else table.amount(aim, found.score)


def change(found: core.Finding) -> str:
    """Return how a value differs from its base: in percent, or as a factor where that is at least 2."""
    if not found.base:
        return table.number(found.value)
    ratio = found.value / found.base
    if 0 < ratio <= 0.5:
        return f"{table.number(round(1 / ratio, 2))}x less"
    return f"{table.number(round(ratio, 2))}x more" if ratio >= 2 else f"{(ratio - 1) * 100:+.1f}%"


def bound(aim: core.Aim) -> str:
    """Return what an aim asks for."""
    sign = "≥" if aim.at_least else "≤"
    if aim.how in ("times", "value", "less"):
        return f"{sign} {table.number(aim.limit)}{'x' if aim.how == 'times' else ''}"
    return f"{sign} {(aim.limit - 1) * 100:+.0f}%"


def fact_text(fact: Fact, results: list[dict]) -> str:
    """Return a figure and what belongs to it: values, clock, how it compares with off, and whether an aim is missed."""
    aim = fact.judged()
    result = core.find(results, fact.benchmark, aim.clock) if aim else None
    decision = core.decide(aim, result) if aim else None
    if not aim or not decision:
        return f"{fact.what}: {NONE}"
    found = decision.found
    said = [f"{table.number(found.base)} → {table.number(found.value)} {fact.unit}"] if fact.unit else []
    off = core.row_off(aim, result, decision.keys)
    compared = off and off.base and aim.against == "vanilla" and (aim.clock == "time" or installed(result))
    how = ["clock"] if aim.clock == "time" else []
    if off and compared:
        how.append(f"{change(core.Finding(0, found.value, off.value))} against off")
    said += [", ".join(how)] if how else []
    if not installed(result) and any(map(installed, results)):
        said.append("lean")
    judged = core.judge(aim, result) if fact.aim else core.MET
    if judged != core.MET:
        said.append(f"aim {bound(aim)} {table.verdict(judged)}")
    inside = "; ".join(said)
    return f"{fact.what}: {change(found)}" + (f" ({inside})" if inside else "")


def switches(workload: Workload, results: list[dict]) -> str:
    """Return what to switch on, and what else was on when it was measured."""
    cell = ", ".join(f"`{name}`" for name in workload.features)
    cell += "".join(f", `{knob}`" for knob in workload.knobs)
    more = {}
    for fact in workload.facts:
        aim = fact.judged()
        result = core.find(results, fact.benchmark, aim.clock) if aim else None
        if result and not set(result["features"]) <= set(workload.features):
            more[fact.benchmark] = "all" if set(result["features"]) == set(core.FEATURES) else ", ".join(
                f"`{name}`" for name in result["features"])
    return cell + "".join(f"; {name} was measured with {features} features on" for name, features in more.items())


def page(result: dict | None, benchmark: str) -> str:
    """Return the page with a result's rows."""
    return f"bench/results/{'packages/' if installed(result) else ''}{benchmark}.md"


def pages(workload: Workload, results: list[dict]) -> dict[str, str]:
    """Return the pages with the rows of a workload's figures, and for each its name: that of the benchmark."""
    found = {}
    there = {result["name"] for result in results if installed(result)}
    for fact in workload.facts:
        aim = fact.judged()
        result = core.find(results, fact.benchmark, aim.clock) if aim else None
        lean = ", lean" if fact.benchmark in there and not installed(result) else ""
        found[page(result, fact.benchmark)] = fact.benchmark + lean
    return found


def row(workload: Workload, results: list[dict]) -> list[str]:
    """Return the cells of a workload."""
    links = [f"[{name}](docs/{name}.md)" for name in workload.docs]
    links += [f"[{name}]({path})" for path, name in pages(workload, results).items() if name not in workload.docs]
    gains, costs = ("; ".join(fact_text(fact, results) for fact in facts) for facts in (workload.gains, workload.costs))
    gains = "; ".join(filter(None, [gains, workload.limit]))
    return [f"**{workload.name}** ({', '.join(links)})", switches(workload, results), gains,
            "; ".join(filter(None, [costs, workload.also])), workload.never]


def _miss(name: str, aim: core.Aim, results: list[dict]) -> str:
    """Return an aim that results miss, how, and where that is; "" if they do not miss it."""
    result = core.find(results, name, aim.clock)
    finding = core.achieved(aim, result)
    if not finding or core.judge(aim, result) != core.MISSED:
        return ""
    return f"\"{aim.text}\" {score(aim, finding)} ([{name}]({page(result, name)}), aim {bound(aim)})"


def lean_misses(results: list[dict], lean: list[dict]) -> list[str]:
    """Return the aims that lean kernels miss and that are not among those missed in results."""
    return [miss for name in core.names() for aim in core.load(name).aims
            if (miss := _miss(name, aim, lean)) and not _miss(name, aim, results)]


def other_misses(results: list[dict]) -> list[str]:
    """Return the aims that are missed and have no place in the table."""
    told = {(fact.benchmark, fact.aim) for workload in WORKLOADS for fact in workload.facts}
    return [miss for name in core.names() for aim in core.load(name).aims
            if (name, aim.text) not in told and (miss := _miss(name, aim, results))]
