# SPDX-License-Identifier: GPL-2.0
"""Run several test programs in one guest, each with its own limit and its own verdict.

A boot of the debug kernel, with the search for leaks at its end, takes longer than most programs.
"""

from __future__ import annotations

import os
import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ktap

# Each program runs in its own session, so that whatever a killed program leaves behind can be killed, too.
HEAD = r"""
sid=$(mktemp)
end_session() {
	local file fields
	for file in /proc/[0-9]*/stat; do
		read -r fields 2>/dev/null <"$file" || continue
		set -- ${fields##*) }
		[ "$4" = "$(<$sid)" ] && { file=${file%/stat}; kill -KILL ${file#/proc/}; }
	done
}
begin=$SECONDS
"""
ONE = r"""
printf '\n@@ %d begins\n' {index}
setsid bash -c 'echo $$ >"$0"; exec "$@"' $sid timeout -k 10 {limit:g} {command}
printf '\n@@ %d ended with %d after %d s\n' {index} $? $((SECONDS - begin))
end_session 2>/dev/null
begin=$SECONDS
"""
# The features' checkers walk over everything that the programs left behind.
WALKS = r"""
sid=${{sid:-$(mktemp)}}
{checks} >$sid 2>&1 || {{ printf '\n@@ the walks complain\n'; cat $sid; }}
rm $sid
"""
CHECKS = Path(__file__).parent / "workloads" / "checks.sh"
LIMIT_PASSED = (124, 137)
# About how many times the checkers of the debug kernel slow a guest down.
DEBUG_SLOWDOWN = 4


def shape(kernel: str, **asked: Any) -> dict[str, Any]:
    """Return the options of guest.boot.run for a guest of which a test asks these.

    The debug kernel has less memory: at boot it fills KASAN's shadow of all memory, and kmemleak reads the array of all
    pages. Only tests that ask for kmemleak have it, because it takes nearly half of the debug kernel's time; LEAKS=1 in
    the environment switches it on for all of them.
    """
    leaks = bool(os.environ.get("LEAKS")) or asked.get("leaks", False)
    return {"kernel": kernel, "memory": "2G" if kernel == "debug" else "4G", "plain_cpu": True, **asked, "leaks": leaks}


@dataclass
class Outcome:
    """The outcome of one program: `status` is None if it did not end, `output` is None if it did not begin."""

    command: str
    status: int | None
    output: str | None
    seconds: int = 0

    @property
    def report(self) -> ktap.Report:
        """The program's report, parsed as KTAP."""
        return ktap.parse(self.output or "")

    @property
    def skipped(self) -> bool:
        """Whether the program skipped everything, and said so case by case."""
        report = self.report
        return bool(report.skipped) and not (report.passed or report.failed or report.problems)

    @property
    def complaint(self) -> str:
        """What is wrong with the program, "" for nothing. The caller judges whether it may skip everything."""
        if self.output is None:
            return "did not run"
        report, wrong = self.report, []
        if report.failed:
            wrong.append(f"failed: {', '.join(report.failed)}")
        wrong += report.problems
        if self.status is None:
            wrong.append("did not end")
        elif self.status in LIMIT_PASSED:
            wrong.append("was ended at its limit of time")
        elif self.status and not self.skipped:
            wrong.append(f"status {self.status}")
        return "; ".join(wrong)


def script(commands: list[list[str]], limit: float) -> str:
    """Return a script for bash that runs commands one after the other, `limit` seconds each (0: no limit).

    At its end the features' checkers walk over what is left.
    """
    return HEAD + "".join(ONE.format(index=index, limit=limit, command=shlex.join(command))
                          for index, command in enumerate(commands)) + WALKS.format(checks=shlex.quote(str(CHECKS)))


def with_walks(command: str) -> str:
    """Return a script that runs a shell command, then the features' checkers, and exits with the command's status."""
    return f"(\n{command}\n)\nstatus=$?\n{WALKS.format(checks=shlex.quote(str(CHECKS)))}exit $status\n"


def walks(output: str) -> str:
    """Return what the checkers complained about at the end of a script, "" for nothing."""
    match = re.search(r"^@@ (the walks complain\n.*)", output, re.M | re.S)
    return match[1] if match else ""


def outcomes(output: str, names: list[str]) -> list[Outcome]:
    """Return the outcome of each command of a script, whose output may be cut off anywhere."""
    found = []
    for index, name in enumerate(names):
        match = re.search(rf"^@@ {index} begins\n(.*?)(?:^@@ {index} ended with (\d+) after (\d+) s$|\Z)", output,
                          re.M | re.S)
        if not match:
            found.append(Outcome(name, None, None))
        elif match[2] is None:
            found.append(Outcome(name, None, match[1]))
        else:
            found.append(Outcome(name, int(match[2]), match[1].rstrip("\n") + "\n", int(match[3])))
    return found


def summary(found: list[Outcome]) -> str:
    """Return a line for each program."""
    lines = []
    for one in found:
        report = one.report
        lines.append(f"{one.command}: {one.complaint or 'good'} ({len(report.passed)} passed, {len(report.skipped)} "
                     f"skipped, {one.seconds} s)")
    return "\n".join(lines)
