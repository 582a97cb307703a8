# SPDX-License-Identifier: GPL-2.0
"""prezero: pre-zeroed pages are zero, are used, and go away, in a guest."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import hibernation
import ktap
from guest import boot, paths, splat

FOLDER = "/sys/kernel/mm/quire/prezero"
# On the debug kernel, only the soak runs these.
SLOW = ("prezero_split",)
WORKLOADS = Path(__file__).parent / "workloads"


@pytest.mark.debug
def test_basic(kernel: str, selftests: Callable[..., dict[str, ktap.Report]]) -> None:
    """Switches and knobs work, the pool has hits, and every path that must clear the mark of a zeroed page does.

    Huge blocks are split for base pages only while little of free memory is in smaller blocks.

    Only the plain kernel has the movable zone for memory hotplug and the contiguous area: on the debug kernel, KASAN's
    shadow takes most of the zone.
    """
    slow, areas = ((), "") if kernel == "debug" else (SLOW, " movablecore=1G cma=64M")
    # In this order: prezero_split needs memory that is not in pieces yet.
    reports = selftests(*slow, "prezero_basic", append=f"quire=prezero{areas}", cpus=2, timeout=1200)
    absent = {"page_reporting"} | ({"memory_hotplug", "contiguous_area"} if kernel == "debug" else set())
    skipped = reports["prezero_basic"].skipped
    assert {name.split()[0].split(".")[-1] for name in skipped} == absent, skipped


@pytest.mark.soak
@pytest.mark.debug
@pytest.mark.debug_only
def test_slow_selftests(selftests: Callable[..., dict[str, ktap.Report]]) -> None:
    """The selftests that are slow on the debug kernel pass there, too."""
    selftests(*SLOW, append="quire=prezero", timeout=1200)


def test_unused(selftest: Callable[..., ktap.Report]) -> None:
    """As a virtual machine starts, only memory that was freed since the switch-on is zeroed."""
    report = selftest("prezero_unused", append="quire=prezero movablecore=1G", timeout=1200)
    assert not report.skipped, report.skipped
    # Without a movable zone, so many unused blocks are in one list that a scan of it does not reach its end at once.
    selftest("prezero_unused", "-t", "zeroed_blocks_are_found", append="quire=prezero", memory="6G")


def resident_mb(unused: int) -> int:
    """Return the most memory, in MB, that QEMU needed for a guest that did nothing but zero what it may."""
    script = f"echo {unused} > {FOLDER}/scrub_unused && echo 1 > {FOLDER}/scrub_now"
    process = subprocess.Popen([paths.REPO / "guest/run", "--kernel", "quire", "--memory", "4G", "--timeout", "600",
                                "--append", "quire=prezero", "--", "bash", "-c", script])
    # QEMU is the largest of the processes that this one has waited for.
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return usage.ru_maxrss >> 10


def test_unused_memory_stays_unbacked() -> None:
    """An idle guest's kscrubd does not touch memory that the host has not backed; scrub_unused=1 shows that it could.

    scrub_stop is 30 % of 4 GB; half of that is demanded.
    """
    assert resident_mb(0) + 600 < resident_mb(1)


def test_init_on_alloc(selftest: Callable[..., ktap.Report]) -> None:
    """If every request wants zeroed memory, the pool serves all of them, and other pages are cleared only once."""
    cases = ("huge_faults_take_from_the_pool", "an_empty_pool_costs_one_clear", "shmem", "hugetlb_counts_as_zero_once",
             "others_waste_it")
    report = selftest("prezero_basic", *(word for case in cases for word in ("-t", case)),
                      append="quire=prezero init_on_alloc=1", timeout=1200)
    assert len(report.passed) == len(cases)


@pytest.mark.debug
def test_hugetlb(kernel: str, selftest: Callable[..., ktap.Report]) -> None:
    """Free pages of hugetlb's pool are zeroed and handed out; its counts and reservations stay as they are."""
    # KASAN makes a gigantic page that is touched byte by byte too slow.
    gigantic = "" if kernel == "debug" else "hugepagesz=1G hugepages=1 "
    report = selftest("prezero_hugetlb", append=f"quire=prezero {gigantic}hugepagesz=2M hugepages=64", memory="5G",
                      leaks=True, timeout=1200)
    assert len(report.skipped) == (3 if kernel == "debug" else 0), report.skipped


def test_page_reporting(selftest: Callable[..., ktap.Report]) -> None:
    """A page that was reported to the hypervisor as free no longer counts as zeroed."""
    report = selftest("prezero_basic", "-t", "page_reporting", append="quire=prezero", timeout=1200,
                      qemu="-device virtio-balloon-pci,free-page-reporting=on")
    assert report.passed


@pytest.mark.parametrize("boots", [("test_resume",), ("shutdown", "shutdown")])
def test_hibernation(kernel: str, selftest_programs: Path, tmp_path: Path, boots: tuple[str, ...]) -> None:
    """No mark survives hibernation, whether the same boot or another kernel restores the image."""
    programs = [selftest_programs / "prezero_basic"]
    reports = [hibernation.start(tmp_path, kernel, how, programs, 1200) for how in boots]
    assert "hugetlb: 2048\n" in reports[0][0], reports[0]
    for _, console in reports:
        assert not splat.find(console), console
    said = reports[-1][0]
    lines = [line.strip() for line in said.splitlines()]
    assert {"hibernated: 0", "after: 0", "data: same", "again: 1", "state: on",
            "marked_pages 0 dirty_blocks 0 miscounted_pages 0 hugetlb_pages 0"} <= set(lines), f"{said}\n{console}"
    report = ktap.parse("\n".join(line for line in lines if re.match(r"1\.\.|(not )?ok ", line)))
    assert report.passed and not report.failed and not report.problems, said


def test_arithmetic(selftest_programs: Path) -> None:
    """The daemon's arithmetic, built for the host, agrees with the same arithmetic in 128 bits."""
    done = subprocess.run([str(selftest_programs / "prezero_math")], text=True, check=False, stdout=subprocess.PIPE)
    report = ktap.parse(done.stdout)
    assert done.returncode == 0 and len(report.passed) == 3, done.stdout


@pytest.mark.parametrize("fill, cases", [(1, "zeroes fails lies hangs"), (0, "zeroes lies_for_good")])
def test_engine(selftest: Callable[..., ktap.Report], fill: int, cases: str) -> None:
    """A DMA engine fills, fails, lies and hangs; another one copies. An idle guest's clock jumps to the next event."""
    arguments = [word for case in cases.split() for word in ("-t", case)]
    report = selftest("prezero_engine", *arguments, append=f"quire=prezero edu_dma.dma_bits=40 edu_dma.fill={fill}",
                      qemu=f"-device edu,dma_mask={(1 << 40) - 1}", memory="1G", icount=True, timeout=1200)
    assert len(report.passed) == len(cases.split())


def test_engine_refused(selftest: Callable[..., ktap.Report]) -> None:
    """A device that cannot address all memory is not used: it would write to bounce buffers."""
    selftest("prezero_engine", "refused", append="quire=prezero edu_dma.dma_bits=32",
             qemu=f"-device edu,dma_mask={(1 << 32) - 1}", memory="5G")


@pytest.mark.soak
@pytest.mark.debug
def test_stress_short(selftest: Callable[..., ktap.Report]) -> None:
    """A fixed sequence of memory use on four CPUs, while switches and knobs change."""
    selftest("prezero_stress", "40", "1", "3", append="quire=prezero", cpus=4, timeout=1200)


def test_two_nodes(guest: Callable[..., boot.Result]) -> None:
    """A node with CPUs has a daemon while the feature is on, a memory-only node has none; off, no node has one."""
    daemons = "cat /proc/[0-9]*/comm 2>/dev/null | grep ^kscrubd | sort | tr '\\n' ' '"
    result = guest(f"{daemons}; echo 0 > {FOLDER}/enabled; {daemons}; cat {FOLDER}/state",
                   append="quire=prezero", numa=2, cpus=1)
    assert result.status == 0, result.output
    assert result.output == "kscrubd/0 off\n"


@pytest.mark.soak
@pytest.mark.debug
@pytest.mark.debug_only
@pytest.mark.parametrize("option", ["page_poison=1", "debug_pagealloc=on"])
def test_refused_by_debug_options(guest: Callable[..., boot.Result], option: str) -> None:
    """The feature stays off if free memory is filled with a pattern or not mapped."""
    result = guest(f"cat {FOLDER}/state; echo 1 > {FOLDER}/enabled; cat {FOLDER}/state",
                   kernel="debug", append=f"quire=prezero {option}")
    lines = result.output.splitlines()
    assert lines[0] == lines[-1] == "off" and "not supported" in lines[1], result.output


def test_refused_where_free_memory_is_not_plain(guest: Callable[..., boot.Result]) -> None:
    """With init_on_free=1 the feature cannot be switched on; off, it has no daemon and counts nothing."""
    result = guest(f"cat /proc/[0-9]*/comm 2>/dev/null | grep -c ^kscrubd; cat {FOLDER}/state; "
                   f"cat {FOLDER}/stats/* | sort -u; echo 1 > {FOLDER}/enabled; cat {FOLDER}/state",
                   append="quire=prezero init_on_free=1")
    lines = result.output.splitlines()
    assert lines[:3] == ["0", "off", "0"], result.output
    assert "not supported" in lines[3] and lines[4:] == ["off"], result.output


@pytest.mark.soak
@pytest.mark.debug
def test_verify_long(guest: Callable[..., boot.Result], minutes: int) -> None:
    """Verify mode finds nothing under stress-ng's memory stressors and a storm of swapping."""
    result = guest([str(WORKLOADS / "verify.sh"), str(minutes * 60)], append="quire=prezero", memory="1G",
                   timeout=minutes * 60 + 1800)
    assert result.status == 0, result.output
    counts = dict(re.findall(r"^(hit_\w+|pswpout) (\d+)$", result.output, re.M))
    assert len(counts) == 4 and all(map(int, counts.values())), result.output


@pytest.mark.soak
@pytest.mark.debug
def test_stress_long(selftest: Callable[..., ktap.Report], minutes: int) -> None:
    """Other sequences, for the time that was asked for."""
    end, seed = time.monotonic() + 60 * minutes, 2
    while seed == 2 or time.monotonic() < end:
        selftest("prezero_stress", "400", str(seed), "4", append="quire=prezero", cpus=4, timeout=3600)
        seed += 1
