# SPDX-License-Identifier: GPL-2.0
"""The arithmetic about reclaim on large machines, and the page that it prints."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from typing import Any

import pytest

from bench.pressure import simulate
from guest import paths

SCRIPT = paths.REPO / "bench" / "pressure" / "simulate.py"

SMALL = simulate.Machine(cpus=4, users=2, gb=1, running=2)
VANILLA, EACH_PAGE, EACH_BATCH, USERS = range(4)


def costs(**changes: Any) -> list[simulate.Cost]:
    """Return what each way costs on the small machine, with changes."""
    return [simulate.cost(way, dataclasses.replace(SMALL, **changes)) for way in simulate.WAYS]


def test_one_machine_by_hand() -> None:
    """The results agree with a calculation by hand: 1 GB has 262,144 pages, and 8,192 batches."""
    found = costs()
    assert [round(one.interrupts) for one in found] == [16384, 786432, 24576, 16384]
    assert [round(one.other_interrupts) for one in found] == [0, 262144, 8192, 0]
    assert found[VANILLA].walk_s == pytest.approx(262144 * (10200 + 2 * 2220) * 0.5e-9)
    assert found[EACH_PAGE].flush_s == pytest.approx(262144 * (1000 + 3 * 200) * 1e-9)
    assert found[EACH_PAGE].walk_s == found[EACH_BATCH].walk_s < found[USERS].walk_s < found[VANILLA].walk_s
    assert found[EACH_PAGE].other_share == pytest.approx(262144 * 1044e-9 / found[EACH_PAGE].total_s)
    assert found[VANILLA].table_gb == 2 * found[USERS].table_gb == pytest.approx(2 / 512)


def test_what_users_and_cpus_change() -> None:
    """More users lengthen walks over users; more CPUs lengthen flushes of all CPUs, and no others."""
    before, more_users, more_cpus = costs(), costs(users=200), costs(cpus=128)
    for way in (VANILLA, USERS):
        assert more_users[way].walk_s > 10 * before[way].walk_s and more_cpus[way] == before[way]
    for way in (EACH_PAGE, EACH_BATCH):
        assert more_users[way].total_s == before[way].total_s and more_cpus[way].flush_s > before[way].flush_s
    assert costs(cpus=1, running=1)[EACH_PAGE].interrupts == 0


def test_dirty_pages_are_flushed_each() -> None:
    """If all pages are dirty, a batch saves nothing."""
    found = costs(dirty=1.0)
    assert found[EACH_BATCH] == dataclasses.replace(found[EACH_PAGE], way=found[EACH_BATCH].way)
    assert found[USERS].interrupts == 32 * costs()[USERS].interrupts


def test_the_page_is_what_is_printed() -> None:
    """docs/pressure.md is the command's output, with the constants' sources."""
    done = subprocess.run([sys.executable, SCRIPT], text=True, check=True, stdout=subprocess.PIPE)
    page = (paths.REPO / "docs" / "pressure.md").read_text(encoding="utf-8")
    assert page == done.stdout, "run bench/pressure/simulate.py >docs/pressure.md"
    assert page.count("Assumed") == 3 and page.count("https://") == 2 and "{" not in page


def test_json_and_words(capsys: pytest.CaptureFixture[str]) -> None:
    """--json prints only the numbers, for the machine on the command line; wrong arguments give an error."""
    assert simulate.main(["--json", "--cpus", "16", "--users", "8", "--gb", "2"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["machine"] == {"cpus": 16, "users": 8, "gb": 2.0, "running": 8, "dirty": 0.0, "hot_pages": 64}
    assert [one["way"] for one in found["costs"]] == [way.name for way in simulate.WAYS]
    for wrong in (["--gb", "0"], ["--dirty", "2"], ["--cpus", "0"], ["--cpus", "4", "--running", "5"]):
        with pytest.raises(SystemExit, match="2"):
            simulate.main(wrong)
        assert "error: " in capsys.readouterr().err
