# SPDX-License-Identifier: GPL-2.0
"""Compiled out, the hooks leave nothing behind: every object of the off kernel equals vanilla's.

Each check compares the folders that hooks affect most directly, without linking a kernel. It uses the digests in the
record of vanilla's objects, or vanilla's own objects if the record is not valid. The soak compares all objects.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import elf
import objects
from guest import build, paths, tree

HOW_TO_SEE = "python3 -m guest.build --objects vanilla, then this test says what differs"


def differing(vanilla: dict[str, Path], off: dict[str, Path]) -> dict[str, list[str]]:
    """Return the differences in code, data, relocations and section sizes, by the object's path."""
    found = {name: elf.differences(vanilla[name], off[name]) for name in vanilla
             if vanilla[name].read_bytes() != off[name].read_bytes()}
    return {name: parts for name, parts in found.items() if parts}


def compare(folders: tuple[str, ...], least: int) -> None:
    """Assert that all objects of vanilla and off below these folders are the same."""
    vanilla, off = objects.of("vanilla", folders), objects.of("off", folders)
    assert len(vanilla) > least
    assert sorted(vanilla) == sorted(off)
    assert not differing(vanilla, off)


def compare_with_record(off: dict[str, Path], known: dict[str, str]) -> None:
    """Assert that off's objects have the recorded digests of vanilla's."""
    assert sorted(known) == sorted(off)
    told = [name for name, path in off.items() if objects.digest(path) != known[name]]
    vanilla = {name: build.objects_of("vanilla") / name for name in told}
    if told and all(path.exists() for path in vanilla.values()):
        assert not differing(vanilla, off)
    assert not told, f"{', '.join(told)} differ from vanilla's; {HOW_TO_SEE}"


@pytest.mark.vanilla
def test_off_equals_vanilla() -> None:
    """The objects are equal in the folders that the hooks and the headers they edit affect most."""
    if objects.misfit():
        compare(build.DIRECTORIES, 400)
    else:
        compare_with_record(objects.of("off", build.DIRECTORIES), objects.recorded())


def test_record_of_objects(tmp_path: Path) -> None:
    """The record is large enough; a changed object is named, and a missing one fails the comparison."""
    assert len(objects.recorded()) > 400
    source = tmp_path / "one.c"
    source.write_text("int f(int a) { return a + 1; }\n", encoding="utf-8")
    one = source.with_suffix(".o")
    subprocess.run(["gcc", "-O2", "-c", source, "-o", one], check=True)
    compare_with_record({"mm/one.o": one}, {"mm/one.o": objects.digest(one)})
    with pytest.raises(AssertionError, match=r"mm/one\.o differ"):
        compare_with_record({"mm/one.o": one}, {"mm/one.o": "0"})
    with pytest.raises(AssertionError):
        compare_with_record({}, {"mm/one.o": "0"})


def test_record_that_does_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """The record is not valid with another compiler."""
    monkeypatch.setattr(objects.sets, "version_of", lambda program: "another")
    assert "compiler: another here" in objects.misfit()


@pytest.mark.soak
def test_all_of_off_equals_vanilla() -> None:
    """All objects are equal, if both kernels were built whole."""
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
    """A changed constant, a new variable or call is a difference; moved lines are not."""
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
    """The line number of a WARN is no difference, but its flags are."""
    template = ('asm(".pushsection __bug_table,\\"aw\\"\\n.long 4\\n.long 8\\n.word %d\\n.word %d\\n.popsection");\n')
    paths = []
    for name, text in (("one", template % (7, 1)), ("two", template % (line, 1)), ("three", template % (7, 2))):
        source = tmp_path / f"{name}.c"
        source.write_text(text, encoding="utf-8")
        paths.append(source.with_suffix(".o"))
        subprocess.run(["gcc", "-c", source, "-o", paths[-1]], check=True)
    assert not elf.differences(paths[0], paths[1])
    assert elf.differences(paths[0], paths[2])
