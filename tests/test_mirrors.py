# SPDX-License-Identifier: GPL-2.0
"""The guard of code that repeats Linux's own: it sees a change of the base, names it, and takes it when told to."""

from __future__ import annotations

from pathlib import Path

import pytest

from guest import mirrors, paths

SOURCE = """\
static int other(void)
{
	return copy(1);
}

#ifdef CONFIG_A
/* Comment. */
struct area *copy(int from,
		int to)
{
	if (from) {
		return 0;
	}
	return to;
}
#else
struct area *copy(int from, int to) { return 0;
}
#endif

struct node {
	int slot;
};
"""


@pytest.fixture(name="base")
def fixture_base(tmp_path: Path) -> Path:
    """A base with one file, and beside it the list of what is repeated of it."""
    (tmp_path / "base/mm").mkdir(parents=True)
    (tmp_path / "base/mm/a.c").write_text(SOURCE, encoding="utf-8")
    (tmp_path / "mirrors").write_text("# Note.\nmm/a.c copy mm/quire/x.c -\nmm/a.c struct_node mm/quire/y.c -\n",
                                      encoding="utf-8")
    assert [one.name for one in mirrors.accept(tmp_path / "base", tmp_path / "mirrors")] == ["copy", "struct_node"]
    return tmp_path / "base"


def edit(base: Path, old: str, new: str) -> None:
    """Replace a text in the base's file."""
    text = (base / "mm/a.c").read_text(encoding="utf-8")
    assert old in text
    (base / "mm/a.c").write_text(text.replace(old, new, 1), encoding="utf-8")


@pytest.mark.parametrize("old, new", [
    ("return copy(1)", "return copy(2)"), ("/* Comment. */", ""), ("\treturn to;", "\t/* All. */\n    return to;"),
    ("from,\n\t\tint", "from, int"),
])
def test_what_does_not_matter(base: Path, old: str, new: str) -> None:
    """Other functions, comments and white space may change."""
    edit(base, old, new)
    mirrors.check(base, base.parent / "mirrors")


@pytest.mark.parametrize("old, new, name, ours", [
    ("return to;", "return to + 1;", "copy", "x.c"), ("{ return 0;", "{ return 1;", "copy", "x.c"),
    ("struct area *copy(int from,\n", "struct area *copy(long from,\n", "copy", "x.c"),
    ("int slot", "long slot", "struct_node", "y.c"),
])
def test_changes_are_named(base: Path, old: str, new: str, name: str, ours: str) -> None:
    """A change of any of its definitions stops the build and names function and file, until it is accepted."""
    edit(base, old, new)
    with pytest.raises(mirrors.MirrorError, match=rf"mm/a.c: {name}, repeated by \S+{ours}\n.*--accept"):
        mirrors.check(base, base.parent / "mirrors")
    assert [one.name for one in mirrors.accept(base, base.parent / "mirrors")] == [name]
    mirrors.check(base, base.parent / "mirrors")
    assert (base.parent / "mirrors").read_text(encoding="utf-8").startswith("# Note.\n")


@pytest.mark.parametrize("old, new", [("*copy(", "*copied("), ("struct node {", "struct nodes {")])
def test_what_is_gone_is_named(base: Path, old: str, new: str) -> None:
    """A function that the base no longer defines stops the build, too."""
    edit(base, old, new)
    if "copy" in old:
        edit(base, "*copy(", "*copied(")
    with pytest.raises(mirrors.MirrorError, match="does not define"):
        mirrors.check(base, base.parent / "mirrors")


def test_the_list() -> None:
    """Nothing is listed twice, and each of our files exists."""
    listed = mirrors.read(mirrors.MIRRORS)
    assert len({(one.path, one.name) for one in listed}) == len(listed) > 10
    for one in listed:
        assert (paths.OVERLAY / one.ours).is_file(), one.ours
