# SPDX-License-Identifier: GPL-2.0
"""The kernel's own selftests of huge pages, of exec and of uprobes, compared as sets with the pristine kernel's.

The tests of khugepaged wait for its scans by the clock, and an emulated guest is sometimes too slow. That is why only
the soak runs these sets, and why a difference counts only if it appears a second time.
"""

from __future__ import annotations

import re
from functools import partial

import pytest

import sets
from guest import paths

MM_TESTS = ["khugepaged"]
EXEC_TESTS = ["execveat", "non-regular", "recursion-depth", "null-argv",
              *(f"load_address.{kind}{align}" for kind in ("", "static.")
                for align in ("0x1000", "0x200000", "0x1000000"))]
FTRACE_TESTS = ["dynevent/add_remove_uprobe.tc", "kprobe/uprobe_syntax_errors.tc"]
TESTS = MM_TESTS + EXEC_TESTS + FTRACE_TESTS
PROGRAMS = paths.BUILD / "text_selftests"
SCRIPT = paths.REPO / "tests/text_selftests.sh"


def as_ktap(output: str) -> str:
    """Return the output with khugepaged's results ("Run test: NAME", red for a failure) converted to KTAP."""
    lines: list[str] = []
    name, outcome = "", "ok"
    for line in [*output.splitlines(), "=="]:
        run = re.match(r"Run test: (.*)", line)
        if name and (run or line.startswith("==")):
            lines.append(f"{'not ok' if outcome == 'fail' else 'ok'} 1 {name}{' # SKIP' if outcome == 'skip' else ''}")
            name = ""
        if run:
            name, outcome = run[1], "ok"
        elif "\x1b[31m" in line:
            outcome = "fail"
        elif "\x1b[33m" in line and outcome == "ok":
            outcome = "skip"
        lines.append(line)
    return "\n".join(lines[:-1])


def run_set(tests: list[str], kernel: str, append: str) -> dict[str, str]:
    """Run tests in a fresh guest and return their results."""
    return sets.results(as_ktap(sets.run_guest([str(SCRIPT), str(PROGRAMS), *tests], kernel, append)))


SET = sets.Set("text", TESTS, SCRIPT, partial(sets.build_programs, PROGRAMS, {"mm": MM_TESTS, "exec": EXEC_TESTS}),
               run_set)


@pytest.mark.soak
@pytest.mark.debug
def test_set(kernel: str) -> None:
    """Nothing that passes on vanilla fails, is skipped or is missing on quire, with the features off or on."""
    vanilla = sets.compare(SET, kernel, 40)
    assert all(vanilla.get(f"{test}: status") == "pass" for test in FTRACE_TESTS), vanilla


def test_words_of_khugepaged() -> None:
    """A failure, a skip and a pass are told apart, and belong to the right case."""
    output = ("== khugepaged\nRun test: one (a:b)\nx... \x1b[32mOK\x1b[0m\ny... \x1b[31mFail\x1b[0m\n"
              "z... \x1b[32mOK\x1b[0m\n\nRun test: two (a:b)\nx... \x1b[32mOK\x1b[0m\nRun test: three (a:b)\n"
              "x... \x1b[33mSkip\x1b[0m\n== khugepaged status 1\n")
    assert sets.results(as_ktap(output)) == {
        "khugepaged: one (a:b)": "fail", "khugepaged: two (a:b)": "pass", "khugepaged: three (a:b)": "skip",
        "khugepaged: status": "fail"}
