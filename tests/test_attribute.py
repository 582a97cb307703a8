# SPDX-License-Identifier: GPL-2.0
"""bench/attribute's own logic, without a guest: what it builds, which calls it finds, which functions it counts."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

from guest import paths


@pytest.fixture(scope="module", name="attribute")
def fixture_attribute() -> ModuleType:
    """The script as a module."""
    path = str(paths.REPO / "bench" / "attribute")
    loader = importlib.machinery.SourceFileLoader("attribute", path)
    spec = importlib.util.spec_from_loader("attribute", loader)
    assert spec
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def test_builds_with_both_marks(attribute: ModuleType, tmp_path: Path) -> None:
    """The plugin and the programs build, and the workload has one mark of each kind that the plugin looks for."""
    attribute.build(tmp_path)
    code = (tmp_path / "workload").read_bytes()
    for kind in (0, 1):
        assert code.count(b"\x0f\x1f\x80\x71\x75\x69" + bytes([kind])) == 1
    symbols = subprocess.run(["nm", "-D", tmp_path / "plugin.so"], text=True, check=True, capture_output=True).stdout
    assert "T qemu_plugin_install" in symbols


def test_call_sites(attribute: ModuleType, tmp_path: Path) -> None:
    """Each direct call of a function is found, at the address of the call."""
    source, image = tmp_path / "a.s", tmp_path / "a"
    source.write_text(".globl _start\n.text\nf: ret\ng: ret\n_start: call f\ncall g\ncall f\njmp f\n", encoding="utf-8")
    subprocess.run(["gcc", "-nostdlib", "-static", "-o", image, source], check=True)
    at = {name: address for address, name in attribute.symbols(image)}
    start = at["_start"]
    sites = attribute.call_sites(image, {at["f"]: 0, at["g"]: 1}, tmp_path)
    assert sites == [(start, 0), (start + 5, 1), (start + 10, 0)]


@pytest.mark.parametrize("name, counted", [
    ("anon_vma_fork", True), ("__quire_rmap_fork", True), ("folio_remove_rmap_ptes", True), ("unlink_anon_vmas", True),
    ("__quire_rmap_dup_area", False), ("vm_area_dup", False), ("free_cpu_rmap", False),
])
def test_which_functions_are_the_reverse_map(attribute: ModuleType, name: str, counted: bool) -> None:
    """Functions that only allocate areas do not count."""
    assert bool(attribute.REVERSE_MAP.fullmatch(name)) is counted
