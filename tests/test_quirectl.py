# SPDX-License-Identifier: GPL-2.0
"""quirectl on a fake tree: what it prints, what it writes, and what its errors advise."""

from __future__ import annotations

import errno
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from quirelib import cli, commands

ROOT = Path(__file__).resolve().parent.parent
TOOL = ROOT / "tool" / "quirectl"
COMMANDS = ("status", "enable", "disable", "drain", "stats", "knobs", "gauges", "save", "apply", "ps", "rmap", "text",
            "top", "metrics", "bugreport", "record", "boot", "default")


@pytest.fixture(name="tree")
def _tree(tmp_path: Path) -> Path:
    """Return a root with two features, a sysctl of the daemon and two processes."""
    top = tmp_path / "sys/kernel/mm/quire"
    files = {
        top / "version": "0.1",
        top / "fork/enabled": "0",
        top / "fork/state": "off",
        top / "fork/min_tables": "512",
        top / "fork/stats/shared": "12",
        top / "fork/stats/fallback_pinned": "3",
        top / "prezero/enabled": "1",
        top / "prezero/state": "on",
        top / "prezero/scrub_now": "",
        top / "prezero/zeroed_blocks": "Node 0, zone DMA32 1 2\nNode 0, zone Normal 3 4",
        top / "prezero/stats/hit": "7",
        tmp_path / "proc/sys/vm/scrub_start": "100",
        tmp_path / "proc/sys/kernel/osrelease": "6.12.117-quire",
        tmp_path / "proc/cmdline": "root=/dev/vda quire=prezero console=ttyS0",
        tmp_path / "proc/42/comm": "redis-server",
        tmp_path / "proc/42/quire": "fork:\tin\nshared_tables:\t9",
        tmp_path / "proc/7/comm": "kthreadd",
    }
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n", encoding="utf-8")
    (top / "prezero/scrub_now").chmod(0o200)
    (top / "prezero/zeroed_blocks").chmod(0o444)
    return tmp_path


def run(tree: Path, *words: str) -> int:
    """Run quirectl on a tree, and return its exit status."""
    return cli.main(["--root", str(tree), *words])


def feature_file(tree: Path, name: str) -> Path:
    """Return a file of the tree's quire folder."""
    return tree / "sys/kernel/mm/quire" / name


def refuse_writes(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Make every write fail as the kernel would."""

    def fail(_fd: int, _data: bytes) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "write", fail)


def test_status(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Features appear in their order with their states."""
    assert run(tree, "status") == 0
    out = capsys.readouterr().out
    assert out.startswith("quire 0.1 on 6.12.117-quire\n")
    assert re.search(r"^  fork +off .*\n  prezero +on ", out, re.M)


def test_status_json(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The JSON output has the same states."""
    assert run(tree, "status", "--json") == 0
    data = json.loads(capsys.readouterr().out)
    assert data == {"version": "0.1", "kernel": "6.12.117-quire", "features": {"fork": "off", "prezero": "on"}}


def test_advice_when_nothing_is_on(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The command that status advises succeeds, and prints an option that switches features on."""
    feature_file(tree, "prezero/state").write_text("off\n", encoding="utf-8")
    assert run(tree, "status") == 0
    advised = re.search(r"at boot: quirectl (.*)$", capsys.readouterr().out, re.M)
    assert advised and run(tree, *advised.group(1).split()) == 0
    assert "boot option: quire=on\n" in capsys.readouterr().out
    assert run(tree, "boot") == 0
    assert "boot option: quire=off\nnothing is on now" in capsys.readouterr().out


def test_status_names_what_warned(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A feature that the kernel switched off is pointed out."""
    feature_file(tree, "fork/state").write_text("disabled_by_warning\n", encoding="utf-8")
    assert run(tree, "status") == 0
    assert "fork: the kernel found an inconsistency" in capsys.readouterr().out


def test_not_a_quire_kernel(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without the folder in sysfs, the error says that this is no quire kernel, and what to do."""
    assert run(tmp_path, "status") == 1
    err = capsys.readouterr().err
    assert "not a quire kernel" in err and "make demo" in err


@pytest.mark.parametrize(("command", "value"), [("enable", "1"), ("disable", "0"), ("drain", "2")])
def test_switching_writes_the_value(tree: Path, command: str, value: str) -> None:
    """Each command writes its number, to that feature only."""
    feature_file(tree, "prezero/enabled").write_text("x\n", encoding="utf-8")
    assert run(tree, command, "fork") == 0
    assert feature_file(tree, "fork/enabled").read_text(encoding="utf-8") == value + "\n"
    assert feature_file(tree, "prezero/enabled").read_text(encoding="utf-8") == "x\n"


def test_switching_all(tree: Path) -> None:
    """The word all means every feature that is built in."""
    assert run(tree, "drain", "all") == 0
    states = [feature_file(tree, f"{name}/enabled").read_text(encoding="utf-8")[0] for name in ("fork", "prezero")]
    assert states == ["2", "2"]


def test_switching_prints_the_way_back(
    tree: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A change of state comes with the command that undoes it."""
    real = os.write

    def write(fd: int, data: bytes) -> int:
        feature_file(tree, "fork/state").write_text("on\n", encoding="utf-8")
        return real(fd, data)

    monkeypatch.setattr(os, "write", write)
    assert run(tree, "enable", "fork") == 0
    assert capsys.readouterr().out == "fork: off -> on   (back: quirectl disable fork)\n"


@pytest.mark.parametrize(
    ("feature", "advice"), [("frok", "this kernel has: fork, prezero"), ("rmap", "rmap is not built into this kernel")]
)
def test_unknown_feature(tree: Path, feature: str, advice: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A wrong name, and a right one that this kernel lacks, are told apart."""
    assert run(tree, "enable", feature) == 1
    assert advice in capsys.readouterr().err


def test_not_root(tree: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A user is told to use sudo."""
    refuse_writes(monkeypatch, errno.EACCES)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert run(tree, "enable", "fork") == 1
    assert "only root may change this. Run the command with sudo." in capsys.readouterr().err


def test_enable_after_a_warning(
    tree: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A feature that warned stays off until the next boot, and root is not told to use sudo."""
    feature_file(tree, "fork/state").write_text("disabled_by_warning\n", encoding="utf-8")
    refuse_writes(monkeypatch, errno.EPERM)
    assert run(tree, "enable", "fork") == 1
    err = capsys.readouterr().err
    assert "until the next boot" in err and "dmesg" in err and "sudo" not in err


@pytest.mark.parametrize(("number", "command", "advice"), [
    (errno.EBUSY, ("drain", "fork"), "could not undo everything"),
    (errno.EAGAIN, ("drain", "fork"), "could not undo everything"),
    (errno.ENODEV, ("knobs", "set", "prezero", "engine", "dma"), "no DMA channel"),
    (errno.EBUSY, ("knobs", "set", "prezero", "engine", "dma"), "until the next boot"),
])
def test_refusals_of_drains_and_engines(tree: Path, monkeypatch: pytest.MonkeyPatch, number: int,
                                        command: tuple[str, ...], advice: str,
                                        capsys: pytest.CaptureFixture[str]) -> None:
    """The same number means something else for a drain, for an engine and for a switch."""
    feature_file(tree, "prezero/engine").write_text("cpu\n", encoding="utf-8")
    refuse_writes(monkeypatch, number)
    assert run(tree, *command) == 1
    assert advice in capsys.readouterr().err


def test_all_goes_on_after_a_refusal(
    tree: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One feature that refuses does not keep the others from being switched."""
    real, calls = os.write, []

    def write(fd: int, data: bytes) -> int:
        calls.append(data)
        if len(calls) == 1:
            raise OSError(errno.EBUSY, "busy")
        return real(fd, data)

    monkeypatch.setattr(os, "write", write)
    assert run(tree, "disable", "all") == 1
    assert "disable fork: the feature is busy" in capsys.readouterr().err
    assert feature_file(tree, "prezero/enabled").read_text(encoding="utf-8") == "0\n"


def test_stats(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Counters appear under their feature, or under all."""
    assert run(tree, "stats", "fork") == 0
    out = capsys.readouterr().out
    assert re.search(r"^fork +fallback_pinned +3\nfork +shared +12$", out, re.M) and "prezero" not in out
    assert run(tree, "stats", "--json") == 0
    assert json.loads(capsys.readouterr().out)["prezero"] == {"hit": 7}


def test_stats_watch_prints_rates(
    tree: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The second output has the rate since the first."""
    clock = [100.0]

    def sleep(seconds: float) -> None:
        clock[0] += seconds
        feature_file(tree, "prezero/stats/hit").write_text("27\n", encoding="utf-8")

    monkeypatch.setattr(commands.time, "sleep", sleep)
    monkeypatch.setattr(commands.time, "monotonic", lambda: clock[0])
    assert run(tree, "stats", "prezero", "--watch", "4", "--count", "2") == 0
    assert re.search(r"^prezero +hit +27 +5\.0$", capsys.readouterr().out, re.M)


def test_knobs_list_and_get(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Switches and counters are not knobs; the daemon's sysctls are prezero's knobs; a write-only file is not read."""
    assert run(tree, "knobs", "list", "--json") == 0
    assert json.loads(capsys.readouterr().out) == {
        "fork": {"min_tables": "512"},
        "prezero": {"scrub_now": "-", "scrub_start": "100"},
    }
    assert run(tree, "knobs", "get", "fork", "min_tables") == 0
    assert capsys.readouterr().out == "512\n"


def test_knobs_set(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A knob is written, and the command that undoes it is printed."""
    assert run(tree, "knobs", "set", "prezero", "scrub_start", "250") == 0
    assert (tree / "proc/sys/vm/scrub_start").read_text(encoding="utf-8") == "250\n"
    assert "100 -> 250   (back: quirectl knobs set prezero scrub_start 100)" in capsys.readouterr().out


def test_knobs_set_bad_value(tree: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The error names the refused value, and the value that the knob keeps."""
    refuse_writes(monkeypatch, errno.EINVAL)
    assert run(tree, "knobs", "set", "fork", "min_tables", "lots") == 1
    err = capsys.readouterr().err
    assert "'lots' (it stays 512). It takes 1 to 1073741824 (page tables).\n" in err
    assert feature_file(tree, "fork/min_tables").read_text(encoding="utf-8") == "512\n"


def test_knobs_set_without_a_value(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An empty value, which the kernel takes for success, is refused."""
    assert run(tree, "knobs", "set", "fork", "min_tables", "") == 1
    assert "the value is empty. It takes 1 to 1073741824" in capsys.readouterr().err


def test_gauges_are_no_knobs(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Gauges are listed apart. The error about setting one says that it is a gauge, and nothing is written."""
    assert run(tree, "gauges", "--json") == 0
    assert list(json.loads(capsys.readouterr().out)["prezero"]) == ["zeroed_blocks"]
    before = feature_file(tree, "prezero/zeroed_blocks").read_text(encoding="utf-8")
    assert run(tree, "knobs", "get", "prezero", "zeroed_blocks") == 0 and capsys.readouterr().out == before
    assert run(tree, "knobs", "set", "prezero", "zeroed_blocks", "1") == 1
    error = capsys.readouterr().err
    assert "prezero/zeroed_blocks is a gauge: it is read-only" in error and "dmesg" not in error
    assert "The knobs of prezero: scrub_now, scrub_start." in error
    assert feature_file(tree, "prezero/zeroed_blocks").read_text(encoding="utf-8") == before


def test_values_of_several_lines_keep_their_column(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each further line of a value is below its first one."""
    assert run(tree, "gauges") == 0
    head, first, second = capsys.readouterr().out.splitlines()
    column = head.index("VALUE")
    assert first.startswith("prezero  zeroed_blocks  Node 0, zone DMA32 1 2")
    assert second == " " * column + "Node 0, zone Normal 3 4" and first[column:].startswith("Node 0")


def test_explanation(tree: Path, tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]) -> None:
    """Any kernel explains bounds, default and unit; a quire kernel explains only the knobs that it has."""
    assert run(tree, "knobs", "explain") == 0
    out = capsys.readouterr().out
    assert re.search(r"^fork +min_tables +1 to 1073741824 +16 +page tables +\w", out, re.M) and "rmap" not in out
    assert run(tmp_path_factory.mktemp("other"), "knobs", "explain", "rmap") == 0
    assert re.search(r"^rmap +defer_faults +0 to 4096 +32 ", capsys.readouterr().out, re.M)
    assert run(tmp_path_factory.mktemp("other"), "knobs", "explain", "frok") == 1


def test_unknown_knob(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The error about a wrong knob lists the right ones, and no file is created."""
    assert run(tree, "knobs", "set", "fork", "treshold", "1") == 1
    assert "its knobs: min_tables" in capsys.readouterr().err
    assert not feature_file(tree, "fork/treshold").exists()


def test_ps(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Processes with the file are listed, the others skipped."""
    assert run(tree, "ps") == 0
    out = capsys.readouterr().out
    assert re.search(r"^42 +redis-server +fork: in; shared_tables: 9$", out, re.M) and "kthreadd" not in out


@pytest.mark.parametrize("command", ["ps", "rmap", "text"])
def test_no_such_process(tree: Path, capsys: pytest.CaptureFixture[str], command: str) -> None:
    """A process that does not exist is named, also beside one that does."""
    assert run(tree, command, "42", "4242") == 1
    assert capsys.readouterr().err.endswith("there is no process 4242, or this user may not see it.\n")


@pytest.mark.parametrize("words", [("stats", "--json", "--watch"), ("stats", "--count", "2"),
                                   ("top", "--json", "--count", "2")])
def test_options_that_exclude_each_other(tree: Path, capsys: pytest.CaptureFixture[str],
                                         words: tuple[str, ...]) -> None:
    """An option that would have no effect is refused."""
    assert run(tree, *words) == 1
    assert "--" in capsys.readouterr().err


def test_ps_without_any(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing to show is an error with advice."""
    (tree / "proc/42/quire").unlink()
    assert run(tree, "ps") == 1
    assert "as root" in capsys.readouterr().err


def test_rmap(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """rmap prints what each process's reverse map takes, and the sum; it skips processes without these lines."""
    told = ("rmap_areas: {}\nrmap_borrowed: {}\nrmap_inside: {}\nrmap_links: {}\nrmap_links_kb: {}\n"
            "rmap_chain_lengths: 1:2 more:0\n")
    (tree / "proc/43").mkdir()
    for pid, numbers in ((42, (10, 3, 2, 20, 1)), (43, (5, 0, 0, 30, 2))):
        (tree / f"proc/{pid}/comm").write_text("server\n", encoding="utf-8")
        (tree / f"proc/{pid}/quire").write_text("fork:\tin\n" + told.format(*numbers), encoding="utf-8")
    (tree / "proc/7/quire").write_text("fork:\tin\n", encoding="utf-8")
    assert run(tree, "rmap") == 0
    out = capsys.readouterr().out
    assert re.search(r"^ +ReverseMaps +15 +3 +2 +50 +3$", out, re.M) and "kthreadd" not in out
    assert run(tree, "rmap", "43", "--json") == 0
    data = json.loads(capsys.readouterr().out)
    assert data["total"] == {"areas": 5, "borrowed": 0, "inside": 0, "links": 30, "kB": 2}
    assert len(data["processes"]) == 1
    assert run(tree, "rmap", "7") == 1
    assert "as root" in capsys.readouterr().err


SMAPS = """\
00400000-00b6f000 r--p 00000000 fe:00 12    /opt/node
Size:               7612 kB
FilePmdMapped:      6144 kB
00b72000-025fe000 r-xp 00772000 fe:00 12    /opt/node
Size:              27184 kB
FilePmdMapped:     10240 kB
7f0000201000-7f0000701000 r-xp 00000000 fe:00 13    /opt/lib odd.so
FilePmdMapped:         0 kB
7ffc00000000-7ffc00002000 r-xp 00000000 00:00 0    [vdso]
FilePmdMapped:         0 kB
"""


def test_text(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tree / "proc/42/smaps").write_text(SMAPS, encoding="utf-8")
    assert run(tree, "text", "42", "--json") == 0
    files = {f["file"]: f for f in json.loads(capsys.readouterr().out)}
    # Whole blocks from 0xc00000 to 0x2400000; the library's addresses and offsets are not equal modulo 2 MiB.
    assert files["/opt/node"] | {"pid": 0, "name": ""} == {
        "pid": 0, "name": "", "file": "/opt/node", "text_kB": 27184, "eligible_kB": 24576, "pmd_kB": 10240}
    assert files["/opt/lib odd.so"]["eligible_kB"] == 0 and len(files) == 2
    assert run(tree, "text") == 0
    out = capsys.readouterr().out
    assert re.search(r"^42 +redis-server +27184 +24576 +10240 +/opt/node$", out, re.M) and "odd.so" not in out


def test_text_without_any(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tree, "text") == 1
    assert "as root" in capsys.readouterr().err


def test_boot(tree: Path, tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]) -> None:
    """The option names what is on or what is asked for, on any kernel."""
    assert run(tree, "boot") == 0
    out = capsys.readouterr().out
    assert "boot option: quire=prezero\nbooted with: quire=prezero\n" in out and "update-grub" in out
    assert run(tmp_path_factory.mktemp("other"), "boot", "fork", "shm") == 0
    assert "boot option: quire=fork,shm\n" in capsys.readouterr().out
    assert run(tree, "boot", "frok") == 1
    (tree / "proc/cmdline").write_bytes(b"root=/dev/vda name=M\xfcller quire=fork\n")
    assert run(tree, "boot") == 0 and "booted with: quire=fork\n" in capsys.readouterr().out


def test_boot_of_a_newer_kernel(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A feature that only the kernel knows is as good as another, and what follows -- is not the kernel's."""
    feature_file(tree, "newer/enabled").parent.mkdir()
    feature_file(tree, "newer/enabled").write_text("1\n", encoding="utf-8")
    feature_file(tree, "newer/state").write_text("on\n", encoding="utf-8")
    (tree / "proc/cmdline").write_text("root=/dev/vda quire=fork quire=newer -- quire=init\n", encoding="utf-8")
    assert run(tree, "boot") == 0
    assert "boot option: quire=prezero,newer\nbooted with: quire=newer\n" in capsys.readouterr().out


def test_command_line() -> None:
    """A wrong command line gives status 2; the help names every command, and the man page documents each."""
    wrong = subprocess.run([sys.executable, str(TOOL), "knobs"], capture_output=True, text=True, check=False)
    assert wrong.returncode == 2
    text = subprocess.run([sys.executable, str(TOOL), "--help"], capture_output=True, text=True, check=True).stdout
    page = (ROOT / "docs/man/quirectl.8").read_text(encoding="utf-8")
    for command in COMMANDS:
        assert re.search(rf"^ +{command}\b", text, re.M)
        assert re.search(rf'^\.BR? "?{command}\b', page, re.M), command
