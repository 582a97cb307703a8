# SPDX-License-Identifier: GPL-2.0
"""Runs a benchmark on the kernels that users install: Debian's own of our base, and that of our package in build/deb.

Both are on the disk of a Debian machine (guest/machine.py), with Debian's configuration and each with its own
initramfs. A run boots one of them to a shell of its own, without servers, and leaves the disk as it is.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path

from bench import core
from guest import deb, debhelper, machine, paths

DISK, STAMP = machine.HOME / "packages.img", machine.HOME / "packages.json"
FLAVOUR = "cloud-amd64"  # of Debian's kernel on the machine
# What the columns' variants are called in results, and how the names of their kernels end.
KERNELS = {"vanilla": ("debian", f"-{FLAVOUR}"), "quire": ("deb", "-quire")}
# The benchmark's script copies its programs from the folder where the host has built them.
# udev still works when the boot has ended, and the memory of its processes would be measured, too.
COMMAND = """set -e
udevadm settle
systemctl stop systemd-udevd-kernel.socket systemd-udevd-control.socket systemd-udevd.service
mkdir -p {programs}
mount --bind /mnt/files/bin {programs}
mount -t tmpfs none /tmp
modprobe -a loop zram 2>/dev/null || true
exec sh /mnt/files/script
"""


def package() -> Path:
    """Return our kernel's package. Raises BenchError if there is none, or one of another configuration."""
    found = sorted(debhelper.OUTPUT.glob("linux-image-*-quire_*.deb"), key=lambda path: path.stat().st_mtime)
    if not found:
        raise core.BenchError(f"there is no package of a kernel in build/deb: make deb FLAVOUR={FLAVOUR}")
    config = (paths.read_stamp(debhelper.OUTPUT / "origin.json") or {}).get("config", "one that was not noted")
    if config != deb.debian_config(FLAVOUR).name:
        raise core.BenchError(f"the kernel in build/deb has another configuration ({config}) than Debian's on the "
                              f"machine: make deb FLAVOUR={FLAVOUR}")
    return found[-1]


def install(ours: Path) -> None:
    """Install our package on the disk of a fresh machine. Raises BenchError. Context: holds machine.lock()."""
    with tempfile.TemporaryDirectory(dir=machine.HOME) as name:
        files = Path(name) / "files"
        files.mkdir()
        shutil.copy2(ours, files)
        fresh = machine.Machine(Path(name))
        done = fresh.boot("dpkg -i /mnt/files/*.deb", files)
        if done.status or done.splats:
            raise core.BenchError(f"{ours.name} cannot be installed: {done.output[-1000:]}")
        fresh.disk.rename(DISK)


def make_disk() -> None:
    """Make the disk with our package, unless there is one of the same packages. Raises BenchError."""
    ours = package()
    with machine.lock():
        try:
            machine.make_base()
            wanted = {"package": ours.name, "time": ours.stat().st_mtime, "base": paths.read_stamp(machine.STAMP)}
            if paths.read_stamp(STAMP) != wanted or not DISK.exists():
                STAMP.unlink(missing_ok=True)
                install(ours)
                paths.write_whole(STAMP, json.dumps(wanted))
        except machine.MachineError as error:
            raise core.BenchError(str(error)) from error


def release_of(variant: str, releases: list[str]) -> str:
    """Return the version of a variant's kernel; Debian's has to be of the same base as ours. Raises BenchError."""
    name, end = KERNELS[variant]
    ours = next((one for one in releases if one.endswith(KERNELS["quire"][1])), "")
    base = ours.removesuffix(KERNELS["quire"][1])
    found = [one for one in releases if one.endswith(end) and one.startswith(base)]
    if not base or not found:
        raise core.BenchError(f"the machine has the kernels {', '.join(releases)}, and of one base it has no {name}: "
                              "remove build/machine, and build the package from the base that apt has now")
    return found[-1]


def run(script: str, programs: list[Path], variant: str, options: machine.Direct, timeout: float) -> machine.Done:
    """Run a benchmark's script, with these programs of the host, on a variant's kernel; `options` lacks its release.

    Raises BenchError.
    """
    make_disk()
    with tempfile.TemporaryDirectory(dir=machine.HOME) as name:
        files = Path(name) / "files"
        (files / "bin").mkdir(parents=True)
        (files / "script").write_text(script, encoding="utf-8")
        for program in programs:
            shutil.copy2(program, files / "bin")
        one = machine.Machine(Path(name), DISK)
        try:
            direct = machine.Direct(release_of(variant, one.releases()), options.append, options.memory, options.cpus,
                                    options.icount)
            return one.boot(COMMAND.format(programs=programs[0].parent if programs else "/run/none"), files, timeout,
                            direct)
        except machine.MachineError as error:
            raise core.BenchError(str(error)) from error
