#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""A process and two children that share page tables, to be frozen and thawed: frozen.py FOLDER.

Each of them maps private memory that it has from the first, and memory that all share. FOLDER/ready is there when all
have filled theirs. At SIGUSR1 each writes pages of its own, and FOLDER/written is there when all have. At SIGUSR2 each
compares all it maps with what must be there, and so does a third child that the parent has forked after it wrote;
FOLDER/verdict then says what was wrong, or that nothing was.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import signal
import struct
import sys
from pathlib import Path

PAGE, TABLE = 4096, 2 << 20
SIZE = 5 * TABLE  # so that four whole tables are in it, wherever it is
PAGES = SIZE // PAGE
CHILDREN = 2
PRIVATE = mmap.mmap(-1, SIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
SHARED = mmap.mmap(-1, SIZE, flags=mmap.MAP_SHARED | mmap.MAP_ANONYMOUS)


def word(page: int, seed: int) -> bytes:
    """Return what a page begins with."""
    return struct.pack("<Q", (page + 1) * 0x9E3779B97F4A7C15 % (1 << 64) ^ seed)


def fill(area: mmap.mmap, pages: range, seed: int) -> None:
    """Write to pages of an area."""
    for page in pages:
        area[page * PAGE:page * PAGE + 8] = word(page, seed)


def own(who: int) -> range:
    """Return the pages that a process writes: the parent is 0, its children are 1 and up; all are in one table."""
    return range(who * 40 + 600, who * 40 + 620)


def wrong(who: int) -> int:
    """Return how many pages are not as they must be in a process."""
    bad = 0
    for page in range(PAGES):
        at = slice(page * PAGE, page * PAGE + 8)
        bad += PRIVATE[at] != word(page, who + 10 if page in own(who) else 1)
        writer = [other for other in range(CHILDREN + 1) if page in own(other)]
        bad += SHARED[at] != word(page, writer[0] + 20 if writer else 2)
    return bad


def write(who: int) -> None:
    """Write the pages of a process."""
    fill(PRIVATE, own(who), who + 10)
    fill(SHARED, own(who), who + 20)


def act(who: int, signals: set[signal.Signals]) -> int:
    """Do what a signal asks for; return what was wrong."""
    if signal.sigwait(signals) == signal.SIGUSR1:
        write(who)
        return 0
    return wrong(who)


def start(who: int, signals: set[signal.Signals]) -> tuple[int, int]:
    """Start a child, which answers each signal with a number; return its PID and the pipe with its answers."""
    answers, to = os.pipe()
    pid = os.fork()
    if not pid:
        with contextlib.suppress(KeyboardInterrupt):
            while True:
                os.write(to, struct.pack("<q", act(who, signals)))
        os._exit(1)
    os.close(to)
    return pid, answers


def main(folder: Path) -> None:
    """Be the parent, without the guest's own ports, which nobody could open anew."""
    os.closerange(3, 1024)
    signals = {signal.SIGUSR1, signal.SIGUSR2}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    for area, seed in ((PRIVATE, 1), (SHARED, 2)):
        fill(area, range(PAGES), seed)
    children = [start(who, signals) for who in range(1, CHILDREN + 1)]
    (folder / "ready").touch()
    for name in ("written", "verdict"):
        kind = signal.SIGUSR1 if name == "written" else signal.SIGUSR2
        bad = [act(0, {kind})]
        for pid, answers in children:
            os.kill(pid, kind)
            bad += struct.unpack("<q", os.read(answers, 8))
        if name == "written":
            # This one has the parent's memory: what changed since the first look is in shared tables, too.
            children.append(start(0, signals))
        (folder / f"{name}.new").write_text(f"wrong pages: {bad}\n", encoding="utf-8")
        (folder / f"{name}.new").rename(folder / name)
    for pid, _ in children:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
