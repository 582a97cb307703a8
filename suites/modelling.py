# SPDX-License-Identifier: GPL-2.0
"""Runs the features' models in guests under pressure, and adds up how many steps they took without a mismatch.

A model is one of our selftests: processes do random things to their memory, and it knows what each page must hold. The
kernel reclaims, compacts and swaps their pages meanwhile, a CPU and memory blocks go away and come back, and the
features that the model is not about are switched off and on. The debug kernel also lets allocations fail, and the
kernel kcsan looks for data races. Each guest begins with a seed of its own. The steps are added to those in
suites/results/models, of which suites/publish makes a table in docs/trust.md. The exit status is 1 if a model or a
checker of the features found a mismatch, or if the kernel complained: of a race, if it is ours (guest/races.py).
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import group
import pressure
import programs
from guest import boot, cli, paths, races, splat
from suites import running, storage
from suites.suite import SuiteError, workers

HOME = paths.BUILD / "suites" / "models"
# What fork_model and rmap_model say of their steps.
STEPS = re.compile(r"^# (?:\S+:)?(\d+) steps, ", re.M)
PASSED = re.compile(r"^# PASSED: 1 / 1 ", re.M)
# Both of the last lines of pressure.script(), if pages went to swap and came back.
SWAPPED = re.compile(r"^pswpin [1-9]\d*\npswpout [1-9]", re.M)
# The CPU time of the control group that a model runs in, in microseconds.
USED = re.compile(r"^(user|system)_usec (\d+)$", re.M)
# How long the runs of a model took together, in seconds: the last may end after the time that was asked for.
TOOK = re.compile(r"^took (\d+)$", re.M)
# How many allocations failed on purpose.
FAILED = re.compile(r"^failed (\d+)$", re.M)
# What a guest may need besides the time that it is given: its start, the last run of the model, and its end.
SPARE = 900
CPUS = 2
# A CPU goes away and comes back, then a block of memory, if its pages can be moved within two seconds; then features.
BESIDE = """echo 0 >/sys/devices/system/cpu/cpu1/online; echo 1 >/sys/devices/system/cpu/cpu1/online
    block=$(ls -d /sys/devices/system/memory/memory[0-9]* | shuf -n 1)
    timeout 2 sh -c "echo offline >$block/state"; echo online >$block/state
    for other in {others}; do
        for state in 0 1; do echo $state >/sys/kernel/mm/quire/$other/enabled; done
    done"""
# On the debug kernel a tenth of the allocations fail that must not wait: those under a lock, and those that have
# something to fall back on, to which huge pages belong with "defer". A model takes the failure of another, such as that
# of fork(2), for a mismatch. No node of an XArray fails: if one does in the middle of a huge page's entries in the swap
# cache, add_to_swap_cache() leaves empty ones, and swapoff(2) warns of them, with all features off, too. `times` counts
# down. None fails any more when the model has ended, because the checkers allocate under locks.
FAILING = "debug"
RACING = "kcsan"
SPARED = ("xas_alloc", "xas_nomem", "__xas_nomem")
MOST = 10**9
INJECT = """inject() {{
    for one in failslab fail_page_alloc; do
        (cd /sys/kernel/debug/$one && $1)
    done
}}
start() {{
    echo {spared[0]} >reject-start; echo {spared[1]} >reject-end
    [ ! -e ignore-gfp-highmem ] || echo N >ignore-gfp-highmem
    [ ! -e min-order ] || echo 0 >min-order
    echo 0 >verbose; echo {most} >times; echo 10 >probability
}}
stop() {{ echo 0 >probability; echo failed $(({most} - $(cat times))); }}
echo defer >/sys/kernel/mm/transparent_hugepage/defrag
inject start
(
{work}
)
status=$?
inject stop
exit $status"""
FEATURES = ("fork", "prezero", "rmap", "shm", "text")


@dataclass(frozen=True)
class Model:
    """A program with its arguments, the features that it is about, and the limit of its control group.

    `steps` are those of a run that passes, for a program that does not say how many they are.
    """

    command: str
    features: tuple[str, ...]
    limit: str = "max"
    steps: int = 0

    def script(self, seconds: int, seed: int, spare: tuple[str, str] | None = None) -> str:
        """Return what a guest runs for some seconds, with seeds from `seed` on.

        With `spare`, allocations fail, except for those by functions between these addresses.
        """
        others = " ".join(one for one in FEATURES if one not in self.features)
        work = "\n".join([pressure.script(f"{programs.FOLDER}/{self.command}", seconds, self.limit, seed,
                                          BESIDE.format(others=others)),
                          "grep -E '^(user|system)_usec' little/cpu.stat", "echo took $SECONDS"])
        return INJECT.format(work=work, spared=spare, most=MOST) if spare else work


MODELS = {
    # memory.high would make its processes sleep for most of the time, as it is exceeded whenever swap is emptied.
    "fork": Model("fork_model $seed 2", ("fork",)),
    "rmap": Model("rmap_model 600 $seed deep", ("rmap",), "8M"),
    "rmap-shared": Model("rmap_model 600 $seed shared moved", ("rmap", "fork"), "8M"),
    "shm": Model("shm_model $seed 10", ("shm", "fork"), steps=10 * 150),
    "shm-race": Model("shm_model $seed 10 race", ("shm", "fork"), steps=10 * 4 * 400),
}


def between(listing: str) -> tuple[str, str]:
    """Return the addresses of the first of SPARED and of the function after the last, from what nm prints of a kernel.

    Guests' kernels are not moved at boot.
    """
    known = races.symbols(listing)
    found = [address for name in SPARED for address in known.get(name, [])]
    after = min(address for addresses in known.values() for address in addresses if address > max(found))
    return f"{min(found):#x}", f"{after:#x}"


def spared(kernel: str) -> tuple[str, str] | None:
    """Return between which addresses allocations succeed in the guests of a kernel, None if all do."""
    if kernel != FAILING:
        return None
    return between(subprocess.run(["nm", str(paths.BUILD / kernel / "vmlinux")], text=True, check=True,
                                  stdout=subprocess.PIPE).stdout)


def steps_of(model: Model, output: str) -> int:
    """Return how many steps the runs of a model took."""
    return model.steps * len(PASSED.findall(output)) + sum(map(int, STEPS.findall(output)))


def used(output: str, seconds: int) -> dict[str, float]:
    """Return the parts of the CPUs' time that a model's processes spent in user space and in the kernel."""
    return {mode: round(int(time) / 1e6 / (CPUS * seconds), 3) for mode, time in USED.findall(output)}


def run_guest(name: str, seconds: int, seed: int, kernel: str) -> dict[str, Any]:
    """Run a model in a guest; return its steps, what is wrong ("" for nothing), and the CPU time that it took.

    With KCSAN also the races of Linux's own, each once.
    """
    model = MODELS[name]
    slowdown = group.DEBUG_SLOWDOWN if kernel == "debug" else 1
    script, options = model.script(seconds, seed, spared(kernel)), f"quire={','.join(model.features)}"
    if kernel == RACING:
        script, options = races.ON + script, f"{options} {races.LATE}"
    result = boot.run(group.with_walks(script), append=options,
                      timeout=seconds + SPARE * slowdown, **group.shape(kernel, numa=2, cpus=CPUS))
    with open(HOME / f"{name}.{kernel}.{seed}.log", "w", encoding="utf-8") as log:
        log.write(result.output + (f"\n@@ {result.reason}\n{result.console}\n" if result.reason else ""))
    wrong = splat.summary(result.splats) if result.splats else group.walks(result.output) or result.reason
    if not wrong and result.status:
        wrong = f"status {result.status}: {result.output.strip()[-400:]}"
    if not wrong and not SWAPPED.search(result.output):
        wrong = "there was no pressure: no page went to swap and came back"
    failed = [int(number) for number in FAILED.findall(result.output)]
    if not wrong and kernel == FAILING and not all([len(failed) == 2, *failed]):
        wrong = "no allocations failed on purpose"
    took = int((TOOK.findall(result.output) or [seconds])[-1])
    found = {"races": sorted({one.title for one in result.foreign})} if kernel == RACING else {}
    return {"steps": steps_of(model, result.output), "wrong": wrong, "seconds": took, "failed": sum(failed), **found,
            **used(result.output, took)}


def measure(names: list[str], minutes: int, jobs: int, kernel: str) -> Iterator[dict[str, Any]]:
    """Run models for some minutes each; yield a summary of each as soon as it has ended."""
    seconds, first = minutes * 60, int(time.time())

    def one(task: tuple[int, str]) -> dict[str, Any]:
        number, name = task
        seed = (first + number) * 1000000
        cli.progress(f"model {number} of {len(names)}: {name} for {minutes} min, from seed {seed} on")
        found = run_guest(name, seconds, seed, kernel)
        wrong = found["wrong"]
        print(f"{name}: {found['steps']:,} steps{f'; {wrong}' if wrong else ''}", file=sys.stderr, flush=True)
        return {"model": name, "seed": seed, **found}

    with workers(jobs) as pool:
        for done in concurrent.futures.as_completed([pool.submit(one, task) for task in enumerate(names, 1)]):
            yield done.result()


def keep(found: dict[str, Any], kernel: running.Kernel) -> None:
    """Add a run to those that are kept."""
    about = running.about(kernel)
    shared = {"date": time.strftime("%Y-%m-%d", time.gmtime()), "kernel": kernel.variant, "commit": about["commit"],
              "version": about["version"]}
    run_kept = {**found, **shared, "wrong": found["wrong"].splitlines()[0] if found["wrong"] else ""}
    storage.MODELS.parent.mkdir(parents=True, exist_ok=True)
    with paths.locked(HOME, "another run of models to keep its steps"):
        old = paths.read_stamp(storage.MODELS) or {"runs": []}
        paths.write_whole(storage.MODELS, storage.text_of({"runs": [*old["runs"], run_kept]}))


def run(args: argparse.Namespace) -> int:
    """Build the programs, run the models, tell and keep what they say; return the exit status."""
    kernel = running.Kernel(args.kernel, "", args.kernel)
    boot.image_of(kernel.variant)
    programs.build()
    HOME.mkdir(parents=True, exist_ok=True)
    images, found = running.ages([kernel]), []
    for one in measure(args.names or list(MODELS), args.minutes, args.jobs, kernel.variant):
        found.append(one)
        why = running.unfit([kernel], images)
        if why:
            print(f"note: the steps of {one['model']} are not kept: {why}", file=sys.stderr)
        else:
            keep(one, kernel)
    if args.json:
        print(json.dumps(found, indent=1))
    return 1 if any(one["wrong"] for one in found) else 0


def main(argv: list[str] | None = None) -> int:
    """Do what the command line asks for."""
    parser = cli.Parser(prog="suites/models", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="MODEL", help=f"only this model: {', '.join(MODELS)}")
    parser.add_argument("--minutes", type=cli.number(1, 100000), default=10, metavar="N",
                        help="how long each model runs (default 10)")
    parser.add_argument("--jobs", type=cli.number(1, 64), default=1, metavar="N",
                        help="guests at a time, with 2 CPUs and 4 GB each (default 1; more CPUs than the host's slow "
                        "all of them)")
    parser.add_argument("--kernel", choices=["quire", FAILING, RACING], default="quire",
                        help="our kernel (default: quire)")
    parser.add_argument("--json", action="store_true", help="print what was found as JSON")
    args = parser.parse_args(argv)
    # What is kept must not depend on it: every race beside an edit counts.
    os.environ.pop("RACES", None)
    wrong = [name for name in args.names if name not in MODELS]
    if wrong:
        parser.error(f"no model {', '.join(wrong)}; there are: {', '.join(MODELS)}")
    try:
        return run(args)
    except (SuiteError, programs.ProgramsError, boot.BootError, subprocess.CalledProcessError, OSError, ValueError,
            MemoryError) as error:
        print(f"error: {cli.explain(error)}", file=sys.stderr)
        status = 1
    except KeyboardInterrupt:
        status = 130
    if args.jobs > 1 or status == 130:
        os._exit(status)  # the threads wait for their guests, which end with this process
    return status
