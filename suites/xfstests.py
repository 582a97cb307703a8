# SPDX-License-Identifier: GPL-2.0
"""xfstests: its generic tests that read, write and map files, on a file system with large folios and on one without.

A case is one of its tests. It is built from a clone of the tree that the user names, in build/suites/xfstests.
"""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from guest import packages, paths
from suites import compare
from suites.suite import HERE, LIMIT_PASSED, Case, SuiteError, build_once, checkout
from suites.xfstests_cases import BROKEN, NOT_RUN

NAME = "xfstests"
HOME = paths.BUILD / "suites" / NAME
SOURCE, STAMP, LOG = HOME / "source", HOME / "origin.json", HOME / "build.log"
SETUP, SKIP, SCRIPT = HERE / "xfstests.sh", HERE / "xfstests.skip", HERE / "xfstests_cases.py"
MAPS, WRITES = {"mmap", "swap"}, {"aio", "io_uring", "rw"}


@dataclass(frozen=True)
class Part:
    """The tests of the group quick that are in one of `groups` and in none of `others`, on a file system."""

    filesystem: str
    groups: set[str]
    others: set[str] = field(default_factory=set)


# Linux 6.12's ext4 has no large folios in the page cache; xfs has.
PARTS = {"mmap-ext4": Part("ext4", MAPS), "mmap-xfs": Part("xfs", MAPS),
         "rw-ext4": Part("ext4", WRITES, MAPS), "rw-xfs": Part("xfs", WRITES, MAPS)}


def _compile(source: Path, wanted: dict[str, str]) -> None:
    """Build a commit of a clone. Raises SuiteError."""
    packages.ensure("to build xfstests")
    checkout(source, wanted["commit"], SOURCE, STAMP)
    with open(LOG, "w", encoding="utf-8") as log:
        done = subprocess.run(["make", f"-j{os.cpu_count() or 1}", "-C", str(SOURCE)], check=False,
                              stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
    if done.returncode:
        raise SuiteError(f"{NAME} cannot be built, {LOG.relative_to(paths.REPO)} says why")


def build(source: Path | None) -> dict[str, str]:
    """Build a clone's HEAD, unless that is done already, and return its origin.

    Without a clone, take what was built last. Raises SuiteError.
    """
    return build_once(NAME, STAMP, source, f"it (suites/run --source {NAME}=PATH)", _compile)


def groups_of(text: str) -> set[str]:
    """Return the groups that a test's own text names."""
    named = re.search(r"^_begin_fstest\s+(.*)$", text, re.M)
    return set(named[1].split()) if named else set()


def cases(part: str) -> list[Case]:
    """Return all cases of a part, those that are left out, too. Raises SuiteError if there are none."""
    tests = sorted(path for path in (SOURCE / "tests/generic").glob("*") if path.name.isdigit())
    found = []
    wanted = PARTS[part]
    for test in tests:
        groups = groups_of(test.read_text(encoding="utf-8", errors="replace"))
        if "quick" in groups and groups & wanted.groups and not groups & wanted.others:
            # Its own script is slow to begin, and runs any number of tests.
            found.append(Case(f"{test.parent.name}/{test.name}", f"python3 {SCRIPT} {SOURCE} {wanted.filesystem}",
                              joined=True))
    if not found:
        raise SuiteError(f"{NAME} has no tests in {SOURCE.relative_to(paths.REPO)}: name a git clone of it again")
    return found


def options(part: str) -> dict[str, Any]:
    """Return the options of guest.boot.run that a part's guests have."""
    return {"memory": "4G"}


def outcome_of(status: int) -> str:
    """Return what an exit status means."""
    if status == LIMIT_PASSED:
        return "timeout"
    return {0: "pass", NOT_RUN: "skip", BROKEN: "broken", 127: "broken"}.get(status, "fail")


def results(output: str) -> dict[str, str]:
    """Return "case: status" -> outcome from the output of suites/cases.sh."""
    return compare.results(output, outcome_of)
