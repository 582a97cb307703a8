# SPDX-License-Identifier: GPL-2.0
"""Tell the races that KCSAN found in our code from those in Linux's own.

A report has one or two stacks. It is ours if a function of one of them is in a file of ours, or was at a line in or
beside an edit of our hooks, as the access was made: a race deep in Linux that only our call leads to is ours as well.
Inlined functions count, which is why the kernel has debugging information. What an interrupt came to does not: it did
not call for the access. Nor does a function whose allocation led to reclaim or compaction, which are about other pages
than the function's. A frame that cannot be found is taken for ours, and KNOWN has what is none of ours although it is
called beside an edit. With RACES=files in the environment, a race beside an edit does not count: it is noted, for a
reader who may add it to KNOWN, and tests/run.py prints it.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from guest import paths, splat

KIND = "race"
# With KCSAN, a guest takes longer to start than to do its work for a minute. This option leaves KCSAN off, and this
# line of a script switches it on.
LATE = "kcsan.early_enable=0"
ON = "echo on >/sys/kernel/debug/kcsan || exit 1\n"
ACCESS = re.compile(r"(race at unknown origin, with )?(read|write|read-write|assert no (accesses|writes))\b.* to 0x\w+ "
                    r"of \d+ bytes by ")
FRAME = re.compile(r"(?:\? )?([\w.]+)\+0x([0-9a-f]+)/0x([0-9a-f]+)(?: \[(\w+)\])?$")
# What begins something else than its caller's work: an interrupt, reclaim, or compaction.
ENTRY = re.compile(r"(asm_(sysvec_\w+|common_interrupt)|try_to_free_pages|try_to_free_mem_cgroup_pages|node_reclaim|"
                   r"try_to_compact_pages)\+")
REORDERED = re.compile(r"\+-> reordered to: ")
PLACE = re.compile(r"(.*?):(\d+|\?)(?: \(discriminator \d+\))?")
HUNK = re.compile(r"@@ -\S+ \+(\d+)(?:,(\d+))? @@")
# Two functions of Linux whose accesses race, and why that is none of ours although one is called beside an edit.
KNOWN = {
    frozenset({"folio_lruvec_lock_irqsave", "next_uptodate_folio"}):
        "filemap_map_pages() calls the latter, which sets the bit that locks a folio; the former reads the folio's "
        "node from the same word, which never changes",
    frozenset({"lruvec_page_state", "mem_cgroup_css_rstat_flush"}):
        "the former reads the counters of a control group without the lock under which the latter adds to them",
}
# The places of each frame.
Places = dict[str, list["Place"]]


@dataclass(frozen=True)
class Place:
    """A line of the source, and the function that it is in."""

    function: str
    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.function} ({self.file}:{self.line})"


def stacks(report: str) -> list[list[str]]:
    """Return the stacks of a report as "function+0xoffset/0xsize", each from the access out to an ENTRY."""
    found: list[list[str]] = []
    inside = False
    for line in map(str.strip, report.splitlines()):
        if ACCESS.match(line):
            found.append([])
            inside = True
        elif inside and FRAME.match(REORDERED.sub("", line)):
            found[-1].append(REORDERED.sub("", line))
            inside = not ENTRY.match(line)
        elif inside and line != "|":
            inside = False
    return found


def symbols(listing: str) -> dict[str, list[int]]:
    """Return the addresses of each function, from what nm prints. Several static functions may share a name."""
    found: dict[str, list[int]] = {}
    for line in listing.splitlines():
        address, _, rest = line.partition(" ")
        kind, _, name = rest.partition(" ")
        if address and kind in ("t", "T", "w", "W"):
            found.setdefault(name, []).append(int(address, 16))
    return found


def calls(frame: str, known: dict[str, list[int]]) -> list[int]:
    """Return the addresses that a frame may stand for: of the call, which the frame's own address comes after."""
    match = FRAME.match(frame)
    if not match or match[4]:
        return []
    return [start + int(match[2], 16) - 1 for start in known.get(match[1], [])]


def places(listing: str) -> dict[int, list[Place]]:
    """Return the places of each address, innermost inlined function first, from what addr2line -afi prints."""
    found: dict[int, list[Place]] = {}
    lines = iter(listing.splitlines())
    current: list[Place] = []
    for line in lines:
        if line.startswith("0x"):
            current = found.setdefault(int(line, 16), [])
            continue
        match = PLACE.fullmatch(next(lines, "?:0"))
        if match and match[2] != "?":
            current.append(Place(line, inside_source(match[1]), int(match[2])))
    return found


def inside_source(path: str) -> str:
    """Return a path of debugging information as the kernel's source knows it: without the object folder before it."""
    return re.sub(r"^(.*/o-\w+/)?(\.\./)?", "", path)


def edits(before: Path, after: Path, name: str) -> list[range]:
    """Return the lines of a file that our hooks changed, with the three on either side."""
    done = subprocess.run(["diff", "-U3", str(before / name), str(after / name)], text=True, check=False,
                          stdout=subprocess.PIPE, errors="replace")
    hunks = (HUNK.match(line) for line in done.stdout.splitlines())
    return [range(int(match[1]), int(match[1]) + int(match[2] or 1)) for match in hunks if match]


class Ours:
    """Says whether a place is in our code: in a file of the overlay, or, unless only `files` count, at an edit."""

    def __init__(self, base: Path, tree: Path, overlay: Path, files: bool = False) -> None:
        self.base, self.tree, self.overlay, self.files = base, tree, overlay, files
        self.edits: dict[str, list[range]] = {}

    def __call__(self, place: Place) -> bool:
        if (self.overlay / place.file).is_file():
            return True
        if self.files or not (self.base / place.file).is_file():
            return False
        if place.file not in self.edits:
            self.edits[place.file] = edits(self.base, self.tree, place.file)
        return any(place.line in lines for lines in self.edits[place.file])


def _print(*command: str) -> str:
    return subprocess.run(command, text=True, check=True, stdout=subprocess.PIPE, errors="replace").stdout


def locate(frames: Iterable[str], vmlinux: Path) -> Places:
    """Return the places of each frame of a kernel with debugging information."""
    known = symbols(_print("nm", str(vmlinux)))
    wanted = {frame: calls(frame, known) for frame in set(frames)}
    addresses = sorted({address for those in wanted.values() for address in those})
    if not addresses:
        return {}
    found = places(_print("addr2line", "-afi", "-e", str(vmlinux), *map(hex, addresses)))
    return {frame: [place for address in those for place in found.get(address, [])] for frame, those in wanted.items()}


def owned(report: str, known: Places, ours: Callable[[Place], bool]) -> list[Place] | None:
    """Return the places of a report that are in our code, none for a race of Linux's own or one of KNOWN.

    None means that nobody can say: a report without a stack, or a frame that is nowhere in the kernel.
    """
    found = stacks(report)
    frames = [frame for stack in found for frame in stack]
    if not found or not all(found) or not all(known.get(frame) for frame in frames):
        return None
    if frozenset(stack[0].partition("+")[0] for stack in found) in KNOWN:
        return []
    return [place for frame in frames for place in known[frame] if ours(place)]


def split(found: list[splat.Splat], vmlinux: Path) -> tuple[list[splat.Splat], list[splat.Splat]]:
    """Divide splats in two: all but the races of Linux's own, and these."""
    races = [one for one in found if one.kind == KIND]
    if not races:
        return found, []
    trees = (paths.BASE, paths.TREE, paths.OVERLAY)
    files = os.environ.get("RACES") == "files"
    counts, ours = Ours(*trees, files=files), Ours(*trees)
    try:
        known = locate((frame for one in races for stack in stacks(one.text) for frame in stack), vmlinux)
    except (OSError, subprocess.CalledProcessError):
        return found, []
    foreign = [one for one in races if owned(one.text, known, counts) == []]
    for one in foreign if files else []:
        if beside := owned(one.text, known, ours):
            paths.note("races", places=[str(place) for place in beside], text=one.text)
    return [one for one in found if one not in foreign], foreign
