# SPDX-License-Identifier: GPL-2.0
"""guest.splat, on texts of console logs."""

from __future__ import annotations

import pytest

from guest import splat

KASAN = """\
[   12.000000] ==================================================================
[   12.000001][  T101] BUG: KASAN: slab-out-of-bounds in trigger_write+0x10/0x20
[   12.000002][  T101] Write of size 1 at addr ffff888001234567 by task sh/101
[   12.000003][  T101] Call Trace:
[   12.000004][  T101] ==================================================================
[   12.000005] Disabling lock debugging due to kernel taint
"""


@pytest.mark.parametrize("kind, line", [
    ("warning", "WARNING: CPU: 1 PID: 55 at mm/quire/core/debug.c:30 trigger_write+0x1/0x2"),
    ("bug", "BUG: kernel NULL pointer dereference, address: 0000000000000000"),
    ("bug", "BUG: sleeping function called from invalid context at mm/x.c:1"),
    ("bug", "kernel BUG at mm/quire/core/debug.c:40!"),
    ("kasan", "BUG: KASAN: use-after-free in foo+0x1/0x2"),
    ("bad page", "BUG: Bad page state in process sh  pfn:12345"),
    ("bad page", "BUG: Bad page map in process sh  pte:8000000012345067 pmd:12345067"),
    ("bad page", "BUG: Bad rss-counter state mm:ffff8880 type:MM_ANONPAGES val:1"),
    ("bad page", "BUG: non-zero pgtables_bytes on freeing mm: 4096"),
    ("oops", "Oops: general protection fault, probably for non-canonical address 0xdead: 0000 [#1] SMP"),
    ("oops", "Oops: 0002 [#1] PREEMPT SMP KASAN NOPTI"),
    ("panic", "Kernel panic - not syncing: quire: deliberate panic"),
    ("lockup", "watchdog: BUG: soft lockup - CPU#0 stuck for 26s! [sh:1]"),
    ("stall", "rcu: INFO: rcu_sched detected stalls on CPUs/tasks:"),
    ("stall", "rcu: INFO: rcu_preempt self-detected stall on CPU"),
    ("hung task", "INFO: task sh:77 blocked for more than 120 seconds."),
    ("lockdep", "WARNING: possible circular locking dependency detected"),
    ("lockdep", "WARNING: suspicious RCU usage"),
    ("lockdep", "WARNING: inconsistent lock state"),
    ("lockdep", "INFO: trying to register non-static key."),
    ("leak", "kmemleak: 3 new suspected memory leaks (see /sys/kernel/debug/kmemleak)"),
])
@pytest.mark.parametrize("stamp", ["", "[    3.141592] ", "[    3.141592][  T123] ", "<4>[    3.141592] "])
def test_each_kind_is_found(kind: str, line: str, stamp: str) -> None:
    """Every kind of report is found and named, with and without time stamps."""
    found = splat.find(f"{stamp}usual line\n{stamp}{line}\n{stamp}more\n")
    assert [(one.kind, one.title) for one in found] == [(kind, line)]


@pytest.mark.parametrize("line", [
    "traps: a.out[77] general protection fault ip:401000 sp:7ffe error:0 in a.out[401000+1000]",
    "a.out[77]: segfault at 0 ip 0000000000401000 sp 00007ffe error 4 in a.out[401000+1000]",
    "[Firmware Bug]: TSC_DEADLINE disabled due to Errata",
    "Spectre V2 : WARNING: Unprivileged eBPF is enabled",
    "Out of memory: Killed process 77 (sh) total-vm:1kB",
    "FAULT_INJECTION: forcing a failure.",
    "sh: page allocation failure: order:0, mode:0xcc0(GFP_KERNEL)",
    "kmemleak: Kernel memory leak detector initialized (mem pool available: 15000)",
    "printk: legacy bootconsole [earlyser0] disabled",
    "# quire_core: pass:3 fail:0 skip:0 total:3",
])
def test_usual_lines_are_no_splat(line: str) -> None:
    """Messages of a healthy kernel are no splat, nor are those about user programs that crash."""
    assert not splat.find(f"[    1.000000] {line}\n")


def test_report_is_whole_and_bounded() -> None:
    """A KASAN report extends to its closing line, and what follows is not part of it."""
    (one,) = splat.find(KASAN)
    assert one.kind == "kasan"
    assert "Write of size 1" in one.text
    assert "Disabling lock debugging" not in one.text


def test_panic_after_an_oops_is_named() -> None:
    """The panic that an oops ends in is a report of its own."""
    text = "BUG: unable to handle page fault for address: 0\nOops: 0000 [#1] SMP\nRIP: 0010:foo\n" \
           "Kernel panic - not syncing: Fatal exception\n---[ end Kernel panic - not syncing: Fatal exception ]---\n"
    assert [one.kind for one in splat.find(text)] == ["bug", "panic"]


def test_equal_reports_count_once() -> None:
    """A report that a replayed console shows twice counts once."""
    text = "WARNING: CPU: 0 PID: 1 at a.c:1 f+0x1/0x2\nRIP: f\n---[ end trace 0 ]---\n"
    assert len(splat.find(text + "between\n" + text)) == 1


def test_noise_is_stripped() -> None:
    """Escape sequences of the firmware and carriage returns do not hide a report."""
    assert splat.find("\x1b[2J\x1b[1;1HWARNING: CPU: 0 PID: 1 at a.c:1 f+0x1/0x2\r\n")


def test_the_words_of_a_warning_belong_to_it() -> None:
    """The message of a WARN() comes before the line that names the place, and is part of the report."""
    (one,) = splat.find("usual\n------------[ cut here ]------------\nquire: counts differ\n"
                        "WARNING: CPU: 0 PID: 1 at a.c:1 f+0x1/0x2\nRIP: f\n---[ end trace 0 ]---\nusual\n")
    assert one.text.splitlines()[0] == "quire: counts differ"
    assert one.title.startswith("WARNING: ")
    assert "usual" not in one.text
