# SPDX-License-Identifier: GPL-2.0
"""xfstests as a suite: which of its tests are cases, and the script of a case, with a fake check and fake disks."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from suites import running, suite, xfstests

# Writes what xfstests' own script leaves of a test.
CHECK = """#!/bin/bash
echo "check $1 on $FSTYP" >>"$DONE"
mkdir -p "$RESULT_BASE/generic"
[ "$BAD" != notrun ] || echo "no quota" | tee "$RESULT_BASE/$1.notrun"
[ "$BAD" != fail ] || { echo "it differs" >"$RESULT_BASE/$1.out.bad"; exit 1; }
"""
TOOL = """#!/bin/bash
echo "${0##*/} ${@: -1}" >>"$DONE"
[ "$BAD" != "${0##*/}" ]
"""


def run_case(folder: Path, bad: str = "") -> tuple[int, str, list[str]]:
    """Run the script of a case; return its status, what it prints, and what was started."""
    tools = folder / "bin"
    tools.mkdir()
    for name in ("mountpoint", "umount", "wipefs", "mkfs.xfs"):
        (tools / name).write_text(TOOL, encoding="utf-8")
    (folder / "check").write_text(CHECK, encoding="utf-8")
    for path in (*tools.iterdir(), folder / "check"):
        path.chmod(0o755)
    done = subprocess.run(
        ["bash", str(xfstests.SCRIPT), str(folder), "xfs", "generic/001"], text=True, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
        env={**os.environ, "PATH": f"{tools}:{os.environ['PATH']}", "BAD": bad, "DONE": str(folder / "done"),
             "RESULT_BASE": str(folder / "results"), "TEST_DEV": "one", "TEST_DIR": "here", "SCRATCH_DEV": "two",
             "SCRATCH_MNT": "there"})
    return done.returncode, done.stdout, (folder / "done").read_text(encoding="utf-8").splitlines()


def test_passes(tmp_path: Path) -> None:
    """A test begins with a new file system, and with none on the other disk."""
    status, _, done = run_case(tmp_path)
    assert status == 0
    assert done == ["mountpoint here", "umount here", "mountpoint there", "umount there", "wipefs two", "mkfs.xfs one",
                    "check generic/001 on xfs"]


@pytest.mark.parametrize(("bad", "outcome", "text"), [
    ("notrun", "skip", "no quota"), ("fail", "fail", "it differs"), ("mkfs.xfs", "broken", "")])
def test_does_not_pass(tmp_path: Path, bad: str, outcome: str, text: str) -> None:
    """A test that does not run here is told apart from one that fails, and the output says why."""
    status, output, _ = run_case(tmp_path, bad)
    assert xfstests.outcome_of(status) == outcome and text in output


def test_cases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The quick tests that map or write files are cases, each in one part for each file system."""
    monkeypatch.setattr(xfstests, "SOURCE", tmp_path)
    monkeypatch.setattr(xfstests.paths, "REPO", tmp_path)
    with pytest.raises(suite.SuiteError, match="name a git clone of it again"):
        xfstests.cases("rw-xfs")
    (tmp_path / "tests/generic").mkdir(parents=True)
    for name, text in (("001", "_begin_fstest auto quick rw"), ("002", "_begin_fstest auto rw"), ("003", "mmap quick"),
                       ("004", "_begin_fstest quick dir"), ("001.out", "_begin_fstest quick rw"),
                       ("005", "#! /bin/bash\n_begin_fstest mmap rw quick\n")):
        (tmp_path / "tests/generic" / name).write_text(text, encoding="utf-8")
    found = {part: {case.name: case.command for case in xfstests.cases(part)} for part in xfstests.PARTS}
    assert found["rw-xfs"]["generic/001"].endswith(" xfs generic/001")
    assert {part: list(names) for part, names in found.items()} == {
        "mmap-ext4": ["generic/005"], "mmap-xfs": ["generic/005"], "rw-ext4": ["generic/001"],
        "rw-xfs": ["generic/001"]}


def test_without_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Without its source, one line says what to do."""
    for name in ("HOME", "STAMP"):
        monkeypatch.setattr(xfstests, name, tmp_path / name)
    monkeypatch.setattr(running.boot, "image_of", lambda variant: tmp_path)
    assert running.main(["xfstests"]) == 1
    assert "name a git clone of it (suites/run --source xfstests=PATH)" in capsys.readouterr().err
