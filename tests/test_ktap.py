# SPDX-License-Identifier: GPL-2.0
"""The tests' own tools: reading KTAP, several programs in one guest, and the closing count."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import group
import ktap
import run
from guest import paths


def test_outcomes_are_told_apart() -> None:
    """Passed, failed and skipped cases are told apart; the lines of sub-tests do not count."""
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


def run_suite(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    """Run tests/run.py over a file of tests, with `folder` as build/."""
    (folder / "test_sample.py").write_text(text, encoding="utf-8")
    program = f"""
import sys; sys.path.insert(0, {str(paths.REPO / 'tests')!r})
import run; from pathlib import Path
run.paths.BUILD = Path({str(folder)!r}); run.COUNTS = run.paths.BUILD / 'counts'
code = run.run('sample', ['-q', '-p', 'no:cacheprovider', '--rootdir', {str(folder)!r}, {str(folder)!r}])
run.total(['sample', 'sample'])
sys.exit(code)"""
    return subprocess.run([sys.executable, "-c", program], text=True, check=False, cwd=folder,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def counts(output: str) -> list[str]:
    """Return the lines of counts: the run's, and the sum."""
    return re.findall(r"^\d+ passed, \d+ failed, \d+ skipped$", output, re.M)


def test_counts_close_the_output(tmp_path: Path) -> None:
    """The last line has the counts, including errors in fixtures; sums add up; the exit status is kept."""
    done = run_suite(tmp_path, "import pytest\n@pytest.fixture\ndef bad(): 1 / 0\n"
                     "def test_a(): pass\ndef test_b(): assert 0\n"
                     "def test_c(): pytest.skip('x')\ndef test_d(bad): pass\n")
    assert counts(done.stdout) == ["1 passed, 2 failed, 1 skipped", "2 passed, 4 failed, 2 skipped"]
    assert done.stdout.splitlines()[-1] == counts(done.stdout)[-1] and done.returncode == 1


def test_suite_that_cannot_be_read_fails(tmp_path: Path) -> None:
    """A file that does not import is one failure, not silence."""
    done = run_suite(tmp_path, "import nonesuch\n")
    assert counts(done.stdout)[0] == "0 passed, 1 failed, 0 skipped"
    assert done.returncode


def test_failures_outlive_a_run_that_is_ended(tmp_path: Path) -> None:
    """A failure is kept before the last test has ended, and nothing is kept before the first failure."""
    text = "import os\ndef test_a(): pass\ndef test_b(): {}\ndef test_c(): os._exit(3)\n"
    assert run_suite(tmp_path, text.format("pass")).returncode == 3
    assert not (tmp_path / "counts/sample").exists()
    assert run_suite(tmp_path, text.format("1 / 0")).returncode == 3
    assert json.loads((tmp_path / "counts/sample").read_text(encoding="utf-8"))["failed"] == 1


def run_group(commands: list[list[str]], limit: float) -> list[group.Outcome]:
    """Run a group's script on the host."""
    done = subprocess.run(["bash", "-c", group.script(commands, limit)], text=True, check=False, timeout=120,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return group.outcomes(done.stdout, [" ".join(command) for command in commands])


def say(text: str) -> list[str]:
    """Return a command that prints and does what `text` says."""
    return ["bash", "-c", text]


def test_each_program_of_a_group_is_judged() -> None:
    """A failure, a crash, a hang and a skipped program are told apart, and do not hide the results of the others."""
    found = run_group([say("echo 1..1; echo not ok 1 a"), say("printf '1..2\\nok 1 a\\n'; kill -SEGV $$"),
                       say("echo 1..1; echo ok 1 a; exec sleep 90"), say("echo 1..1; echo 'ok 1 a # SKIP no'; exit 4"),
                       say("echo 1..1; echo ok 1 a; exit 3"), say("echo 1..1; echo ok 1 a")], 10)
    assert [one.complaint for one in found] == [
        "failed: a", "1 results of 2 planned; status 139", "was ended at its limit of time", "", "status 3", ""]
    assert [one.skipped for one in found] == [False, False, False, True, False, False]
    assert [one.report.passed for one in found] == [[], ["a"], ["a"], [], ["a"], ["a"]]


def test_what_a_killed_program_leaves_behind_ends() -> None:
    """Nothing that it leaves behind can write into the output of the next program."""
    found = run_group([say("(set -m; while :; do echo ok 1 stray; sleep 0.1; done & wait)"),
                       say("sleep 1; echo 1..1; echo ok 1 a")], 8)
    assert found[1].report.passed == ["a"] and not found[1].complaint


def test_guest_that_ends_early_is_seen() -> None:
    """The program that was running did not end, the next did not run, and the outcome of the one before stays."""
    text = "\n@@ 0 begins\n1..1\nok 1 a\n\n@@ 0 ended with 0 after 3 s\n\n@@ 1 begins\n1..2\nok 1 a\n"
    assert [one.complaint for one in group.outcomes(text, ["x", "y", "z"])] == [
        "", "1 results of 2 planned; did not end", "did not run"]


def test_what_the_walks_say_is_the_groups() -> None:
    """A complaint of the checkers at the end of a script is found; their silence is no complaint."""
    assert "\nx complains" in group.walks("@@ 0 ended with 0 after 1 s\n\n@@ the walks complain\nx complains\n")
    assert group.walks("@@ 0 ended with 0 after 1 s\n") == ""


def test_a_command_keeps_its_status_beside_the_walks() -> None:
    """The checkers walk after a command whatever its status is, and the script keeps that status."""
    done = subprocess.run(["bash", "-c", group.with_walks("echo said; exit 3")], text=True, check=False, timeout=60,
                          capture_output=True)
    assert (done.returncode, done.stdout, group.walks(done.stdout)) == (3, "said\n", "")


def test_guests_that_were_started_again_are_told(tmp_path: Path) -> None:
    """Restarts in this run's tests are listed, each with its test, before the counts; others are not."""
    noted = [{"at": 1.0, "test": "test_old", "reason": "x"}, {"at": 9e9, "test": "", "reason": "x"}]
    (tmp_path / "counts").mkdir()
    (tmp_path / "counts/restarts").write_text("".join(f"{json.dumps(one)}\n" for one in noted), encoding="utf-8")
    done = run_suite(tmp_path, f"""
import sys; sys.path.insert(0, {str(paths.REPO)!r})
from pathlib import Path
from guest import boot, paths
def test_a():
    paths.BUILD = Path({str(tmp_path)!r})
    boot.start_again("no init", 1)
""")
    told, test, last = done.stdout.split("guests started again: ")[1].splitlines()[:3]
    assert (told, last) == ("1", "1 passed, 0 failed, 0 skipped"), done.stdout
    assert test.strip().endswith("test_sample.py::test_a: no init")


def test_what_guests_took_is_told(tmp_path: Path) -> None:
    """A run adds up, for each kernel, how long the guests of its tests took to start, for commands, and to end."""
    (tmp_path / "counts").mkdir()
    (tmp_path / "counts/guests").write_text(
        json.dumps({"at": 1.0, "kernel": "quire", "to_init": 900, "seconds": 0, "to_end": 0}) + "\n", encoding="utf-8")
    done = run_suite(tmp_path, f"""
import sys; sys.path.insert(0, {str(paths.REPO)!r})
from pathlib import Path
from guest import boot, paths
def test_a():
    paths.BUILD = Path({str(tmp_path)!r})
    for kernel, seconds in (("quire", 4000), ("debug", 20), ("quire", 2)):
        boot._note_times(kernel, boot.Result(0, "", "", seconds=seconds, to_init=1.5, to_end=5))
""")
    told = [" ".join(line.split()) for line in done.stdout.split("guests, all seconds added up:\n")[1].splitlines()[:2]]
    assert told == ["debug 1: 2 s to start, 20 s of commands, 5 s to end",
                    "quire 2: 3 s to start, 4,002 s of commands, 10 s to end"], done.stdout


def test_what_it_took_is_told(tmp_path: Path) -> None:
    """A run reports its own time and no earlier builds; the sum reports all of them, with the share from ccache."""
    noted = [{"at": 1.0, "phase": "build of quire", "seconds": 1405.6, "objects": 40, "hits": 9, "misses": 31},
             {"at": 2.0, "phase": "objects of off", "seconds": 3.0, "objects": 0, "hits": 0, "misses": 0}]
    (tmp_path / "counts").mkdir()
    (tmp_path / "counts/phases").write_text("".join(f"{json.dumps(one)}\n" for one in noted), encoding="utf-8")
    first, second = run_suite(tmp_path, "def test_a(): pass\n").stdout.split("what it took:\n")[1:]
    assert [line.split()[:-2] for line in first.splitlines()[:2]] == [["tests", "of", "sample"], ["in", "all"]]
    lines = [line.split() for line in second.splitlines()[:4]]
    assert " ".join(lines[0]) == "build of quire 1,406 s 40 objects, 22 % from ccache"
    assert " ".join(lines[1]) == "objects of off 3 s 0 objects"
    assert lines[2][:3] == ["tests", "of", "sample"] and lines[3][:2] == ["in", "all"]
    assert int(lines[3][2].replace(",", "")) >= 1409 and "guests started again: 0" in second


@pytest.mark.parametrize("since, told", [([], False), (["--since", "1"], True)])
def test_builds_of_the_same_verb_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                          capsys: pytest.CaptureFixture[str], since: list[str], told: bool) -> None:
    """With --since, a run reports what was built before it."""
    monkeypatch.setattr(paths, "BUILD", tmp_path)
    monkeypatch.setattr(run, "COUNTS", tmp_path / "counts")
    monkeypatch.setattr(pytest, "main", lambda *_, **_options: 0)
    monkeypatch.setattr(sys, "argv", ["run.py", *since, "--name", "sample", "-q"])
    paths.note("phases", phase="build of quire", seconds=1, objects=1)
    assert run.main() == 0
    said = capsys.readouterr().out
    assert ("build of quire" in said) is told and "tests of sample" in said
