# SPDX-License-Identifier: GPL-2.0
"""The features' selftests, as programs that guests run."""

from __future__ import annotations

import fcntl
import os
import subprocess
from pathlib import Path

from guest import paths

SOURCE = paths.OVERLAY / "tools/testing/selftests/quire"
FOLDER = paths.BUILD / "selftests"


class ProgramsError(Exception):
    """The selftests cannot be built; the message ends with what the compiler says."""


def build() -> Path:
    """Build the selftests, one caller at a time, and return their folder. Raises ProgramsError."""
    paths.BUILD.mkdir(exist_ok=True)
    with open(paths.BUILD / ".selftests.lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = subprocess.run(["make", f"-j{os.cpu_count()}", "-C", str(SOURCE), f"OUTPUT={FOLDER}",
                               f"KSFT={paths.TREE / 'tools/testing/selftests'}"], text=True, check=False,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode:
        tail = "\n".join(done.stdout.splitlines()[-40:])
        raise ProgramsError(f"the selftests do not build:\n{tail}")
    return FOLDER
