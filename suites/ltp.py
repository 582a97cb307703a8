# SPDX-License-Identifier: GPL-2.0
"""The Linux Test Project: how it is built, which of its cases are run, and which are left out and why.

Nothing of it is in this repository but the names of its cases. It is built from a clone of the tree that the user
names, in build/suites/ltp, and that tree is left alone.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from guest import cli, packages, paths

NAME = "ltp"
HOME = paths.BUILD / "suites" / NAME
SOURCE, INSTALLED = HOME / "source", HOME / "installed"
STAMP, LOG = HOME / "origin.json", HOME / "build.log"
HERE = Path(__file__).resolve().parent
SCRIPT, SKIP = HERE / "ltp.sh", HERE / "ltp.skip"
TOOLS = ("git", "make", "gcc", "autoconf", "automake", "m4", "pkg-config")
LIBRARIES = ("lib", "libs")
# The folders whose programs are run; the others test networks, drivers and commands.
FOLDERS = ("testcases/lib", "testcases/kernel/lib", "testcases/kernel/mem", "testcases/kernel/numa",
           "testcases/kernel/controllers", "testcases/kernel/security", "testcases/kernel/syscalls", "testcases/cve")


class SuiteError(Exception):
    """A suite cannot be built or run; the message says why, in one line."""


@dataclass(frozen=True)
class Case:
    """A case: its name, and its command line for a shell."""

    name: str
    command: str


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


def _git(source: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(source), *arguments], text=True, check=False, capture_output=True,
                          stdin=subprocess.DEVNULL)
    if done.returncode:
        said = done.stderr.strip().splitlines() or ["it failed"]
        raise SuiteError(f"{source}: git {arguments[0]} says: {said[0]}; give a git clone of the Linux Test Project")
    return done.stdout.strip()


def origin(source: Path) -> dict[str, str]:
    """Return the commit that a clone is at, and what `git describe` calls it."""
    commit = _git(source, "rev-parse", "HEAD")
    return {"commit": commit, "version": _git(source, "describe", "--tags", "--always", commit)}


def _make(command: list[str], environment: dict[str, str]) -> None:
    """Run a step of the build in SOURCE and append what it says to the log. Raises SuiteError."""
    with open(LOG, "a", encoding="utf-8") as log:
        done = subprocess.run(command, cwd=SOURCE, env=environment, check=False, stdin=subprocess.DEVNULL, stdout=log,
                              stderr=subprocess.STDOUT)
    if done.returncode:
        advice = cli.advice(LOG.read_text(encoding="utf-8", errors="replace")[-4000:]) or "fix that and run it again"
        raise SuiteError(f"{NAME}: `{' '.join(command)}` failed, {LOG.relative_to(paths.REPO)} says why: {advice}")


def build(source: Path | None) -> dict[str, str]:
    """Build and install the commit that a clone is at, unless that is done already, and return its origin.

    Without a clone, take what was built last. Raises SuiteError.
    """
    known: dict[str, str] | None = paths.read_stamp(STAMP)
    if source is None:
        if known is None:
            raise SuiteError(f"{NAME} is not built yet: name a git clone of it (make suites LTP=PATH, or "
                             f"suites/run --source {NAME}=PATH)")
        return known
    wanted = origin(source)
    if wanted == known:
        return known
    packages.ensure("to build test suites")
    missing = [tool for tool in TOOLS if not shutil.which(tool)]
    if missing:
        raise SuiteError(f"this host has no {', '.join(missing)}, which {NAME} is built with: install them")
    HOME.mkdir(parents=True, exist_ok=True)
    for old in (SOURCE, INSTALLED):
        shutil.rmtree(old, ignore_errors=True)
    for path in (STAMP, LOG):
        path.unlink(missing_ok=True)
    _git(source, "clone", "-q", "--no-hardlinks", "--no-checkout", str(source.resolve()), str(SOURCE))
    _git(SOURCE, "checkout", "-q", "--detach", wanted["commit"])
    environment = {key: value for key, value in os.environ.items() if key not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")}
    compiler = "ccache gcc" if shutil.which("ccache") else "gcc"
    _make(["make", "autotools"], environment)
    _make(["./configure", f"--prefix={INSTALLED}", "--without-modules", f"CC={compiler}", "CFLAGS=-O2"], environment)
    for folder, goal in (*((one, "all") for one in (*LIBRARIES, *FOLDERS)), *((one, "install") for one in FOLDERS)):
        _make(["make", f"-j{os.cpu_count() or 1}", "-C", folder, goal], environment)
    paths.write_whole(STAMP, json.dumps(wanted))
    return wanted


def listed(text: str) -> list[Case]:
    """Return the cases of a runtest file's text; the first of two with one name counts."""
    found: dict[str, Case] = {}
    for line in text.splitlines():
        name, *command = line.split(maxsplit=1)[:2] or [""]
        if command and not name.startswith("#"):
            found.setdefault(name, Case(name, command[0]))
    return list(found.values())


def skip_list(text: str) -> dict[str, str]:
    """Return the reasons why cases are left out, by their names, from the text of ltp.skip. Raises SuiteError.

    A line is a name and the reason; empty lines and those that begin with # say nothing.
    """
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        name, *reason = line.split(maxsplit=1) or [""]
        if not name or name.startswith("#"):
            continue
        if not reason:
            raise SuiteError(f"{SKIP.name}:{number}: {name} is left out without a reason")
        if name in found:
            raise SuiteError(f"{SKIP.name}:{number}: {name} is there twice")
        found[name] = reason[0].strip()
    return found


def unknown(skipped: dict[str, str], runtest: Path) -> list[str]:
    """Return the names of a skip list that no runtest file of a part has."""
    known = {case.name for file in {part.file for part in PARTS.values()}
             for case in listed((runtest / file).read_text(encoding="utf-8"))}
    return [name for name in skipped if name not in known]


def sample(every: list[Case], count: int) -> list[Case]:
    """Return that many cases, in their order: always the same ones, and as if drawn at random."""
    drawn = sorted(every, key=lambda case: hashlib.sha256(case.name.encode()).digest())[:count]
    return [case for case in every if case in drawn]


def cases(part: Part, runtest: Path, skipped: dict[str, str]) -> tuple[list[Case], list[Case]]:
    """Return the cases of a part that are run, and those that are left out."""
    all_of = [case for case in listed((runtest / part.file).read_text(encoding="utf-8")) if part.has(case.name)]
    return ([case for case in all_of if case.name not in skipped], [case for case in all_of if case.name in skipped])
