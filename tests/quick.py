#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Run the tests that changed files affect most directly, on quire alone: for use between two runs of `make check`.

The changed files are those that differ from a commit, including edits and new files that are not committed. ROWS says
which tests each file affects. The kernel is built only if one of the tests needs it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
import tomllib
from fnmatch import fnmatchcase
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPO))

import run  # noqa: E402
from guest import build, cli, paths, tree  # noqa: E402

UNITS = "core::test_unit_tests_vmstat_and_switches"
HOOKS = "off::test_hooks_edit_no_source_elsewhere"
PAPERS = "bench::test_papers_are_written_from_the_data"
INPUT = "bench::test_bad_input_is_answered"
RECIPES = "recipes::test_commands_are_quirectls"
SOURCES = "bench::test_sources_that_are_none"
PYTHON = ("lint::test_ruff", "lint::test_mypy", "lint::test_limits")
PROGRAMS = tomllib.loads((REPO / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["ruff"]["extend-include"]


def _rows(feature: str, number: str, *tests: str) -> list[tuple[str, str]]:
    """Return the rows of a feature: its sources, headers and selftests, and its hooks."""
    reached = " ".join([*tests, UNITS])
    return [(f"kernel/overlay/*/{feature}[_./]* kernel/overlay/*/quire_{feature}[_.]*",
             f"{reached} knobs monitoring layers"),
            (f"kernel/hooks/{number}*", f"{reached} {HOOKS}")]


# Patterns of paths -> names of test files without test_ and .py, or of one test in a file; "itself" is the changed test
# file. The first row with a matching pattern counts.
ROWS: list[tuple[str, str]] = [
    ("docs/pressure.md", "docs simulate"),
    ("docs/recipes/*", "docs recipes"),
    ("README.md", f"docs apt_repo {PAPERS}"),
    ("suites/results/* suites/storage.py suites/publishing.py docs/trust.md docs/coverage.md",
     "docs bases covering fuzzing modelling scaling suites"),
    ("suites/fuzz suites/fuzz* kernel/config/fuzz.config", "fuzzing"),
    ("suites/scale suites/scale.c suites/scaling.py", "scaling"),
    ("suites/coverage* suites/covering.py", "covering"),
    ("suites/models suites/modelling.py", "modelling"),
    ("suites/matrix suites/bases.py", "bases"),
    ("suites/xfstests*", "xfstests suites"),
    ("suites/zdtm*", "zdtm suites"),
    ("suites/*", "suites"),
    ("bench/results/* docs/results.md docs/packages.md", f"docs {PAPERS}"),
    ("kernel/overlay/Documentation/ABI/* docs/knobs.md", "docs knobs"),
    ("kernel/overlay/Documentation/* *.md COPYING .gitignore", "docs"),
    ("docs/man/*", "docs quirectl settings deb_tools"),
    ("kernel/overlay/mm/quire/*_test.c", "core layers"),
    *_rows("fork", "02", "fork", "shm::test_selftests"),
    ("kernel/overlay/mm/quire/pt/* kernel/overlay/include/linux/quire/pt*.h kernel/overlay/*/quire_pt.h",
     f"fork shm layers {UNITS}"),
    ("kernel/overlay/mm/quire/core/proc.c", f"fork shm layers {UNITS}"),
    ("kernel/overlay/mm/quire/test/notifier.c", f"fork shm::test_selftests layers {UNITS}"),
    ("kernel/overlay/mm/quire/test/meet.c", f"fork::test_selftests layers {UNITS}"),
    *_rows("shm", "05", "shm"),
    *_rows("prezero", "01", "prezero"),
    *_rows("text", "03", "text"),
    *_rows("rmap", "04", "rmap"),
    ("kernel/overlay/mm/quire/core/mm_walk.c kernel/overlay/include/trace/events/quire_core.h",
     "fork shm rmap::test_selftests layers"),
    ("kernel/overlay/mm/quire/test/edu_dma.c", "prezero layers"),
    ("kernel/overlay/mm/quire/core/debug.c", "core run layers"),
    ("kernel/overlay/mm/quire/* kernel/overlay/include/linux/quire/core.h",
     "core layers rmap::test_with_all_features"),
    ("kernel/overlay/tools/*", "fork::test_selftests shm::test_selftests rmap::test_selftests text::test_collapse"),
    ("kernel/hooks/series kernel/hooks/00*", f"core {HOOKS}"),
    ("kernel/config/deb.config", "deb"),
    ("guest/deb.py guest/deb_tools.py guest/debhelper.py", "deb deb_meta deb_tools"),
    ("guest/deb_meta.py guest/meta/*", "deb_meta"),
    ("guest/apt_repo.py", "apt_repo"),
    ("guest/machine.py", "installation"),
    ("tool/debian/* tool/examples/*", "deb_tools"),
    ("kernel/config/*", "config core"),
    ("guest/boot.py guest/run", f"build run {INPUT}"),
    ("guest/races.py", "races splat"),
    ("guest/splat.py", "races splat run::test_splats_are_seen_and_named"),
    ("guest/tree.py base.conf", f"tree build docs packages {SOURCES}"),
    ("guest/mirrors.py kernel/mirrors", "mirrors"),
    ("guest/packages.py requirements.txt", "packages"),
    ("pyproject.toml", "lint"),
    ("guest/*", f"build tree ktap {INPUT}"),
    ("bench/attribut*", "attribute"),
    ("bench/packaged.py", "packaged"),
    ("bench/plots.py bench/report bench/reporting.py", f"html_report bench::test_json_and_report {INPUT}"),
    ("bench/pressure/simulate.py", "simulate"),
    ("bench/workloads.py", "bench docs"),
    ("bench/*", "bench"),
    ("tool/quirelib/record.py", "quirectl_record quirectl_guest"),
    ("tool/quirelib/processes.py", "quirectl text"),
    ("tool/quirelib/knobs.py", "knobs fuzzing quirectl deb_tools"),
    ("tool/quirelib/settings.py tool/quirelib/output.py", "settings reports"),
    ("tool/systemd/*", "settings reports deb_tools"),
    ("tool/quirelib/metrics.py tool/quirelib/report.py", "reports monitoring prometheus quirectl_guest"),
    ("tool/quirelib/bootdefault.py tool/grub/*", "bootdefault deb_tools"),
    ("tool/completions/*", "completion"),
    ("tool/monitoring/*", "monitoring prometheus"),
    ("tool/bpftrace/*", "monitoring"),
    ("tool/*", f"quirectl settings reports completion deb_tools quirectl_guest {RECIPES} {INPUT}"),
    ("tests/test_*.py", "itself"),
    ("tests/quick.py Makefile .ci/*", f"quick ci ktap docs {INPUT}"),
    ("tests/run.py tests/group.py tests/ktap.py pytest.ini", "ktap ci races"),
    ("tests/conftest.py", f"ktap {UNITS} shm::test_model"),
    ("tests/kernel_surface.py", "knobs settings reports monitoring prometheus"),
    ("tests/fake_deb.py", "apt_repo deb_meta"),
    ("tests/elf.py", "off"),
    ("tests/objects.py tests/records/objects.json", "off sets"),
    ("tests/sets.py tests/record.py tests/records/* tests/*_selftests.sh", "sets mm_sets text_sets suites"),
    ("tests/hibernation.py tests/workloads/hibernate.sh tests/workloads/verify.sh", "prezero"),
    ("tests/programs.py", f"modelling {UNITS} shm::test_model"),
    ("tests/pressure.py", "modelling shm::test_model_under_pressure"),
    ("tests/pg_regress.py tests/workloads/pg_regress.sh", "pg_regress"),
    ("tests/workloads/text_programs.py", "text"),
    ("tests/workloads/quirectl_server.py", "recipes"),
    ("tests/workloads/redis.sh", "workloads::test_redis_snapshot"),
    ("tests/workloads/postgres.sh", "workloads::test_postgres"),
    ("tests/workloads/criu.sh tests/workloads/frozen.py", "workloads::test_frozen_and_thawed"),
    ("tests/workloads/checkpoints.*", "workloads::test_checkpoints"),
    ("tests/workloads/*", "workloads::test_compiler_output"),
]
# The static checks of a file, in addition to the tests of its row.
STYLE: list[tuple[str, str]] = [
    (" ".join(["*.py", *PROGRAMS]), " ".join(PYTHON)),
    ("kernel/overlay/mm/quire/*.[ch] kernel/overlay/include/*.h", "lint"),
]
# Test files of which no test that runs here needs a kernel.
HOST = {"apt_repo", "attribute", "bases", "bootdefault", "build", "completion", "covering", "deb", "deb_meta",
        "deb_tools", "docs", "fuzzing", "html_report", "installation", "knobs", "ktap", "layers", "mm_sets",
        "modelling", "monitoring", "off", "packaged", "packages", "pg_regress", "prometheus", "quick",
        "quirectl", "quirectl_record", "races", "reports", "scaling", "sets", "settings", "simulate", "splat",
        "suites", "text_sets", "tree", "xfstests", "zdtm"}
HOST_TESTS = {PAPERS, INPUT, RECIPES, SOURCES, *PYTHON}
MARKS = "not soak and not debug_only and not vanilla"


class NothingToCompare(Exception):
    """Git cannot say what changed; the message says why."""


def _first(rows: list[tuple[str, str]], path: str) -> list[str]:
    """Return the tests in the first of these rows that matches a path."""
    for patterns, tests in rows:
        if any(fnmatchcase(path, pattern) for pattern in patterns.split()):
            return [path.removeprefix("tests/test_").removesuffix(".py")] if tests == "itself" else tests.split()
    return []


def tests_of(path: str) -> list[str]:
    """Return the tests that a path affects, as ROWS and STYLE name them; none if no row matches."""
    found = _first(ROWS, path)
    return [*found, *_first(STYLE, path)] if found else []


def chosen(changed: list[str]) -> dict[str, list[str]]:
    """Return the tests for the changed paths, each with its paths; a whole file replaces single tests of that file."""
    found: dict[str, list[str]] = {}
    for path in changed:
        for test in tests_of(path):
            if (paths.REPO / node_of(test).split("::")[0]).exists():
                found.setdefault(test, []).append(path)
    return {test: why for test, why in found.items() if test == (file := test.split("::")[0]) or file not in found}


def node_of(test: str) -> str:
    """Return pytest's name for a test."""
    file, *rest = test.split("::")
    return "::".join([f"tests/test_{file}.py", *rest])


def wants_kernel(test: str) -> bool:
    """Say whether a test needs a kernel."""
    return test.split("::")[0] not in HOST and test not in HOST_TESTS


def _git(*arguments: str) -> list[str]:
    done = subprocess.run(["git", *arguments], cwd=paths.REPO, text=True, check=False, stdin=subprocess.DEVNULL,
                          capture_output=True)
    if done.returncode:
        raise NothingToCompare(f"`git {' '.join(arguments)}` says: {(done.stderr.splitlines() or ['nothing'])[0]}; "
                               "name a commit: make quick SINCE=COMMIT")
    return done.stdout.split("\0") if "-z" in arguments else done.stdout.split()


def default_commit() -> str:
    """Return where this branch left origin/main, or HEAD~1 if there is no such branch."""
    try:
        return _git("merge-base", "HEAD", "origin/main")[0]
    except NothingToCompare:
        return "HEAD~1"


def changed_since(commit: str) -> list[str]:
    """Return the paths that differ from a commit, sorted."""
    return sorted({*_git("diff", "-z", "--name-only", "--no-renames", commit, "--"),
                   *_git("ls-files", "-z", "--others", "--exclude-standard")} - {""})


def tell(changed: list[str], tests: dict[str, list[str]]) -> None:
    """Print which tests were chosen, and why."""
    for test, why in tests.items():
        print(f"{node_of(test)}: {', '.join(why[:3])}{f' and {len(why) - 3} more' if len(why) > 3 else ''}")
    unknown = [path for path in changed if not tests_of(path)]
    if unknown:
        print(f"no row of tests/quick.py has {', '.join(unknown)}: add one, or run make check")
    sys.stdout.flush()


def make_ready(kernel: bool) -> None:
    """Update the tree, and build the kernel if it is needed."""
    if kernel:
        build.build_all(["quire"])
        return
    with paths.build_lock():
        tree.update()


def main(argv: list[str] | None = None) -> int:
    """Command line."""
    parser = cli.Parser(prog="tests/quick.py", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--since", metavar="COMMIT",
                        help="default: where this branch left origin/main, or HEAD~1 if there is no origin/main")
    parser.add_argument("--list", action="store_true", help="only say which tests these are, and why; build nothing")
    args, options = parser.parse_known_args(argv)
    begin = time.time()
    try:
        since = args.since or default_commit()
        changed = changed_since(since)
        tests = chosen(changed)
        print(f"{len(changed)} files changed since {since}")
        tell(changed, tests)
        if args.list:
            return 0
        if not tests:
            print(run.line(run.Counter("quick").counts))
            return 0
        make_ready(any(map(wants_kernel, tests)))
    except (NothingToCompare, build.BuildError, tree.TreeError, OSError, MemoryError) as error:
        print(f"error: {cli.explain(error)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return run.run("quick", [*options, "-m", MARKS, *map(node_of, tests)], begin)


if __name__ == "__main__":
    paths.own_python()
    os.chdir(REPO)
    sys.exit(main())
