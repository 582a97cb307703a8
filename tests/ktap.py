# SPDX-License-Identifier: GPL-2.0
"""Read KTAP, the format in which kernel selftests report."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

LINE = re.compile(r"^(not ok|ok) (\d+)\s*-?\s*(.*)$")
PLAN = re.compile(r"^1\.\.(\d+)")


@dataclass
class Report:
    """What a test program reported: names by outcome, and what is wrong with the report itself."""

    passed: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def parse(output: str) -> Report:
    """Return the outcomes of the top level; fewer results than planned, or none, are problems."""
    report, plan = Report(), None
    for line in output.splitlines():
        if match := PLAN.match(line):
            plan = int(match.group(1))
        if match := LINE.match(line):
            name = match.group(3)
            if match.group(1) == "not ok" and "# XFAIL" not in name:
                report.failed.append(name)
            elif re.search(r"# SKIP\b", name, re.I):
                report.skipped.append(name)
            else:
                report.passed.append(name)
    reported = len(report.passed) + len(report.failed) + len(report.skipped)
    if plan is None:
        report.problems.append("no plan (1..N)")
    elif plan != reported:
        report.problems.append(f"{reported} results of {plan} planned")
    if not reported:
        report.problems.append("no results")
    return report
