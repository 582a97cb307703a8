# SPDX-License-Identifier: GPL-2.0
"""The Debian package of the tools: its content, that it works where it is unpacked, and what removal leaves behind."""

from __future__ import annotations

import gzip
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

import kernel_surface
from guest import deb_tools, paths
from quirelib import bootdefault, cli, knobs

TOOL = paths.REPO / "tool"


@pytest.fixture(scope="module", name="package")
def fixture_package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package, made by debhelper."""
    if not shutil.which("dh"):
        pytest.skip("no debhelper")
    folder = tmp_path_factory.mktemp("package")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(deb_tools, "STAGE", folder / "stage")
        patch.setattr(deb_tools, "OUTPUT", folder / "deb")
        return deb_tools.make()


@pytest.fixture(name="unpacked")
def fixture_unpacked(package: Path, tmp_path: Path) -> Path:
    """The folder that the package is unpacked in."""
    subprocess.run(["dpkg-deb", "-x", str(package), str(tmp_path / "x")], check=True)
    return tmp_path / "x"


def listed(package: Path) -> dict[str, str]:
    """Return the files in a package, each with its mode and owner."""
    done = subprocess.run(["dpkg-deb", "-c", str(package)], text=True, check=True, stdout=subprocess.PIPE)
    lines = [re.fullmatch(r"(\S+ \S+) +\d+ \S+ \S+ \./(.*?)(?: -> .*)?", line) for line in done.stdout.splitlines()]
    # Whether systemd's folder is below /usr depends on the distribution.
    return {re.sub("^lib/", "usr/lib/", line.group(2)): line.group(1) for line in lines if line and
            line.group(2) and not line.group(2).endswith("/")}


def expected() -> set[str]:
    """Return the files that the package must have."""
    share = "usr/share/quire-tools"
    return {
        "usr/sbin/quirectl", f"{share}/quirectl", "usr/share/bash-completion/completions/quirectl",
        "usr/share/zsh/vendor-completions/_quirectl",
        *(f"{share}/{path.relative_to(TOOL)}" for folder in ("quirelib", "bpftrace", "monitoring", "grub")
          for path in (TOOL / folder).iterdir() if path.is_file()),
        *(f"usr/lib/systemd/system/{path.name}" for path in (TOOL / "systemd").iterdir()),
        "usr/lib/tmpfiles.d/quire-tools.conf",
        *(f"usr/share/man/man{path.suffix[1:]}/{path.name}.gz" for path in (paths.REPO / "docs/man").iterdir()),
        *(f"usr/share/doc/quire-tools/{name}" for name in ("changelog.gz", "copyright", "examples/quire.conf"))}


def test_content(package: Path) -> None:
    """The package has all of tool/ and the manual, nothing else, owned by root; only programs are executable."""
    found = listed(package)
    assert set(found) == expected()
    for name, mode in found.items():
        program = name.endswith((".bt", "quire-tools/quirectl"))
        assert mode == ("lrwxrwxrwx" if name == "usr/sbin/quirectl" else
                        "-rwxr-xr-x" if program else "-rw-r--r--") + " root/root", name


def test_control(package: Path) -> None:
    """The package is for all machines, needs only Python, has no configuration file, and has a version that grows."""
    def field(name: str) -> str:
        return subprocess.run(["dpkg-deb", "-f", str(package), name], text=True, check=True,
                              stdout=subprocess.PIPE).stdout.strip()

    assert field("Package") == "quire-tools" and field("Architecture") == "all"
    assert field("Depends") == "python3 (>= 3.9)"
    assert re.fullmatch(r"\d+\.\d+\+[1-9]\d*", field("Version")) and field("Version") == deb_tools.version()
    assert package.name == f"quire-tools_{field('Version')}_all.deb"
    control = subprocess.run(["dpkg-deb", "--ctrl-tarfile", str(package)], check=True, stdout=subprocess.PIPE).stdout
    assert b"conffiles" not in control


def test_what_scripts_do_to_units(package: Path, tmp_path: Path) -> None:
    """An upgrade stops no unit, a removal stops the timer, and the service that sets knobs is started by boots alone.
    """
    subprocess.run(["dpkg-deb", "-e", str(package), str(tmp_path)], check=True)
    invoked = re.compile(r"^\s*deb-systemd-invoke (.+?) >", re.M)
    names = ("preinst", "postinst", "prerm", "postrm")
    scripts = {name: (tmp_path / name).read_text(encoding="utf-8") for name in names if (tmp_path / name).exists()}
    found = {name: invoked.findall(text) for name, text in scripts.items() if invoked.search(text)}
    metrics = "'quire-metrics.service' 'quire-metrics.timer'"
    assert found == {"postinst": [f"start {metrics}"], "prerm": [f"stop {metrics}"]}
    assert re.search(r'"\$1" = remove [^\n]*\n\s*deb-systemd-invoke stop', scripts["prerm"])


def test_the_same_again(package: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The same commit gives the same package, byte by byte, whenever its files were checked out."""
    monkeypatch.setattr(deb_tools, "STAGE", tmp_path / "stage")
    monkeypatch.setattr(deb_tools, "OUTPUT", tmp_path / "deb")
    path = TOOL / "quirectl"
    before = path.stat().st_mtime
    os.utime(path, (1, 1))
    try:
        assert deb_tools.make().read_bytes() == package.read_bytes()
    finally:
        os.utime(path, (before, before))


def test_unpacked_it_works(unpacked: Path, tmp_path: Path) -> None:
    """The command runs from where it is unpacked, through its link, and leaves nothing beside its modules."""
    before = sorted(unpacked.rglob("*"))
    root = kernel_surface.make(tmp_path / "root")
    command = [str(unpacked / "usr/sbin/quirectl"), "--root", str(root), "knobs", "get", "fork", "min_tables"]
    done = subprocess.run(command, text=True, check=True, stdout=subprocess.PIPE, cwd=tmp_path,
                          env={"PATH": "/usr/bin:/bin"})
    assert done.stdout == "16\n" and sorted(unpacked.rglob("*")) == before


def test_units_name_what_is_installed(unpacked: Path) -> None:
    """Each program that a unit starts, and each manual page that it names, is in the package."""
    units = [path for path in unpacked.rglob("*") if path.suffix in (".service", ".timer")]
    assert len(units) == 3
    for path in units:
        text = path.read_text(encoding="utf-8")
        for program in re.findall(r"^Exec\w+=(/\S+)", text, re.M):
            assert os.access(unpacked / program.lstrip("/"), os.X_OK), program
        for name, section in re.findall(r"man:([\w.]+)\((\d)\)", text):
            page = unpacked / f"usr/share/man/man{section}/{name}.{section}.gz"
            assert gzip.decompress(page.read_bytes()).startswith(b".\\\""), page


def test_example_can_be_applied(tmp_path: Path) -> None:
    """The example matches the table of knobs, and each line can be applied when its comment sign is removed."""
    text = (TOOL / "examples/quire.conf").read_text(encoding="utf-8")
    assert text == knobs.example()
    lines = re.findall(r"^#(\w+\.\w+ = \S+)$", text, re.M)
    assert len(lines) == len(knobs.KNOBS) - 1 + len(kernel_surface.FEATURES)
    (tmp_path / "conf").write_text("\n".join(lines), encoding="utf-8")
    root = kernel_surface.make(tmp_path / "root", on=())
    assert cli.main(["--root", str(root), "apply", "--strict", str(tmp_path / "conf")]) == 0


def dpkg(root: Path, *words: str) -> None:
    """Run dpkg on a separate root; the package's scripts run as if an image were made for another machine."""
    done = subprocess.run(["dpkg", f"--root={root}", "--force-script-chrootless", "--force-depends", "--log=/dev/null",
                           *words], text=True, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stdout


def files(root: Path) -> set[str]:
    """Return all files and links except dpkg's own."""
    return {str(path.relative_to(root)) for path in root.rglob("*") if (path.is_symlink() or not path.is_dir())
            and "var/lib/dpkg" not in str(path)}


@pytest.fixture(name="root")
def fixture_root(tmp_path: Path) -> Path:
    """A root in which dpkg has installed nothing yet."""
    if os.geteuid():
        pytest.skip("only root may install")
    root = tmp_path / "root"
    for name in ("info", "updates", "triggers", "parts"):
        (root / "var/lib/dpkg" / name).mkdir(parents=True)
    for name in ("status", "available"):
        (root / "var/lib/dpkg" / name).touch()
    return root


def test_install_remove_purge(package: Path, root: Path) -> None:
    """Installing enables the boot unit and not the timer; removal leaves only configuration, and purging nothing."""
    dpkg(root, "--install", str(package))
    links = {name for name in files(root) if name.startswith("etc/")}
    assert links == {"etc/systemd/system/sysinit.target.wants/quire.service", bootdefault.CONF}
    output = root / "var/lib/prometheus/node-exporter"
    output.mkdir(parents=True)
    for path in (root / "etc/quire.conf", output / "quire.prom", output / "other.prom"):
        path.write_text("x\n", encoding="utf-8")
    dpkg(root, "--remove", "quire-tools")
    # Whether a unit is enabled is configuration, too: Debian's helper notes it and keeps it for the next installation.
    kept = {name for name in files(root) if not name.startswith("var/lib/systemd/deb-systemd-helper")}
    assert kept == {*links, "etc/quire.conf", "var/lib/prometheus/node-exporter/other.prom"}
    dpkg(root, "--purge", "quire-tools")
    assert files(root) == {"var/lib/prometheus/node-exporter/other.prom"}


def test_what_grub_boots(package: Path, root: Path) -> None:
    """Installing chooses the stock kernel. An upgrade keeps the choice and replaces the rest; removal undoes it."""
    template = bootdefault.TEMPLATE.read_text(encoding="utf-8")
    chosen = template.replace("quire_boots=stock", "quire_boots=quire")
    conf = root / bootdefault.CONF
    dpkg(root, "--install", str(package))
    assert conf.read_text(encoding="utf-8") == template
    conf.write_text("# An older file.\nquire_boots=quire\n", encoding="utf-8")
    dpkg(root, "--install", str(package))
    assert conf.read_text(encoding="utf-8") == chosen != template
    dpkg(root, "--remove", "quire-tools")
    assert conf.read_text(encoding="utf-8") == template
    assert not list(conf.parent.glob("*.dpkg-new"))
    conf.unlink()
    dpkg(root, "--install", str(package))
    assert conf.read_text(encoding="utf-8") == template


class Machine:
    """A machine of its own on which the package's scripts run, with programs that note how they were called."""

    def __init__(self, root: Path) -> None:
        self.root, self.calls = root, root / "calls"
        for name in ("bin", "boot/grub", "etc", "usr/share/quire-tools", "sys/firmware/efi/efivars"):
            (root / name).mkdir(parents=True)
        shutil.copytree(TOOL / "grub", root / "usr/share/quire-tools/grub")
        (root / "boot/grub/grub.cfg").touch()
        self.conf = root / bootdefault.CONF
        self.program("update-grub", 0)
        self.program("systemd-detect-virt", 1)

    def program(self, name: str, status: int) -> None:
        """Make a program that exits with a status."""
        path = self.root / "bin" / name
        path.write_text(f"#!/bin/sh\necho {name} $* >>{self.calls}\nexit {status}\n", encoding="utf-8")
        path.chmod(0o755)

    def script(self, name: str, action: str) -> tuple[int, str]:
        """Run a script of the package; return how often it called update-grub, and what it said."""
        self.calls.write_text("", encoding="utf-8")
        text = (TOOL / f"debian/quire-tools.{name}").read_text(encoding="utf-8")
        text = text.replace("$DPKG_ROOT/", f"{self.root}/")
        text = re.sub(r"(?<=[ =])/(boot|sys)/", rf"{self.root}/\1/", text)
        text = text.replace(f'"{self.root}/boot"/', f"{self.root}/boot/")
        done = subprocess.run(["sh", "-c", text, name, action], text=True, check=True, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, env={"PATH": f"{self.root}/bin:/usr/bin:/bin"})
        return self.calls.read_text(encoding="utf-8").count("update-grub"), done.stdout

    def choose(self) -> None:
        """Choose our kernel, as the command does."""
        text = self.conf.read_text(encoding="utf-8")
        self.conf.write_text(text.replace("boots=stock", "boots=quire"), encoding="utf-8")


@pytest.fixture(name="machine")
def fixture_machine(tmp_path: Path) -> Machine:
    """A machine with GRUB."""
    return Machine(tmp_path)


def test_scripts_make_the_menu(machine: Machine) -> None:
    """The menu is made when the settings change: at the installation, at a removal that undoes a choice, and purged."""
    assert machine.script("postinst", "configure") == (1, "")
    assert machine.script("postinst", "configure") == (0, "")
    assert machine.script("postrm", "remove") == (0, "")
    machine.choose()
    assert machine.script("postinst", "configure") == (0, "")
    assert machine.script("postinst", "abort-remove") == (0, "")
    assert bootdefault.choice(machine.root) == "quire", "a removal that failed lost the choice"
    assert machine.script("postrm", "remove") == (1, "") and bootdefault.choice(machine.root) == "stock"
    assert machine.script("postrm", "purge") == (1, "") and bootdefault.choice(machine.root) == "unset"


def test_scripts_warn(machine: Machine) -> None:
    """If the menu cannot be made, or a kernel of ours stays without the protection, a line says what may boot."""
    machine.program("update-grub", 1)
    calls, said = machine.script("postinst", "configure")
    assert calls == 1 and "update-grub failed. Until it succeeds this machine may boot a quire kernel" in said
    (machine.root / "boot/vmlinuz-6.12.117-quire").touch()
    calls, said = machine.script("postrm", "purge")
    assert calls == 1 and "update-grub failed. Until it succeeds" in said
    assert f"GRUB may boot {machine.root}/boot/vmlinuz-6.12.117-quire" in said


def test_scripts_in_a_container(machine: Machine) -> None:
    """A container's scripts set the file, and leave GRUB alone."""
    machine.program("systemd-detect-virt", 0)
    assert machine.script("postinst", "configure") == (0, "") and bootdefault.choice(machine.root) == "stock"
    assert "systemd-detect-virt --quiet --container" in machine.calls.read_text(encoding="utf-8")
    machine.choose()
    assert machine.script("postrm", "remove") == (0, "") and bootdefault.choice(machine.root) == "stock"
    assert machine.script("postrm", "purge") == (0, "")


def test_script_names_the_command_of_systemd_boot(machine: Machine) -> None:
    """Where systemd-boot boots the machine, the installation changes what boots, and says how to undo that."""
    (machine.root / bootdefault.LOADER_INFO).write_bytes(b"\6\0\0\0" + "systemd-boot 252\0".encode("utf-16-le"))
    calls, said = machine.script("postinst", "configure")
    assert calls == 0 and "bootctl set-default '*-amd64.conf'" in said
    assert machine.script("postinst", "configure") == (0, "")


def test_without_debhelper(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One line says what to install."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(deb_tools.packages, "ensure", lambda group: None)
    assert deb_tools.main([]) == 1
    assert capsys.readouterr().err == "error: debhelper is missing: sudo apt install debhelper\n"
