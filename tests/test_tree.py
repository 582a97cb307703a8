# SPDX-License-Identifier: GPL-2.0
"""Making the kernel tree on a miniature base: hooks without fuzz, overlay without collisions, incremental updates."""

from __future__ import annotations

import difflib
import errno
import os
from pathlib import Path

import pytest

from guest import paths, tree

LINES = [f"line {number}\n" for number in range(1, 41)]


class Sandbox:
    """A base with a few files, and folders for hooks, overlay and tree."""

    def __init__(self, folder: Path) -> None:
        self.base, self.tree = folder / "base", folder / "tree"
        self.hooks, self.overlay = folder / "hooks", folder / "overlay"
        for path in (self.base / "mm", self.base / "drivers", self.hooks, self.overlay):
            path.mkdir(parents=True)
        self.write(self.base, "mm/memory.c", LINES)
        self.write(self.base, "mm/rmap.c", LINES)
        self.write(self.base, "drivers/driver.c", LINES)

    def write(self, folder: Path, name: str, lines: list[str]) -> None:
        """Write a file."""
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(lines), encoding="utf-8")

    def hook(self, patch: str, name: str, before: list[str], after: list[str]) -> None:
        """Write a patch and append it to the series."""
        text = "".join(difflib.unified_diff(before, after, f"a/{name}", f"b/{name}"))
        (self.hooks / patch).write_text(f"What it does.\n\n{text}", encoding="utf-8")
        with open(self.hooks / "series", "a", encoding="utf-8") as series:
            series.write(patch + "\n")

    def make(self, force: bool = False) -> list[str]:
        """Make the tree."""
        return tree.make_tree(self.base, self.tree, self.hooks, self.overlay, force)

    def read(self, name: str) -> str:
        """Return a file of the tree."""
        return (self.tree / name).read_text(encoding="utf-8")


@pytest.fixture(name="sandbox")
def fixture_sandbox(tmp_path: Path) -> Sandbox:
    """A sandbox."""
    return Sandbox(tmp_path)


def changed(at: int, text: str) -> list[str]:
    """LINES with one line replaced."""
    return [*LINES[:at], text + "\n", *LINES[at + 1:]]


def test_hooks_and_overlay_are_laid_over_the_base(sandbox: Sandbox) -> None:
    """Patches apply in order, overlay files are copied, and the base stays as it is."""
    sandbox.hook("0001-a.patch", "mm/memory.c", LINES, changed(20, "first"))
    sandbox.hook("0002-b.patch", "mm/memory.c", changed(20, "first"), changed(20, "second"))
    sandbox.write(sandbox.overlay, "mm/quire/core/core.c", ["ours\n"])
    assert sandbox.make() == ["mm/memory.c", "mm/quire/core/core.c"]
    assert sandbox.read("mm/memory.c") == "".join(changed(20, "second"))
    assert sandbox.read("mm/quire/core/core.c") == "ours\n"
    assert (sandbox.base / "mm/memory.c").read_text(encoding="utf-8") == "".join(LINES)


def test_offset_is_allowed(sandbox: Sandbox) -> None:
    """A hunk whose context moved applies."""
    moved = ["new 1\n", "new 2\n", *LINES]
    sandbox.hook("0001-a.patch", "mm/memory.c", LINES, changed(20, "ours"))
    sandbox.write(sandbox.base, "mm/memory.c", moved)
    sandbox.make()
    assert "ours" in sandbox.read("mm/memory.c")


def test_fuzz_is_refused_and_named(sandbox: Sandbox) -> None:
    """A hunk whose outer context differs needs fuzz: patch, file and hunk are named, and the tree stays as it is."""
    both = changed(5, "fine")
    both[20] = "ours\n"
    sandbox.hook("0001-a.patch", "mm/memory.c", LINES, both)
    sandbox.make()
    before = sandbox.read("mm/memory.c")
    sandbox.write(sandbox.base, "mm/memory.c", changed(17, "differs"))
    with pytest.raises(tree.TreeError) as error:
        sandbox.make()
    assert "0001-a.patch" in str(error.value)
    assert "mm/memory.c: hunk #2 @@ -18,7 +18,7 @@" in str(error.value)
    assert "hunk #1" not in str(error.value)
    assert sandbox.read("mm/memory.c") == before


def test_patch_that_is_applied_already_is_refused(sandbox: Sandbox) -> None:
    """A base that holds the change is not patched in reverse."""
    sandbox.hook("0001-a.patch", "mm/memory.c", LINES, changed(20, "ours"))
    sandbox.write(sandbox.base, "mm/memory.c", changed(20, "ours"))
    with pytest.raises(tree.TreeError, match=r"0001-a\.patch"):
        sandbox.make()


def test_overlay_collision_is_refused(sandbox: Sandbox) -> None:
    """A file of ours may not replace one of Linux's."""
    sandbox.write(sandbox.overlay, "mm/rmap.c", ["ours\n"])
    with pytest.raises(tree.TreeError, match=r"mm/rmap\.c exists in the base"):
        sandbox.make()


def test_hook_may_not_add_a_file(sandbox: Sandbox) -> None:
    """Files of our own belong in the overlay."""
    (sandbox.hooks / "0001-a.patch").write_text("Why.\n\n--- /dev/null\n+++ b/mm/new.c\n@@ -0,0 +1 @@\n+x\n",
                                                encoding="utf-8")
    (sandbox.hooks / "series").write_text("0001-a.patch\n", encoding="utf-8")
    with pytest.raises(tree.TreeError, match=r"0001-a\.patch adds or deletes a file"):
        sandbox.make()


@pytest.mark.parametrize("series, message", [("", "does not name these patches: 0001-a.patch"),
                                             ("0001-a.patch\n0002-b.patch\n", "do not exist: 0002-b.patch")])
def test_series_and_patches_agree(sandbox: Sandbox, series: str, message: str) -> None:
    """A patch that series does not name, or a name without a patch, stops the build."""
    sandbox.hook("0001-a.patch", "mm/memory.c", LINES, changed(20, "ours"))
    (sandbox.hooks / "series").write_text(series, encoding="utf-8")
    with pytest.raises(tree.TreeError, match=message):
        sandbox.make()


def test_second_run_changes_nothing(sandbox: Sandbox) -> None:
    """If the input is unchanged, every file keeps its timestamp, so that make rebuilds nothing."""
    sandbox.hook("0001-a.patch", "mm/memory.c", LINES, changed(20, "ours"))
    sandbox.write(sandbox.overlay, "mm/quire/core/core.c", ["ours\n"])
    sandbox.make()
    os.utime(sandbox.tree / "mm/memory.c", (1000, 1000))
    assert not sandbox.make()
    assert (sandbox.tree / "mm/memory.c").stat().st_mtime == 1000


def test_only_what_changed_is_rewritten(sandbox: Sandbox) -> None:
    """A change to one patch rewrites the files it edits, no others."""
    sandbox.hook("0001-a.patch", "mm/memory.c", LINES, changed(20, "ours"))
    sandbox.hook("0002-b.patch", "mm/rmap.c", LINES, changed(20, "ours"))
    sandbox.make()
    (sandbox.hooks / "series").write_text("0002-b.patch\n", encoding="utf-8")
    sandbox.hook("0001-a.patch", "mm/memory.c", LINES, changed(20, "other"))
    assert sandbox.make() == ["mm/memory.c"]
    assert "other" in sandbox.read("mm/memory.c")


def test_withdrawn_files_are_restored_with_a_new_time(sandbox: Sandbox) -> None:
    """A file that no hook edits any more is the base's again, newer than the objects; an overlay file is removed."""
    sandbox.hook("0001-a.patch", "mm/memory.c", LINES, changed(20, "ours"))
    sandbox.write(sandbox.overlay, "mm/quire/core/core.c", ["ours\n"])
    os.utime(sandbox.base / "mm/memory.c", (1000, 1000))
    sandbox.make()
    (sandbox.hooks / "0001-a.patch").unlink()
    (sandbox.hooks / "series").write_text("", encoding="utf-8")
    (sandbox.overlay / "mm/quire/core/core.c").unlink()
    assert sandbox.make() == ["mm/memory.c", "mm/quire/core/core.c"]
    assert sandbox.read("mm/memory.c") == "".join(LINES)
    assert (sandbox.tree / "mm/memory.c").stat().st_mtime > 1000
    assert not (sandbox.tree / "mm/quire").exists()


def test_linked_files_never_change_the_base(sandbox: Sandbox) -> None:
    """A hook on a file that is a hard link to the base replaces it."""
    sandbox.make()
    assert (sandbox.tree / "drivers/driver.c").samefile(sandbox.base / "drivers/driver.c")
    sandbox.hook("0001-a.patch", "drivers/driver.c", LINES, changed(20, "ours"))
    sandbox.make()
    assert "ours" in sandbox.read("drivers/driver.c")
    assert (sandbox.base / "drivers/driver.c").read_text(encoding="utf-8") == "".join(LINES)


@pytest.mark.parametrize("left", ["", '["mm/memory.c", "mm/qui'])
@pytest.mark.parametrize("name", ["tree.json", "tree.base"])
def test_tree_of_unknown_content_is_made_from_nothing(sandbox: Sandbox, name: str, left: str) -> None:
    """If a full disk cut off the list of our files, or the note about the base, no file of ours is left behind."""
    sandbox.write(sandbox.overlay, "mm/quire/core/core.c", ["ours\n"])
    sandbox.make()
    (sandbox.overlay / "mm/quire/core/core.c").unlink()
    stamp = sandbox.tree.with_name(name)
    stamp.write_text(left, encoding="utf-8")
    (sandbox.tree / "o-quire").mkdir()
    assert not sandbox.make()
    assert not (sandbox.tree / "mm/quire").exists() and not (sandbox.tree / "o-quire").exists()
    assert stamp.read_text(encoding="utf-8") in ("[]", str(sandbox.base))


@pytest.mark.parametrize("left", ["", '{"source": "/usr'])
def test_base_of_unknown_origin_is_unpacked_again(tmp_path: Path, left: str) -> None:
    """If a full disk cut off the note about the base's origin, it is unpacked again; with the note, it is not."""
    source, base = tmp_path / "linux", tmp_path / "base"
    source.mkdir()
    (source / "Makefile").write_text("VERSION = 6\nPATCHLEVEL = 12\nSUBLEVEL = 1\n", encoding="utf-8")
    for stamp, kept in ((None, True), (left, False)):
        tree.unpack_base(source, base, "6.12", ["6.12.1"])
        (base / "mark").touch()
        if stamp is not None:
            (tmp_path / "base.json").write_text(stamp, encoding="utf-8")
        tree.unpack_base(source, base, "6.12", ["6.12.1"])
        assert (base / "mark").exists() is kept


def test_own_tree_that_is_edited(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A folder is copied once; a note says so each time after that, and how to have it copied again."""
    source, base = tmp_path / "linux", tmp_path / "base"
    (source / "mm").mkdir(parents=True)
    (source / "Makefile").write_text("VERSION = 6\nPATCHLEVEL = 12\nSUBLEVEL = 1\n", encoding="utf-8")
    (source / "mm/memory.c").write_text("old\n", encoding="utf-8")
    tree.unpack_base(source, base, "6.12", ["6.12.1"])
    assert "note: " not in capsys.readouterr().err
    (source / "mm/memory.c").write_text("new\n", encoding="utf-8")
    tree.unpack_base(source, base, "6.12", ["6.12.1"])
    assert f"copied from {source} before" in capsys.readouterr().err
    (tmp_path / "base.json").unlink()
    tree.unpack_base(source, base, "6.12", ["6.12.1"])
    assert (base / "mm/memory.c").read_text(encoding="utf-8") == "new\n"


def test_stamp_is_written_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write that fails half-way leaves the stamp that was there, and nothing beside it."""
    stamp = tmp_path / "tree.json"
    paths.write_whole(stamp, "[1]")
    write = Path.write_text

    def half(path: Path, text: str, **options: str) -> int:
        write(path, text[:2], **options)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_text", half)
    with pytest.raises(OSError):
        paths.write_whole(stamp, "[1, 2]")
    assert paths.read_stamp(stamp) == [1] and list(tmp_path.iterdir()) == [stamp]


def test_wrong_series_of_the_base_is_refused(tmp_path: Path) -> None:
    """A kernel of another series than base.conf's is refused, and the error names its version."""
    source = tmp_path / "linux"
    source.mkdir()
    (source / "Makefile").write_text("VERSION = 6\nPATCHLEVEL = 11\nSUBLEVEL = 3\n", encoding="utf-8")
    with pytest.raises(tree.TreeError, match=r"6\.11\.3"):
        tree.unpack_base(source, tmp_path / "base", "6.12", ["6.12.1"])


def test_our_hooks_are_described() -> None:
    """Each of the repository's own hooks edits files of Linux, and begins by saying what it does."""
    for patch in tree.series(paths.HOOKS):
        first = patch.read_text(encoding="utf-8").lstrip().splitlines()[0]
        assert not first.startswith(("---", "diff ")), f"{patch.name} does not say what it does"
        assert tree.touched_by(patch)
