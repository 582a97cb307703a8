# SPDX-License-Identifier: GPL-2.0
"""The kernel's own mm selftests, with the features off and on, compared as sets with the pristine kernel's."""

from __future__ import annotations

from pathlib import Path

import pytest

import sets
from guest import paths

TESTS = ["cow", "mremap_test", "mremap_dontunmap", "ksm_functional_tests", "madv_populate",
         "mlock2-tests", "mkdirty", "soft-dirty", "mrelease_test", "map_populate", "droppable", "mdwe_test",
         "on-fault-limit", "mlock-random-test"]
# Slow, or in want of much memory: for the soak.
LONG = {
    "huge pages": ["hugepage-mmap", "hugepage-mremap", "hugepage-shm", "hugetlb-madvise", "hugetlb_fault_after_madv",
                   "map_hugetlb", "split_huge_page_test"],
    "movement": ["migration", "compaction_test", "memfd_secret", "mseal_test", "seal_elf", "map_fixed_noreplace"],
    "user faults and pins": ["uffd-unit-tests", "gup_longterm", "pagemap_ioctl"],
}
PROGRAMS = paths.BUILD / "mm_selftests"


@pytest.fixture(scope="session", name="programs")
def fixture_programs() -> Path:
    """The programs, built once."""
    sets.build_programs(PROGRAMS, {"mm": TESTS})
    return PROGRAMS


def run_set(tests: list[str], kernel: str, append: str) -> dict[str, str]:
    """Run tests in a fresh guest and return their results."""
    command = [str(paths.REPO / "tests/mm_selftests.sh"), str(PROGRAMS), *tests]
    return sets.results(sets.run_guest(command, kernel, append))


@pytest.fixture(scope="session")
def vanilla_results(programs: Path) -> dict[str, str]:
    """The results on the pristine kernel."""
    assert programs.exists()
    found = run_set(TESTS, "vanilla", "")
    assert sum(outcome == "pass" for outcome in found.values()) > 500, "hardly anything ran on vanilla"
    return found


@pytest.mark.parametrize("features", ["off", "on"])
@pytest.mark.xdist_group("mm_sets")
def test_check_set(vanilla_results: dict[str, str], features: str) -> None:
    """Nothing that passes on vanilla fails, is skipped or is missing on quire."""
    sets.check(run_set, TESTS, features, vanilla_results)


@pytest.mark.soak
@pytest.mark.parametrize("part", LONG)
def test_long_set(part: str) -> None:
    """The same for those that take minutes."""
    sets.build_programs(PROGRAMS, {"mm": LONG[part]})
    vanilla = run_set(LONG[part], "vanilla", "")
    assert sum(outcome == "pass" for outcome in vanilla.values()) > 5, f"hardly anything ran on vanilla: {vanilla}"
    for features in ("off", "on"):
        sets.check(run_set, LONG[part], features, vanilla)


def test_comparison_sees_a_failure_a_skip_and_a_loss() -> None:
    """The comparison itself: each way of being worse is named, and being better is not."""
    vanilla = sets.results("== t\nok 1 a\nok 2 b\nok 3 c\nnot ok 4 d\n== t status 1\n")
    quire = sets.results("== t\nnot ok 1 a\nok 2 b # SKIP no\nok 4 d\n== t status 1\n")
    assert sets.regressions(vanilla, quire) == {"t: a": "pass on vanilla, fail here",
                                                "t: b": "pass on vanilla, skip here",
                                                "t: c": "pass on vanilla, missing here"}
