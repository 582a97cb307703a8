# SPDX-License-Identifier: GPL-2.0
"""Make the Debian package quire, which has no files: it depends on one of our kernels and on quire-tools.

A kernel of a newer base has another package name, which apt never installs by itself as an upgrade of the old one.
With each kernel comes a newer version of this package, which depends on that kernel: `apt upgrade` follows it. The
version is the kernel's with the number of commits to guest/meta, so that it grows with either; the same kernel and the
same commit give the same package.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from guest import debhelper, paths

PACKAGE = "quire"
SOURCES = ("guest/meta",)
STAGE = paths.BUILD / "deb-meta"
OUTPUT = debhelper.OUTPUT


def version(image: Path) -> str:
    """Return the package's version; a dash would divide it into upstream's part and ours, as in a foreign package."""
    return f"{debhelper.field(image, 'Version').replace('-', '+')}.{debhelper.commits(*SOURCES)}"


def make(image: Path) -> Path:
    """Build the package that depends on the kernel in the package `image`, and return it."""
    debhelper.need()
    name = debhelper.field(image, "Package")
    with paths.build_lock():
        shutil.rmtree(STAGE, ignore_errors=True)
        folder = STAGE / PACKAGE
        shutil.copytree(paths.REPO / "guest/meta", folder)
        debhelper.make_source(folder, version(image), SOURCES)
        return debhelper.make(folder, OUTPUT, QUIRE_IMAGE=f"{name} (>= {debhelper.field(image, 'Version')})",
                              QUIRE_HEADERS=name.replace("linux-image-", "linux-headers-", 1))
