# SPDX-License-Identifier: GPL-2.0
"""Style and static checks, of the Python code and of our part of the kernel.

The kernel's tools are those of build/tree. The selftests are not checked: checkpatch knows the kernel's C, and takes
what is normal in user space (volatile accesses, strcpy(), the harness's macros) for mistakes.
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

# The types of checkpatch's messages that we ignore, and why.
CHECKPATCH = {
    "COMPLEX_MACRO": "a macro may stand for `static inline`, which cannot be put in parentheses",
    "JIFFIES_COMPARISON": "a comparison that only asks whether jiffies has changed needs no time_after()",
    "LINE_SPACING": "VMA_ITERATOR() and MA_STATE() declare a variable, too",
    "MACRO_ARG_UNUSED": "a macro that stands in for a function whose option is off uses none of its arguments",
    "MSLEEP": "a loop that polls may sleep too long",
    "VSPRINTF_SPECIFIER_PX": "a checker of a debug kernel prints addresses, to look up what it found",
}
# The same for sparse, by the text of its messages.
SPARSE = {
    "context imbalance": "sparse cannot express a lock that is held only if a pointer is returned; lockdep can",
    "division by zero": "in a function inlined with a constant 0, for which it returns before dividing",
}


def needed(name: str, folder: Path | None = None) -> str:
    """Return the path of a tool, in a folder or on the PATH; fail if it is missing."""
    found = shutil.which(name, path=str(folder) if folder else None)
    assert found, f"there is no {name}: make packages"
    return found


def in_tree(name: str) -> str:
    """Return the path of one of the kernel's scripts, which are written in perl."""
    needed("perl")
    script = paths.TREE / "scripts" / name
    assert script.exists(), f"there is no build/tree/scripts/{name}: make lint, or make kernel"
    return str(script)


def told(*command: str | Path, folder: Path = paths.REPO, environment: dict[str, str] | None = None) -> tuple[int, str]:
    """Run a tool; return its status and its output."""
    done = subprocess.run(command, cwd=folder, text=True, errors="replace", check=False, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment)
    return done.returncode, done.stdout.strip()


def nothing(said: str, ended: bool = True) -> None:
    """Fail with a tool's output, or if it failed without any."""
    if said or not ended:
        pytest.fail(said or "it failed, and said nothing", pytrace=False)


def sources() -> list[str]:
    """Return our kernel sources, by their paths from the repository."""
    found = sorted(path for pattern in SOURCES for path in paths.OVERLAY.glob(pattern))
    assert len(found) > 40
    return [path.relative_to(paths.REPO).as_posix() for path in found]


@cache
def texts() -> dict[str, bytes]:
    """Return the content of each file that git tracks or would add."""
    done = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=paths.REPO,
                          text=True, check=True, stdout=subprocess.PIPE)
    files = [name for name in done.stdout.split("\0") if name and (paths.REPO / name).is_file()]
    return {name: (paths.REPO / name).read_bytes() for name in files}


def python() -> list[str]:
    """Return the Python files, including programs."""
    return [name for name, text in texts().items() if name.endswith(".py")
            or (text.startswith(b"#!") and b"python" in text.splitlines()[0])]


def without_module() -> list[str]:
    """Return the Python files that cannot be modules for mypy: programs, and files in folders like a-b."""
    return [name for name in python() if not name.endswith(".py") or "-" in name]


def findings(output: str) -> list[str]:
    """Return the lines in which sparse reports an error or a warning in our files, except the accepted ones."""
    ours = re.compile(r"(?:mm/quire/|linux/quire/|trace/events/quire_)[^:]*:\d+:\d+: (?:error|warning): ")
    return [line for line in output.splitlines() if ours.search(line) and not any(one in line for one in SPARSE)]


def test_ruff() -> None:
    """ruff finds nothing, and its settings list each program whose name does not say that it is Python."""
    tool = needed("ruff", Path(sys.executable).parent)
    status, said = told(tool, "check", "--quiet", "--output-format", "concise")
    nothing(said, not status)
    settings = tomllib.loads(texts()["pyproject.toml"].decode())["tool"]["ruff"]
    assert sorted(settings["extend-include"]) == sorted(name for name in python() if not name.endswith(".py"))


def test_mypy(tmp_path: Path) -> None:
    """mypy finds nothing. Files that cannot be modules under their own names are checked under other names."""
    copies = {name: tmp_path / f"{re.sub(r'[/-]', '_', name.removesuffix('.py'))}.py" for name in without_module()}
    assert len(copies) > 5
    for name, copy in copies.items():
        shutil.copyfile(paths.REPO / name, copy)
    tool = needed("mypy", Path(sys.executable).parent)
    status, said = told(tool, "--no-error-summary", "--no-pretty", "bench", "guest", "suites", "tests", "tool",
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
    """Pointers and integers have the kinds that they are declared with; up-to-date objects are not recompiled."""
    needed("sparse")
    assert (build.objects_of("quire") / ".config").exists(), "quire is not configured: make lint"
    command = build.make_command("quire", f"-kj{os.cpu_count() or 1}", "C=2", "CHECK=sparse", "mm/quire/")
    with paths.build_lock():
        status, said = told(*command, folder=build.source_of("quire"), environment=build.environment())
    nothing("\n".join(findings(said)))
    assert not status and "  CHECK   " in said, "\n".join(said.splitlines()[-40:])


def test_limits() -> None:
    """Source files and lines are not too long, and the last line ends with a newline like the others."""
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
    """Messages about Linux's own files do not count, nor do the accepted ones."""
    assert findings(f"  CHECK   ../mm/quire/pt/pt.c\n{line}\n") == ([line] if counts else [])
