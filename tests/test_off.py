# SPDX-License-Identifier: GPL-2.0
"""Compiled out, the hooks leave nothing behind: every object of the off kernel equals vanilla's.

Each check compares the folders that hooks reach most directly, for which no kernel is linked; the soak compares all.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import elf
from guest import build, paths, tree

# Holds the configuration as text, in which our symbols are named as not set.
CONFIGURED = {"kernel/configs.o"}
# Made from the linked image.
LINKED = ("arch/x86/boot/", ".tmp_", "vmlinux")


def objects(variant: str) -> dict[str, Path]:
    """Return the compiled objects of a variant, by path."""
    folder = build.objects_of(variant)
    found = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*.o")}
    return {name: path for name, path in found.items()
            if not name.startswith((*LINKED, "scripts/", "tools/")) and name not in CONFIGURED}


def compare(folders: tuple[str, ...], least: int) -> None:
    """Assert that code, data, relocations and section sizes of all objects below these folders are the same."""
    vanilla, off = ({name: path for name, path in objects(variant).items() if name.startswith(folders)}
                    for variant in ("vanilla", "off"))
    assert len(vanilla) > least
    assert sorted(vanilla) == sorted(off)
    differing = {name: elf.differences(vanilla[name], off[name]) for name in vanilla
                 if vanilla[name].read_bytes() != off[name].read_bytes()}
    told = [f"{name}: {', '.join(parts)}" for name, parts in differing.items() if parts]
    assert not told, "\n".join(told)


@pytest.mark.vanilla
def test_off_equals_vanilla() -> None:
    """Where the hooks are, and what includes the headers that they touch most."""
    compare(build.DIRECTORIES, 400)


@pytest.mark.soak
def test_all_of_off_equals_vanilla() -> None:
    """Everywhere, where both kernels were built whole."""
    for variant in ("vanilla", "off"):
        if not (build.objects_of(variant) / "vmlinux").exists():
            pytest.skip(f"{variant} was not built whole: make kernel VARIANT={variant}")
    compare(("",), 1000)


def test_hooks_edit_no_source_elsewhere() -> None:
    """Each source that a hook edits is in a folder that each check compares."""
    edited = {name for patch in tree.series(paths.HOOKS) for name in tree.touched_by(patch)}
    sources = {name for name in edited if name.endswith((".c", ".S"))}
    assert len(sources) > 30
    assert not [name for name in sources if not name.startswith(build.DIRECTORIES)]


@pytest.mark.parametrize("change, same", [
    ("int f(int a) { return a + 2; }", False),
    ("int f(int a) { return a + 1; } static int g __attribute__((used)) = 3;", False),
    ("\n\n\nint f(int a) { return a + 1; }", True),
    ("extern int h(int); int f(int a) { return h(a + 1); }", False),
])
def test_comparison_sees_code_and_data(tmp_path: Path, change: str, same: bool) -> None:
    """A changed constant, a new variable or call is a difference; lines that moved are none."""
    paths = []
    for name, text in (("one", "int f(int a) { return a + 1; }"), ("two", change)):
        source = tmp_path / f"{name}.c"
        source.write_text(text + "\n", encoding="utf-8")
        paths.append(source.with_suffix(".o"))
        subprocess.run(["gcc", "-O2", "-fno-pie", "-fno-asynchronous-unwind-tables", "-c", source, "-o", paths[-1]],
                       check=True)
    assert (not elf.differences(*paths)) is same


@pytest.mark.parametrize("line", [1, 40])
def test_comparison_skips_bug_lines(tmp_path: Path, line: int) -> None:
    """The line number of a WARN is no difference, its flags are."""
    template = ('asm(".pushsection __bug_table,\\"aw\\"\\n.long 4\\n.long 8\\n.word %d\\n.word %d\\n.popsection");\n')
    paths = []
    for name, text in (("one", template % (7, 1)), ("two", template % (line, 1)), ("three", template % (7, 2))):
        source = tmp_path / f"{name}.c"
        source.write_text(text, encoding="utf-8")
        paths.append(source.with_suffix(".o"))
        subprocess.run(["gcc", "-c", source, "-o", paths[-1]], check=True)
    assert not elf.differences(paths[0], paths[1])
    assert elf.differences(paths[0], paths[2])
