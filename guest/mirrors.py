# SPDX-License-Identifier: GPL-2.0
"""Guard the code of ours that repeats what a function of Linux does.

kernel/mirrors names these functions and structures, the file of ours that repeats each, and a digest of its text in the
base, without comments and white space. If another base has another text, no tree is made until somebody has compared
it and has run --accept. The hooks need no such guard: they do not apply if their context has changed.
"""

from __future__ import annotations

import hashlib
import re
import sys
from dataclasses import dataclass, replace
from pathlib import Path

from guest import cli, paths

MIRRORS = paths.REPO / "kernel" / "mirrors"


class MirrorError(Exception):
    """A function is not what our code repeats, or cannot be found."""


@dataclass(frozen=True)
class Mirror:
    """A function, or a `struct NAME` or `enum NAME`, of a file of Linux, and the file of ours that repeats it."""

    path: str
    name: str
    ours: str
    digest: str


def read(listed: Path) -> list[Mirror]:
    """Return what a list says: a line has a path, a name (struct_NAME, enum_NAME), our path and a digest."""
    lines = [line.split("#", 1)[0].split() for line in listed.read_text(encoding="utf-8").splitlines()]
    wrong = [" ".join(fields) for fields in lines if fields and len(fields) != 4]
    if wrong:
        raise MirrorError(f"{listed.name}: not PATH NAME OURS DIGEST: {wrong[0]}")
    return [Mirror(*fields) for fields in lines if fields]


def text_of(source: str, name: str) -> str:
    """Return the definitions of a function, structure or enumeration in a file of C, one for each #if; "" if there is
    none.

    A definition begins at a line that is not indented and names it, and ends at the first closing brace that is not
    indented.
    """
    head = rf"{name.replace('_', ' ', 1)} \{{" if name.startswith(("struct_", "enum_")) else \
        rf"(?:[A-Za-z_][^\n;{{}}]*[ *])?{re.escape(name)}\([^;{{}}]*\)\s*\{{"
    return "".join(one.group() for one in re.finditer(rf"^{head}.*?^\}}", source, re.M | re.S))


def digest_of(text: str) -> str:
    """Return the digest of C code, which comments and white space do not change."""
    code = re.sub(r"/\*.*?\*/|//[^\n]*", "", text, flags=re.S)
    return hashlib.sha256("".join(code.split()).encode()).hexdigest()[:16]


def found(base: Path, mirror: Mirror) -> str:
    """Return the digest of a function's text in a base; raises MirrorError if it is not there."""
    path = base / mirror.path
    text = text_of(path.read_text(encoding="utf-8"), mirror.name) if path.is_file() else ""
    if not text:
        raise MirrorError(f"{mirror.path} does not define {mirror.name}, which {mirror.ours} repeats: find where it "
                          "is now, and correct kernel/mirrors")
    return digest_of(text)


def check(base: Path, listed: Path = MIRRORS) -> None:
    """Raise MirrorError, with the names, if a base has functions that are not what our code repeats."""
    changed = [mirror for mirror in read(listed) if found(base, mirror) != mirror.digest]
    if changed:
        raise MirrorError("\n".join([
            "this base has changed what code of ours repeats:",
            *(f"  {mirror.path}: {mirror.name}, repeated by kernel/overlay/{mirror.ours}" for mirror in changed),
            "set LINUX to a base that base.conf lists as verified, or compare them, then run "
            "`python3 -m guest.mirrors --accept`"]))


def accept(base: Path, listed: Path = MIRRORS) -> list[Mirror]:
    """Write the digests of a base into the list; return what has changed."""
    lines, changed = listed.read_text(encoding="utf-8"), []
    for mirror in read(listed):
        now = replace(mirror, digest=found(base, mirror))
        if now != mirror:
            changed.append(now)
            lines = re.sub(rf"^({re.escape(mirror.path)}\s+{mirror.name}\s+\S+\s+)\S+", rf"\g<1>{now.digest}", lines,
                           flags=re.M)
    paths.write_whole(listed, lines)
    return changed


def main(argv: list[str] | None = None) -> int:
    """Command line."""
    parser = cli.Parser(prog="python3 -m guest.mirrors", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--accept", action="store_true", help="take the text of build/base as what our code repeats")
    args = parser.parse_args(argv)
    try:
        if args.accept:
            for mirror in accept(paths.BASE):
                print(f"{mirror.path}: {mirror.name}")
        else:
            check(paths.BASE)
    except (MirrorError, OSError) as error:
        print(f"error: {cli.explain(error)}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
