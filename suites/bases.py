# SPDX-License-Identifier: GPL-2.0
"""Tries the hooks on each version of the base that apt offers, and says what differs in what they touch.

For each version: whether all hooks apply without fuzz, whether the functions that our code repeats are as it takes them
to be (kernel/mirrors), and which functions that a hook edits differ from those of build/base. With --check, a clone of
this commit is also built on that version, and `make GOAL` runs there: that takes as long as in a fresh clone. What came
out is in suites/results/matrix, of which suites/publish makes a table in docs/trust.md. A version of which all is well
may be added to base.conf.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from guest import cli, mirrors, packages, paths, tree
from suites import storage

HOME = paths.BUILD / "suites" / "matrix"
GOALS = ("check", "check-debug", "quick")
HEAD = re.compile(r"^(?:[A-Za-z_][^\n;{}]*[ *])?(\w+)\([^;{}]*\)\s*\{|^((?:struct|enum) \w+) \{", re.M)


class MatrixError(Exception):
    """A version cannot be tried at all; the message says why, in one line."""


def run(command: list[str], what: str, **options: Any) -> str:
    """Run a command and return what it prints. Raises MatrixError."""
    done: subprocess.CompletedProcess[str] = subprocess.run(
        command, text=True, check=False, stdin=subprocess.DEVNULL, capture_output=True, **options)
    if done.returncode:
        said = done.stderr.strip().splitlines() or [f"it exits with {done.returncode}"]
        raise MatrixError(f"{what}: {said[-1]}")
    return done.stdout


def offered(package: str) -> dict[str, str]:
    """Return the versions of the base that apt offers: the kernel's version -> the package's, newest first."""
    lines = run(["apt-cache", "madison", package], "apt-cache").splitlines()
    found = [line.split("|")[1].strip() for line in lines if line.count("|") == 2]
    return {packages.upstream(one): one for one in found}


def tarball(conf: dict[str, str], version: str, packaged: str) -> Path:
    """Return the tarball of a version, from its package unless it is there. Raises MatrixError."""
    package, folder = conf["package"], HOME / version
    kept = folder / Path(conf["tarball"]).name
    if kept.exists():
        return kept
    folder.mkdir(parents=True, exist_ok=True)
    cli.progress(f"{version}: fetching {package} {packaged}")
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        run(["apt-get", "download", "-qq", f"{package}={packaged}"], f"apt-get download {package}={packaged}",
            cwd=temporary)
        (fetched,) = Path(temporary).glob("*.deb")
        run(["dpkg-deb", "--extract", str(fetched), temporary], "dpkg-deb")
        os.replace(Path(temporary) / conf["tarball"].lstrip("/"), kept)
    return kept


def touched() -> set[str]:
    """Return the files that hooks edit or that have what our code repeats."""
    return {name for patch in tree.series(paths.HOOKS) for name in tree.touched_by(patch)} | \
        {mirror.path for mirror in mirrors.read(mirrors.MIRRORS)}


def unpack(source: Path, folder: Path) -> None:
    """Unpack from a tarball what hooks and mirrors need, and the Makefile; what it does not have is left out."""
    wanted = sorted(touched() | {"Makefile"})
    command = ["tar", "-xf", str(source), "-C", str(folder), "--strip-components=1", "--wildcards",
               *(f"*/{name}" for name in wanted)]
    subprocess.run(command, check=False, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    tree.kernel_version(folder)


def digests(source: str) -> dict[str, str]:
    """Return the digest of each function, structure and enumeration of a file of C, by name."""
    names = {one[1] or one[2].replace(" ", "_", 1) for one in HEAD.finditer(source)}
    return {name: mirrors.digest_of(mirrors.text_of(source, name)) for name in names}


def edited(base: Path) -> dict[str, dict[str, str]]:
    """Return what hooks edit in a base that they apply to: file -> name -> its digest there. Raises TreeError."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, path in tree.stage(base, paths.HOOKS, Path(folder) / "none", Path(folder)).items():
            before, after = (digests(one.read_text(encoding="utf-8")) for one in (base / name, path))
            found[name] = {key: digest for key, digest in before.items() if after.get(key) != digest}
    return found


def differences(known: dict[str, dict[str, str]], base: Path) -> list[str]:
    """Return "file: function" for all that hooks edit and that a base has otherwise, or has not."""
    found = []
    for name, functions in sorted(known.items()):
        path = base / name
        now = digests(path.read_text(encoding="utf-8")) if path.is_file() else {}
        found += [f"{name}: {key}" for key, digest in sorted(functions.items()) if now.get(key) != digest]
    return found


def told(error: Exception) -> str:
    """Return an error of the tree or of mirrors in one line, without the advice of its last."""
    lines = [line.strip() for line in str(error).splitlines()]
    return " ".join(lines[:-1] or lines)


def inspect(source: Path, known: dict[str, dict[str, str]]) -> dict[str, Any]:
    """Return how the hooks and the mirrors fit a version, and what they edit that differs there."""
    with tempfile.TemporaryDirectory() as temporary:
        base, staged = Path(temporary) / "base", Path(temporary) / "staged"
        base.mkdir()
        staged.mkdir()
        unpack(source, base)
        result: dict[str, Any] = {"hooks": "", "mirrors": "", "differs": differences(known, base)}
        try:
            tree.stage(base, paths.HOOKS, staged / "none", staged)
        except tree.TreeError as error:
            result["hooks"] = told(error)
        try:
            mirrors.check(base)
        except mirrors.MirrorError as error:
            result["mirrors"] = told(error)
    return result


def check(version: str, source: Path, goal: str) -> str:
    """Run `make GOAL` in a clone of this commit on a version; return its closing line."""
    clone, log = HOME / version / "clone", HOME / version / f"{goal}.log"
    if not clone.exists():
        run(["git", "clone", "-q", str(paths.REPO), str(clone)], "git clone")
        (clone / "build").mkdir()
        (clone / "build/venv").symlink_to(paths.VENV)
    run(["git", "-C", str(clone), "fetch", "-q", "origin", "HEAD"], "git fetch")
    run(["git", "-C", str(clone), "checkout", "-q", "--detach", "FETCH_HEAD"], "git checkout")
    cli.progress(f"{version}: make {goal}, see {log.relative_to(paths.REPO)}")
    environment = {key: value for key, value in os.environ.items() if key not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")}
    with open(log, "w", encoding="utf-8") as output:
        done = subprocess.run(["make", goal], cwd=clone, env={**environment, "LINUX": str(source)}, check=False,
                              stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
    ends = re.findall(r"^\d+ passed, \d+ failed, \d+ skipped$", log.read_text(encoding="utf-8", errors="replace"), re.M)
    return ends[-1] if ends else f"ended with {done.returncode} before its tests"


def good(result: dict[str, Any]) -> bool:
    """Say whether nothing is wrong with a version, as far as it was tried."""
    return not result["hooks"] and not result["mirrors"] and all(
        ", 0 failed, " in said for said in result["checks"].values())


def show(result: dict[str, Any]) -> None:
    """Print what came out of a version."""
    print(f"{result['version']}: hooks {result['hooks'] or 'apply'}; mirrors {result['mirrors'] or 'fit'}; "
          f"{len(result['differs'])} functions that hooks edit differ"
          + "".join(f"; {goal}: {said}" for goal, said in result["checks"].items()))
    print("".join(f"  {name}\n" for name in result["differs"]), end="", flush=True)


def try_all(args: Any) -> int:
    """Try versions and keep what came out; return 1 if something is wrong with one."""
    conf = tree.read_base_conf()
    versions = offered(conf["package"])
    unknown = [version for version in args.versions if version not in versions]
    if unknown or not versions:
        raise MatrixError(f"apt offers no {conf['package']} {', '.join(unknown)}; it offers "
                          f"{', '.join(versions) or 'none: apt-get update'}")
    with paths.build_lock():
        here = tree.make_base()
        known = edited(paths.BASE)
    commit = run(["git", "log", "-1", "--format=%h", "--", "kernel"], "git log", cwd=paths.REPO).strip()
    if run(["git", "status", "--porcelain", "--", "kernel"], "git status", cwd=paths.REPO):
        raise MatrixError("the folder kernel has edits that are not committed, and a clone would not have them")
    status = 0
    for version in args.versions or versions:
        source = tarball(conf, version, versions[version])
        result: dict[str, Any] = {"version": version, "package": versions[version], "base": here, "commit": commit,
                                  "date": time.strftime("%Y-%m-%d", time.gmtime()), **inspect(source, known)}
        result["checks"] = {goal: check(version, source, goal) for goal in args.check
                            if not result["hooks"] and not result["mirrors"]}
        show(result)
        storage.MATRIX.mkdir(parents=True, exist_ok=True)
        paths.write_whole(storage.MATRIX / f"{version}.json", storage.text_of(result))
        status |= not good(result)
    return int(status)


def main(argv: list[str] | None = None) -> int:
    """Do what the command line asks for."""
    parser = cli.Parser(prog="suites/matrix", description=__doc__)
    parser.add_argument("versions", nargs="*", metavar="VERSION",
                        help="such as 6.12.115 (default: all that apt offers)")
    parser.add_argument("--check", action="append", default=[], choices=GOALS, metavar="GOAL",
                        help=f"also run make GOAL there ({', '.join(GOALS)}); may be repeated")
    try:
        return try_all(parser.parse_args(argv))
    except (MatrixError, tree.TreeError, mirrors.MirrorError, OSError, MemoryError) as error:
        print(f"error: {cli.explain(error)}", file=sys.stderr)
        return 1
