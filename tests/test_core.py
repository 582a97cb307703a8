# SPDX-License-Identifier: GPL-2.0
"""What the features share, in the guest: unit tests at boot, switching, counters."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from guest import boot, paths

QUIRE = "/sys/kernel/mm/quire"
# Every KUnit suite of mm/quire, which kernel/config/quire.config builds into the plain and the debug kernel.
SUITES = {"quire_core", "quire_fork", "quire_pt", "quire_prezero", "quire_rmap", "quire_text"}


@pytest.mark.debug
def test_unit_tests_vmstat_and_switches(guest: Callable[..., boot.Result]) -> None:
    """Each KUnit suite of quire passes at boot, and /proc/vmstat has each counter of each feature's stats.

    Each feature can be switched on and off and drained; an invalid value is refused and changes nothing.
    """
    script = (f"dmesg; echo == vmstat; grep ^quire_ /proc/vmstat; echo == stats; cd {QUIRE}; "
              "for file in */stats/*; do echo \"$file\"; done; echo == states; "
              "for file in */enabled; do for value in 1 0 1 2 1; do echo $value > $file || exit 1; done; "
              "for bad in 3 -1 on ''; do echo \"$bad\" > $file && exit 2; done 2>/dev/null; "
              "read state < ${file%/enabled}/state; echo $file $state; done")
    result = guest(script)
    assert result.status == 0, result.output
    log, vmstat, stats, switched = re.split(r"^== \w+\n", result.output, flags=re.M)
    # For a skipped suite, the line goes on after the name.
    suites = {name: outcome for outcome, name in re.findall(r"\] ((?:not )?ok) \d+ (quire_\w+.*)$", log, re.M)}
    assert suites == dict.fromkeys(SUITES, "ok")
    shown = {line.split()[0] for line in vmstat.splitlines()}
    assert shown == {"quire_" + path.replace("/stats/", "_") for path in stats.split()}
    states = dict(line.split() for line in switched.splitlines())
    assert states and set(states.values()) == {"on"}, states


def test_every_unit_test_is_asked_for() -> None:
    """SUITES names all suites that the sources register, so that none can silently be missing from the kernel."""
    sources = "".join(path.read_text(encoding="utf-8") for path in (paths.OVERLAY / "mm/quire").glob("*/*_test.c"))
    assert set(re.findall(r'^\t\.name = "(quire_\w+)",$', sources, re.M)) == SUITES
    assert sources.count("\nkunit_test_suite(") == len(SUITES)


def test_inconsistency_takes_a_feature_off_for_good(kernel: str) -> None:
    """A feature that warns goes off, stays off, can still be drained, and leaves the other features on."""
    script = f"""
        cd {QUIRE}
        others=$(ls -d */ | grep -v prezero)
        echo prezero > /sys/kernel/debug/quire/trigger
        until read state < prezero/state && [ $state != on ]; do sleep 0.1; done
        echo $state
        echo 1 2> /dev/null > prezero/enabled && echo on again
        echo 2 > prezero/enabled && echo drained
        cat prezero/state
        for other in $others; do read state < $other/state; [ $state = on ] || echo $other is $state; done
    """
    result = boot.run(script, kernel=kernel, append="quire=on", timeout=1200)
    assert [splat.title for splat in result.splats if "quire" not in splat.title] == []
    assert result.status == boot.SPLAT
    assert result.output.split("\n") == ["disabled_by_warning", "drained", "disabled_by_warning", ""]


def test_damaged_table_entry(kernel: str) -> None:
    """If no feature was ever on, a PMD whose damage looks like a mark is reported and cleared, as in vanilla.

    The process that has it ends.
    """
    result = boot.run("printf pmd | dd of=/sys/kernel/debug/quire/trigger status=none; echo after", kernel=kernel,
                      timeout=120)
    assert result.status == boot.SPLAT, result.reason or result.output
    assert {one.kind for one in result.splats} == {"bad page"}, [one.title for one in result.splats]
    assert "bad pmd" in result.console
    assert result.output.endswith("after\n")
