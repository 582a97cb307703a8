# SPDX-License-Identifier: GPL-2.0
"""Benchmarks on installed kernels: which kernels they run on, what the machine gets, and docs/packages.md."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench import core, packaged, publishing, runner, storage
from guest import debhelper, machine, splat

RELEASES = ["6.12.117+deb12-cloud-amd64", "6.12.117-quire"]


@pytest.fixture(name="boots")
def fixture_boots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """A host with a package, whose machines print a row; the list has what each of their boots was given."""
    boots: list[dict[str, Any]] = []

    class Machine:
        """A machine that runs nothing."""

        def __init__(self, folder: Path, base: Path | None = None) -> None:
            self.disk = base or folder / "disk.img"
            self.disk.touch()

        def releases(self) -> list[str]:
            """Return the kernels of the disk."""
            return RELEASES

        def boot(self, command: str, files: Path, timeout: float = 0,
                 direct: machine.Direct | None = None) -> machine.Done:
            """Note what a boot is given."""
            given = {path.relative_to(files).as_posix(): path.read_text(encoding="utf-8")
                     for path in files.rglob("*") if path.is_file()}
            boots.append({"command": command, "files": given, "direct": direct})
            return machine.Done(0, "@op=x | ns=3\n", "", [], 1.0)

    for name, value in (("HOME", tmp_path), ("STAMP", tmp_path / "base.json"), ("make_base", lambda: None),
                        ("Machine", Machine)):
        monkeypatch.setattr(machine, name, value)
    for name in ("DISK", "STAMP"):
        monkeypatch.setattr(packaged, name, tmp_path / name)
    monkeypatch.setattr(debhelper, "OUTPUT", tmp_path)
    monkeypatch.setattr(runner, "OUT", tmp_path)
    (tmp_path / "bin").mkdir()
    for name in ("micro", "tiny"):
        (tmp_path / "bin" / name).write_text(name, encoding="utf-8")
    (tmp_path / "linux-image-6.12.117-quire_6.12.117-1_amd64.deb").write_text("ours", encoding="utf-8")
    note = {"config": "config.amd64_none_cloud-amd64.xz"}
    (tmp_path / "origin.json").write_text(json.dumps(note), encoding="utf-8")
    return boots


def test_columns_are_installed_kernels(boots: list[dict[str, Any]]) -> None:
    """Vanilla is Debian's kernel, off and on are ours; our package is installed once, before the first run."""
    options = core.Options(icount=True, packages=True)
    benchmark = core.load("micro")
    for column in core.COLUMNS:
        assert runner.boot_once(benchmark, column, options).rows == [({"op": "x"}, {"ns": 3.0})]
    install, *runs = boots
    assert install["direct"] is None and install["command"].startswith("dpkg -i")
    assert list(install["files"].values()) == ["ours"]
    given = [one["direct"] for one in runs]
    assert [one.release for one in given] == [RELEASES[0], RELEASES[1], RELEASES[1]]
    assert given[0].append == given[1].append and given[2].append.startswith("quire=") and given[2].icount
    assert {"bin/micro", "bin/tiny", "script"} == set(runs[0]["files"]) and "./micro" in runs[0]["files"]["script"]


def test_our_package_is_installed_again(boots: list[dict[str, Any]], tmp_path: Path) -> None:
    """The disk is made again for another package, and not for the same."""
    packaged.make_disk()
    packaged.make_disk()
    assert len(boots) == 1
    (tmp_path / "linux-image-6.12.118-quire_6.12.118-1_amd64.deb").write_text("newer", encoding="utf-8")
    packaged.make_disk()
    assert [list(one["files"].values()) for one in boots] == [["ours"], ["newer"]]


def test_kernels_of_two_bases_are_not_compared() -> None:
    """Debian's kernel has to be of our package's base."""
    assert packaged.release_of("vanilla", RELEASES) == RELEASES[0]
    with pytest.raises(core.BenchError, match="of one base it has no debian: remove build/machine"):
        packaged.release_of("vanilla", ["6.12.118+deb12-cloud-amd64", RELEASES[1]])
    with pytest.raises(core.BenchError, match="it has no deb"):
        packaged.release_of("quire", RELEASES[:1])


def test_no_package(boots: list[dict[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a package, or for a kernel that no package has, one line says what to do."""
    assert runner.main(["--packages", "--column", "d=debug", "micro"]) == 1
    assert "no package has the kernel debug" in capsys.readouterr().err
    (tmp_path / "origin.json").write_text(json.dumps({"config": "my.config"}), encoding="utf-8")
    assert runner.main(["--packages", "micro"]) == 1
    error = capsys.readouterr().err
    assert "has another configuration (my.config) than Debian's" in error and error.count("\n") == 1
    for path in tmp_path.glob("*.deb"):
        path.unlink()
    assert runner.main(["--packages", "micro"]) == 1
    assert capsys.readouterr().err.endswith("no package of a kernel in build/deb: make deb FLAVOUR=cloud-amd64\n")
    assert not boots


def test_complaint_of_an_installed_kernel(boots: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that complains, or a machine that does not end, is no measurement."""
    packaged.make_disk()
    oops = splat.Splat("bug", "BUG: x", "BUG: x")
    done = machine.Done(0, "@op=x | ns=3\n", "", [oops], 1.0)
    monkeypatch.setattr(machine.Machine, "boot", lambda *arguments: done)
    with pytest.raises(core.BenchError, match=r"micro, column on: status 70(.|\n)*BUG: x"):
        runner.boot_once(core.load("micro"), "on", core.Options(packages=True))

    def hang(*_: object) -> machine.Done:
        raise machine.MachineError("it hangs")

    monkeypatch.setattr(machine.Machine, "boot", hang)
    with pytest.raises(core.BenchError, match="it hangs"):
        runner.boot_once(core.load("micro"), "on", core.Options(packages=True))
    assert len(boots) == 1


def test_paper_of_installed_kernels() -> None:
    """docs/packages.md has the aims that were measured there, beside the lean kernels' scores."""
    lean = storage.load(storage.FOLDER)
    result = next(one for one in lean["results"] if (one["name"], one["clock"]) == ("fork-table", "icount"))
    one = json.loads(json.dumps({**result, "packages": True, "jump": True}))
    text = publishing.packages_paper({"results": [one]}, lean)
    row = next(line for line in text.splitlines() if "fork() alone, 1 GB touched, times fewer" in line)
    score, wanted, verdict, off, there = row.strip("| ").split(" | ")[-5:]
    assert score == there and wanted.startswith("≥ ") and verdict == "met" and off.startswith("1.0")
    assert "Debian's kernel and ours as packages" in text and "`bench/run --icount --packages fork-table`" in text
    written = publishing.files_of(lean, {**storage.load(storage.PACKAGES), "results": [one]})
    assert written[publishing.PACKAGES_PAPER] == text and storage.PACKAGES / "fork-table.icount.json" in written
