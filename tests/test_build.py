# SPDX-License-Identifier: GPL-2.0
"""Builds that are interrupted, hosts that lack something, and guests that die; all but the soak test with fakes."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from guest import boot, build, paths, tree

# Makes the files that guest.build asks for, but no object twice; and waits to be killed before the object STOP.
FAKE_MAKE = """#!/bin/sh
for word; do case $word in O=*) out=${word#O=};; esac; goal=$word; done
mkdir -p $out/arch/x86/boot
case $goal in
tinyconfig) echo CONFIG_TINY=y > $out/.config ;;
olddefconfig) ;;
bzImage)
	i=0
	while [ $((i += 1)) -le 20 ]; do
		[ -e $out/$i.o ] && continue
		echo "  CC      $i.o"
		[ $i = "$STOP" ] && sleep 600
		echo $i > $out/$i.o.tmp && mv $out/$i.o.tmp $out/$i.o
	done
	cat $out/*.o > $out/vmlinux
	cp $out/vmlinux $out/arch/x86/boot/bzImage ;;
esac
"""
BUILD_ONE = """
import sys
from pathlib import Path
from guest import build, paths
paths.REPO, paths.BUILD, paths.BASE, paths.CONFIG = map(Path, sys.argv[1:])
with paths.build_lock():
    build.build("vanilla")
"""


class Workshop:
    """A folder in which `guest.build` builds a kernel with a fake make."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.build, self.base, self.config, self.tools = (folder / n for n in ("build", "build/base", "config", "bin"))
        for path in (self.base / "scripts/kconfig", self.config, self.tools):
            path.mkdir(parents=True)
        self.script(self.tools / "make", FAKE_MAKE)
        self.script(self.base / "scripts/kconfig/merge_config.sh", '#!/bin/sh\ncat "$5" >> "$4"\n')
        (self.config / "guest.config").write_text("CONFIG_GUEST=y\n", encoding="utf-8")
        (self.base / "Makefile").write_text("VERSION = 6\nPATCHLEVEL = 12\nSUBLEVEL = 1\n", encoding="utf-8")

    def script(self, path: Path, text: str) -> None:
        """Write a program."""
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)

    def start(self, stop: str = "") -> "subprocess.Popen[str]":
        """Begin to build, in a process group of its own."""
        environment = {**os.environ, "PATH": f"{self.tools}:/usr/bin:/bin", "STOP": stop}
        places = map(str, (self.folder, self.build, self.base, self.config))
        return subprocess.Popen([sys.executable, "-c", BUILD_ONE, *places], cwd=paths.REPO, env=environment,
                                start_new_session=True, text=True, stderr=subprocess.PIPE)

    def objects(self) -> list[Path]:
        """Return the objects that are there."""
        return sorted((self.base / "o-vanilla").glob("*.o"))


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_interrupted_build_resumes(tmp_path: Path, how: signal.Signals) -> None:
    """A build that is killed half-way leaves no image and no lock; the next makes what is missing and nothing twice."""
    shop = Workshop(tmp_path)
    first = shop.start("6")
    while len(shop.objects()) < 5 and first.poll() is None:
        time.sleep(0.01)
    os.killpg(first.pid, how)
    first.communicate()
    made = {path: path.stat().st_mtime_ns for path in shop.objects()}
    assert first.returncode != 0 and len(made) == 5
    assert not (shop.build / "vanilla/bzImage").exists()
    second = shop.start()
    said = second.communicate()[1]
    assert second.returncode == 0, said
    assert {path: path.stat().st_mtime_ns for path in made} == made
    assert len(shop.objects()) == 20 and "vanilla: 15 objects compiled" in said
    assert (shop.build / "vanilla/bzImage").read_text(encoding="utf-8").split() == [p.read_text().strip()
                                                                                   for p in shop.objects()]


@pytest.mark.soak
def test_interrupted_kernel_boots() -> None:
    """A real build that is killed while it compiles is ended by the next, and the kernel boots."""
    folder = build.objects_of("quire") / "mm"
    for path in folder.glob("*.o"):
        path.unlink()
    command = [sys.executable, "-m", "guest.build", "quire"]
    with subprocess.Popen(command, cwd=paths.REPO, start_new_session=True) as first:
        while not list(folder.glob("*.o")) and first.poll() is None:
            time.sleep(0.01)
        os.killpg(first.pid, signal.SIGKILL)
    assert first.returncode == -signal.SIGKILL
    subprocess.run(command, cwd=paths.REPO, check=True)
    assert boot.run("true").ok


def test_interrupted_configuration_begins_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A configuration without its stamp, or of other fragments, is made anew."""
    shop = Workshop(tmp_path)
    monkeypatch.setattr(paths, "BASE", shop.base)
    monkeypatch.setattr(paths, "BUILD", shop.build)
    monkeypatch.setattr(paths, "CONFIG", shop.config)
    monkeypatch.setenv("PATH", f"{shop.tools}:/usr/bin:/bin")
    (shop.build / "vanilla").mkdir()
    objects = shop.base / "o-vanilla"
    objects.mkdir()
    (objects / ".config").write_text("half a line", encoding="utf-8")
    build.configure("vanilla")
    assert (objects / ".config").read_text(encoding="utf-8") == "CONFIG_TINY=y\nCONFIG_GUEST=y\n"


def test_interrupted_tree_is_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An interruption between two files leaves a tree that the next run brings up to date."""
    base, target = tmp_path / "base", tmp_path / "tree"
    for folder in (base, target):
        (folder / "mm").mkdir(parents=True)
        for name in ("a.c", "b.c", "c.c"):
            (folder / "mm" / name).write_text("old\n", encoding="utf-8")
    staged = {}
    for name in ("mm/a.c", "mm/b.c", "mm/c.c"):
        staged[name] = tmp_path / Path(name).name
        staged[name].write_text("new\n", encoding="utf-8")
    replace = tree._replace  # pylint: disable=protected-access

    def stop_at_b(source: Path, to: Path) -> None:
        if to.name == "b.c":
            raise KeyboardInterrupt
        replace(source, to)

    with monkeypatch.context() as patch:
        patch.setattr(tree, "_replace", stop_at_b)
        with pytest.raises(KeyboardInterrupt):
            tree.sync(base, target, staged)
    assert tree.sync(base, target, staged) == ["mm/b.c", "mm/c.c"]
    # What was touched before the interruption is the base's again when nothing of ours is left.
    assert tree.sync(base, target, {}) == ["mm/a.c", "mm/b.c", "mm/c.c"]


def test_interrupted_unpacking_begins_again(tmp_path: Path) -> None:
    """Half of a base is not taken for one."""
    source = tmp_path / "linux"
    source.mkdir()
    (source / "Makefile").write_text("VERSION = 6\nPATCHLEVEL = 12\nSUBLEVEL = 1\n", encoding="utf-8")
    (tmp_path / "base.new").mkdir()
    (tmp_path / "base.new/half").touch()
    assert tree.unpack_base(source, tmp_path / "base", "6.12", ["6.12.1"]) == "6.12.1"
    assert not (tmp_path / "base/half").exists() and not (tmp_path / "base.new").exists()


def build_main(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    """Run `guest.build vanilla`, which must fail, and return the line that it says."""
    assert build.main(["vanilla"]) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1, said
    return said


def test_missing_tools_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                 capsys: pytest.CaptureFixture[str]) -> None:
    """A host without a compiler is told what to install, before anything is unpacked."""
    (tmp_path / "make").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    said = build_main(monkeypatch, capsys)
    assert "gcc" in said and "make packages" in said and " make," not in said


def test_disk_that_fills_up(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The disk may fill up although there was room; what is built stays, and the error says so."""
    def full() -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(tree, "make_base", full)
    said = build_main(monkeypatch, capsys)
    assert "No space left" in said and "make room" in said and "goes on" in said


def test_no_virtme(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without virtme-ng no guest starts, and the error says where it comes from."""
    monkeypatch.setattr(boot, "_find", lambda program: None)
    with pytest.raises(boot.BootError, match="make packages"):
        boot._vng(tmp_path, tmp_path, "1G", 1, "", False, False, 1)  # pylint: disable=protected-access


@pytest.mark.parametrize("last, status, reason", [
    ("exit 1", boot.DIED, "ended without a status"),
    ("echo started > {folder}/protocol; exit 1", boot.DIED, "give less --memory"),
    ("echo started > {folder}/protocol; kill -KILL $$", boot.DIED, "killed for memory"),
    ("echo started > {folder}/protocol; sleep 600", boot.HUNG, "did not end within 1 s"),
])
def test_guests_that_die(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, last: str, status: int, reason: str) -> None:
    """QEMU that ends before or after the command's start, and one that hangs, each have their status and advice."""
    (tmp_path / "quire").mkdir()
    (tmp_path / "quire/bzImage").touch()
    monkeypatch.setattr(paths, "BUILD", tmp_path)
    monkeypatch.setattr(boot, "_vng", lambda folder, *rest: ["sh", "-c", last.format(folder=folder)])
    result = boot.run("true", memory="1G", timeout=1, kvm=False)
    assert result.status == status and reason in result.reason
