# SPDX-License-Identifier: GPL-2.0
"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from quirelib.surface import Refused

LINKS = 40  # how many links after one another the kernel follows


def write_whole(path: Path, content: str | bytes, mode: int = 0o644) -> None:
    """Write a file atomically: readers see the old content or the new. Raises Refused.

    "-" and /dev/stdout are standard output. What is no regular file, such as a device, is written to and stays. So does
    a symbolic link, unless another user made it, who must not choose what root writes to.
    """
    data = content.encode() if isinstance(content, str) else content
    if str(path) in ("-", "/dev/stdout"):
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        return
    temporary = ""
    try:
        _trust(path)
        if path.exists() and not path.is_file() and not path.is_dir():
            path.write_bytes(data)
            return
        for _ in range(LINKS):
            if path.is_symlink():
                path = path.parent / os.readlink(path)
                _trust(path)
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


def _trust(path: Path) -> None:
    """Raise Refused if a path is a link that belongs neither to this user nor to the owner of its folder."""
    if path.is_symlink() and path.lstat().st_uid not in (os.geteuid(), path.parent.stat().st_uid):
        raise Refused(f"{path} is a link that another user made. Remove it, or name another file with --output.")


def _advice(error: OSError) -> str:
    if isinstance(error, PermissionError):
        return " Run quirectl as root, or name another file with --output."
    if isinstance(error, FileNotFoundError):
        return " Create its folder first."
    return ""
