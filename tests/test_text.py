# SPDX-License-Identifier: GPL-2.0
"""The text feature: collapse and placement of program text, in a guest with ext4 and overlayfs on a loop device."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import ktap

pytestmark = pytest.mark.debug


def test_collapse(selftest: Callable[..., ktap.Report]) -> None:
    """Text is collapsed, serves later execs, and writers, truncation, breakpoints and draining take it apart."""
    report = selftest("text_collapse", append="quire=text", timeout=900)
    assert "text.second_exec_finds_it_huge" in report.passed


def test_place(selftest: Callable[..., ktap.Report]) -> None:
    """Programs and mappings with a whole block of text are congruent with it; all others stay where they were."""
    report = selftest("text_place", append="quire=text", timeout=900)
    assert "place.program" in report.passed


def test_files(selftest: Callable[..., ktap.Report]) -> None:
    """Upgrades, breakpoints, changing code, direct I/O, a hundred executions, little memory."""
    report = selftest("text_files", append="quire=text", timeout=900)
    assert "files.upgrade_by_rename" in report.passed


def test_collapse_beside_the_other_features(selftest: Callable[..., ktap.Report]) -> None:
    """The same with all features on, which share page tables that a collapse must take apart."""
    selftest("text_collapse", append="quire=on", timeout=900)


@pytest.mark.soak
def test_stress(selftest: Callable[..., ktap.Report]) -> None:
    """Runners, readers, writers, switches and unmounts at once, for a few seconds and a fixed seed."""
    selftest("text_stress", "5", "1", append="quire=text", timeout=900)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(1, 5))
def test_stress_long(selftest: Callable[..., ktap.Report], minutes: int, seed: int) -> None:
    """The same for long, with other seeds."""
    selftest("text_stress", str(minutes * 15), str(seed), append="quire=on", timeout=minutes * 60 + 600)
