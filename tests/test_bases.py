# SPDX-License-Identifier: GPL-2.0
"""suites/matrix: what it says of a version of the base; with a small base, its own hooks and no package."""

from __future__ import annotations

import contextlib
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from guest import mirrors, paths, tree
from suites import bases, publishing, storage

SOURCE = """\
#include <linux/mm.h>

struct thing {
\tint a;
};

/* first(void) { is no function. */
static int first(int x)
{
\treturn x;
}

int second(struct thing *thing,
\tint y)
{
\tif (y) {
\t\treturn 1;
\t}
\treturn 2;
}

int third(void)
{
\treturn 3;
}
"""
HOOK = """\
--- a/mm/a.c
+++ b/mm/a.c
@@ -15,6 +15,6 @@
 {
 \tif (y) {
-\t\treturn 1;
+\t\treturn 9;
 \t}
 \treturn 2;
 }
"""
VERSIONS = {"6.12.9": "6.12.9-1~deb12u1", "6.12.8": "6.12.8-1"}


@pytest.fixture(name="base")
def fixture_base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """build/base, with a hook that edits second() and a copy of third(); apt offers two versions of it."""
    base, hooks = tmp_path / "base", tmp_path / "hooks"
    (base / "mm").mkdir(parents=True)
    hooks.mkdir()
    (base / "mm/a.c").write_text(SOURCE, encoding="utf-8")
    (base / "Makefile").write_text("VERSION = 6\nPATCHLEVEL = 12\nSUBLEVEL = 9\n", encoding="utf-8")
    (hooks / "series").write_text("one.patch\n", encoding="utf-8")
    (hooks / "one.patch").write_text(HOOK, encoding="utf-8")
    (tmp_path / "mirrors").write_text(f"mm/a.c third mm/quire/x.c {bases.digests(SOURCE)['third']}\n", encoding="utf-8")
    monkeypatch.setattr(paths, "BASE", base)
    monkeypatch.setattr(paths, "HOOKS", hooks)
    monkeypatch.setattr(mirrors, "MIRRORS", tmp_path / "mirrors")
    monkeypatch.setattr(mirrors.check, "__defaults__", (tmp_path / "mirrors",))
    monkeypatch.setattr(paths, "build_lock", contextlib.nullcontext)
    monkeypatch.setattr(tree, "make_base", lambda: "6.12.9")
    monkeypatch.setattr(storage, "MATRIX", tmp_path / "results")
    monkeypatch.setattr(bases, "HOME", tmp_path / "home")
    monkeypatch.setattr(bases, "offered", lambda package: VERSIONS)
    monkeypatch.setattr(bases, "run", lambda command, what, **options: "abc\n" if "log" in command else "")
    monkeypatch.setattr(bases, "tarball", lambda conf, version, packaged: tmp_path / f"{version}.tar")
    return base


def packed(base: Path, version: str, source: str) -> None:
    """Make the tarball of a version from the base, with another mm/a.c."""
    folder = base.parent / f"linux-source-{version}"
    (folder / "mm").mkdir(parents=True)
    (folder / "mm/a.c").write_text(source, encoding="utf-8")
    (folder / "Makefile").write_bytes((base / "Makefile").read_bytes())
    subprocess.run(["tar", "-cf", str(base.parent / f"{version}.tar"), "-C", str(base.parent), folder.name], check=True)


def result_of(version: str) -> dict[str, Any]:
    """Return what was kept of a version."""
    result: dict[str, Any] = json.loads((storage.MATRIX / f"{version}.json").read_text(encoding="utf-8"))
    return result


def test_digests() -> None:
    """Each function and structure has a digest, which comments and white space do not change."""
    found = bases.digests(SOURCE)
    assert sorted(found) == ["first", "second", "struct_thing", "third"]
    assert bases.digests(SOURCE.replace("\treturn 3;", "\n  return 3; /* three */")) == found
    assert bases.digests(SOURCE.replace("return 3", "return 4"))["third"] != found["third"]


def test_what_hooks_edit(base: Path) -> None:
    """Only the function that a hook edits is looked at."""
    assert list(bases.edited(base)["mm/a.c"]) == ["second"]


@pytest.mark.parametrize("before, after, hooks, mirrored, differs", [
    ("", "", "", "", []),
    ("return x;", "return x + 1;", "", "", []),
    ("return 2;", "return 4;", "one.patch does not apply", "", ["mm/a.c: second"]),
    ("int second(struct thing *thing,", "long second(struct thing *thing,", "", "", ["mm/a.c: second"]),
    ("return 3;", "return 4;", "", "mm/a.c: third, repeated by kernel/overlay/mm/quire/x.c", []),
])
def test_versions(base: Path, before: str, after: str, hooks: str, mirrored: str, differs: list[str]) -> None:
    """A hook that does not apply, a copied function that changed, and an edited one that differs are told."""
    packed(base, "6.12.8", SOURCE.replace(before, after) if before else SOURCE)
    assert bases.main(["6.12.8"]) == int(bool(hooks or mirrored))
    result = result_of("6.12.8")
    assert hooks in result["hooks"] and mirrored in result["mirrors"] and result["differs"] == differs
    assert bool(result["hooks"]) == bool(hooks) and bool(result["mirrors"]) == bool(mirrored)
    assert (result["base"], result["commit"], result["package"]) == ("6.12.9", "abc", "6.12.8-1")
    paper = publishing.versions([result])
    assert f"\n| 6.12.8 | {'do not apply' if hooks else 'apply'} | {'differ' if mirrored else 'fit'} |" in paper
    assert ("\n* 6.12.8, of 6.12.9's: `mm/a.c: second`" in f"\n{paper}") == bool(differs)


def test_all_versions(base: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a name all versions are tried, and one of which something is wrong does not hide the others."""
    packed(base, "6.12.9", SOURCE)
    packed(base, "6.12.8", SOURCE.replace("return 2;", "return 4;"))
    assert bases.main([]) == 1
    assert "6.12.9: hooks apply; mirrors fit; 0 functions" in capsys.readouterr().out
    assert {path.stem for path in storage.MATRIX.iterdir()} == set(VERSIONS)


@pytest.mark.parametrize("closing, status", [("3 passed, 0 failed, 1 skipped", 0), ("2 passed, 1 failed, 0 skipped", 1),
                                             ("ended with 2 before its tests", 1)])
def test_goals(base: Path, monkeypatch: pytest.MonkeyPatch, closing: str, status: int) -> None:
    """A goal is made where the hooks apply, and its closing line decides."""
    packed(base, "6.12.9", SOURCE)
    packed(base, "6.12.8", SOURCE.replace("return 2;", "return 4;"))
    asked: list[tuple[str, str]] = []

    def check(version: str, source: Path, goal: str) -> str:
        asked.append((version, goal))
        return closing
    monkeypatch.setattr(bases, "check", check)
    assert bases.main(["6.12.9", "--check", "check"]) == status and result_of("6.12.9")["checks"] == {"check": closing}
    assert bases.main(["6.12.8", "--check", "check"]) == 1 and asked == [("6.12.9", "check")]


@pytest.mark.usefixtures("base")
@pytest.mark.parametrize("arguments, says", [
    (["6.12.7"], "apt offers no linux-source-6.12 6.12.7; it offers 6.12.9, 6.12.8"),
    (["--check", "all"], "invalid choice: 'all'"),
])
def test_wrong_arguments(capsys: pytest.CaptureFixture[str], arguments: list[str], says: str) -> None:
    """One line says what is wrong."""
    try:
        status = bases.main(arguments)
    except SystemExit as end:
        status = int(str(end.code))
    said = capsys.readouterr().err
    assert status in (1, 2) and said.startswith("error: ") and says in said and said.count("\n") == 1


def test_results_that_are_kept() -> None:
    """Each result that is kept has the name of its file, and base.conf lists no version of which something is wrong."""
    verified = tree.read_base_conf()["verified"].split()
    for path in storage.MATRIX.glob("*.json"):
        result = json.loads(path.read_text(encoding="utf-8"))
        assert result["version"] == path.stem and (bases.good(result) or path.stem not in verified)
