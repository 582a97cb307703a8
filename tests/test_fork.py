# SPDX-License-Identifier: GPL-2.0
"""The fork feature: page tables shared copy-on-write, in the guest."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import group
import ktap
from guest import boot

# On the debug kernel, only the soak runs these.
SLOW = ("fork_huge", "fork_swap lru_gen -t out_and_in -t many_children")
EVENTS = ("fork_share", "pt_break", "pt_adopt", "pt_leave", "fork_fallback")
# What the checks run, one after the other in one guest; PROGRAMS is the folder of the selftests.
CHECKS = {
    "knobs": "cd /sys/kernel/mm/quire/fork; cat min_tables; echo 0 >min_tables; echo x >min_tables; "
             "echo 2 >/proc/self/quire; cat min_tables /proc/self/quire",
    "tracepoints": "cd /sys/kernel/tracing; "
                   f"for e in {' '.join(EVENTS)}; do echo 1 >events/quire/$e/enable; done; "
                   "PROGRAMS/fork_life -t ends_in_any_order >/dev/null || exit 1; echo 0 >tracing_on; "
                   f"for e in {' '.join(EVENTS)}; do echo $e $(grep -c \" $e: mm=\" trace); "
                   "echo 0 >events/quire/$e/enable; done; echo 1 >tracing_on; dmesg | grep ' quire_fork$'",
    "shells": "set -e; cd /sys/kernel/mm/quire/fork; echo 1 >min_tables; echo 1 >mixed; "
              "for i in $(seq 40); do ls / | sort | uniq | wc -l >/dev/null; done; "
              "cat state; cat /sys/kernel/debug/quire/pt_check",
}


@pytest.mark.debug
@pytest.mark.parametrize("programs", [("fork_basic", "fork_gup", "fork_pins", "fork_life", "fork_mixed", "fork_uffd",
                                       SLOW[0]),
                                      ("fork_calls", "fork_swap", SLOW[1], "fork_cgroup", "fork_limit",
                                       "fork_model 1 6")],
                         ids=" ".join)
def test_selftests(kernel: str, selftests: Callable[..., dict[str, ktap.Report]], programs: tuple[str, ...]) -> None:
    """The selftests pass with the feature on, and random process trees agree with the model, for fixed seeds.

    On the debug kernel, allocations are made to fail: a system call on shared tables then fails or succeeds, does no
    harm and leaks nothing.
    """
    if kernel == "debug":
        programs = tuple(program for program in programs if program not in SLOW)
    failing = {"fork_fail"} if kernel == "debug" and "fork_basic" in programs else set()
    selftests(*programs, *failing, append="quire=fork", leaks=bool(failing))


@pytest.mark.debug
def test_stale_translations(selftests: Callable[..., dict[str, ktap.Report]]) -> None:
    """No TLB keeps a page of a shared table that was swapped out or moved; freed pages are overwritten."""
    selftests("fork_stale", append="quire=fork init_on_free=1", numa=2)


@pytest.mark.soak
@pytest.mark.debug
@pytest.mark.debug_only
def test_slow_selftests(selftests: Callable[..., dict[str, ktap.Report]]) -> None:
    """The selftests that are slow on the debug kernel pass there, too."""
    selftests(*SLOW, append="quire=fork", timeout=1800)


@pytest.mark.soak
@pytest.mark.debug
def test_model_soak(guest: Callable[..., boot.Result], selftest_programs: Path, minutes: int) -> None:
    """Random process trees agree with the model, for the given time, with little memory and swap on zram."""
    program = selftest_programs / "fork_model"
    result = guest("set -e; echo 256M >/sys/block/zram0/disksize; mkswap /dev/zram0 >/dev/null; swapon /dev/zram0; "
                   "cd /sys/fs/cgroup; echo +memory >cgroup.subtree_control; mkdir little; "
                   "echo 24M >little/memory.high; echo $$ >little/cgroup.procs; seed=1; "
                   f"end=$((SECONDS + {minutes * 60})); "
                   f"while [ $SECONDS -lt $end ]; do echo seed $seed; {program} $seed 20; seed=$((seed + 100)); done; "
                   "grep pswpout /proc/vmstat",
                   append="quire=fork", numa=2, timeout=minutes * 60 + 600, walks=True)
    assert result.status == 0, result.output[-4000:]
    assert int(result.output.rsplit("pswpout ", 1)[1].split()[0]) > 0, result.output[-4000:]


@pytest.fixture(scope="module", name="checks")
def fixture_checks(guest: Callable[..., boot.Result], selftest_programs: Path) -> dict[str, group.Outcome]:
    """The outcomes of the checks, by name."""
    texts = [text.replace("PROGRAMS", str(selftest_programs)) for text in CHECKS.values()]
    result = guest(group.script([["bash", "-c", text] for text in texts], 0), append="quire=fork")
    return {one.command: one for one in group.outcomes(result.output, list(CHECKS))}


def test_boot_workload(checks: dict[str, group.Outcome]) -> None:
    """With sharing forced on every process, mixed tables too, shells and pipelines run; the checker finds nothing."""
    one = checks["shells"]
    assert one.status == 0, one.output
    assert str(one.output).startswith("on\n")
    assert " 0 complaints" in str(one.output)


def test_knob_bounds(checks: dict[str, group.Outcome]) -> None:
    """A wrong value is refused and changes nothing."""
    output = str(checks["knobs"].output)
    lines = [line for line in output.splitlines() if "rror" not in line and "nvalid" not in line]
    assert lines[0] == lines[1] == "16"
    assert "sharing: default" in output and "fork_policy: default" in output


def test_tracepoints_and_units(checks: dict[str, group.Outcome]) -> None:
    """Each event of a table's life can be traced, and the unit tests passed at boot."""
    one = checks["tracepoints"]
    output = str(one.output)
    assert one.status == 0, output
    counts = dict(line.split() for line in output.splitlines() if line.startswith(EVENTS))
    assert all(int(counts[event]) > 0 for event in EVENTS), output
    assert "not ok" not in output


@pytest.mark.soak
@pytest.mark.debug
@pytest.mark.parametrize("numa", (1, 2))
def test_race(guest: Callable[..., boot.Result], selftest_programs: Path, minutes: int, numa: int) -> None:
    """Writers, children, reclaim, compaction and the background worker run at once, on one node and between two."""
    result = guest(f"cd /sys/kernel/mm/quire/fork; echo 20000 >background_tables_per_s; echo {numa - 1} >mixed; "
                   f"echo 1 >/proc/sys/kernel/numa_balancing; {selftest_programs / 'fork_race'} {minutes * 60}",
                   append="quire=fork", numa=numa, timeout=minutes * 60 + 900, walks=True)
    assert result.status == 0, result.output[-4000:]


@pytest.mark.soak
@pytest.mark.debug
def test_a_thousand_children(guest: Callable[..., boot.Result], selftest_programs: Path) -> None:
    """A thousand processes use one table while its pages are swapped out."""
    result = guest(f"FORK_CHILDREN=1000 {selftest_programs / 'fork_swap'} -t many_children", append="quire=fork",
                   timeout=1800, walks=True)
    assert result.status == 0, result.output[-4000:]


@pytest.mark.soak
@pytest.mark.debug
def test_memory_offline(guest: Callable[..., boot.Result], selftest_programs: Path) -> None:
    """Blocks of memory go offline and come back under processes that share tables."""
    result = guest(f"cd /sys/devices/system/memory; {selftest_programs / 'fork_race'} 60 & done=0; "
                   "for i in $(seq 10); do for b in memory*; do "
                   "[ $(cat $b/removable) = 1 ] && grep -q Movable $b/valid_zones && "
                   "echo offline >$b/state 2>/dev/null && done=$((done + 1)) && "
                   "echo online_movable >$b/state; done; done; "
                   "echo $done blocks; wait $! && [ $done -gt 0 ]",
                   append="quire=fork movablecore=1G", timeout=1800, walks=True)
    assert result.status == 0, result.output[-4000:]
