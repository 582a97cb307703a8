# SPDX-License-Identifier: GPL-2.0
"""Run tests of xfstests in a guest: xfstests_cases.py FOLDER FILESYSTEM LIMIT TEST... for those built in a folder.

Prints "== TEST" when it is seen that one runs, and "== TEST status N" at its end. N is 77 if it does not run here, 1 if
it fails, and 124 if it passes LIMIT, in seconds: then the program ends. What a test that fails prints, and its logs'
ends, come between.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

FAILED, NOT_RUN, PASSED_LIMIT, BROKEN = 1, 77, 124, 126
LOGS, LINES = ("out.bad", "full", "dmesg"), 40


def say(text: str) -> None:
    """Print a line at once."""
    print(text, flush=True)


class Listener:
    """Tells from what xfstests' own script, check, prints when a test begins and how it ends.

    check begins a line with a test's name and ends it when the test has ended: "NAME  3s" is all of it if it passed.
    """

    def __init__(self, tests: list[str], results: Path) -> None:
        self.tests, self.results = tests, results
        self.test, self.line, self.any, self.since = "", "", False, time.monotonic()

    def end(self, status: int) -> None:
        """Say how the test has ended."""
        for path in [self.results / f"{self.test}.{name}" for name in LOGS] if status == FAILED else []:
            with contextlib.suppress(OSError):
                lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
                say("\n".join(f"    {line}" for line in [f"{path.name}:", *lines[-LINES:]]))
        say(f"\n== {self.test} status {status}")
        self.test = ""

    def _begin(self) -> None:
        name = self.line.partition(" ")[0]
        if " " not in self.line or name == self.test or name not in self.tests:
            return
        # check says nothing more of a test that has failed.
        if self.test:
            self.end(FAILED)
        self.test, self.any, self.since = name, True, time.monotonic()
        say(f"== {name}")

    def _judge(self) -> None:
        if re.fullmatch(rf"{self.test} +\d+s", self.line):
            self.end(0)
        elif self.line.startswith(self.test) and "[not run]" in self.line:
            self.end(NOT_RUN)
        elif self.line.startswith("Ran:"):
            self.end(FAILED)

    def hear(self, text: str) -> None:
        """Take what check prints, which may end anywhere in a line."""
        for part in text.splitlines(keepends=True):
            self.line += part.removesuffix("\n")
            self._begin()
            if part.endswith("\n"):
                say(self.line)
                if self.test:
                    self._judge()
                self.line = ""

    def close(self) -> None:
        """check has ended: perhaps it died in a test, or before the first."""
        if self.line:
            self.hear("\n")
        if self.test:
            self.end(FAILED)


def broken(tests: list[str]) -> int:
    """Say that none of the tests can run; return the exit status."""
    for test in tests:
        say(f"== {test}\n\n== {test} status {BROKEN}")
    return BROKEN


def show_only(tests: list[str], copies: Path) -> None:
    """Let check see these tests alone: it looks at every file of all tests first, which takes minutes through 9p.

    Raises OSError or CalledProcessError.
    """
    folder = Path("tests/generic")
    (copies / folder.name).mkdir(parents=True)
    names = {Path(test).name for test in tests}
    for name in ["group.list", *(one for one in os.listdir(folder) if one.partition(".")[0] in names)]:
        shutil.copy(folder / name, copies / folder.name)
    subprocess.run(["mount", "--bind", str(copies), str(folder.parent)], check=True)


def follow(check: subprocess.Popen[bytes], listener: Listener, limit: float) -> int:
    """Pass on what check prints until it ends or a test passes its limit, in seconds; return the exit status."""
    assert check.stdout
    while True:
        left = max(listener.since + limit - time.monotonic(), 0) if listener.test else None
        if left == 0 or not select.select([check.stdout], [], [], left)[0]:
            say(listener.line)
            listener.end(PASSED_LIMIT)
            return PASSED_LIMIT
        text = os.read(check.stdout.fileno(), 65536)
        if not text:
            listener.close()
            return 0
        listener.hear(text.decode(errors="replace"))


def main(folder: str, filesystem: str, limit: str, *tests: str) -> int:
    """Run the tests."""
    os.environ["FSTYP"] = filesystem
    results = Path(os.environ["RESULT_BASE"])
    try:
        os.chdir(folder)
        subprocess.run([f"mkfs.{filesystem}", "-q", os.environ["TEST_DEV"]], check=True)
        show_only(list(tests), results.with_name(f"{results.name}.tests"))
        check = subprocess.Popen(["./check", *tests], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    except (OSError, subprocess.CalledProcessError) as error:
        say(str(error))
        return broken(list(tests))
    listener = Listener(list(tests), results)
    status = follow(check, listener, float(limit) * float(os.environ.get("SLOWDOWN", "1")))
    return status if listener.any else broken(list(tests))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
