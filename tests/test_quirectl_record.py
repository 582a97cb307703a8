# SPDX-License-Identifier: GPL-2.0
"""quirectl record on a fake tracefs: which events, for how long, where they go, and that nothing stays behind."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

import kernel_surface
from quirelib import cli, record

TRACE = """# tracer: nop
#
           <...>-71      [001] ...1.    10.123456: fork_share: mm=0000 addr=7f00 users=2
 Web Content: 5-72      [000] ...1.    10.123457: pt_break: mm=0000 addr=7f00 users=1
           <...>-71      [001] ...1.    10.223456: fork_share: mm=0000 addr=7f20 users=2
"""
EVENTS = ["fork_fallback", "fork_share", "pt_break"]


@pytest.fixture(name="root")
def fixture_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A root with a tracefs, where a new instance has its files, and loses them when it is removed."""
    root = kernel_surface.make(tmp_path / "root")
    tracing = root / "sys/kernel/tracing"
    (tracing / "instances").mkdir(parents=True)
    for name in EVENTS:
        (tracing / "events/quire" / name).mkdir(parents=True)
        (tracing / "events/quire" / name / "format").touch()

    def mkdir(path: Path) -> None:
        shutil.copytree(tracing / "events", path / "events")
        (path / "per_cpu/cpu0").mkdir(parents=True)
        (path / "per_cpu/cpu0/stats").write_text("entries: 3\noverrun: 4\ndropped events: 1\n", encoding="ascii")
        (path / "trace").write_text(TRACE, encoding="utf-8")
        for name in ("buffer_size_kb", "tracing_on", *(f"events/quire/{name}/enable" for name in EVENTS)):
            (path / name).touch()

    monkeypatch.setattr(record, "os", SimpleNamespace(mkdir=mkdir, rmdir=shutil.rmtree, getpid=os.getpid))
    return root


def run(root: Path, *words: str) -> int:
    """Run quirectl record."""
    return cli.main(["--root", str(root), "record", *words])


def test_events_are_written_and_counted(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                        capsys: pytest.CaptureFixture[str]) -> None:
    """The chosen events are on for the time, then off; the lines are in the file, and the table has their number."""
    seen: dict[str, object] = {}

    def sleep(seconds: float) -> None:
        buffer, = (root / "sys/kernel/tracing/instances").iterdir()
        seen.update({path.relative_to(buffer).as_posix(): path.read_text(encoding="ascii")
                     for path in (*buffer.glob("events/quire/*/enable"), buffer / "buffer_size_kb")}, seconds=seconds)

    monkeypatch.setattr(time, "sleep", sleep)
    assert run(root, "--seconds", "3", "--buffer-kb", "64", "--output", str(tmp_path / "out"), "fork_*") == 0
    assert seen == {"events/quire/fork_fallback/enable": "1", "events/quire/fork_share/enable": "1",
                    "events/quire/pt_break/enable": "", "buffer_size_kb": "64", "seconds": 3.0}
    assert (tmp_path / "out").read_text(encoding="utf-8") == TRACE
    said = capsys.readouterr()
    rows = [line.split()[:2] for line in said.out.splitlines()]
    assert rows[:3] == [["EVENT", "COUNT"], ["fork_share", "2"], ["pt_break", "1"]]
    assert "5 earlier events are lost" in said.err and "recording 2 events for 3 s" in said.err
    assert not list((root / "sys/kernel/tracing/instances").iterdir())


def test_interrupt_ends_it_early(root: Path, monkeypatch: pytest.MonkeyPatch,
                                 capsys: pytest.CaptureFixture[str]) -> None:
    """Ctrl-C ends the recording and not the command; with the events on standard output, the counts are beside it."""
    def interrupt(_seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", interrupt)
    assert run(root, "--output", "-", "--json") == 0
    said = capsys.readouterr()
    assert said.out == TRACE
    found = json.loads(said.err[said.err.index("{"):])
    assert found["events"] == {"fork_share": 2, "pt_break": 1} and found["lost"] == 5


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_signals_leave_nothing(root: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals) -> None:
    """A signal that ends the command ends the recording, too."""
    def end(_seconds: float) -> None:
        assert callable(signal.getsignal(number)), "it would end the tests"
        try:
            signal.raise_signal(number)
        finally:
            # As a closed terminal does; it must not end the clean-up.
            signal.raise_signal(signal.SIGHUP)

    before = {one: signal.signal(one, signal.SIG_DFL) for one in (signal.SIGTERM, signal.SIGHUP)}
    monkeypatch.setattr(time, "sleep", end)
    try:
        with pytest.raises(SystemExit) as ended:
            run(root, "--output", "-")
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
    assert ended.value.code == 128 + number and not list((root / "sys/kernel/tracing/instances").iterdir())


def test_list(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The names of all events, or of those that a pattern matches."""
    assert run(root, "--list") == 0
    assert capsys.readouterr().out.split() == EVENTS
    assert run(root, "--list", "pt_*") == 0
    assert capsys.readouterr().out == "pt_break\n"


@pytest.mark.parametrize(("words", "says"), [
    (["fork_*", "nonesuch"], "no event matches nonesuch; there are: fork_fallback, fork_share, pt_break."),
    (["--seconds", "1000", "--output", "/nonesuch/file"], "cannot be written: No such file or directory"),
])
def test_refusals(root: Path, capsys: pytest.CaptureFixture[str], words: list[str], says: str) -> None:
    """A wrong event or file is named before anything is recorded, and no buffer stays behind."""
    assert run(root, *words) == 1
    assert says in capsys.readouterr().err
    assert not list((root / "sys/kernel/tracing/instances").iterdir())


def test_no_buffer(root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Without tracefs, or without the right to use it, the error says what to do."""
    def refuse(path: Path) -> None:
        raise PermissionError(1, os.strerror(1), str(path))

    monkeypatch.setattr(record, "os", SimpleNamespace(mkdir=refuse, getpid=os.getpid))
    assert run(root, "pt_break") == 1
    assert capsys.readouterr().err.endswith("Run the command with sudo.\n")
    shutil.rmtree(root / "sys/kernel/tracing/events")
    assert run(root) == 1
    assert "no tracepoints of quire" in capsys.readouterr().err
    shutil.rmtree(root / "sys/kernel/tracing")
    assert run(root) == 1
    assert "mount -t tracefs nodev /sys/kernel/tracing" in capsys.readouterr().err
