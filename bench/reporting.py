# SPDX-License-Identifier: GPL-2.0
"""Writes an HTML report with plots from the JSON files of benchmark runs: a single file that needs no others."""

from __future__ import annotations

import base64
import html
import importlib
import io
import json
import sys
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench import core, table
from guest import cli

OUT = core.HERE.parent / "build" / "bench"
COLORS = {"vanilla": "#8c8c8c", "off": "#4c78a8", "on": "#e45756"}
NEEDED = {"name", "title", "features", "shown", "more_is_better", "native", "main", "notes", "base", "clock", "quick",
          "runs", "guest", "columns"}
GIVE = "give a file that bench/run --json wrote"
STYLE = """body { font: 16px/1.45 sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; color: #222 }
pre { background: #f5f5f5; padding: 1rem; overflow-x: auto; font-size: 13px }
table { border-collapse: collapse } td, th { padding: .3rem .8rem; border-bottom: 1px solid #ddd; text-align: right }
td:first-child, th:first-child, td:nth-child(2), th:nth-child(2) { text-align: left }
.plots { display: flex; flex-wrap: wrap; gap: 1rem } img { max-width: 100% } .conditions { color: #555 }"""


def pyplot() -> types.ModuleType:
    """Return matplotlib's plotting, which needs no display. Loading it is slow, and only the report needs it."""
    try:
        import matplotlib
    except ImportError as error:
        raise core.BenchError(f"matplotlib cannot be loaded ({error}): make packages") from error

    matplotlib.use("Agg")
    return importlib.import_module("matplotlib.pyplot")


def png(figure: Any) -> bytes:
    """Return a figure's image, and close the figure."""
    figure.tight_layout()
    out = io.BytesIO()
    figure.savefig(out, format="png")
    pyplot().close(figure)
    return out.getvalue()


def plot_bytes(result: dict, metric: str, labels: list[dict[str, str]]) -> bytes | None:
    """Return a PNG: one group of bars for each row, a bar for each column; None if no row has the metric."""
    names = core.columns_of(result)
    values = {c: [core.value_of(result["columns"][c], label, metric) for label in labels] for c in names}
    rows = [i for i in range(len(labels)) if any(values[c][i] is not None for c in names)]
    if not rows:
        return None
    figure, axes = pyplot().subplots(figsize=(7, 1.4 + 0.16 * len(names) * len(rows) + 0.1 * len(rows)), dpi=110)
    height = 0.8 / len(names)
    for n, name in enumerate(names):
        axes.barh(
            [y + n * height for y in range(len(rows))],
            [max(values[name][i] or 0, 0) for i in rows],
            height=height,
            label=name,
            color=COLORS.get(name),
        )
    axes.set_yticks([y + 0.4 - height / 2 for y in range(len(rows))])
    axes.set_yticklabels([" ".join(labels[i].values()) for i in rows], fontsize=8)
    axes.invert_yaxis()
    seen = [v for c in names for v in values[c] if v and v > 0]
    if seen and max(seen) > 50 * min(seen):
        axes.set_xscale("log")
    more = "more" if metric in result["more_is_better"] else "less"
    axes.set_xlabel(f"{metric} ({more} is better)")
    axes.legend(fontsize=8)
    return png(figure)


def plots(result: dict) -> str:
    """Return the images of a benchmark's shown metrics, and of the published figures that it responds to."""
    parts = []
    for labels in table.groups(core.labels_in_order(result["columns"].values())):
        for metric in result["shown"]:
            data = plot_bytes(result, metric, labels)
            if data:
                parts.append(image(data, f"{result['name']}: {metric}"))
    figures = core.load(result["name"]).figures
    if figures:
        parts.append(image(figure_bytes(figures), f"{result['name']}: what was published"))
    return '<div class="plots">' + "\n".join(parts) + "</div>"


def figure_bytes(figures: Sequence[core.Figure]) -> bytes:
    """Return a PNG of the published figures: before and after, each relative to its own before."""
    figure, axes = pyplot().subplots(figsize=(7, 1.4 + 0.5 * len(figures)), dpi=110)
    for y, one in enumerate(figures):
        axes.barh(y, 1, height=0.38, color=COLORS["vanilla"], label="" if y else "before")
        axes.barh(y + 0.4, one.after / one.before, height=0.38, color=COLORS["on"], label="" if y else "after")
        axes.text(1, y, f" {table.number(one.before)} {one.unit}", va="center", fontsize=7)
        axes.text(one.after / one.before, y + 0.4, f" {table.number(one.after)} {one.unit}", va="center", fontsize=7)
    axes.set_yticks([y + 0.2 for y in range(len(figures))])
    axes.set_yticklabels([f"{one.what}\n{one.source}" for one in figures], fontsize=7)
    axes.invert_yaxis()
    axes.set_xlabel("published, relative to before")
    axes.legend(fontsize=8)
    return png(figure)


def image(data: bytes, alt: str) -> str:
    """Return an image that is embedded in the page."""
    code = base64.b64encode(data).decode("ascii")
    return f'<img alt="{html.escape(alt)}" src="data:image/png;base64,{code}">'


def summary_table(results: list[dict]) -> str:
    """Return the table with one row for each benchmark."""
    names = [c for c in core.COLUMNS if any(c in r["columns"] for r in results)]
    rows = []
    for result in results:
        found = core.summary(result)
        if not found:
            continue
        label, values = found
        pairs = table.ratio_pairs(result["columns"])
        ratios = [core.ratio(values[a], values[b]) for a, b in pairs]
        more = "more" if result["main"][1] in result["more_is_better"] else "less"
        cells = [result["name"], f"{label} ({more} is better)", *(table.number(values.get(c)) for c in names)]
        cells.append(", ".join(f"{a}/{b} {r:.3f}" for (a, b), r in zip(pairs, ratios, strict=True) if r is not None))
        rows.append("<tr>" + "".join(f"<td>{html.escape(c)}</td>" for c in cells) + "</tr>")
    head = "".join(f"<th>{html.escape(c)}</th>" for c in ("benchmark", "what", *names, "ratio"))
    return f"<table><tr>{head}</tr>\n" + "\n".join(rows) + "</table>"


def page(results: list[dict], probe: dict | None) -> str:
    """Return the report."""
    parts = [
        f"<!doctype html><html lang=en><meta charset=utf-8><title>quire benchmarks</title><style>{STYLE}</style>",
        "<h1>quire benchmarks</h1>",
        summary_table(results),
    ]
    if probe:
        parts.append(f"<pre>{html.escape(table.probe_text(probe))}</pre>")
    for result in results:
        parts.append(f"<h2 id={result['name']}>{result['name']}: {html.escape(result['title'])}</h2>")
        parts.append(f'<p class="conditions">{html.escape(table.conditions(result))}</p>')
        parts.append(plots(result))
        parts.append(f"<details><summary>numbers</summary><pre>{html.escape(table.text_of(result))}</pre></details>")
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
