# SPDX-License-Identifier: GPL-2.0
"""What all suites have in common: cases, the list of those that are left out, and what suites/run asks of a suite."""

from __future__ import annotations

import concurrent.futures
import contextlib
import hashlib
import json
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from guest import cli, paths

HERE = Path(__file__).resolve().parent
LIMIT_PASSED = 124  # the exit status that suites/cases.sh reports of a case which passed its limit


class SuiteError(Exception):
    """A suite cannot be built or run; the message says why, in one line."""


@contextlib.contextmanager
def workers(jobs: int) -> Iterator[concurrent.futures.ThreadPoolExecutor]:
    """Give a pool of threads that wait for guests. What ends the block early does not wait for them.

    The interpreter does, when it ends: a command that was interrupted has to call os._exit(), which ends the guests.
    """
    pool = concurrent.futures.ThreadPoolExecutor(jobs)
    try:
        yield pool
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    pool.shutdown()


@dataclass(frozen=True)
class Case:
    """A case: its name, and its command line for a shell.

    Cases that are `joined` run as one command, which gets a limit for each in seconds and their names as arguments, and
    itself says when each begins and ends, as suites/cases.sh does.
    """

    name: str
    command: str
    joined: bool = False


class Suite(Protocol):
    """A suite, which is a module.

    NAME is its name in commands. HOME is the folder for its logs and for what is built of it. SETUP is a script for
    bash that suites/cases.sh reads before the cases. SKIP is the list of the cases that are left out. PARTS are its
    parts, in the order in which they run.
    """

    NAME: str
    HOME: Path
    SETUP: Path
    SKIP: Path
    PARTS: Mapping[str, Any]

    def build(self, source: Path | None) -> dict[str, str]:
        """Build what is needed, from a tree if the suite needs one, and return its origin: at least "version".

        Raises SuiteError.
        """

    def cases(self, part: str) -> list[Case]:
        """Return all cases of a part, those that are left out, too. Raises SuiteError if they cannot be read."""

    def options(self, part: str) -> dict[str, Any]:
        """Return the options of guest.boot.run that a part's guests have besides sets.SHAPE and a plain processor."""

    def results(self, output: str) -> dict[str, str]:
        """Return "case: check" -> outcome (sets.ORDER) from the output of suites/cases.sh.

        The status of each case is a check, too: compare.STATUS.
        """


def _git(source: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(source), *arguments], text=True, check=False, capture_output=True,
                          stdin=subprocess.DEVNULL)
    if done.returncode:
        said = done.stderr.strip().splitlines() or ["it failed"]
        raise SuiteError(f"{source}: git {arguments[0]} says: {said[0]}; give a git clone of the suite")
    return done.stdout.strip()


def origin(source: Path, revision: str = "HEAD") -> dict[str, str]:
    """Return the commit that a clone is at, or that of a revision, and what `git describe` calls it.

    Raises SuiteError.
    """
    commit = _git(source, "rev-parse", f"{revision}^{{commit}}")
    return {"commit": commit, "version": _git(source, "describe", "--tags", "--always", commit)}


def checkout(source: Path, commit: str, folder: Path, stamp: Path) -> None:
    """Make a clone of a clone, at a commit of it, in place of what is in a folder. Raises SuiteError.

    The stamp, which says what is built of the folder, goes first.
    """
    stamp.unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)
    _git(source, "clone", "-q", "--no-hardlinks", "--no-checkout", str(source.resolve()), str(folder))
    _git(folder, "checkout", "-q", "--detach", commit)


def build_once(name: str, stamp: Path, source: Path | None, advice: str, work: Callable[[Path, dict[str, str]], None],
               wanted: Callable[[Path], dict[str, str]] = origin) -> dict[str, str]:
    """Build from a clone what a stamp does not say is built already, and return its origin, which `wanted` tells.

    Without a clone, take what was built last; `advice` says how to name one. Raises SuiteError.
    """
    known: dict[str, str] | None = paths.read_stamp(stamp)
    if source is None:
        if known is None:
            raise SuiteError(f"{name} is not built yet: name a git clone of {advice}")
        return known
    now = wanted(source)
    if now != known:
        cli.progress(f"building {name} in build/suites")
        stamp.parent.mkdir(parents=True, exist_ok=True)
        work(source, now)
        paths.write_whole(stamp, json.dumps(now))
    return now


def skip_list(path: Path) -> dict[str, str]:
    """Return the reasons why cases are left out, by their names, from a file. Raises SuiteError.

    A line is a name and the reason; empty lines and those that begin with # say nothing.
    """
    found: dict[str, str] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        name, *reason = line.split(maxsplit=1) or [""]
        if not name or name.startswith("#"):
            continue
        if not reason:
            raise SuiteError(f"{path.name}:{number}: {name} is left out without a reason")
        if name in found:
            raise SuiteError(f"{path.name}:{number}: {name} is there twice")
        found[name] = reason[0].strip()
    return found


def unknown(skipped: dict[str, str], suite: Suite) -> list[str]:
    """Return the names of a skip list that are cases of no part."""
    known = {case.name for part in suite.PARTS for case in suite.cases(part)}
    return [name for name in skipped if name not in known]


def sample(every: list[Case], count: int) -> list[Case]:
    """Return that many cases, in their order: always the same ones, and as if drawn at random."""
    drawn = sorted(every, key=lambda case: hashlib.sha256(case.name.encode()).digest())[:count]
    return [case for case in every if case in drawn]
