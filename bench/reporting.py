# SPDX-License-Identifier: GPL-2.0
"""Writes an HTML report with plots from the JSON files of benchmark runs: a single file that needs no others."""

from __future__ import annotations

import functools
import html
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bench import core, plots, table
from guest import cli

OUT = core.HERE.parent / "build" / "bench"
NEEDED = {"name", "title", "features", "shown", "more_is_better", "native", "main", "notes", "base", "clock", "quick",
          "runs", "guest", "columns"}
GIVE = "give a file that bench/run --json wrote"
STYLE = """body { font: 16px/1.45 sans-serif; max-width: 84rem; margin: 2rem auto; padding: 0 1rem; color: #222 }
.wide { overflow-x: auto } table { border-collapse: collapse; font-size: 14px }
caption { text-align: left; font-weight: bold; padding: 1rem 0 .3rem }
td, th { padding: .25rem .7rem; border-bottom: 1px solid #ddd; text-align: right; white-space: nowrap }
.word { text-align: left; white-space: normal } .missed { font-weight: bold; color: #b00020 }
.plots { display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 1rem; align-items: start }
.plots .both { grid-column: 1 / -1 } .plots svg { width: 100%; height: auto; display: block } .small { display: none }
@media (max-width: 50rem) {
.plots { grid-template-columns: minmax(0, 1fr) } .large { display: none } .small { display: block } }
.conditions { color: #555; font-size: 14px } nav ul { columns: 16rem; column-gap: 2.5rem; padding-left: 1.2rem }
li { break-inside: avoid }"""


def cell(text: str, words: bool = False, kind: str = "td") -> str:
    """Return a cell of a table; a verdict that says **missed** is marked."""
    style = "word missed" if text.startswith("**") else "word" if words else ""
    start = f'<{kind} class="{style}">' if style else f"<{kind}>"
    return f"{start}{html.escape(text.strip('*'))}</{kind}>"


def html_table(caption: str, header: Sequence[str], rows: Sequence[Sequence[str]], left: int) -> str:
    """Return a table which scrolls by itself where it is too wide; the first `left` columns are words."""
    lines = ["<div class=wide><table>" + (f"<caption>{html.escape(caption)}</caption>" if caption else "")]
    for row, kind in [(header, "th"), *((row, "td") for row in rows)]:
        lines.append("<tr>" + "".join(cell(text, i < left, kind) for i, text in enumerate(row)) + "</tr>")
    return "\n".join([*lines, "</table></div>"])


def plots_of(result: dict) -> str:
    """Return the plots of a benchmark's shown metrics, and of the published figures that it responds to.

    They stand in two columns; the last of an odd number is as wide as both. On a narrow screen there is one column,
    with a plot of its own in place of the wide one, whose letters would be too small.
    """
    draw: list[Callable[[float], str | None]] = [
        functools.partial(plots.bars, result, metric, labels)
        for labels in table.groups(core.labels_in_order(result["columns"].values())) for metric in result["shown"]]
    figures = core.load(result["name"]).figures
    if figures:
        draw.append(functools.partial(plots.published, figures, result["name"]))
    drawn = [(one, text) for one in draw if (text := one(plots.NARROW))]
    parts = [f"<div>{text}</div>" for _, text in drawn]
    if len(parts) % 2:
        last, text = drawn[-1]
        parts[-1] = f"<div class='both large'>{last(plots.WIDE)}</div><div class=small>{text}</div>"
    return '<div class="plots">' + "\n".join(parts) + "</div>"


def numbers_of(result: dict) -> str:
    """Return the tables of a benchmark: a row for each measured row, with all its metrics in each column."""
    names, columns = core.columns_of(result), result["columns"]
    parts = []
    for labels in table.groups(core.labels_in_order(columns.values())):
        wanted = dict.fromkeys([*result["shown"], *result["native"]])
        values = {(metric, name): [core.value_of(columns[name], label, metric) for label in labels]
                  for metric in wanted for name in names}
        shown = {at: some for at, some in values.items() if any(value is not None for value in some)}
        header = [*labels[0], *(f"{name}: {plots.title_of(metric)}" for metric, name in shown)]
        rows = [[*label.values(), *(table.number(some[i]) for some in shown.values())]
                for i, label in enumerate(labels)]
        parts.append(html_table("", header, rows, len(labels[0])))
    return "\n".join(parts)


def summary_table(results: list[dict]) -> str:
    """Return the table with one row for each benchmark."""
    names = [c for c in core.COLUMNS if any(c in r["columns"] for r in results)]
    rows = []
    for result in results:
        found = core.summary(result)
        if not found:
            continue
        label, values = found
        metric = result["main"][1]
        more = "more" if metric in result["more_is_better"] else "less"
        rows.append([result["name"], f"{label} ({more} is better)", plots.unit_of(metric),
                     *(table.number(values.get(c)) for c in names), table.ratios_text(values)])
    return html_table("One row of each benchmark", ["benchmark", "what", "unit", *names, "ratio"], rows, 3)


def verdicts(results: list[dict]) -> str:
    """Return the table of all aims that can be judged, and what could not be; "" if there is none."""
    rows: list[list[str]] = []
    notes: list[str] = []
    for result in results:
        judged, passed_over = table.aims_rows(result)
        rows += [[row[-1], result["name"], *row[:-1]] for row in judged]
        notes += [f"<p class=conditions>{result['name']}: {html.escape(note)}</p>" for note in passed_over]
    header = ["verdict", "benchmark", "aim", "base → value", "score", "wanted"]
    reached = sum(row[0] == core.MET for row in rows)
    text = html_table(f"Aims: {reached} of {len(rows)} met", header, rows, 3) if rows else ""
    return "\n".join([text, *notes])


def contents(results: list[dict]) -> str:
    """Return links to the benchmarks."""
    links = (f"<li><a href=#{anchor(result)}>{result['name']}</a>: {html.escape(result['title'])}"
             f"{', by the clock' if result['clock'] == 'time' else ''}</li>" for result in results)
    return f"<nav><ul>{''.join(links)}</ul></nav>"


def anchor(result: dict) -> str:
    """Return the name of a result's place in the page; a benchmark has one for each clock, number of CPUs, kernels."""
    kernels = "-packages" if result.get("packages") else ""
    return f"{result['name']}-{result['clock']}-{result['guest']['cpus']}{kernels}"


def page(results: list[dict], probe: dict | None) -> str:
    """Return the report."""
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
        f"<title>quire benchmarks</title><style>{STYLE}</style>",
        "<h1>quire benchmarks</h1>", contents(results), verdicts(results), summary_table(results),
    ]
    if probe:
        parts.append(html_table("The machine", ["probe", "ns, or instructions"], table.probe_rows(probe), 1))
    for result in results:
        parts.append(f"<h2 id={anchor(result)}>{result['name']}: {html.escape(result['title'])}</h2>")
        parts.append(f'<p class="conditions">{html.escape(table.conditions(result))}</p>')
        parts += [f"<p class=conditions>{html.escape(note)}</p>" for note in
                  (*table.column_notes(result), *result["notes"])]
        parts.append(plots_of(result))
        parts.append(f"<details><summary>numbers</summary>{numbers_of(result)}</details>")
    return "\n".join(parts) + "\n</html>\n"


def write(results: list[dict], probe: dict | None, path: Path) -> Path:
    """Write the report and return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page(results, probe), encoding="utf-8")
    return path


def results_in(data: Any) -> list[dict]:
    """Return the results in the data of a JSON file, of one benchmark or of many; none if it is anything else."""
    found = data.get("results", [data]) if isinstance(data, dict) else []
    good = isinstance(found, list) and all(isinstance(one, dict) and NEEDED <= set(one) for one in found)
    return found if good else []


def read(paths: list[Path]) -> tuple[list[dict], dict | None]:
    """Return the results in JSON files and the last machine probe; raises BenchError for a file that has none."""
    results, probe = [], None
    for path in paths:
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise core.BenchError(f"{path} cannot be read ({error}): {GIVE}") from error
        found = results_in(data)
        if not found:
            raise core.BenchError(f"{path} holds no results: {GIVE}")
        probe = data.get("machine") or probe
        results += found
    return results, probe


def main(argv: list[str] | None = None) -> int:
    """Write the report that the command line asks for."""
    parser = cli.Parser(prog="bench/report", description=__doc__)
    parser.add_argument("--output", type=Path, default=OUT / "report.html", metavar="FILE")
    parser.add_argument("json", type=Path, nargs="*", metavar="JSON", help="default: all of build/bench")
    args = parser.parse_args(argv)
    paths = args.json or sorted(OUT.glob("*/*.json"))
    if not paths:
        print("error: there are no results yet: run bench/run first", file=sys.stderr)
        return 1
    try:
        results, probe = read(paths)
        print(f"report: {write(results, probe, args.output)}")
    except (core.BenchError, OSError, MemoryError) as error:
        print(f"error: {cli.explain(error)}", file=sys.stderr)
        return 1
    return 0
