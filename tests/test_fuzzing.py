# SPDX-License-Identifier: GPL-2.0
"""suites/fuzz: what syzkaller is told, how its manager is run and read, and the table; no guest is fuzzed here."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import time
from pathlib import Path

import pytest

from guest import boot, build, paths
from quirelib.knobs import KNOBS
from suites import fuzz_user, fuzzing, publishing, storage

# Stands for syzkaller's manager: it finds one crash, shows its table, and writes its numbers again when it is ended.
MANAGER = r"""#!{python}
import json, pathlib, signal, sys
from http.server import BaseHTTPRequestHandler, HTTPServer
config, bench = (sys.argv[sys.argv.index(name) + 1] for name in ("-config", "-bench"))
config = json.loads(pathlib.Path(config).read_text())
class Table(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"Module,Filename,Function,Covered PCs,Total PCs\n,mm/quire/pt/pt.c,quire_pt_get,2,3\n"
                         b",mm/quire/pt/pt_test.c,two_users,0,3\n,mm/quire/core/core.c,__traceiter_pt_leave,0,3\n"
                         b",mm/quire/pt/pt.c,quire_pt_put,0,3\n,mm/memory.c,do_fault,1,1\n")
    def log_message(self, *arguments):
        pass
def write(programs):
    with open(bench, "a") as file:
        file.write(json.dumps({{"exec total": programs, "corpus": 7, "coverage": 90, "crashes": 1}}, indent=1) + "\n")
def end(*arguments):
    write(2345)
    sys.exit(0)
signal.signal(signal.SIGINT, end)
host, port = config["http"].split(":")
server = HTTPServer((host, int(port)), Table)
crash = pathlib.Path(config["workdir"], "crashes/0a")
crash.mkdir(parents=True)
(crash / "description").write_text("WARNING in quire_pt_put\n")
write(1234)
(crash / "log0").write_text("it crashed")
server.serve_forever()
"""


@pytest.fixture(name="manager")
def fixture_manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A manager that only pretends, and folders of its own."""
    script = tmp_path / "manager"
    script.write_text(MANAGER.format(python=sys.executable), encoding="utf-8")
    script.chmod(0o755)
    (tmp_path / "work").mkdir()
    (tmp_path / "work/key").touch()
    for name, value in (("MANAGER", script), ("WORK", tmp_path / "work"), ("HOME", tmp_path)):
        monkeypatch.setattr(fuzzing, name, value)
    monkeypatch.setattr(paths, "REPO", tmp_path)
    monkeypatch.setattr(storage, "FUZZ", tmp_path / "results/syzkaller.json")
    return script


def test_description_has_each_knob() -> None:
    """Programs can write values of each knob, all within its bounds, and each feature's switch."""
    told = fuzzing.description()
    for knob in KNOBS:
        listed = re.search(rf"^quire_{knob.feature}_{knob.name} = (.*)$", told, re.M)
        assert listed and f'["{fuzzing.path_of(knob)}"]' in told
        words = re.findall(r'"(\w+)"', listed[1])
        assert words and (knob.words or all(knob.low <= int(word) <= knob.high for word in words))
        assert not knob.words or words == ["cpu", "dma"]
    for feature in {knob.feature for knob in KNOBS}:
        assert f"/sys/kernel/mm/quire/{feature}/enabled" in told


def test_a_file_is_in_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs can open a file of which another process has written each page through a mapping, round after round."""
    monkeypatch.setattr(fuzz_user, "ROUNDS", 3)
    monkeypatch.setattr(fuzz_user.time, "sleep", lambda seconds: None)
    monkeypatch.setattr(sys, "argv", ["fuzz_user.py", str(tmp_path / "quire")])
    fuzz_user.main()
    written = (tmp_path / "quire").read_bytes()
    assert len(written) == fuzz_user.SIZE and set(written[::4096]) == {2}
    name = re.search(r"fuzz_user.py\" (\S+)$", fuzzing.INIT.read_text(encoding="utf-8"), re.M)
    assert name and f'string["{name[1]}"]' in fuzzing.description()


def test_described_calls() -> None:
    """Each call is described once, flags and resources that it names are there, and the planted one is not used."""
    told, calls = fuzzing.description(), fuzzing.our_calls()
    assert len(calls) == len(set(calls)) > 60
    assert set(re.findall(r"^(\w+\$quire\w*)\(", told, re.M)) == {*calls, *fuzzing.PLANTED}
    assert set(re.findall(r"\bflags\[(quire_\w+)\]", told)) <= set(re.findall(r"^(quire_\w+) =", told, re.M))
    assert set(re.findall(r"\bfd (fd_quire_\w+)", told)) <= set(re.findall(r"^resource (fd_quire_\w+)\[", told, re.M))


def test_seeds_use_calls_that_are_enabled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each program that syzkaller begins with consists of calls that it may use, and is written to a file of its own.
    """
    programs = fuzzing.seeds()
    assert len(programs) >= 4
    for program in programs:
        calls = [re.match(r"(?:r\d+ = )?(\w+(?:\$\w+)?)\(", line) for line in program.splitlines()]
        assert all(call and call[1] in {*fuzzing.CALLS, *fuzzing.our_calls()} for call in calls), program
    monkeypatch.setattr(fuzzing, "SOURCE", tmp_path)
    (tmp_path / "sys/linux/test").mkdir(parents=True)
    for name in ("mmap", "quire_77"):
        (tmp_path / "sys/linux/test" / name).touch()
    fuzzing.write_seeds()
    assert len(list((tmp_path / "sys/linux/test").glob("quire_*"))) == len(programs)
    assert (tmp_path / "sys/linux/test/mmap").exists() and not (tmp_path / "sys/linux/test/quire_77").exists()


def test_other_variants_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that is enabled does not bring its variants for drivers, and none that only other machines have is named.
    """
    (tmp_path / "sys/linux").mkdir(parents=True)
    calls = ("read", "read$FUSE", "read$quire", "write$tun", "ioctl$UFFDIO_API")
    (tmp_path / "sys/linux/sys.txt").write_text("".join(f"{call}(fd fd)\n" for call in calls), encoding="utf-8")
    (tmp_path / "sys/linux/arm.txt").write_text('meta arches["arm64"]\nread$arm(fd fd)\n', encoding="utf-8")
    (tmp_path / "sys/linux/x86.txt").write_text('meta arches["386", "amd64"]\nread$x86(fd fd)\n', encoding="utf-8")
    monkeypatch.setattr(fuzzing, "SOURCE", tmp_path)
    assert fuzzing.others(["read", "read$quire", "ioctl$UFFDIO_*"]) == ["read$FUSE", "read$x86"]


def test_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The manager gets an emulated guest of the kernel fuzz; with --plant its programs only provoke a warning."""
    monkeypatch.setattr(boot, "PLAIN_CPU", "-cpu some")
    monkeypatch.setattr(fuzzing, "SOURCE", tmp_path)
    (tmp_path / "sys/linux").mkdir(parents=True)
    (tmp_path / "sys/linux/fuse.txt").write_text("read$FUSE(fd fd)\n", encoding="utf-8")
    plain, planted = (fuzzing.settings(3, plant, 80, Path("/a/key")) for plant in (False, True))
    assert plain["vm"]["count"] == 3 and plain["vm"]["kernel"] == str(build.image_of("fuzz"))
    # This is how syzkaller knows that all takes longer.
    assert "-accel tcg" in plain["vm"]["qemu_args"] and "-cpu some" in plain["vm"]["qemu_args"]
    assert "quire.key=/a/key " in plain["vm"]["cmdline"] and f"init={fuzzing.INIT} " in plain["vm"]["cmdline"]
    assert plain["disable_syscalls"] == ["read$FUSE"] and not planted["disable_syscalls"]
    assert set(planted["enable_syscalls"]) == set(fuzzing.PLANTED)
    assert not set(planted["enable_syscalls"]) & set(plain["enable_syscalls"])
    # A planted crash is none of the corpus's.
    assert planted["workdir"] != plain["workdir"]
    json.dumps(plain)


def test_run(manager: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A run ends when a planted crash is found, ends the manager, and tells what it did; a crash is a failure."""
    assert manager.exists()
    found = fuzzing.fuzz(1, 1, plant=True)
    assert found == {"hours": 0.0, "executed": 2345, "corpus": 7, "functions": 2, "reached": 1,
                     "missed": ["quire_pt_put"], "crashes": ["WARNING in quire_pt_put"]}
    monkeypatch.setattr(fuzzing, "fuzz", lambda *arguments: found)
    monkeypatch.setattr(fuzzing, "build_it", lambda source: {"version": "v1"})
    monkeypatch.setattr(fuzzing.packages, "ensure", lambda group: None)
    monkeypatch.setattr(fuzzing.boot, "image_of", lambda variant: manager)
    monkeypatch.setattr(fuzzing.build, "image_of", lambda variant: manager)
    monkeypatch.setattr(fuzzing.paths, "BUILD", manager.parent)
    (manager.parent / "fuzz").mkdir()
    (manager.parent / "fuzz/origin.json").write_text('{"commit": "abc"}', encoding="utf-8")
    monkeypatch.setattr(fuzzing.running, "unclean", lambda kernels: "edits")
    assert fuzzing.main([]) == 1 and "the run is not kept: edits" in capsys.readouterr().err
    monkeypatch.setattr(fuzzing.running, "unclean", lambda kernels: "")
    for _ in range(2):
        assert fuzzing.main([]) == 1
    assert "2,345 programs in 0.0 hours, 1 of 2 functions of mm/quire reached\ncrash: WARNING in" in \
        capsys.readouterr().out
    text = publishing.fuzzed(json.loads(storage.FUZZ.read_text(encoding="utf-8")))
    assert "| v1 | 0.00 | 2,345 | 7 | 1 of 2 | WARNING in quire_pt_put | abc |" in text
    assert "4,690 programs in 0.00 hours in all. The last run's programs do not reach: `quire_pt_put()`." in text
    # Without the manager's table nothing is known of what was reached.
    found["functions"] = 0
    assert fuzzing.main([]) == 1
    assert "the run is not kept: syzkaller's manager showed no function" in capsys.readouterr().err
    # What was planted is not found, if only something else is.
    assert fuzzing.main(["--plant"]) == 1
    found["crashes"] = ["WARNING in trigger_write"]
    assert fuzzing.main(["--plant"]) == 0
    assert len(json.loads(storage.FUZZ.read_text(encoding="utf-8"))["runs"]) == 2


def test_crashes_of_earlier_runs_do_not_count(manager: Path) -> None:
    """A crash counts if it has a log of this run."""
    folder = manager.parent / "work/manager/crashes/0b"
    folder.mkdir(parents=True)
    (folder / "description").write_text("KASAN: out-of-bounds\n", encoding="utf-8")
    (folder / "log0").touch()
    os.utime(folder / "log0", (1, 1))
    assert not fuzzing.crashes(2.0)
    (folder / "log1").touch()
    assert fuzzing.crashes(time.time() - 3600) == ["KASAN: out-of-bounds"]


def test_manager_that_ends(manager: Path) -> None:
    """A manager that ends by itself is an error, which names its log."""
    manager.write_text(f"#!{sys.executable}\nprint('no such call')\n", encoding="utf-8")
    with pytest.raises(fuzzing.SuiteError, match=r"ended by itself, work/manager\.log says why"):
        fuzzing.fuzz(1, 1, plant=False)
    assert (manager.parent / "work/manager.log").read_text(encoding="utf-8") == "no such call\n"


@pytest.mark.parametrize(("text", "numbers"), [
    ("", {}), ('{\n "a": 1\n}\n{\n "a": 2\n}\n', {"a": 2}), ('{\n "a": 1\n}\n{\n "a"', {})])
def test_last_numbers(tmp_path: Path, text: str, numbers: dict[str, int]) -> None:
    """The last whole object counts; one that is being written says nothing."""
    (tmp_path / "bench").write_text(text, encoding="utf-8")
    assert fuzzing.last_of(tmp_path / "bench") == numbers
    assert not fuzzing.last_of(tmp_path / "none")


def test_what_is_missing_is_named(manager: Path, monkeypatch: pytest.MonkeyPatch,
                                  capsys: pytest.CaptureFixture[str]) -> None:
    """A source that was never given, and a kernel that is not built, are named with what to do."""
    monkeypatch.setattr(fuzzing.boot, "image_of", lambda variant: manager)
    monkeypatch.setattr(fuzzing.packages, "ensure", lambda group: None)
    monkeypatch.setattr(fuzzing, "STAMP", manager.parent / "none.json")
    handler = signal.getsignal(signal.SIGTERM)
    assert fuzzing.main([]) == 1
    assert "error: syzkaller is not built yet: name a git clone" in capsys.readouterr().err
    monkeypatch.undo()
    monkeypatch.setattr(fuzzing.boot.build, "image_of", lambda variant: manager.parent / "none/bzImage")
    monkeypatch.setattr(paths, "REPO", manager.parent)
    assert fuzzing.main([]) == 1
    assert "make kernel VARIANT=fuzz" in capsys.readouterr().err
    signal.signal(signal.SIGTERM, handler)
