# SPDX-License-Identifier: GPL-2.0
"""Small packages that stand for those of a kernel, which take an hour to build."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

IMAGE = "linux-image-6.12.117-quire"
CONTROL = """\
Package: {name}
Version: {version}
Architecture: {architecture}
Maintainer: quire <quire@localhost>
{more}Description: stands for another package
"""


def make(folder: Path, name: str = IMAGE, version: str = "6.12.117-310", architecture: str = "amd64",
         **fields: str) -> Path:
    """Make a package without files, by dpkg-deb, and return it; `fields` are more lines of its control file."""
    content = folder / "content" / f"{name}_{version}"
    (content / "DEBIAN").mkdir(parents=True)
    more = "".join(f"{key}: {value}\n" for key, value in fields.items())
    (content / "DEBIAN/control").write_text(
        CONTROL.format(name=name, version=version, architecture=architecture, more=more), encoding="utf-8")
    for path in (content, content / "DEBIAN"):
        os.chmod(path, 0o755)
    package = folder / f"{name}_{version}_{architecture}.deb"
    subprocess.run(["dpkg-deb", "--root-owner-group", "--build", str(content), str(package)], check=True,
                   stdout=subprocess.DEVNULL)
    return package
