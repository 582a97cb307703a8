# SPDX-License-Identifier: GPL-2.0
"""The repository's paths, the notes on builds and runs, and the lock that keeps two builds out of one tree."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

REPO = Path(__file__).resolve().parent.parent
BUILD = REPO / "build"
BASE = BUILD / "base"
TREE = BUILD / "tree"
VENV = BUILD / "venv"
OVERLAY = REPO / "kernel" / "overlay"
HOOKS = REPO / "kernel" / "hooks"
CONFIG = REPO / "kernel" / "config"


def own_python() -> None:
    """Restart this program with the repository's own Python, if that exists and is not the one running."""
    python = VENV / "bin" / "python"
    if python.exists() and Path(sys.prefix).resolve() != VENV.resolve():
        os.execv(python, [str(python), *sys.argv])


def write_whole(path: Path, text: str) -> None:
    """Replace a file atomically: after an interruption or on a full disk the old file remains. Raises OSError."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        temporary.write_text(text, encoding="utf-8")
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def read_stamp(path: Path) -> Any:
    """Return what a file holds as JSON; None if there is no file or its content is cut off."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None


def note(name: str, **what: object) -> None:
    """Append an event and its time to a list in build/counts; tests/run.py reports these lists."""
    counts = BUILD / "counts"
    counts.mkdir(parents=True, exist_ok=True)
    with open(counts / name, "a", encoding="utf-8") as notes:
        notes.write(json.dumps({"at": time.time(), **what}) + "\n")


def notes(name: str, since: float = 0.0) -> list[dict[str, Any]]:
    """Return the events in such a list since a time; skip a line that is cut off."""
    found: list[dict[str, Any]] = []
    path = BUILD / "counts" / name
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        with contextlib.suppress(ValueError):
            found.append(json.loads(line))
    return [one for one in found if one["at"] >= since]


@contextlib.contextmanager
def locked(folder: Path, holder: str) -> Iterator[None]:
    """Hold the file .lock of a folder, waiting for another holder, and saying for what."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "w", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"waiting for {holder}", file=sys.stderr, flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def build_lock() -> contextlib.AbstractContextManager[None]:
    """Hold build/.lock, which whatever changes a tree or its objects needs."""
    return locked(BUILD, "another build in this tree")
