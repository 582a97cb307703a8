# SPDX-License-Identifier: GPL-2.0
"""Debian's stress-ng: each of its stressors of memory and of the operating system is a case, by its class.

A case runs two instances for a few seconds with --verify, in a control group with little memory, on swap and on a file
system of the guest's own (stress_ng.sh).
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

from guest import paths
from suites import compare
from suites.suite import HERE, LIMIT_PASSED, Case, SuiteError

NAME = "stress-ng"
HOME = paths.BUILD / "suites" / NAME
SETUP, SKIP = HERE / "stress_ng.sh", HERE / "stress-ng.skip"
# The classes; a stressor that is in two of them belongs to the first.
PARTS: dict[str, dict[str, Any]] = {"vm": {}, "memory": {}, "os": {}}
SECONDS = 5
# What stress-ng(1) says of its exit status: no resources and not implemented are no failure.
OUTCOMES = {0: "pass", 1: "broken", 2: "fail", 3: "skip", 4: "skip", 5: "fail", 6: "fail", 7: "broken"}


def _said(*arguments: str) -> str:
    """Return what stress-ng prints, whatever its exit status. Raises SuiteError if there is none."""
    try:
        return subprocess.run([NAME, *arguments], text=True, check=False, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT).stdout
    except FileNotFoundError:
        raise SuiteError(f"this host has no {NAME}: make packages") from None


def build(source: Path | None) -> dict[str, str]:
    """Return the version of the host's stress-ng, which guests run, too. Raises SuiteError."""
    if source is not None:
        raise SuiteError(f"{NAME} is Debian's, and takes no tree: leave --source {NAME}={source} out")
    HOME.mkdir(parents=True, exist_ok=True)
    version = re.search(r"version (\S+)", _said("--version").replace(",", " "))
    return {"version": version[1] if version else "unknown"}


def stressors(part: str) -> list[str]:
    """Return the names of a class's stressors. Raises SuiteError."""
    said = _said("--class", f"{part}?")
    names = re.search(rf"^class '{part}' stressors: (.*)$", said, re.M)
    if not names:
        raise SuiteError(f"{NAME} knows no class {part}: {said.strip()[-200:]}")
    return names[1].split()


def cases(part: str) -> list[Case]:
    """Return all cases of a part, those that are left out, too. Raises SuiteError."""
    earlier = {name for other in list(PARTS)[:list(PARTS).index(part)] for name in stressors(other)}
    return [Case(name, f"{NAME} --{name} 2 --timeout {SECONDS} --verify --no-rand-seed --pathological")
            for name in stressors(part) if name not in earlier]


def options(part: str) -> dict[str, Any]:
    """Return the options of guest.boot.run that a part's guests have."""
    return PARTS[part]


def outcome_of(status: int) -> str:
    """Return what an exit status means; a status above 128 is that of a signal."""
    return "timeout" if status == LIMIT_PASSED else OUTCOMES.get(status, "fail" if status > 128 else "broken")


def results(output: str) -> dict[str, str]:
    """Return "case: status" -> outcome from the output of suites/cases.sh."""
    return compare.results(output, outcome_of)
