# SPDX-License-Identifier: GPL-2.0
"""The apt repository: apt itself reads it, in a root of its own, and installs and upgrades what it should."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import fake_deb
from guest import apt_repo, build, packages, paths

pytestmark = pytest.mark.skipif(not shutil.which("apt-ftparchive"), reason="no apt-utils")

NEXT = "linux-image-6.12.118-quire"


@pytest.fixture(name="debs")
def fixture_debs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that stands for build/deb, with a kernel, the tools and the package that depends on both."""
    monkeypatch.setattr(apt_repo, "SOURCE", tmp_path / "deb")
    # A space, as in the path of somebody's clone.
    monkeypatch.setattr(apt_repo, "OUTPUT", tmp_path / "b uild/apt")
    monkeypatch.setattr(packages, "ensure", lambda group: None)
    (tmp_path / "deb").mkdir()
    fake_deb.make(tmp_path / "deb")
    fake_deb.make(tmp_path / "deb", "quire-tools", "0.1+5", "all")
    add_quire(tmp_path / "deb", "6.12.117+310.1", fake_deb.IMAGE, "6.12.117-310")
    return tmp_path / "deb"


def add_quire(debs: Path, version: str, image: str, image_version: str) -> None:
    """Make a package quire that depends on a kernel."""
    fake_deb.make(debs, "quire", version, Depends=f"quire-tools, {image} (>= {image_version})")


class Apt:
    """apt in a root of its own, which trusts nothing of the host."""

    def __init__(self, root: Path, line: str) -> None:
        self.root = root
        for name in ("etc/apt/sources.list.d", "etc/apt/apt.conf.d", "etc/apt/trusted.gpg.d", "etc/apt/preferences.d",
                     "var/lib/apt/lists/partial", "var/cache/apt/archives/partial", "var/lib/dpkg", "var/log/apt"):
            (root / name).mkdir(parents=True)
        (root / "var/lib/dpkg/status").touch()
        (root / "etc/apt/sources.list.d/quire.list").write_text(line + "\n", encoding="utf-8")
        # apt reads this file first and the host's configuration not at all, because it would be below the new root. The
        # user _apt may not read pytest's folders.
        (root / "apt.conf").write_text(
            f'Dir "{root}";\nDir::State::status "{root}/var/lib/dpkg/status";\n'
            'Dir::Bin::methods "/usr/lib/apt/methods";\nDir::Bin::apt-key "/usr/bin/apt-key";\n'
            'Dir::Bin::dpkg "/usr/bin/dpkg";\nAPT::Architecture "amd64";\nAPT::Architectures { "amd64"; };\n'
            'APT::Sandbox::User "root";\nAcquire::Languages "none";\n', encoding="utf-8")

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run one of apt's programs."""
        return subprocess.run(words, text=True, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              env={**os.environ, "APT_CONFIG": str(self.root / "apt.conf"), "LC_ALL": "C"})

    def update(self) -> str:
        """Read the repository, which must succeed without a warning; return what apt says."""
        done = self.run("apt-get", "update", "--error-on=any")
        assert done.returncode == 0 and not re.search("^[WE]:", done.stdout, re.M), done.stdout
        return done.stdout

    def plan(self, *words: str) -> list[str]:
        """Return the packages that a command would install, with their versions."""
        done = self.run("apt-get", "--simulate", *words)
        assert done.returncode == 0, done.stdout
        return sorted(" ".join(found) for found in re.findall(r"^Inst (\S+)(?: \[\S+\])? \((\S+)", done.stdout, re.M))

    def install(self, debs: Path) -> None:
        """Note packages as installed, as dpkg would."""
        with open(self.root / "var/lib/dpkg/status", "w", encoding="utf-8") as status:
            for path in sorted(debs.glob("*.deb")):
                control = subprocess.run(["dpkg-deb", "--field", str(path)], text=True, check=True,
                                         stdout=subprocess.PIPE).stdout
                status.write(control.replace("Version:", "Status: install ok installed\nVersion:") + "\n")


def test_apt_installs_all(debs: Path, tmp_path: Path) -> None:
    """One name brings the kernel and the tools; apt knows from where, and has checked the digests."""
    assert sorted(apt_repo.make()) == [fake_deb.IMAGE, "quire", "quire-tools"]
    apt = Apt(tmp_path / "root", apt_repo.sources_line())
    apt.update()
    assert apt.plan("install", "quire") == [f"{fake_deb.IMAGE} 6.12.117-310", "quire 6.12.117+310.1",
                                            "quire-tools 0.1+5"]
    policy = apt.run("apt-cache", "policy", "quire").stdout
    assert "Candidate: 6.12.117+310.1" in policy and "b uild/apt ./ Packages" in policy
    assert "o=quire" in apt.run("apt-cache", "policy").stdout
    shown = apt.run("apt-cache", "show", "quire").stdout
    assert f"Depends: quire-tools, {fake_deb.IMAGE} (>= 6.12.117-310)" in shown
    done = apt.run("apt-get", "download", "-qq", "-o", f"Dir::Cache={tmp_path}", "--print-uris", "quire-tools")
    assert done.returncode == 0 and "quire-tools_0.1+5_all.deb" in done.stdout and "SHA256:" in done.stdout


def test_upgrade_follows_a_new_kernel(debs: Path, tmp_path: Path) -> None:
    """A kernel of a newer base, which is another package, comes with an upgrade; without quire it does not.

    `apt upgrade` installs new packages, which `apt-get upgrade` does only when asked.
    """
    apt = Apt(tmp_path / "root", apt_repo.sources_line())
    apt.install(debs)
    fake_deb.make(debs, NEXT, "6.12.118-320")
    apt_repo.make()
    apt.update()
    assert apt.plan("upgrade", "--with-new-pkgs") == []
    add_quire(debs, "6.12.118+320.1", NEXT, "6.12.118-320")
    apt_repo.make()
    apt.update()
    assert apt.plan("upgrade", "--with-new-pkgs") == [f"{NEXT} 6.12.118-320", "quire 6.12.118+320.1"]


def test_the_readme_names_a_folder_with_a_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The README's line for apt is the one that is printed, also for a clone whose path has a space."""
    found = re.search(r"^    (echo .*) \| sudo tee", (paths.REPO / "README.md").read_text(encoding="utf-8"), re.M)
    assert found
    clone = tmp_path / "my clone"
    clone.mkdir()
    monkeypatch.setattr(apt_repo, "OUTPUT", clone / "build/apt")
    done = subprocess.run(["bash", "-c", found.group(1)], cwd=clone, text=True, check=True, stdout=subprocess.PIPE)
    assert done.stdout == f"{apt_repo.sources_line()}\n" and "my%20clone" in done.stdout


def test_removal_as_the_readme_says(debs: Path, tmp_path: Path) -> None:
    """The README's command removes all of our packages, with headers and older kernels, and no others."""
    found = re.search(r"^    sudo apt (purge .*)$", (paths.REPO / "README.md").read_text(encoding="utf-8"), re.M)
    assert found
    apt = Apt(tmp_path / "root", apt_repo.sources_line())
    fake_deb.make(debs, fake_deb.IMAGE.replace("image", "headers"))
    fake_deb.make(debs, NEXT, "6.12.118-320")
    apt.install(debs)
    with open(tmp_path / "root/var/lib/dpkg/status", "a", encoding="utf-8") as status:
        status.write(fake_deb.CONTROL.format(name="linux-image-amd64", version="6.12.41-1", architecture="amd64",
                                             more="Status: install ok installed\n"))
    done = apt.run("apt-get", "--simulate", *shlex.split(found.group(1)))
    assert done.returncode == 0, done.stdout
    assert sorted(re.findall(r"^Purg (\S+)", done.stdout, re.M)) == sorted(
        ["quire", "quire-tools", fake_deb.IMAGE, fake_deb.IMAGE.replace("image", "headers"), NEXT])


def test_only_the_newest(debs: Path) -> None:
    """Older versions of a package are left out, by version and not by the alphabet; other kernels stay.

    apt's own user can read all files, whatever the umask is.
    """
    fake_deb.make(debs, version="6.12.117-9")
    fake_deb.make(debs, NEXT, "6.12.118-320")
    before = os.umask(0o077)
    try:
        offers = apt_repo.make()
    finally:
        os.umask(before)
    assert offers == {fake_deb.IMAGE: "6.12.117-310", NEXT: "6.12.118-320", "quire": "6.12.117+310.1",
                      "quire-tools": "0.1+5"}
    assert len(list(apt_repo.OUTPUT.glob("*.deb"))) == len(offers) and len(list(debs.glob("*.deb"))) == 5
    for path in [apt_repo.OUTPUT, *apt_repo.OUTPUT.iterdir()]:
        assert path.stat().st_mode & 0o777 == (0o755 if path.is_dir() else 0o644), path


def test_what_was_changed_is_refused(debs: Path, tmp_path: Path) -> None:
    """apt refuses an index that is not the one whose digest Release has."""
    apt_repo.make()
    for path in apt_repo.OUTPUT.glob("Packages*"):
        path.write_bytes(path.read_bytes()[:-1] + b"!")
    done = Apt(tmp_path / "root", apt_repo.sources_line()).run("apt-get", "update", "--error-on=any")
    assert done.returncode != 0 and re.search("^E:.*(Hash Sum mismatch|has been altered|Failed to fetch)", done.stdout,
                                              re.M), done.stdout


def new_key(name: str) -> None:
    """Make a key without a passphrase."""
    subprocess.run(["gpg", "--batch", "--quiet", "--passphrase", "", "--quick-generate-key", name, "ed25519", "sign",
                    "never"], check=True, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


@pytest.fixture(name="key")
def fixture_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A key that lives as long as the test, as does the agent that gpg starts for it."""
    if not all(map(shutil.which, ("gpg", "gpg-agent", "gpgconf"))):
        pytest.skip("no gpg, or no gpg-agent")
    home = tmp_path / "gpg"
    home.mkdir(mode=0o700)
    monkeypatch.setenv("GNUPGHOME", str(home))
    new_key("quire <quire@localhost>")
    yield "quire@localhost"
    subprocess.run(["gpgconf", "--kill", "all"], check=True)


def test_signed(debs: Path, tmp_path: Path, key: str) -> None:
    """With its public key apt trusts the repository, without a word of trust in the line; with no key it does not."""
    apt_repo.make(key)
    line = apt_repo.sources_line(key)
    assert line.startswith(f"deb [signed-by={apt_repo.KEYRING}] file:")
    public = shutil.copy(apt_repo.OUTPUT / apt_repo.PUBLIC, tmp_path / "public.gpg")
    apt = Apt(tmp_path / "root", line.replace(apt_repo.KEYRING, str(public)))
    apt.update()
    assert "quire 6.12.117+310.1" in apt.plan("install", "quire")
    stranger = Apt(tmp_path / "stranger", line.replace(f"[signed-by={apt_repo.KEYRING}] ", ""))
    done = stranger.run("apt-get", "update")
    assert done.returncode != 0 and "is not signed" in done.stdout, done.stdout
    subprocess.run(["gpg", "--verify", str(apt_repo.OUTPUT / "Release.gpg"), str(apt_repo.OUTPUT / "Release")],
                   check=True, stderr=subprocess.DEVNULL)


def test_unknown_key(debs: Path, capsys: pytest.CaptureFixture[str], key: str) -> None:
    """The error has gpg's message and says where the keys are listed; the old repository stays."""
    assert apt_repo.main([]) == 0
    before = (apt_repo.OUTPUT / "Release").read_text(encoding="utf-8")
    capsys.readouterr()
    assert apt_repo.main(["--key", f"no-{key}"]) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: `gpg ") and "No secret key" in error and "gpg --list-secret-keys" in error
    assert (apt_repo.OUTPUT / "Release").read_text(encoding="utf-8") == before


def test_one_key_is_exported(debs: Path, capsys: pytest.CaptureFixture[str], key: str) -> None:
    """A name that several keys have is refused: apt would trust all of them. The whole name exports one."""
    new_key(f"another <another.{key}>")
    assert apt_repo.main(["--key", key]) == 1
    assert capsys.readouterr().err.startswith(f"error: '{key}' stands for 2 keys: KEY= must name one ")
    apt_repo.make(f"=quire <{key}>")
    shown = subprocess.run(["gpg", "--show-keys", "--with-colons", str(apt_repo.OUTPUT / apt_repo.PUBLIC)], text=True,
                           check=True, stdout=subprocess.PIPE).stdout
    assert shown.count("\nuid:") == 1 and "another" not in shown


def test_what_is_printed(debs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The commands have the exact line."""
    assert apt_repo.main([]) == 0
    out = capsys.readouterr().out
    assert f"\n    echo 'deb [trusted=yes] file:{tmp_path}/b%20uild/apt ./' | sudo tee {apt_repo.LIST}\n" in out
    assert f"{fake_deb.IMAGE} 6.12.117-310\n" in out and "\n    sudo apt install quire\n" in out
    assert "keyrings" not in out


def test_tools_alone(debs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a kernel the command installs what there is."""
    for path in [*debs.glob("linux-*.deb"), *debs.glob("quire_*.deb")]:
        path.unlink()
    assert apt_repo.main([]) == 0
    assert "\n    sudo apt install quire-tools\n" in capsys.readouterr().out


def test_nothing_to_offer(debs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without packages the error says how to make them, and no repository is made."""
    for path in debs.glob("*.deb"):
        path.unlink()
    with pytest.raises(build.BuildError):
        apt_repo.make()
    assert apt_repo.main([]) == 1
    assert capsys.readouterr().err.startswith("error: there are no packages in build/deb: make deb ")
    assert not apt_repo.OUTPUT.exists()


def test_without_the_programs(debs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                              capsys: pytest.CaptureFixture[str]) -> None:
    """One line says what to install."""
    monkeypatch.setenv("PATH", str(tmp_path))
    assert apt_repo.main([]) == 1
    assert capsys.readouterr().err == (
        "error: dpkg-scanpackages is missing: sudo apt install dpkg-dev apt-utils gpg gpg-agent\n")
