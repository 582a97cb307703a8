# SPDX-License-Identifier: GPL-2.0
"""Stores the measurements: a JSON file for each benchmark and clock, with one line per row for readable diffs.

The file machine.CLOCK.json holds the machine probe that was made by that clock.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from bench import core

FOLDER = core.HERE / "results"
PACKAGES = FOLDER / "packages"  # of installed kernels
PROBES = {"icount": "machine", "time": "machine_time"}
MEND = "restore it from git, or delete it and measure again: bench/publish --run"


def file_of(name: str, clock: str) -> str:
    """Return the name of the file with a benchmark's result by a clock."""
    return f"{name}.{clock}.json"


def _has_rows(value: Any) -> bool:
    return isinstance(value, dict) and ("rows" in value or any(map(_has_rows, value.values())))


def text_of(value: Any, indent: str = "") -> str:
    """Return JSON with one line for each row, and one for each field without rows."""
    if not _has_rows(value):
        return json.dumps(value, ensure_ascii=False)
    inner = indent + " "
    fields = []
    for key, field in value.items():
        text = text_of(field, inner)
        if key == "rows" and field:
            text = "[\n" + ",\n".join(f"{inner} {text_of(row)}" for row in field) + f"\n{inner}]"
        fields.append(f"{inner}{json.dumps(key, ensure_ascii=False)}: {text}")
    return "{\n" + ",\n".join(fields) + f"\n{indent}}}"


def texts(data: dict) -> dict[str, str]:
    """Return the text of each file that stores this data, by file name."""
    kept = {file_of("machine", clock): data[key] for clock, key in PROBES.items() if data.get(key)}
    kept.update({file_of(one["name"], one["clock"]): one for one in data["results"]})
    return {name: text_of(one) + "\n" for name, one in kept.items()}


def read(path: Path) -> tuple[str, str, dict]:
    """Return a file's benchmark, clock and content; raises BenchError if the content does not match the name."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise core.BenchError(f"{path} cannot be read ({error}): {MEND}") from error
    match = re.fullmatch(rf"(.+)\.({'|'.join(PROBES)})\.json", path.name)
    if not match or match.group(1) not in core.names():
        raise core.BenchError(f"{path} is named after no benchmark and clock: name it NAME.CLOCK.json, or delete it")
    name, clock = match.groups()
    wanted = {} if name == "machine" else {"name": name, "clock": clock}
    if not _has_rows(content) or {key: content.get(key) for key in wanted} != wanted:
        raise core.BenchError(f"{path} does not hold a result of {name} by this clock: {MEND}")
    return name, clock, content


def load(folder: Path) -> dict:
    """Return what a folder stores: results in the order of the benchmarks, and for each clock a probe or None."""
    found = [read(path) for path in folder.glob("*.json")]
    found.sort(key=lambda one: (core.names().index(one[0]), one[1]))
    probes = {clock: content for name, clock, content in found if name == "machine"}
    return {**{key: probes.get(clock) for clock, key in PROBES.items()},
            "results": [content for name, _, content in found if name != "machine"]}
