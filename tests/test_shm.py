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


@pytest.mark.soak
@pytest.mark.parametrize("mode", ["model", "race"])
def test_model_soak(guest: Callable[..., boot.Result], selftest_programs: Path, minutes: int, mode: str) -> None:
    """The same for as long as is allowed, one process at a time and all at once."""
    program = selftest_programs / "shm_model"
    result = guest(f"seed=1; end=$((SECONDS + {minutes * 60})); "
                   f"while [ $SECONDS -lt $end ]; do {program} $seed 10 {mode} || exit 1; seed=$((seed + 10)); done",
                   append="quire=shm,fork", timeout=minutes * 60 + 600)
    assert result.status == 0, result.output[-4000:]
