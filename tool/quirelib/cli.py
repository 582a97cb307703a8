# SPDX-License-Identifier: GPL-2.0
"""The command line."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from quirelib import bootdefault, commands, metrics, processes, record, report, settings
from quirelib.surface import Quire, Refused

ABOUT = "Show and switch the memory-management features of a running quire kernel."
FAILED, USAGE = 1, 2
LONGEST = 10**9


class Parser(argparse.ArgumentParser):
    """A parser that prints no usage before an error; the error line begins as in all our commands."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong with the command line, and exit with status 2."""
        self.exit(USAGE, f"error: {message} (see {self.prog} --help)\n")


def positive(text: str) -> float:
    """Return a number of seconds above zero that time.sleep() takes."""
    with contextlib.suppress(ValueError):
        if 0 < float(text) <= LONGEST:
            return float(text)
    raise argparse.ArgumentTypeError(f"takes a number of seconds above 0 and up to {LONGEST:,}, not {text!r}")


def times(text: str) -> int:
    """Return a whole number from 1 on."""
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"takes a whole number above 0, not {text!r}")
    return int(text)


def _add(where: Any, name: str, run: Callable[..., None], text: str, **options: Any) -> argparse.ArgumentParser:
    """Add a command and return its parser."""
    command: argparse.ArgumentParser = where.add_parser(name, help=text, description=text, **options)
    command.set_defaults(run=run)
    return command


def _json(command: argparse.ArgumentParser) -> None:
    command.add_argument("--json", action="store_true", help="print JSON")


def _add_features(where: Any) -> None:
    """Add the commands that show and switch features."""
    _json(_add(where, "status", commands.status, "what is on"))
    for name, text in (
        ("enable", "switch on"),
        ("disable", "switch off; what is shared or pooled stays until normal use undoes it"),
        ("drain", "switch off and undo what is shared or pooled"),
    ):
        _add(where, name, commands.switch, text).add_argument("feature", metavar="FEATURE|all")


def _add_stats(where: Any) -> None:
    """Add the command that shows counters."""
    command = _add(where, "stats", commands.stats_command, "counters", aliases=["stat"])
    command.add_argument("feature", nargs="?", metavar="FEATURE")
    _json(command)
    command.add_argument("--nonzero", action="store_true", help="print only those that are not 0")
    command.add_argument("--watch", nargs="?", type=positive, const=1.0, metavar="SECONDS",
                         help="print them again and again, with rates (default every second)")
    command.add_argument("--count", type=times, metavar="N", help="with --watch: print N times in all")


def _add_knobs(where: Any) -> None:
    """Add the commands that list, get and set knobs."""
    knobs = where.add_parser("knobs", help="list, explain, get and set knobs").add_subparsers(
        dest="action", required=True, metavar="list|explain|get|set")
    action = _add(knobs, "list", commands.knobs_list, "all knobs and values")
    action.add_argument("feature", nargs="?", metavar="FEATURE")
    _json(action)
    action = _add(knobs, "explain", commands.knobs_explain, "bounds, default, unit and meaning; on any kernel")
    action.add_argument("feature", nargs="?", metavar="FEATURE")
    action.set_defaults(anywhere=True)
    for name, run, text in (("get", commands.knobs_get, "one value"), ("set", commands.knobs_set, "change one value")):
        action = _add(knobs, name, run, text)
        action.add_argument("feature", metavar="FEATURE")
        action.add_argument("knob", metavar="KNOB")
    action.add_argument("value", metavar="VALUE")
    command = _add(where, "gauges", commands.gauges_command, "what the kernel shows beside knobs and counters")
    command.add_argument("feature", nargs="?", metavar="FEATURE")
    _json(command)


def _add_settings(where: Any) -> None:
    """Add the commands that store and set what is set."""
    command = _add(where, "save", settings.save, "write all settings to a file")
    command.add_argument("--output", type=Path, metavar="FILE", help="default /etc/quire.conf; - is standard output")
    command = _add(where, "apply", settings.apply, "apply the settings in a file")
    command.add_argument("file", nargs="?", type=Path, metavar="FILE", help="default /etc/quire.conf")
    command.add_argument("--strict", action="store_true",
                         help="exit with status 1 if a line was refused; the other lines are applied anyway")


def _add_reports(where: Any) -> None:
    """Add the commands that write reports for other programs and people."""
    command = _add(where, "metrics", metrics.metrics, "counters, gauges, knobs and states in Prometheus' text format")
    command.add_argument("--output", type=Path, metavar="FILE",
                         help="a file, which is replaced as a whole; default standard output")
    command = _add(where, "bugreport", report.bugreport, "pack what a bug report needs, without secrets")
    command.add_argument("--output", type=Path, metavar="FILE",
                         help="default quire-bugreport-DATE.tar.gz in this folder; - is standard output")
    command = _add(where, "record", record.record, "record the kernel's tracepoints of quire for a time")
    command.add_argument("event", nargs="*", metavar="EVENT",
                         help="a name, or a pattern of the shell such as 'fork_*' (default: all)")
    command.add_argument("--seconds", type=positive, default=10.0, metavar="N", help="for this long (default 10)")
    command.add_argument("--output", type=Path, metavar="FILE",
                         help="default quire-trace-DATE.txt in this folder; - is standard output")
    command.add_argument("--buffer-kb", type=times, default=1024, metavar="N",
                         help="memory for events on each CPU, in kB (default 1024); the oldest are lost if it is full")
    command.add_argument("--list", action="store_true", help="only name the events")
    _json(command)


def _add_processes(where: Any) -> None:
    """Add the commands that report on processes."""
    for name, run, text in (
        ("ps", processes.processes, "what processes share"),
        ("rmap", processes.rmap_command, "what the reverse map of anonymous memory takes"),
        ("text", processes.text_command, "how much of the text of processes is mapped by 2 MiB pages"),
    ):
        command = _add(where, name, run, text)
        command.add_argument("pid", nargs="*", type=int, metavar="PID")
        _json(command)
    command = _add(where, "top", processes.top_command, "which processes share the most; refreshed on a terminal")
    command.add_argument("--sort", choices=("all", *processes.TOP), default="all",
                         help="by kB that fork and shm share (all), one of them, tables charged or areas borrowed")
    command.add_argument("--lines", type=times, default=20, metavar="N", help="print this many processes (default 20)")
    command.add_argument("--interval", type=positive, default=2.0, metavar="SECONDS",
                         help="time between two lists (default 2)")
    command.add_argument("--count", type=times, metavar="N", help="print N times; default 1 where there is no terminal")
    _json(command)


def _add_boot(where: Any) -> None:
    """Add the commands that concern booting; they work on any kernel."""
    command = _add(where, "boot", commands.boot_line, "the boot option, and where it goes; on any kernel")
    command.set_defaults(anywhere=True)
    command.add_argument("features", nargs="*", metavar="FEATURE|all",
                         help="default: those that are on now, or all on a kernel without quire")
    command = _add(where, "default", bootdefault.default, "show or set which kernel GRUB boots; on any kernel")
    command.set_defaults(anywhere=True)
    command.add_argument("which", nargs="?", choices=("quire", "stock"), metavar="quire|stock",
                         help="the newest quire kernel, or the newest other one; without it, print the choice")
    command.add_argument("--dry-run", action="store_true", help="only say what would be done")


def parser() -> argparse.ArgumentParser:
    """Return the command line's parser."""
    top = Parser(prog="quirectl", description=ABOUT, epilog="See quirectl(8).")
    top.add_argument("--root", type=Path, default=Path("/"), metavar="DIR",
                     help="where sys, proc, etc and boot are (default /)")
    where = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for add in (_add_features, _add_stats, _add_knobs, _add_settings, _add_reports, _add_processes, _add_boot):
        add(where)
    return top


def main(argv: list[str] | None = None) -> int:
    """Run the command; return 0, or 1 if the kernel or its state refuses, or 2 for a wrong command line."""
    args = parser().parse_args(argv)
    try:
        elsewhere = getattr(args, "anywhere", False) and not (args.root / "sys/kernel/mm/quire").is_dir()
        args.run(None if elsewhere else Quire(args.root), args)
    except Refused as error:
        print(f"error: {error}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    return 0
