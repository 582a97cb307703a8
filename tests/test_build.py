# SPDX-License-Identifier: GPL-2.0
"""Interrupted builds, hosts that lack something, and guests that die; all tests but the soak test use fakes."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bench import runner
from guest import boot, build, paths, tree

# Makes the files that guest.build asks for, and no object twice. Before the object STOP it waits to be killed. The
# first eight objects are those of the folders that can be built alone.
FAKE_MAKE = """#!/bin/sh
for word; do case $word in O=*) out=${word#O=};; esac; goal=$word; done
mkdir -p $out/arch/x86/boot
case $goal in
tinyconfig) echo CONFIG_TINY=y > $out/.config ;;
olddefconfig) ;;
bzImage|ipc/)
	[ -z "$SAYS" ] || { seq 100; echo "$SAYS"; exit 2; }
	i=0
	last=20
	[ $goal = bzImage ] || last=8
	while [ $((i += 1)) -le $last ]; do
		[ -e $out/$i.o ] && continue
		echo "  CC      $i.o"
		[ $i = "$STOP" ] && sleep 600
		echo $i > $out/$i.o.tmp && mv $out/$i.o.tmp $out/$i.o
	done
	[ $goal = bzImage ] || exit 0
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

    def start(self, stop: str = "") -> subprocess.Popen[str]:
        """Begin a build, in a process group of its own."""
        environment = {**os.environ, "PATH": f"{self.tools}:/usr/bin:/bin", "STOP": stop}
        places = map(str, (self.folder, self.build, self.base, self.config))
        return subprocess.Popen([sys.executable, "-c", BUILD_ONE, *places], cwd=paths.REPO, env=environment,
                                start_new_session=True, text=True, stderr=subprocess.PIPE)

    def enter(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Make `guest.build` in this process build here, too."""
        for name, path in {"REPO": self.folder, "BUILD": self.build, "BASE": self.base, "CONFIG": self.config}.items():
            monkeypatch.setattr(paths, name, path)
        monkeypatch.setenv("PATH", f"{self.tools}:/usr/bin:/bin")

    def objects(self) -> list[Path]:
        """Return the objects that exist."""
        return sorted((self.base / "o-vanilla").glob("*.o"))


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_interrupted_build_resumes(tmp_path: Path, how: signal.Signals) -> None:
    """A killed build leaves no image and no lock; the next makes what is missing, and nothing twice."""
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
    assert (shop.build / "vanilla/objects").read_text(encoding="utf-8") == "20"
    assert (shop.build / "vanilla/bzImage").read_text(encoding="utf-8").split() == [p.read_text().strip()
                                                                                   for p in shop.objects()]


def test_killed_build_leaves_no_cut_command(tmp_path: Path) -> None:
    """Command files that a killed build has left cut are deleted before the next; older and whole ones are not."""
    shop = Workshop(tmp_path)
    first = shop.start("6")
    while len(shop.objects()) < 5 and first.poll() is None:
        time.sleep(0.01)
    files = {".1.o.cmd": ("savedcmd_1.o := gcc\n\n$(deps_1.o):\n", True), ".2.o.cmd": ("savedcmd_2.o := g", False),
             ".3.a.cmd": ("savedcmd_3.a := ar\n", False), ".4.a.cmd": ("savedcmd_4.a := ar\n", True)}
    folder = shop.base / "o-vanilla"
    for name, (text, _) in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    os.utime(folder / ".4.a.cmd", (1, 1))
    os.killpg(first.pid, signal.SIGKILL)
    first.communicate()
    second = shop.start()
    said = second.communicate()[1]
    assert second.returncode == 0, said
    assert {name: (folder / name).exists() for name in files} == {name: kept for name, (_, kept) in files.items()}
    (folder / ".2.o.cmd").write_text("savedcmd_2.o := g", encoding="utf-8")
    assert shop.start().wait() == 0 and (folder / ".2.o.cmd").exists()


def test_objects_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Building objects makes no kernel. A whole build completes and counts them; its kernel survives the next one."""
    shop = Workshop(tmp_path)
    shop.enter(monkeypatch)
    monkeypatch.setattr(tree, "make_base", lambda: None)
    kept = ("bzImage", "objects", "origin.json")
    assert build.main(["--objects", "vanilla"]) == 0
    assert "vanilla: 8 objects compiled" in capsys.readouterr().err and len(shop.objects()) == 8
    assert {path.name for path in (shop.build / "vanilla").iterdir()} == {"config", "configure.log", "build.log"}
    assert build.main(["vanilla", "--objects", "vanilla"]) == 0
    said = capsys.readouterr().err
    assert "vanilla: 12 objects compiled" in said and said.count("objects compiled") == 1
    assert (shop.build / "vanilla/objects").read_text(encoding="utf-8") == "20"
    whole = {name: (shop.build / "vanilla" / name).stat() for name in kept}
    shop.objects()[0].unlink()
    assert build.main(["--objects", "vanilla"]) == 0
    assert "vanilla: 1 objects compiled" in capsys.readouterr().err
    assert {name: (shop.build / "vanilla" / name).stat().st_mtime_ns for name in kept} == {
        name: stat.st_mtime_ns for name, stat in whole.items()}


def test_configuration_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A variant that is only configured has its configuration in build/, and no object."""
    shop = Workshop(tmp_path)
    shop.enter(monkeypatch)
    monkeypatch.setattr(tree, "make_base", lambda: None)
    assert build.main(["--configure", "vanilla"]) == 0
    assert {path.name for path in (shop.build / "vanilla").iterdir()} == {"config", "configure.log"}
    assert not shop.objects()


def test_builds_are_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each build notes its time, its objects, and ccache's hits and misses among its own compilations."""
    shop = Workshop(tmp_path)
    shop.enter(monkeypatch)
    monkeypatch.setattr(tree, "make_base", lambda: None)
    make = FAKE_MAKE.replace("bzImage|ipc/)", "bzImage|ipc/)\n\tprintf \"$CACHE\" >>$CCACHE_STATSLOG")
    shop.script(shop.tools / "make", make)
    hit, miss = "# a.c\\ndirect_cache_hit\\nlocal_storage_hit\\n", "# b.c\\ncache_miss\\ndirect_cache_miss\\n"
    monkeypatch.setenv("CACHE", f"{hit}{miss}# c.c\\npreprocessed_cache_hit\\n{miss}{hit}")
    assert build.main(["--objects", "vanilla"]) == 0
    monkeypatch.setenv("CACHE", miss)
    assert build.main(["vanilla"]) == 0
    noted = [(one["phase"], one["objects"], one["hits"], one["misses"]) for one in paths.notes("phases")]
    assert noted == [("objects of vanilla", 8, 3, 2), ("build of vanilla", 12, 0, 1)]


@pytest.mark.soak
def test_interrupted_kernel_boots() -> None:
    """A real build that is killed while it compiles is completed by the next, and the kernel boots."""
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
    """A configuration without its stamp, or made from other fragments, is made anew."""
    shop = Workshop(tmp_path)
    shop.enter(monkeypatch)
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
    replace = tree._replace

    def stop_at_b(source: Path, to: Path) -> None:
        if to.name == "b.c":
            raise KeyboardInterrupt
        replace(source, to)

    with monkeypatch.context() as patch:
        patch.setattr(tree, "_replace", stop_at_b)
        with pytest.raises(KeyboardInterrupt):
            tree.sync(base, target, staged)
    assert tree.sync(base, target, staged) == ["mm/b.c", "mm/c.c"]
    # When nothing of ours is left, the files touched before the interruption have the base's content again.
    assert tree.sync(base, target, {}) == ["mm/a.c", "mm/b.c", "mm/c.c"]


def test_interrupted_unpacking_begins_again(tmp_path: Path) -> None:
    """A base that was only partly unpacked is unpacked again."""
    source = tmp_path / "linux"
    source.mkdir()
    (source / "Makefile").write_text("VERSION = 6\nPATCHLEVEL = 12\nSUBLEVEL = 1\n", encoding="utf-8")
    (tmp_path / "base.new").mkdir()
    (tmp_path / "base.new/half").touch()
    assert tree.unpack_base(source, tmp_path / "base", "6.12", ["6.12.1"]) == "6.12.1"
    assert not (tmp_path / "base/half").exists() and not (tmp_path / "base.new").exists()


def build_main(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    """Run `guest.build vanilla`, which must fail, and return its error, which must be one line."""
    assert build.main(["vanilla"]) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1, said
    return said


def test_missing_tools_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                 capsys: pytest.CaptureFixture[str]) -> None:
    """On a host without a compiler, the error says what to install, before anything is unpacked."""
    (tmp_path / "make").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    said = build_main(monkeypatch, capsys)
    assert "gcc" in said and "make packages" in said and " make," not in said


def test_disk_that_fills_up(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The disk may fill up during a build although there was room at its start."""
    def full() -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(tree, "make_base", full)
    said = build_main(monkeypatch, capsys)
    assert said == "error: [Errno 28] No space left on device: make room and run it again\n"


@pytest.mark.parametrize("says, advice", [
    ("mm/quire/core/core.c:1: error: what", "fix that and run it again"),
    ("ld: final link failed: No space left on device", "make room and run it again"),
    ("gcc: fatal error: Killed signal terminated program cc1", "free memory or add swap, and run it again"),
])
def test_failed_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], says: str,
                      advice: str) -> None:
    """The end of the log comes first; the last line names the log, and its advice depends on what the log says."""
    Workshop(tmp_path).enter(monkeypatch)
    monkeypatch.setattr(tree, "make_base", lambda: None)
    monkeypatch.setenv("SAYS", says)
    assert build.main(["vanilla"]) == 1
    *details, last = capsys.readouterr().err.splitlines()
    assert len(details) == 40 and details[-1] == f"  {says}"
    assert last == ("error: vanilla: the build failed, build/vanilla/build.log says why: "
                    f"{advice}; the build resumes where it stopped")


@pytest.mark.parametrize("left", ["", '{"com'])
def test_notes_that_are_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: str) -> None:
    """Notes beside a kernel that an interruption cut off count as missing, and are written again."""
    shop = Workshop(tmp_path)
    shop.enter(monkeypatch)
    monkeypatch.setattr(paths, "TREE", tmp_path / "build/tree")
    monkeypatch.setattr(runner, "REPO", tmp_path)
    (shop.build / "vanilla").mkdir()
    for name in ("tree.json", "vanilla/origin.json", "vanilla/objects"):
        (shop.build / name).write_text(left, encoding="utf-8")
    assert runner.origin_of_kernel.__wrapped__("vanilla")["commit"] == "of an unknown commit"
    build.build("vanilla")
    assert paths.read_stamp(shop.build / "vanilla/origin.json")["changed"] == "no"
    assert paths.read_stamp(shop.build / "vanilla/objects") == 20


class WellGuest:
    """A guest whose command has succeeded; the class counts its instances."""

    started = 0

    def __init__(self, *_: object) -> None:
        WellGuest.started += 1

    def wait(self, *_: object) -> bool:
        """Say that the guest has ended."""
        return True

    def said(self, _: str) -> str:
        """Return its status."""
        return "0"

    def kill(self) -> None:
        """Do nothing: the guest has ended."""


@pytest.mark.parametrize("left", ["", '{"wor'])
def test_answer_about_kvm_that_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: str) -> None:
    """If the stored answer is cut off, KVM is probed again, once."""
    monkeypatch.setattr(paths, "BUILD", tmp_path)
    monkeypatch.setattr(boot, "image_of", lambda kernel: tmp_path / kernel)
    monkeypatch.setattr(boot.os, "access", lambda *_: True)
    monkeypatch.setattr(boot, "_vng", lambda *_: [])
    monkeypatch.setattr(boot, "_Guest", WellGuest)
    (tmp_path / "kvm.json").write_text(left, encoding="utf-8")
    before = WellGuest.started
    assert boot.kvm_works("quire") and boot.kvm_works("quire")
    assert WellGuest.started == before + 1


@pytest.mark.parametrize("absent", ["vng", "qemu-system-x86_64"])
def test_no_emulator(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, absent: str) -> None:
    """Without virtme-ng or QEMU no guest starts, and the error says how to install them."""
    monkeypatch.setattr(boot, "_find", lambda program: None if program == absent else f"/usr/bin/{program}")
    with pytest.raises(boot.BootError, match=f"{absent}.* is missing: make packages"):
        boot._vng(tmp_path, tmp_path, "1G", 1, "", False, False, 1)


@pytest.mark.parametrize("last, status, reason", [
    ("exit 1", boot.DIED, "ended without a status"),
    ("echo started > {folder}/protocol; exit 1", boot.DIED, "add swap or give less (guest/run --memory)"),
    ("echo started > {folder}/protocol; kill -KILL $$", boot.DIED, "killed for memory"),
    ("echo started > {folder}/protocol; sleep 600", boot.HUNG, "did not end within 1 s: it hangs, or needs more"),
])
def test_guests_that_die(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, last: str, status: int, reason: str) -> None:
    """A QEMU that ends before or after the command starts, or that hangs, has its own status and advice."""
    (tmp_path / "quire").mkdir()
    (tmp_path / "quire/bzImage").touch()
    monkeypatch.setattr(paths, "BUILD", tmp_path)
    monkeypatch.setattr(boot, "_vng", lambda folder, *rest: ["sh", "-c", last.format(folder=folder)])
    result = boot.run("true", memory="1G", timeout=1, kvm=False)
    assert result.status == status and reason in result.reason


@pytest.mark.parametrize("limit, last, reason", [
    ("BOOT_LIMIT_OTHERS", "sleep 600", "the guest did not reach its init within 1 s: run fewer guests at once"),
    ("POWEROFF_LIMIT", "printf 'started\\nended\\n' > {folder}/protocol; sleep 600", "not power off within 1 s: "),
    ("POWEROFF_LIMIT", "printf 'started\\nended\\nstatus 0\\n' > {folder}/protocol; sleep 600",
     "not power off within 1 s: "),
])
def test_guests_that_hang(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, limit: str, last: str, reason: str) -> None:
    """A guest that hangs before or after its command is killed, and the reason says where to look."""
    (tmp_path / "quire").mkdir()
    (tmp_path / "quire/bzImage").touch()
    monkeypatch.setattr(paths, "BUILD", tmp_path)
    monkeypatch.setattr(boot, "_vng", lambda folder, *rest: ["sh", "-c", last.format(folder=folder)])
    monkeypatch.setattr(boot, "ATTEMPTS", 1)
    monkeypatch.setattr(boot, limit, 1.0)
    result = boot.run("true", memory="1G", timeout=1, kvm=False)
    assert result.status == boot.HUNG and reason in result.reason and "guest/run --console" in result.reason


STATUS = "printf 'started\\nended\\nstatus {}\\n' >$folder/protocol"
SHOT = "echo started >$folder/protocol; echo 137 >$folder/qemu.status"


@pytest.mark.parametrize("starts, rerun, status, reasons", [
    (["exit 1", "exit 1", STATUS.format(0)], True, 0, ["without a status", "without a status"]),
    (["exit 1", "exit 1", "exit 1"], True, boot.DIED, ["without a status", "without a status"]),
    ([SHOT, STATUS.format(0)], True, 0, ["without a status"]),
    ([SHOT, SHOT], True, boot.DIED, ["without a status"]),
    ([SHOT, "exit 1", STATUS.format(3)], True, 3, ["without a status", "without a status"]),
    (["echo 137 >$folder/qemu.status", "echo started >$folder/protocol"], True, boot.DIED, ["without a status"]),
    ([SHOT], False, boot.DIED, []),
    ([f"{SHOT}; {STATUS.format(boot.DIED)}"], True, boot.DIED, []),
    ([f"{SHOT}; echo 'Kernel panic - not syncing: x' >&2"], True, boot.SPLAT, []),
    ([f"{SHOT}; sleep 600"], True, boot.HUNG, []),
    (["echo 'Kernel panic - not syncing: x' >&2"], True, boot.SPLAT, []),
    (["echo started >$folder/protocol; echo 0 >$folder/qemu.status; exit 255"], True, boot.DIED, []),
    (["echo started >$folder/protocol; echo 1 >$folder/qemu.status; exit 255"], True, boot.DIED, []),
    (["echo started >$folder/protocol; kill -KILL $$"], True, boot.DIED, []),
])
def test_guests_that_are_started_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, starts: list[str], rerun: bool,
                                       status: int, reasons: list[str]) -> None:
    """A guest that its host failed is started again and noted; one that complains, ends, hangs or powers off is not."""
    (tmp_path / "quire").mkdir()
    (tmp_path / "quire/bzImage").touch()
    monkeypatch.setattr(paths, "BUILD", tmp_path)
    for number, start in enumerate(starts):
        (tmp_path / f"start{number}").write_text(start, encoding="utf-8")
    script = (f"number=$(cat {tmp_path}/number 2>/dev/null || echo 0); echo $((number + 1)) >{tmp_path}/number; "
              f". {tmp_path}/start$number")
    monkeypatch.setattr(boot, "_vng", lambda folder, *rest: ["sh", "-c", f"folder={folder}; {script}"])
    result = boot.run("true", memory="1G", timeout=1, kvm=False, rerun=rerun)
    noted = paths.notes("restarts")
    assert result.status == status and (tmp_path / "number").read_text(encoding="utf-8") == f"{len(starts)}\n"
    assert len(noted) == len(reasons) and all(told in one["reason"] for one, told in zip(noted, reasons, strict=True))
    assert [one["attempt"] for one in noted] == list(range(1, len(noted) + 1))
    assert all("::test_guests_that_are_started_again[" in one["test"] for one in noted)


@pytest.mark.parametrize("does, status", [("kill -KILL $$", "137"), ("exit 1", "1"), ("echo $2", "0")])
def test_how_qemu_ended_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, does: str, status: str) -> None:
    """The script that virtme-ng runs as QEMU passes on arguments, output and status, and stores the status."""
    fake = tmp_path / "fake"
    fake.write_text(f"#!/bin/sh\n{does}\n", encoding="utf-8")
    fake.chmod(0o755)
    monkeypatch.setattr(boot, "_find", lambda _: str(fake))
    boot._write_scripts(tmp_path, "true")
    done = subprocess.run([tmp_path / "qemu", "-m", "1 G"], text=True, check=False, stdout=subprocess.PIPE)
    assert (tmp_path / "qemu.status").read_text(encoding="utf-8") == f"{status}\n"
    assert str(done.returncode) == status and done.stdout == ("1 G\n" if status == "0" else "")
