# SPDX-License-Identifier: GPL-2.0
"""The kernel's own mm selftests, with the features off and on, compared as sets with the pristine kernel's."""

from __future__ import annotations

import itertools
import re
from functools import partial
from typing import Any

import pytest

import sets
from guest import paths

TESTS = ["cow", "mremap_test", "mremap_dontunmap", "ksm_functional_tests", "madv_populate",
         "mlock2-tests", "mkdirty", "soft-dirty", "mrelease_test", "map_populate", "droppable", "mdwe_test",
         "on-fault-limit", "mlock-random-test"]
# These are slow or need much memory: for the soak. Arguments are those of the kernel's own run_vmtests.sh, except that
# the pages that transhuge-stress splits must fit into the guest, and uffd-stress uses only as many huge pages as there
# are.
LONG = {
    "huge pages": ["hugepage-mmap", "hugepage-mremap", "hugepage-shm", "hugetlb-madvise", "hugetlb_fault_after_madv",
                   "map_hugetlb", "split_huge_page_test", "hugepage-vmemmap", "hugetlb_dio", "thuge-gen"],
    "movement": ["migration", "compaction_test", "memfd_secret", "mseal_test", "seal_elf", "map_fixed_noreplace"],
    "user faults and pins": ["uffd-unit-tests", "gup_longterm", "pagemap_ioctl", "gup_test -u", "gup_test -a",
                             "gup_test -ct -F 0x1 0 19 0x1000"],
    "stress": ["uffd-stress anon 20 16", "uffd-stress shmem 20 16", "uffd-stress shmem-private 20 16",
               "uffd-stress hugetlb 64 32", "uffd-stress hugetlb-private 64 32", "transhuge-stress -d 20 1024"],
    "same pages": ["ksm_tests -H -s 100", "ksm_tests -P -s 100", "ksm_tests -M -p 10", "ksm_tests -U",
                   "ksm_tests -Z -p 10 -z 0", "ksm_tests -Z -p 10 -z 1"],
}
# What these guests have besides SHAPE: nodes to move pages between, and CPUs for threads that use the pages meanwhile.
GUESTS: dict[str, dict[str, Any]] = {"movement": {"cpus": 4, "numa": 2}}
# From the folder memfd. Over hugetlbfs it ends with the first case even on vanilla: F_SEAL_EXEC is not kept there.
MEMFD = ["memfd_test"]
# What clone3() can add to a fork. Our kernels, vanilla included, do not have its namespaces.
CLONE3 = ["clone3", "clone3_clear_sighand", "clone3_set_tid", "clone3_cap_checkpoint_restore"]
# Programs that are in no set, and why.
LEFT_OUT = {
    "hmm-tests": "wants the module test_hmm, which our kernels never load",
    "hugetlb-read-hwpoison": "takes huge pages away from the guest for good",
    "hugetlb-soft-offline": "takes huge pages away from the guest for good",
    "hugetlb_madv_vs_map": "wants exactly one huge page, the others want more",
    "khugepaged": "is in test_text_sets.py",
    "pkey_sighandler_tests": "protection keys are the CPU's, and an emulated one may have none",
    "protection_keys": "protection keys are the CPU's, and an emulated one may have none",
    "va_high_addr_switch": "wants five levels of page tables, which the debug kernel boots without",
    "virtual_address_range": "maps all addresses there are, 1 GB at a time, which takes 1 GB of page tables",
    "write_to_hugetlbfs": "helps scripts that want control groups of huge pages, which our kernels have not",
}
PROGRAMS = paths.BUILD / "mm_selftests"
SCRIPT = paths.REPO / "tests/mm_selftests.sh"


def run_set(tests: list[str], kernel: str, append: str, **options: Any) -> dict[str, str]:
    """Run tests in a fresh guest and return their results."""
    return sets.results(sets.run_guest([str(SCRIPT), str(PROGRAMS), *tests], kernel, append, **options))


def a_set(name: str, tests: list[str], part: str = "mm", in_check: bool = False, **options: Any) -> sets.Set:
    """Return a set of programs of one folder of the kernel's selftests."""
    return sets.Set(name, tests, SCRIPT, partial(sets.build_programs, PROGRAMS, {part: tests}),
                    partial(run_set, **options), options, in_check)


CHECKED = a_set("mm", TESTS, in_check=True)
SOAKED = {part: a_set(f"mm-{part.replace(' ', '-')}", tests, **GUESTS.get(part, {})) for part, tests in LONG.items()}
SEALED = a_set("memfd", MEMFD, "memfd")
CLONED = a_set("clone3", CLONE3, "clone3")
SETS = [CHECKED, *SOAKED.values(), SEALED, CLONED]


@pytest.mark.vanilla
def test_check_set(kernel: str) -> None:
    """Nothing that passes on vanilla fails, is skipped or is missing on quire with all features on."""
    sets.compare(CHECKED, kernel, 500, ("on",))


@pytest.mark.soak
@pytest.mark.debug
def test_check_set_with_the_features_off(kernel: str) -> None:
    """The same with all features off."""
    sets.compare(CHECKED, kernel, 500, ("off",))


@pytest.mark.soak
@pytest.mark.debug
@pytest.mark.parametrize("part", LONG)
def test_long_set(kernel: str, part: str) -> None:
    """The same for the sets that take minutes."""
    sets.compare(SOAKED[part], kernel, 5)


@pytest.mark.soak
@pytest.mark.debug
def test_memfd(kernel: str) -> None:
    """The same for sealed and shared memory; the program reports by its status alone."""
    sets.compare(SEALED, kernel, 0)


@pytest.mark.soak
@pytest.mark.debug
def test_clone3(kernel: str) -> None:
    """The same for processes that are made by clone3()."""
    sets.compare(CLONED, kernel, 5)


def test_every_program_is_in_a_set_or_left_out() -> None:
    """Each program that the kernel's Makefile builds is either in a set, or in LEFT_OUT with the reason."""
    text = (paths.BASE / "tools/testing/selftests/mm/Makefile").read_text(encoding="utf-8")
    made = set(re.findall(r"^(?:TEST_GEN_FILES|VMTARGETS) [:+]?= ([\w-]+)$", text, re.M))
    ran = {test.split()[0] for test in [*TESTS, *itertools.chain.from_iterable(LONG.values())]}
    assert len(made) > 40 and ran <= made
    assert made - ran == set(LEFT_OUT)


def test_comparison_sees_a_failure_a_skip_and_a_loss() -> None:
    """The comparison names each way of being worse, and no improvement."""
    vanilla = sets.results("== t\nok 1 a\nok 2 b\nok 3 c\nnot ok 4 d\n== t status 1\n")
    quire = sets.results("== t\nnot ok 1 a\nok 2 b # SKIP no\nok 4 d\n== t status 1\n")
    assert sets.regressions(vanilla, quire) == {"t: a": "pass on vanilla, fail here",
                                                "t: b": "pass on vanilla, skip here",
                                                "t: c": "pass on vanilla, missing here"}


def test_programs_with_arguments_are_told_apart() -> None:
    """The same program with other arguments is another test, with its own status."""
    output = "== p -a 1\nok 1 x\n== p -a 1 status 0\n== p -a 2\nnot ok 1 x\n== p -a 2 status 1\n"
    assert sets.results(output) == {"p -a 1: x": "pass", "p -a 1: status": "pass", "p -a 2: x": "fail",
                                    "p -a 2: status": "fail"}
