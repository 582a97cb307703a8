# SPDX-License-Identifier: GPL-2.0
"""The kernel's own selftests, run as sets and compared with the pristine kernel's.

What passes on vanilla must pass on quire, and nothing may be newly skipped. With --kernel debug, the debug kernel takes
quire's place. Some of these tests depend on timing: a difference counts only if it appears a second time, in a fresh
guest.

The outcomes of a set on vanilla are recorded in the repository (tests/record.py). The record is used if it is valid,
that is if base, configuration, compiler, emulator and guest are those that it was made with. Otherwise vanilla is
booted.

A test is a program with its arguments, written as for a shell.
"""

from __future__ import annotations

import fcntl
import hashlib
import re
import shlex
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import group
from guest import boot, build, paths, splat, tree

RECORDS = paths.REPO / "tests" / "records"
# The guests of all sets, except for a set's own options.
SHAPE = {"cpus": 2, "memory": "3G", "numa": 1}
LINE = re.compile(r"\s*(not )?ok \d+ (.*)")
# From good to bad.
ORDER = ["pass", "skip", "fail", "broken", "timeout", "missing"]
ASK_VANILLA = "(compared with the record; after make kernel VARIANT=vanilla the second run also runs vanilla)"


@dataclass(frozen=True)
class Set:
    """Tests that one guest runs. Call `prepare` first; then `run` runs some of them on a kernel with boot options.

    `script` runs them in the guest. `options` are the options of guest.boot.run that this set's guest has besides
    SHAPE.
    """

    name: str
    tests: list[str]
    script: Path
    prepare: Callable[[], None]
    run: Callable[[list[str], str, str], dict[str, str]]
    options: dict[str, Any] = field(default_factory=dict)
    in_check: bool = False

    @property
    def record(self) -> Path:
        """The file with the set's outcomes on vanilla."""
        return RECORDS / f"{self.name}.json"


def results(output: str) -> dict[str, str]:
    """Return "test: case" -> pass, skip or fail from the output of a set's script; the status is a case of its own."""
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
            # Numbers in a name are addresses, counts and timings, which differ from run to run.
            name = re.sub(r"0x[0-9a-f]+|\d{4,}|\d+(?=MB)", "N", run + case[2].split("# SKIP")[0].strip())
            outcome = "fail" if case[1] else "skip" if "# SKIP" in line else "pass"
            key = f"{test}: {name}"
            found[key] = worst(found.get(key, "pass"), outcome)
    return found


def worst(one: str, other: str) -> str:
    """Return the worse of two outcomes; cases of one name count as one."""
    return max(one, other, key=ORDER.index)


def regressions(vanilla: dict[str, str], quire: dict[str, str], base: str = "vanilla") -> dict[str, str]:
    """Return the cases that are worse or missing on quire: "case" -> "pass on vanilla, fail here".

    `base` names the kernel that quire is compared with.
    """
    worse = {}
    for case, there in vanilla.items():
        here = quire.get(case, "missing")
        if ORDER.index(here) > ORDER.index(there):
            worse[case] = f"{there} on {base}, {here} here"
    return worse


def build_programs(folder: Path, tests: dict[str, list[str]]) -> None:
    """Build the programs of tests once, from the pristine source; `tests` has them by their folder in the selftests."""
    tests = {part: sorted({test.split()[0] for test in names}) for part, names in tests.items()}
    folder.mkdir(parents=True, exist_ok=True)
    selftests = paths.BASE / "tools/testing/selftests"
    with open(folder / ".lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if all((folder / test).exists() for names in tests.values() for test in names):
            return
        objects = build.objects_of("vanilla")
        commands = [["make", "-s", f"O={objects.name}", "headers"]]
        # khugepaged.c needs a header that it does not include.
        commands += [["make", "-s", "-C", str(selftests / part), f"OUTPUT={folder}",
                      f"KHDR_INCLUDES=-isystem {objects}/usr/include",
                      *([f"EXTRA_CFLAGS=-include {selftests}/kselftest.h"] if "khugepaged" in names else []),
                      *(str(folder / name) for name in names)] for part, names in tests.items()]
        for command in commands:
            subprocess.run(command, cwd=paths.BASE, check=True, stdin=subprocess.DEVNULL)


def boot_script(command: list[str], kernel: str, append: str, limit: float,
                **options: Any) -> tuple[boot.Result, str]:
    """Run a script of sets in a fresh guest; return its result, and the splats or the complaint of the checkers.

    The debug kernel gets a multiple of `limit`, which is in seconds; the script multiplies its own limits by SLOWDOWN.
    `options` are further options of guest.boot.run.
    """
    slowdown = group.DEBUG_SLOWDOWN if kernel == "debug" else 1
    script = group.with_walks(shlex.join(["env", f"SLOWDOWN={slowdown}", *command]))
    result = boot.run(script, kernel=kernel, append=append, timeout=limit * slowdown, **{**SHAPE, **options})
    return result, splat.summary(result.splats) or group.walks(result.output)


def run_guest(command: list[str], kernel: str, append: str, limit: float = 1500, **options: Any) -> str:
    """Run a script of sets as boot_script() does, and return its output.

    A splat, or a complaint of the features' checkers at the end, fails the test that calls this function.
    """
    result, complaint = boot_script(command, kernel, append, limit, **options)
    assert not complaint, complaint
    return result.output


def version_of(program: str) -> str:
    """Return the first line of a program's --version."""
    return subprocess.run([program, "--version"], text=True, check=True, stdout=subprocess.PIPE).stdout.split("\n")[0]


def key_of(one: Set, kernel: str) -> dict[str, Any]:
    """Return what a set's outcomes on vanilla depend on; `kernel` is any built kernel, to see whether KVM works."""
    return {
        "base": tree.kernel_version(paths.BASE),
        "configuration": build.config_hash("vanilla"),
        "compiler": version_of("gcc"),
        "emulator": version_of(boot.QEMU),
        "guest": {**SHAPE, **one.options, "accelerator": "KVM" if boot.kvm_works(kernel) else "TCG"},
        "script": hashlib.sha256(one.script.read_bytes()).hexdigest(),
        "tests": one.tests,
    }


def misfit(one: Set, kernel: str) -> str:
    """Say why a set's record is not valid here, "" if it is."""
    known = paths.read_stamp(one.record)
    if known is None:
        return "there is no record"
    return "; ".join(f"{part}: {value} here, {known['key'].get(part)} in the record"
                     for part, value in key_of(one, kernel).items() if known["key"].get(part) != value)


def vanilla_of(one: Set, kernel: str) -> dict[str, str]:
    """Return a set's outcomes on vanilla: the steady cases of the record if it is valid, else those of a guest."""
    why = misfit(one, kernel)
    if why:
        print(f"{one.name}: vanilla is booted ({why})")
        return one.run(one.tests, "vanilla", "")
    known = paths.read_stamp(one.record)
    return {case: outcome for case, outcome in known["cases"].items() if case not in known["unsteady"]}


def compare(one: Set, kernel: str, least: int, features: tuple[str, ...] = ("off", "on")) -> dict[str, str]:
    """Assert that nothing is worse on a kernel of ours, and that more than `least` pass on vanilla.

    `features` says in which runs: with all features off, with all on. Returns what the set says on vanilla.
    """
    one.prepare()
    vanilla = vanilla_of(one, kernel)
    assert sum(outcome == "pass" for outcome in vanilla.values()) > least, f"hardly anything ran on vanilla: {vanilla}"
    for state in features:
        check(one.run, one.tests, state, vanilla, kernel)
    return vanilla


def check(run: Callable[[list[str], str, str], dict[str, str]], tests: list[str], features: str,
          vanilla: dict[str, str], kernel: str) -> None:
    """Assert that nothing is worse on our kernel; `run` runs tests on a kernel with boot options.

    If vanilla is not built, the second run is compared with the same outcomes as the first.
    """
    append, asked = f"quire={features}", build.image_of("vanilla").exists()
    worse = regressions(vanilla, run(tests, kernel, append))
    if worse:
        again = sorted({case.split(":")[0] for case in worse}, key=tests.index)
        print("worse the first time:", worse)
        second = regressions(run(again, "vanilla", "") if asked else vanilla, run(again, kernel, append))
        worse = {case: text for case, text in second.items() if case in worse}
    assert not worse, "\n".join([*(f"{case}: {text}" for case, text in sorted(worse.items())),
                                 *([] if asked else [ASK_VANILLA])])
