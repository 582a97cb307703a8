# SPDX-License-Identifier: GPL-2.0
"""The command that writes counters, gauges, knobs and states in Prometheus' text format.

Names are quire_FEATURE_COUNTER_total and quire_FEATURE_GAUGE; values in kB are printed as bytes. States and knobs have
a label for the feature, and a knob's number is in its own unit. Files of a newer kernel that this program does not know
are printed, too.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable
from pathlib import Path

from quirelib import knobs
from quirelib.output import write_whole
from quirelib.surface import Quire, read

STATES = ("on", "off", "draining", "disabled_by_warning")
# These are among the counters in stats/, but their values can also fall.
LEVELS = {("prezero", "zeroed_pages"), ("prezero", "hugetlb_zeroed_pages"), ("prezero", "quarantined_pages")}
BLOCKS = re.compile(r"Node +(\d+), zone +(\w+) +([\d ]+)")

Sample = tuple[dict[str, str], int]


def label(value: str) -> str:
    """Escape the value of a label as the format requires."""
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def family(name: str, kind: str, text: str, samples: Iterable[Sample]) -> str:
    """Return the lines of a metric; "" if it has no samples."""
    lines = []
    for labels, value in samples:
        inner = ",".join(f'{key}="{label(said)}"' for key, said in labels.items())
        lines.append(f"{name}{{{inner}}} {value}" if inner else f"{name} {value}")
    if not lines:
        return ""
    return "\n".join([f"# HELP {name} {text}", f"# TYPE {name} {kind}", *lines, ""])


def counters(quire: Quire, feature: str) -> str:
    """Return the metrics of a feature's stats/."""
    parts = []
    for name, value in quire.stats(feature).items():
        level = (feature, name) in LEVELS
        parts.append(family(f"quire_{feature}_{name}" + ("" if level else "_total"), "gauge" if level else "counter",
                            f"{name} of {feature} {'at the moment' if level else 'since boot'}.", [({}, value)]))
    return "".join(parts)


def gauges(quire: Quire, feature: str) -> str:
    """Return the metrics of a feature's gauges."""
    what = {gauge.name: f"{gauge.what[0].upper()}{gauge.what[1:]}." for gauge in knobs.GAUGES
            if gauge.feature == feature}
    parts = []
    for name, path in quire.gauges(feature).items():
        value, text = read(path), what.get(name, f"{name} of {feature} at the moment.")
        if value.isdigit() and name.endswith("_kb"):
            parts.append(family(f"quire_{feature}_{name[:-3]}_bytes", "gauge", text, [({}, int(value) << 10)]))
        elif value.isdigit():
            parts.append(family(f"quire_{feature}_{name}", "gauge", text, [({}, int(value))]))
        else:
            text = "Zeroed free blocks of a zone, by their order." if name == "zeroed_blocks" else text
            parts.append(family(f"quire_{feature}_{name}", "gauge", text, _blocks(value)))
    return "".join(parts)


def _blocks(lines: str) -> list[Sample]:
    """Return the samples in lines like those of /proc/buddyinfo; none if the text has no such lines."""
    return [({"node": node, "zone": zone, "order": str(order)}, int(number))
            for node, zone, numbers in BLOCKS.findall(lines) for order, number in enumerate(numbers.split())]


def text_of(quire: Quire) -> str:
    """Return all metrics."""
    features = quire.features()
    now = {feature: quire.state(feature) for feature in features}
    states = [({"feature": feature, "state": state}, int(state == now[feature]))
              for feature in features for state in STATES]
    values = [({"feature": feature, "knob": knob}, int(value)) for feature in features
              for knob, path in quire.knobs(feature).items() if (value := read(path)).isdigit()]
    return "".join([
        family("quire_info", "gauge", "The version of quire and the kernel that has it.",
               [({"version": quire.version(), "kernel": quire.release()}, 1)]),
        family("quire_feature_enabled", "gauge", "Whether a feature is on.",
               [({"feature": feature}, int(state == "on")) for feature, state in now.items()]),
        family("quire_feature_state", "gauge", "Whether a feature is in this state.", states),
        family("quire_knob", "gauge", "What a knob over a number is set to.", values),
        *(part(quire, feature) for feature in features for part in (counters, gauges)),
    ])


def metrics(quire: Quire, args: argparse.Namespace) -> None:
    """Print all metrics, or write them to a file."""
    write_whole(args.output or Path("-"), text_of(quire))
