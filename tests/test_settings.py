# SPDX-License-Identifier: GPL-2.0
"""quirectl save and apply: settings are saved whole, and applied line by line."""

from __future__ import annotations

import configparser
import errno
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

import kernel_surface
from guest import paths
from quirelib import cli

UNIT = paths.REPO / "tool/systemd/quire.service"


@pytest.fixture(name="root")
def fixture_root(tmp_path: Path) -> Path:
    """A root with all features, of which fork and prezero are on."""
    (tmp_path / "etc").mkdir()
    return kernel_surface.make(tmp_path)


def run(root: Path, *words: str) -> int:
    """Run quirectl on a root, and return its exit status."""
    return cli.main(["--root", str(root), *words])


def values(root: Path) -> dict[str, str]:
    """Return the text of all files that can be written."""
    return {str(path.relative_to(root)): path.read_text(encoding="utf-8").strip() for top in ("sys", "proc")
            for path in sorted((root / top).rglob("*")) if path.is_file() and path.stat().st_mode & 0o222}


def conf(root: Path, text: str) -> Path:
    """Write the configuration, and return its file."""
    path = root / "etc/quire.conf"
    path.write_text(text, encoding="utf-8")
    return path


def test_saved_is_all_that_can_be_set(root: Path) -> None:
    """Each knob and each switch has one line; gauges and actions have none; the switch comes last."""
    assert run(root, "save") == 0
    text = (root / "etc/quire.conf").read_text(encoding="utf-8")
    assert text.startswith("# The settings of quire") and "6.12.117-quire" in text
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    assert all(re.fullmatch(r"\w+\.\w+ = \w+", line) for line in lines)
    names = [line.split(" = ")[0] for line in lines]
    switches = {(feature, "enabled") for feature in kernel_surface.FEATURES}
    wanted = {*kernel_surface.numbers(), ("prezero", "engine"), *switches}
    assert sorted(names) == sorted(".".join(key) for key in wanted)
    for feature in kernel_surface.FEATURES:
        assert [name for name in names if name.startswith(feature)][-1] == f"{feature}.enabled"
    assert {"fork.enabled = 1", "shm.enabled = 0", "prezero.scrub_stop = 300"} <= set(lines)


def test_what_was_saved_is_set_again(root: Path, monkeypatch: pytest.MonkeyPatch,
                                     capsys: pytest.CaptureFixture[str]) -> None:
    """After changes, apply restores all files; a file that already has the saved value is not written."""
    before = values(root)
    assert run(root, "save") == 0
    for name, value in (("shm/min_tables", "99"), ("fork/enabled", "0"), ("prezero/engine", "dma")):
        (root / "sys/kernel/mm/quire" / name).write_text(f"{value}\n", encoding="utf-8")
    (root / "proc/sys/vm/scrub_load").write_text("7\n", encoding="utf-8")
    capsys.readouterr()
    real, written = os.write, []

    def write(fd: int, data: bytes) -> int:
        written.append(data)
        return real(fd, data)

    monkeypatch.setattr(os, "write", write)
    assert run(root, "apply", "--strict") == 0
    out = capsys.readouterr().out
    assert values(root) == before and sorted(written) == [b"1", b"1", b"16", b"cpu"]
    assert "shm.min_tables: 99 -> 16\n" in out and "fork.enabled: 0 -> 1\n" in out
    assert re.search(r": 4 changed, \d+ unchanged, 0 refused\n$", out)


def test_saved_whole_or_not_at_all(root: Path, monkeypatch: pytest.MonkeyPatch,
                                   capsys: pytest.CaptureFixture[str]) -> None:
    """A write that fails leaves the old file and nothing beside it; the new file can be read by all."""
    path = conf(root, "fork.mixed = 1\n")

    def full(_fd: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        assert run(root, "save") == 1
    assert "No space left on device" in capsys.readouterr().err
    assert path.read_text(encoding="utf-8") == "fork.mixed = 1\n" and os.listdir(root / "etc") == ["quire.conf"]
    assert run(root, "save") == 0
    assert path.stat().st_mode & 0o777 == 0o644 and os.listdir(root / "etc") == ["quire.conf"]


def test_save_elsewhere(root: Path, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """save writes to another file, or the same text to standard output."""
    assert run(root, "save", "--output", str(tmp_path / "other")) == 0
    assert not (root / "etc/quire.conf").exists()
    capfdbinary.readouterr()
    assert run(root, "save", "--output", "-") == 0
    assert capfdbinary.readouterr().out == (tmp_path / "other").read_bytes()
    assert run(root, "save", "--output", str(tmp_path / "none/other")) == 1
    assert b"Create its folder first" in capfdbinary.readouterr().err


def test_refused_lines_are_named(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each line that cannot be set is reported by number and name; the lines around it are set."""
    path = conf(root, "\n".join((
        "# comment", "fork.mixed = 1   # inline", "fork.treshold = 3", "frok.mixed = 1", "nonsense", "shm.tables = 4",
        "prezero.scrub_now = 1", "rmap.enabled = 2", "all.enabled = 1", "shm.min_tables =", "rmap.defer_faults=7", "")))
    assert run(root, "apply") == 0
    said = capsys.readouterr()
    errors = said.err.splitlines()
    assert [line.split(": ", 3)[1:3] for line in errors] == [
        [f"{path}:3", "fork.treshold"], [f"{path}:4", "frok.mixed"], [f"{path}:5", "nonsense"],
        [f"{path}:6", "shm.tables"], [f"{path}:7", "prezero.scrub_now"], [f"{path}:8", "rmap.enabled"],
        [f"{path}:9", "all.enabled"], [f"{path}:10", "shm.min_tables ="]]
    assert "read-only" in errors[3] and "its knobs: " in errors[0]
    assert said.out.endswith(f"{path}: 2 changed, 0 unchanged, 8 refused\n")
    top = root / "sys/kernel/mm/quire"
    assert (top / "fork/mixed").read_text(encoding="utf-8") == "1\n"
    assert (top / "rmap/defer_faults").read_text(encoding="utf-8").startswith("7")
    assert run(root, "apply", "--strict") == 1
    assert "8 of its lines were refused" in capsys.readouterr().err


def test_what_the_kernel_refuses(root: Path, monkeypatch: pytest.MonkeyPatch,
                                 capsys: pytest.CaptureFixture[str]) -> None:
    """A refusal of the kernel is one line with the bounds, and the next line is set."""
    real = os.write

    def write(fd: int, data: bytes) -> int:
        if data == b"0":
            raise OSError(errno.EINVAL, "invalid")
        return real(fd, data)

    path = conf(root, "fork.min_tables = 0\nfork.mixed = 1\n")
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", write)
        assert run(root, "apply") == 0
    error, = capsys.readouterr().err.splitlines()
    assert error.startswith(f"error: {path}:1: fork.min_tables: ") and "It takes 1 to 1073741824" in error
    assert (root / "sys/kernel/mm/quire/fork/mixed").read_text(encoding="utf-8") == "1\n"


def test_a_feature_that_warned(root: Path) -> None:
    """A feature that warned is saved as off, with a comment that says why."""
    (root / "sys/kernel/mm/quire/fork/state").chmod(0o644)
    (root / "sys/kernel/mm/quire/fork/state").write_text("disabled_by_warning\n", encoding="utf-8")
    assert run(root, "save") == 0
    assert "inconsistency.\nfork.enabled = 0\n" in (root / "etc/quire.conf").read_text(encoding="utf-8")


def test_no_file(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The error names the missing file, and the command that writes one."""
    assert run(root, "apply") == 1
    error = capsys.readouterr().err
    assert f"there is no {root}/etc/quire.conf; quirectl save writes one" in error


def test_the_example_in_the_manual_can_be_set(root: Path) -> None:
    """All lines of the manual's example can be set."""
    page = (paths.REPO / "docs/man/quire.conf.5").read_text(encoding="utf-8")
    example = re.search(r"^\.SH EXAMPLE\n\.nf\n(.*?)^\.fi", page, re.S | re.M)
    assert example
    conf(root, example.group(1))
    assert run(root, "apply", "--strict") == 0


def unit(path: Path) -> configparser.ConfigParser:
    """Return a unit; if a key is there twice, its value has one line for each."""
    class Lines(dict[str, Any]):
        """A section that keeps every value of a key."""

        def __setitem__(self, key: str, value: Any) -> None:
            super().__setitem__(key, self[key] + value if key in self and isinstance(value, list) else value)

    parser = configparser.ConfigParser(strict=False, interpolation=None, dict_type=Lines)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(path, encoding="utf-8")
    return parser


def test_unit() -> None:
    """At boot, the file is applied once, before ordinary services, if there is a quire kernel and a file."""
    parts = unit(UNIT)
    assert set(parts["Unit"]["ConditionPathExists"].split()) == {"/sys/kernel/mm/quire", "/etc/quire.conf"}
    assert parts["Unit"]["DefaultDependencies"] == "no" and "sysinit.target" in parts["Unit"]["Before"].split()
    assert parts["Service"]["Type"] == "oneshot" and parts["Service"]["RemainAfterExit"] == "yes"
    assert parts["Install"]["WantedBy"] == "sysinit.target"
    program, *words = parts["Service"]["ExecStart"].split()
    assert program == "/usr/sbin/quirectl" and cli.parser().parse_args(words).command == "apply"


@pytest.mark.parametrize("path", sorted((paths.REPO / "tool/systemd").iterdir()), ids=lambda path: path.name)
def test_units_are_units(path: Path, tmp_path: Path) -> None:
    """If systemd's checker is installed, it accepts the units, with another program in place of quirectl."""
    if not shutil.which("systemd-analyze"):
        pytest.skip("no systemd-analyze")
    for one in path.parent.iterdir():
        text = re.sub(r"^(Exec\w+=)/usr/sbin/quirectl", r"\1/bin/true", one.read_text(encoding="utf-8"), flags=re.M)
        (tmp_path / one.name).write_text(text, encoding="utf-8")
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", str(tmp_path / path.name)], text=True, check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    said = [line for line in done.stdout.splitlines() if path.name in line]
    assert not said, done.stdout
