# SPDX-License-Identifier: GPL-2.0
"""The kernel's own selftests, run as sets and compared with the pristine kernel's.

What passes on vanilla must pass on quire, and nothing may be newly skipped; --kernel debug puts the debug kernel in
quire's place. Some of these tests race with the machine: a difference counts when it shows a second time, in a fresh
guest of either kernel.

A test is a program with its arguments, as a shell would be told.
"""

from __future__ import annotations

import fcntl
import re
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

import group
from guest import boot, build, paths

LINE = re.compile(r"\s*(not )?ok \d+ (.*)")
ORDER = ["pass", "skip", "fail", "missing"]


def results(output: str) -> dict[str, str]:
    """Return "test: case" -> pass, skip or fail from what a script of sets prints; the status is a case of its own."""
    found: dict[str, str] = {}
    test = run = ""
    for line in output.splitlines():
        status = re.fullmatch(r"== (.+) status (\d+)", line.strip())
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
    return max(one, other, key=ORDER.index)


def regressions(vanilla: dict[str, str], quire: dict[str, str]) -> dict[str, str]:
    """Return the cases that are worse on quire, or gone: "case" -> "pass on vanilla, fail here"."""
    worse = {}
    for case, there in vanilla.items():
        here = quire.get(case, "missing")
        if ORDER.index(here) > ORDER.index(there):
            worse[case] = f"{there} on vanilla, {here} here"
    return worse


def build_programs(folder: Path, tests: dict[str, list[str]]) -> None:
    """Build the programs of tests once, from the pristine source; `tests` are by their folder in the selftests."""
    tests = {part: sorted({test.split()[0] for test in names}) for part, names in tests.items()}
    folder.mkdir(parents=True, exist_ok=True)
    selftests = paths.BASE / "tools/testing/selftests"
    with open(folder / ".lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if all((folder / test).exists() for names in tests.values() for test in names):
            return
        objects = build.objects_of("vanilla")
        commands = [["make", "-s", f"O={objects.name}", "headers"]]
        # khugepaged.c needs a header that it does not name.
        commands += [["make", "-s", "-C", str(selftests / part), f"OUTPUT={folder}",
                      f"KHDR_INCLUDES=-isystem {objects}/usr/include",
                      *([f"EXTRA_CFLAGS=-include {selftests}/kselftest.h"] if "khugepaged" in names else []),
                      *(str(folder / name) for name in names)] for part, names in tests.items()]
        for command in commands:
            subprocess.run(command, cwd=paths.BASE, check=True, stdin=subprocess.DEVNULL)


def run_guest(command: list[str], kernel: str, append: str, memory: str = "3G", limit: float = 1500,
              **options: int) -> str:
    """Run a script of sets in a fresh guest and return its output.

    A splat, or a complaint of the features' checkers at the end, is a failure of the test that calls this.

    The script's limits are multiples of its SLOWDOWN, as the guest's is, of `limit` seconds. `options` are more of
    guest.boot.run's.
    """
    slowdown = group.DEBUG_SLOWDOWN if kernel == "debug" else 1
    script = group.with_walks(shlex.join(["env", f"SLOWDOWN={slowdown}", *command]))
    result = boot.run(script, kernel=kernel, append=append, memory=memory, timeout=limit * slowdown, **options)
    complaint = "\n".join(map(str, result.splats)) or group.walks(result.output)
    assert not complaint, complaint
    return result.output


def check(run: Callable[[list[str], str, str], dict[str, str]], tests: list[str], features: str,
          vanilla: dict[str, str], kernel: str) -> None:
    """Assert that nothing is worse on a kernel of ours; `run` runs tests on a kernel with its boot options."""
    append = f"quire={features}"
    worse = regressions(vanilla, run(tests, kernel, append))
    if worse:
        again = sorted({case.split(":")[0] for case in worse}, key=tests.index)
        print("worse the first time:", worse)
        second = regressions(run(again, "vanilla", ""), run(again, kernel, append))
        worse = {case: text for case, text in second.items() if case in worse}
    assert not worse, "\n".join(f"{case}: {text}" for case, text in sorted(worse.items()))
