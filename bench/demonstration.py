# SPDX-License-Identifier: GPL-2.0
"""The demonstration: five quick benchmarks, the features off and on side by side, and a report."""

from __future__ import annotations

import contextlib
import signal
import sys
import time

from bench import core, reporting, runner, table
from guest import boot, cli

FIVE = ("fork-table", "shm-table", "pft", "text", "lots-of-forks")
COLUMNS = ["off", "on"]
# On a busy host, times differ by a factor of two between boots, instruction counts by 0.1 %: these are counted.
COUNTED = frozenset({"fork-table", "shm-table", "lots-of-forks"})


class ProgressLine:
    """A progress line: which boot of how many is running. A terminal's line is rewritten, a log gets new lines."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.done = 0
        self.start = time.monotonic()

    def __call__(self, text: str) -> None:
        self.done += 1
        elapsed = int(time.monotonic() - self.start)
        line = f"[{self.done}/{self.total}, {elapsed // 60}:{elapsed % 60:02}] {text}"
        if sys.stderr.isatty():
            print(f"\r\033[K{line}", end="", file=sys.stderr, flush=True)
        else:
            print(line, file=sys.stderr, flush=True)

    def close(self) -> None:
        """End the line."""
        if sys.stderr.isatty():
            print("\r\033[K", end="", file=sys.stderr, flush=True)


def main(argv: list[str] | None = None) -> int:
    """Run the demonstration; the last line names the report."""
    parser = cli.Parser(prog="bench/demo", description=__doc__)
    parser.parse_args(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the guest is ended too
    try:
        with contextlib.closing(ProgressLine(1 + len(FIVE) * len(COLUMNS))) as progress:
            probe, results, failed = runner.run_all(list(FIVE), COLUMNS, core.Options(quick=True), 1, progress, COUNTED)
        print(table.probe_text(probe))
        for result in results:
            print(table.text_of(result))
        print("== in short\n\n" + table.summary_text(results))
        for text in failed:
            print(f"error: FAILED {text}", file=sys.stderr)
        print(f"report: {reporting.write(results, probe, reporting.OUT / 'report.html')}")
    except (core.BenchError, boot.BootError, OSError, MemoryError) as error:
        print(f"error: {cli.explain(error)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 1 if failed else 0
