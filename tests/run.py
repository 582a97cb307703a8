#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Run pytest and print `N passed, N failed, N skipped` as the last line; --sum adds up earlier runs.

The counts of each run are kept in build/counts. A run that never reached its tests (a failed build, an error while
collecting) counts as one failed. Before the counts, the output says how long the builds, the tests and their guests
took, which guests were started again, and which data races need a reader.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from guest import cli, paths

COUNTS = paths.BUILD / "counts"


class Counter:
    """A pytest plugin that keeps the counts of the terminal reporter; an error counts as failed.

    Each failure is kept at once, for a run that is ended before its last test.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.counts = {"passed": 0, "failed": 0, "skipped": 0}

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Count a failure, until the terminal reporter has counted all."""
        if report.failed:
            self.counts["failed"] += 1
            keep(self.name, self.counts)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Read what has been reported."""
        stats: dict[str, list[object]] = terminalreporter.stats
        self.counts["passed"] = len(stats.get("passed", [])) + len(stats.get("xfailed", []))
        self.counts["failed"] = sum(len(stats.get(name, [])) for name in ("failed", "error", "xpassed"))
        self.counts["skipped"] = len(stats.get("skipped", []))


def line(counts: dict[str, int]) -> str:
    """Return the closing line."""
    return f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped"


def restarts(since: float) -> str:
    """Report how many guests of tests were started again since a time because of their host, and in which tests."""
    found = [one for one in paths.notes("restarts", since) if one["test"]]
    return "\n".join([f"guests started again: {len(found)}", *(f"  {one['test']}: {one['reason']}" for one in found)])


def races(since: float) -> str:
    """Return the races since a time that a reader must judge, whole, "" for none."""
    found = paths.notes("races", since)
    return "\n".join(f"a data race beside an edit, which did not count: {', '.join(one['places'])}\n{one['text']}\n"
                     for one in found)


def guests(since: float) -> str:
    """Report how many guests the tests started since a time, and how long they took: start, command, end."""
    found = paths.notes("guests", since)
    lines = []
    for kernel in sorted({one["kernel"] for one in found}):
        times = [[one[key] for one in found if one["kernel"] == kernel] for key in ("to_init", "seconds", "to_end")]
        lines.append("  {:<24}{:8,}: {:,.0f} s to start, {:,.0f} s of commands, {:,.0f} s to end".format(
            kernel, len(times[0]), *map(sum, times)))
    return "\n".join(["guests, all seconds added up:", *lines])


def phases(since: float) -> str:
    """Report how long each build and run of tests took that ended since a time, and how much came from ccache."""
    found = paths.notes("phases", since)
    lines = ["what it took:"]
    for one in found:
        asked = one.get("hits", 0) + one.get("misses", 0)
        lines.append(f"  {one['phase']:<24}{one['seconds']:8,.0f} s"
                     + (f"  {one['objects']} objects" if "objects" in one else "")
                     + (f", {100 * one['hits'] // asked} % from ccache" if asked else ""))
    return "\n".join([*lines, f"  {'in all':<24}{sum(one['seconds'] for one in found):8,.0f} s"])


def run(name: str, arguments: list[str], since: float | None = None) -> int:
    """Run pytest; keep and print the counts, after the notes since a time (default: since this run began)."""
    import pytest
    counter, begin = Counter(name), time.time()
    code = int(pytest.main(arguments, plugins=[counter]))
    paths.note("phases", phase=f"tests of {name}", seconds=round(time.time() - begin, 1))
    if code and not counter.counts["failed"]:
        counter.counts["failed"] = 1
    keep(name, counter.counts)
    print(phases(begin if since is None else since))
    print(guests(begin))
    print(restarts(begin))
    print(races(begin), end="")
    print(line(counter.counts), flush=True)
    return code


def keep(name: str, counts: dict[str, int]) -> None:
    """Store the counts of a run."""
    COUNTS.mkdir(parents=True, exist_ok=True)
    (COUNTS / name).write_text(json.dumps(counts), encoding="utf-8")


def total(names: list[str]) -> int:
    """Print the sum of runs, after all notes since --forget; returns 1 if anything failed."""
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    for name in names:
        path = COUNTS / name
        one = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"failed": 1}
        for key in counts:
            counts[key] += one.get(key, 0)
    print(phases(0))
    print(guests(0))
    print(restarts(0))
    print(races(0), end="")
    print(line(counts), flush=True)
    return 1 if counts["failed"] else 0


def main() -> int:
    """Command line."""
    parser = cli.Parser(prog="tests/run.py", description=__doc__.splitlines()[0],
                        epilog="All other arguments are pytest's.")
    parser.add_argument("--name", default="check", help="under which the counts are kept")
    parser.add_argument("--forget", action="store_true", help="forget what is kept of earlier runs, and run nothing")
    parser.add_argument("--since", type=float, metavar="SECONDS", help="report the builds since then (date +%%s)")
    parser.add_argument("--sum", nargs="+", metavar="NAME", help="print the sum of earlier runs, and run nothing")
    args, arguments = parser.parse_known_args()
    if args.forget:
        for path in COUNTS.glob("*"):
            path.unlink()
        return 0
    if args.sum:
        return total(args.sum)
    return run(args.name, arguments, args.since)


if __name__ == "__main__":
    sys.exit(main())
