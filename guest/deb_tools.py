# SPDX-License-Identifier: GPL-2.0
"""Make the Debian package quire-tools in build/deb: quirectl and what belongs to it, for all machines.

This builds no kernel, and packages only tool/ and docs/man. The version is quire's, with the number of commits to these
folders as revision; the date is that of the last of these commits. The same commit gives the same package.
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

from guest import build, cli, debhelper, packages, paths

PACKAGE = "quire-tools"
SOURCES = ("tool", "docs/man")
STAGE = paths.BUILD / "deb-tools"
OUTPUT = debhelper.OUTPUT


def version() -> str:
    """Return the package's version, which only grows."""
    header = (paths.OVERLAY / "mm/quire/core/quire.h").read_text(encoding="utf-8")
    found = re.search(r'^#define QUIRE_VERSION "([^"]+)"', header, re.M)
    if not found:
        raise build.BuildError("kernel/overlay/mm/quire/core/quire.h has no QUIRE_VERSION: define it there")
    return f"{found.group(1)}+{debhelper.commits(*SOURCES)}"


def stage() -> Path:
    """Make a source folder for debhelper, and return it."""
    shutil.rmtree(STAGE, ignore_errors=True)
    folder = STAGE / f"{PACKAGE}-{version()}"
    shutil.copytree(paths.REPO / "tool", folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(paths.REPO / "docs/man", folder / "man")
    debhelper.make_source(folder, version(), SOURCES)
    return folder


def make() -> Path:
    """Build the package and return it."""
    debhelper.need()
    with paths.build_lock():
        return debhelper.make(stage(), OUTPUT)


def asked() -> list[Path]:
    """Install the build dependencies that are missing, and make the package."""
    packages.ensure("to package")
    return [make()]


def main(argv: list[str] | None = None) -> int:
    """Command line."""
    parser = cli.Parser(prog="python3 -m guest.deb_tools", description=(__doc__ or "").splitlines()[0])
    parser.parse_args(argv)
    return debhelper.tell("deb-tools", asked)


if __name__ == "__main__":
    sys.exit(main())
