# SPDX-License-Identifier: GPL-2.0
"""Where things are, and the lock that keeps two builds out of one tree."""

from __future__ import annotations

import contextlib
import fcntl
import sys
from collections.abc import Iterator
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent
BUILD = REPO / "build"
BASE = BUILD / "base"
TREE = BUILD / "tree"
VENV = BUILD / "venv"
OVERLAY = REPO / "kernel" / "overlay"
HOOKS = REPO / "kernel" / "hooks"
CONFIG = REPO / "kernel" / "config"


@contextlib.contextmanager
def build_lock() -> Iterator[None]:
    """Hold build/.lock, waiting for another holder (and saying so)."""
    BUILD.mkdir(exist_ok=True)
    with open(BUILD / ".lock", "w", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("waiting for another build in this tree", file=sys.stderr, flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
