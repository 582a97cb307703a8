# SPDX-License-Identifier: GPL-2.0
"""Style and what tools find without running anything: of the Python code, and of our part of the kernel.

The kernel's tools are those of build/tree. The selftests are no part of this: checkpatch knows the kernel's C, and
takes what programs of user space are made of (volatile accesses, strcpy(), the harness's macros) for mistakes.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

import pytest

from guest import build, paths

SOURCES = ("mm/quire/*/*.[ch]", "include/linux/quire/*.h", "include/trace/events/quire_*.h")
LONGEST_SOURCE = 900
LONGEST_LINE = 120

# Types of checkpatch's messages that are none to us.
CHECKPATCH = {
    "COMPLEX_MACRO": "a macro may stand for `static inline`, which parentheses cannot hold",
    "JIFFIES_COMPARISON": "whether this is another tick than the last time is no question of before and after",
    "LINE_SPACING": "VMA_ITERATOR() and MA_STATE() declare a variable, too",
    "MACRO_ARG_UNUSED": "a macro that stands in for a function whose option is off uses none of its arguments",
    "MSLEEP": "who polls does not mind to be late",
    "VSPRINTF_SPECIFIER_PX": "what a debug kernel's checker found is looked up by its address",
}
# The same of sparse's, by their words.
SPARSE = {
    "context imbalance": "it cannot be told of a lock that is held if a pointer is returned; lockdep sees that",
    "division by zero": "of a function inlined with a constant 0, for which it returns before",
}


def needed(name: str, folder: Path | None = None) -> str:
    """Return the path of a tool, in a folder or on the PATH; there must be one."""
    found = shutil.which(name, path=str(folder) if folder else None)
    assert found, f"there is no {name}: make packages"
    return found


def in_tree(name: str) -> str:
    """Return the path of a script of the kernel's, which is in perl."""
    needed("perl")
    script = paths.TREE / "scripts" / name
    assert script.exists(), f"there is no build/tree/scripts/{name}: make lint, or make kernel"
    return str(script)


def told(*command: str | Path, folder: Path = paths.REPO, environment: dict[str, str] | None = None) -> tuple[int, str]:
    """Run a tool; return its status, and what it said."""
    done = subprocess.run(command, cwd=folder, text=True, errors="replace", check=False, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment)
    return done.returncode, done.stdout.strip()


def nothing(said: str, ended: bool = True) -> None:
    """Fail with what a tool said, or if it said nothing and did not come to its end."""
    if said or not ended:
        pytest.fail(said or "it failed, and said nothing", pytrace=False)


def sources() -> list[str]:
    """Return our kernel sources, by their paths from the repository."""
    found = sorted(path for pattern in SOURCES for path in paths.OVERLAY.glob(pattern))
    assert len(found) > 40
    return [path.relative_to(paths.REPO).as_posix() for path in found]


@cache
def texts() -> dict[str, bytes]:
    """Return what is in each file that git knows, or could be told of."""
    done = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=paths.REPO,
                          text=True, check=True, stdout=subprocess.PIPE)
    files = [name for name in done.stdout.split("\0") if name and (paths.REPO / name).is_file()]
    return {name: (paths.REPO / name).read_bytes() for name in files}


def python() -> list[str]:
    """Return the Python files, programs among them."""
    return [name for name, text in texts().items() if name.endswith(".py")
            or (text.startswith(b"#!") and b"python" in text.splitlines()[0])]


def without_module() -> list[str]:
    """Return the Python files that mypy cannot name a module after: programs, and what is in folders like a-b."""
    return [name for name in python() if not name.endswith(".py") or "-" in name]


def findings(output: str) -> list[str]:
    """Return the lines in which sparse tells of an error or a warning in a file of ours, without what is accepted."""
    ours = re.compile(r"(?:mm/quire/|linux/quire/|trace/events/quire_)[^:]*:\d+:\d+: (?:error|warning): ")
    return [line for line in output.splitlines() if ours.search(line) and not any(one in line for one in SPARSE)]


def test_ruff() -> None:
    """It finds nothing, and is told of each program whose name does not say that it is Python."""
    tool = needed("ruff", Path(sys.executable).parent)
    status, said = told(tool, "check", "--quiet", "--output-format", "concise")
    nothing(said, not status)
    settings = tomllib.loads(texts()["pyproject.toml"].decode())["tool"]["ruff"]
    assert sorted(settings["extend-include"]) == sorted(name for name in python() if not name.endswith(".py"))


def test_mypy(tmp_path: Path) -> None:
    """It finds nothing, neither in what it can name a module after nor in the others, under names that it can."""
    copies = {name: tmp_path / f"{re.sub(r'[/-]', '_', name.removesuffix('.py'))}.py" for name in without_module()}
    assert len(copies) > 5
    for name, copy in copies.items():
        shutil.copyfile(paths.REPO / name, copy)
    tool = needed("mypy", Path(sys.executable).parent)
    status, said = told(tool, "--no-error-summary", "--no-pretty", "bench", "guest", "tests", "tool",
                        *copies.values(), environment={**os.environ, "MYPYPATH": str(tmp_path)})
    for name, copy in copies.items():
        said = said.replace(os.path.relpath(copy, paths.REPO), name).replace(str(copy), name)
    nothing(said, not status)


def test_kernel_doc() -> None:
    """Comments that begin with two stars describe all arguments and the returned value, by the right names."""
    status, said = told(in_tree("kernel-doc"), "-none", "-Wall", *sources())
    nothing(said, not status)


def test_checkpatch() -> None:
    """Our sources are in the kernel's style, with lines of up to 100 columns."""
    status, said = told(in_tree("checkpatch.pl"), "--no-tree", "--terse", "--show-types", "--max-line-length=100",
                        f"--ignore={','.join(CHECKPATCH)}", "-f", *sources())
    nothing("\n".join(line for line in said.splitlines() if not line.startswith("total: ")), not status)


def test_sparse() -> None:
    """Pointers and integers are of the kinds that they are said to be of; nothing up to date is compiled for that."""
    needed("sparse")
    assert (build.objects_of("quire") / ".config").exists(), "quire is not configured: make lint"
    command = build.make_command("quire", f"-kj{os.cpu_count() or 1}", "C=2", "CHECK=sparse", "mm/quire/")
    with paths.build_lock():
        status, said = told(*command, folder=build.source_of("quire"), environment=build.environment())
    nothing("\n".join(findings(said)))
    assert not status and "  CHECK   " in said, "\n".join(said.splitlines()[-40:])


def test_limits() -> None:
    """Files are of a size that can be read, lines of one that can be seen, and the last line ends like the others."""
    long = {name: count for name, text in texts().items() if name.startswith("kernel/overlay/mm/quire/")
            and (count := text.count(b"\n")) > LONGEST_SOURCE}
    assert not long, f"more than {LONGEST_SOURCE} lines: {long}"
    wide = [f"{name}:{number}" for name in python() for number, line in
            enumerate(texts()[name].decode().splitlines(), 1) if len(line) > LONGEST_LINE]
    assert not wide, f"more than {LONGEST_LINE} columns: {' '.join(wide)}"
    cut = [name for name, text in texts().items() if text and b"\0" not in text and not text.endswith(b"\n")]
    assert not cut, f"no newline at the end: {' '.join(cut)}"


@pytest.mark.parametrize("line, counts", [
    ("../include/trace/events/quire_pt.h:20:1: warning: symbol 'x' was not declared. Should it be static?", True),
    ("../mm/quire/rmap/rmap.c:607:25: error: too long token expansion", True),
    ("../include/linux/quire/pt.h:60:5: warning: incorrect type in argument 1 (different address spaces)", True),
    ("../include/linux/swapops.h:574:19: warning: symbol 'x' was not declared. Should it be static?", False),
    ("../mm/quire/prezero/math.h:54:58: warning: division by zero", False),
    ("../mm/quire/pt/check.c: note: in included file (through ../include/linux/mm_inline.h):", False),
])
def test_findings(line: str, counts: bool) -> None:
    """What is in Linux's own files, or accepted, is not ours to mend."""
    assert findings(f"  CHECK   ../mm/quire/pt/pt.c\n{line}\n") == ([line] if counts else [])
