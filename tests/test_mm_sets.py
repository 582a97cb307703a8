# SPDX-License-Identifier: GPL-2.0
"""The kernel's own mm selftests, compared as sets with the pristine kernel's.

What passes on vanilla must pass on quire, with the features off and on, and nothing may be newly skipped. The tests
are the kernel's, and some of them race with the machine: a difference counts when it shows a second time, in a fresh
guest of either kernel.
"""

from __future__ import annotations

import fcntl
import re
import subprocess
from pathlib import Path

import pytest

from guest import boot, build, paths

TESTS = ["cow", "mremap_test", "mremap_dontunmap", "ksm_functional_tests", "madv_populate",
         "mlock2-tests", "mkdirty", "soft-dirty", "mrelease_test", "map_populate", "droppable", "mdwe_test",
         "on-fault-limit", "mlock-random-test"]
PROGRAMS = paths.BUILD / "mm_selftests"
LINE = re.compile(r"\s*(not )?ok \d+ (.*)")


def results(output: str) -> dict[str, str]:
    """Return "test: case" -> pass, skip or fail from what mm_selftests.sh prints; the status is a case of its own."""
    found: dict[str, str] = {}
    test = run = ""
    for line in output.splitlines():
        status = re.fullmatch(r"== (\S+) status (\d+)", line.strip())
        if status:
            found[f"{status[1]}: status"] = "pass" if status[2] == "0" else "fail"
        elif line.startswith("== "):
            test, run = line[3:].strip(), ""
        elif line.startswith("# [RUN]"):
            run = line[7:].strip() + ": "
        elif (case := LINE.match(line)):
            # Numbers in a name are addresses, counts and how much a race took, which differ from run to run.
            name = re.sub(r"0x[0-9a-f]+|\d{4,}|\d+(?=MB)", "N", run + case[2].split("# SKIP")[0].strip())
            outcome = "fail" if case[1] else "skip" if "# SKIP" in line else "pass"
            key = f"{test}: {name}"
            found[key] = worst(found.get(key, "pass"), outcome)
    return found


def worst(one: str, other: str) -> str:
    """Return the worse of two outcomes; cases of one name count as one."""
    order = ["pass", "skip", "fail"]
    return max(one, other, key=order.index)


def regressions(vanilla: dict[str, str], quire: dict[str, str]) -> dict[str, str]:
    """Return the cases that are worse on quire, or gone: "case" -> "pass on vanilla, fail here"."""
    order = ["pass", "skip", "fail", "missing"]
    worse = {}
    for case, there in vanilla.items():
        here = quire.get(case, "missing")
        if order.index(here) > order.index(there):
            worse[case] = f"{there} on vanilla, {here} here"
    return worse


@pytest.fixture(scope="session")
def programs() -> Path:
    """Build the kernel's mm selftests once, from the pristine source."""
    PROGRAMS.mkdir(parents=True, exist_ok=True)
    with open(PROGRAMS / ".lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not all((PROGRAMS / test).exists() for test in TESTS):
            objects = build.objects_of("vanilla")
            for command in (["make", "-s", f"O={objects.name}", "headers"],
                            ["make", "-s", "-C", "tools/testing/selftests/mm", f"OUTPUT={PROGRAMS}",
                             f"KHDR_INCLUDES=-isystem {objects}/usr/include",
                             *(str(PROGRAMS / test) for test in TESTS)]):
                subprocess.run(command, cwd=paths.BASE, check=True, stdin=subprocess.DEVNULL)
    return PROGRAMS


def run_set(programs: Path, tests: list[str], kernel: str, append: str) -> dict[str, str]:
    """Run tests in a fresh guest and return their results; a splat is a failure of the test that calls this."""
    command = [str(paths.REPO / "tests/mm_selftests.sh"), str(programs), *tests]
    result = boot.run(command, kernel=kernel, append=append, memory="3G", timeout=1500)
    assert not result.splats, "\n".join(map(str, result.splats))
    return results(result.output)


@pytest.fixture(scope="session")
def vanilla_results(programs: Path) -> dict[str, str]:
    """The results on the pristine kernel."""
    found = run_set(programs, TESTS, "vanilla", "")
    assert sum(outcome == "pass" for outcome in found.values()) > 500, "hardly anything ran on vanilla"
    return found


@pytest.mark.parametrize("features", ["off", "on"])
@pytest.mark.xdist_group("mm_sets")
def test_check_set(programs: Path, vanilla_results: dict[str, str], features: str) -> None:
    """Nothing that passes on vanilla fails, is skipped or is missing on quire."""
    append = f"quire={features}"
    worse = regressions(vanilla_results, run_set(programs, TESTS, "quire", append))
    if worse:
        again = sorted({case.split(":")[0] for case in worse}, key=TESTS.index)
        print("worse the first time:", worse)
        second = regressions(run_set(programs, again, "vanilla", ""), run_set(programs, again, "quire", append))
        worse = {case: text for case, text in second.items() if case in worse}
    assert not worse, "\n".join(f"{case}: {text}" for case, text in sorted(worse.items()))


def test_comparison_sees_a_failure_a_skip_and_a_loss() -> None:
    """The comparison itself: each way of being worse is named, and being better is not."""
    vanilla = results("== t\nok 1 a\nok 2 b\nok 3 c\nnot ok 4 d\n== t status 1\n")
    quire = results("== t\nnot ok 1 a\nok 2 b # SKIP no\nok 4 d\n== t status 1\n")
    assert regressions(vanilla, quire) == {"t: a": "pass on vanilla, fail here", "t: b": "pass on vanilla, skip here",
                                           "t: c": "pass on vanilla, missing here"}
