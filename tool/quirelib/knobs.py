# SPDX-License-Identifier: GPL-2.0
"""What is known of each knob: its bounds, its default, its unit and what it does.

The kernel decides; tests/test_knobs.py compares this table with the kernel's source. A knob of a newer kernel that is
missing here can still be read and set.
"""

from __future__ import annotations

import sys
import textwrap
from dataclasses import dataclass


@dataclass(frozen=True)
class Knob:
    """A knob. It takes the numbers from `low` to `high`, or, if `words` is set, what `words` says instead."""

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
        """Return the values that the knob takes, as text."""
        if self.words:
            return self.words
        return str(self.low) if self.low == self.high else f"{self.low} to {self.high}"


@dataclass(frozen=True)
class Gauge:
    """One or more numbers that the kernel shows beside a feature's knobs."""

    feature: str
    name: str
    unit: str
    what: str


KNOBS = (
    Knob("fork", "min_tables", 1, 1 << 30, "16", "page tables",
         "a process shares page tables at fork only if it has at least this many, those of upper levels included; "
         "a last-level table maps 2 MiB"),
    Knob("fork", "mixed", 0, 1, "0", "switch",
         "1: also share tables that several areas reach into, and tables of private file mappings; "
         "a kernel without shm accepts only 0"),
    Knob("fork", "background_tables_per_s", 0, 1 << 20, "0", "page tables a second",
         "give children their own tables at this rate, ahead of the parent's writes; 0: never"),
    Knob("shm", "min_tables", 1, 1 << 30, "16", "page tables",
         "share the tables of a mapping only if it spans at least this many tables of 2 MiB each"),
    Knob("shm", "cross_user", 0, 1, "0", "switch",
         "1: processes of different users share tables, too; 0 does not end what they share already"),
    Knob("shm", "place", 0, 1, "1", "switch", "1: place large mappings so that their tables can be shared"),
    Knob("prezero", "engine", 0, 0, "cpu", "name", "what zeroes memory: the processor, or a channel of a DMA device",
         words="cpu or dma"),
    Knob("prezero", "engine_timeout_milliseconds", 1, 60000, "2000", "milliseconds",
         "a transfer that takes longer counts as hung, and the kernel drops its engine"),
    Knob("prezero", "rate_mb_per_second", 0, 1000000, "0", "MB a second",
         "the most memory that is zeroed on each node; 0: no limit"),
    Knob("prezero", "scrub_now", 1, 1, "-", "action",
         "1: zero memory now, until zones have the share that scrub_stop sets, and hugetlb's free pages; write-only"),
    Knob("prezero", "scrub_order_min", 0, 10, "9", "order of pages",
         "the smallest free blocks that are zeroed; 9 is 2 MiB"),
    Knob("prezero", "scrub_unused", 0, 1, "1", "switch",
         "0: zero only memory that was freed since the feature was switched on, as virtual machines do by default; "
         "1: zero all free memory"),
    Knob("prezero", "sleep_milliseconds", 10, 60000, "200", "milliseconds",
         "how long kscrubd sleeps before it looks for work again"),
    Knob("prezero", "trust_engine_stop", 0, 1, "0", "switch",
         "1: trust an engine that hung and then reports that it has stopped"),
    Knob("prezero", "verify", 0, 1, "0", "switch",
         "1: check every byte of a page that is handed out as zeroed; on by default with CONFIG_DEBUG_VM"),
    Knob("prezero", "scrub_load", 0, 1000, "1", "tasks per processor",
         "kscrubd pauses while more tasks than this are runnable, including itself; 0: it does not check"),
    Knob("prezero", "scrub_start", 0, 1000, "100", "thousandths of a zone",
         "kscrubd starts on a zone that has less zeroed memory than this; 0: it never starts by itself"),
    Knob("prezero", "scrub_stop", 0, 1000, "300", "thousandths of a zone",
         "kscrubd continues until the zone has this much zeroed memory"),
    Knob("text", "backoff_ms", 0, 600000, "10000", "milliseconds",
         "how long nothing is queued after an attempt to get a huge page failed"),
    Knob("text", "blocks_per_second", 1, 100000, "256", "blocks of 2 MiB a second",
         "the most blocks that are collapsed"),
    Knob("text", "delay_ms", 0, 60000, "100", "milliseconds",
         "the time from the last mapping of a file's text to the first attempt to collapse it"),
    Knob("text", "fault_around_kb", 64, 2048, "2048", "kB",
         "the most resident text that one fault maps with small pages, a power of two; 64: as Linux does"),
    Knob("text", "in_place", 0, 1, "1", "switch",
         "1: read text that is likely to be read whole into free huge pages, which need no copy; 0: into small pages, "
         "which are copied"),
    Knob("text", "max_permil", 0, 1000, "250", "thousandths of memory",
         "the most memory that huge pages of files, of all kinds, may take"),
    Knob("text", "min_resident_pages", 1, 512, "256", "pages of 4 kB",
         "a block is collapsed only if at least this many of its pages are resident; the others are read if that "
         "is likely to pay"),
    Knob("text", "placement", 0, 1, "1", "switch",
         "1: place programs and libraries so that 2 MiB pages can map their text"),
    Knob("text", "readahead", 0, 1, "0", "switch",
         "1: read text in blocks of 2 MiB where the filesystem supports large folios, used as a whole or not"),
    Knob("rmap", "defer_faults", 0, 4096, "32", "pages",
         "how many new pages a process may attach to its parent's anon_vmas; the next one moves them to "
         "the process's own"),
)

GAUGES = (
    Gauge("shm", "tables", "page tables", "page tables that are shared now"),
    Gauge("shm", "mapped_kb", "kB", "memory that shared tables map, which is in no process's RSS"),
    Gauge("prezero", "zeroed_blocks", "blocks",
          "zeroed free blocks, one line for each zone and one column for each order"),
    Gauge("rmap", "borrowers", "areas", "areas that use their parent's anon_vmas now"),
)


def find(feature: str, name: str) -> Knob | None:
    """Return the table's entry for a knob, None if there is none."""
    return next((knob for knob in KNOBS if (knob.feature, knob.name) == (feature, name)), None)


def example() -> str:
    """Return an example of quire.conf: each knob with its default, as a comment."""
    parts = ["# An example of /etc/quire.conf. Each line sets one knob: feature.knob = value. quirectl apply,\n"
             "# and quire.service at boot, set them in this order. Each knob is here with its default.\n"]
    for feature in dict.fromkeys(knob.feature for knob in KNOBS):
        lines = [f"\n# {feature}\n"]
        for knob in (knob for knob in KNOBS if knob.feature == feature and knob.unit != "action"):
            lines.append(f"# {knob.bounds} ({knob.unit}): {knob.what}\n#{feature}.{knob.name} = {knob.default}\n")
        lines.append(f"# the switch, 0 or 1\n#{feature}.enabled = 0\n")
        parts += lines
    return "".join(parts)


GUIDE = """\
# Knobs

The knobs of each feature are files in `/sys/kernel/mm/quire/FEATURE/`, except that scrub_load, scrub_start and
scrub_stop are in `/proc/sys/vm/`. `quirectl knobs set` changes them. The kernel refuses a value out of bounds and
changes nothing. The bounds are those of x86-64 with all features. The kernel's source decides: a test compares the
table in `tool/quirelib/knobs.py` with it, and another compares this page, which
`python3 tool/quirelib/knobs.py >docs/knobs.md` writes, with the table. The pages of the features say what each choice
costs and brings: [fork](fork.md), [shm](shm.md), [prezero](prezero.md), [text](text.md), [rmap](rmap.md).

Each feature also has `enabled`: 0 switches it off, 1 on, and 2 switches it off and undoes what is shared or pooled.
"""


def guide() -> str:
    """Return docs/knobs.md: a table for each feature, and one of gauges."""
    parts = [GUIDE]
    for feature in dict.fromkeys(knob.feature for knob in KNOBS):
        parts.append(f"\n## {feature}\n\n| knob | takes | default | unit | what it does |\n|---|---|---|---|---|\n")
        parts += [f"| `{knob.name}` | {knob.bounds} | {knob.default} | {knob.unit} | {knob.what} |\n"
                  for knob in KNOBS if knob.feature == feature]
    parts.append("\n## Gauges\n\n`quirectl gauges` prints them; they are read-only.\n\n"
                 "| feature | gauge | unit | what it shows |\n|---|---|---|---|\n")
    parts += [f"| {gauge.feature} | `{gauge.name}` | {gauge.unit} | {gauge.what} |\n" for gauge in GAUGES]
    return "".join(parts)


def kernel_guide() -> str:
    """Return the section about knobs of the kernel's administrator's guide."""
    parts = ["Knobs\n=====\n\nThe bounds are those of x86-64 with all features. scrub_load, scrub_start and\n"
             "scrub_stop are in ``/proc/sys/vm``, the others in\n``/sys/kernel/mm/quire/FEATURE``.\n"]
    for knob in KNOBS:
        text = textwrap.fill(f"{knob.bounds} ({knob.unit}), default {knob.default}; {knob.what}.", 72,
                             break_on_hyphens=False)
        parts.append(f"``{knob.feature}/{knob.name}``\n" + textwrap.indent(text, "\t") + "\n")
    return "\n".join(parts)


if __name__ == "__main__":
    wanted = {"example": example, "kernel": kernel_guide}.get(" ".join(sys.argv[1:]), guide)
    sys.stdout.write(wanted())
