# SPDX-License-Identifier: GPL-2.0
"""Writes docs/trust.md and docs/coverage.md from suites/results: no number in them is typed by hand.

`make suites`, or suites/run, makes the results of the first, and suites/coverage that of the second.
"""

from __future__ import annotations

import re
import statistics
import sys
import textwrap
from pathlib import Path
from typing import Any

from guest import cli, paths
from suites import storage

DOCS = Path(__file__).resolve().parent.parent / "docs"
PAPER, COVERAGE_PAPER = DOCS / "trust.md", DOCS / "coverage.md"
INTRO = """# Other projects' tests, and our models

Written by `suites/publish` from the JSON in `suites/results`; no number here is typed by hand. `make suites`
with the paths of all clones runs the comparisons with vanilla again, and will-it-scale; `suites/run --kernel debug
[--base off]` runs those of the debug kernel, and `make fuzz`, `make models` and `make matrix` the rest.

The tests of other projects run in guests, on a base kernel and on quire with all features on, and each case's outcome
is compared: pass, skip, fail, broken, timeout. A case also has an outcome for each check that it reports. It is *worse*
if one of these is worse on quire in two runs, each in a fresh guest, and *unsteady* if it was worse in the first of
them only. "Alike" says how the cases ended that have one status on both kernels: much is skipped on both, because the
guests' kernel has only what the project's own tests need (`kernel/config/guest.config`). What fails on both kernels is
not the features' doing. "Better" and "alike" are those of the first run, and hours are those of all guests."""
BASES = """`make matrix` tries the hooks on each version of Linux 6.12 that apt offers. They must apply without fuzz,
and what our code repeats of Linux (`kernel/mirrors`) must be what it takes it to be. Where that holds, `suites/matrix
--check GOAL` builds and tests a clone on that version. `base.conf` lists the versions on which all tests pass."""
SCALES = """`suites/scale --source PATH` runs tests of will-it-scale, of which PATH is a git clone, with a `main()` of
our own. The columns off and on say how many times as much an operation takes there as on vanilla, with all features off
and on. Instructions are counted for one task in a guest with one CPU, on kernels without jump labels, where each hook
of a feature that is off costs a few. Bold is what takes more than {limit} times as much with the features on, while off
stays within that."""
TIMED = """ Time is that of 1, 2, 4 and 8 tasks, each with a CPU, by the medians of {boots} boots in turn. The host has
{cpus} CPUs and emulates those of guests: where there are more tasks, time includes waiting for the host, and no cache
line moves between CPUs."""
FUZZED = """`suites/fuzz --source PATH` runs syzkaller, of which PATH is a git clone, in emulated guests of the debug
kernel: random programs of system calls on memory, which also switch each feature and set its knobs. Those that reach
something new in `mm/quire` are kept and varied, and the next run begins with them, and with those of
`suites/fuzz_seeds.txt`. A run is one line; functions are those that the kept programs reach when it ends, of all that
the compiler did not inline, unit tests, checkers and what tracepoints consist of left out. KCOV sees what a program's
own system calls do: the work of kernel threads, such as kscrubd's, and of callbacks runs beside them and is not
counted."""
MODELLED = """`suites/models` runs our models, which are selftests: processes do random things to memory, and the model
knows what each page must hold. Meanwhile their pages are reclaimed in a control group, compacted, swapped out and in, a
CPU and blocks of memory go away and come back, and the features that a model is not about are switched off and on. On
the debug kernel, a tenth of the allocations that must not wait fail, those of huge pages among them. Nodes of XArrays
do not, because swapoff(2) of Linux itself warns where one failed for a huge page in the swap cache. On the kernel
kcsan, KCSAN looks for data races, and one in a file of ours or beside an edit of our hooks counts as a mismatch, unless
`guest/races.py` says why it is Linux's own. Each guest has a seed of its own, and nothing is left out: a run that found
a mismatch stays in this table. A model's own processes take the parts of the guests' CPU time that are told as "in the
kernel", where they do what is tested and reclaim for their group, and "in user space"; the rest is the pressure's, or
idle. Older runs did not measure it."""
AIM = 10**9
LIMIT = 1.05
REACHED = """# Lines that our tests reach

Written by `suites/publish` from `suites/results/coverage/gcov.json`; no number here is typed by hand. `make coverage`
measures it again: those guest tests of `make check` whose files are named below run on a kernel that counts how often
each line of `mm/quire` and `include/linux/quire` runs, with gcov. The lines of unit tests and of the failures that
tests provoke (`core/debug.c`) are left out. The features' checkers count, and so does what unit tests reach when the
kernel boots. A line that is reached is not thereby right, and a line that is not reached may be reached by the soak, by
benchmarks or by real programs."""
NAME = "syzkaller"
ORDER = ("pass", "skip", "fail", "broken", "timeout", "missing")
HEADER = ["part", "cases", "same", "better", "**worse**", "alike", "checks", "left out", "hours", "date", "quire"]


def row(result: dict[str, Any]) -> list[str]:
    """Return a part's row of the table."""
    alike = ", ".join(f"{result['alike'][outcome]} {outcome}" for outcome in ORDER if outcome in result["alike"])
    numbers = [f"{result[key]:,}" for key in ("cases", "same", "better", "worse")]
    return [result["part"], *numbers, alike, f"{result['checks']:,}", str(result["left out"]), f"{result['hours']:.2f}",
            result["date"], result["quire"].get("commit", "")]


def conditions(result: dict[str, Any]) -> str:
    """Return what a part ran on: versions, configurations and the guest."""
    base, ours, guest = result["base"], result["quire"], result["guest"]
    return (f"{result['suite']} {result['version']}; {base['kernel']} {base['version']} (configuration "
            f"{base['configuration']}), {ours['kernel']} {ours['version']} (configuration {ours['configuration']}, "
            f"`{ours['options']}`); {guest['accelerator']}, {guest['cpus']} CPUs, {guest['memory']}")


def remarks(result: dict[str, Any]) -> list[str]:
    """Return a line for each thing that a part's numbers do not say."""
    checks = [f"worse: {check}, {text}" for check, text in result["worse checks"].items()]
    names = [f"{word}: {', '.join(f'`{name}`' for name in found)}" for word, found in
             (("better", result["better cases"]), ("unsteady", result["unsteady"])) if found]
    complaints = [f"{whose} complains: {re.sub('[|`]', ' ', text)}" for whose, key in
                  (("quire", "complaints"), ("the base", "complaints of the base")) for text in result[key]]
    return [f"* {result['part']}, {text}" for text in (*checks, *names, *complaints)]


def section(heading: str, results: list[dict[str, Any]]) -> str:
    """Return the part of the paper about one suite, one kernel and one base."""
    seen = "\n".join(f"* {', '.join(one['part'] for one in results if conditions(one) == text)}: {text}"
                     for text in dict.fromkeys(map(conditions, results)))
    total = {key: sum(result[key] for result in results) for key in ("cases", "worse")}
    count = f"Of {total['cases']:,} cases, {total['worse']} are worse on quire."
    notes = "\n".join(line for result in results for line in remarks(result))
    skip = f"{results[0]['suite']}.skip"
    reasons = f"[{skip}](../suites/{skip}) has the reason for each case that is left out."
    return "\n\n".join([f"## {heading}", count, cli.markdown(HEADER, [row(one) for one in results]), reasons, seen,
                        *([notes] if notes else [])])


def ratio(row: dict[str, Any], kernel: str) -> float:
    """Return by how much more time than on vanilla an operation takes on a kernel: the medians of the boots count."""
    return float(statistics.median(row["vanilla"]) / statistics.median(row[kernel]))


def times(row: dict[str, Any] | None) -> list[str]:
    """Return the cells of a program for off and on."""
    if row is None:
        return ["", ""]
    off, on = (ratio(row, kernel) for kernel in ("off", "on"))
    return [f"{off:.3f}", f"**{on:.3f}**" if off <= LIMIT < on else f"{on:.3f}"]


def scale(results: dict[str, dict[str, Any]]) -> str:
    """Return the part of the paper about will-it-scale, from its results by clock."""
    known = {clock: {(row["program"], row["tasks"]): row for row in one["rows"]} for clock, one in results.items()}
    timed = sorted({tasks for _, tasks in known.get("time", {})})
    columns = [("icount", 1), *(("time", tasks) for tasks in timed)]
    rows = []
    for name in dict.fromkeys(name for one in known.values() for name, _ in one):
        cells = [cell for clock, tasks in columns for cell in times(known.get(clock, {}).get((name, tasks)))]
        counted = known.get("icount", {}).get((name, 1))
        rows.append([f"`{name}`",
                     f"{1e9 / counted['vanilla'][0]:,.0f}" if counted else "", *cells])
    header = ["test", "instructions on vanilla", *(f"{words}{state}" for words in (
        "instructions, ", *(f"time of {tasks}, " for tasks in timed)) for state in ("off", "on"))]
    text = SCALES.format(limit=LIMIT)
    if timed:
        text += TIMED.format(boots=len(results["time"]["rows"][0]["vanilla"]), cpus=results["time"]["cpus"])
    about = "; ".join(f"{clock}: {one['version']}, {one['date']}, commit {one['quire']['commit']}, "
                      f"{one['quire']['version']}" for clock, one in results.items())
    return "\n\n".join(["## will-it-scale", fill(f"{text} {about}."), cli.markdown(header, rows)])


def fuzzed(result: dict[str, Any]) -> str:
    """Return the part of the paper about syzkaller."""
    runs = result["runs"]
    rows = [[one["date"], one["version"], f"{one['hours']:.2f}", f"{one['executed']:,}", f"{one['corpus']:,}",
             f"{one['reached']} of {one['functions']}", "; ".join(one["crashes"]) or "none", one["quire"]["commit"]]
            for one in runs]
    header = ["date", NAME, "hours", "programs", "kept", "functions of ours", "crashes", "quire"]
    executed, hours = (sum(one[key] for one in runs) for key in ("executed", "hours"))
    missed = ", ".join(f"`{name}()`" for name in result["missed"]) or "none"
    total = f"{executed:,} programs in {hours:.2f} hours in all. The last run's programs do not reach: {missed}."
    return "\n\n".join([f"## {NAME}", FUZZED, cli.markdown(header, rows), fill(total)])


def mean_share(runs: list[dict[str, Any]], mode: str) -> str:
    """Return what part of the CPU time of those runs in which it was measured a mode took, as a cell of a table."""
    known = [one for one in runs if mode in one]
    seconds = sum(one["seconds"] for one in known)
    return f"{100 * sum(one[mode] * one['seconds'] for one in known) / seconds:.0f} %" if seconds else ""


def modelled(result: dict[str, Any]) -> str:
    """Return the part of the paper about the models' steps."""
    runs = result["runs"]
    rows = []
    for model, kernel in dict.fromkeys((one["model"], one["kernel"]) for one in runs):
        found = [one for one in runs if (one["model"], one["kernel"]) == (model, kernel)]
        steps, seconds = (sum(one[key] for one in found) for key in ("steps", "seconds"))
        wrong = "; ".join(f"{one['wrong']} (from seed {one['seed']} on)" for one in found if one["wrong"]) or "none"
        failed = sum(one.get("failed", 0) for one in found)
        rows.append([model, kernel, f"{steps:,}", f"{steps / seconds:.1f}", f"{seconds / 3600:.2f}", str(len(found)),
                     mean_share(found, "system"), mean_share(found, "user"), f"{failed:,}" if failed else "",
                     re.sub("[|`]", " ", wrong), found[-1]["date"], found[-1]["commit"]])
    header = ["model", "kernel", "steps", "a second", "hours", "guests", "in the kernel", "in user space",
              "allocations failed", "mismatches", "last", "commit"]
    right = [one for one in runs if not one["wrong"]]
    total = sum(one["steps"] for one in right)
    text = f"{total:,} steps without a mismatch in all. The aim is {AIM:,}"
    plain = [one for one in right if one["kernel"] == "quire" and one["steps"]]
    if plain and total < AIM:
        rate = sum(one["steps"] for one in plain) / sum(one["seconds"] for one in plain)
        text += f", of which the rest takes a guest with the kernel quire {(AIM - total) / rate / 3600:,.0f} hours"
    listed = {title for one in runs for title in one.get("races", [])}
    if listed:
        text += f". Races of Linux's own that KCSAN found: {len(listed)}"
    return "\n\n".join(["## Models", fill(MODELLED), cli.markdown(header, rows), fill(f"{text}.")])


def paper(results: list[dict[str, Any]], bases: list[dict[str, Any]], scales: dict[str, dict[str, Any]],
          fuzz: dict[str, Any], models: dict[str, Any]) -> str:
    """Return docs/trust.md."""
    groups: dict[str, list[dict[str, Any]]] = {}
    # The kernel that users install comes before the debug kernel.
    for result in sorted(results, key=lambda one: (one["suite"], one["quire"]["kernel"] != "quire")):
        groups.setdefault(f"{result['suite']}: {result['quire']['kernel']} against {result['against']}",
                          []).append(result)
    return "\n\n".join([INTRO, *(section(*group) for group in groups.items()),
                        *([scale(scales)] if scales else []), *([fuzzed(fuzz)] if fuzz else []),
                        *([modelled(models)] if models else []),
                        *([versions(bases)] if bases else [])]) + "\n"


def fill(text: str, indent: str = "") -> str:
    """Return a text with lines as long as ours are."""
    return textwrap.fill(text, 120, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def point(text: str) -> str:
    """Return a point of a list."""
    return fill(f"* {text}", "  ")


def versions(results: list[dict[str, Any]]) -> str:
    """Return the part of the paper about versions of the base."""
    rows = [[one["version"], "do not apply" if one["hooks"] else "apply", "differ" if one["mirrors"] else "fit",
             str(len(one["differs"])), "; ".join(f"{goal}: {said}" for goal, said in one["checks"].items()),
             one["date"], one["commit"]] for one in results]
    why = [point(f"{one['version']}: {text}") for one in results for text in (one["hooks"], one["mirrors"]) if text]
    names = [point(f"{one['version']}, of {one['base']}'s: {', '.join(f'`{name}`' for name in one['differs'])}")
             for one in results if one["differs"]]
    return "\n\n".join([
        "## Versions of the base", BASES,
        cli.markdown(["version", "hooks", "mirrors", "edited functions that differ", "checks", "date", "commit"], rows),
        "\n".join(why + names)]).rstrip()


def share(found: list[dict[str, Any]]) -> list[str]:
    """Return the cells that say how much of some sources is reached."""
    lines, reached = (sum(file[key] for file in found) for key in ("lines", "reached"))
    return [f"{lines:,}", f"{reached:,}", f"{100 * reached / lines:.1f} %"]


def ranges(numbers: list[int]) -> str:
    """Return numbers as "3-5, 8"."""
    text = ""
    for at, number in enumerate(numbers):
        if at and number == numbers[at - 1] + 1:
            text = text.removesuffix(f"-{number - 1}") + f"-{number}"
        else:
            text += f"{', ' if at else ''}{number}"
    return text


def unreached(name: str, file: dict[str, Any]) -> str:
    """Return the lines of a source that are not reached, by function; a function that never runs has no lines.

    gcov names no function for some lines of functions that were inlined.
    """
    def text(function: str, numbers: list[int]) -> str:
        if not function:
            return f"inlined {ranges(numbers)}"
        return f"`{function}()` {'never runs' if function in file['never'] else ranges(numbers)}"
    return point(f"`{name}`: {'; '.join(text(*item) for item in file['missed'].items())}")


def reached(result: dict[str, Any]) -> str:
    """Return docs/coverage.md."""
    files = result["files"]
    folders = sorted({name.rpartition("/")[0] for name in files})
    rows = [[f"`{folder}`", *share([file for name, file in files.items() if name.rpartition("/")[0] == folder])]
            for folder in folders]
    run = fill(f"{result['guests']} guests of {', '.join(f'`test_{name}.py`' for name in result['tests'])}; "
               f"{result['date']}, commit {result['quire']['commit']}"
               f"{' with edits' if result['quire']['changed'] != 'no' else ''}")
    return "\n\n".join([
        REACHED, cli.markdown(["folder", "lines", "reached", ""], [*rows, ["all", *share(list(files.values()))]]), run,
        "## What is not reached", "\n".join(unreached(name, file) for name, file in files.items() if file["missed"]),
    ]) + "\n"


def scales() -> dict[str, dict[str, Any]]:
    """Return the results of will-it-scale by clock."""
    return {one["clock"]: one for one in storage.load(storage.SCALE)}


def main(argv: list[str] | None = None) -> int:
    """Write the papers."""
    cli.Parser(prog="suites/publish", description=__doc__).parse_args(argv)
    try:
        paths.write_whole(PAPER, paper(storage.load(storage.FOLDER), storage.load(storage.MATRIX), scales(),
                                     paths.read_stamp(storage.FUZZ) or {}, paths.read_stamp(storage.MODELS) or {}))
        result = paths.read_stamp(storage.COVERAGE)
        if result:
            paths.write_whole(COVERAGE_PAPER, reached(result))
    except (OSError, ValueError, KeyError, MemoryError) as error:
        print(f"error: {cli.explain(error)}", file=sys.stderr)
        return 1
    print(f"written: docs/{PAPER.name}{f', docs/{COVERAGE_PAPER.name}' if result else ''}")
    return 0
