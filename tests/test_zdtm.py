# SPDX-License-Identifier: GPL-2.0
"""CRIU's zdtm as a suite: its programs and their commands, and the script of a case, with a fake CRIU and program."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from suites import running, suite, zdtm

# Its process ends by itself. CRIU's other half, the thawed process, is this same one, as the fake freezes nothing.
PROGRAM = """#!/bin/bash
echo started; [ "$BAD" != start ] || { echo no such device; exit 1; }
pid=${1#--pidfile=} out=${2#--outfile=}
(trap 'echo "$SAYS" >"$out"; exit' TERM; for i in {1..200}; do sleep 0.05; done) &
echo $! >"$pid"
"""
CRIU = """#!/bin/bash
echo "$@" >>"$DONE"
[ "$1" != lazy-pages ] || { touch last/lazy-pages.socket; exec sleep 2; }
[ "$BAD" = "$1" ] || exit 0
while [ "$2" != --images-dir ]; do set -- "$1" "${@:3}"; done
echo "it cannot $1" >"$3/log"
exit 1
"""


@pytest.fixture(name="folder")
def fixture_folder(tmp_path: Path) -> Path:
    """A folder with a program and a CRIU in bin."""
    (tmp_path / "bin").mkdir()
    for path, text in ((tmp_path / "program", PROGRAM), (tmp_path / "bin/criu", CRIU)):
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)
    return tmp_path


def run_case(folder: Path, way: str, bad: str = "", says: str = "PASS") -> tuple[int, str, list[str]]:
    """Run the script of a case; return its status, what it prints, and the commands that CRIU had."""
    done = subprocess.run(
        ["bash", str(zdtm.SCRIPT), way, str(folder / "program")], text=True, check=False, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
        env={**os.environ, "TMPDIR": str(folder), "PATH": f"{folder}/bin:{os.environ['PATH']}", "BAD": bad,
             "SAYS": says, "DONE": str(folder / "done")})
    commands = (folder / "done").read_text(encoding="utf-8").splitlines() if (folder / "done").exists() else []
    return done.returncode, done.stdout, [line.split()[0] for line in commands]


@pytest.mark.parametrize(("way", "commands"), [("once", ["dump", "restore"]),
                                               ("iterative", ["pre-dump", "dump", "restore"])])
def test_program_that_is_as_it_was(folder: Path, way: str, commands: list[str]) -> None:
    """It passes if the program says so after it was frozen and thawed."""
    assert run_case(folder, way) == (0, "PASS\n", commands)


def test_lazy_memory(folder: Path) -> None:
    """The daemon that has the memory runs before the program is thawed."""
    status, _, commands = run_case(folder, "lazy")
    assert status == 0 and sorted(commands) == ["dump", "lazy-pages", "restore"] and commands[0] == "dump"
    assert "--lazy-pages" in (folder / "done").read_text(encoding="utf-8").splitlines()[-1]


@pytest.mark.parametrize(("bad", "says", "status", "text"), [
    ("", "FAIL: it differs", 1, "FAIL: it differs"), ("start", "", 1, "no such device"),
    ("dump", "", 2, "it cannot dump"), ("restore", "", 2, "it cannot restore")])
def test_program_that_is_not(folder: Path, bad: str, says: str, status: int, text: str) -> None:
    """A fault that the program found is told apart from a CRIU that failed, and the output says why."""
    found, output, _ = run_case(folder, "once", bad, says)
    assert found == status and text in output and zdtm.outcome_of(found) == {1: "fail", 2: "broken"}[status]


def test_cases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each program is a case of its part, with the file, arguments and namespace that it asks for."""
    monkeypatch.setattr(zdtm, "SOURCE", tmp_path)
    for name, text in (("static", "TST_FILE = \\\n\tmaps02 \\\n\twrite_read00\nOTHERS = maps00\n"), ("transition", "")):
        (tmp_path / "test/zdtm" / name).mkdir(parents=True)
        (tmp_path / "test/zdtm" / name / "Makefile").write_text(text, encoding="utf-8")
    for name in zdtm.MEMORY.split():
        (tmp_path / "test/zdtm/static" / name).touch()
    found = {case.name: case.command for case in zdtm.cases("iterative")}
    assert list(found) == zdtm.MEMORY.split() and all(" iterative " in command for command in found.values())
    assert found["maps02"].endswith("/maps02 --filename=maps02.test") and found["maps00"].endswith("/maps00")
    assert found["shm"].startswith("APART='unshare --ipc' bash ")
    assert found["shm-unaligned"].endswith(" --shmem_size=5000")


def test_without_criu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Without CRIU, or without its source, one line says what to do."""
    for name in ("HOME", "STAMP"):
        monkeypatch.setattr(zdtm, name, tmp_path / name)
    monkeypatch.setattr(running.boot, "image_of", lambda variant: tmp_path)
    assert running.main(["zdtm"]) == 1
    assert "name a git clone of CRIU (suites/run --source zdtm=PATH)" in capsys.readouterr().err
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(suite.SuiteError, match="this host has no criu: make packages"):
        zdtm.build(tmp_path)
