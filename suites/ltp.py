# SPDX-License-Identifier: GPL-2.0
"""The Linux Test Project: how it is built, which of its cases are run, and which are left out and why.

Nothing of it is in this repository but the names of its cases. It is built from a clone of the tree that the user
names, in build/suites/ltp, and that tree is left alone.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import sets
from guest import cli, packages, paths
from suites import compare
from suites.suite import HERE, LIMIT_PASSED, Case, SuiteError, build_once, checkout

NAME = "ltp"
HOME = paths.BUILD / "suites" / NAME
SOURCE, INSTALLED = HOME / "source", HOME / "installed"
STAMP, LOG = HOME / "origin.json", HOME / "build.log"
SETUP, SKIP = HERE / "ltp.sh", HERE / "ltp.skip"
TOOLS = ("git", "make", "gcc", "autoconf", "automake", "m4", "pkg-config")
# The bits of an exit status.
BITS = {1: "fail", 2: "broken", 4: "broken", 32: "skip"}
LIBRARIES = ("lib", "libs")
# The folders whose programs are run; the others test networks, drivers and commands.
FOLDERS = ("testcases/lib", "testcases/kernel/lib", "testcases/kernel/mem", "testcases/kernel/numa",
           "testcases/kernel/controllers", "testcases/kernel/security", "testcases/kernel/syscalls", "testcases/cve")


@dataclass(frozen=True)
class Part:
    """Cases that are run and reported together: those of one runtest file whose names match.

    `names` are the patterns of those that belong to it, `but` of those that do not. `options` are the options of
    guest.boot.run that its guests have besides sets.SHAPE and a plain processor.
    """

    file: str
    names: tuple[str, ...] = ("*",)
    but: tuple[str, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)

    def has(self, name: str) -> bool:
        """Say whether a case of the file belongs to this part."""
        return any(fnmatchcase(name, one) for one in self.names) and not any(fnmatchcase(name, one) for one in self.but)


def _prefixes(words: str) -> tuple[str, ...]:
    return tuple(f"{word}*" for word in words.split())


PARTS = {
    "ipc": Part("syscalls-ipc"),
    # Two nodes, as the cases of these two ask for.
    "numa": Part("numa", options={"numa": 2}),
    "memory": Part("syscalls", _prefixes(
        "brk cachestat get_mempolicy madvise mbind membarrier memfd mincore mlock mmap mprotect mremap msync munlock "
        "munmap pkey process_madvise process_vm remap_file_pages sbrk set_mempolicy swapoff swapon userfaultfd "
        "splice vmsplice"), options={"numa": 2}),
    "processes": Part("syscalls", _prefixes(
        "clone exec exit fork futex personality pidfd prctl ptrace vfork wait")),
    "hugetlb": Part("hugetlb"),
    "mm": Part("mm", but=("oom*", "swapping*")),
    "swapping": Part("mm", ("swapping*",)),
    "oom": Part("mm", ("oom*",)),
    "memcg": Part("controllers", ("memcg*", "memcontrol*")),
    # With the processor's protections of the kernel from user space, which are slow to emulate.
    "cve": Part("cve", options={"plain_cpu": False}),
}


def _make(command: list[str], environment: dict[str, str]) -> None:
    """Run a step of the build in SOURCE and append what it says to the log. Raises SuiteError."""
    with open(LOG, "a", encoding="utf-8") as log:
        done = subprocess.run(command, cwd=SOURCE, env=environment, check=False, stdin=subprocess.DEVNULL, stdout=log,
                              stderr=subprocess.STDOUT)
    if done.returncode:
        advice = cli.advice(LOG.read_text(encoding="utf-8", errors="replace")[-4000:]) or "fix that and run it again"
        raise SuiteError(f"{NAME}: `{' '.join(command)}` failed, {LOG.relative_to(paths.REPO)} says why: {advice}")


def _install(source: Path, wanted: dict[str, str]) -> None:
    """Build and install a commit of a clone. Raises SuiteError."""
    packages.ensure("to build test suites")
    missing = [tool for tool in TOOLS if not shutil.which(tool)]
    if missing:
        raise SuiteError(f"this host has no {', '.join(missing)}, which {NAME} is built with: install them")
    checkout(source, wanted["commit"], SOURCE, STAMP)
    shutil.rmtree(INSTALLED, ignore_errors=True)
    LOG.unlink(missing_ok=True)
    environment = {key: value for key, value in os.environ.items() if key not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")}
    compiler = "ccache gcc" if shutil.which("ccache") else "gcc"
    _make(["make", "autotools"], environment)
    _make(["./configure", f"--prefix={INSTALLED}", "--without-modules", f"CC={compiler}", "CFLAGS=-O2"], environment)
    for folder, goal in (*((one, "all") for one in (*LIBRARIES, *FOLDERS)), *((one, "install") for one in FOLDERS)):
        _make(["make", f"-j{os.cpu_count() or 1}", "-C", folder, goal], environment)


def build(source: Path | None) -> dict[str, str]:
    """Build and install the commit that a clone is at, unless that is done already, and return its origin.

    Without a clone, take what was built last. Raises SuiteError.
    """
    return build_once(NAME, STAMP, source, f"it (make suites LTP=PATH, or suites/run --source {NAME}=PATH)", _install)


def listed(text: str) -> list[Case]:
    """Return the cases of a runtest file's text; the first of two with one name counts."""
    found: dict[str, Case] = {}
    for line in text.splitlines():
        name, *command = line.split(maxsplit=1)[:2] or [""]
        if command and not name.startswith("#"):
            found.setdefault(name, Case(name, command[0]))
    return list(found.values())


def cases(part: str) -> list[Case]:
    """Return all cases of a part, those that are left out, too."""
    one = PARTS[part]
    return [case for case in listed((SOURCE / "runtest" / one.file).read_text(encoding="utf-8")) if one.has(case.name)]


def options(part: str) -> dict[str, Any]:
    """Return the options of guest.boot.run that a part's guests have."""
    return PARTS[part].options


def outcome_of(status: int) -> str:
    """Return what an exit status means; a status above 128 is that of a signal."""
    if status == LIMIT_PASSED:
        return "timeout"
    if status > 128 or status & ~sum(BITS):
        return "broken" if status in (126, 127) else "fail"
    worst = "pass"
    for bit, outcome in BITS.items():
        worst = sets.worst(worst, outcome) if status & bit else worst
    return worst


def results(output: str) -> dict[str, str]:
    """Return "case: check" -> outcome from the output of suites/cases.sh."""
    return compare.results(output, outcome_of)
