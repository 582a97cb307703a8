# SPDX-License-Identifier: GPL-2.0
"""The command that records the kernel's tracepoints of quire for a time, through tracefs."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TextIO

from quirelib.signals import ended_by_signals
from quirelib.surface import Quire, Refused, columns

EVENT = re.compile(r"^.*? \d+\.\d+: (\w+): ")


def tracing_folder(root: Path) -> Path:
    """Return where tracefs is mounted. Raises Refused."""
    for folder in (root / "sys/kernel/tracing", root / "sys/kernel/debug/tracing"):
        try:
            if (folder / "instances").is_dir():
                return folder
        except PermissionError as error:
            raise Refused("only root may trace. Run the command with sudo.") from error
    raise Refused("tracefs is not mounted, or this kernel has none: mount -t tracefs nodev /sys/kernel/tracing")


def events_of(tracing: Path, patterns: list[str]) -> list[str]:
    """Return the names of quire's events that match some patterns of the shell, all for none. Raises Refused."""
    folder = tracing / "events/quire"
    names = sorted(path.parent.name for path in folder.glob("*/format"))
    if not names:
        raise Refused(f"this kernel has no tracepoints of quire ({folder} is missing or empty).")
    wrong = [pattern for pattern in patterns if not any(fnmatchcase(name, pattern) for name in names)]
    if wrong:
        raise Refused(f"no event matches {', '.join(wrong)}; there are: {', '.join(names)}.")
    return [name for name in names if not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)]


@contextlib.contextmanager
def instance(tracing: Path) -> Iterator[Path]:
    """Make a trace buffer of our own, which disturbs no other tracer, and remove it afterwards. Raises Refused."""
    folder = tracing / f"instances/quirectl-{os.getpid()}"
    try:
        os.mkdir(folder)
    except OSError as error:
        why = " Run the command with sudo." if isinstance(error, PermissionError) else ""
        raise Refused(f"{folder}: {error.strerror}.{why}") from error
    try:
        yield folder
    finally:
        try:
            os.rmdir(folder)
        except OSError as error:
            print(f"note: {folder} stays: {error.strerror}", file=sys.stderr)


def lost_in(buffer: Path) -> int:
    """Return how many events did not fit into the buffers of the CPUs."""
    texts = [path.read_text(encoding="ascii") for path in sorted(buffer.glob("per_cpu/cpu*/stats"))]
    return sum(int(number) for number in re.findall(r"^(?:overrun|dropped events): (\d+)$", "".join(texts), re.M))


@contextlib.contextmanager
def opened(output: Path) -> Iterator[TextIO]:
    """Open a file to write to, or take standard output for "-". Raises Refused, also for errors while it is open."""
    try:
        if str(output) == "-":
            yield sys.stdout
        else:
            with open(output, "w", encoding="utf-8") as to:
                yield to
    except OSError as error:
        raise Refused(f"{output}: cannot be written: {error.strerror}. Name another file with --output.") from error


def copy_trace(buffer: Path, to: TextIO) -> Counter[str]:
    """Copy the recorded lines to a file, and count the events."""
    found: Counter[str] = Counter()
    with open(buffer / "trace", encoding="utf-8", errors="replace") as trace:
        for line in trace:
            to.write(line)
            match = EVENT.match(line)
            found.update([match[1]] if match else [])
    return found


def record(quire: Quire, args: argparse.Namespace) -> None:
    """Record events for a time, or until it is interrupted; then write them to a file, and print how many there were.
    """
    tracing = tracing_folder(args.root)
    names = events_of(tracing, args.event)
    if args.list:
        print("\n".join(names))
        return
    output = args.output or Path(f"quire-trace-{time.strftime('%Y%m%d-%H%M%S')}.txt")
    with ended_by_signals(), instance(tracing) as buffer, opened(output) as to:
        what = "recording"
        quire.write(buffer / "buffer_size_kb", str(args.buffer_kb), what)
        for name in names:
            quire.write(buffer / "events/quire" / name / "enable", "1", what)
        print(f"{what} {len(names)} events for {args.seconds:g} s; Ctrl-C ends it earlier", file=sys.stderr, flush=True)
        begun = time.monotonic()
        with contextlib.suppress(KeyboardInterrupt):
            time.sleep(args.seconds)
        seconds = time.monotonic() - begun
        quire.write(buffer / "tracing_on", "0", what)
        found, lost = copy_trace(buffer, to), lost_in(buffer)
    report(found, lost, seconds, output, args.json)


def report(found: Counter[str], lost: int, seconds: float, output: Path, as_json: bool) -> None:
    """Print how often each event occurred; to standard error if standard output has the events themselves."""
    to = sys.stderr if str(output) == "-" else sys.stdout
    if as_json:
        print(json.dumps({"file": str(output), "seconds": round(seconds, 1), "events": dict(found.most_common()),
                          "lost": lost}, indent=2), file=to)
        return
    rows = [["EVENT", "COUNT", "PER SECOND"]]
    rows += [[name, str(count), f"{count / seconds:.1f}"] for name, count in found.most_common()]
    print(columns(rows) if found else "no event occurred; `quirectl status` says what is on", file=to)
    if lost:
        print(f"{lost} earlier events are lost: record fewer (EVENT), for a shorter time, or give --buffer-kb more",
              file=sys.stderr)
    if str(output) != "-":
        print(f"{output}: written", file=to)
