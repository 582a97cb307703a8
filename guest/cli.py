# SPDX-License-Identifier: GPL-2.0
"""Shared by the commands: lines about progress, tables of Markdown, and one-line errors for wrong arguments or a host
without memory or disk.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import os
import re
import sys
import time
from collections.abc import Callable
from typing import NoReturn

NEXT = {
    errno.ENOSPC: "make room and run it again",
    errno.EDQUOT: "make room and run it again",
    errno.ENOMEM: "free memory or add swap, and run it again",
}
KILLED = re.compile(r"\bKilled\b|\b[Oo]ut of memory\b")


class Parser(argparse.ArgumentParser):
    """A parser that prints no usage before an error; the error line begins as in all our commands."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong with the command line, and exit with status 2."""
        self.exit(2, f"error: {message} (see {self.prog} --help)\n")


def number(low: int, high: int) -> Callable[[str], int]:
    """Return an argument type for argparse: a whole number from `low` to `high`."""
    def convert(text: str) -> int:
        if not re.fullmatch(r"-?\d+", text) or not low <= int(text) <= high:
            raise argparse.ArgumentTypeError(f"takes a number from {low} to {high}, not {text!r}")
        return int(text)
    return convert


def positive(unit: str) -> Callable[[str], float]:
    """Return an argument type for argparse: a number of some unit, above 0 and finite."""
    def convert(text: str) -> float:
        with contextlib.suppress(ValueError):
            if 0 < float(text) < float("inf"):
                return float(text)
        raise argparse.ArgumentTypeError(f"takes a number of {unit} above 0, not {text!r}")
    return convert


seconds, hours = positive("seconds"), positive("hours")


def progress(text: str) -> None:
    """Print a line about how far a run is."""
    print(f"[{time.strftime('%H:%M:%S')} {text}]", file=sys.stderr, flush=True)


def markdown(header: list[str], rows: list[list[str]]) -> str:
    """Return a table of Markdown."""
    return "\n".join("| " + " | ".join(line) + " |" for line in (header, ["---"] * len(header), *rows))


def advice(text: str) -> str:
    """Return what to do next if a text says that the disk or the memory is full, else ""."""
    for code, what in NEXT.items():
        if os.strerror(code) in text:
            return what
    return NEXT[errno.ENOMEM] if KILLED.search(text) else ""


def explain(error: BaseException) -> str:
    """Return an error's text, with what to do next if the disk or the memory is full."""
    text = str(error) or ("out of memory" if isinstance(error, MemoryError) else type(error).__name__)
    what = advice(text)
    return f"{text}: {what}" if what else text
