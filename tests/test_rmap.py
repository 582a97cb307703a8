# SPDX-License-Identifier: GPL-2.0
"""The rmap feature: fork borrows the parent's anon_vmas until the child writes."""

from __future__ import annotations

import random
import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import ktap
import pressure
from guest import boot, paths

SYSFS = "/sys/kernel/mm/quire/rmap"
CHECK = "/sys/kernel/debug/quire/rmap_check"


@pytest.mark.debug
def test_selftests(selftests: Callable[..., dict[str, ktap.Report]]) -> None:
    """With rmap alone, contents stay right and the reverse map stays complete.

    The programs cover writers, splits, merges, moves, userfaultfd, chains of forks, and forks while pages move from
    node to node.

    Then a family of processes does random operations, with fixed seeds; and the same with chains of generations that
    write, split and merge.
    """
    selftests("rmap_basic", "rmap_bounded", "rmap_chain", "rmap_files", "rmap_inside", "rmap_moves", "rmap_uffd",
              "rmap_model", "rmap_model 400 11 deep", "rmap_model 400 13 moved", append="quire=rmap", numa=2)


@pytest.mark.debug
@pytest.mark.debug_only
def test_failing_allocations(selftest: Callable[..., ktap.Report]) -> None:
    """A borrower that cannot be upgraded stays one, and nothing leaks."""
    selftest("rmap_fail", "-t", "upgrade_fails", "-t", "split_borrows", append="quire=rmap", leaks=True)


@pytest.mark.soak
@pytest.mark.debug
@pytest.mark.debug_only
def test_fork_fails_anywhere(selftest: Callable[..., ktap.Report]) -> None:
    """A fork may fail at each of its allocations. The test makes hundreds of forks, each with work for kmemleak."""
    selftest("rmap_fail", "-t", "fork_fails_anywhere", append="quire=rmap", timeout=1200, leaks=True)


def test_with_all_features(selftests: Callable[..., dict[str, ktap.Report]]) -> None:
    """With every feature on, forks share tables of areas that borrow: both features' random operations, and a race.

    Other features are then active beside hugetlbfs and huge pages of shared memory, too.
    """
    selftests("rmap_model 600 7 shared", "rmap_model 400 11 deep shared", "rmap_model 400 17 shared moved",
              "rmap_race 5 shared", "rmap_uffd", "fork_mixed", "fork_model 2 2", "shm_huge", numa=2)


def test_complete_in_a_running_system(guest: Callable[..., boot.Result]) -> None:
    """After boot and some shell work with rmap on, no process lacks an entry, including those of file pages.

    Some of the shells still run during the walk.
    """
    result = guest(f"for i in 1 2 3 4 5 6 7 8; do (ls -R /etc | sort | tail -1) >/dev/null & done; wait; "
                   f"for i in 1 2 3 4; do (sleep 1000; :) >/dev/null 2>&1 & done; "
                   f"mount -t debugfs none /sys/kernel/debug 2>/dev/null; cat {CHECK}; "
                   f"sed s/^/all_/ {CHECK}_files; "
                   f"echo taken $(cat {SYSFS}/stats/borrowed)", append="quire=rmap")
    found = dict(line.split() for line in result.output.splitlines() if len(line.split()) == 2)
    if "missing" not in found:
        pytest.skip("no checker in this kernel")
    assert int(found["pages"]) > 300
    assert int(found["missing"]) == 0
    assert int(found["chain_errors"]) == 0
    assert int(found["all_file_pages"]) > 300
    assert int(found["all_missing"]) == 0
    assert int(found["taken"]) > 0


def test_off_borrows_nothing(guest: Callable[..., boot.Result]) -> None:
    """The feature is off by default, and no counter moves then."""
    result = guest(f"(ls; ls) >/dev/null; cat {SYSFS}/enabled {SYSFS}/borrowers {SYSFS}/stats/*")
    assert result.status == 0
    assert set(result.output.split()) == {"0"}


def test_vma_userspace() -> None:
    """The kernel's own tests of mm/vma.c in user space, with our edits in it."""
    folder = paths.TREE / "tools/testing/vma"
    header = subprocess.run(["gcc", "-E", "-include", "urcu.h", "-x", "c", "/dev/null"], capture_output=True,
                            check=False)
    if header.returncode:
        pytest.skip("no liburcu-dev")
    with paths.build_lock():
        made = subprocess.run(["make", "-C", str(folder)], text=True, check=False, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT)
        ran = subprocess.run(["./vma"], cwd=folder, text=True, check=False, capture_output=True)
        subprocess.run(["make", "-C", str(folder), "clean"], check=True, capture_output=True)
    assert made.returncode == 0, made.stdout[-3000:]
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert re.search(r"(\d+) tests run, \1 passed, 0 failed", ran.stdout), ran.stdout


@pytest.mark.soak
@pytest.mark.debug
def test_race_soak(selftest: Callable[..., ktap.Report], minutes: int) -> None:
    """Migration, compaction and reclaim while processes fork, write, split and exit; with rmap only, then with all."""
    for features, shared in (("rmap", ()), ("on", ("shared",))):
        selftest("rmap_race", str(minutes * 30), *shared, append=f"quire={features}", timeout=minutes * 60 + 600)


@pytest.mark.soak
@pytest.mark.debug
@pytest.mark.parametrize("features", ["rmap", "rmap,fork"])
def test_under_pressure(guest: Callable[..., boot.Result], selftest_programs: Path, minutes: int,
                        features: str) -> None:
    """Chains of borrowers in a control group that has room for a part of them, while swap comes and goes."""
    shared = " shared" if "fork" in features else ""
    command = (f"{selftest_programs / 'rmap_model'} 600 $seed deep{shared}\n"
               f"{selftest_programs / 'rmap_race'} 5{shared}")
    pressure.assert_swapped(guest(pressure.script(command, minutes * 60, "8M"), append=f"quire={features}",
                                  timeout=minutes * 60 + 900, walks=True))


@pytest.mark.soak
@pytest.mark.debug
def test_model_soak(selftest: Callable[..., ktap.Report], minutes: int) -> None:
    """Random operations, a new seed each time; the seed is printed."""
    end = time.monotonic() + minutes * 60
    while time.monotonic() < end:
        seed = random.randrange(1, 2**48)
        how = [word for word in ("deep", "shared", "moved") if random.random() < 0.5]
        print(f"rmap_model 6000 {seed} {' '.join(how)}")
        selftest("rmap_model", "6000", str(seed), *how, append=f"quire=rmap{',fork' * ('shared' in how)}",
                 numa=2, timeout=3600)
