# SPDX-License-Identifier: GPL-2.0
"""Make the Debian package quire-tools in build/deb: quirectl and what belongs to it, for all machines.

This builds no kernel, and packages only tool/ and docs/man. The version is quire's, with the number of commits to these
folders as revision; the date is that of the last of these commits. The same commit gives the same package.
"""

from __future__ import annotations

import email.utils
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from guest import build, cli, deb, packages, paths

PACKAGE = "quire-tools"
SOURCES = ("tool", "docs/man")
STAGE = paths.BUILD / "deb-tools"
OUTPUT = deb.OUTPUT
CHANGELOG = """\
{package} ({version}) stable; urgency=medium

  * See the log of the repository.

 -- {maintainer}  {date}
"""


def _git(*arguments: str) -> str:
    """Return what git says about our sources, "" if it knows nothing of them."""
    done = subprocess.run(["git", *arguments, "--", *SOURCES], cwd=paths.REPO, text=True, check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return done.stdout.strip() if done.returncode == 0 else ""


def version() -> str:
    """Return the package's version, which only grows."""
    header = (paths.OVERLAY / "mm/quire/core/quire.h").read_text(encoding="utf-8")
    found = re.search(r'^#define QUIRE_VERSION "([^"]+)"', header, re.M)
    if not found:
        raise build.BuildError("kernel/overlay/mm/quire/core/quire.h has no QUIRE_VERSION: define it there")
    return f"{found.group(1)}+{_git('rev-list', '--count', 'HEAD') or '0'}"


def stage() -> Path:
    """Make a source folder for debhelper, and return it."""
    shutil.rmtree(STAGE, ignore_errors=True)
    folder = STAGE / f"{PACKAGE}-{version()}"
    shutil.copytree(paths.REPO / "tool", folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(paths.REPO / "docs/man", folder / "man")
    seconds = int(_git("log", "-1", "--format=%ct") or 0)
    control = (folder / "debian/control").read_text(encoding="utf-8")
    maintainer, = re.findall(r"^Maintainer: (.*)$", control, re.M)
    (folder / "debian/changelog").write_text(
        CHANGELOG.format(package=PACKAGE, version=version(), maintainer=maintainer,
                         date=email.utils.formatdate(seconds)), encoding="utf-8")
    for path in folder.rglob("*"):
        os.utime(path, (seconds, seconds))
    return folder


def make() -> Path:
    """Build the package and return it."""
    if not shutil.which("dh"):
        raise build.BuildError("debhelper is missing: sudo apt install debhelper")
    with paths.build_lock():
        folder = stage()
        log = STAGE / "build.log"
        with open(log, "wb") as output:
            done = subprocess.run(["dpkg-buildpackage", "--no-sign", "--build=all"], cwd=folder, check=False,
                                  stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
        made = list(STAGE.glob(f"{PACKAGE}_*_all.deb"))
        if done.returncode or len(made) != 1:
            raise build.BuildError(f"no package was made: see {log}")
        OUTPUT.mkdir(exist_ok=True)
        for old in OUTPUT.glob(f"{PACKAGE}_*.deb"):
            old.unlink()
        return Path(shutil.move(made[0], OUTPUT / made[0].name))


def asked() -> list[Path]:
    """Install the build dependencies that are missing, and make the package."""
    packages.ensure("to package")
    return [make()]


def main(argv: list[str] | None = None) -> int:
    """Command line."""
    parser = cli.Parser(prog="python3 -m guest.deb_tools", description=(__doc__ or "").splitlines()[0])
    parser.parse_args(argv)
    return deb.tell("deb-tools", asked)


if __name__ == "__main__":
    sys.exit(main())
