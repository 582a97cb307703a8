# SPDX-License-Identifier: GPL-2.0
"""Writes docs/results.md, bench/results/*.md and the README's table: no measured number in them is typed by hand.

The numbers come from bench/results/*.json. `--run` fills these files: it runs all benchmarks, or those named, on all
three columns, by the clocks and with the number of boots that each benchmark asks for. Without it, the documents are
only written again from the JSON and from the aims that the benchmarks state.
"""

from __future__ import annotations

import dataclasses
import signal
import sys
import textwrap
from pathlib import Path

from bench import core, runner, storage, table, workloads
from guest import boot, cli, paths

PAPER = core.HERE.parent / "docs" / "results.md"
PACKAGES_PAPER = core.HERE.parent / "docs" / "packages.md"
README = core.HERE.parent / "README.md"
BEGIN, END = "<!-- measured: begin (bench/publish writes this) -->", "<!-- measured: end -->"
CLOCKS = {"icount": "--icount", "time": "--clock"}
INTRO = """# Results

Written by `bench/publish` from the JSON in `bench/results`; no number here is typed by hand. `make results` measures
all of it again. [benchmarks.md](benchmarks.md) says how each is measured and what the clocks are worth: instructions
are repeatable, times under emulation are ratios at best. A score "12x" is vanilla divided by the value, one without an
x is the value divided by the base, and where there is no base it is the value. Metrics are in the unit that their names
say; counted, a nanosecond is an instruction. Each benchmark links to its rows.
"""
PACKAGES_INTRO = """# Results on installed kernels

Written by `bench/publish` from the JSON in `bench/results/packages`. A Debian 12 machine has two kernels of the same
base: Debian's own for virtual machines (cloud-amd64), which is the column vanilla, and that of our package, made by
`make deb FLAVOUR=cloud-amd64`, for the columns off and on. Ours has Debian's configuration but for what
[build.md](build.md#packages) names. With it the kernel always tries transparent huge pages, and a heap of these has few
page tables that `fork` could share: benchmarks that need small pages ask for them by madvise(), as Redis does by
prctl(). Memory is cleared when it is allocated (init_on_alloc). A score "12x" is the base divided by the value, another
is the value divided by the base, and where there is no base it is the value. [results.md](results.md) has the same
benchmarks on the lean kernels of the guests; its score is repeated here. Those kernels are of one build with vanilla's:
what off costs, and what a feature costs, is better read there. `prezero` was measured with `scrub_unused=1`, which is 0
by default in a virtual machine, and the rows of erofs with `text/readahead=1`.

The two kernels are not of one build: [build.md](build.md#packages) has the command that prints in what their
configurations differ. The score of off, the same row with all features off, shows how much of a gain is that difference
and not the feature. Most of it is likely Xen PV, which ours lacks (no kernel was measured that differs in this alone):
Debian's writes and reads page-table entries by calls that Xen could replace.
"""
# The aim of bench/attribute, which keeps no result.
NO_ROW = """One more aim is missed and has no row: most of the reverse map's instructions in a pipeline of two commands
were to go, and few did ([rmap.md]({page}#where-instructions-go))."""
CONDITIONS = """The figures are from the kernel that `make deb FLAVOUR=cloud-amd64` makes, installed on a Debian 12
machine, against Debian's own of the same base, except where they are marked "lean": these are from guests whose kernel
has a small configuration (tinyconfig with `kernel/config/guest.config`). All are emulated ({emulators}), in
instructions or, where the table says "clock", in emulated time. Both clocks overstate what zeroing and copying cost,
and neither knows the caches and TLBs of hardware ([docs/benchmarks.md](docs/benchmarks.md#two-clocks)). "Against off"
compares with the same kernel with all features off: an installed kernel of ours differs from Debian's then, too, as
their configurations do ([docs/build.md](docs/build.md#packages)), and by the clock boots differ."""


def command(result: dict) -> str:
    """Return the command that measures a result again."""
    repeat = f" --repeat {result['runs']}" if result["runs"] > 1 else ""
    quick = " --quick" if result["quick"] else ""
    kernels = " --packages" if result.get("packages") else " --jump" if result.get("jump") else ""
    return f"bench/run {CLOCKS[result['clock']]}{kernels}{quick}{repeat} {result['name']}"


def aims_table(benchmark: core.Benchmark, results: list[dict]) -> str:
    """Return the table of the aims and the measured values."""
    rows = []
    for aim in benchmark.aims:
        result = core.find(results, benchmark.name, aim.clock)
        found = core.achieved(aim, result)
        rows.append([aim.text, aim.metric, aim.clock, aim.column, table.made_of(aim, found), table.score_of(aim, found),
                     table.wanted(aim), table.verdict(core.judge(aim, result))])
    return cli.markdown(["aim", "metric", "clock", "column", "base → value", "score", "wanted", ""], rows)


def figures_table(benchmark: core.Benchmark) -> str:
    """Return the table of the figures that earlier work published."""
    rows = [[f.source, f.what, table.number(f.before), table.number(f.after), f.unit] for f in benchmark.figures]
    return "Published, on their machines:\n\n" + cli.markdown(["work", "what", "before", "after", "unit"], rows)


def section(name: str, results: list[dict]) -> str:
    """Return how one benchmark met its aims, and where its rows are."""
    benchmark = core.load(name)
    parts = [f"## {name}: {benchmark.title}"]
    if benchmark.aims:
        parts.append(aims_table(benchmark, results))
    if benchmark.figures:
        parts.append(figures_table(benchmark))
    found = [core.find(results, name, clock) for clock in CLOCKS]
    commands = ", ".join(f"`{command(result)}`" for result in found if result)
    parts.append(f"[All rows](../bench/results/{name}.md): {commands}")
    return "\n\n".join(parts)


def rows_paper(name: str, data: dict, paper: str = "../../docs/results.md") -> str:
    """Return NAME.md, the rows of one benchmark or of the machine probe by each clock, or "".

    `paper` is the path to the page with the aims.
    """
    parts = []
    for clock in CLOCKS:
        source = storage.file_of(name, clock)
        result, probe = core.find(data["results"], name, clock), data.get(storage.PROBES[clock])
        if name == "machine" and probe:
            parts.append(f"[{source}]({source}), before the benchmarks:\n\n```\n{table.probe_text(probe)}```")
        elif result:
            text = table.text_of({**result, "native": []})
            parts.append(f"[{source}]({source}), by `{command(result)}`:\n\n```\n{text}```")
    head = (f"# {name}: {core.load(name).title}\n\nWritten by `bench/publish`. "
            f"[docs/{Path(paper).name}]({paper}) has the aims of all benchmarks.")
    return "\n\n".join([head, *parts]) + "\n" if parts else ""


def off_table(results: list[dict]) -> str:
    """Return, for each counted benchmark, the row in which off is worst against vanilla."""
    rows = []
    for result in results:
        if result["clock"] != "icount":
            continue
        worst = core.worst_off(result)
        if worst:
            judged = core.MET if worst[1] <= 1.01 else core.MISSED
            rows.append([result["name"], worst[0], f"{worst[1]:.3f}", table.verdict(judged)])
    text = ("## Off against vanilla\n\n"
            "The worst row of each counted benchmark; the aim is 1.01. Left out are metrics of one event, the slowest "
            "of\nmany (`worst_ns`), which an interrupt decides. By the clock off is not judged: boots of one kernel "
            "differ by more\nthan a percent.\n\n")
    return text + cli.markdown(["benchmark", "row", "off/vanilla", ""], rows)


def headline(data: dict) -> str:
    """Return the table of the headline aims and of all aims that are missed, with the conditions."""
    rows: list[list[str]] = []
    shapes: dict[str, list[str]] = {}
    for name in core.names():
        for aim in core.load(name).aims:
            result = core.find(data["results"], name, aim.clock)
            found = core.achieved(aim, result)
            if not result or not (aim.headline or core.judge(aim, result) == core.MISSED):
                continue
            rows.append([aim.text, aim.metric, table.made_of(aim, found), table.score_of(aim, found), table.wanted(aim),
                         table.verdict(core.judge(aim, result)), f"`{command(result)}`"])
            known = shapes.setdefault(table.conditions(result), [])
            known += [name] if name not in known else []
    lines = "\n".join(f"* {', '.join(names)}: {shape}" for shape, names in sorted(shapes.items(), key=lambda s: s[1]))
    table_of_aims = cli.markdown(["what", "metric", "base → value", "score", "aim", "", "command"], rows)
    return f"## The main aims, and all that are missed\n\n{table_of_aims}\n\nConditions:\n\n{lines}"


def counts(results: list[dict], where: str) -> str:
    """Return how many of the aims of the benchmarks that have results are met; `where` says on which kernels."""
    names = [n for n in core.names() if any(r["name"] == n for r in results)]
    aims = [(aim, core.find(results, n, aim.clock)) for n in names for aim in core.load(n).aims]
    judged = [core.judge(aim, result) for aim, result in aims]
    return (f"Of {len(aims)} aims, {where}, {judged.count(core.MET)} are met, {judged.count(core.MISSED)} missed, "
            f"{judged.count(core.UNMEASURABLE)} not measurable here (by the clock, off differs from vanilla by more "
            f"than the aim allows) and {judged.count(None)} not measured")


def paper(data: dict) -> str:
    """Return docs/results.md."""
    results = data["results"]
    names = [n for n in core.names() if any(r["name"] == n for r in results)]
    without = [n for n in core.names() if core.load(n).aims and n not in names]
    config = "Configuration: tinyconfig with `kernel/config/guest.config`, for quire also `kernel/config/quire.config`."
    tools = sorted({f"{r['kernel']['compiler']}; {r['kernel']['qemu']}" for r in results if r.get("kernel")})
    judged = counts(results, "judged on lean kernels")
    parts = [INTRO + "\n" + "\n".join([f"{judged}.", config, *(f"Built and run with {t}." for t in tools)])]
    parts.append(NO_ROW.format(page="rmap.md"))
    if without:
        parts.append(f"These benchmarks have aims, but no results here: {', '.join(without)}.")
    if any(data.get(key) for key in storage.PROBES.values()):
        parts.append("What the primitives cost in these guests: [machine.md](../bench/results/machine.md).")
    parts.append(headline(data))
    parts.append(off_table(results))
    parts += [section(n, results) for n in names]
    return "\n\n".join(parts) + "\n"


def packages_paper(data: dict, lean: dict) -> str:
    """Return docs/packages.md: all aims that installed kernels were measured for, beside the lean kernels' scores."""
    rows, shapes = [], []
    for result in data["results"]:
        for aim in core.load(result["name"]).aims:
            found = core.achieved(aim, result) if aim.clock == result["clock"] else None
            if not found:
                continue
            there = core.achieved(aim, core.find(lean["results"], result["name"], aim.clock))
            pair = (aim.column, aim.against) == ("on", "vanilla")
            off = core.achieved(dataclasses.replace(aim, column="off"), result) if pair else None
            rows.append([result["name"], aim.text, aim.metric, table.made_of(aim, found), table.score_of(aim, found),
                         table.wanted(aim), table.verdict(core.judge(aim, result)),
                         table.score_of(aim, off) if off else "-", table.score_of(aim, there)])
        shapes.append(f"* {result['name']} ([all rows](../bench/results/packages/{result['name']}.md)): "
                      f"{table.conditions(result)}: `{command(result)}`")
    header = ["benchmark", "what", "metric", "base → value", "score", "aim", "verdict", "score of off", "score, lean"]
    return "\n".join([PACKAGES_INTRO, cli.markdown(header, rows), "\nConditions:\n", *shapes]) + "\n"


def by_workload(data: dict, packages: dict) -> str:
    """Return the README's table by workload, the conditions, and the missed aims that have no place in the table."""
    results = packages["results"] + data["results"]
    emulators = ", ".join(sorted({r["guest"]["accelerator"] for r in results}))
    misses = workloads.other_misses(results)
    lean = workloads.lean_misses(results, data["results"])
    judged = counts(results, "judged on the installed kernel where measured there, otherwise on the lean one")
    texts = [CONDITIONS.format(emulators=emulators),
             f"{judged}; [docs/packages.md](docs/packages.md) and [docs/results.md](docs/results.md) list all "
             "of them. "
             + (f"The table does not have these missed ones: {'; '.join(misses)}. " if misses else "")
             + (f"Lean kernels, which differ from vanilla in quire alone, miss these, too: {'; '.join(lean)}. "
                if lean else "")
             + NO_ROW.format(page="docs/rmap.md")]
    filled = [textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False) for text in texts]
    rows = [workloads.row(workload, results) for workload in workloads.WORKLOADS]
    return "\n\n".join([cli.markdown(workloads.HEADER, rows), *filled])


def with_table(readme: str, data: dict, packages: dict) -> str:
    """Return the README with the table by workload put between its marks."""
    before, mark, rest = readme.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not mark or not end:
        raise core.BenchError(f"README.md lacks the line {BEGIN!r} or {END!r}: restore it from git")
    return f"{before}{BEGIN}\n\n{by_workload(data, packages)}\n\n{END}{after}"


def trimmed(result: dict) -> dict:
    """Return a result without the parts that the documents do not need."""
    columns = {n: {k: v for k, v in c.items() if k != "stats"} for n, c in result["columns"].items()}
    return {**{k: v for k, v in result.items() if k != "machine"}, "columns": columns}


def merge(data: dict, results: list[dict], probe: dict | None, clock: str) -> dict:
    """Return the data in which these results and this probe replace older ones of the same name and clock."""
    fresh = {(r["name"], r["clock"]) for r in results}
    kept = [r for r in data.get("results", []) if (r["name"], r["clock"]) not in fresh]
    merged = sorted(kept + [trimmed(r) for r in results], key=lambda r: (core.names().index(r["name"]), r["clock"]))
    probes = {key: data.get(key) for key in storage.PROBES.values()}
    return {**probes, storage.PROBES[clock]: probe or probes[storage.PROBES[clock]], "results": merged}


def files_of(data: dict, packages: dict) -> dict[Path, str]:
    """Return the text of each file that is written: the data of lean and of installed kernels, and all documents."""
    rows = {storage.FOLDER / f"{name}.md": rows_paper(name, data) for name in core.names()}
    rows.update({storage.PACKAGES / f"{name}.md": rows_paper(name, packages, "../../../docs/packages.md")
                 for name in core.names()})
    readme = with_table(README.read_text(encoding="utf-8"), data, packages)
    return {**{path: text for path, text in rows.items() if text},
            **{storage.FOLDER / name: text for name, text in storage.texts(data).items()},
            **{storage.PACKAGES / name: text for name, text in storage.texts(packages).items()},
            **({PACKAGES_PAPER: packages_paper(packages, data)} if packages["results"] else {}),
            PAPER: paper(data), README: readme}


def store(data: dict, packages: dict) -> None:
    """Write the data and all documents."""
    for path, text in files_of(data, packages).items():
        path.parent.mkdir(exist_ok=True)
        paths.write_whole(path, text)


def check_origin(options: core.Options) -> None:
    """Raise BenchError if the kernel to measure has uncommitted edits, so that nobody else could build it."""
    variant = runner.kernel_of("on", options)
    if runner.origin_of_kernel(variant)["changed"] != "no":
        raise core.BenchError(f"the kernel {variant} was built with edits that are not committed: commit them, then "
                              f"make kernel VARIANT={variant}")


def measure(names: list[str], clocks: list[str], quick: bool, packages: bool) -> list[str]:
    """Run benchmarks, on installed kernels or on lean ones; store each result when it is ready; return what failed."""
    failed = []

    def progress(text: str) -> None:
        print(f"[{text}]", file=sys.stderr, flush=True)

    for clock in clocks:
        probe = None
        for name in names:
            boots = dict(core.load(name).boots).get(clock)
            if not boots:
                continue
            options = core.Options(icount=clock == "icount", jump=clock == "icount" and not packages, quick=quick,
                                   packages=packages)
            check_origin(options)
            wanted = [name] if name != "machine" else []  # the probe runs before any benchmark
            probe, results, wrong = runner.run_all(
                wanted, list(core.COLUMNS), options, boots, progress, probe=probe
            )
            data = {False: storage.load(storage.FOLDER), True: storage.load(storage.PACKAGES)}
            data[packages] = merge(data[packages], results, probe, clock)
            store(data[False], data[True])
            failed += wrong
    return failed


def main(argv: list[str] | None = None) -> int:
    """Do what the command line asks for."""
    parser = cli.Parser(prog="bench/publish", description=__doc__)
    parser.add_argument("--run", action="store_true", help="measure first: vanilla, off and on, at full size")
    parser.add_argument("--clock", choices=list(CLOCKS), help="measure only by this clock")
    parser.add_argument("--packages", action="store_true", help="measure installed kernels, for docs/packages.md")
    parser.add_argument("--quick", action="store_true", help="measure with small sizes")
    parser.add_argument("names", nargs="*", metavar="NAME", help="measure only these benchmarks")
    args = parser.parse_args(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the guest is ended too
    failed = []
    try:
        if args.run:
            names = args.names or [n for n in core.names() if n != "machine"]
            failed = measure(names, [args.clock] if args.clock else list(CLOCKS), args.quick, args.packages)
        store(storage.load(storage.FOLDER), storage.load(storage.PACKAGES))
    except (core.BenchError, boot.BootError, OSError, ValueError, MemoryError) as error:
        print(f"error: {cli.explain(error)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    for text in failed:
        print(f"error: FAILED {text}", file=sys.stderr)
    written = [path.relative_to(core.HERE.parent) for path in (PAPER, PACKAGES_PAPER, storage.FOLDER, README)
               if path.exists()]
    print(f"written: {', '.join(map(str, written))}")
    return 1 if failed else 0
