# SPDX-License-Identifier: GPL-2.0
"""The commands that report on processes."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from typing import Any

from quirelib.surface import Quire, Refused, columns

BLOCK = 2 << 20


def read_processes(quire: Quire, pids: list[int], file: str) -> Iterator[tuple[int, str, str]]:
    """Yield the PID, the name and the text of a file in /proc/PID of all processes, or of some, in the order of PIDs.

    A process is skipped if it has ended, belongs to another user, or has no such file in this kernel. Raises Refused if
    one that is named does not exist.
    """
    gone = [pid for pid in pids if not (quire.proc / str(pid)).is_dir()]
    if gone:
        raise Refused(f"there is no process {', '.join(map(str, gone))}, or this user may not see it.")
    for pid in sorted(int(p.name) for p in quire.proc.iterdir() if p.name.isdigit()):
        if pids and pid not in pids:
            continue
        folder = quire.proc / str(pid)
        try:
            text = (folder / file).read_text(encoding="utf-8", errors="replace")
            yield pid, (folder / "comm").read_text(encoding="utf-8", errors="replace").strip(), text
        except OSError:
            continue


def processes(quire: Quire, args: argparse.Namespace) -> None:
    """Print what each process shares, for the processes that the kernel reports on."""
    found: list[dict[str, Any]] = [{"pid": pid, "name": name, "quire": text.strip().splitlines()}
                                   for pid, name, text in read_processes(quire, args.pid, "quire")]
    if args.json:
        print(json.dumps(found, indent=2))
        return
    if not found:
        raise Refused(
            "no process has a readable /proc/PID/quire. Run quirectl as root; if that does not help,\n"
            "this kernel has neither fork nor shm built in."
        )
    rows = [["PID", "NAME", "SHARES"]]
    for process in found:
        lines = [" ".join(line.split()) for line in process["quire"]]
        rows.append([str(process["pid"]), process["name"], "; ".join(lines)])
    print(columns(rows))


RMAP_KEYS = {"areas": "rmap_areas", "borrowed": "rmap_borrowed", "inside": "rmap_inside", "links": "rmap_links",
             "kB": "rmap_links_kb"}


def rmap_command(quire: Quire, args: argparse.Namespace) -> None:
    """Print how much memory the reverse map of anonymous memory takes, per process and in all."""
    found: list[dict[str, Any]] = []
    for pid, name, text in read_processes(quire, args.pid, "quire"):
        told = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
        if RMAP_KEYS["links"] in told:
            found.append({"pid": pid, "name": name, **{key: int(told[line]) for key, line in RMAP_KEYS.items()}})
    total = {key: sum(f[key] for f in found) for key in RMAP_KEYS}
    if args.json:
        print(json.dumps({"processes": found, "total": total}, indent=2))
        return
    if not found:
        raise Refused("no readable /proc/PID/quire describes a reverse map. Run quirectl as root; if that does\n"
                      "not help, this kernel has no rmap built in.")
    rows = [["PID", "NAME", "AREAS", "BORROWED", "INSIDE", "LINKS", "LINKS kB"]]
    rows += [[str(f["pid"]), f["name"], *(str(f[key]) for key in RMAP_KEYS)] for f in found]
    rows.append(["", "ReverseMaps", *(str(total[key]) for key in RMAP_KEYS)])
    print(columns(rows))


def text_of(smaps: str) -> dict[str, dict[str, int]]:
    """Return the kB of each file's mapped text: all of it, what is in whole blocks that fit a PMD, and what a PMD maps.

    A PMD can map a block if its address and its offset in the file are equal modulo 2 MiB.
    """
    found: dict[str, dict[str, int]] = {}
    current: dict[str, int] | None = None
    for line in smaps.splitlines():
        words = line.split(None, 5)
        if len(words) >= 5 and "-" in words[0] and not words[0].endswith(":"):
            name = words[5] if len(words) == 6 else ""
            current = None
            if "x" in words[1] and name.startswith("/"):
                start, end = (int(word, 16) for word in words[0].split("-"))
                first, last = -(-start // BLOCK), end // BLOCK
                fits = (start - int(words[2], 16)) % BLOCK == 0 and last > first
                current = found.setdefault(name, {"text_kB": 0, "eligible_kB": 0, "pmd_kB": 0})
                current["text_kB"] += (end - start) >> 10
                current["eligible_kB"] += (last - first) * BLOCK >> 10 if fits else 0
        elif current is not None and words and words[0] == "FilePmdMapped:":
            current["pmd_kB"] += int(words[1])
    return found


def text_command(quire: Quire, args: argparse.Namespace) -> None:
    """Print how much of the text of processes is mapped by 2 MiB pages."""
    found: list[dict[str, Any]] = []
    for pid, name, smaps in read_processes(quire, args.pid, "smaps"):
        for file, sizes in text_of(smaps).items():
            if sizes["eligible_kB"] or args.pid:
                found.append({"pid": pid, "name": name, "file": file, **sizes})
    if args.json:
        print(json.dumps(found, indent=2))
        return
    if not found:
        raise Refused("no readable process has text that could be mapped by 2 MiB pages; run quirectl as root, "
                      "or name a process.")
    rows = [["PID", "NAME", "TEXT kB", "ELIGIBLE kB", "BY 2 MIB kB", "FILE"]]
    rows += [[str(f[k]) for k in ("pid", "name", "text_kB", "eligible_kB", "pmd_kB", "file")] for f in found]
    print(columns(rows))


TOP = {"fork": "fork_shared_kb", "shm": "shm_shared_kb", "charged": "fork_charged_tables", "borrowed": "rmap_borrowed"}
HEADS = {"fork": "FORK kB", "shm": "SHM kB", "charged": "CHARGED", "borrowed": "BORROWED"}
CLEAR = "\x1b[H\x1b[2J"


def sharers(quire: Quire, sort: str) -> list[dict[str, Any]]:
    """Return the processes that share something, the largest first; a number that the kernel lacks counts as 0."""
    found = []
    for pid, name, text in read_processes(quire, [], "quire"):
        told = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in text.splitlines())}
        numbers = {key: int(told.get(line, "0")) for key, line in TOP.items()}
        if any(numbers.values()):
            found.append({"pid": pid, "name": name, **numbers})
    key = (lambda one: one["fork"] + one["shm"]) if sort == "all" else (lambda one: one[sort])
    return sorted(found, key=key, reverse=True)


def show_top(found: list[dict[str, Any]], lines: int) -> None:
    """Print a table of the processes that share the most, and a line about all."""
    rows = [["PID", "NAME", *HEADS.values()]]
    rows += [[str(one["pid"]), one["name"], *(str(one[key]) for key in TOP)] for one in found[:lines]]
    charged = sum(one["charged"] for one in found)
    print(f"{len(found)} processes share; tables shared by fork and charged to them: {charged}")
    print(columns(rows), flush=True)


def top_command(quire: Quire, args: argparse.Namespace) -> None:
    """Print the processes that share the most; on a terminal, print them repeatedly."""
    if args.json and args.count:
        raise Refused("--json prints one list; leave out --count.")
    if args.json:
        print(json.dumps(sharers(quire, args.sort)[:args.lines], indent=2))
        return
    screen = sys.stdout.isatty()
    turns = args.count if args.count else None if screen else 1
    while True:
        found = sharers(quire, args.sort)
        print(CLEAR if screen else "", end="")
        show_top(found, args.lines)
        turns = turns - 1 if turns is not None else None
        if turns == 0:
            return
        time.sleep(args.interval)
        print("" if screen else "\n", end="")
