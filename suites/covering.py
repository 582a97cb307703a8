# SPDX-License-Identifier: GPL-2.0
"""Says which lines of mm/quire our tests reach, and which functions have lines that they do not.

The guest tests of the features run on the kernel gcov, which counts how often each line ran: make kernel VARIANT=gcov
builds it. Each guest's counts are kept at its end, so one that crashes does not count. If all tests passed, the sum is
kept in suites/results/coverage/gcov.json, of which suites/publish makes docs/coverage.md. The unit tests' own lines and
the failures that tests provoke (core/debug.c) are left out; the features' checkers count.
"""

from __future__ import annotations

import json
import os
import posixpath
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from guest import boot, build, cli, paths
from suites import storage
from suites.suite import HERE

VARIANT = "gcov"
HOME = paths.BUILD / "suites" / "coverage"
DATA = HOME / "guests"
TOOLS = ("gcov", "gcov-tool")
TESTS = ("core", "fork", "prezero", "rmap", "shm", "text", "workloads")
OURS = ("mm/quire/", "include/linux/quire/")
TESTS_OWN = re.compile(r".*_test\.c|mm/quire/test/.*|mm/quire/core/debug\.c")
# A line's count: {source: {line: [count, function]}}.
Counts = dict[str, dict[int, tuple[int, str]]]


class CoverageError(Exception):
    """Nothing can be said about coverage; the message says why, in one line."""


def run_tests(jobs: int, expression: str) -> int:
    """Run the guest tests on the kernel gcov; return pytest's status."""
    shutil.rmtree(HOME, ignore_errors=True)
    DATA.mkdir(parents=True)
    command = [sys.executable, "-m", "pytest", "-q", "-n", str(jobs), "--dist", "worksteal", "--kernel", VARIANT,
               "-m", "not soak", *(["-k", expression] if expression else []),
               *(str(paths.REPO / f"tests/test_{name}.py") for name in TESTS)]
    at_end = shlex.join(["bash", str(HERE / "coverage.sh"), str(DATA)])
    return subprocess.run(command, cwd=paths.REPO, check=False, stdin=subprocess.DEVNULL,
                          env={**os.environ, "GUEST_AT_END": at_end}).returncode


def merged(folders: list[Path]) -> Path:
    """Add up the counts of guests and return the folder with the sums. Raises CoverageError."""
    total = folders[0]
    for number, folder in enumerate(folders[1:]):
        to = HOME / f"sum{number % 2}"
        shutil.rmtree(to, ignore_errors=True)
        done = subprocess.run(["gcov-tool", "merge", "-o", str(to), str(total), str(folder)], text=True, check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if done.returncode:
            raise CoverageError(f"gcov-tool cannot add {folder.name}: {done.stdout.strip()[-200:]}")
        total = to
    return total


def lines_of(report: dict[str, Any]) -> Iterator[tuple[str, int, int, str]]:
    """Yield (source, line, count, function) for each line of ours in gcov's JSON about one object."""
    for file in report["files"]:
        name = posixpath.normpath(file["file"].removeprefix("../"))
        if name.startswith(OURS) and not TESTS_OWN.fullmatch(name):
            for line in file["lines"]:
                yield name, line["line_number"], line["count"], line.get("function_name", "")


def counts_of(total: Path, objects: Path) -> Counts:
    """Return the count of each line of ours: a header's line counts wherever it is included. Raises CoverageError."""
    found: Counts = {}
    for data in sorted(total.rglob("*.gcda")):
        inner = data.as_posix().partition(f"/{objects.name}/")[2]
        if not inner:
            continue
        notes = (objects / inner).with_suffix(".gcno")
        if not notes.exists():
            raise CoverageError(f"{inner}: there is no {notes.name} beside the object: make kernel VARIANT={VARIANT}")
        shutil.copy2(notes, data.with_suffix(".gcno"))
        done = subprocess.run(["gcov", "--json-format", "--stdout", data.name], cwd=data.parent, text=True, check=False,
                              capture_output=True)
        if done.returncode or not done.stdout:
            raise CoverageError(f"gcov cannot read {inner}: {done.stderr.strip()[-200:]}")
        for report in done.stdout.splitlines():
            for name, line, count, function in lines_of(json.loads(report)):
                before = found.setdefault(name, {}).get(line, (0, function))[0]
                found[name][line] = (before + count, function)
    return found


def summary(counts: Counts) -> dict[str, Any]:
    """Return what is kept of each source: its lines, those reached, and the numbers of the others by function."""
    files = {}
    for name, lines in sorted(counts.items()):
        missed: dict[str, list[int]] = {}
        for number, (count, function) in sorted(lines.items()):
            if not count:
                missed.setdefault(function, []).append(number)
        never = sorted({function for _, function in lines.values()}
                       - {function for count, function in lines.values() if count})
        files[name] = {"lines": len(lines), "reached": sum(1 for count, _ in lines.values() if count),
                       "missed": missed, "never": never}
    return files


def run(args: Any) -> int:
    """Run the tests, add up and keep what they reached; return the exit status."""
    boot.image_of(VARIANT)
    missing = [tool for tool in TOOLS if not shutil.which(tool)]
    if missing:
        raise CoverageError(f"this host has no {', '.join(missing)}: install gcc")
    status = 0 if args.again else run_tests(args.jobs, args.only)
    folders = sorted(DATA.glob("guest.*")) if DATA.exists() else []
    if not folders:
        raise CoverageError("no guest has counted anything: run it without --again, and look at the tests' output")
    files = summary(counts_of(merged(folders), build.objects_of(VARIANT)))
    total = {key: sum(file[key] for file in files.values()) for key in ("lines", "reached")}
    result = {"date": time.strftime("%Y-%m-%d", time.gmtime()), "guests": len(folders), "tests": TESTS,
              "quire": paths.read_stamp(paths.BUILD / VARIANT / "origin.json"),
              **total, "files": files}
    if args.json:
        print(json.dumps(result, indent=1))
    else:
        print(f"{total['reached']:,} of {total['lines']:,} lines reached, in {len(folders)} guests")
    if status or args.only or args.again:
        print("note: this is not kept: " + ("a test failed" if status else "only a part ran"), file=sys.stderr)
    else:
        storage.COVERAGE.parent.mkdir(parents=True, exist_ok=True)
        paths.write_whole(storage.COVERAGE, storage.text_of(result))
    return 1 if status else 0


def main(argv: list[str] | None = None) -> int:
    """Do what the command line asks for."""
    parser = cli.Parser(prog="suites/coverage", description=__doc__)
    parser.add_argument("--jobs", type=cli.number(1, 64), default=2, metavar="N", help="guests at a time (default 2)")
    parser.add_argument("--only", default="", metavar="TESTS", help="only the tests that pytest -k TESTS selects")
    parser.add_argument("--again", action="store_true", help="run no test, and add up what the last run counted")
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    try:
        return run(parser.parse_args(argv))
    except (CoverageError, boot.BootError, OSError, ValueError, MemoryError) as error:
        print(f"error: {cli.explain(error)}", file=sys.stderr)
        return 1
