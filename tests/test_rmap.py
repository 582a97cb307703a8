# SPDX-License-Identifier: GPL-2.0
"""The rmap feature: fork borrows the parent's anon_vmas until the child writes."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import pytest

import ktap
from guest import boot

SYSFS = "/sys/kernel/mm/quire/rmap"
CHECK = "/sys/kernel/debug/quire/rmap_check"


@pytest.mark.debug
def test_basic(selftest: Callable[..., ktap.Report]) -> None:
    """Writers, splits, merges, moves, chains of forks: content right, reverse map complete, with only rmap on."""
    selftest("rmap_basic", append="quire=rmap")


@pytest.mark.debug
def test_model(selftest: Callable[..., ktap.Report]) -> None:
    """Random operations on a family of processes, with a fixed seed."""
    selftest("rmap_model", append="quire=rmap")


@pytest.mark.debug
@pytest.mark.debug_only
def test_allocation_failure(selftest: Callable[..., ktap.Report]) -> None:
    """A borrower that cannot be upgraded stays one."""
    selftest("rmap_fail", append="quire=rmap")


def test_with_all_features(selftest: Callable[..., ktap.Report]) -> None:
    """The same random operations with every feature on."""
    selftest("rmap_model", "600", "7")


def test_complete_in_a_running_system(guest: Callable[..., boot.Result]) -> None:
    """After boot and some shell work with rmap on, no entry of any process is missing."""
    result = guest(f"for i in 1 2 3 4 5 6 7 8; do (ls -R /etc | sort | tail -1) >/dev/null & done; wait; "
                   f"mount -t debugfs none /sys/kernel/debug 2>/dev/null; cat {CHECK}; "
                   f"echo taken $(cat {SYSFS}/stats/borrowed)", append="quire=rmap")
    found = dict(line.split() for line in result.output.splitlines() if len(line.split()) == 2)
    if "missing" not in found:
        pytest.skip("no checker in this kernel")
    assert int(found["pages"]) > 300
    assert int(found["missing"]) == 0
    assert int(found["chain_errors"]) == 0
    assert int(found["taken"]) > 0


def test_off_borrows_nothing(guest: Callable[..., boot.Result]) -> None:
    """Off by default, and then no counter moves."""
    result = guest(f"(ls; ls) >/dev/null; cat {SYSFS}/enabled {SYSFS}/stats/*")
    assert result.status == 0
    assert set(result.output.split()) == {"0"}


@pytest.mark.soak
@pytest.mark.debug
def test_model_soak(selftest: Callable[..., ktap.Report], minutes: int) -> None:
    """Random operations, a new seed each time; the seed is printed."""
    end = time.monotonic() + minutes * 60
    while time.monotonic() < end:
        seed = random.randrange(1, 2**48)
        print(f"rmap_model 6000 {seed}")
        selftest("rmap_model", "6000", str(seed), append="quire=rmap", timeout=3600)
