# SPDX-License-Identifier: GPL-2.0
"""Compare two x86-64 relocatable objects by what reaches the machine.

Left out: symbol and string tables' order, comments and notes, line numbers in __bug_table, and the numbers that the
kernel's macros take from __LINE__ and __COUNTER__ into names of symbols and sections.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from pathlib import Path

SHT_SYMTAB, SHT_RELA, SHT_NOBITS, SHF_ALLOC = 2, 4, 8, 2
BUG_ENTRY = 12      # struct bug_entry: address, file, line (two bytes at 8), flags


@dataclass
class Section:
    """One section of an object."""

    name: str
    kind: int
    flags: int
    data: bytes
    size: int
    info: int
    link: int


def _name(table: bytes, at: int) -> str:
    return table[at:table.index(b"\0", at)].decode()


def sections(path: Path) -> list[Section]:
    """Return the sections of an ELF64 little-endian object."""
    image = path.read_bytes()
    if image[:6] != b"\x7fELF\x02\x01":
        raise ValueError(f"{path} is not an ELF64 object")
    start, = struct.unpack_from("<Q", image, 40)
    size, count, names = struct.unpack_from("<HHH", image, 58)
    headers = [struct.unpack_from("<IIQQQQIIQQ", image, start + index * size) for index in range(count)]
    table = image[headers[names][4]:headers[names][4] + headers[names][5]]
    return [Section(_name(table, head[0]), head[1], head[2],
                    b"" if head[1] == SHT_NOBITS else image[head[4]:head[4] + head[5]], head[5], head[7], head[6])
            for head in headers]


def _plain(name: str) -> str:
    return re.sub(r"\d+", "N", name)


def _symbols(parts: list[Section]) -> list[str]:
    """Return what each symbol stands for: its name, or for sections and local symbols its place."""
    found: list[str] = []
    for part in parts:
        if part.kind != SHT_SYMTAB:
            continue
        strings = parts[part.link].data
        for at in range(0, len(part.data), 24):
            name, info, _, index, value, _ = struct.unpack_from("<IBBHQQ", part.data, at)
            where = parts[index].name if 0 < index < len(parts) else str(index)
            kind = info & 15
            found.append(_plain(f"section {where}" if kind == 3 else f"{_name(strings, name)} {where}") +
                         (f"+{value}" if kind != 3 else ""))
    return found


def content(path: Path) -> dict[str, object]:
    """Return what an object contributes to the kernel, in a form that can be compared."""
    parts = sections(path)
    symbols = _symbols(parts)
    result: dict[str, object] = {}

    def put(key: str, value: object) -> None:
        result[f"{key} #{sum(1 for known in result if known.split(' #')[0] == key)}"] = value

    for part in parts:
        if part.kind == SHT_RELA and parts[part.info].flags & SHF_ALLOC:
            put(f"relocations of {_plain(parts[part.info].name)}",
                [(offset, info & 0xffffffff, symbols[info >> 32], addend)
                 for offset, info, addend in struct.iter_unpack("<QQq", part.data)])
        elif part.flags & SHF_ALLOC and not part.name.startswith(".note"):
            data = bytearray(part.data)
            if part.name == "__bug_table":
                for at in range(0, len(data), BUG_ENTRY):
                    data[at + 8:at + 10] = b"\0\0"
            put(_plain(part.name), (part.flags, part.size, bytes(data)))
    return result


def differences(one: Path, other: Path) -> list[str]:
    """Return the names of what differs between two objects."""
    if one.read_bytes() == other.read_bytes():
        return []
    first, second = content(one), content(other)
    return sorted(key for key in first.keys() | second.keys() if first.get(key) != second.get(key))
