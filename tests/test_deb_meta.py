# SPDX-License-Identifier: GPL-2.0
"""The Debian package quire: what it depends on, and that it grows with the kernel."""

from __future__ import annotations

import argparse
import itertools
import shutil
import subprocess
from pathlib import Path

import pytest

import fake_deb
from guest import build, deb, deb_meta, deb_tools, debhelper, packages

pytestmark = pytest.mark.skipif(not shutil.which("dh"), reason="no debhelper")


@pytest.fixture(name="folders", autouse=True)
def fixture_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the packages; nothing is made in build/."""
    monkeypatch.setattr(deb_meta, "STAGE", tmp_path / "stage")
    monkeypatch.setattr(deb_meta, "OUTPUT", tmp_path / "deb")
    monkeypatch.setattr(deb_tools, "STAGE", tmp_path / "tools")
    monkeypatch.setattr(deb_tools, "OUTPUT", tmp_path / "deb")
    return tmp_path / "deb"


@pytest.fixture(scope="module", name="package")
def fixture_package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package, made for a kernel."""
    folder = tmp_path_factory.mktemp("package")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(deb_meta, "STAGE", folder / "stage")
        patch.setattr(deb_meta, "OUTPUT", folder / "deb")
        return deb_meta.make(fake_deb.make(folder))


def test_control(package: Path) -> None:
    """The package needs the kernel that it was made for, by name and version, and the tools; headers are optional."""
    assert {name: debhelper.field(package, name) for name in ("Package", "Architecture", "Section", "Depends",
                                                              "Suggests")} == {
        "Package": "quire", "Architecture": "amd64", "Section": "metapackages",
        "Depends": "quire-tools, linux-image-6.12.117-quire (>= 6.12.117-310)",
        "Suggests": "linux-headers-6.12.117-quire"}
    commits = debhelper.commits(*deb_meta.SOURCES)
    assert debhelper.field(package, "Version") == f"6.12.117+310.{commits}"
    assert package.name == f"quire_6.12.117+310.{commits}_amd64.deb"


def test_content(package: Path, tmp_path: Path) -> None:
    """The package has nothing but its changelog and licence, and no scripts."""
    subprocess.run(["dpkg-deb", "-R", str(package), str(tmp_path / "x")], check=True)
    found = {str(path.relative_to(tmp_path / "x")) for path in (tmp_path / "x").rglob("*") if not path.is_dir()}
    assert found == {"DEBIAN/control", "DEBIAN/md5sums", "usr/share/doc/quire/changelog.gz",
                     "usr/share/doc/quire/copyright"}


def test_a_newer_kernel_is_an_upgrade(tmp_path: Path, folders: Path) -> None:
    """A rebuild and a newer base raise the version; only the newest package stays, and quire-tools is not touched."""
    folders.mkdir()
    tools = fake_deb.make(folders, "quire-tools", "0.1+5", "all")
    made = []
    for name, version in (("linux-image-6.12.117-quire", "6.12.117-9"), ("linux-image-6.12.117-quire", "6.12.117-10"),
                          ("linux-image-6.12.118-quire", "6.12.118-10")):
        package = deb_meta.make(fake_deb.make(tmp_path, name, version))
        made.append(debhelper.field(package, "Version"))
        assert f"{name} (>= {version})" in debhelper.field(package, "Depends")
        assert sorted(folders.glob("*.deb")) == sorted([package, tools])
    for old, new in itertools.pairwise(made):
        subprocess.run(["dpkg", "--compare-versions", old, "lt", new], check=True)


def test_the_same_again(package: Path, tmp_path: Path) -> None:
    """The same kernel and commit give the same package, byte by byte."""
    assert deb_meta.make(fake_deb.make(tmp_path)).read_bytes() == package.read_bytes()


def test_all_are_made_together(tmp_path: Path, folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`make deb` gives the kernel, its headers, the tools and the package that depends on them."""
    def kernel(config: Path, headers: bool) -> list[Path]:
        assert list(folders.glob("quire-tools_*")), "the tools come first: they show whether debhelper works"
        names = [fake_deb.IMAGE.replace("image", "headers")] * headers + [fake_deb.IMAGE]
        return [fake_deb.make(tmp_path, name) for name in names]

    monkeypatch.setattr(packages, "ensure", lambda group: None)
    monkeypatch.setattr(deb, "read_config", lambda path: "")
    monkeypatch.setattr(deb, "ROOM_SMALL", 0)
    monkeypatch.setattr(deb, "make", kernel)
    made = deb.asked(argparse.Namespace(config=tmp_path / "config", flavour="amd64", no_headers=False))
    assert [debhelper.field(path, "Package") for path in made] == [
        "linux-headers-6.12.117-quire", "linux-image-6.12.117-quire", "quire-tools", "quire"]


def test_a_build_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the log, which has debhelper's messages."""
    monkeypatch.setattr(debhelper, "CHANGELOG", "no changelog\n")
    with pytest.raises(build.BuildError, match=r"no package was made: see .*/stage/build\.log"):
        deb_meta.make(fake_deb.make(tmp_path))
    assert "changelog" in (tmp_path / "stage/build.log").read_text(encoding="utf-8")
