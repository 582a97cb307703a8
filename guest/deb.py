# SPDX-License-Identifier: GPL-2.0
"""Make Debian packages of the quire kernel in build/deb, to be installed beside the distribution's kernel.

Two more packages make one installation of it: quire-tools (guest/deb_tools.py), and quire, which depends on this kernel
and on the tools (guest/deb_meta.py).

The configuration is the one that Debian uses for its own kernel (package linux-config-6.12), that of the running
kernel, or any other. kernel/config/deb.config is merged into it, and every symbol in deb.config is verified. The
kernel's name contains "-quire", so the stock kernel stays installed and bootable. The kernel's own `make bindeb-pkg`
makes the packages.
"""

from __future__ import annotations

import argparse
import json
import lzma
import shutil
import sys
from pathlib import Path

from guest import build, cli, deb_meta, deb_tools, debhelper, packages, paths, tree

VARIANT = "deb"
OUTPUT = debhelper.OUTPUT
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
    return debhelper.git(["rev-list", "--count", "HEAD"], ("kernel",)) or "1"


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
    """Build the packages of the kernel and return them."""
    with paths.build_lock():
        tree.make_base()
        tree.update()
        configure(config)
        # A build that was killed may have left some.
        for old in build.objects_of(VARIANT).parent.glob("linux-*.deb"):
            old.unlink()
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
        paths.write_whole(OUTPUT / "origin.json", json.dumps({**build.origin(), "config": config.name}))
    if not made:
        raise build.BuildError(f"no package was made: see build/{VARIANT}/build.log")
    return made


def asked(args: argparse.Namespace) -> list[Path]:
    """Make the packages that a command line asks for, if the disk has room for them."""
    config = args.config or debian_config(args.flavour)
    read_config(config)
    packages.ensure("to package")
    room = ROOM if not args.config and args.flavour == "amd64" else ROOM_SMALL
    free = shutil.disk_usage(paths.REPO).free
    # A kernel whose packages were made before has its room already.
    last = paths.read_stamp(OUTPUT / "origin.json") or {}
    built = last.get("config") == config.name and (build.objects_of(VARIANT) / "vmlinux").exists()
    if free < room and not built:
        raise build.BuildError(f"{free >> 30} GB are free for build/, about {room >> 30} GB are needed: make room"
                               + (", or take the flavour cloud-amd64" if room == ROOM else ""))
    # The tools take seconds: if debhelper cannot work here, that shows before the kernel is built.
    tools = deb_tools.make()
    kernel = make(config, not args.no_headers)
    image = next(path for path in kernel if path.name.startswith("linux-image-"))
    return [*kernel, tools, deb_meta.make(image)]


def main(argv: list[str] | None = None) -> int:
    """Command line."""
    parser = cli.Parser(prog="python3 -m guest.deb", description=(__doc__ or "").splitlines()[0])
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--flavour", choices=FLAVOURS, default="amd64",
                        help="use the configuration of this Debian kernel (default: amd64, for any machine)")
    source.add_argument("--config", type=Path, help="or a configuration, such as /boot/config-$(uname -r)")
    parser.add_argument("--no-headers", action="store_true", help="no package with the headers for other modules")
    args = parser.parse_args(argv)
    return debhelper.tell("deb", lambda: asked(args), " (or make apt-repo); then boot it: sudo quirectl default "
                          "quire. Its features are off until quirectl enable, or quire=on at boot")


if __name__ == "__main__":
    sys.exit(main())
