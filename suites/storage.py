# SPDX-License-Identifier: GPL-2.0
"""Keeps results in suites/results: of each part of a suite on two kernels, of coverage, the matrix, scaling and models.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from guest import paths

FOLDER = Path(__file__).resolve().parent / "results"
COVERAGE = FOLDER / "coverage" / "gcov.json"
MATRIX = FOLDER / "matrix"
SCALE = FOLDER / "scale"
MODELS = FOLDER / "models" / "steps.json"
FUZZ = FOLDER / "fuzz" / "syzkaller.json"


def name_of(result: dict[str, Any]) -> str:
    """Return the name of the file with a result."""
    return f"{result['suite']}.{result['part']}.{result['quire']['kernel']}-{result['against']}.json"


def text_of(result: dict[str, Any]) -> str:
    """Return a result as JSON, with a line for each field."""
    return "{\n" + ",\n".join(f" {json.dumps(key)}: {json.dumps(value)}" for key, value in result.items()) + "\n}\n"


def store(result: dict[str, Any]) -> Path:
    """Write a result in place of an older one, and return its file."""
    FOLDER.mkdir(exist_ok=True)
    path = FOLDER / name_of(result)
    paths.write_whole(path, text_of(result))
    return path


def load(folder: Path) -> list[dict[str, Any]]:
    """Return all results, by their files' names. Raises ValueError if a file holds none."""
    found = []
    for path in sorted(folder.glob("*.json")):
        result = paths.read_stamp(path)
        if not isinstance(result, dict):
            raise ValueError(f"{path.name} holds no result: restore it from git, or run that part again")
        found.append(result)
    return found
