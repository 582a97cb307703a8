# SPDX-License-Identifier: GPL-2.0
"""Read the kernel's source for its files in sysfs: knobs with their bounds and defaults, gauges, counters.

make() creates a fake root with all of these files, for tests of quirectl.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from guest import paths

SOURCES = paths.OVERLAY / "mm/quire"
FEATURES = ("fork", "shm", "prezero", "text", "rmap")
# The values of these on x86-64 with 4 kB pages, in a kernel with all features and without debug checks.
NAMES = {"PMD_SIZE": 2 << 20, "HPAGE_PMD_NR": 512, "MAX_PAGE_ORDER": 10, "IS_ENABLED(CONFIG_QUIRE_SHM)": 1,
         "IS_ENABLED(CONFIG_DEBUG_VM)": 0, "SYSCTL_ZERO": 0, "SYSCTL_ONE": 1, "SYSCTL_ONE_THOUSAND": 1000}
MACRO = re.compile(r"QUIRE_UINT_KNOB\(\s*(\w+),\s*(\w+),\s*([^,]+),\s*([^;]+)\);")
STRUCT = re.compile(r"struct quire_uint_attr \w+ = \{\s*\.attr = __ATTR\((\w+),[^)]*\),\s*\.value = &(\w+),([^}]*)\}")
SYSCTL = re.compile(r'\.procname\s*= "(\w+)",\s*\.data\s*= &(\w+),.*?\.extra1\s*= (\w+),\s*\.extra2\s*= (\w+)', re.S)


@dataclass(frozen=True)
class Bounds:
    """The bounds and the default of a numeric knob."""

    low: int
    high: int
    default: int


def value(expression: str) -> int:
    """Return the value of a constant C expression."""
    for name in sorted(NAMES, key=len, reverse=True):
        expression = expression.replace(name, str(NAMES[name]))
    expression = re.sub(r"(\d)U?L*\b", r"\1", expression.strip())
    assert re.fullmatch(r"[\d\s<>/*+()-]+", expression), f"what is {expression!r}? Add it to NAMES"
    return int(eval(expression.replace("/", "//")))


@cache
def text(feature: str) -> str:
    """Return the source of a feature, without its tests."""
    return "\n".join(path.read_text(encoding="utf-8") for path in sorted((SOURCES / feature).glob("*.c"))
                     if not path.name.endswith("_test.c"))


def default(feature: str, variable: str) -> int:
    """Return the initial value of a variable."""
    found = re.search(rf"^(?:static )?unsigned int {variable}(?: __read_mostly)?(?: = ([^;]+))?;", text(feature), re.M)
    assert found, f"{feature}: no unsigned int {variable}"
    return value(found.group(1)) if found.group(1) else 0


@cache
def numbers() -> dict[tuple[str, str], Bounds]:
    """Return the numeric knobs, sysctls included, by feature and name."""
    found = {}
    for feature in FEATURES:
        for name, variable, low, high in MACRO.findall(text(feature)) + SYSCTL.findall(text(feature)):
            found[feature, name] = Bounds(value(low), value(high), default(feature, variable))
        for name, variable, rest in STRUCT.findall(text(feature)):
            ends = dict(re.findall(r"\.(min|max) = ([^,]+),", rest))
            found[feature, name] = Bounds(value(ends.get("min", "0")), value(ends["max"]), default(feature, variable))
    return found


def others(kind: str) -> set[tuple[str, str]]:
    """Return the files that have their own functions: RW, RO (gauges) or WO, by feature and name."""
    return {(feature, name) for feature in FEATURES
            for name in re.findall(rf"^QUIRE_ATTR_{kind}\((\w+)\);", text(feature), re.M)}


def names_of(counters_of: str, source: str) -> list[str]:
    """Return the names in a struct quire_counters, including those that its list takes from a macro."""
    listed = re.search(rf"struct quire_counters {counters_of} = \{{\s*\.names = (\w+),", source)
    assert listed, counters_of
    table = re.search(rf"\b{listed.group(1)}\[\] = \{{(.*?)\n\}};", source, re.S)
    assert table, listed.group(1)
    macros = dict(re.findall(r"^#define (\w+_NAMES)\s((?:.*\\\n)+.*)", source, re.M))
    return re.findall(r'"(\w+)"', re.sub(r"\w+_NAMES", lambda use: macros[use[0]], table.group(1)))


@cache
def counters(feature: str) -> list[str]:
    """Return the names in stats/, including those of the page-table layer."""
    sets = re.search(r"\.counters = \{ (.*?) \},", text(feature))
    assert sets, feature
    return [name for one in re.findall(r"&(\w+)", sets.group(1)) for name in names_of(one, text(feature) + text("pt"))]


ZEROED = "\n".join(f"Node 0, zone {zone:>8} " + "".join(f"{number:6} " for number in range(11))
                   for zone in ("DMA32", "Normal"))


def make(root: Path, on: tuple[str, ...] = ("fork", "prezero")) -> Path:
    """Fill a root with the files of a quire kernel, each with its mode; the counters are 1, 2, 3... in order."""
    top = root / "sys/kernel/mm/quire"
    files = {top / "version": ("0.1", 0o444), root / "proc/sys/kernel/osrelease": ("6.12.117-quire", 0o444),
             root / "proc/cmdline": ("root=/dev/vda quire=fork,prezero console=ttyS0", 0o444)}
    for feature in FEATURES:
        files[top / feature / "enabled"] = (str(int(feature in on)), 0o644)
        files[top / feature / "state"] = ("on" if feature in on else "off", 0o444)
        for number, name in enumerate(counters(feature), 1):
            files[top / feature / "stats" / name] = (str(number), 0o444)
    for (feature, name), knob in numbers().items():
        folder = root / "proc/sys/vm" if (feature, name) in sysctls() else top / feature
        files[folder / name] = (str(knob.default), 0o644)
    for feature, name in others("RO"):
        files[top / feature / name] = (ZEROED if name == "zeroed_blocks" else "5", 0o444)
    files[top / "prezero/engine"] = ("cpu", 0o644)
    files[top / "prezero/scrub_now"] = ("", 0o200)
    for path, (content, mode) in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content + "\n", encoding="utf-8")
        path.chmod(mode)
    return root


def sysctls() -> set[tuple[str, str]]:
    """Return the knobs that are in /proc/sys/vm."""
    return {(feature, found[0]) for feature in FEATURES for found in SYSCTL.findall(text(feature))}
