# SPDX-License-Identifier: GPL-2.0
"""What `make quick` chooses: every file has tests, the tests exist, and the kernel is built if they need it."""

from __future__ import annotations

import importlib
import inspect
import os
import subprocess
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

import quick
import run
from guest import build, paths, tree

FIXTURES = {"guest", "selftest", "selftests", "selftest_programs", "checks", "kernel"}


def files() -> list[str]:
    """Return the files that git knows, and new ones."""
    done = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=paths.REPO,
                          text=True, check=True, stdout=subprocess.PIPE)
    return [name for name in done.stdout.split("\0") if name and (paths.REPO / name).exists()]


def functions(file: str) -> dict[str, Any]:
    """Return the tests of a file that quick may run, by name: neither soak tests nor tests for other kernels."""
    module = importlib.import_module(f"test_{file}")
    marks = {"soak", "debug_only", "vanilla"}
    return {name: one for name, one in vars(module).items() if name.startswith("test_")
            and not marks & {mark.name for mark in getattr(one, "pytestmark", [])}}


def test_every_file_reaches_a_test() -> None:
    """Whichever file is edited, a test runs for it."""
    assert len(files()) > 200
    assert not [name for name in files() if not quick.tests_of(name)]


def test_every_row_counts() -> None:
    """No row is hidden by an earlier one, or matches only files that are gone."""
    first = {next(patterns for patterns, _ in quick.ROWS if any(fnmatchcase(name, one) for one in patterns.split()))
             for name in files()}
    assert first == {patterns for patterns, _ in quick.ROWS}


def test_every_test_exists() -> None:
    """Each name in a row is a file with tests that quick may run, or one of these tests."""
    for reached in {test for name in files() for test in quick.tests_of(name)}:
        file, *one = reached.split("::")
        assert functions(file) and set(one) <= set(functions(file)), reached


def test_who_wants_a_kernel() -> None:
    """No test in a file of HOST, and no test of HOST_TESTS, has a fixture that needs a kernel."""
    for file in quick.HOST:
        for name, function in functions(file).items():
            assert not FIXTURES & set(inspect.signature(function).parameters), f"{file}: {name}"
    for file, name in (test.split("::") for test in quick.HOST_TESTS):
        assert not FIXTURES & set(inspect.signature(functions(file)[name]).parameters), name


OVERLAY = "kernel/overlay"


@pytest.mark.parametrize("path, tests", [
    (f"{OVERLAY}/mm/quire/rmap/bulk.c", {"rmap", "knobs", "monitoring", "layers", "lint", quick.UNITS}),
    (f"{OVERLAY}/tools/testing/selftests/quire/rmap_chain.c", {"rmap", "knobs", "monitoring", "layers", quick.UNITS}),
    (f"{OVERLAY}/include/linux/quire/rmap.h", {"rmap", "knobs", "monitoring", "layers", "lint", quick.UNITS}),
    (f"{OVERLAY}/include/trace/events/quire_pt.h", {"fork", "shm", "layers", "lint", quick.UNITS}),
    (f"{OVERLAY}/mm/quire/rmap/rmap_test.c", {"core", "layers", "lint"}),
    (f"{OVERLAY}/mm/quire/pt/mixed.c", {"fork", "shm", "layers", "lint", quick.UNITS}),
    (f"{OVERLAY}/mm/quire/core/Makefile", {"core", "layers", "rmap::test_with_all_features"}),
    (f"{OVERLAY}/mm/quire/core/sysfs.c", {"core", "layers", "lint", "rmap::test_with_all_features"}),
    (f"{OVERLAY}/mm/quire/core/proc.c", {"fork", "shm", "layers", "lint", quick.UNITS}),
    ("kernel/hooks/0302-text-map.patch", {"text", quick.UNITS, quick.HOOKS}),
    ("guest/boot.py", {"build", "run", quick.INPUT, *quick.PYTHON}),
    ("tool/quirectl", {"quirectl", "settings", "reports", "completion", "deb_tools", "quirectl_guest", quick.RECIPES,
                       quick.INPUT, *quick.PYTHON}),
    ("docs/fork.md", {"docs"}),
    ("docs/recipes/redis.md", {"docs", "recipes"}),
    ("bench/results/micro.md", {"docs", quick.PAPERS}),
    ("tests/test_off.py", {"off", *quick.PYTHON}),
    ("nonesuch/file", set()),
    ("nonesuch/file.py", set()),
])
def test_rows(path: str, tests: set[str]) -> None:
    """Each kind of file selects the tests of its feature, and not all tests."""
    assert set(quick.tests_of(path)) == tests


def test_a_file_stands_for_its_tests() -> None:
    """A whole file replaces its single tests, a deleted file is not run, and each test has the paths that chose it."""
    fork, shm = (f"{OVERLAY}/mm/quire/{name}/{name}.c" for name in ("fork", "shm"))
    found = quick.chosen([fork, shm, "tests/test_gone.py", "guest/run"])
    assert found == {"fork": [fork], "shm": [shm], "knobs": [fork, shm], "monitoring": [fork, shm],
                     "layers": [fork, shm], "lint": [fork, shm], quick.UNITS: [fork, shm], "build": ["guest/run"],
                     "run": ["guest/run"], quick.INPUT: ["guest/run"]}


@pytest.fixture(name="clone")
def fixture_clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with two commits: the second edits b and deletes c; then d is edited and e is new."""
    # In one of git's own hooks, these variables name the repository of the hook.
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)

    def git(*arguments: str) -> None:
        subprocess.run(["git", "-c", "user.name=n", "-c", "user.email=e", *arguments], cwd=tmp_path, check=True,
                       stdout=subprocess.DEVNULL)

    git("init", "-q")
    for name in "abcd":
        (tmp_path / name).write_text("one\n", encoding="utf-8")
    git("add", ".")
    git("commit", "-qm", "one")
    (tmp_path / "b").write_text("two\n", encoding="utf-8")
    (tmp_path / "c").unlink()
    git("commit", "-qam", "two")
    for name in "de":
        (tmp_path / name).write_text("two\n", encoding="utf-8")
    monkeypatch.setattr(paths, "REPO", tmp_path)
    return tmp_path


def test_what_changed(clone: Path) -> None:
    """Later commits, edits, new and deleted files count; without origin/main the last commit counts."""
    assert quick.default_commit() == "HEAD~1"
    assert quick.changed_since("HEAD~1") == ["b", "c", "d", "e"]
    assert quick.changed_since("HEAD") == ["d", "e"]
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=clone, text=True, check=True, stdout=subprocess.PIPE).stdout
    subprocess.run(["git", "update-ref", "refs/remotes/origin/main", "HEAD"], cwd=clone, check=True)
    assert quick.default_commit() == head.strip()


def test_commit_that_git_does_not_know(clone: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One line has git's message, and says what to give."""
    assert clone.exists() and quick.main(["--since", "nonesuch"]) == 1
    said = capsys.readouterr().err
    assert "bad revision 'nonesuch'" in said and "make quick SINCE=COMMIT" in said and said.count("\n") == 1


@pytest.mark.parametrize("changed, built, says", [
    (["docs/fork.md"], ["tree"], "tests/test_docs.py: docs/fork.md\n"),
    (["docs/fork.md", "tool/quirectl", f"{OVERLAY}/mm/quire/text/text.c"], [["quire"]],
     f"tests/test_text.py: {OVERLAY}/mm/quire/text/text.c\n"),
    (["docs/fork.md", "nonesuch"], ["tree"], "no row of tests/quick.py has nonesuch"),
    ([], [], "0 files changed since HEAD~1\n0 passed, 0 failed, 0 skipped\n"),
])
def test_only_what_is_wanted_is_built(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
                                      changed: list[str], built: list[object], says: str) -> None:
    """quire is built only for a test that needs it; tests run with pytest's options, and the reason is printed."""
    did: list[object] = []
    ran: list[list[str]] = []

    def run_suite(name: str, arguments: list[str], since: float) -> int:
        ran.append([name, *arguments])
        return 3

    monkeypatch.setattr(quick, "default_commit", lambda: "HEAD~1")
    monkeypatch.setattr(quick, "changed_since", lambda commit: changed)
    monkeypatch.setattr(build, "build_all", did.append)
    monkeypatch.setattr(tree, "update", lambda: did.append("tree"))
    monkeypatch.setattr(run, "run", run_suite)
    assert quick.main(["-n", "2", "--list"]) == 0 and not did and not ran
    capsys.readouterr()
    assert quick.main(["-n", "2"]) == (3 if built else 0)
    assert did == built and says in capsys.readouterr().out
    wanted = [[*map(quick.node_of, quick.chosen(changed))]] if built else []
    assert ran == [["quick", "-n", "2", "-m", quick.MARKS, *nodes] for nodes in wanted]
