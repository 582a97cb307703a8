# SPDX-License-Identifier: GPL-2.0
"""Make an apt repository in build/apt of the packages in build/deb, and print how a machine uses it.

It offers the newest version of each package; build/deb may keep older ones, and these are left out. Kernels of other
bases are other packages, and stay. The files are hard links, so that a new build in build/deb changes nothing here
before the repository is made again. dpkg-scanpackages and apt-ftparchive write the indices. With a key, gpg signs the
list of their digests; without one, apt has to be told to trust the folder.
"""

from __future__ import annotations

import gzip
import lzma
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

from guest import build, cli, debhelper, packages, paths

SOURCE = debhelper.OUTPUT
OUTPUT = paths.BUILD / "apt"
PUBLIC = "quire.gpg"
KEYRING = f"/etc/apt/keyrings/{PUBLIC}"
LIST = "/etc/apt/sources.list.d/quire.list"


def _run(words: list[str], folder: Path) -> bytes:
    """Run a program in a folder and return its output; raises BuildError with its messages."""
    try:
        done = subprocess.run(words, cwd=folder, check=False, stdin=subprocess.DEVNULL, capture_output=True)
    except FileNotFoundError as error:
        raise build.BuildError(f"{words[0]} is missing: sudo apt install dpkg-dev apt-utils gpg gpg-agent") from error
    if done.returncode:
        raise build.BuildError(f"`{' '.join(words)}` says: {done.stderr.decode(errors='replace').strip() or 'nothing'}")
    return done.stdout


def write_indices(folder: Path) -> dict[str, str]:
    """Write Packages and its compressed forms, delete packages that are not the newest; return names and versions."""
    index = _run(["dpkg-scanpackages", "."], folder)
    named = set(re.findall(r"^Filename: \./(.*)$", index.decode(), re.M))
    for path in folder.glob("*.deb"):
        if path.name not in named:
            path.unlink()
    (folder / "Packages").write_bytes(index)
    (folder / "Packages.gz").write_bytes(gzip.compress(index, mtime=0))
    (folder / "Packages.xz").write_bytes(lzma.compress(index))
    return dict(re.findall(r"^Package: (.*)\n(?:.*\n)*?Version: (.*)$", index.decode(), re.M))


def the_key(name: str, folder: Path) -> str:
    """Return the fingerprint of the one secret key that a name stands for; raises BuildError if there is not one.

    gpg takes part of a name, and would export, for apt to trust, every key that it fits.
    """
    wrong = "KEY= must name one of the keys that `gpg --list-secret-keys` lists"
    try:
        listed = _run(["gpg", "--batch", "--list-secret-keys", "--with-colons", name], folder).decode()
    except build.BuildError as error:
        raise build.BuildError(f"{error}\n{wrong}") from error
    found = re.findall(r"^sec:.*\n(?:(?!sec:|fpr:).*\n)*fpr:(?:[^:]*:){8}([0-9A-F]+):", listed, re.M)
    if len(found) != 1:
        raise build.BuildError(f"{name!r} stands for {len(found)} keys: {wrong}, for example by its fingerprint")
    return str(found[0])


def write_release(folder: Path, key: str) -> None:
    """Write Release, and sign it if there is a key. It has the present time: apt refuses one that is older."""
    fields = {"Origin": "quire", "Label": "quire", "Suite": "quire", "Architectures": "amd64 all"}
    options = [f"-oAPT::FTPArchive::Release::{name}={value}" for name, value in fields.items()]
    (folder / "Release").write_bytes(_run(["apt-ftparchive", *options, "release", "."], folder))
    if not key:
        return
    fingerprint = the_key(key, folder)
    gpg = ["gpg", "--batch", "--yes", "--local-user", fingerprint, "--output"]
    _run([*gpg, "InRelease", "--clearsign", "Release"], folder)
    _run([*gpg, "Release.gpg", "--armor", "--detach-sign", "Release"], folder)
    (folder / PUBLIC).write_bytes(_run(["gpg", "--batch", "--export", fingerprint], folder))


def make(key: str = "") -> dict[str, str]:
    """Make the repository; return the names and versions of the packages that it offers. Raises BuildError."""
    found = sorted(SOURCE.glob("*.deb"))
    if not found:
        raise build.BuildError("there are no packages in build/deb: make deb (or make deb-tools, without a kernel)")
    with paths.build_lock():
        # Whoever uses the old repository meanwhile sees it whole.
        new = OUTPUT.with_name(f"{OUTPUT.name}.new")
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir(parents=True)
        for path in found:
            os.link(path, new / path.name)
        offers = write_indices(new)
        write_release(new, key)
        new.chmod(0o755)
        for path in new.iterdir():
            path.chmod(0o644)
        shutil.rmtree(OUTPUT, ignore_errors=True)
        new.rename(OUTPUT)
    return offers


def sources_line(key: str = "") -> str:
    """Return the line of sources.list for the repository."""
    option = f"signed-by={KEYRING}" if key else "trusted=yes"
    return f"deb [{option}] file:{quote(str(OUTPUT))} ./"


def instructions(offers: dict[str, str], key: str = "") -> str:
    """Return what the repository has and the commands that use it."""
    lines = [f"{name} {version}" for name, version in offers.items()]
    lines += ["", "tell apt of it, and install:"]
    if key:
        lines.append(f"    sudo install -D -m 644 {shlex.quote(str(OUTPUT / PUBLIC))} {KEYRING}")
    goal = next((name for name in ("quire", "quire-tools") if name in offers), next(iter(offers)))
    lines += [f"    echo '{sources_line(key)}' | sudo tee {LIST}",
              "    sudo apt update",
              f"    sudo apt install {goal}",
              "and after each `make deb apt-repo`:", "    sudo apt update && sudo apt upgrade"]
    return "\n".join(lines)


def asked(key: str) -> None:
    """Make the repository, and print how to use it."""
    packages.ensure("for an apt repository")
    print(instructions(make(key), key))


def main(argv: list[str] | None = None) -> int:
    """Command line."""
    parser = cli.Parser(prog="python3 -m guest.apt_repo", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--key", default="", help="sign with this key of gpg (default: unsigned, for this machine)")
    args = parser.parse_args(argv)
    return debhelper.attempt("apt-repo", lambda: asked(args.key))


if __name__ == "__main__":
    sys.exit(main())
