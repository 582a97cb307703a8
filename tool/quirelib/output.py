# SPDX-License-Identifier: GPL-2.0
"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from quirelib.surface import Refused


def write_whole(path: Path, content: str | bytes, mode: int = 0o644) -> None:
    """Write a file atomically: readers see the old content or the new. "-" is standard output. Raises Refused."""
    data = content.encode() if isinstance(content, str) else content
    if str(path) == "-":
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        return
    temporary = ""
    try:
        # Not in /tmp: a rename is atomic only within a filesystem. Readers ignore the file, as its name begins with a
        # dot.
        fd, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        with open(fd, "wb") as file:
            file.write(data)
            os.fchmod(fd, mode)
            file.flush()
            os.fsync(fd)
        os.replace(temporary, path)
    except OSError as error:
        raise Refused(f"{path}: cannot be written: {error.strerror}.{_advice(error)}") from error
    finally:
        if temporary:
            Path(temporary).unlink(missing_ok=True)


def _advice(error: OSError) -> str:
    if isinstance(error, PermissionError):
        return " Run quirectl as root, or name another file with --output."
    if isinstance(error, FileNotFoundError):
        return " Create its folder first."
    return ""
