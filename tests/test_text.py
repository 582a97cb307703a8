# SPDX-License-Identifier: GPL-2.0
"""The text feature: collapse and placement of program text, in a guest with ext4 and overlayfs on a loop device."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

import ktap
from guest import boot, paths

# On the debug kernel, only the soak runs these, and text_files.
SLOW = ("text_writers", "text_kinds", "text_memory")


@pytest.mark.debug
def test_collapse(kernel: str, selftest: Callable[..., ktap.Report]) -> None:
    """Text is collapsed and serves later execs; writers, truncation, breakpoints and draining split it again.

    On the debug kernel all other features are on, too, which covers more and takes no longer.
    """
    report = selftest("text_collapse", append="quire=on" if kernel == "debug" else "quire=text", leaks=True,
                      timeout=900)
    assert "text.second_exec_finds_it_huge" in report.passed


@pytest.mark.debug
def test_place_filesystems_and_files(kernel: str, selftests: Callable[..., dict[str, ktap.Report]]) -> None:
    """Programs and mappings with a whole block of text are placed congruent with it; all others stay where they were.

    erofs gives whole blocks at the first fault, squashfs after a collapse, and on xfs huge pages are written to, also
    while everything else goes on; what is resident is mapped at once. Then upgrades, breakpoints, changing code, direct
    I/O, a hundred executions, little memory; what the worker must not do to others; writers at all times; probes;
    blocks that become huge where they are; scripts, swap files, tmpfs and 9p; fragments, full control groups and
    reclaim. A block of the movable zone goes offline.
    """
    # Beside that zone, there must be huge pages left to set aside: the debug kernel's guests are small.
    slow, memory = ((), "3G") if kernel == "debug" else (("text_files", *SLOW), "4G")
    complete = ("text_bystander", "text_probes")
    reports = selftests("text_place", "text_fs", "text_stress 5 1 xfs", "text_promote", "text_reserve", *complete,
                        *slow, append="quire=text movablecore=1G", memory=memory, timeout=900)
    assert "place.program" in reports["text_place"].passed
    assert {"erofs.first_exec_reads_it_huge", "squashfs.collapse", "xfs.cut"} <= set(reports["text_fs"].passed)
    assert "promote.frames_stay" in reports["text_promote"].passed
    assert "reserve.isolation_gives_back" in reports["text_reserve"].passed
    assert kernel == "debug" or "files.upgrade_by_rename" in reports["text_files"].passed
    # Fault injection stands in for fragments: a kernel has one or the other.
    skips = "text_files" if kernel == "quire" else "text_memory"
    assert not any(reports[program].skipped for program in (*complete, *slow) if program != skips)


@pytest.mark.soak
@pytest.mark.debug
@pytest.mark.debug_only
def test_slow_selftests(selftests: Callable[..., dict[str, ktap.Report]]) -> None:
    """The selftests that are slow on the debug kernel pass there, too, except for cases of the plain kernel alone.

    The plain kernel has a movable zone, of which a block goes offline, and real fragmentation; the debug kernel has
    failing allocations.
    """
    reports = selftests("text_files", *SLOW, append="quire=text", timeout=1800)
    assert "files.upgrade_by_rename" in reports["text_files"].passed
    skipped = {name.split()[0] for program in SLOW for name in reports[program].skipped}
    assert skipped == {"memory.offline", "memory.nothing_but_fragments"}


def test_collapse_beside_the_other_features(selftest: Callable[..., ktap.Report]) -> None:
    """The same with all features on: they share page tables, which a collapse must take apart."""
    selftest("text_collapse", append="quire=on", timeout=900)


@pytest.mark.debug
@pytest.mark.soak
def test_compiler(guest: Callable[..., boot.Result]) -> None:
    """All whole blocks of a real compiler's text are mapped by 2 MiB pages while it runs, and it faults less."""
    source = paths.BUILD / "text_input.i"
    source.write_text("\n".join(f"int f{i}(int x) {{ int s = 0; for (int i = 0; i < x; i++) s += x * {i}; return s; }}"
                                for i in range(400)), encoding="utf-8")
    result = guest([str(paths.REPO / "tests/workloads/text_programs.py"), str(source), "-", "-", "cc1"],
                   append="quire=off", timeout=900)
    values = dict(re.findall(r"(\w+)=([\d.]+)", result.output))
    assert result.status == 0 and int(values["eligible_kB"]) >= 8192, result.output
    assert values["pmd_kB"] == values["eligible_kB"], result.output
    assert int(values["faults_third"]) < int(values["faults_off"]), result.output


@pytest.mark.debug
@pytest.mark.soak
def test_stress(selftest: Callable[..., ktap.Report]) -> None:
    """Runners, readers, writers, switches and unmounts run at once, for a few seconds and with a fixed seed."""
    selftest("text_stress", "5", "1", append="quire=text", timeout=900)


@pytest.mark.debug
@pytest.mark.soak
@pytest.mark.parametrize("filesystem", ("ext4", "xfs"))
@pytest.mark.parametrize("seed", range(1, 5))
def test_stress_long(selftest: Callable[..., ktap.Report], minutes: int, seed: int, filesystem: str) -> None:
    """The same for a long time, with other seeds, and on a filesystem with large folios."""
    selftest("text_stress", str(minutes * 15), str(seed), filesystem, append="quire=on", timeout=minutes * 60 + 600)
