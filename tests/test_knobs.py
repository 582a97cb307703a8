# SPDX-License-Identifier: GPL-2.0
"""quirectl's table of knobs matches the kernel's source."""

from __future__ import annotations

import re

import kernel_surface
from guest import paths
from quirelib import knobs


def test_every_knob_is_known() -> None:
    """The table has the kernel's knobs and gauges, all of them and no others."""
    ours = {(knob.feature, knob.name) for knob in knobs.KNOBS}
    assert len(ours) == len(knobs.KNOBS)
    assert ours == set(kernel_surface.numbers()) | kernel_surface.others("RW") | kernel_surface.others("WO")
    assert {(gauge.feature, gauge.name) for gauge in knobs.GAUGES} == kernel_surface.others("RO")


def test_no_attribute_is_overlooked() -> None:
    """Each file that a feature has in its list of knobs is found by the patterns of kernel_surface."""
    for feature in kernel_surface.FEATURES:
        listed = re.search(r"static const struct attribute \* const \w+_knobs\[\] = \{(.*?)\n\};",
                           kernel_surface.text(feature), re.S)
        assert listed, feature
        every = {*kernel_surface.numbers(), *kernel_surface.others("R[WO]"), *kernel_surface.others("WO")}
        known = [key for key in every if key[0] == feature and key not in kernel_surface.sysctls()]
        assert listed.group(1).count("&") == len(known), (feature, known)


def test_bounds_and_defaults() -> None:
    """The bounds and defaults in the table are those of the source."""
    for (feature, name), bounds in kernel_surface.numbers().items():
        knob = knobs.find(feature, name)
        assert knob, (feature, name)
        assert (knob.low, knob.high, knob.default) == (bounds.low, bounds.high, str(bounds.default)), knob


def test_each_says_what_it_is() -> None:
    """Each description is one line without a full stop, and has a unit."""
    for one in (*knobs.KNOBS, *knobs.GAUGES):
        assert one.unit and one.what and "\n" not in one.what and not one.what.endswith("."), one


def test_guide() -> None:
    """docs/knobs.md is what the table generates."""
    assert (paths.REPO / "docs/knobs.md").read_text(encoding="utf-8") == knobs.guide(), \
        "python3 tool/quirelib/knobs.py >docs/knobs.md"


def test_kernel_guide() -> None:
    """The kernel's guide ends with the section that the table generates."""
    text = (paths.OVERLAY / "Documentation/admin-guide/mm/quire.rst").read_text(encoding="utf-8")
    assert text.endswith("\n\n" + knobs.kernel_guide()), "python3 tool/quirelib/knobs.py kernel, at its end"


def abi() -> dict[str, str]:
    """Return the descriptions in the kernel's ABI document; an entry in another format fails."""
    text = (paths.OVERLAY / "Documentation/ABI/testing/sysfs-kernel-mm-quire").read_text(encoding="utf-8")
    found: dict[str, str] = {}
    for entry in re.split(r"\n(?=What:)", text):
        match = re.fullmatch(r"What:\t\t(/sys/kernel/mm/quire\S*)\nDate:\t\t\w+ \d{4}\nKernelVersion:\t6\.12\n"
                             r"Contact:\t\S.*\nDescription:\t(\S.*\n(?:(?:\t\t\S.*)?\n)*)", entry)
        assert match and match.group(1) not in found, entry
        found[match.group(1)] = " ".join(match.group(2).split())
    return found


def test_abi_has_every_file() -> None:
    """Each knob and gauge in sysfs, and the files that every feature has, are described once, and nothing else is."""
    top = "/sys/kernel/mm/quire"
    every = {*kernel_surface.numbers(), *kernel_surface.others("R[WO]"), *kernel_surface.others("WO")}
    files = {f"{top}/{feature}/{name}" for feature, name in every - kernel_surface.sysctls()}
    shared = {top, f"{top}/version", *(f"{top}/<feature>/{name}" for name in ("enabled", "state", "stats/<counter>"))}
    assert set(abi()) == files | shared


def test_abi_has_bounds_and_defaults() -> None:
    """Numeric knobs have the bounds and default of the source; read-only and write-only files are described as such."""
    told = abi()
    for (feature, name), bounds in kernel_surface.numbers().items():
        if (feature, name) not in kernel_surface.sysctls():
            text = told[f"/sys/kernel/mm/quire/{feature}/{name}"]
            takes = rf"Takes {bounds.low} to {bounds.high} \([\w\s]+\), default {bounds.default}\."
            assert re.search(takes, text), name
    for kind, word in (("RO", "Read-only."), ("WO", "Write-only.")):
        assert all(told[f"/sys/kernel/mm/quire/{feature}/{name}"].endswith(word)
                   for feature, name in kernel_surface.others(kind))
