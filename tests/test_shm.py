# SPDX-License-Identifier: GPL-2.0
"""The shm feature: processes share the page tables of shared memory, in the guest."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import ktap
from guest import boot


@pytest.mark.debug
def test_selftests(selftests: Callable[..., dict[str, ktap.Report]]) -> None:
    """The selftests pass with the feature on, and none of them is skipped as a whole."""
    selftests("shm_basic", "shm_calls", "shm_cgroup", append="quire=shm")


@pytest.mark.debug
def test_model(selftest: Callable[..., ktap.Report]) -> None:
    """Random use of one segment by several processes agrees with the model, for fixed seeds, next to fork's sharing."""
    selftest("shm_model", "1", "2", append="quire=shm,fork")


def under_pressure(program: Path, mode: str, rounds: int, seconds: int) -> str:
    """Return a script that runs the model again and again while its pages are reclaimed, compacted and swapped in."""
    return f"""set -e
echo 256M >/sys/block/zram0/disksize
mkswap /dev/zram0 >/dev/null
swapon /dev/zram0
cd /sys/fs/cgroup
echo +memory >cgroup.subtree_control
mkdir little
(set +e
while sleep 0.1; do
    for i in 1 2 3 4 5; do echo 4M >little/memory.reclaim; done
    echo 1 >/proc/sys/vm/compact_memory
    swapoff /dev/zram0 && swapon /dev/zram0
done) 2>/dev/null &
pressure=$!
echo 0 >little/cgroup.procs
seed=1
while [ $SECONDS -lt {seconds} ]; do
    echo seed $seed
    {program} $seed {rounds} {mode}
    seed=$((seed + {rounds}))
done
kill $pressure
grep -E 'pswp(in|out)' /proc/vmstat"""


def assert_swapped(result: boot.Result) -> None:
    """All went well, and there was what it was to go well under."""
    assert result.status == 0, result.output[-4000:]
    assert all(int(line.split()[1]) > 0 for line in result.output.splitlines()[-2:]), result.output[-4000:]


@pytest.mark.parametrize("mode", ["model", "race"])
def test_model_under_pressure(guest: Callable[..., boot.Result], selftest_programs: Path, mode: str) -> None:
    """The same beside reclaim, one process at a time and all at once, for a moment."""
    assert_swapped(guest(under_pressure(selftest_programs / "shm_model", mode, 1, 20), append="quire=shm,fork"))


@pytest.mark.soak
@pytest.mark.debug
@pytest.mark.parametrize("mode", ["model", "race"])
def test_model_soak(guest: Callable[..., boot.Result], selftest_programs: Path, minutes: int, mode: str) -> None:
    """For as long as is allowed."""
    assert_swapped(guest(under_pressure(selftest_programs / "shm_model", mode, 10, minutes * 60),
                         append="quire=shm,fork", timeout=minutes * 60 + 600))
