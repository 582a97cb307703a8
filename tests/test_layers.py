# SPDX-License-Identifier: GPL-2.0
"""The folders of mm/quire are layers: their includes and calls of each other have no cycle.

A folder includes another by its private headers, by those of linux/quire and by its tracepoints; it calls another if
its objects need a symbol of the other's. What Linux's own headers and functions include or call is ignored.
"""

from __future__ import annotations

import graphlib
import itertools
import re
import subprocess
from pathlib import Path

import pytest

from guest import build, paths

SOURCES = "mm/quire"
HEADERS = "include/linux/quire"


def folders(overlay: Path) -> set[str]:
    """Return the names of the folders."""
    return {path.name for path in (overlay / SOURCES).iterdir() if path.is_dir()}


def owner(included: str, known: set[str]) -> str:
    """Return the folder of an included file; "" if the file is Linux's, or in the folder of the including file."""
    public = re.fullmatch(r"(?:linux/quire/|trace/events/quire_)([a-z]+)(?:_\w+)?\.h", included)
    if public:
        return public.group(1)
    private = re.fullmatch(r"\.\./([a-z]+)/[\w.]+", included)
    return private.group(1) if private and private.group(1) in known else ""


def includes(overlay: Path) -> dict[tuple[str, str], tuple[str, str]]:
    """Return the includes between folders: (file, included file) -> (its folder, the other's folder).

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


def calls(objects: Path) -> dict[tuple[str, str], set[str]]:
    """Return the symbols that folders need from each other: (folder, other folder) -> symbols."""
    needs: dict[str, set[str]] = {}
    has: dict[str, set[str]] = {}
    for folder in (path for path in objects.iterdir() if path.is_dir()):
        listed = subprocess.run(["nm", folder / "built-in.a"], capture_output=True, text=True, check=True).stdout
        symbols = [line.split()[-2:] for line in listed.splitlines() if len(line.split()) > 1]
        needs[folder.name] = {name for kind, name in symbols if kind == "U"}
        has[folder.name] = {name for kind, name in symbols if kind in "BDRTVW"}
    return {(user, used): both for user in needs for used in has if user != used and (both := needs[user] & has[used])}


def circle(edges: set[tuple[str, str]]) -> list[str]:
    """Return a cycle, as its folders in order; nothing if there is none."""
    order: graphlib.TopologicalSorter[str] = graphlib.TopologicalSorter()
    for user, used in edges:
        order.add(user, used)
    try:
        order.prepare()
    except graphlib.CycleError as error:
        return list(reversed(error.args[1]))
    return []


def test_folders_are_layers() -> None:
    """The includes have no cycle."""
    found = includes(paths.OVERLAY)
    assert len(set(found.values())) > 10
    assert {used for _, used in found.values()} <= folders(paths.OVERLAY)
    around = circle(set(found.values()))
    steps = set(itertools.pairwise(around))
    assert not around, f"{' -> '.join(around)}: {sorted(what for what, edge in found.items() if edge in steps)}"


def test_calls_go_down() -> None:
    """No folder needs a symbol of a folder above it; includes and calls together have no cycle, either."""
    found = calls(build.objects_of("quire") / SOURCES)
    assert len(found) > 10 and {used for user, used in found if user == "pt"} == {"core"}
    around = circle(set(found) | set(includes(paths.OVERLAY).values()))
    steps = set(itertools.pairwise(around))
    assert not around, f"{' -> '.join(around)}: { {edge: found[edge] for edge in found if edge in steps} }"


def test_the_page_table_layer_is_below_the_features() -> None:
    """pt includes nothing of the features that share tables, and core nothing of any other folder."""
    found = includes(paths.OVERLAY)
    assert {used for user, used in found.values() if user == "pt"} == {"core"}
    assert not {what for what, (user, _) in found.items() if user == "core"}


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
    """Private headers, public ones and tracepoints count, also across several folders; Linux's own do not."""
    files = {"mm/quire/core/core.c": "", "mm/quire/core/quire.h": "", "mm/quire/rmap/rmap.c": "",
             "mm/quire/fork/fork.h": '#include "../core/quire.h"\n'}
    for name, text in (files | added).items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    found = circle(set(includes(tmp_path).values()))
    assert len(found) == len(says) and set(found) == set(says)
    assert not found or set(itertools.pairwise(found)) == set(itertools.pairwise(says))
