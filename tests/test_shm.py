# SPDX-License-Identifier: GPL-2.0
"""The shm feature: processes share the page tables of shared memory, in the guest."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import ktap
import pressure
from guest import boot

# On the debug kernel, only the soak runs these.
SLOW = ("shm_huge", "shm_nodes", "shm_numbers")


@pytest.mark.debug
def test_selftests(kernel: str, selftests: Callable[..., dict[str, ktap.Report]]) -> None:
    """The selftests pass with the feature on, and none of them is skipped as a whole; pages move between two nodes."""
    slow = () if kernel == "debug" else SLOW
    selftests("shm_basic", "shm_calls", "shm_cgroup", "shm_foreign", "shm_single", "shm_walk", *slow,
              append="quire=shm", numa=2)


@pytest.mark.soak
@pytest.mark.debug
@pytest.mark.debug_only
def test_slow_selftests(selftests: Callable[..., dict[str, ktap.Report]]) -> None:
    """The selftests that are slow on the debug kernel pass there, too."""
    selftests(*SLOW, append="quire=shm", numa=2, timeout=1800)


@pytest.mark.debug
def test_model(selftest: Callable[..., ktap.Report]) -> None:
    """Random use of one segment by several processes agrees with the model, for fixed seeds, with fork's sharing on."""
    selftest("shm_model", "1", "2", append="quire=shm,fork", leaks=True)


@pytest.mark.parametrize("mode", ["model", "race"])
def test_model_under_pressure(guest: Callable[..., boot.Result], selftest_programs: Path, mode: str) -> None:
    """The same during reclaim, one process at a time and all at once, for a short time."""
    command = f"{selftest_programs / 'shm_model'} $seed 1 {mode}"
    pressure.assert_swapped(guest(pressure.script(command, 20), append="quire=shm,fork", walks=True))


@pytest.mark.soak
@pytest.mark.debug
@pytest.mark.parametrize("mode", ["model", "race"])
def test_model_soak(guest: Callable[..., boot.Result], selftest_programs: Path, minutes: int, mode: str) -> None:
    """The same for the given time."""
    command = f"{selftest_programs / 'shm_model'} $seed 10 {mode}"
    pressure.assert_swapped(guest(pressure.script(command, minutes * 60), append="quire=shm,fork",
                                  timeout=minutes * 60 + 600, walks=True))
