# SPDX-License-Identifier: GPL-2.0
"""Which outcomes of vanilla a set is compared with: the record, a guest's, or those of a second run. With fakes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import record
import sets
from guest import boot, build, paths

GOOD = {"a: x": "pass", "a: y": "pass", "a: status": "pass", "b: status": "fail"}


class Guests:
    """A set of two tests, whose outcomes in the next run on each kernel come from a list; it notes what ran where."""

    def __init__(self, folder: Path, **says: list[dict[str, str]]) -> None:
        self.says = says
        self.ran: list[tuple[str, list[str]]] = []
        script = folder / "script"
        script.write_text("one\n", encoding="utf-8")
        self.set = sets.Set("toy", ["a", "b"], script, lambda: None, self.run)

    def run(self, tests: list[str], kernel: str, _append: str) -> dict[str, str]:
        """Return the outcomes of these tests in the next run on a kernel."""
        self.ran.append((kernel, tests))
        said = self.says[kernel].pop(0)
        return {case: outcome for case, outcome in said.items() if case.split(":")[0] in tests}

    def record(self, cases: dict[str, str], unsteady: list[str] | None = None) -> None:
        """Write a record that is valid here."""
        known = {"key": sets.key_of(self.set, "quire"), "runs": 3, "unsteady": unsteady or [], "cases": cases}
        self.set.record.write_text(json.dumps(known), encoding="utf-8")


@pytest.fixture(name="host")
def fixture_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host with a base and tools that have versions, without a record and without a kernel."""
    (tmp_path / "Makefile").write_text("VERSION = 6\nPATCHLEVEL = 12\nSUBLEVEL = 1\n", encoding="utf-8")
    (tmp_path / "guest.config").write_text("CONFIG_GUEST=y\n", encoding="utf-8")
    for name in ("BUILD", "BASE", "CONFIG"):
        monkeypatch.setattr(paths, name, tmp_path)
    monkeypatch.setattr(sets, "RECORDS", tmp_path)
    monkeypatch.setattr(sets, "version_of", lambda program: f"{program} 1")
    monkeypatch.setattr(boot, "kvm_works", lambda kernel: False)
    return tmp_path


def test_record_stands_for_vanilla(host: Path) -> None:
    """With a valid record no guest of vanilla starts, and cases that were unsteady are not compared."""
    guests = Guests(host, quire=[{**GOOD, "a: y": "fail"}, GOOD])
    guests.record(GOOD, ["a: y"])
    assert "a: y" not in sets.compare(guests.set, "quire", 1)
    assert guests.ran == [("quire", ["a", "b"])] * 2


@pytest.mark.parametrize("change", [
    lambda host, patch: (host / "Makefile").write_text("VERSION = 6\nPATCHLEVEL = 12\nSUBLEVEL = 2\n"),
    lambda host, patch: (host / "guest.config").write_text("CONFIG_OTHER=y\n"),
    lambda host, patch: (host / "script").write_text("two\n"),
    lambda host, patch: (host / "toy.json").write_text('{"key": {'),
    lambda host, patch: (host / "toy.json").unlink(),
    lambda host, patch: patch.setattr(sets, "version_of", lambda program: f"{program} {2 if program == 'gcc' else 1}"),
    lambda host, patch: patch.setattr(sets, "version_of", lambda program: f"{program} {1 if program == 'gcc' else 2}"),
    lambda host, patch: patch.setattr(boot, "kvm_works", lambda kernel: True),
    lambda host, patch: patch.setitem(sets.SHAPE, "cpus", 4),
], ids=["base", "configuration", "script", "cut off", "none", "compiler", "emulator", "accelerator", "guest"])
def test_record_that_does_not_fit(host: Path, monkeypatch: pytest.MonkeyPatch,
                                  change: Callable[[Path, pytest.MonkeyPatch], Any]) -> None:
    """Without a record, or with one made under other conditions, vanilla is booted."""
    guests = Guests(host, vanilla=[GOOD], quire=[GOOD, GOOD])
    guests.record({**GOOD, "b: status": "pass"})
    change(host, monkeypatch)
    sets.compare(guests.set, "quire", 1)
    assert [kernel for kernel, _ in guests.ran] == ["vanilla", "quire", "quire"]


def test_tests_that_a_record_lacks(host: Path) -> None:
    """A record with fewer tests than the set has now is not valid."""
    guests = Guests(host)
    guests.record(GOOD)
    assert not sets.misfit(guests.set, "quire")
    guests.set.tests.append("c")
    assert sets.misfit(guests.set, "quire") == "tests: ['a', 'b', 'c'] here, ['a', 'b'] in the record"


@pytest.mark.parametrize("built, ran", [
    (False, ["quire", "quire", "quire"]),
    (True, ["quire", "vanilla", "quire", "quire"]),
])
def test_second_run(host: Path, built: bool, ran: list[str]) -> None:
    """A test that was worse by chance runs again on quire, and on vanilla, too, if vanilla is built."""
    guests = Guests(host, vanilla=[GOOD], quire=[{**GOOD, "a: x": "skip"}, GOOD, GOOD])
    guests.record(GOOD)
    if built:
        build.image_of("vanilla").parent.mkdir()
        build.image_of("vanilla").touch()
    sets.compare(guests.set, "quire", 1)
    assert [kernel for kernel, _ in guests.ran] == ran and guests.ran[1][1] == ["a"]


def test_what_stays_worse_fails(host: Path) -> None:
    """Without vanilla, the record decides the second run, and the failure says how to run vanilla itself."""
    worse = {**GOOD, "a: x": "fail"}
    guests = Guests(host, quire=[worse, worse])
    guests.record(GOOD)
    with pytest.raises(AssertionError, match=r"(?s)a: x: pass on vanilla, fail here.*make kernel VARIANT=vanilla"):
        sets.compare(guests.set, "quire", 1)


def test_recording(host: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The worst outcome of each case is kept; cases that differed or were sometimes missing are unsteady."""
    runs = [GOOD, {**GOOD, "a: x": "skip", "a: once": "pass"}, {**GOOD, "a: x": "fail"}]
    guests = Guests(host, vanilla=runs)
    assert record.record_all([guests.set], 3) == 0
    known = json.loads(guests.set.record.read_text(encoding="utf-8"))
    assert known["cases"] == {**GOOD, "a: x": "fail", "a: once": "missing"}
    assert list(known["cases"]) == sorted(known["cases"]) and known["unsteady"] == ["a: once", "a: x"]
    assert capsys.readouterr().out == "toy: 2 of 5 cases passed, 2 unsteady:\n  a: once\n  a: x\n"
    assert not sets.misfit(guests.set, "quire")


def test_recording_what_was_cut_off(host: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A run in which a test did not end makes no record, and the next set is still recorded."""
    cut, whole = Guests(host, vanilla=[GOOD, {"a: x": "pass", "a: status": "pass"}]), Guests(host, vanilla=[GOOD])
    whole.set = sets.Set("whole", ["a", "b"], cut.set.script, lambda: None, whole.run)
    cut.says["vanilla"].reverse()
    assert record.record_all([cut.set, whole.set], 1) == 1
    assert not cut.set.record.exists() and whole.set.record.exists()
    assert capsys.readouterr().err.startswith("error: toy: b did not come to an end")


@pytest.mark.parametrize("fits, objects_fit, needed", [
    (True, True, ""), (False, True, "vanilla"), (True, False, "--objects vanilla"), (False, False, "vanilla")])
def test_what_a_check_needs(host: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
                            fits: bool, objects_fit: bool, needed: str) -> None:
    """vanilla, or its objects, are built if a record of the check is not valid; records of the soak do not matter."""
    checked, soaked = Guests(host), Guests(host)
    checked.set = sets.Set("checked", ["a"], checked.set.script, lambda: None, checked.run, in_check=True)
    monkeypatch.setattr(record, "all_sets", lambda: {"checked": checked.set, "toy": soaked.set})
    monkeypatch.setattr(record.objects, "misfit", lambda: "" if objects_fit else "another compiler")
    if fits:
        checked.record(GOOD)
    assert record.main(["--needed"]) == 0
    said = capsys.readouterr()
    assert said.out == f"{needed}\n"
    assert ("vanilla is needed for the set checked: there is no record\n" in said.err) is not fits
    assert ("vanilla is needed for its objects: another compiler\n" in said.err) is not objects_fit


def test_records_are_of_sets() -> None:
    """Each record in the repository belongs to a set, has the status of each test, and leaves out few cases."""
    known = record.all_sets()
    for path in set(sets.RECORDS.glob("*")) - {record.objects.RECORD}:
        one = json.loads(path.read_text(encoding="utf-8"))
        assert path.name == known[path.stem].record.name
        assert set(one) == {"key", "runs", "unsteady", "cases"} and set(one["unsteady"]) <= set(one["cases"])
        assert {f"{test}: status" for test in one["key"]["tests"]} <= set(one["cases"])
        assert len(one["unsteady"]) <= len(one["cases"]) / 10, path.name
