# SPDX-License-Identifier: GPL-2.0
"""Installing what is missing, with a fake apt."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from guest import packages, paths, tree

BASE = "linux-source-6.12"
TOOLS = {
    "apt-get": 'echo "ran apt-get $*"; [ "$DEBIAN_FRONTEND" = noninteractive ] || exit 9; '
               '[ "$1" = update ] || exit ${STATUS:-0}',
    "apt-cache": 'case $1 in madison) while read version; do echo "$2 | $version | https://example.org main Packages"; '
                 'done < "$OFFERS";; policy) echo "  Candidate: 1";; esac',
    "dpkg-query": 'for name; do :; done; [ "$name" = "$INSTALLED" ] && printf installed',
    "env": 'export "$1"; shift; exec "$@"',
    "sudo": 'unset DEBIAN_FRONTEND; exec "$@"',
}


@pytest.fixture(name="offers")
def fixture_offers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The versions of the base that apt offers; nothing is installed, and 6.12.94 and 6.12.113 are verified."""
    for name, script in TOOLS.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("OFFERS", str(tmp_path / "offers"))
    monkeypatch.delenv("LINUX", raising=False)
    monkeypatch.setattr(paths, "BUILD", tmp_path)
    monkeypatch.setattr(packages, "make_venv", lambda: None)
    monkeypatch.setattr(tree, "read_base_conf", lambda: {"package": BASE, "verified": "6.12.94 6.12.113"})
    (tmp_path / "offers").write_text("6.12.117-1~deb12u1\n6.12.113-2\n6.12.113-1\n6.12.94-1\n", encoding="utf-8")
    return tmp_path / "offers"


def test_packages_are_named_before_apt_runs(offers: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The names come first. Of alternatives, the first on offer is installed; the base gets a verified version."""
    assert offers.exists() and packages.main([]) == 0
    named, update, install = capfd.readouterr().err.splitlines()
    assert named.startswith("installing the Debian packages build-essential ") and named.endswith(f" {BASE}")
    assert update == "ran apt-get update -qq"
    names = install.split("--no-install-recommends ")[1].split()
    assert {"build-essential", "postgresql-15", f"{BASE}=6.12.113-2"} <= set(names) and BASE not in names


@pytest.mark.parametrize("goal, wanted", [("demo", "erofs-utils"), ("deb", "linux-config-6.12")])
def test_no_server_unasked(offers: Path, capfd: pytest.CaptureFixture[str], goal: str, wanted: str) -> None:
    """The demonstration and the packages need no server, and each asks for what is its own."""
    names: dict[str, set[str]] = {}
    for chosen in (goal, "all"):
        assert offers.exists() and packages.main(["--list", "--for", chosen]) == 0
        names[chosen] = set(capfd.readouterr().out.split())
    servers = {"redis-server", "postgresql-15|postgresql", "prometheus", "prometheus-node-exporter"}
    assert wanted in names[goal] < names["all"] and servers <= names["all"] - names[goal]
    rule = (paths.REPO / "Makefile").read_text(encoding="utf-8").split(f"\n{goal}:\n\t")[1]
    assert rule.startswith(f"@python3 -m guest.packages --for {goal}\n")


@pytest.mark.parametrize("versions, chosen", [
    ("6.12.94-1~bpo12+1 6.12.113-1", f"{BASE}=6.12.113-1"),
    ("6.12.117-1 6.12.94-1~bpo12+1", f"{BASE}=6.12.94-1~bpo12+1"),
    ("6.12.117-1 6.12.9-1", BASE),
    ("", BASE),
])
def test_version_of_the_base(offers: Path, capfd: pytest.CaptureFixture[str], versions: str, chosen: str) -> None:
    """The newest verified version on offer is taken, else the newest, with a note that names the offers."""
    offers.write_text("".join(f"{version}\n" for version in versions.split()), encoding="utf-8")
    packages.install([BASE])
    *others, install = capfd.readouterr().err.splitlines()
    assert install.split()[-1] == chosen
    notes = [line for line in others if line.startswith("note: ")]
    assert notes == [] if "=" in chosen or not versions else "6.12.117-1, 6.12.9-1" in notes[0]


def test_base_that_is_installed_is_kept(offers: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed base is kept, whatever version it is."""
    assert offers.exists() and BASE in packages.missing()
    monkeypatch.setenv("INSTALLED", BASE)
    assert BASE not in packages.missing()


def test_apt_that_fails(offers: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """Its own messages come first; the last line says what failed and what to do."""
    monkeypatch.setenv("STATUS", "100")
    assert offers.exists() and packages.main([]) == 1
    *_, apt, error = capfd.readouterr().err.splitlines()
    assert apt.startswith("ran apt-get install")
    assert error.startswith("error: `") and "apt-get install" in error and error.endswith("run `make packages` again")


def test_full_disk(offers: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """A full disk is not mistaken for a host that is not Debian."""
    def full() -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(packages, "make_venv", full)
    assert offers.exists() and packages.main([]) == 1
    assert capfd.readouterr().err.endswith("error: [Errno 28] No space left on device: make room and run it again\n")


def test_python_that_is_upgraded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The packages of another version of Python are installed again, and those of this one are not."""
    ran: list[list[str]] = []

    def run(command: list[str], **_options: object) -> None:
        ran.append(command)
        (tmp_path / "venv").mkdir(exist_ok=True)

    monkeypatch.setattr(paths, "VENV", tmp_path / "venv")
    monkeypatch.setattr(paths, "BUILD", tmp_path)
    monkeypatch.setattr(packages.subprocess, "run", run)
    packages.make_venv()
    packages.make_venv()
    assert len(ran) == 2
    monkeypatch.setattr(packages.sys, "version_info", (3, 99, 0))
    packages.make_venv()
    assert len(ran) == 4
