# SPDX-License-Identifier: GPL-2.0
"""Runs benchmarks: one boot for each column and repetition, so that no run sees what another left."""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from bench import core, packaged, table
from guest import boot, build, cli, machine, paths

REPO = core.HERE.parent
OUT = REPO / "build" / "bench"
MOST_CPUS = 8  # CONFIG_NR_CPUS of the guests' kernels

PRELUDE = """set -eu
export BASE={base}
echo 0 >/proc/sys/kernel/randomize_va_space
mkdir -p /tmp/bench
cd /tmp/bench
# The pool of a bare machine: in a guest, memory that the host never backed is left out.
unused=/sys/kernel/mm/quire/prezero/scrub_unused
[ ! -w $unused ] || echo 1 >$unused
{copies}
for knob in {knobs}; do
    f=/sys/kernel/mm/quire/${{knob%=*}}
    [ "$(cat "${{f%/*}}/state" 2>/dev/null)" != on ] || echo "${{knob#*=}}" >"$f"
done
echo "#uname $(uname -r)"
for f in /sys/kernel/mm/quire/*/state; do
    [ -r "$f" ] || continue
    d=${{f%/state}}
    echo "#state ${{d##*/}} $(cat "$f")"
done
"""
CLOSING = """
for f in /sys/kernel/mm/quire/*/stats/*; do
    [ -r "$f" ] || continue
    d=${f%/stats/*}
    echo "#stat ${d##*/}/${f##*/} $(cat "$f")"
done
"""

Progress = Callable[[str], None]


def kernel_of(column: str, options: core.Options) -> str:
    """Return the kernel variant of a column; if options ask for it, the one with jump labels to count instructions."""
    variant = core.column_of(column).variant
    if options.packages:
        if variant not in packaged.KERNELS:
            raise core.BenchError(f"no package has the kernel {variant}: leave --packages or this column out")
        return packaged.KERNELS[variant][0]
    with_labels = f"{variant}-jump"
    return with_labels if options.icount and options.jump and with_labels in build.FRAGMENTS else variant


def append_of(column: str, benchmark: core.Benchmark, options: core.Options) -> str:
    """Return the boot options of a column."""
    words = [core.column_of(column).boot]
    if words[0] is None:
        words = ["quire=" + ",".join(benchmark.features)] if benchmark.features else []
    words.append(benchmark.boot)
    if benchmark.emulated_boot and accelerator(column, options) == "TCG":
        words.append(benchmark.emulated_boot)
    return " ".join(word for word in words if word)


def programs_of(benchmark: core.Benchmark, options: core.Options) -> list[str]:
    """Return the names of the programs which the benchmark needs in the guest."""
    return list(benchmark.programs(options) if callable(benchmark.programs) else benchmark.programs)


def guest_script(benchmark: core.Benchmark, options: core.Options) -> str:
    """Return the whole script that runs in the guest."""
    copies = "\n".join(f"cp {shlex.quote(str(OUT / 'bin' / p))} ." for p in programs_of(benchmark, options))
    base = shlex.quote(str(REPO / "build" / "base"))
    prelude = PRELUDE.format(copies=copies, base=base, knobs=" ".join(benchmark.knobs))
    return prelude + benchmark.script(options) + "\n" + CLOSING


def build_programs(benchmarks: list[core.Benchmark], options: core.Options) -> None:
    """Build the programs that these benchmarks need."""
    try:
        build.check_tools(("make", "gcc"))
    except build.BuildError as error:
        raise core.BenchError(str(error)) from error
    wanted = sorted({p for b in benchmarks for p in programs_of(b, options)})
    command = ["make", "-s", "-C", str(core.HERE), f"OUT={OUT / 'bin'}"]
    command += [str(OUT / "bin" / p) for p in wanted]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise core.BenchError(f"the benchmark programs do not build:\n{done.stderr}")


def base_version() -> str:
    """Return the version of the kernel base from its Makefile, else the last one that base.conf lists as verified."""
    found = {}
    makefile = REPO / "build" / "base" / "Makefile"
    if makefile.is_file():
        for line in makefile.read_text(encoding="utf-8").splitlines()[:8]:
            key, sep, value = line.partition(" =")
            if sep:
                found[key] = value.strip()
        if {"VERSION", "PATCHLEVEL", "SUBLEVEL"} <= set(found):
            return f"{found['VERSION']}.{found['PATCHLEVEL']}.{found['SUBLEVEL']}"
    for line in (REPO / "base.conf").read_text(encoding="utf-8").splitlines():
        key, _, value = line.partition("=")
        if key.strip() == "verified":
            return value.split()[-1]
    return "unknown"


def check_kernels(columns: list[str], options: core.Options) -> None:
    """Raise BenchError if a kernel that is needed has not been built."""
    variants = sorted({kernel_of(c, options) for c in columns})
    if options.packages:
        packaged.package()
        return
    for variant in variants:
        if variant not in build.FRAGMENTS:
            raise core.BenchError(f"no kernel variant {variant!r}; there are: {', '.join(build.FRAGMENTS)}")
        if not (REPO / "build" / variant / "bzImage").exists():
            raise core.BenchError(f"the kernel {variant} is not built: run make kernel VARIANT={variant} first")


def boot_guest(benchmark: core.Benchmark, column: str, options: core.Options) -> boot.Result:
    """Boot a kernel of our own once, and return what the benchmark's script did in the guest."""
    folder = OUT / "scripts"
    folder.mkdir(parents=True, exist_ok=True)
    script = folder / f"{benchmark.name}-{os.getpid()}.sh"
    script.write_text(guest_script(benchmark, options), encoding="utf-8")
    try:
        return boot.run(
            ["sh", str(script)],
            kernel=kernel_of(column, options),
            memory=benchmark.memory,
            cpus=options.guest_cpus,
            numa=benchmark.numa,
            append=append_of(column, benchmark, options),
            icount=options.icount,
            timeout=benchmark.timeout,
        )
    finally:
        script.unlink()


def boot_package(benchmark: core.Benchmark, column: str, options: core.Options) -> boot.Result:
    """Boot an installed kernel once, and return what the benchmark's script did on its machine."""
    if benchmark.numa > 1:
        raise core.BenchError(f"{benchmark.name} needs several NUMA nodes: leave --packages out")
    programs = [OUT / "bin" / name for name in programs_of(benchmark, options)]
    # A whole Debian boots first.
    done = packaged.run(guest_script(benchmark, options), programs, core.column_of(column).variant,
                        machine.Direct("", append_of(column, benchmark, options), benchmark.memory, options.guest_cpus,
                                       options.icount), benchmark.timeout + 900)
    return boot.Result(boot.SPLAT if done.splats else done.status, done.output, done.console, done.splats,
                       restarts=done.restarts)


def boot_once(benchmark: core.Benchmark, column: str, options: core.Options) -> core.Run:
    """Boot the column's kernel once, run the benchmark on it, and return what it printed."""
    result = (boot_package if options.packages else boot_guest)(benchmark, column, options)
    if result.status:
        tail = "\n".join((result.output or "").splitlines()[-15:])
        splats = "\n".join(str(s) for s in result.splats)
        why = f": {result.reason}" if result.reason else ""
        raise core.BenchError(
            f"{benchmark.name}, column {column}: status {result.status}{why}\n{tail}\n{splats}".rstrip()
        )
    run = core.parse_output(result.output)
    run.restarts = result.restarts
    if not run.rows:
        raise core.BenchError(f"{benchmark.name}, column {column}: no results in the output:\n{result.output}")
    return run


def _first_line(*command: str) -> str:
    """Return the first line that a command prints, or nothing."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=REPO)
    except OSError:
        return ""
    return (done.stdout.splitlines() or [""])[0].strip()


@functools.cache
def origin_of_kernel(variant: str) -> dict[str, str]:
    """Return what our kernel was built from, as its build noted, and the tools that build and run it."""
    note = REPO / "build" / variant / "origin.json"
    origin = paths.read_stamp(note) or {}
    tools = {"compiler": _first_line("gcc", "--version"), "qemu": _first_line("qemu-system-x86_64", "--version")}
    return {"commit": "of an unknown commit", "date": "an unknown date", "changed": "no", **origin, **tools}


def accelerator(column: str, options: core.Options) -> str:
    """Return the accelerator that runs the guest: KVM or TCG."""
    emulated = options.icount or options.packages or not boot.kvm_works(kernel_of(column, options))
    return "TCG" if emulated else "KVM"


def measure(
    benchmark: core.Benchmark, columns: list[str], options: core.Options, repeat: int, progress: Progress
) -> dict:
    """Run a benchmark in all columns and return its result; columns alternate, so that drift affects all alike."""
    runs: dict[str, list[core.Run]] = {c: [] for c in columns}
    load = os.getloadavg()[0]
    for turn in range(repeat):
        for column in columns:
            again = f", boot {turn + 1} of {repeat}" if repeat > 1 else ""
            progress(f"{benchmark.name}: {column}{again}")
            runs[column].append(boot_once(benchmark, column, options))
    notes = [benchmark.note] if benchmark.note and not options.icount else []
    if options.icount and benchmark.icount_note:
        notes.append(benchmark.icount_note)
    restarts = sum(run.restarts for column in runs.values() for run in column)
    if restarts:
        notes.append(f"guests that were started again because of their host: {restarts}")
    return {
        "name": benchmark.name,
        "title": benchmark.title,
        "features": list(benchmark.features),
        "knobs": list(benchmark.knobs),
        "shown": [m for m in benchmark.shown if not (options.icount and m in benchmark.by_clock)],
        "more_is_better": sorted(benchmark.more_is_better),
        "one_event": sorted(benchmark.one_event),
        "least": benchmark.least,
        "native": list(benchmark.native),
        "main": benchmark.main,
        "notes": notes,
        "base": base_version(),
        "kernel": origin_of_kernel(kernel_of("on", options)),
        "host": {"cpus": os.cpu_count(), "load": round(load, 1)},
        "clock": "icount" if options.icount else "time",
        "quick": options.quick or options.tiny,
        "jump": options.icount and (options.jump or options.packages),
        "packages": options.packages,
        "runs": repeat,
        "guest": {
            "memory": benchmark.memory,
            "cpus": options.guest_cpus,
            "numa": benchmark.numa,
            "accelerator": accelerator(columns[0], options),
        },
        "columns": {core.column_of(c).name: core.combine(runs[c], benchmark.least) for c in columns},
    }


def path_of(result: dict) -> Path:
    """Return the path of a result: by its clock and kernels, with the number of CPUs in the name if it is unusual."""
    cpus = result["guest"]["cpus"]
    usual = cpus == dataclasses.replace(core.Options(), icount=result["clock"] == "icount").guest_cpus
    folder = OUT / "packages" if result.get("packages") else OUT
    return folder.joinpath(result["clock"], f"{result['name']}{'' if usual else f'-{cpus}cpus'}.json")


def save(result: dict, probe: dict | None, path: Path | None = None) -> Path:
    """Write a result, with the machine probe, as JSON, and return its path."""
    path = path or path_of(result)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**result, "machine": probe}, indent=1) + "\n", encoding="utf-8")
    return path


def run_all(
    names: list[str],
    columns: list[str],
    options: core.Options,
    repeat: int,
    progress: Progress,
    counted: frozenset[str] = frozenset(),
    probe: dict | None = None,
) -> tuple[dict, list[dict], list[str]]:
    """Probe the machine, run the benchmarks, save each; return the probe, the results and what failed.

    The benchmarks named in counted count instructions, whatever the options say. If a probe is given, no new one is
    made.
    """
    benchmarks = [core.load(name) for name in names]
    for column in columns:
        core.column_of(column)
    machine = core.load("machine")
    for how in [options] + [dataclasses.replace(options, icount=True)] * bool(counted):
        check_kernels(columns, how)
    build_programs([machine, *benchmarks], options)
    small = dataclasses.replace(options, quick=True)
    if probe is None:
        progress("machine probe")
        probe = core.combine([boot_once(machine, columns[0], small)])
    results, failed = [], []
    for benchmark in benchmarks:
        try:
            how = dataclasses.replace(options, icount=True) if benchmark.name in counted else options
            results.append(measure(benchmark, columns, how, repeat, progress))
            save(results[-1], probe)
        except core.BenchError as error:
            failed.append(str(error))
    return probe, results, failed


def cpu_counts(text: str) -> list[int]:
    """Return the numbers of CPUs in an argument of the command line."""
    counts = [int(word) for word in text.split(",") if word.isdigit()]
    if not counts or len(counts) != len(text.split(",")) or not set(counts) <= set(range(1, MOST_CPUS + 1)):
        raise argparse.ArgumentTypeError(f"takes numbers of CPUs from 1 to {MOST_CPUS}, such as 1,2,4,8")
    return counts


def command_line() -> cli.Parser:
    """Return the parser of the command line."""
    parser = cli.Parser(prog="bench/run", description=__doc__)
    clock = parser.add_mutually_exclusive_group()
    clock.add_argument("--icount", action="store_true", help="count instructions: one CPU, repeatable to about 0.1 %%")
    clock.add_argument("--clock", action="store_true", help="measure time, with two CPUs (the default)")
    parser.add_argument("--jump", action="store_true",
                        help="with --icount: on the kernels with jump labels (make kernel VARIANT=quire-jump)")
    parser.add_argument("--packages", action="store_true",
                        help="on installed kernels: Debian's own, and that of the package in build/deb (make deb)")
    parser.add_argument("--quick", action="store_true", help="small sizes")
    parser.add_argument("--cpus", type=cpu_counts, metavar="N,...",
                        help="by the clock: measure in guests with so many CPUs, one after the other (default 2)")
    parser.add_argument("--repeat", type=int, default=1, metavar="N", help="boots for each column (default 1)")
    parser.add_argument("--columns", default=",".join(core.COLUMNS), help="some of vanilla,off,on (default all)")
    parser.add_argument(
        "--column",
        action="append",
        default=[],
        metavar="LABEL=VARIANT[:BOOT OPTIONS]",
        help="one more column, on any kernel that is built (debug=debug:quire=on)",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write all results into one file")
    parser.add_argument(
        "--gate", type=float, metavar="PERCENT",
        help="fail if off is worse than vanilla by more than this (use with --icount)"
    )
    parser.add_argument("--list", action="store_true", help="list the benchmarks and exit")
    parser.add_argument("names", nargs="*", metavar="NAME",
                        help="benchmarks (default all; with --icount those whose counts are meaningful)")
    return parser


def parse(argv: list[str] | None) -> argparse.Namespace:
    """Return the command line's values; exit if they contradict each other."""
    parser = command_line()
    args = parser.parse_args(argv)
    args.columns = [c for c in args.columns.split(",") if c]
    unknown = [c for c in args.columns if c not in core.COLUMNS]
    if unknown:
        parser.error(f"--columns takes some of {','.join(core.COLUMNS)}")
    args.columns += args.column
    if not args.columns:
        parser.error("no column to measure: give --columns or --column")
    if args.jump and not args.icount:
        parser.error("--jump needs --icount: docs/build.md says why")
    if args.cpus and args.icount:
        parser.error("--cpus does not go with --icount, whose guest has one CPU")
    if args.packages and args.jump:
        parser.error("--jump does not go with --packages, whose kernels have jump labels")
    if args.repeat < 1:
        parser.error("--repeat takes a whole number above 0")
    if args.gate is not None and not {"vanilla", "off"} <= set(args.columns):
        parser.error("--gate needs the columns vanilla and off")
    if args.json and (args.json.is_dir() or not args.json.parent.is_dir()):
        parser.error(f"--json takes a file in an existing folder, not {args.json}")
    return args


def run_with_cpus(
    names: list[str], args: argparse.Namespace, options: core.Options
) -> tuple[dict | None, list[dict], list[str]]:
    """Run all benchmarks for each number of CPUs on the command line, or for the default."""
    probe: dict | None = None
    results: list[dict] = []
    failed: list[str] = []
    for cpus in args.cpus or [options.cpus]:
        probe, some, wrong = run_all(names, args.columns, dataclasses.replace(options, cpus=cpus), args.repeat,
                                     lambda text: print(f"[{text}]", file=sys.stderr, flush=True), probe=probe)
        results += some
        failed += wrong
    return probe, results, failed


def show(probe: dict | None, results: list[dict], failed: list[str]) -> None:
    """Print all tables, and what failed."""
    if probe:
        print(table.probe_text(probe))
    for result in results:
        print(table.text_of(result))
        print(table.aims_text(result))
    for text in failed:
        print(f"error: FAILED {text}", file=sys.stderr)


def main(argv: list[str] | None = None) -> int:
    """Run what the command line asks for."""
    args = parse(argv)
    if args.list:
        for name in core.names():
            print(f"{name:15} {core.load(name).title}")
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the guest is ended too
    clocks = ("icount",) if args.icount else ("icount", "time")
    names = args.names or [n for n in core.names() if set(dict(core.load(n).boots)) & set(clocks) and n != "machine"]
    options = core.Options(icount=args.icount, jump=args.jump, packages=args.packages, quick=args.quick)
    try:
        probe, results, failed = run_with_cpus(names, args, options)
        if args.gate is not None:
            failed += [line for result in results for line in core.worse_off(result, args.gate)]
        show(probe, results, failed)
        if args.json:
            text = json.dumps({"machine": probe, "results": results}, indent=1)
            args.json.write_text(text + "\n", encoding="utf-8")
    except (core.BenchError, boot.BootError, OSError, MemoryError) as error:
        print(f"error: {cli.explain(error)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 1 if failed else 0
