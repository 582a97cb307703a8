# SPDX-License-Identifier: GPL-2.0
"""The command that says which kernel GRUB boots by default: ours, or the distribution's.

The choice is a line of a file that grub-mkconfig reads, and that file finds the menu entry: nothing here names a
version that an upgrade would outdate. The package installs the file with the choice "stock", so that only this command
makes a machine boot our kernel by itself.
"""

from __future__ import annotations

import argparse
import os
import re
import stat
import struct
import subprocess
from pathlib import Path

from quirelib.output import write_whole
from quirelib.signals import ended_by_signals
from quirelib.surface import Quire, Refused, read

CONF = "etc/default/grub.d/zz-quire-default.cfg"
TEMPLATE = Path(__file__).resolve().parent.parent / "grub/zz-quire-default.cfg"
CHOICE = re.compile(r"^quire_boots=(\w+)$", re.M)
UPDATE = "usr/sbin/update-grub"
MENU = "boot/grub/grub.cfg"
SUFFIX = "-quire"
# What is no stock kernel: ours and copies of ours, and what grub-mkconfig skips or takes for a spare copy.
NOT_STOCK = re.compile(rf"{SUFFIX}|\.dpkg-|\.(old|sig|rpmsave|rpmnew|efi\.signed)$")
EFI = "sys/firmware/efi/efivars"
LOADER_INFO = f"{EFI}/LoaderInfo-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f"
SECURE_BOOT = f"{EFI}/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
LOADER_CONFS = ("boot/efi/loader/loader.conf", "efi/loader/loader.conf", "boot/loader/loader.conf")


def _bytes(path: Path) -> bytes:
    """Return a file's content, nothing if it cannot be read."""
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _text(path: Path) -> str:
    return _bytes(path).decode(errors="replace")


def choice(root: Path) -> str:
    """Return what was chosen, "unset" if there is no file."""
    found = CHOICE.search(_text(root / CONF))
    return found.group(1) if found else "unset"


def _is_file(path: Path) -> bool:
    """Say whether there is such a file. Raises PermissionError; Path.is_file() does so in some versions of Python."""
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False


def _releases(root: Path) -> list[str]:
    """Return the releases of all kernels in /boot."""
    # Not glob(), which takes a folder that it may not read for an empty one.
    return [name.split("-", 1)[1] for name in os.listdir(root / "boot") if name.startswith("vmlinuz-")]


def others(root: Path) -> list[str]:
    """Return the releases of the stock kernels in /boot, in no order."""
    return [release for release in _releases(root) if not NOT_STOCK.search(release)]


def kernels(root: Path) -> list[str]:
    """Return the releases of our kernels in /boot, the newest last."""
    found = [release for release in _releases(root) if release.endswith(SUFFIX)]
    return sorted(found, key=lambda release: [int(number) for number in re.findall(r"\d+", release)])


def signed(image: Path) -> bool:
    """Say whether a kernel image carries a signature: whether its table of certificates has a size."""
    data = _bytes(image)
    try:
        (header,) = struct.unpack_from("<I", data, 0x3c)
        if data[header:header + 4] != b"PE\0\0":
            return False
        # The optional header follows 24 bytes later; in the 64-bit form its fifth directory is at 112 + 4 * 8.
        return bool(struct.unpack_from("<I", data, header + 24 + 112 + 4 * 8 + 4)[0])
    except struct.error:
        return False


def need_grub(root: Path, which: str) -> None:
    """Raise Refused with what to do if GRUB does not boot this machine."""
    has_grub = _is_file(root / UPDATE) and _is_file(root / MENU)
    # The loader that booted the machine leaves its name, in UTF-16.
    booted = _bytes(root / LOADER_INFO)[4:].decode("utf-16-le", errors="replace")
    if "systemd-boot" in booted or (not has_grub and any(_is_file(root / path) for path in LOADER_CONFS)):
        pattern = "'*-quire.conf'" if which == "quire" else "'*-amd64.conf'"
        raise Refused("systemd-boot boots this machine, not GRUB. It boots the newest kernel unless told otherwise:\n"
                      f"  bootctl set-default {pattern}     (back to the newest: bootctl set-default '')")
    if not has_grub:
        raise Refused(f"GRUB does not boot this machine: there is no {root / UPDATE} or no {root / MENU}.\n"
                      "Choose the kernel in the configuration of your own boot loader.")


def need_kernel(root: Path) -> None:
    """Raise Refused with what to do if none of our kernels is installed, or the machine would not boot the newest."""
    ours = kernels(root)
    if not ours:
        raise Refused(f"there is no quire kernel in {root / 'boot'}; install one first: sudo apt install quire")
    image = root / f"boot/vmlinuz-{ours[-1]}"
    if _bytes(root / SECURE_BOOT)[4:5] == b"\1" and not signed(image):
        raise Refused(f"Secure Boot is on, and {image} has no signature: this machine would not boot it.\n"
                      "Sign it with a key of your own (sbsign with --output of the same name, and mokutil --import for "
                      "the key), or switch Secure Boot off in the firmware.")


def menu_default(menu: str) -> str:
    """Return what GRUB's menu takes as its default: an entry's name or number."""
    found = [one for one in re.findall(r'^\s*set default="(.*)"$', menu, re.M) if "next_entry" not in one]
    return found[-1] if found else "0"


def first_release(menu: str, name: str) -> str:
    """Return the release that the first entry of this name boots, "" if that is no kernel."""
    first = re.search(rf"^\s*menuentry .*{re.escape(name)}.*$", menu, re.M)
    if not first or "gnulinux-" not in first.group():
        return ""
    found = re.search(r"^\s*linux\s+\S*/vmlinuz-(\S+)", menu[first.end():], re.M)
    return found.group(1) if found else ""


def booted_by_default(menu: str) -> str:
    """Return the release that GRUB boots by default, "" if its default names no release that is in the menu."""
    entry = menu_default(menu).split(">")[-1]
    if menu_default(menu) == "0":
        return first_release(menu, "")
    if entry.startswith("gnulinux-simple-"):
        return first_release(menu, f"'{entry}'")
    found = re.fullmatch(r"gnulinux-(.+)-advanced-.+", entry)
    return found.group(1) if found and f"'{entry}'" in menu else ""


def told(menu: str) -> str:
    """Return a sentence on what GRUB boots."""
    release, entry = booted_by_default(menu), menu_default(menu)
    if release:
        return f"GRUB boots {release}"
    saved = "the entry that was saved last, or its first one if none was"
    return f"GRUB boots {saved if entry == '${saved_entry}' else f'its entry {entry}'}"


def update_grub(root: Path) -> str:
    """Have GRUB make its menu; return what went wrong, "" for nothing."""
    try:
        done = subprocess.run([str(root / UPDATE)], check=False, text=True, errors="replace", stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    except OSError as error:
        return str(error.strerror)
    return (done.stdout.strip() or "nothing") if done.returncode else ""


def update(root: Path, which: str) -> None:
    """Write the file and have GRUB make its menu; if that fails or is interrupted, put the old file back.

    Raises Refused.
    """
    conf = root / CONF
    text = CHOICE.sub(f"quire_boots={which}", read(TEMPLATE), count=1) + "\n"
    before = conf.read_text(encoding="utf-8") if _is_file(conf) else None
    try:
        conf.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Refused(f"{conf.parent}: cannot be made: {error.strerror}.") from error

    def restore() -> None:
        if before is None:
            conf.unlink()
        else:
            write_whole(conf, before)

    with ended_by_signals():
        write_whole(conf, text)
        try:
            wrong = update_grub(root)
        except BaseException:
            restore()
            raise
    if not wrong:
        return
    restore()
    raise Refused(f"{root / UPDATE} failed, and {conf} is as before. It says:\n{wrong}")


def judge(root: Path, which: str, menu: str) -> None:
    """Raise Refused if the new menu does not boot what was chosen; a machine with our kernel alone boots that."""
    ours = SUFFIX in booted_by_default(menu)
    if ours != (which == "quire") and (which == "quire" or others(root)):
        raise Refused(f"{root / CONF} says {which}, but {told(menu)}: look for GRUB_DEFAULT in "
                      f"{root / 'etc/default/grub'} and in the files beside this one, and run update-grub.")


def default(_quire: Quire | None, args: argparse.Namespace) -> None:
    """Print or set which kernel GRUB boots by default."""
    try:
        _default(args.root, args.which, args.dry_run)
    except PermissionError as error:
        raise Refused(f"this user may not read {error.filename}. Run the command with sudo.") from error


def _default(root: Path, which: str | None, dry_run: bool) -> None:
    need_grub(root, which or "quire")
    before = choice(root)
    if which is None:
        print(f"default: {before}; {told(read(root / MENU))}")
        return
    if which == "quire":
        need_kernel(root)
    if dry_run:
        print(f"would write quire_boots={which} to {root / CONF} (now: {before}) and run {root / UPDATE}")
        return
    # Root is told by the write itself what stands in its way, such as a read-only file system.
    if os.geteuid() and not os.access(root / "etc/default", os.W_OK):
        raise Refused("only root may change this. Run the command with sudo.")
    update(root, which)
    menu = read(root / MENU)
    print(f"default: {before} -> {which}; {told(menu)}"
          + ("   (back: quirectl default stock)" if which == "quire" else ""))
    judge(root, which, menu)
