# SPDX-License-Identifier: GPL-2.0
"""Runs a test suite of another project in guests, on a base kernel and on quire with all features on, and compares.

SUITE is ltp, kselftest, stress-ng, zdtm or xfstests. Of ltp, the Linux Test Project, and of xfstests, which tests file
systems, name a git clone once, and its HEAD is built in build/suites; of zdtm, the programs that CRIU is tested with,
name a clone of CRIU; kselftest comes with the kernel's base; stress-ng is Debian's, and each of its stressors is a
case. Each part runs on both kernels. A case that is worse on quire runs a second time on both, and counts if it is
worse again; one that is not is called unsteady. The exit status is 1 if a case is worse both times, or if our kernel or
the features' checkers complain; a complaint of the base kernel is only shown.

What the cases print is in build/suites/SUITE/PART.KERNEL.log. A summary of each part is written to suites/results if
the kernels have no edits that are not committed; suites/publish makes docs/trust.md of these.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import sets
from guest import boot, build, cli, paths, tree
from suites import compare, kselftest, ltp, storage, stress_ng, xfstests, zdtm
from suites.suite import HERE, Case, Suite, SuiteError, sample, skip_list, unknown, workers

SUITES: dict[str, Suite] = {suite.NAME: suite for suite in (ltp, kselftest, stress_ng, zdtm, xfstests)}
SCRIPT = HERE / "cases.sh"
# How many cases a guest runs, and how many times the limit of one of them it has for all of them.
BATCH, LIMITS = 40, 12
BEGIN = re.compile(r"^== (\S+)$", re.M)


@dataclass
class Said:
    """What cases said on a kernel: the checks of all, what the kernel complained of, and the guests' time (seconds)."""

    checks: dict[str, str] = field(default_factory=dict)
    complaints: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def add(self, other: Said) -> None:
        """Add what other cases said on the same kernel."""
        self.checks |= other.checks
        self.complaints += other.complaints
        self.seconds += other.seconds


@dataclass
class Kernel:
    """A kernel to run cases on: its variant, its boot options, and the name that it is reported by."""

    variant: str
    append: str
    name: str


@dataclass
class Job:
    """How cases are run: those of one part of a suite, with a limit for each in seconds."""

    suite: Suite
    part: str
    limit: float
    jobs: int = 1

    @property
    def options(self) -> dict[str, Any]:
        """The options of guest.boot.run for the guests."""
        return self.suite.options(self.part)

    def log(self, kernel: Kernel) -> Path:
        """Return the file with what the cases print on a kernel."""
        return self.suite.HOME / f"{self.part}.{kernel.name}.log"


def listener(job: Job, kernel: Kernel, names: dict[str, int], count: int) -> Callable[[str], None]:
    """Return a function that takes what a guest prints and says which case begins; `names` has their numbers."""
    def listen(text: str) -> None:
        for name in BEGIN.findall(text):
            if name in names:
                cli.progress(f"{job.part} on {kernel.name}: case {names[name]} of {count}, {name}")
    return listen


def words(batch: list[Case], limit: float) -> list[str]:
    """Return the arguments of suites/cases.sh after the first: a limit in seconds, and the commands with their names.

    A command that runs joined cases may need time before the first of them, too.
    """
    if not batch[0].joined:
        return [f"{limit:.0f}", *(f"{one.name} {one.command}" for one in batch)]
    names = [one.name for one in batch]
    return [f"{limit * (len(batch) + 1):.0f}", f"{names[0]} {batch[0].command} {limit:.0f} {' '.join(names)}"]


def run_guest(batch: list[Case], kernel: Kernel, job: Job, listen: Callable[[str], None]) -> Said:
    """Run cases in one guest: those that it comes to, at least one. Raises SuiteError if there are none.

    A guest's limit is less than that of all its cases. A case that it cuts off before the case's own limit has no
    outcome, unless it was the first: it runs again in a new guest.
    """
    own = job.limit * (sets.group.DEBUG_SLOWDOWN if kernel.variant == "debug" else 1)
    begun = time.monotonic()

    def note(text: str) -> None:
        nonlocal begun
        if BEGIN.search(text):
            begun = time.monotonic()
        listen(text)

    command = [str(SCRIPT), str(job.suite.SETUP), *words(batch, job.limit)]
    result, complaint = sets.boot_script(command, kernel.variant, kernel.append, job.limit * LIMITS, on_output=note,
                                         leaks=False, **{"plain_cpu": True, **job.options})
    with open(job.log(kernel), "a", encoding="utf-8") as log:
        log.write(result.output + (f"\n@@ {result.reason}\n{result.console}\n" if result.reason or complaint else ""))
    checks = job.suite.results(result.output)
    if not checks:
        raise SuiteError(f"{job.part} on {kernel.name}: no case began: {result.reason or result.output[-200:]}")
    for cut in [key.split(": ", 1)[0] for key, outcome in checks.items() if outcome == "missing"]:
        cli.progress(f"{job.part} on {kernel.name}: {cut} was cut off: {result.reason or 'the guest ended'}")
        if result.status == boot.HUNG and cut != batch[0].name and time.monotonic() - begun < own:
            checks = {key: outcome for key, outcome in checks.items() if key.split(": ", 1)[0] != cut}
        elif result.status == boot.HUNG:
            checks[f"{cut}: {compare.STATUS}"] = "timeout"
    complaints = [f"{job.part} on {kernel.name}: {complaint}"] if complaint else []
    return Said(checks, complaints, result.to_init + result.seconds + result.to_end)


def run_batch(batch: list[Case], kernel: Kernel, job: Job, listen: Callable[[str], None]) -> Said:
    """Run cases in one guest, or in several: after a case that was cut off, the others run in a new one."""
    said, left = Said(), batch
    while left:
        said.add(run_guest(left, kernel, job, listen))
        left = [case for case in left if f"{case.name}: {compare.STATUS}" not in said.checks]
    return said


def run_cases(cases: list[Case], kernels: list[Kernel], job: Job) -> list[Said]:
    """Run cases on each of some kernels, `job.jobs` guests at a time; return what they said on each."""
    numbers = {case.name: number for number, case in enumerate(cases, 1)}
    tasks = [(at, cases[first:first + BATCH]) for at in range(len(kernels)) for first in range(0, len(cases), BATCH)]
    said = [Said() for _ in kernels]

    def one(task: tuple[int, list[Case]]) -> Said:
        kernel = kernels[task[0]]
        return run_batch(task[1], kernel, job, listener(job, kernel, numbers, len(cases)))

    with workers(job.jobs) as pool:
        # One guest at a time runs in this thread, which can then end it when it is interrupted.
        each = map if job.jobs == 1 else pool.map
        for (at, _), found in zip(tasks, each(one, tasks), strict=True):
            said[at].add(found)
    return said


def compare_part(cases: list[Case], base: Kernel, ours: Kernel, job: Job) -> tuple[compare.Verdict, Said, Said]:
    """Run the cases of a part on both kernels, and what is worse a second time; return the verdict and what was said.
    """
    there, here = run_cases(cases, [base, ours], job)
    first = steady = compare.worse(there.checks, here.checks, base.name)
    first_there, first_here = dict(there.checks), dict(here.checks)
    if first:
        again = compare.cases_of(first)
        cli.progress(f"{job.part}: worse the first time, run again: {' '.join(again)}")
        second = run_cases([case for case in cases if case.name in again], [base, ours], job)
        found = compare.worse(second[0].checks, second[1].checks, base.name)
        steady = {check: text for check, text in found.items() if check in first}
        for said, more in zip((there, here), second, strict=True):
            said.add(more)
    return compare.judge(first_there, first_here, steady, first), there, here


def about(kernel: Kernel) -> dict[str, str]:
    """Return what a kernel is: its variant, options, version, configuration, and the commit that it is from."""
    source = paths.read_stamp(paths.BUILD / kernel.variant / "origin.json") or {}
    known = {"kernel": kernel.variant, "options": kernel.append,
             "version": tree.kernel_version(build.source_of(kernel.variant)),
             "configuration": build.config_hash(kernel.variant)[:12]}
    return known if kernel.variant == "vanilla" else {**known, **source}


def summary(verdict: compare.Verdict, base: Kernel, ours: Kernel, job: Job, there: Said, here: Said,
            left_out: int, origin: dict[str, str]) -> dict[str, object]:
    """Return what is kept of a part's run."""
    shape = {**sets.SHAPE, **job.options, "accelerator": "KVM" if boot.kvm_works(ours.variant) else "TCG"}
    today = time.strftime("%Y-%m-%d", time.gmtime())
    return {"suite": job.suite.NAME, "part": job.part, "against": base.name, **origin, "date": today,
            "base": about(base), "quire": about(ours), "guest": shape, "limit": job.limit, **verdict.counts(),
            "alike": verdict.alike, "checks": verdict.checks, "left out": left_out,
            "hours": round((there.seconds + here.seconds) / 3600, 2), "worse checks": verdict.worse,
            "better cases": verdict.better, "unsteady": verdict.unsteady,
            "complaints": [text.splitlines()[0] for text in here.complaints],
            "complaints of the base": [text.splitlines()[0] for text in there.complaints]}


def ages(kernels: Sequence[Kernel]) -> list[float]:
    """Return when the images of kernels were made: a build that changes nothing keeps the time."""
    return [boot.image_of(kernel.variant).stat().st_mtime for kernel in kernels]


def unclean(kernels: list[Kernel]) -> str:
    """Say why no summary of these kernels is kept, "" if it is: edits that are not committed, in kernel or clone."""
    for kernel in kernels:
        if about(kernel).get("changed", "no") != "no":
            return f"the kernel {kernel.variant} was built with edits that are not committed"
    done = subprocess.run(["git", "status", "--porcelain", "--", "kernel"], cwd=paths.REPO, text=True, check=True,
                          stdout=subprocess.PIPE)
    return "the folder kernel has edits that are not committed" if done.stdout.strip() else ""


def unfit(kernels: list[Kernel], images: list[float]) -> str:
    """Say why nothing is kept of what ran on these kernels, "" if it is; `images` are their ages() when it began."""
    return "a kernel was built meanwhile" if ages(kernels) != images else unclean(kernels)


def show(result: dict[str, object], there: Said, here: Said, verdict: compare.Verdict) -> None:
    """Print the outcome of a part for people."""
    print("{suite} {part}: {cases} cases, {same} same, {worse} worse, {better} better; {checks} checks, {hours} hours"
          .format(**result))
    for check, text in verdict.worse.items():
        print(f"  worse: {check}: {text}")
    for word, names in (("better", verdict.better), ("unsteady", verdict.unsteady)):
        print("".join(f"  {word}: {name}\n" for name in names), end="")
    for said in (*here.complaints, *there.complaints):
        print(f"  complaint: {said}")
    sys.stdout.flush()


def run_part(job: Job, args: argparse.Namespace, origin: dict[str, str], skipped: dict[str, str],
             kernels: tuple[Kernel, Kernel]) -> tuple[dict[str, object], bool]:
    """Run a part, tell its outcome and keep its summary; return the summary, and whether all is well."""
    every = job.suite.cases(job.part)
    cases = [case for case in every if case.name not in skipped and (not args.case or case.name in args.case)]
    cases = sample(cases, args.sample) if args.sample else cases
    if not cases:
        raise SuiteError(f"the part {job.part} has none of these cases, or {job.suite.SKIP.name} leaves them out")
    for kernel in kernels:
        job.log(kernel).unlink(missing_ok=True)
    images = ages(kernels)
    verdict, there, here = compare_part(cases, *kernels, job)
    left_out = sum(case.name in skipped for case in every)
    result = summary(verdict, *kernels, job, there, here, left_out, origin)
    if not args.json:
        show(result, there, here, verdict)
    why = "only some of its cases ran" if args.case or args.sample else unfit(list(kernels), images)
    if why:
        print(f"note: the summary of {job.part} is not kept: {why}", file=sys.stderr)
    else:
        storage.store(result)
    return result, not verdict.worse and not here.complaints


def source_of(sources: list[str], suite: str) -> Path | None:
    """Return the tree of a suite from the options SUITE=PATH, None if none names it. Raises SuiteError."""
    found = None
    for text in sources:
        name, equals, path = text.partition("=")
        if name not in SUITES or not equals or not path:
            raise SuiteError(f"--source takes SUITE=PATH with a suite of {', '.join(SUITES)}, not {text!r}")
        if not Path(path).is_dir():
            raise SuiteError(f"--source {text}: there is no such folder")
        found = Path(path) if name == suite else found
    return found


def run_all(args: argparse.Namespace) -> int:
    """Build the suite, run its parts and return the exit status."""
    suite = SUITES[args.suite]
    skipped = skip_list(suite.SKIP)
    base = Kernel(args.kernel, "quire=off", "off") if args.base == "off" else Kernel("vanilla", "", "vanilla")
    kernels = (base, Kernel(args.kernel, "quire=on", args.kernel))
    for kernel in kernels:
        boot.image_of(kernel.variant)
    origin = suite.build(source_of(args.source, args.suite))
    for name in unknown(skipped, suite):
        print(f"note: {suite.SKIP.name} has {name}, which is no case of {origin['version']}", file=sys.stderr)
    outcomes = [run_part(Job(suite, name, args.limit, args.jobs), args, origin, skipped, kernels)
                for name in args.part or suite.PARTS]
    if args.json:
        print(json.dumps([result for result, _ in outcomes], indent=1))
    return 0 if all(good for _, good in outcomes) else 1


def arguments(argv: list[str] | None) -> argparse.Namespace:
    """Return the command line's values."""
    parser = cli.Parser(prog="suites/run", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
                        epilog="\n".join(f"The parts of {name}: {', '.join(suite.PARTS)}"
                                                  for name, suite in SUITES.items()))
    parser.add_argument("suite", nargs="?", default=ltp.NAME, metavar="SUITE", help=f"{' or '.join(SUITES)}")
    parser.add_argument("--source", action="append", default=[], metavar="SUITE=PATH",
                        help="the git clone whose HEAD is built (default: what was built last)")
    parser.add_argument("--base", choices=["vanilla", "off"], default="vanilla",
                        help="what is compared with: vanilla's kernel, or our kernel with all features off")
    parser.add_argument("--kernel", choices=["quire", "debug"], default="quire", help="our kernel (default: quire)")
    parser.add_argument("--part", action="append", default=[], metavar="PART", help="only this part; may be repeated")
    parser.add_argument("--case", action="append", default=[], metavar="NAME",
                        help="only this case; may be repeated, and no summary is kept then")
    parser.add_argument("--sample", type=cli.number(1, 10000), default=0, metavar="N",
                        help="only N cases of each part, always the same ones; no summary is kept then")
    parser.add_argument("--limit", type=cli.seconds, default=300.0, metavar="SECONDS",
                        help="time limit of a case (default 300; the debug kernel has four times as much)")
    parser.add_argument("--jobs", type=cli.number(1, 64), default=1, metavar="N",
                        help="guests at a time, with 2 CPUs and 3 GB each (default 1; more CPUs than the host's slow "
                        "all of them)")
    parser.add_argument("--json", action="store_true", help="print the summaries as JSON")
    args = parser.parse_args(argv)
    if args.suite not in SUITES:
        parser.error(f"no suite {args.suite}; there are: {', '.join(SUITES)}")
    parts = SUITES[args.suite].PARTS
    wrong = [name for name in args.part if name not in parts]
    if wrong:
        parser.error(f"no part {', '.join(wrong)}; there are: {', '.join(parts)}")
    return args


def main(argv: list[str] | None = None) -> int:
    """Do what the command line asks for."""
    args = arguments(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the guest is ended too
    try:
        return run_all(args)
    except (SuiteError, boot.BootError, subprocess.CalledProcessError, OSError, ValueError, MemoryError) as error:
        print(f"error: {cli.explain(error)}", file=sys.stderr)
        status = 1
    except KeyboardInterrupt:
        status = 130
    if args.jobs > 1:
        os._exit(status)  # the other threads wait for their guests, which end with this process
    return status
