# SPDX-License-Identifier: GPL-2.0
"""Make build/tree: the kernel base, our hooks applied to it, our overlay copied over it.

The tree is updated incrementally. The patched files are made in a temporary folder from the base's pristine copies, and
only files whose content differs are replaced in the tree, so that make rebuilds only what changed. A file that is no
longer edited gets the base's content back, with a new timestamp, because make compares timestamps.

Files in the folders that hooks do not touch are hard links to the base: replace a file in build/tree, never write into
it.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from guest import cli, mirrors, paths

# Large folders of the kernel that hooks do not touch are hard-linked. The others are copied, so that an editor that
# writes in place cannot change the base through build/tree.
LINKED = ("drivers/", "sound/", "Documentation/", "net/", "tools/", "crypto/", "samples/", "security/")
JUNK = re.compile(r"(~|\.orig|\.rej|\.pyc|\.swp|\.o)$")


class TreeError(Exception):
    """The tree cannot be made; the message names the patch, hunk or file."""


def read_base_conf(path: Path = paths.REPO / "base.conf") -> dict[str, str]:
    """Return the key=value lines of base.conf."""
    conf: dict[str, str] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        line = line.split("#", 1)[0].strip()
        if line:
            key, _, value = line.partition("=")
            conf[key.strip()] = value.strip()
    return conf


def kernel_version(source: Path) -> str:
    """Return the version that a kernel source folder's Makefile states."""
    makefile = source / "Makefile"
    text = makefile.read_text(encoding="utf-8") if makefile.is_file() else ""
    fields = dict(re.findall(r"^(VERSION|PATCHLEVEL|SUBLEVEL) = *(\S*)$", text, re.M))
    if len(fields) < 3:
        raise TreeError(f"{source} is not the source of a kernel: set LINUX to a 6.12.y tree or tarball")
    return ".".join(fields[name] for name in ("VERSION", "PATCHLEVEL", "SUBLEVEL"))


def _linked(name: str) -> bool:
    if name.startswith("arch/"):
        return not name.startswith("arch/x86/")
    return name.startswith(LINKED)


def clone(source: Path, target: Path) -> None:
    """Copy a kernel source folder without build output (o-*) and .git; hard-link the folders that hooks do not touch.
    """
    target.mkdir(parents=True)
    for folder, subfolders, files in os.walk(source):
        relative = os.path.relpath(folder, source)
        if relative == ".":
            relative = ""
            subfolders[:] = [name for name in subfolders if name != ".git" and not name.startswith("o-")]
        for name in list(subfolders):
            inside = os.path.join(relative, name)
            if os.path.islink(source / inside):
                os.symlink(os.readlink(source / inside), target / inside)
                subfolders.remove(name)
            else:
                os.mkdir(target / inside)
        for name in files:
            inside = os.path.join(relative, name)
            original, copy = source / inside, target / inside
            if os.path.islink(original):
                os.symlink(os.readlink(original), copy)
                continue
            if _linked(inside):
                try:
                    os.link(original, copy)
                    continue
                except OSError:
                    pass
            shutil.copy2(original, copy)


def _base_source(conf: dict[str, str]) -> Path:
    source = Path(os.environ.get("LINUX") or conf["tarball"]).expanduser().resolve()
    if not source.exists():
        raise TreeError(f"no kernel source at {source}: install the package {conf['package']} "
                        "(make packages), or set LINUX to the path of a 6.12.y tree or tarball")
    return source


def _fill(source: Path, folder: Path) -> str:
    """Copy or unpack a kernel's source into a new folder, and return its version."""
    if source.is_dir():
        kernel_version(source)
        clone(source, folder)
        return kernel_version(folder)
    folder.mkdir(parents=True)
    done = subprocess.run(["tar", "-xf", source, "-C", folder, "--strip-components=1"], check=False, text=True,
                          stderr=subprocess.PIPE)
    if done.returncode:
        said = (done.stderr.splitlines() or [f"exits with {done.returncode}"])[0].removeprefix("tar: ")
        raise TreeError(f"{source} cannot be unpacked (tar: {said}): set LINUX to a tree or tarball of Linux, install "
                        "its package again (apt-get install --reinstall), or make room on the disk")
    try:
        return kernel_version(folder)
    except TreeError as error:
        raise TreeError(f"{source} is an archive, but not of the source of a kernel: set LINUX to a 6.12.y tree or "
                        "tarball") from error


def unpack_base(source: Path, base: Path, series: str, verified: list[str]) -> str:
    """Make `base` from a tarball or folder, unless it is already made from that. Returns the kernel's version."""
    stamp = base.with_name(base.name + ".json")
    stat = source.stat()
    state = {"source": str(source), "size": stat.st_size, "time": int(stat.st_mtime)}
    if not source.is_file():
        state = {"source": str(source), "version": kernel_version(source)}
    if base.exists() and paths.read_stamp(stamp) == state:
        if source.is_dir():
            print(f"note: build/base was copied from {source} before; what was edited there since is not in it. "
                  f"To copy it again, and build all again: rm build/{stamp.name}", file=sys.stderr)
        return kernel_version(base)
    temporary = base.with_name(base.name + ".new")
    if temporary.exists():
        shutil.rmtree(temporary)
    print(f"unpacking the kernel base {source.name}", file=sys.stderr, flush=True)
    try:
        version = _fill(source, temporary)
        if version.rsplit(".", 1)[0] != series:
            raise TreeError(f"{source} is Linux {version}; quire is for {series}.y: set LINUX to such a tree or "
                            "tarball")
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    if version not in verified:
        print(f"note: Linux {version} is not among the verified versions ({', '.join(verified)}) of base.conf",
              file=sys.stderr)
    stamp.unlink(missing_ok=True)
    if base.exists():
        shutil.rmtree(base)
    temporary.rename(base)
    paths.write_whole(stamp, json.dumps(state))
    return version


def series(hooks: Path) -> list[Path]:
    """Return the hook patches in the order of the series file."""
    index = hooks / "series"
    if not index.exists():
        return []
    names = [line.split("#", 1)[0].strip() for line in index.read_text(encoding="utf-8").splitlines()]
    patches = [hooks / name for name in names if name]
    missing = [patch.name for patch in patches if not patch.exists()]
    if missing:
        raise TreeError(f"kernel/hooks/series names patches that do not exist: {', '.join(missing)}")
    unnamed = sorted({patch.name for patch in hooks.glob("*.patch")} - {patch.name for patch in patches})
    if unnamed:
        raise TreeError(f"kernel/hooks/series does not name these patches: {', '.join(unnamed)}")
    return patches


def touched_by(patch: Path) -> list[str]:
    """Return the files that a patch edits; a patch that adds or deletes one is refused."""
    names: list[str] = []
    lines = patch.read_text(encoding="utf-8").splitlines()
    for before, after in itertools.pairwise(lines):
        if before.startswith("--- ") and after.startswith("+++ "):
            old, new = (line[4:].split("\t")[0].strip() for line in (before, after))
            if "/dev/null" in (old, new):
                raise TreeError(f"{patch.name} adds or deletes a file; files of our own belong in kernel/overlay")
            if not (old.startswith("a/") and new.startswith("b/") and old[2:] == new[2:]):
                raise TreeError(f"{patch.name}: the paths must be a/PATH and b/PATH, not {old} and {new}")
            names.append(new[2:])
    if not names:
        raise TreeError(f"{patch.name} edits no file")
    return names


def _hunk_headers(patch: Path, name: str) -> list[str]:
    current, headers = "", []
    for line in patch.read_text(encoding="utf-8").splitlines():
        if line.startswith("+++ b/"):
            current = line[6:].split("\t")[0].strip()
        elif line.startswith("@@") and current == name:
            headers.append(line)
    return headers


def _explain(patch: Path, output: str) -> str:
    """Name the hunks that patch(1) could not apply, with their headers."""
    current, failed = "", []
    for line in output.splitlines():
        match = re.match(r"(?:patching|checking) file (.*)", line)
        if match:
            current = match.group(1).strip("'")
        match = re.match(r"Hunk #(\d+) FAILED at (\d+)", line)
        if match:
            number = int(match.group(1))
            headers = _hunk_headers(patch, current)
            header = headers[number - 1] if number <= len(headers) else ""
            failed.append(f"  {current}: hunk #{number} {header}".rstrip())
    return "\n".join(failed) or "  " + output.strip().replace("\n", "\n  ")


def stage(base: Path, hooks: Path, overlay: Path, folder: Path) -> dict[str, Path]:
    """Make every edited file in `folder`; return a map from the path in the kernel tree to the staged file."""
    staged: dict[str, Path] = {}
    for patch in series(hooks):
        for name in touched_by(patch):
            if name not in staged:
                if not (base / name).is_file():
                    raise TreeError(f"{patch.name} edits {name}, which the base does not have")
                staged[name] = folder / name
                staged[name].parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(base / name, staged[name])
        done = subprocess.run(["patch", "-p1", "-F0", "--batch", "--forward", "--no-backup-if-mismatch", "-r", "-",
                               "-i", str(patch)], cwd=folder, text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, env={**os.environ, "LC_ALL": "C"}, check=False)
        if done.returncode:
            raise TreeError(f"{patch.name} does not apply (no fuzz is allowed):\n{_explain(patch, done.stdout)}\n"
                            "set LINUX to a base that base.conf lists as verified, or fix the hook")
    if overlay.is_dir():
        for path in sorted(overlay.rglob("*")):
            name = path.relative_to(overlay).as_posix()
            if path.is_dir() or JUNK.search(name) or "__pycache__" in name:
                continue
            if (base / name).exists():
                raise TreeError(f"kernel/overlay/{name} exists in the base; edit it with a hook")
            staged[name] = path
    return staged


def _replace(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(target.name + ".quire-new")
    shutil.copyfile(source, temporary)
    shutil.copymode(source, temporary)
    os.replace(temporary, target)


def sync(base: Path, tree: Path, staged: dict[str, Path]) -> list[str]:
    """Bring the tree up to the staged files; returns the paths that changed."""
    manifest = tree.with_name(tree.name + ".json")
    before: list[str] = paths.read_stamp(manifest) or []
    # This is written first: after an interruption, the list still covers every file that was touched.
    paths.write_whole(manifest, json.dumps(sorted(set(before) | set(staged))))
    changed: list[str] = []
    for name in sorted(set(before) | set(staged)):
        wanted = staged.get(name) or (base / name if (base / name).exists() else None)
        target = tree / name
        if wanted is None:
            if target.exists():
                target.unlink()
                changed.append(name)
                for parent in target.relative_to(tree).parents:
                    if parent.name and not any((tree / parent).iterdir()):
                        (tree / parent).rmdir()
        elif not target.exists() or target.read_bytes() != wanted.read_bytes():
            _replace(wanted, target)
            changed.append(name)
    paths.write_whole(manifest, json.dumps(sorted(staged)))
    return changed


def make_tree(base: Path, tree: Path, hooks: Path, overlay: Path, force: bool = False) -> list[str]:
    """Make or update `tree` from `base`; returns the paths that changed. Nothing changes if a patch fails.

    If it is not known what the tree was made from, or which of its files are ours, the tree is made from scratch.
    """
    with tempfile.TemporaryDirectory() as folder:
        staged = stage(base, hooks, overlay, Path(folder))
        origin, manifest = tree.with_name(tree.name + ".base"), tree.with_name(tree.name + ".json")
        stamp = base.with_name(base.name + ".json")
        made_from = stamp.read_text(encoding="utf-8") if stamp.exists() else str(base)
        known = tree.exists() and origin.exists() and paths.read_stamp(manifest) is not None
        if force or not known or origin.read_text(encoding="utf-8") != made_from:
            if tree.exists():
                shutil.rmtree(tree)
            manifest.unlink(missing_ok=True)
            origin.unlink(missing_ok=True)
            clone(base, tree)
            paths.write_whole(origin, made_from)
        return sync(base, tree, staged)


def make_base() -> str:
    """Make build/base as base.conf (or LINUX) says; returns its version."""
    conf = read_base_conf()
    return unpack_base(_base_source(conf), paths.BASE, conf["series"], conf["verified"].split())


def update(force: bool = False) -> list[str]:
    """Make build/base and build/tree. The caller holds the build lock."""
    make_base()
    try:
        mirrors.check(paths.BASE)
    except mirrors.MirrorError as error:
        raise TreeError(str(error)) from error
    return make_tree(paths.BASE, paths.TREE, paths.HOOKS, paths.OVERLAY, force)


def main(argv: list[str] | None = None) -> int:
    """Command line."""
    parser = cli.Parser(prog="python3 -m guest.tree", description="Make build/tree.")
    parser.add_argument("--force", action="store_true", help="make it from nothing (all objects are then rebuilt)")
    args = parser.parse_args(argv)
    try:
        with paths.build_lock():
            changed = update(args.force)
    except (TreeError, OSError, MemoryError) as error:
        print(f"error: {cli.explain(error)}", file=sys.stderr)
        return 1
    for name in changed:
        print(name)
    print(f"build/tree: {len(changed)} files changed", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
