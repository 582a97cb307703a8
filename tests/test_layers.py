# SPDX-License-Identifier: GPL-2.0
"""The folders of mm/quire are layers: what one includes of another, that one does not include back, however far round.

A folder includes another by its private headers, by those of linux/quire and by its tracepoints. What Linux's own
headers bring along is not looked at.
"""

from __future__ import annotations

import graphlib
import re
from pathlib import Path

import pytest

from guest import paths

SOURCES = "mm/quire"
HEADERS = "include/linux/quire"
# What makes circles: a file and what it includes. Each is to go; none is to be added.
KNOWN = {
    # What is told of a process's memory is told in one place, and goes round the parts for it.
    ("core/oom.c", "../pt/pt.h"),
    ("core/oom.c", "../shm/shm.h"),
    ("core/proc.c", "linux/quire/fork.h"),
    ("core/proc.c", "linux/quire/rmap.h"),
    # The walk that proves shared tables proves those of shm along with those of fork.
    ("fork/check.c", "../shm/shm.h"),
    # The inlines for shared tables are among those for fork, which have what hooks use of both.
    ("pt/pt.h", "linux/quire/fork.h"),
    # A shared table counts, warns and traces as fork's, and is left as shm's if it is one.
    ("pt/pins.c", "../fork/fork.h"),
    ("pt/pt.c", "../fork/fork.h"),
    ("pt/pt.c", "../shm/shm.h"),
    ("pt/pt.c", "trace/events/quire_fork.h"),
    ("pt/range.c", "../fork/fork.h"),
    ("pt/range.c", "../shm/shm.h"),
}


def folders(overlay: Path) -> set[str]:
    """Return the names of the folders."""
    return {path.name for path in (overlay / SOURCES).iterdir() if path.is_dir()}


def owner(included: str, known: set[str]) -> str:
    """Return the folder that what is included belongs to; nothing if it is Linux's, or the file's own folder's."""
    public = re.fullmatch(r"(?:linux/quire/|trace/events/quire_)([a-z]+)(?:_\w+)?\.h", included)
    if public:
        return public.group(1)
    private = re.fullmatch(r"\.\./([a-z]+)/[\w.]+", included)
    return private.group(1) if private and private.group(1) in known else ""


def includes(overlay: Path) -> dict[tuple[str, str], tuple[str, str]]:
    """Return what goes from one folder to another: file and what it includes -> the two folders.

    A header of linux/quire counts for the folder whose name it has.
    """
    found: dict[tuple[str, str], tuple[str, str]] = {}
    known = folders(overlay)
    files = {path.relative_to(overlay / SOURCES).as_posix(): path for path in (overlay / SOURCES).glob("*/*.[ch]")}
    headers = {f"linux/quire/{path.name}": path for path in (overlay / HEADERS).glob("*.h")}
    for name, path in (files | headers).items():
        user = owner(name, known) or name.split("/", maxsplit=1)[0]
        for included in re.findall(r'^#\s*include\s+[<"]([^>"]+)[>"]', path.read_text(encoding="utf-8"), re.M):
            used = owner(included, known)
            if used and used != user:
                found[name, included] = user, used
    return found


def circle(edges: set[tuple[str, str]]) -> list[str]:
    """Return a circle, as the folders on it in order; nothing if there is none."""
    order: graphlib.TopologicalSorter[str] = graphlib.TopologicalSorter()
    for user, used in edges:
        order.add(user, used)
    try:
        order.prepare()
    except graphlib.CycleError as error:
        return list(reversed(error.args[1]))
    return []


def test_folders_are_layers() -> None:
    """Without what is known, nothing goes round; and each that is known is there and goes round."""
    found = includes(paths.OVERLAY)
    assert len(set(found.values())) > 10
    assert {used for _, used in found.values()} <= folders(paths.OVERLAY)
    gone = sorted(KNOWN - found.keys())
    assert not gone, f"no longer included, take them out of KNOWN: {gone}"
    good = {edge for what, edge in found.items() if what not in KNOWN}
    around = circle(good)
    steps = set(zip(around, around[1:]))
    assert not around, f"{' -> '.join(around)}: {sorted(what for what, edge in found.items() if edge in steps)}"
    harmless = sorted(what for what in KNOWN if not circle(good | {found[what]}))
    assert not harmless, f"makes no circle, take it out of KNOWN: {harmless}"


@pytest.mark.parametrize("added, says", [
    ({}, []),
    ({"mm/quire/fork/fork.c": '#include "../core/quire.h"\n'}, []),
    ({"mm/quire/core/core.c": '#include "../fork/fork.h"\n'}, ["core", "fork", "core"]),
    ({"mm/quire/core/core.c": "#  include <linux/quire/rmap_bulk.h>\n",
      "include/linux/quire/rmap.h": "#include <linux/quire/fork.h>\n"}, ["core", "rmap", "fork", "core"]),
    ({"mm/quire/core/core.c": "#include <trace/events/quire_fork.h>\n"}, ["core", "fork", "core"]),
    ({"mm/quire/core/core.c": '#include "../../internal.h"\n#include <linux/rmap.h>\n#include "quire.h"\n'}, []),
])
def test_circles_are_seen(tmp_path: Path, added: dict[str, str], says: list[str]) -> None:
    """Private headers, public ones and tracepoints count, over several folders too; Linux's own do not."""
    files = {"mm/quire/core/core.c": "", "mm/quire/core/quire.h": "", "mm/quire/rmap/rmap.c": "",
             "mm/quire/fork/fork.h": '#include "../core/quire.h"\n'}
    for name, text in (files | added).items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    found = circle(set(includes(tmp_path).values()))
    assert len(found) == len(says) and set(found) == set(says)
    assert not found or set(zip(found, found[1:])) == set(zip(says, says[1:]))
