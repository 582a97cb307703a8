# SPDX-License-Identifier: GPL-2.0
"""What quirectl tells of: who shares what, and what has happened."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import kernel_surface
from quirelib import cli


@pytest.fixture(name="root")
def fixture_root(tmp_path: Path) -> Path:
    """A root with all features."""
    return kernel_surface.make(tmp_path / "root")


def run(root: Path, *words: str) -> int:
    """Run quirectl on a root, and return its exit status."""
    return cli.main(["--root", str(root), *words])


def processes(root: Path) -> None:
    """Make three processes: two share, the third has nothing."""
    told = "fork_policy: default\nfork_shared_tables: {}\nfork_shared_kb: {}\nfork_charged_tables: {}\n" \
           "shm_shared_tables: 0\nshm_shared_kb: {}\nrmap_areas: 9\nrmap_borrowed: {}\n"
    for pid, numbers in ((11, (1, 2048, 1, 0, 3)), (12, (2, 4096, 0, 8192, 0)), (13, (0, 0, 0, 0, 0))):
        (root / f"proc/{pid}").mkdir()
        (root / f"proc/{pid}/comm").write_text(f"server{pid}\n", encoding="utf-8")
        (root / f"proc/{pid}/quire").write_text(told.format(*numbers), encoding="utf-8")


def test_top(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Those that share are listed, the most first by the key; once where there is no terminal."""
    processes(root)
    assert run(root, "top") == 0
    head, names, *rows = capsys.readouterr().out.splitlines()
    assert head.startswith("2 processes share") and head.endswith(" 1") and names.split()[:2] == ["PID", "NAME"]
    assert [row.split() for row in rows] == [["12", "server12", "4096", "8192", "0", "0"],
                                             ["11", "server11", "2048", "0", "1", "3"]]
    assert run(root, "top", "--sort", "borrowed", "--lines", "1", "--json") == 0
    assert [one["pid"] for one in json.loads(capsys.readouterr().out)] == [11]


def test_top_again(root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """It is printed as often as is asked for, with the pauses in between."""
    processes(root)
    pauses: list[float] = []
    monkeypatch.setattr("time.sleep", pauses.append)
    assert run(root, "top", "--count", "3", "--interval", "5") == 0
    assert capsys.readouterr().out.count("processes share") == 3 and pauses == [5.0, 5.0]


def test_only_what_is_not_zero(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--nonzero leaves out counters at 0, as a table and as JSON; `stat` is the same command."""
    folder = root / "sys/kernel/mm/quire/fork/stats"
    for path in folder.iterdir():
        path.chmod(0o644)
        path.write_text(f"{int(path.name == 'tables_shared')}\n", encoding="utf-8")
    assert run(root, "stat", "fork", "--nonzero") == 0
    assert [line.split() for line in capsys.readouterr().out.splitlines()[1:]] == [["fork", "tables_shared", "1"]]
    assert run(root, "stats", "fork", "--nonzero", "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"fork": {"tables_shared": 1}}
    (folder / "tables_shared").write_text("0\n", encoding="utf-8")
    assert run(root, "stats", "fork", "--nonzero") == 0 and capsys.readouterr().out == "all counters are 0\n"
