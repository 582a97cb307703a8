# SPDX-License-Identifier: GPL-2.0
"""The kernel's own selftests of processes and memory, beside those of mm and memfd, which make check and make soak run.

They come with the kernel's base and are built from it, with vanilla's headers. A part is one of its folders, and a case
is a program that the folder's Makefile names. A program also reports cases of its own, in KTAP.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import sets
from guest import build as kernels
from guest import cli, packages, paths, tree
from suites import compare
from suites.suite import HERE, LIMIT_PASSED, Case, SuiteError

NAME = "kselftest"
HOME = paths.BUILD / "suites" / NAME
INSTALLED, STAMP, LOG = HOME / "installed", HOME / "origin.json", HOME / "build.log"
SETUP, SKIP = HERE / "kselftest.sh", HERE / "kselftest.skip"
# The options of the guests, by folder; futex has its programs in the folder functional.
PARTS: dict[str, dict[str, Any]] = {
    "cgroup": {"cpus": 4}, "clone3": {}, "exec": {}, "futex": {}, "kcmp": {}, "membarrier": {}, "mincore": {},
    "mqueue": {}, "proc": {}, "ptrace": {}, "sigaltstack": {}, "timens": {}, "vDSO": {},
}
LARGE = 4 << 20  # bytes; some programs are 50 MB, which take minutes to copy from the host
SKIPPED = 4  # an exit status, see tools/testing/selftests/kselftest.h


def build(source: Path | None) -> dict[str, str]:
    """Build the selftests of the base, unless that is done already, and return its version. Raises SuiteError."""
    if source is not None:
        raise SuiteError(f"{NAME} comes with the kernel's base: leave --source {NAME}={source} out")
    version = tree.kernel_version(paths.BASE)
    wanted = {"version": version, "parts": " ".join(PARTS)}
    if paths.read_stamp(STAMP) == wanted:
        return {"version": version}
    cli.progress(f"building {NAME} in build/suites")
    packages.ensure("to build test suites")
    STAMP.unlink(missing_ok=True)
    shutil.rmtree(INSTALLED, ignore_errors=True)
    HOME.mkdir(parents=True, exist_ok=True)
    objects = kernels.objects_of("vanilla")
    # What lacks a library is left out (-k), and is then no case.
    commands = [["make", "-s", f"O={objects.name}", "headers"],
                ["make", "-s", "-k", f"-j{os.cpu_count() or 1}", "-C", "tools/testing/selftests", f"O={objects}",
                 f"KHDR_INCLUDES=-isystem {objects}/usr/include", f"TARGETS={' '.join(PARTS)}", "install",
                 f"INSTALL_PATH={INSTALLED}"]]
    with open(LOG, "w", encoding="utf-8") as log, paths.build_lock():
        for command in commands:
            subprocess.run(command, cwd=paths.BASE, check=False, stdin=subprocess.DEVNULL, stdout=log,
                           stderr=subprocess.STDOUT)
    missing = [part for part in PARTS if not (INSTALLED / part).is_dir()]
    if missing:
        raise SuiteError(f"{NAME}: {', '.join(missing)} cannot be built, {LOG.relative_to(paths.REPO)} says why")
    paths.write_whole(STAMP, json.dumps(wanted))
    return {"version": version}


def cases(part: str) -> list[Case]:
    """Return all cases of a part: the programs that are built. Raises SuiteError if none is."""
    folder = "futex/functional" if part == "futex" else part
    listed = (INSTALLED / "kselftest-list.txt").read_text(encoding="utf-8").splitlines()
    names = [line.removeprefix(f"{part}:") for line in listed if line.startswith(f"{part}:")]
    if part == "futex":
        names = sorted(path.name for path in (INSTALLED / folder).glob("futex_*"))
    if not names:
        raise SuiteError(f"{NAME} has no program in {part}: remove build/suites/{NAME}, and run it again")
    # They write to their folder, and some want an ordinary file system there.
    enter = (f"rsync -a --ignore-existing --max-size={LARGE} {INSTALLED / folder}/ $TMPDIR/{part} && "
             f"cd $TMPDIR/{part} && exec")
    return [Case(name, f"{enter} {program(INSTALLED / folder / name)}") for name in names]


def program(path: Path) -> str:
    """Return what starts a program in the copy of its folder, which has no large files."""
    return str(path) if path.stat().st_size > LARGE else f"./{path.name}"


def options(part: str) -> dict[str, Any]:
    """Return the options of guest.boot.run that a part's guests have."""
    return PARTS[part]


def outcome_of(status: int) -> str:
    """Return what an exit status means."""
    if status == LIMIT_PASSED:
        return "timeout"
    return {0: "pass", SKIPPED: "skip", 126: "broken", 127: "broken"}.get(status, "fail")


def results(output: str) -> dict[str, str]:
    """Return "case: check" -> outcome from the output of suites/cases.sh: the programs' own cases are the checks."""
    statuses = compare.results(output, outcome_of)
    checks = {key: outcome for key, outcome in sets.results(output).items() if not key.endswith(f": {compare.STATUS}")}
    return checks | statuses
