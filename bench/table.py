# SPDX-License-Identifier: GPL-2.0
"""Prints results as tables: one for each metric, with a column for each kernel and the ratios."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from bench import core


def number(value: float | None) -> str:
    """Format a number with about four significant digits."""
    if value is None:
        return "-"
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    size = abs(value)
    digits = 0 if size >= 1000 else 1 if size >= 100 else 2 if size >= 1 else 4
    return f"{value:,.{digits}f}"


def align(header: Sequence[str], rows: Sequence[Sequence[str]], left: int) -> str:
    """Return the lines of a table; the first `left` columns are words, the others numbers."""
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]

    def line(cells: Sequence[str]) -> str:
        return "  ".join(
            c.ljust(w) if i < left else c.rjust(w) for i, (c, w) in enumerate(zip(cells, widths, strict=True))
        ).rstrip()

    rule = "  ".join("-" * w for w in widths)
    return "\n".join([line(header), rule, *map(line, rows)])


def ratio_pairs(columns: Iterable[str]) -> list[tuple[str, str]]:
    """Return the ratios that these columns allow: to vanilla, or to off where there is no vanilla."""
    names = core.columns_of({"columns": columns})
    base = next((c for c in core.COLUMNS[:2] if c in names), None)
    return [(c, base) for c in names if base and c != base]


def ratios_text(values: Mapping[str, float | None]) -> str:
    """Return the ratios of one row's values in the columns, by name."""
    ratios = {f"{a}/{b}": core.ratio(values[a], values[b]) for a, b in ratio_pairs(values)}
    return ", ".join(f"{name} {ratio:.3f}" for name, ratio in ratios.items() if ratio is not None)


def groups(labels: list[dict[str, str]]) -> list[list[dict[str, str]]]:
    """Return the rows' labels in groups which have the same keys."""
    found: dict[tuple, list] = {}
    for label in labels:
        found.setdefault(tuple(label), []).append(label)
    return list(found.values())


def metric_table(result: dict, metric: str, labels: list[dict[str, str]]) -> str | None:
    """Return the table of one metric, or None if no row has it."""
    columns = result["columns"]
    names = core.columns_of(result)
    pairs = ratio_pairs(columns)
    rows = []
    for label in labels:
        values = {c: core.value_of(columns[c], label, metric) for c in names}
        if all(v is None for v in values.values()):
            continue
        ratios = [core.ratio(values[a], values[b]) for a, b in pairs]
        rows.append(
            [*label.values(), *(number(values[c]) for c in names), *("-" if r is None else f"{r:.3f}" for r in ratios)]
        )
    if not rows:
        return None
    header = [*labels[0], *names, *(f"{a}/{b}" for a, b in pairs)]
    better = "more" if metric in result["more_is_better"] else "less"
    return f"{metric} ({better} is better)\n" + align(header, rows, len(labels[0]))


def native_table(result: dict, column: str) -> str:
    """Return a column's rows in the form in which the earlier work printed them: all keys, all metrics."""
    parts = []
    for labels in groups(core.labels_in_order([result["columns"][column]])):
        values = {m: [core.value_of(result["columns"][column], label, m) for label in labels] for m in result["native"]}
        metrics = [m for m in values if any(v is not None for v in values[m])]
        if not metrics:
            continue
        rows = [[*label.values(), *(number(values[m][i]) for m in metrics)] for i, label in enumerate(labels)]
        parts.append(f"{column}:\n" + align([*labels[0], *metrics], rows, len(labels[0])))
    return "\n\n".join(parts)


def kernel_text(result: dict) -> str:
    """Return which commit of quire was measured."""
    kernel = result.get("kernel")
    if not kernel:
        return "of unknown date"
    changed = " and changes that are not committed" if kernel["changed"] == "yes" else ""
    return f"{kernel['commit']} of {kernel['date']}{changed}"


def conditions(result: dict) -> str:
    """Return the conditions of a measurement in one line, without which its numbers mean nothing."""
    clock = "instructions (1 ns = 1 instruction, shift=0)" if result["clock"] == "icount" else "time"
    guest = result["guest"]
    host = result.get("host")
    labels = (", Debian's kernel and ours as packages" if result.get("packages") else
              ", kernels with jump labels" if result.get("jump") else "")
    nodes = f" on {guest['numa']} NUMA nodes" if guest.get("numa", 1) > 1 else ""
    others = f", {host['load']} tasks running on the host's {host['cpus']} CPUs before" if host else ""
    return (
        f"base {result['base']}, quire {kernel_text(result)}, clock: {clock}, {guest['accelerator']}, "
        f"guest {guest['memory']} and {guest['cpus']} cpu(s){nodes}{labels}, randomization off, "
        f"{'quick sizes' if result['quick'] else 'full sizes'}, "
        f"{'least' if result.get('least') else 'median'} of {result['runs']} boot(s)"
        f"{others if result['clock'] == 'time' else ''}"
    )


def amount(aim: core.Aim, value: float | None) -> str:
    """Format a value in the way that an aim states it."""
    if value is None:
        return "not measured"
    if aim.how == "times":
        return f"{number(round(value, 2))}x"
    return f"{value:.3f}" if aim.how == "ratio" else number(round(value, 3))


def score_of(aim: core.Aim, found: core.Finding | None) -> str:
    """Format the score of a finding in the way that its aim states it."""
    if found and aim.how == "times" and found.value < 1:
        return "nothing left"
    return amount(aim, found.score if found else None)


def made_of(aim: core.Aim, found: core.Finding | None) -> str:
    """Return the two numbers that a finding compares."""
    if not found or aim.how == "value" or found.base is None:
        return "-"
    return f"{number(found.base)} → {number(found.value)}"


def wanted(aim: core.Aim) -> str:
    """Return the aim as a bound."""
    return f"{'≥' if aim.at_least else '≤'} {amount(aim, aim.limit)}"


def verdict(judged: str | None) -> str:
    """Return the words for what core.judge() says."""
    return "**missed**" if judged == core.MISSED else judged or "-"


def aims_rows(result: dict) -> tuple[list[list[str]], list[str]]:
    """Return how the benchmark met its aims for this clock, and notes; none unless all columns have full sizes."""
    rows: list[list[str]] = []
    notes: list[str] = []
    if result["quick"] or not set(core.COLUMNS) <= set(result["columns"]) or result["name"] not in core.names():
        return rows, notes
    for aim in core.load(result["name"]).aims:
        decision = core.decide(aim, result) if aim.clock == result["clock"] else None
        if not decision:
            continue
        if decision.left_out:
            notes.append(f"{aim.text}: rows that are not judged, as off differs from vanilla by more than the aim's "
                         f"limit, or by a percent: {decision.left_out}\n")
        rows.append([aim.text, made_of(aim, decision.found), score_of(aim, decision.found), wanted(aim),
                     verdict(core.judge(aim, result))])
    return rows, notes


def aims_text(result: dict) -> str:
    """Return the table of the benchmark's aims, "" if none can be judged."""
    rows, notes = aims_rows(result)
    plain = [[*row[:-1], row[-1].strip("*")] for row in rows]
    text = align(["aim", "base → value", "score", "wanted", ""], plain, 1) + "\n" if rows else ""
    return text + "".join(notes)


def column_notes(result: dict) -> list[str]:
    """Return what the column "on" has on, and what it should have had."""
    found = []
    if "on" in result["columns"] and result["features"]:
        found.append("on = " + ", ".join([f"quire={','.join(result['features'])}", *result.get("knobs", [])]))
    return found + [f'NOTE: the feature {missing} was not on in the column "on"' for missing in core.not_on(result)]


def text_of(result: dict) -> str:
    """Return everything that is printed about one benchmark."""
    parts = [f"== {result['name']}: {result['title']}\n   {conditions(result)}"]
    parts[0] += "".join(f"\n   {note}" for note in column_notes(result))
    parts += [f"   NOTE: {note}" for note in result["notes"]]
    labels = core.labels_in_order(result["columns"].values())
    for group in groups(labels):
        for metric in result["shown"]:
            table = metric_table(result, metric, group)
            if table:
                parts.append(table)
    if result["native"]:
        parts += [native_table(result, c) for c in core.columns_of(result)]
    return "\n\n".join(p for p in parts if p) + "\n"


def summary_text(results: list[dict]) -> str:
    """Return one line for each benchmark: the row that represents it."""
    names = core.columns_of({"columns": {c: None for r in results for c in r["columns"]}})
    rows = []
    for result in results:
        found = core.summary(result)
        if found:
            label, values = found
            rows.append([result["name"], label, *(number(values.get(c)) for c in names), ratios_text(values)])
    return align(["benchmark", "what", *names, "ratio"], rows, 2) + "\n"


def probe_rows(probe: dict) -> list[list[str]]:
    """Return the names and values of the machine probe."""
    return [
        [" ".join(row["keys"].values()), number(next(iter(row["metrics"].values()))["median"])] for row in probe["rows"]
    ]


def probe_text(probe: dict) -> str:
    """Return the machine probe as a table."""
    return ("== the machine (ns, or instructions under --icount)\n\n"
            + align(["probe", "ns"], probe_rows(probe), 1) + "\n")
