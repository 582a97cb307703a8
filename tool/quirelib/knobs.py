# SPDX-License-Identifier: GPL-2.0
"""What is known of each knob: its bounds, its default, its unit and what it does.

The kernel is what decides; tests/test_knobs.py holds this table against its source. A knob that is not here, of a newer
kernel, can be read and set all the same.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass


@dataclass(frozen=True)
class Knob:
    """A knob; `low` to `high` are the numbers that it takes, `words` what it takes in place of numbers."""

    feature: str
    name: str
    low: int
    high: int
    default: str
    unit: str
    what: str
    words: str = ""

    @property
    def bounds(self) -> str:
        """Return what it takes, in words."""
        if self.words:
            return self.words
        return str(self.low) if self.low == self.high else f"{self.low} to {self.high}"


@dataclass(frozen=True)
class Gauge:
    """A number, or several, that the kernel shows beside a feature's knobs."""

    feature: str
    name: str
    unit: str
    what: str


KNOBS = (
    Knob("fork", "min_tables", 1, 1 << 30, "16", "page tables",
         "a process shares only if it has so many last-level page tables, of 2 MiB each"),
    Knob("fork", "mixed", 0, 1, "0", "switch",
         "1: share tables, too, that several areas reach into, and those of private file mappings; "
         "a kernel without shm takes 0 alone"),
    Knob("fork", "background_tables_per_s", 0, 1 << 20, "0", "page tables a second",
         "give children tables of their own at this rate, ahead of the parent's writes; 0: never"),
    Knob("shm", "min_tables", 1, 1 << 30, "16", "page tables",
         "a mapping shares only if it is so large, 2 MiB for each table"),
    Knob("shm", "cross_user", 0, 1, "0", "switch", "1: processes of different users share, too"),
    Knob("shm", "place", 0, 1, "1", "switch", "1: place large mappings so that their tables can be shared"),
    Knob("prezero", "engine", 0, 0, "cpu", "name", "what zeroes: the processor, or a channel of a DMA device",
         words="cpu or dma"),
    Knob("prezero", "engine_timeout_milliseconds", 1, 60000, "2000", "milliseconds",
         "a transfer that takes longer hangs, and its engine is dropped"),
    Knob("prezero", "rate_mb_per_second", 0, 1000000, "0", "MB a second",
         "the most that is zeroed on a node; 0: no bound"),
    Knob("prezero", "scrub_now", 1, 1, "-", "action",
         "1: zero now until each zone has its share of scrub_stop; can only be written"),
    Knob("prezero", "scrub_order_min", 0, 10, "9", "order of pages",
         "the smallest free blocks that are zeroed; 9 is 2 MiB"),
    Knob("prezero", "sleep_milliseconds", 10, 60000, "200", "milliseconds",
         "how long kscrubd rests before it looks for work again"),
    Knob("prezero", "trust_engine_stop", 0, 1, "0", "switch",
         "1: believe an engine that hung and then says that it has stopped"),
    Knob("prezero", "verify", 0, 1, "0", "switch",
         "1: look at each byte of a page that is handed out as zero; on by default with CONFIG_DEBUG_VM"),
    Knob("prezero", "scrub_load", 0, 1000, "1", "tasks per processor",
         "kscrubd pauses while more tasks are runnable, itself counted; 0: it does not look"),
    Knob("prezero", "scrub_start", 0, 1000, "100", "thousandths of a zone",
         "kscrubd starts on a zone with less zeroed memory; 0: it never starts by itself"),
    Knob("prezero", "scrub_stop", 0, 1000, "300", "thousandths of a zone",
         "kscrubd goes on until the zone has so much"),
    Knob("text", "backoff_ms", 0, 600000, "10000", "milliseconds",
         "nothing is queued for so long after a huge page was not to be had"),
    Knob("text", "blocks_per_second", 1, 100000, "256", "blocks of 2 MiB a second", "the most that is collapsed"),
    Knob("text", "delay_ms", 0, 60000, "100", "milliseconds",
         "from the last mapping of a file's text to the first attempt"),
    Knob("text", "fault_around_kb", 64, 2048, "2048", "kB",
         "the most of resident text that a fault maps by small pages, a power of two; 64: as Linux"),
    Knob("text", "max_permil", 0, 1000, "250", "thousandths of memory",
         "the most that huge pages of files, of all kinds, may take"),
    Knob("text", "min_resident_pages", 1, 512, "256", "pages of 4 kB",
         "a block is collapsed only if so many of its pages are resident"),
    Knob("text", "placement", 0, 1, "1", "switch",
         "1: place programs and libraries so that their text can be mapped by 2 MiB pages"),
    Knob("text", "readahead", 0, 1, "1", "switch",
         "1: read text by blocks of 2 MiB where the filesystem has large folios"),
    Knob("rmap", "defer_faults", 0, 4096, "32", "pages",
         "so many new pages of a process may be attached to its parent's anon_vmas; the next one moves them"),
)

GAUGES = (
    Gauge("shm", "tables", "page tables", "page tables that are shared now"),
    Gauge("shm", "mapped_kb", "kB", "what shared tables map, which is in no process's RSS"),
    Gauge("prezero", "zeroed_blocks", "blocks", "zeroed free blocks, a line for each zone and a column for each order"),
    Gauge("rmap", "borrowers", "areas", "areas that use their parent's anon_vmas now"),
)


def find(feature: str, name: str) -> Knob | None:
    """Return what is known of a knob, None where that is nothing."""
    return next((knob for knob in KNOBS if (knob.feature, knob.name) == (feature, name)), None)


def example() -> str:
    """Return an example of quire.conf: each knob with its default, as a comment."""
    parts = ["# An example of /etc/quire.conf: one feature.knob = value in a line, applied in this order by\n"
             "# quirectl apply, and by quire.service at boot. Each knob is here with its default.\n"]
    for feature in dict.fromkeys(knob.feature for knob in KNOBS):
        lines = [f"\n# {feature}\n"]
        for knob in (knob for knob in KNOBS if knob.feature == feature and knob.unit != "action"):
            lines.append(f"# {knob.bounds} ({knob.unit}): {knob.what}\n#{feature}.{knob.name} = {knob.default}\n")
        lines.append(f"# the switch, 0 or 1\n#{feature}.enabled = 0\n")
        parts += lines
    return "".join(parts)


GUIDE = """\
# Knobs

What can be set of each feature, in `/sys/kernel/mm/quire/FEATURE/` (scrub_load, scrub_start and scrub_stop in
`/proc/sys/vm/`), by `quirectl knobs set`. A value out of bounds is refused and changes nothing. Bounds are those of
x86-64 with all features. The kernel decides: a test holds the table in `tool/quirelib/knobs.py` against its source,
and this page, which `python3 tool/quirelib/knobs.py >docs/knobs.md` writes, against the table. What a choice costs and
brings is in the features' pages: [fork](fork.md), [shm](shm.md), [prezero](prezero.md), [text](text.md),
[rmap](rmap.md).

Each feature has `enabled` besides: 0 off, 1 on, 2 off and undo what is shared or pooled.
"""


def guide() -> str:
    """Return docs/knobs.md: a table for each feature, and one of gauges."""
    parts = [GUIDE]
    for feature in dict.fromkeys(knob.feature for knob in KNOBS):
        parts.append(f"\n## {feature}\n\n| knob | takes | default | unit | what it does |\n|---|---|---|---|---|\n")
        parts += [f"| `{knob.name}` | {knob.bounds} | {knob.default} | {knob.unit} | {knob.what} |\n"
                  for knob in KNOBS if knob.feature == feature]
    parts.append("\n## Gauges\n\nRead-only, by `quirectl gauges`.\n\n| feature | gauge | unit | what it shows |\n"
                 "|---|---|---|---|\n")
    parts += [f"| {gauge.feature} | `{gauge.name}` | {gauge.unit} | {gauge.what} |\n" for gauge in GAUGES]
    return "".join(parts)


if __name__ == "__main__":
    sys.stdout.write(example() if sys.argv[1:] == ["example"] else guide())
