# SPDX-License-Identifier: GPL-2.0
"""The objects of a variant, and the record of vanilla's objects in the repository (tests/record.py).

The record holds a digest of each object in the folders that a check compares, so that a check need not compile vanilla.
The record is valid only if base, configuration, compiler and assembler are those that it was made with.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import elf
import sets
from guest import build, paths, tree

NAME = "objects"
RECORD = sets.RECORDS / f"{NAME}.json"
# This object holds the configuration as text, which names our symbols as not set.
CONFIGURED = {"kernel/configs.o"}
# Made from the linked image.
LINKED = ("arch/x86/boot/", ".tmp_", "vmlinux")


def of(variant: str, folders: tuple[str, ...] = ("",)) -> dict[str, Path]:
    """Return the compiled objects of a variant below some folders, by path."""
    top = build.objects_of(variant)
    found = {path.relative_to(top).as_posix(): path for path in top.rglob("*.o")}
    return {name: path for name, path in sorted(found.items()) if name.startswith(folders)
            and not name.startswith((*LINKED, "scripts/", "tools/")) and name not in CONFIGURED}


def digest(path: Path) -> str:
    """Return a digest of what an object adds to the kernel; it is equal if elf.differences() finds nothing."""
    return hashlib.sha256(repr(sorted(elf.content(path).items())).encode()).hexdigest()[:20]


def key() -> dict[str, str]:
    """Return what vanilla's objects depend on."""
    return {
        "base": tree.kernel_version(paths.BASE),
        "configuration": build.config_hash("vanilla"),
        "compiler": sets.version_of("gcc"),
        "assembler": sets.version_of("as"),
        "comparison": hashlib.sha256(Path(elf.__file__).read_bytes()).hexdigest(),
    }


def misfit() -> str:
    """Say why the record is not valid for vanilla's objects here, "" if it is."""
    known = paths.read_stamp(RECORD)
    if known is None:
        return "there is no record"
    return "; ".join(f"{part}: {value} here, {known['key'].get(part)} in the record"
                     for part, value in key().items() if known["key"].get(part) != value)


def recorded() -> dict[str, str]:
    """Return the recorded digests of vanilla's objects, by path."""
    return dict(paths.read_stamp(RECORD)["objects"])


def record() -> None:
    """Write the record from vanilla's objects, which must have been built."""
    found = {name: digest(path) for name, path in of("vanilla", build.DIRECTORIES).items()}
    paths.write_whole(RECORD, json.dumps({"key": key(), "objects": found}, indent=1) + "\n")
    print(f"{NAME}: {len(found)} objects", flush=True)
