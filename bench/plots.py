# SPDX-License-Identifier: GPL-2.0
"""Draws the plots of the HTML report, as SVG in the page. Letters are paths, so all browsers show the same."""

from __future__ import annotations

import importlib
import io
import re
import types
from collections.abc import Sequence
from typing import Any

from bench import core, table

COLORS = {"vanilla": "#8c8c8c", "off": "#4c78a8", "on": "#e45756"}
# Inches. A page has two plots side by side, or one as wide as both; the letters have the same size in either.
NARROW, WIDE = 6.4, 13.1
BAR, GAP, FRAME = 0.16, 0.14, 1.3
# A unit is the last of these words in a metric's name.
UNITS = {"ns": "ns", "us": "µs", "usec": "µs", "ms": "ms", "s": "s", "kB": "kB", "GB": "GB", "pages": "pages",
         "share": "share", "faults": "faults", "tps": "transactions/s"}


def unit_of(metric: str) -> str:
    """Return the unit of a metric, which its name says; "" of one that only counts."""
    special = {"fault/wsec": "faults/s", "flt/cpu/s": "faults/s", "work_per_s": "1/s"}
    if metric in special:
        return special[metric]
    what, _, per = metric.partition("_per_")
    found = next((UNITS[word] for word in reversed(re.split(r"[_/]", what)) if word in UNITS), "")
    if per in ("s", "ms"):
        return f"{found}/{per}" if found else f"1/{per}"
    return f"{found} per {per.replace('_', ' ')}".strip() if per else found


def title_of(metric: str) -> str:
    """Return a metric's name with its unit."""
    unit = unit_of(metric)
    return f"{metric} [{unit}]" if unit else metric


def pyplot() -> types.ModuleType:
    """Return matplotlib's plotting, which needs no display. Loading it is slow, and only the report needs it."""
    try:
        import matplotlib
    except ImportError as error:
        raise core.BenchError(f"matplotlib cannot be loaded ({error}): make packages") from error

    matplotlib.use("Agg")
    matplotlib.rcParams.update({"svg.fonttype": "path", "font.size": 8})
    return importlib.import_module("matplotlib.pyplot")


def svg(figure: Any, name: str) -> str:
    """Return a figure's SVG element, which a page scales, and close the figure; `name` is for who cannot see it."""
    out = io.StringIO()
    figure.savefig(out, format="svg", metadata={"Date": None})
    pyplot().close(figure)
    text = out.getvalue()
    text = text[text.index("<svg"):]
    # The size is the page's matter; viewBox keeps the shape.
    head, body = text.split(">", 1)
    head = re.sub(r' (width|height)="[^"]*"', "", head)
    return f'{head} role="img" aria-label="{name}">{body}'


def bars(result: dict, metric: str, labels: list[dict[str, str]], width: float) -> str | None:
    """Return a plot: one group of bars for each row, a bar for each column; None if no row has the metric."""
    names = core.columns_of(result)
    values = {c: [core.value_of(result["columns"][c], label, metric) for label in labels] for c in names}
    rows = [i for i in range(len(labels)) if any(values[c][i] is not None for c in names)]
    if not rows:
        return None
    inches = FRAME + (BAR * len(names) + GAP) * len(rows)
    figure, axes = pyplot().subplots(figsize=(width, inches), layout="constrained")
    height = 0.8 / len(names)
    for n, name in enumerate(names):
        axes.barh([y + n * height for y in range(len(rows))], [max(values[name][i] or 0, 0) for i in rows],
                  height=height, label=name, color=COLORS.get(name))
    axes.set_yticks([y + 0.4 - height / 2 for y in range(len(rows))],
                    labels=[" ".join(labels[i].values()) for i in rows])
    axes.invert_yaxis()
    seen = [v for c in names for v in values[c] if v and v > 0]
    if seen and max(seen) > 50 * min(seen):
        axes.set_xscale("log")
    else:
        axes.xaxis.set_major_locator(pyplot().MaxNLocator(5))
    axes.xaxis.set_major_formatter(lambda value, _: table.number(value))
    axes.set_xlabel(f"{title_of(metric)}, {'more' if metric in result['more_is_better'] else 'less'} is better")
    figure.legend(loc="outside upper right", ncols=len(names), frameon=False)
    return svg(figure, f"{result['name']}: {metric}")


def published(figures: Sequence[core.Figure], name: str, width: float) -> str:
    """Return a plot of published figures: before and after, each relative to its own before."""
    figure, axes = pyplot().subplots(figsize=(width, FRAME + 0.55 * len(figures)), layout="constrained")
    for y, one in enumerate(figures):
        for offset, what, value, share in ((0, "before", one.before, 1.0), (0.4, "after", one.after,
                                                                            one.after / one.before)):
            axes.barh(y + offset, share, height=0.38, color=COLORS["on" if offset else "vanilla"],
                      label=what if not y else "")
            axes.text(share, y + offset, f" {table.number(value)} {one.unit}", va="center", fontsize=7)
    axes.set_yticks([y + 0.2 for y in range(len(figures))], labels=[f"{one.what}\n{one.source}" for one in figures])
    axes.margins(x=0.2)
    axes.invert_yaxis()
    axes.set_xlabel("published, on their machines, relative to before")
    figure.legend(loc="outside upper right", ncols=2, frameon=False)
    return svg(figure, f"{name}: what was published")
