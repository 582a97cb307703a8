# SPDX-License-Identifier: GPL-2.0
"""What quirectl knows of knobs is what the kernel's source says."""

from __future__ import annotations

import re

import kernel_surface
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
    """They are those of the source."""
    for (feature, name), bounds in kernel_surface.numbers().items():
        knob = knobs.find(feature, name)
        assert knob, (feature, name)
        assert (knob.low, knob.high, knob.default) == (bounds.low, bounds.high, str(bounds.default)), knob


def test_each_says_what_it_is() -> None:
    """In one line that is no sentence of its own, with a unit."""
    for one in (*knobs.KNOBS, *knobs.GAUGES):
        assert one.unit and one.what and "\n" not in one.what and not one.what.endswith("."), one
