# SPDX-License-Identifier: GPL-2.0
"""Signals that end a command after what it would leave behind is undone."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def ended_by_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP raise SystemExit, unless they are ignored. A second one does not disturb the undoing."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}

    def end(which: int, _frame: object) -> None:
        for number in before:
            signal.signal(number, signal.SIG_IGN)
        sys.exit(128 + which)

    for number, handler in before.items():
        if handler == signal.SIG_DFL:
            signal.signal(number, end)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
