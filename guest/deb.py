# SPDX-License-Identifier: GPL-2.0
"""Make Debian packages of the quire kernel in build/deb, to be installed beside the distribution's kernel.

The configuration is the one that Debian uses for its own kernel (package linux-config-6.12), that of the running
kernel, or any other. kernel/config/deb.config is merged into it, and every symbol in deb.config is verified. The
kernel's name contains "-quire", so the stock kernel stays installed and bootable. The kernel's own `make bindeb-pkg`
makes the packages.
"""

from __future__ import annotations

import argparse
import lzma
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from guest import build, cli, packages, paths, tree

VARIANT = "deb"
OUTPUT = paths.BUILD / "deb"
SOURCE_NAME = "linux-quire"
FLAVOURS = ("amd64", "cloud-amd64")
ROOM = 12 << 30
ROOM_SMALL = 4 << 30


def debian_config(flavour: str) -> Path:
    """Return the compressed configuration of one of Debian's kernels."""
    series = tree.read_base_conf()["series"]
    return Path(f"/usr/src/linux-config-{series}/config.amd64_none_{flavour}.xz")


def read_config(path: Path) -> str:
    """Return the text of a configuration, which may be compressed."""
    if not path.is_file():
        raise build.BuildError(f"there is no configuration {path}: `make packages`, or give one with --config")
    data = path.read_bytes()
    text = (lzma.decompress(data) if path.suffix == ".xz" else data).decode(errors="replace")
    if "CONFIG_X86_64=y" not in text:
        raise build.BuildError(f"{path} is not the configuration of an x86-64 kernel: give one with --config")
    return text


def configure(config: Path) -> None:
    """Make the packages' .config from a distribution's."""
    text = read_config(config)
    objects = build.objects_of(VARIANT)
    objects.mkdir(parents=True, exist_ok=True)
    (paths.BUILD / VARIANT).mkdir(parents=True, exist_ok=True)
    (paths.BUILD / VARIANT / "configure.log").unlink(missing_ok=True)
    (objects / ".config").write_text(text, encoding="utf-8")
    build.merge(VARIANT)


def revision() -> str:
    """Return the packages' revision: the number of commits to our part of the kernel, which only grows."""
    done = subprocess.run(["git", "rev-list", "--count", "HEAD", "--", "kernel"], cwd=paths.REPO, text=True,
                          check=False, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return done.stdout.strip() or "1"


def collect() -> list[Path]:
    """Move the packages of the kernel and its headers to build/deb, and delete the other products of the build."""
    folder = build.objects_of(VARIANT).parent
    made = []
    for path in sorted(folder.glob("linux-*.deb")):
        if path.name.startswith(("linux-image-", "linux-headers-")):
            made.append(Path(shutil.move(path, OUTPUT / path.name)))
        else:
            path.unlink()
    for path in [*folder.glob(f"{SOURCE_NAME}_*.buildinfo"), *folder.glob(f"{SOURCE_NAME}_*.changes")]:
        path.unlink()
    return made


def make(config: Path, headers: bool = True) -> list[Path]:
    """Build the packages and return them."""
    with paths.build_lock():
        tree.make_base()
        tree.update()
        configure(config)
        version = tree.kernel_version(paths.TREE)
        profiles = ["nokerneldbg"] + ([] if headers else ["nokernelheaders"])
        build.compile_goals(VARIANT, ("bindeb-pkg",), {
            "KDEB_PKGVERSION": f"{version}-{revision()}",
            "KDEB_SOURCENAME": SOURCE_NAME,
            "KDEB_CHANGELOG_DIST": "stable",
            "DEB_BUILD_OPTIONS": "terse",
            "DEB_BUILD_PROFILES": " ".join(f"pkg.{SOURCE_NAME}.{name}" for name in profiles),
        })
        made = collect()
    if not made:
        raise build.BuildError(f"no package was made: see build/{VARIANT}/build.log")
    return made


def tell(goal: str, made: Callable[[], list[Path]], then: str = "") -> int:
    """Make packages and print their paths and how to install them, or why there are none; return the exit status."""
    try:
        found = [path.relative_to(paths.REPO) for path in made()]
    except (build.BuildError, tree.TreeError, OSError, MemoryError) as error:
        print(f"error: {cli.explain(error)}", file=sys.stderr)
        return 1
    except subprocess.CalledProcessError as error:
        print(f"error: `{' '.join(map(str, error.cmd))}` failed (its messages are above): fix that and run "
              f"`make {goal}` again", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    print("\n".join(map(str, found)))
    print(f"install: sudo apt install {' '.join(f'./{path}' for path in found)}{then}", file=sys.stderr)
    return 0


def asked(args: argparse.Namespace) -> list[Path]:
    """Make the packages that a command line asks for, if the disk has room for them."""
    config = args.config or debian_config(args.flavour)
    read_config(config)
    packages.ensure("to package")
    room = ROOM if not args.config and args.flavour == "amd64" else ROOM_SMALL
    free = shutil.disk_usage(paths.REPO).free
    if free < room:
        raise build.BuildError(f"{free >> 30} GB are free for build/, about {room >> 30} GB are needed: make room, "
                               "or take the flavour cloud-amd64")
    return make(config, not args.no_headers)


def main(argv: list[str] | None = None) -> int:
    """Command line."""
    parser = cli.Parser(prog="python3 -m guest.deb", description=(__doc__ or "").splitlines()[0])
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--flavour", choices=FLAVOURS, default="amd64",
                        help="use the configuration of this Debian kernel (default: amd64, for any machine)")
    source.add_argument("--config", type=Path, help="or a configuration, such as /boot/config-$(uname -r)")
    parser.add_argument("--no-headers", action="store_true", help="no package with the headers for other modules")
    args = parser.parse_args(argv)
    return tell("deb", lambda: asked(args), "; then boot it with quire=on, or switch features on at run time "
                "(tool/quirectl)")


if __name__ == "__main__":
    sys.exit(main())
