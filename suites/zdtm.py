# SPDX-License-Identifier: GPL-2.0
"""zdtm, the tests of CRIU: programs that Debian's CRIU freezes and thaws, and which say whether they are as they were.

A case is one of these programs. It is frozen at once (memory, processes), after a first look at its memory while it
goes on (iterative), or thawed with its memory given back as it faults (lazy). They are built from the clone's tag of
CRIU's version.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from guest import packages, paths
from suites import compare
from suites.suite import HERE, LIMIT_PASSED, Case, SuiteError, build_once, checkout, origin

NAME = "zdtm"
HOME = paths.BUILD / "suites" / NAME
SOURCE, STAMP, LOG = HOME / "source", HOME / "origin.json", HOME / "build.log"
SETUP, SKIP, SCRIPT = HERE / "zdtm.sh", HERE / "zdtm.skip", HERE / "zdtm_case.sh"
MEMORY = ("maps00 maps01 maps02 maps03 maps04 maps05 maps06 maps09 maps10 maps_file_prot mprotect00 mtime_mmap "
          "mem-touch cow00 cow01 grow_map grow_map02 grow_map03 shm shm-mp shm-unaligned sem msgque memfd00 memfd01 "
          "memfd02 memfd03 shmemfd shmemfd-priv thp_disable unlink_mmap00 unlink_mmap01 unlink_mmap02 write_read00 "
          "vdso00 vdso01 vdso02 maps007 maps008 shmem lazy-thp")
PROCESSES = ("busyloop00 sleeping00 pstree child_subreaper zombie00 zombie01 wait00 futex futex-rl pthread00 "
             "pthread01 pthread02 sigaltstack signalfd00 sigpending timers posix_timers rlimits00 cmdlinenv00 "
             "selfexe00 proc-self stopped01 pid00 xids00 fork fork2 thread-bomb file_read")
# What is thawed into a namespace of its own, since its names may be taken outside, and what wants arguments.
ISOLATED = ("shm", "shm-mp", "shm-unaligned", "sem", "msgque")
ARGUMENTS = {"shm-unaligned": "--shmem_size=5000", "cmdlinenv00": "--arg1=arg1 --arg2=arg2 --arg3=arg3"}


@dataclass(frozen=True)
class Part:
    """Programs, and how they are frozen and thawed: zdtm_case.sh has the ways."""

    names: str
    way: str = "once"


PARTS = {"memory": Part(MEMORY), "iterative": Part(MEMORY, "iterative"), "lazy": Part(MEMORY, "lazy"),
         "processes": Part(PROCESSES)}


def _version() -> str:
    """Return the version of the host's CRIU, which guests run, too. Raises SuiteError if there is none."""
    if not shutil.which("criu"):
        raise SuiteError("this host has no criu: make packages")
    said = subprocess.run(["criu", "--version"], text=True, check=False, capture_output=True).stdout
    return said.split("Version:")[-1].split()[0]


def _compile(source: Path, wanted: dict[str, str]) -> None:
    """Build the programs from a commit of a clone. Raises SuiteError."""
    packages.ensure("to build test suites")
    checkout(source, wanted["commit"], SOURCE, STAMP)
    wanted_names = sorted({*MEMORY.split(), *PROCESSES.split()})
    with open(LOG, "w", encoding="utf-8") as log:
        for folder in ("lib", "static", "transition"):
            there = SOURCE / "test/zdtm" / folder
            goals = [name for name in wanted_names if (there / f"{name}.c").exists()]
            subprocess.run(["make", "-k", f"-j{os.cpu_count() or 1}", "-C", str(there), *goals], check=False,
                           stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
    missing = [name for name in wanted_names if not _program(name)]
    if missing:
        raise SuiteError(f"{NAME}: {', '.join(missing)} cannot be built, {LOG.relative_to(paths.REPO)} says why")


def build(source: Path | None) -> dict[str, str]:
    """Build the programs of CRIU's version from a clone, unless that is done already, and return their origin.

    Without a clone, take what was built last. Raises SuiteError.
    """
    return build_once(NAME, STAMP, source, f"CRIU (suites/run --source {NAME}=PATH)", _compile,
                      lambda clone: origin(clone, f"v{_version()}"))


def _program(name: str) -> Path | None:
    """Return a program that is built."""
    found = (SOURCE / "test/zdtm" / folder / name for folder in ("static", "transition"))
    return next((path for path in found if path.exists()), None)


def with_files() -> set[str]:
    """Return the names of the programs that want the name of a file, as their Makefiles list them."""
    makefiles = (SOURCE / "test/zdtm" / folder / "Makefile" for folder in ("static", "transition"))
    texts = [path.read_text(encoding="utf-8") for path in makefiles]
    lists = [listed[1] for text in texts for listed in re.finditer(r"^TST_FILE\s*:?=((?:.*\\\n)*.*)$", text, re.M)]
    return set(" ".join(lists).replace("\\", " ").split())


def cases(part: str) -> list[Case]:
    """Return all cases of a part, those that are left out, too."""
    files, found = with_files(), []
    for name in PARTS[part].names.split():
        arguments = [f"--filename={name}.test"] * (name in files) + ARGUMENTS.get(name, "").split()
        before = "APART='unshare --ipc' " if name in ISOLATED else ""
        found.append(Case(name, " ".join([f"{before}bash {SCRIPT}", PARTS[part].way, str(_program(name)), *arguments])))
    return found


def options(part: str) -> dict[str, Any]:
    """Return the options of guest.boot.run that a part's guests have."""
    return {}


def outcome_of(status: int) -> str:
    """Return what an exit status means: 2 is that of a program which CRIU could not freeze or thaw."""
    if status == LIMIT_PASSED:
        return "timeout"
    return {0: "pass", 2: "broken", 126: "broken", 127: "broken"}.get(status, "fail")


def results(output: str) -> dict[str, str]:
    """Return "case: status" -> outcome from the output of suites/cases.sh."""
    return compare.results(output, outcome_of)
