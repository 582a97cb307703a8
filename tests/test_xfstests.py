# SPDX-License-Identifier: GPL-2.0
"""xfstests as a suite: which of its tests are cases, and the script of a case, with a fake check and fake disks."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from suites import running, suite, xfstests, xfstests_cases

# Says and writes what xfstests' own script does of a test, without an end of the line while one runs.
CHECK = """#!/bin/bash
echo "check $* on $FSTYP" >>"$DONE"
[ "$BAD" != start ] || { echo "no scratch device"; exit 1; }
for test; do
	printf "%-12s %6s" $test
	mkdir -p "$RESULT_BASE/generic"
	case $BAD in
	notrun) echo " [not run] no quota" ;;
	fail) echo "- output mismatch (see $test)"; printf "    it differs\\n== x\\nno end" >"$RESULT_BASE/$test.out.bad" ;;
	dirty) echo "_check_xfs_filesystem: filesystem on two is inconsistent (r)"; echo "(see $test.full for details)" ;;
	hangs) echo "_check_xfs_filesystem: filesystem on two is inconsistent (r)"; sleep 30 ;;
	slow) sleep 30 ;;
	die) exit 1 ;;
	later) [ $test != generic/002 ] || exit 1; echo " 2s" ;;
	*) echo " 2s" ;;
	esac
done
echo "Ran: $*"
"""
TOOL = """#!/bin/bash
echo "${0##*/} ${@: -1}" >>"$DONE"
[ "$BAD" != "${0##*/}" ]
"""


def run_cases(folder: Path, bad: str = "", limit: int = 20) -> tuple[dict[str, str], str, list[str]]:
    """Run the script for two tests; return what suites/running.py takes from it, what it prints, and what was started.
    """
    tools = folder / "bin"
    tools.mkdir()
    (folder / "tests/generic").mkdir(parents=True)
    for name in ("group.list", "001", "001.out", "002", "002.out", "002.cfg", "003", "003.out"):
        (folder / "tests/generic" / name).touch()
    for path, text in ((tools / "mkfs.xfs", TOOL), (tools / "mount", TOOL), (folder / "check", CHECK)):
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)
    done = subprocess.run(
        ["python3", str(xfstests.SCRIPT), str(folder), "xfs", str(limit), "generic/001", "generic/002"], text=True,
        check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
        env={**os.environ, "PATH": f"{tools}:{os.environ['PATH']}", "BAD": bad, "DONE": str(folder / "done"),
             "RESULT_BASE": str(folder / "results"), "TEST_DEV": "one"})
    # As suites/cases.sh passes it on.
    said = f"== generic/001\n{done.stdout}\n== generic/001 status {done.returncode}\n"
    found = {name.split(":")[0]: outcome for name, outcome in xfstests.results(said).items()}
    return found, done.stdout, (folder / "done").read_text(encoding="utf-8").splitlines()


def test_passes(tmp_path: Path) -> None:
    """Tests run in one go and begin with a new file system; xfstests' own script sees no others."""
    found, _, done = run_cases(tmp_path)
    assert done == ["mkfs.xfs one", "mount tests", "check generic/001 generic/002 on xfs"]
    assert found == {"generic/001": "pass", "generic/002": "pass"}
    assert sorted(path.name for path in (tmp_path / "results.tests/generic").iterdir()) == [
        "001", "001.out", "002", "002.cfg", "002.out", "group.list"]


@pytest.mark.parametrize(("bad", "outcome", "text"), [
    ("notrun", "skip", "no quota"), ("fail", "fail", "it differs"), ("dirty", "fail", "inconsistent"),
    ("start", "broken", "no scratch"), ("mkfs.xfs", "broken", ""), ("mount", "broken", "")])
def test_does_not_pass(tmp_path: Path, bad: str, outcome: str, text: str) -> None:
    """A test that does not run here is told apart from one that fails, and the output says why.

    A log without an end of its last line, and one that looks like the begin of a case, change nothing.
    """
    found, output, _ = run_cases(tmp_path, bad)
    assert found == {"generic/001": outcome, "generic/002": outcome}
    assert text in output


@pytest.mark.parametrize(("bad", "expected"), [
    ("slow", {"generic/001": "timeout"}), ("hangs", {"generic/001": "timeout"}), ("die", {"generic/001": "fail"}),
    ("later", {"generic/001": "pass", "generic/002": "fail"})])
def test_is_the_last(tmp_path: Path, bad: str, expected: dict[str, str]) -> None:
    """A test that passes its limit, or in which xfstests' own script dies, is the last: others need another guest."""
    assert run_cases(tmp_path, bad, 2)[0] == expected


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_cut_anywhere(tmp_path: Path, capsys: pytest.CaptureFixture[str], size: int) -> None:
    """What check prints comes in pieces, which end anywhere: in a name, in a number, or at a line's end."""
    text = ("FSTYP  -- xfs\n\ngeneric/001         10s\ngeneric/002        [not run] no quota\n"
            "generic/003       - output mismatch (see generic/003.out.bad)\n    a\ngeneric/0041  2s\n"
            "generic/004  12s\nRan: generic/001\n")
    names = ["generic/001", "generic/002", "generic/003", "generic/004"]
    listener = xfstests_cases.Listener(names, tmp_path)
    for at in range(0, len(text), size):
        listener.hear(text[at:at + size])
    listener.close()
    found = xfstests.results(capsys.readouterr().out)
    assert list(found.values()) == ["pass", "skip", "fail", "pass"]
    assert [name.split(":")[0] for name in found] == names


def test_words() -> None:
    """Joined cases are one command, which knows the limit of each; others are a command each."""
    assert running.words([suite.Case("g/1", "run", True), suite.Case("g/2", "run", True)], 30.0) == [
        "90", "g/1 run 30 g/1 g/2"]
    assert running.words([suite.Case("1", "run"), suite.Case("2", "walk 2")], 30.0) == ["30", "1 run", "2 walk 2"]


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
    assert found["rw-xfs"]["generic/001"].endswith(f"xfstests_cases.py {tmp_path} xfs")
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
