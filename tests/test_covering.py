# SPDX-License-Identifier: GPL-2.0
"""suites/coverage: how the counts of guests are added up and told; and docs/coverage.md."""

from __future__ import annotations

import os
import subprocess
import types
from pathlib import Path

import pytest

from guest import boot
from suites import covering, publishing, storage

SOURCE = """\
static int never(int x)
{
	return x + 1;
}

int main(int argc, char **argv)
{
	(void)argv;
	if (argc > 1)
		return argc == 3 ? never(argc) : 0;
	return 0;
}
"""


@pytest.fixture(name="objects")
def fixture_objects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of objects with a program, as kbuild compiles, and the folders of what two guests have counted of it."""
    objects, folder = tmp_path / "tree/o-gcov", "mm/quire/fork"
    for path in (objects / folder, tmp_path / "tree" / folder, tmp_path / "home/guests"):
        path.mkdir(parents=True)
    (tmp_path / "tree" / folder / "a.c").write_text(SOURCE, encoding="utf-8")
    (tmp_path / "tree" / folder / "a_test.c").write_text("int tested;\nint test(void)\n{\n\treturn tested;\n}\n",
                                                         encoding="utf-8")
    for name in ("a", "a_test"):
        subprocess.run(["gcc", "--coverage", "-c", "-o", f"{folder}/{name}.o", f"../{folder}/{name}.c"], cwd=objects,
                       check=True)
    subprocess.run(["gcc", "--coverage", "-o", "a", f"{folder}/a.o", f"{folder}/a_test.o"], cwd=objects, check=True)
    for guest, arguments in (("guest.one", []), ("guest.two", ["x"])):
        subprocess.run([str(objects / "a"), *arguments], check=True,
                       env={**os.environ, "GCOV_PREFIX": str(tmp_path / "home/guests" / guest)})
    monkeypatch.setattr(covering, "HOME", tmp_path / "home")
    monkeypatch.setattr(covering, "DATA", tmp_path / "home/guests")
    monkeypatch.setattr(covering.build, "objects_of", lambda variant: objects)
    monkeypatch.setattr(covering.boot, "image_of", lambda variant: objects)
    monkeypatch.setattr(storage, "COVERAGE", tmp_path / "results/gcov.json")
    return objects


def test_counts_of_guests_are_added_up(objects: Path) -> None:
    """A line counts in all guests; a unit test's lines do not; a function that no guest entered is named."""
    counts = covering.counts_of(covering.merged(sorted(covering.DATA.iterdir())), objects)
    assert list(counts) == ["mm/quire/fork/a.c"]
    lines = counts["mm/quire/fork/a.c"]
    assert {line: count for line, (count, _) in lines.items()} == {1: 0, 3: 0, 6: 2, 9: 2, 10: 1, 11: 1}
    assert covering.summary(counts) == {"mm/quire/fork/a.c": {"lines": 6, "reached": 4, "missed": {"never": [1, 3]},
                                                              "never": ["never"]}}


def test_one_guest_is_enough(objects: Path) -> None:
    """The counts of a single guest are taken as they are."""
    counts = covering.counts_of(covering.merged([covering.DATA / "guest.two"]), objects)
    assert counts["mm/quire/fork/a.c"][11] == (0, "main")


@pytest.mark.usefixtures("objects")
@pytest.mark.parametrize("arguments, status, kept, says", [
    ([], 0, True, ""),
    ([], 1, False, "a test failed"),
    (["--again"], 0, False, "only a part ran"),
    (["--only", "fork"], 0, False, "only a part ran"),
])
def test_what_is_kept(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str],
                      status: int, kept: bool, says: str) -> None:
    """The sum is kept if all tests ran and passed; otherwise it is only told, and why."""
    monkeypatch.setattr(covering, "run_tests", lambda jobs, only: status)
    assert covering.main(arguments) == status
    said = capsys.readouterr()
    assert said.out == "4 of 6 lines reached, in 2 guests\n" and says in said.err
    assert storage.COVERAGE.exists() == kept


def test_a_kernel_of_another_build(objects: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Counts without the compiler's notes about that object are refused."""
    (objects / "mm/quire/fork/a.gcno").unlink()
    assert covering.main(["--again"]) == 1
    assert "error: mm/quire/fork/a.gcda: there is no a.gcno beside the object: make kernel" in capsys.readouterr().err


def test_nothing_was_counted(objects: Path, monkeypatch: pytest.MonkeyPatch,
                             capsys: pytest.CaptureFixture[str]) -> None:
    """Without a guest's counts, and without a tool, one line says what to do."""
    monkeypatch.setattr(covering, "DATA", objects / "nothing")
    assert covering.main(["--again"]) == 1
    assert "run it without --again" in capsys.readouterr().err
    monkeypatch.setattr(covering, "shutil", types.SimpleNamespace(which=lambda tool: None))
    assert covering.main(["--again"]) == 1
    assert "this host has no gcov, gcov-tool: install gcc" in capsys.readouterr().err


def test_no_kernel(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Without the kernel, one line says how to build it."""
    monkeypatch.setattr(boot.build, "image_of", lambda variant: tmp_path / "none")
    assert covering.main([]) == 1
    assert capsys.readouterr().err == "error: no kernel build/gcov/bzImage: make kernel VARIANT=gcov\n"


@pytest.mark.parametrize("numbers, text", [([], ""), ([3], "3"), ([3, 4], "3-4"),
                                           ([3, 4, 5, 8, 10, 11], "3-5, 8, 10-11")])
def test_ranges(numbers: list[int], text: str) -> None:
    """Lines that follow one another are a range."""
    assert publishing.ranges(numbers) == text


def test_paper() -> None:
    """The paper has a row for each folder and their sum, and names what is not reached."""
    file = {"lines": 8, "reached": 6, "missed": {"never": [1, 3], "": [4], "some": [7, 8]}, "never": ["", "never"]}
    whole = {"lines": 2, "reached": 2, "missed": {}, "never": []}
    paper = publishing.reached({"guests": 3, "tests": ["a", "b"], "date": "2026-01-01",
                                "quire": {"commit": "abc", "changed": "no"},
                                "files": {"mm/quire/a/a.c": file, "mm/quire/b/b.c": whole}})
    assert "\n| `mm/quire/a` | 8 | 6 | 75.0 % |\n| `mm/quire/b` | 2 | 2 | 100.0 % |\n| all | 10 | 8 | 80.0 % |" in paper
    assert "\n3 guests of `test_a.py`, `test_b.py`; 2026-01-01, commit abc\n" in paper
    assert paper.endswith("\n\n* `mm/quire/a/a.c`: `never()` never runs; inlined 4; `some()` 7-8\n")


def test_paper_is_written_from_the_result() -> None:
    """docs/coverage.md is what suites/publish makes of the result."""
    result = covering.paths.read_stamp(storage.COVERAGE)
    assert result and publishing.COVERAGE_PAPER.read_text(encoding="utf-8") == publishing.reached(result)
