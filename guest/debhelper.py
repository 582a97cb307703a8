# SPDX-License-Identifier: GPL-2.0
"""Shared by the makers of Debian packages: build one with debhelper, ask dpkg about one, and tell what was made.

A package's source is a folder with debian/; the changelog is written here. The version comes from the caller, and the
date is that of the last commit to the sources: the same commit gives the same package.
"""

from __future__ import annotations

import email.utils
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from guest import build, cli, paths, tree

OUTPUT = paths.BUILD / "deb"
CHANGELOG = """\
{package} ({version}) stable; urgency=medium

  * See the log of the repository.

 -- {maintainer}  {date}
"""


def git(arguments: list[str], sources: tuple[str, ...]) -> str:
    """Return what git says about some paths of the repository, "" if it knows nothing of them."""
    if not shutil.which("git"):
        return ""
    done = subprocess.run(["git", *arguments, "--", *sources], cwd=paths.REPO, text=True, check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return done.stdout.strip() if done.returncode == 0 else ""


def commits(*sources: str) -> str:
    """Return the number of commits to some paths, which only grows."""
    return git(["rev-list", "--count", "HEAD"], sources) or "0"


def field(package: Path, name: str) -> str:
    """Return a field of a package's control file."""
    done = subprocess.run(["dpkg-deb", "--field", str(package), name], text=True, check=True, stdout=subprocess.PIPE)
    return done.stdout.strip()


def need() -> None:
    """Raise BuildError if debhelper is missing."""
    if not shutil.which("dh"):
        raise build.BuildError("debhelper is missing: sudo apt install debhelper")


def make_source(folder: Path, version: str, sources: tuple[str, ...]) -> None:
    """Complete a source folder: write its changelog, and give all files the time of the last commit to `sources`."""
    seconds = int(git(["log", "-1", "--format=%ct"], sources) or 0)
    control = (folder / "debian/control").read_text(encoding="utf-8")
    package, maintainer = (re.findall(rf"^{name}: (.*)$", control, re.M)[0] for name in ("Source", "Maintainer"))
    (folder / "debian/changelog").write_text(
        CHANGELOG.format(package=package, version=version, maintainer=maintainer,
                         date=email.utils.formatdate(seconds)), encoding="utf-8")
    for path in folder.rglob("*"):
        os.utime(path, (seconds, seconds))


def make(folder: Path, output: Path, **environment: str) -> Path:
    """Build the one package of a source folder, replace older ones of its name in `output`, and return it.

    The caller holds the build lock. Raises BuildError.
    """
    log = folder.parent / "build.log"
    with open(log, "wb") as to:
        done = subprocess.run(["dpkg-buildpackage", "--no-sign", "--build=binary"], cwd=folder, check=False,
                              env={**os.environ, **environment}, stdin=subprocess.DEVNULL, stdout=to,
                              stderr=subprocess.STDOUT)
    made = list(folder.parent.glob("*.deb"))
    if done.returncode or len(made) != 1:
        raise build.BuildError(f"no package was made: see {log}")
    output.mkdir(exist_ok=True)
    for old in output.glob(f"{field(made[0], 'Package')}_*.deb"):
        old.unlink()
    return Path(shutil.move(made[0], output / made[0].name))


def attempt(goal: str, work: Callable[[], None]) -> int:
    """Do the work of a goal of the Makefile; print in one line why it failed, and return the exit status."""
    try:
        work()
    except (build.BuildError, tree.TreeError, OSError, MemoryError) as error:
        print(f"error: {cli.explain(error)}", file=sys.stderr)
        return 1
    except subprocess.CalledProcessError as error:
        print(f"error: `{' '.join(map(str, error.cmd))}` failed (its messages are above): fix that and run "
              f"`make {goal}` again", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def tell(goal: str, made: Callable[[], list[Path]], then: str = "") -> int:
    """Make packages and print their paths and how to install them, or why there are none; return the exit status."""
    def work() -> None:
        found = [path.relative_to(paths.REPO) for path in made()]
        print("\n".join(map(str, found)))
        print(f"install: sudo apt install {' '.join(f'./{path}' for path in found)}{then}", file=sys.stderr)
    return attempt(goal, work)
