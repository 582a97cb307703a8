# SPDX-License-Identifier: GPL-2.0
"""The tests' own tools, on texts: reading KTAP, and the closing count."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import ktap
from guest import paths


def test_outcomes_are_told_apart() -> None:
    """Passed, failed and skipped cases, and the sub-tests' lines that do not count."""
    report = ktap.parse("TAP version 13\n1..4\n# noise\nok 1 one\n    ok 1 inner\nnot ok 2 two\n"
                        "ok 3 three # SKIP no huge pages\nnot ok 4 four # XFAIL known\n")
    assert (report.passed, report.failed) == (["one", "four # XFAIL known"], ["two"])
    assert report.skipped == ["three # SKIP no huge pages"]
    assert not report.problems


def test_incomplete_reports_are_problems() -> None:
    """A program that died early, never planned or said nothing has not passed."""
    assert ktap.parse("TAP version 13\n1..3\nok 1 one\n").problems == ["1 results of 3 planned"]
    assert ktap.parse("ok 1 one\n").problems == ["no plan (1..N)"]
    assert "no results" in ktap.parse("").problems


def run_suite(folder: Path, text: str) -> "subprocess.CompletedProcess[str]":
    """Run tests/run.py over a file of tests."""
    (folder / "test_sample.py").write_text(text, encoding="utf-8")
    program = f"""
import sys; sys.path.insert(0, {str(paths.REPO / 'tests')!r})
import run; from pathlib import Path
run.COUNTS = Path({str(folder / 'counts')!r})
code = run.run('sample', ['-q', '-p', 'no:cacheprovider', '--rootdir', {str(folder)!r}, {str(folder)!r}])
run.total(['sample', 'sample'])
sys.exit(code)"""
    return subprocess.run([sys.executable, "-c", program], text=True, check=False, cwd=folder,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def test_counts_close_the_output(tmp_path: Path) -> None:
    """The last line counts, errors in fixtures included; sums add up; the exit status is kept."""
    done = run_suite(tmp_path, "import pytest\n@pytest.fixture\ndef bad(): 1 / 0\n"
                     "def test_a(): pass\ndef test_b(): assert 0\ndef test_c(): pytest.skip('x')\ndef test_d(bad): pass\n")
    assert done.stdout.splitlines()[-2:] == ["1 passed, 2 failed, 1 skipped", "2 passed, 4 failed, 2 skipped"]
    assert done.returncode == 1


def test_suite_that_cannot_be_read_fails(tmp_path: Path) -> None:
    """A file that does not import is one failure, not silence."""
    done = run_suite(tmp_path, "import nonesuch\n")
    assert done.stdout.splitlines()[-2] == "0 passed, 1 failed, 0 skipped"
    assert done.returncode
