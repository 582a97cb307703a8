# SPDX-License-Identifier: GPL-2.0
"""Runs tests of will-it-scale in guests: how often a second 1, 2, 4 and 8 tasks do what stresses memory management.

Each test runs as processes and as threads, on vanilla and on quire with all features off and on. Instructions are
counted for one task in a guest with one CPU. By the clock, a guest has a CPU for each task, and the three kernels take
turns, so that what else the host does falls on all. The tests are built from a git clone of will-it-scale, with a
main() of our own (scale.c), which warms up for a part of a second. The numbers are written to suites/results/scale;
suites/publish makes a table in docs/trust.md of them.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from guest import boot, cli, paths
from suites import publishing, running, storage
from suites.suite import HERE, SuiteError, build_once, checkout, origin, workers

NAME = "will-it-scale"
HOME = paths.BUILD / "suites" / NAME
SOURCE, STAMP, DRIVER = HOME / "source", HOME / "origin.json", HERE / "scale.c"
TESTS = ("page_fault1", "page_fault2", "page_fault3", "brk1", "mmap1", "mmap2", "malloc1", "malloc2", "signal1",
         "context_switch1")
MODES: dict[str, list[str]] = {"processes": [], "threads": ["-DTHREADS"]}
TASKS = (1, 2, 4, 8)
KERNELS = {"vanilla": ("vanilla", ""), "off": ("quire", "quire=off"), "on": ("quire", "quire=on")}
CLOCKS = ("icount", "time")
# How long a test warms up and is measured, in milliseconds. With a GHz, an instruction takes a nanosecond.
TIMES = {"icount": (200, 1000), "time": (300, 1000)}
# Numbers of one test on one kernel, one for each boot.
Row = dict[str, Any]


def programs() -> list[str]:
    """Return the names of all programs."""
    return [f"{test}_{mode}" for test in TESTS for mode in MODES]


def _compile(source: Path, wanted: dict[str, str]) -> None:
    """Build the tests from a commit of a clone. Raises SuiteError."""
    checkout(source, wanted["commit"], SOURCE, STAMP)
    for test in TESTS:
        for mode, flags in MODES.items():
            command = ["gcc", "-O2", *flags, "-o", str(HOME / f"{test}_{mode}"), str(DRIVER),
                       str(SOURCE / f"tests/{test}.c"), "-pthread"]
            done = subprocess.run(command, check=False, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            if done.returncode:
                raise SuiteError(f"{NAME}: {test} cannot be compiled: {done.stderr.strip().splitlines()[0]}")


def build(source: Path | None) -> dict[str, str]:
    """Build the tests of the commit that a clone is at, or take what was built last; return its origin.

    Raises SuiteError.
    """
    return build_once(NAME, STAMP, source, "it (suites/scale --source PATH)", _compile,
                      lambda clone: {**origin(clone), "driver": hashlib.sha256(DRIVER.read_bytes()).hexdigest()})


def script(chosen: list[str], tasks: int, clock: str) -> str:
    """Return what a guest runs: each program once, its name before its numbers.

    Where an area begins decides how many page tables it needs, so its address is not random.
    """
    warm, measure = TIMES[clock]
    return "\n".join(["echo 0 > /proc/sys/kernel/randomize_va_space",
                      *(f"echo {name} $({HOME / name} {tasks} {warm} {measure})" for name in chosen)])


def rates(output: str, chosen: list[str]) -> dict[str, float]:
    """Return the operations a second of each program. Raises SuiteError if one has none."""
    found = {}
    for line in output.splitlines():
        name, *numbers = line.split()
        if name in chosen and len(numbers) == 2 and int(numbers[0]):
            found[name] = int(numbers[0]) / float(numbers[1])
    missing = [name for name in chosen if name not in found]
    if missing:
        raise SuiteError(f"{', '.join(missing)} did nothing in a guest, which says: {output.strip()[-300:]}")
    return found


def run_guest(kernel: str, chosen: list[str], tasks: int, clock: str) -> dict[str, float]:
    """Run programs in a guest with a CPU for each task; return their rates. Raises SuiteError if the kernel complains.
    """
    variant, append = KERNELS[kernel]
    # The tests map 128 MB for each task.
    result = boot.run(script(chosen, tasks, clock), variant, "4G", tasks, append, clock == "icount", 1800,
                      plain_cpu=True)
    if not result.ok:
        raise SuiteError(f"{kernel} with {tasks} tasks: {result.reason or result.output.strip()[-300:]}")
    return rates(result.output, chosen)


def runs(clock: str, boots: int) -> Iterator[tuple[int, str]]:
    """Yield the guests of a clock, as a number of tasks and a kernel; the kernels take turns."""
    for tasks in TASKS if clock == "time" else (1,):
        for _ in range(boots if clock == "time" else 1):
            for kernel in KERNELS:
                yield tasks, kernel


def measure(clock: str, boots: int, chosen: list[str]) -> list[Row]:
    """Measure programs by a clock; return a row for each program and number of tasks, with the rates of each kernel."""
    rows: dict[tuple[str, int], Row] = {}
    every = list(runs(clock, boots))

    def one(task: tuple[int, tuple[int, str]]) -> dict[str, float]:
        number, (tasks, kernel) = task
        cli.progress(f"{clock}, guest {number} of {len(every)}: {tasks} tasks on {kernel}")
        return run_guest(kernel, chosen, tasks, clock)

    # What counts instructions is not disturbed by a guest beside it.
    with workers(2 if clock == "icount" else 1) as pool:
        for (tasks, kernel), found in zip(every, pool.map(one, enumerate(every, 1)), strict=True):
            for name, rate in found.items():
                row = rows.setdefault((name, tasks), {"program": name, "tasks": tasks})
                row.setdefault(kernel, []).append(round(rate, 1))
    return [rows[name, tasks] for name in chosen for tasks in TASKS if (name, tasks) in rows]


def run(args: Any) -> int:
    """Build, measure by each clock that is asked for, and keep the numbers."""
    for variant, _ in KERNELS.values():
        boot.image_of(variant)
    if not shutil.which("gcc"):
        raise SuiteError("this host has no gcc: make packages")
    known = build(Path(args.source) if args.source else None)
    chosen = [name for name in programs() if not args.only or name.startswith(tuple(args.only))]
    if not chosen:
        raise SuiteError(f"no test begins with {', '.join(args.only)}; there are: {', '.join(TESTS)}")
    kernels = [running.Kernel(*KERNELS[name], name) for name in KERNELS]
    for clock in args.clock or CLOCKS:
        images = running.ages(kernels)
        rows = measure(clock, args.boots, chosen)
        for row in rows:
            print(f"{clock} {row['program']}, {row['tasks']} tasks: off {publishing.ratio(row, 'off'):.3f}, "
                  f"on {publishing.ratio(row, 'on'):.3f} of vanilla's time", flush=True)
        why = "only some of its tests ran" if args.only else running.unfit(kernels, images)
        if why:
            print(f"note: the numbers are not kept: {why}", file=sys.stderr)
            continue
        storage.SCALE.mkdir(parents=True, exist_ok=True)
        result = {"suite": NAME, "version": known["version"], "clock": clock,
                  "date": time.strftime("%Y-%m-%d", time.gmtime()), "cpus": os.cpu_count(),
                  "base": running.about(kernels[0]), "quire": running.about(kernels[2]), "rows": rows}
        paths.write_whole(storage.SCALE / f"{clock}.json", storage.text_of(result))
    return 0


def main(argv: list[str] | None = None) -> int:
    """Do what the command line asks for."""
    parser = cli.Parser(prog="suites/scale", description=__doc__)
    parser.add_argument("--source", metavar="PATH", help="the git clone whose HEAD is built (default: what was built "
                        "last)")
    parser.add_argument("--clock", action="append", choices=CLOCKS, default=[],
                        help="only by this clock: counted instructions or time; may be repeated")
    parser.add_argument("--boots", type=cli.number(1, 20), default=3, metavar="N",
                        help="boots of each kernel by the clock (default 3)")
    parser.add_argument("--only", action="append", default=[], metavar="TEST",
                        help="only tests whose names begin so; may be repeated, and no numbers are kept then")
    try:
        return run(parser.parse_args(argv))
    except (SuiteError, boot.BootError, subprocess.CalledProcessError, OSError, ValueError, MemoryError) as error:
        print(f"error: {cli.explain(error)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        os._exit(130)  # the threads wait for their guests, which end with this process
