# SPDX-License-Identifier: GPL-2.0
"""Debian packages of the kernel: configured like Debian's, and, in the soak, built, unpacked and booted."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from guest import boot, build, deb, deb_tools, packages, paths


@pytest.mark.parametrize("flavour", deb.FLAVOURS)
def test_configured_like_debian(flavour: str) -> None:
    """Debian's configuration takes all of our fragment, and keeps what a real machine needs."""
    with paths.build_lock():
        deb.configure(deb.debian_config(flavour))
        config = build.asked([build.objects_of(deb.VARIANT) / ".config"])
    assert config["CONFIG_QUIRE_SHM"] == "y" and config["CONFIG_LOCALVERSION"] == '"-quire"'
    assert config["CONFIG_QUIRE_DEBUG"] == config["CONFIG_XEN_PV"] == "n"
    assert "n" not in (config["CONFIG_EXT4_FS"], config["CONFIG_NVME_CORE"])
    assert config["CONFIG_INIT_ON_ALLOC_DEFAULT_ON"] == "y"


def test_wrong_configurations(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file that is no usable configuration is refused in a line that says what to give."""
    other = tmp_path / "config"
    other.write_text("CONFIG_ARM64=y\n", encoding="utf-8")
    for path in (tmp_path / "none", other):
        assert deb.main(["--config", str(path)]) == 1
        error = capsys.readouterr().err
        assert error.count("\n") == 1 and "give one with --config" in error


def test_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A disk without room for the kernel is refused, unless the kernel was built on it before."""
    monkeypatch.setattr(paths, "REPO", tmp_path)
    monkeypatch.setattr(packages, "ensure", lambda group: None)
    monkeypatch.setattr(deb.shutil, "disk_usage", lambda path: SimpleNamespace(free=3 << 30))
    monkeypatch.setattr(build, "objects_of", lambda variant: tmp_path)
    monkeypatch.setattr(deb, "read_config", lambda config: None)
    monkeypatch.setattr(deb, "debian_config", lambda flavour: tmp_path / "config")
    monkeypatch.setattr(deb, "OUTPUT", tmp_path)
    monkeypatch.setattr(deb_tools, "make", lambda: tmp_path / "tools.deb")
    monkeypatch.setattr(deb, "make", lambda config, headers: [tmp_path / "linux-image-1.deb"])
    monkeypatch.setattr(deb.deb_meta, "make", lambda image: tmp_path / "meta.deb")
    assert deb.main([]) == 1
    assert "3 GB are free for build/, about 12 GB are needed: make room, or take the flavour" in capsys.readouterr().err
    assert deb.main(["--flavour", "cloud-amd64"]) == 1
    assert capsys.readouterr().err.endswith("about 4 GB are needed: make room\n")
    (tmp_path / "vmlinux").touch()
    for name, status in (("other", 1), ("config", 0)):
        (tmp_path / "origin.json").write_text(f'{{"config": "{name}"}}', encoding="utf-8")
        assert deb.main([]) == status


def test_what_was_made_is_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The output is the paths, and a message says how to install them, for the kernel's packages and the tools'."""
    first, second = (f"build/deb/{name}.deb" for name in "ab")
    monkeypatch.setattr(deb, "asked", lambda args: [paths.REPO / first, paths.REPO / second])
    monkeypatch.setattr(deb_tools, "asked", lambda: [paths.REPO / first])
    assert deb.main([]) == 0
    out, err = capsys.readouterr()
    assert out == f"{first}\n{second}\n"
    assert err.startswith(f"install: sudo apt install ./{first} ./{second} (or make apt-repo); then boot it: ")
    assert deb_tools.main([]) == 0
    assert capsys.readouterr() == (f"{first}\n", f"install: sudo apt install ./{first}\n")


def test_a_program_that_fails(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The error names the program, and the command to run again."""
    monkeypatch.setattr(packages, "ensure", lambda group: subprocess.run(["false"], check=True))
    assert deb_tools.main([]) == 1
    says = "error: `false` failed (its messages are above): fix that and run `make deb-tools` again\n"
    assert capsys.readouterr().err == says


@pytest.mark.soak
def test_packages_boot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package of the guest's own configuration holds a kernel that boots and has the features."""
    # What is in build/deb has the same name, and is what other tests install.
    monkeypatch.setattr(deb, "OUTPUT", tmp_path / "made")
    deb.OUTPUT.mkdir()
    made = deb.make(paths.BUILD / "quire" / "config", headers=False)
    assert len(made) == 1 and made[0].name.startswith("linux-image-")
    subprocess.run(["dpkg-deb", "-x", str(made[0]), str(tmp_path)], check=True)
    image, = (tmp_path / "boot").glob("vmlinuz-*-quire")
    target = paths.BUILD / deb.VARIANT / "bzImage"
    shutil.copy(image, target)
    result = boot.run("uname -r; cat /sys/kernel/mm/quire/*/state", deb.VARIANT, append="quire=on")
    assert result.status == 0 and not result.splats, result.output
    assert result.output.splitlines() == [image.name.removeprefix("vmlinuz-")] + 5 * ["on"]
