# SPDX-License-Identifier: GPL-2.0
"""Prepare PostgreSQL's own regression suite for the server that is installed.

Debian's binary packages have the program that drives the suite, but only the source package has the suite itself. The
source package is fetched from the archives that apt knows, in the server's version if they still have it. Nothing is
installed, and apt's own lists do not change. The headers for the suite's C functions are unpacked from
postgresql-server-dev, because installing that would also install LLVM and more.
"""

from __future__ import annotations

import fcntl
import re
import subprocess
import tempfile
from pathlib import Path

from guest import paths

SERVERS = Path("/usr/lib/postgresql")
DRIVER = "lib/pgxs/src/test/regress/pg_regress"
FOLDER = paths.BUILD / "pg_regress"
SOURCES = Path("/etc/apt")


class Unavailable(Exception):
    """The suite is not available on this machine."""


def server() -> Path:
    """Return where the newest server is installed, such as /usr/lib/postgresql/15; raises Unavailable."""
    found = [program.parent.parent for program in SERVERS.glob("*/bin/postgres")]
    found = [prefix for prefix in found if (prefix / DRIVER).exists()]
    if not found:
        raise Unavailable(f"no PostgreSQL server with its {Path(DRIVER).name} is installed")
    return max(found, key=lambda prefix: [int(number) for number in prefix.name.split(".")])


def with_sources(text: str, deb822: bool) -> str:
    """Return one of apt's lists of archives, extended to ask for their source packages, too."""
    if deb822:
        return re.sub(r"^Types:.*", "Types: deb deb-src", text, flags=re.M)
    return re.sub(r"^deb([ \t].*)", r"deb\1\ndeb-src\1", text, flags=re.M)


def _apt(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run apt-get with the lists of its archives, and all its state, in a folder."""
    options = {"Dir::Etc::sourcelist": "/dev/null", "Dir::Etc::sourceparts": f"{folder}/sources",
               "Dir::State::lists": f"{folder}/lists", "Dir::Cache": f"{folder}/cache", "Acquire::Languages": "none",
               "APT::Sandbox::User": "root"}
    try:
        return subprocess.run(["apt-get", "-q", *(f"-o{name}={value}" for name, value in options.items()), *command],
                              cwd=folder, text=True, check=False, timeout=900, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    except subprocess.TimeoutExpired as error:
        raise Unavailable(f"apt-get {' '.join(command)} does not end") from error


def _update(folder: Path) -> None:
    """Fetch the lists of the archives that the machine's apt knows, including those of source packages."""
    for name in ("sources", "lists/partial", "cache/archives/partial"):
        (folder / name).mkdir(parents=True)
    for path in [SOURCES / "sources.list", *(SOURCES / "sources.list.d").glob("*")]:
        if path.suffix in (".list", ".sources") and path.is_file():
            text = with_sources(path.read_text(encoding="utf-8"), path.suffix == ".sources")
            (folder / "sources" / path.name).write_text(text, encoding="utf-8")
    said = _apt(folder, "update").stdout
    # An archive may have no source packages. This is no error, because another archive may have the package.
    if not list((folder / "lists").glob("*_Sources*")):
        complaint = re.search(r"^[EW]: .*", said, re.M)
        raise Unavailable(f"no list of source packages can be had: {complaint[0] if complaint else 'no archives'}")


def _fetch(folder: Path, command: list[str], package: str, version: str) -> None:
    """Fetch a package into a folder, in any version if the given version is gone."""
    for wanted in (f"{package}={version}", package):
        done = _apt(folder, *command, wanted)
        if done.returncode == 0:
            return
    raise Unavailable(f"apt-get {' '.join(command)} {package}: {done.stdout.strip().splitlines()[-1]}")


def _only(folder: Path, pattern: str) -> Path:
    """Return the one file that was fetched."""
    found, = folder.glob(pattern)
    return found


def _make(folder: Path, prefix: Path, source: str, source_version: str, version: str) -> Path:
    """Make the suite; `folder` takes everything that is fetched. Return the suite's folder."""
    _update(folder)
    headers = prefix.parent.parent.parent / "include/postgresql" / prefix.name / "server"
    _fetch(folder, ["source", "--download-only"], source, source_version)
    if not (headers / "postgres.h").exists():
        package = f"postgresql-server-dev-{prefix.name}"
        _fetch(folder, ["download"], package, version)
        subprocess.run(["dpkg", "-x", str(_only(folder, f"{package}_*.deb")), str(folder / "headers")], check=True)
        headers = folder / "headers" / headers.relative_to("/")
    suite = folder / "suite"
    suite.mkdir()
    subprocess.run(["tar", "-xf", str(_only(folder, f"{source}_*.orig.tar.*[!c]")), "-C", str(suite), "--wildcards",
                    "--no-same-owner", "--no-same-permissions", "--strip-components=4", "*/src/test/regress/*"],
                   check=True)
    subprocess.run(["gcc", "-O2", "-fPIC", "-shared", "-w", "-I", str(headers), "-o", str(suite / "regress.so"),
                    str(suite / "regress.c")], check=True)
    return suite


def prepare(prefix: Path) -> Path:
    """Return the folder of the suite for a server, which is made only once; raises Unavailable."""
    done = subprocess.run(["dpkg-query", "-W", "-f", "${source:Package} ${source:Version} ${Version}",
                           f"postgresql-{prefix.name}"], text=True, check=False, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL)
    if done.returncode:
        raise Unavailable(f"{prefix} is not of a Debian package")
    source, source_version, version = done.stdout.split()
    suite = FOLDER / version
    FOLDER.mkdir(parents=True, exist_ok=True)
    with open(FOLDER / ".lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not suite.exists():
            with tempfile.TemporaryDirectory(dir=FOLDER) as temporary:
                _make(Path(temporary), prefix, source, source_version, version).rename(suite)
    return suite
