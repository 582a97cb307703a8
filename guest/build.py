# SPDX-License-Identifier: GPL-2.0
"""Build kernel variants: build/VARIANT/bzImage (and vmlinux, config, build.log).

quire, debug, kcsan, gcov, fuzz and off are built from build/tree, vanilla from the pristine build/base. The objects are
in o-VARIANT, a direct child of the source folder. Kbuild then refers to the source as "..", so objects contain no
absolute path and ccache works across clones of this repository.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from guest import cli, paths, tree

FRAGMENTS: dict[str, tuple[str, ...]] = {
    "vanilla": ("guest",),
    "quire": ("guest", "quire"),
    "debug": ("guest", "quire", "debug"),
    "kcsan": ("guest", "quire", "kcsan"),
    "off": ("guest", "off"),
    # For counting instructions on one CPU: see docs/build.md.
    "vanilla-jump": ("guest", "jump"),
    "quire-jump": ("guest", "quire", "jump"),
    # For counting which lines run: see suites/covering.py.
    "gcov": ("guest", "quire", "gcov"),
    # For syzkaller: see suites/fuzzing.py.
    "fuzz": ("guest", "quire", "debug", "fuzz"),
}
# guest.deb merges this into a distribution's configuration.
PACKAGED = {"deb": ("deb",)}
# The folders that the hooks and the headers they edit affect most directly. Each `make check` compares off with vanilla
# here.
DIRECTORIES = ("mm/", "fs/", "kernel/", "arch/x86/mm/", "ipc/")
ESTIMATED_OBJECTS = 1600
TOOLS = ("make", "gcc", "ld", "flex", "bison", "bc", "patch", "tar")
ROOM_PER_VARIANT = 300 << 20
ROOM_FOR_DIRECTORIES = 120 << 20
ROOM_FOR_SOURCES = 2200 << 20
REPRODUCIBLE = {
    "KBUILD_BUILD_TIMESTAMP": "Thu Jan  1 00:00:00 UTC 2026",
    "KBUILD_BUILD_USER": "quire",
    "KBUILD_BUILD_HOST": "quire",
    "KBUILD_BUILD_VERSION": "1",
    "CCACHE_NOHASHDIR": "1",
    "LC_ALL": "C",
}


class BuildError(Exception):
    """A build failed; the message says why."""


def source_of(variant: str) -> Path:
    """Return the source folder that a variant is built from."""
    return paths.BASE if variant.startswith("vanilla") else paths.TREE


def objects_of(variant: str) -> Path:
    """Return the folder that holds a variant's objects."""
    return source_of(variant) / f"o-{variant}"


def image_of(variant: str) -> Path:
    """Return the path of a variant's bzImage."""
    return paths.BUILD / variant / "bzImage"


def fragments_of(variant: str) -> list[Path]:
    """Return the Kconfig fragments of a variant, in merging order."""
    return [paths.CONFIG / f"{name}.config" for name in (FRAGMENTS | PACKAGED)[variant]]


def asked(fragments: list[Path]) -> dict[str, str]:
    """Return what the fragments ask for: symbol -> value, "n" for one that must not be set. The last one wins."""
    wanted: dict[str, str] = {}
    for fragment in fragments:
        for line in fragment.read_text(encoding="utf-8").splitlines():
            match = re.fullmatch(r"# (CONFIG_\w+) is not set", line.strip())
            if match:
                wanted[match.group(1)] = "n"
            match = re.fullmatch(r"(CONFIG_\w+)=(.*)", line.strip())
            if match:
                wanted[match.group(1)] = match.group(2)
    return wanted


def lost(wanted: dict[str, str], config: Path) -> list[str]:
    """Return the symbols that a .config does not have as wanted, each as "SYMBOL=want (is have)"."""
    have = asked([config])
    return [f"{symbol}={value} (is {have.get(symbol, 'absent')})" for symbol, value in sorted(wanted.items())
            if have.get(symbol, "n") != value]


def environment() -> dict[str, str]:
    """Return our environment for a kernel build, without the variables that would change what is built."""
    dropped = {"MAKEFLAGS", "MFLAGS", "MAKELEVEL", "KBUILD_OUTPUT", "O", "ARCH", "CROSS_COMPILE", "LINUX"}
    return {**{key: value for key, value in os.environ.items() if key not in dropped}, **REPRODUCIBLE}


def make_command(variant: str, *goals: str) -> list[str]:
    """Return the command that makes goals of a variant; it must run in the variant's source folder."""
    compiler = "ccache gcc" if shutil.which("ccache") else "gcc"
    return ["make", f"O=o-{variant}", f"CC={compiler}", *goals]


def _run(variant: str, command: list[str]) -> None:
    log = paths.BUILD / variant / "configure.log"
    with open(log, "a", encoding="utf-8") as output:
        output.write(f"$ {' '.join(command)}\n")
        output.flush()
        done = subprocess.run(command, cwd=source_of(variant), env=environment(), stdin=subprocess.DEVNULL,
                              stdout=output, stderr=subprocess.STDOUT, check=False)
    if done.returncode:
        raise _failed(f"{variant}: `{' '.join(command)}` failed", log)


def _failed(what: str, log: Path, lines: int = 40) -> BuildError:
    """Print the end of a log, and return an error to raise, which says in one line what to do next."""
    last = log.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:]
    print("\n".join("  " + line for line in last), file=sys.stderr)
    advice = cli.advice("\n".join(last)) or "fix that and run it again"
    return BuildError(f"{what}, {log.relative_to(paths.REPO)} says why: {advice}; the build resumes where it stopped")


def config_hash(variant: str) -> str:
    """Return a hash of everything that determines a variant's configuration."""
    digest = hashlib.sha256()
    touched = paths.read_stamp(paths.TREE.with_name("tree.json")) or []
    kconfigs = [paths.TREE / name for name in touched if Path(name).name.startswith("Kconfig")]
    for path in fragments_of(variant) + (kconfigs if source_of(variant) == paths.TREE else []):
        digest.update(path.read_bytes() + b"\0")
    digest.update(tree.kernel_version(source_of(variant)).encode())
    return digest.hexdigest()


def configure(variant: str) -> None:
    """Make a variant's .config from tinyconfig and its fragments, unless it is up to date."""
    objects = objects_of(variant)
    stamp = objects / ".quire-config"
    wanted_hash = config_hash(variant)
    if stamp.exists() and (objects / ".config").exists() and stamp.read_text(encoding="utf-8") == wanted_hash:
        return
    (paths.BUILD / variant / "configure.log").unlink(missing_ok=True)
    _run(variant, make_command(variant, "tinyconfig"))
    merge(variant)
    stamp.write_text(wanted_hash, encoding="utf-8")


def merge(variant: str) -> None:
    """Merge a variant's fragments into the .config in its object folder, and verify that each symbol took effect."""
    objects, fragments = objects_of(variant), fragments_of(variant)
    _run(variant, ["scripts/kconfig/merge_config.sh", "-m", "-O", f"o-{variant}", f"o-{variant}/.config",
                   *map(str, fragments)])
    _run(variant, make_command(variant, "olddefconfig"))
    missing = lost(asked(fragments), objects / ".config")
    if missing:
        raise BuildError(f"{variant}: Kconfig did not accept these symbols of kernel/config: {', '.join(missing)}; set "
                         "what they depend on, too")


def _cache_log(variant: str) -> Path:
    return paths.BUILD / variant / "ccache.log"


def cache_use(log: Path) -> dict[str, int]:
    """Return the numbers of ccache hits and misses in the log of one build."""
    seen = Counter(log.read_text(encoding="utf-8", errors="replace").split("\n") if log.exists() else [])
    return {"hits": seen["direct_cache_hit"] + seen["preprocessed_cache_hit"], "misses": seen["cache_miss"]}


def _note(phase: str, variant: str, objects: int, start: float) -> None:
    paths.note("phases", phase=phase, seconds=round(time.monotonic() - start, 1), objects=objects,
               **cache_use(_cache_log(variant)))


def _count(variant: str) -> Path:
    return paths.BUILD / variant / "objects"


def _expected_objects(variant: str) -> int:
    """Return how many objects a variant has, possibly estimated; 0 if unknown."""
    for known in (variant,) if variant in PACKAGED else (variant, *FRAGMENTS):
        count = paths.read_stamp(_count(known))
        if count:
            return int(count)
    return 0 if variant in PACKAGED else ESTIMATED_OBJECTS


def _objects_made(variant: str) -> int:
    """Return how many objects of a variant exist, whichever build made them."""
    return sum(1 for _ in objects_of(variant).rglob("*.o"))


def _ending(process: subprocess.Popen[str]) -> Iterator[str]:
    """Yield a process's lines of output; terminate the process if the reader stops early."""
    assert process.stdout
    try:
        yield from process.stdout
    finally:
        process.terminate()


def _mark(variant: str) -> Path:
    return paths.BUILD / variant / "compiling"


def _mend(variant: str) -> None:
    """Delete the command files that the last build may have left cut, if it was killed.

    kbuild writes them in place, and make stops for good at one that is cut. All that fixdep has written completely ends
    with a target without a recipe; the other command files belong to steps that are quickly repeated.
    """
    if not _mark(variant).exists():
        return
    since = _mark(variant).stat().st_mtime
    for path in objects_of(variant).rglob(".*.cmd"):
        if path.stat().st_mtime >= since and not path.read_bytes().endswith(b"):\n"):
            path.unlink()


def compile_goals(variant: str, goals: tuple[str, ...] = ("bzImage",), extra: dict[str, str] | None = None) -> int:
    """Run make, with the variables `extra` in its environment; return how many objects it compiled."""
    log = paths.BUILD / variant / "build.log"
    fresh = not (objects_of(variant) / "vmlinux").exists()
    before = _objects_made(variant) if fresh else 0  # by a build that was interrupted
    whole = goals != DIRECTORIES
    expected, done, start, shown = _expected_objects(variant) if whole else 0, 0, time.monotonic(), 0.0
    jobs = (os.cpu_count() or 1) + 1
    command = make_command(variant, f"-j{jobs}", *goals)
    # This build has its own log: ccache's statistics also count other builds, and they are not ours to reset.
    _cache_log(variant).unlink(missing_ok=True)
    _mend(variant)
    _mark(variant).touch()
    variables = {**environment(), "CCACHE_STATSLOG": str(_cache_log(variant)), **(extra or {})}
    terminal = sys.stderr.isatty()
    with open(log, "w", encoding="utf-8") as output, subprocess.Popen(
            command, cwd=source_of(variant), env=variables, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, errors="replace") as process:
        for line in _ending(process):
            output.write(line)
            done += line.startswith(("  CC  ", "  AS  "))
            now = time.monotonic()
            if now - shown > (0.5 if terminal else 120):
                if shown or terminal:
                    total = f" of about {expected}" if fresh and expected else ""
                    text = f"{variant}: {before + done}{total} objects, {int(now - start)} s"
                    print(f"\r{text}\033[K" if terminal else text, end="" if terminal else "\n", file=sys.stderr,
                          flush=True)
                shown = now
    if terminal:
        print("\r\033[K", end="", file=sys.stderr)
    if process.returncode:
        raise _failed(f"{variant}: the build failed", log)
    _mark(variant).unlink()
    if fresh and whole:
        paths.write_whole(_count(variant), str(_objects_made(variant)))
    return done


def _install(source: Path, target: Path) -> None:
    temporary = target.with_name(target.name + ".new")
    shutil.copy2(source, temporary)
    os.replace(temporary, target)


def _git(*arguments: str) -> str:
    """Return what git prints; "" without git or a repository."""
    if not shutil.which("git"):
        return ""
    done = subprocess.run(["git", *arguments, "--", "kernel"], cwd=paths.REPO, text=True, check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return done.stdout.strip()


def origin() -> dict[str, str]:
    """Return what our part of a kernel is built from: its last commit, the date, and whether it has been edited since.
    """
    commit, _, date = _git("log", "-1", "--format=%h %cs").partition(" ")
    return {"commit": commit, "date": date, "changed": "yes" if _git("status", "--porcelain") else "no"}


def build(variant: str) -> Path:
    """Build one variant and return its bzImage. The caller holds the build lock and has updated the tree."""
    (paths.BUILD / variant).mkdir(parents=True, exist_ok=True)
    start = time.monotonic()
    configure(variant)
    done = compile_goals(variant)
    objects = objects_of(variant)
    image = image_of(variant)
    built = objects / "arch/x86/boot/bzImage"
    if not image.exists() or image.stat().st_mtime != built.stat().st_mtime:
        _install(objects / "vmlinux", paths.BUILD / variant / "vmlinux")
        _install(objects / ".config", paths.BUILD / variant / "config")
        _install(built, image)
    paths.write_whole(paths.BUILD / variant / "origin.json", json.dumps(origin()))
    _note(f"build of {variant}", variant, done, start)
    print(f"{variant}: {done} objects compiled in {time.monotonic() - start:.0f} s, "
          f"{image.relative_to(paths.REPO)}", file=sys.stderr, flush=True)
    return image


def build_objects(variant: str) -> None:
    """Configure a variant and build its objects in DIRECTORIES; leave its image and the image's notes alone.

    The caller holds the build lock and has updated the tree.
    """
    (paths.BUILD / variant).mkdir(parents=True, exist_ok=True)
    start = time.monotonic()
    configure(variant)
    done = compile_goals(variant, DIRECTORIES)
    _install(objects_of(variant) / ".config", paths.BUILD / variant / "config")
    _note(f"objects of {variant}", variant, done, start)
    print(f"{variant}: {done} objects compiled in {time.monotonic() - start:.0f} s, of {' '.join(DIRECTORIES)} alone",
          file=sys.stderr, flush=True)


def configure_only(variant: str) -> None:
    """Configure a variant, for the tests that compare configurations.

    The caller holds the build lock and has updated the tree.
    """
    (paths.BUILD / variant).mkdir(parents=True, exist_ok=True)
    configure(variant)
    _install(objects_of(variant) / ".config", paths.BUILD / variant / "config")


def check_space(variants: list[str], free: int, objects: Sequence[str] = ()) -> None:
    """Raise BuildError if the disk cannot hold the kernels, or the objects alone, that are still to be built."""
    whole = [variant for variant in variants if not (objects_of(variant) / "vmlinux").exists()]
    parts = [variant for variant in objects if not (objects_of(variant) / DIRECTORIES[0] / "built-in.a").exists()]
    needed = (len(whole) * ROOM_PER_VARIANT + len(parts) * ROOM_FOR_DIRECTORIES
              + (0 if paths.TREE.exists() else ROOM_FOR_SOURCES))
    if (whole or parts) and free < needed:
        raise BuildError(f"{free >> 20} MB are free for build/, {needed >> 20} MB are needed for "
                         f"{', '.join(whole + parts)}: make room, or `make clean` and build again")


def check_tools(tools: tuple[str, ...] = TOOLS) -> None:
    """Raise BuildError if the host lacks a program that a build runs."""
    missing = [tool for tool in tools if not shutil.which(tool)]
    if missing:
        raise BuildError(f"this host has no {', '.join(missing)}: make packages (or python3 -m guest.packages)")


def build_all(variants: list[str], objects: Sequence[str] = (), configured: Sequence[str] = ()) -> None:
    """Update the tree, build `variants` one after the other, build only objects of `objects`, configure `configured`.
    """
    objects = [variant for variant in objects if variant not in variants]
    check_tools()
    with paths.build_lock():
        check_space(variants, shutil.disk_usage(paths.BUILD).free, objects)
        tree.make_base()
        if any(source_of(variant) == paths.TREE for variant in [*variants, *objects, *configured]):
            tree.update()
        for variant in variants:
            build(variant)
        for variant in objects:
            build_objects(variant)
        for variant in configured:
            configure_only(variant)


def _variant(name: str) -> str:
    if name not in FRAGMENTS:
        raise argparse.ArgumentTypeError(f"invalid choice: {name!r} (choose from {', '.join(map(repr, FRAGMENTS))})")
    return name


def main(argv: list[str] | None = None) -> int:
    """Command line."""
    parser = cli.Parser(prog="python3 -m guest.build", description="Build kernel variants.")
    # With `choices`, argparse would reject an empty list of variants.
    parser.add_argument("variants", nargs="*", type=_variant, metavar="VARIANT", help=f"one of {', '.join(FRAGMENTS)}")
    parser.add_argument("--objects", nargs="+", type=_variant, metavar="VARIANT", default=[],
                        help=f"build only the objects of {' '.join(DIRECTORIES)} of these, and no kernel")
    parser.add_argument("--configure", nargs="+", type=_variant, metavar="VARIANT", default=[],
                        help="only make the configurations of these, and compile nothing")
    args = parser.parse_args(argv)
    if not (args.variants or args.objects or args.configure):
        parser.error("name at least one VARIANT")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that make is ended too
    try:
        build_all(args.variants, args.objects, args.configure)
    except (BuildError, tree.TreeError, OSError, MemoryError) as error:
        print(f"error: {cli.explain(error)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
