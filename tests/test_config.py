# SPDX-License-Identifier: GPL-2.0
"""The kernels' configurations: every symbol that a fragment asks for is there."""

from __future__ import annotations

from pathlib import Path

import pytest

from guest import build, paths

# The symbols that tests of the features need from the rest of the kernel.
FIELD = ["EXT4_FS", "BLK_DEV_LOOP", "ZRAM", "SQUASHFS", "OVERLAY_FS", "TMPFS", "HUGETLBFS", "USERFAULTFD", "KSM",
         "MEM_SOFT_DIRTY", "GUP_TEST", "MEMCG", "NUMA", "TRANSPARENT_HUGEPAGE", "TRANSPARENT_HUGEPAGE_MADVISE",
         "IO_URING", "INET"]
OTHERS = [pytest.param(variant, marks=pytest.mark.vanilla) for variant in ("vanilla", "off")]


@pytest.mark.parametrize("variant", ["quire", *OTHERS])
def test_symbols_took(variant: str) -> None:
    """The built kernel has the symbols that its fragments ask for, and those that the tests need."""
    config = paths.BUILD / variant / "config"
    assert not build.lost(build.asked(build.fragments_of(variant)), config)
    assert not build.lost({f"CONFIG_{name}": "y" for name in FIELD}, config)


@pytest.mark.debug
@pytest.mark.debug_only
def test_debug_symbols_took() -> None:
    """The debug kernel has its checkers."""
    assert not build.lost(build.asked(build.fragments_of("debug")), paths.BUILD / "debug" / "config")


@pytest.mark.vanilla
def test_variants_differ_by_ours_alone() -> None:
    """vanilla, off and quire differ in our own symbols alone, so that the columns compare nothing else."""
    configs = {variant: build.asked([paths.BUILD / variant / "config"]) for variant in ("vanilla", "off", "quire")}
    def others(variant: str) -> dict[str, str]:
        return {key: value for key, value in configs[variant].items() if not key.startswith("CONFIG_QUIRE")}
    assert others("off") == others("vanilla")
    assert others("quire") == others("vanilla")
    assert not [key for key, value in configs["off"].items() if key.startswith("CONFIG_QUIRE") and value != "n"]
    assert configs["quire"]["CONFIG_QUIRE"] == "y"


def test_lost_symbols_are_named(tmp_path: Path) -> None:
    """A symbol that Kconfig dropped, or forced on, is named with both values."""
    config = tmp_path / "config"
    config.write_text("CONFIG_A=y\nCONFIG_B=m\n# CONFIG_C is not set\nCONFIG_E=y\n", encoding="utf-8")
    wanted = {"CONFIG_A": "y", "CONFIG_B": "y", "CONFIG_C": "y", "CONFIG_D": "n", "CONFIG_E": "n"}
    assert build.lost(wanted, config) == ["CONFIG_B=y (is m)", "CONFIG_C=y (is n)", "CONFIG_E=n (is y)"]
