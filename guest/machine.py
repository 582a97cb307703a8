# SPDX-License-Identifier: GPL-2.0
"""A whole Debian machine under QEMU: a disk that mmdebstrap has filled, booted by GRUB, with systemd as its init.

Unlike a guest of guest/boot.py it has files of its own, which stay from one boot to the next, and boots the kernels
that are installed there, by their own initramfs. There is no network. Each boot gets a second disk with a command and
files for it. A unit of the image runs the command once multi-user.target is reached, and powers the machine off. The
console goes to the first serial port, what the command prints to the second.

QEMU starts GRUB as it would start a kernel, in place of a boot sector, so that the disk needs no partitions. GRUB reads
the configuration on the disk, which update-grub makes in the machine.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import shutil
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from guest import boot, packages, paths, splat

SUITE = "bookworm"
SOURCES = (f"deb http://deb.debian.org/debian {SUITE} main",
           f"deb http://deb.debian.org/debian-security {SUITE}-security main")
# What the machine has before our packages come: Debian's kernel of our series, servers that use the features, and what
# benchmarks need.
CONTENTS = ("systemd-sysv", "udev", "dbus", "kmod", "procps", "python3", "initramfs-tools", "grub-pc",
            "linux-image-6.12-cloud-amd64", "redis-server", "redis-tools", "postgresql", "busybox-static",
            "erofs-utils", "bpftrace", "prometheus-node-exporter")
HOME = paths.BUILD / "machine"
BASE, GRUB, STAMP, LOG = HOME / "base.img", HOME / "grub.lnx", HOME / "base.json", HOME / "mmdebstrap.log"
DISK_SIZE = "6G"
# Emulated CPUs execute the breakpoints that the kernel writes into its code while it patches a jump label; QEMU 7.2
# lets a kernel with jump labels and two of them die of one now and then, at boot, too.
MEMORY, CPUS = "2G", 1
QEMU_FAULT = re.compile(r"Oops: int3\b")
BEGUN = "== the command begins\n"
STATUS = re.compile(r"^== the command's status is (\d+)$", re.M)

# A kernel that panics ends the machine, as QEMU has -no-reboot.
OPTIONS = "console=ttyS0 no_timer_check panic=1"
# The unit's target comes after all that an ordinary boot starts.
FILES = {
    "etc/hostname": "machine\n",
    "etc/fstab": "/dev/vda / ext4 errors=remount-ro 0 1\n",
    "etc/systemd/system/job.target": """[Unit]
Requires=multi-user.target job.service
After=multi-user.target
""",
    "etc/systemd/system/job.service": """[Unit]
After=multi-user.target
[Service]
Type=oneshot
TimeoutStartSec=infinity
ExecStart=/usr/local/sbin/job
""",
    "usr/local/sbin/job": """#!/bin/bash
stty -F /dev/ttyS1 raw
mount -o ro /dev/vdb /mnt
echo "== the command begins" >/dev/ttyS1
bash /mnt/command </dev/null >/dev/ttyS1 2>&1
echo "== the command's status is $?" >/dev/ttyS1
systemctl --no-block poweroff
""",
    "etc/default/grub.d/serial.cfg": f"""GRUB_TIMEOUT=0
GRUB_TERMINAL=serial
GRUB_CMDLINE_LINUX="{OPTIONS}"
""",
}
# mmdebstrap runs it outside the new root, whose path is $1, with the users of the root.
CUSTOMIZE = r"""set -e
cp -r --no-preserve=ownership "$FILES/." "$1"
chmod 755 "$1/usr/local/sbin/job"
ln -sf job.target "$1/etc/systemd/system/default.target"
rm -f "$1/etc/apt/sources.list" "$1"/etc/apt/sources.list.d/*
# The root has no device yet, so update-grub cannot make this: GRUB boots the stock kernel, which makes it.
cat >"$1/boot/grub/grub.cfg" <<END
linux /vmlinuz root=/dev/vda ro $OPTIONS
initrd /initrd.img
boot
END
chroot "$1" grub-mkimage -O i386-pc -o /core.img -p '(hd0)/boot/grub' biosdisk ext2 normal linux echo serial terminal \
	search search_fs_uuid search_label test loadenv configfile part_gpt part_msdos gzio all_video boot
cat "$1/usr/lib/grub/i386-pc/lnxboot.img" "$1/core.img" >"$OUTPUT/grub.lnx"
rm "$1/core.img"
# Without what is mounted in it.
mkdir "$OUTPUT/root"
mount --bind "$1" "$OUTPUT/root"
mke2fs -q -t ext4 -d "$OUTPUT/root" "$OUTPUT/base.img" "$SIZE"
umount "$OUTPUT/root"
"""


class MachineError(Exception):
    """The machine cannot be made or booted; the message says why."""


@dataclass
class Done:
    """The result of a boot: the command's status and what it printed, the console, and the kernel's complaints.

    `restarts` is how many times the machine was started again because of QEMU.
    """

    status: int
    output: str
    console: str
    splats: list[splat.Splat]
    seconds: float
    restarts: int = 0


def _run(command: list[str], log: Path, **environment: str) -> None:
    """Run a program with its messages in a file. Raises MachineError."""
    with open(log, "ab") as to:
        done = subprocess.run(command, check=False, stdin=subprocess.DEVNULL, stdout=to, stderr=subprocess.STDOUT,
                              env={**os.environ, **environment})
    if done.returncode:
        raise MachineError(f"{command[0]} failed: see {log}")


def lock() -> contextlib.AbstractContextManager[None]:
    """Hold the lock of the disks that several machines are made from."""
    return paths.locked(HOME, "another command that makes or copies a machine's disk")


def make_base() -> None:
    """Make the disk of a fresh machine, unless there is one of these packages.

    Raises MachineError. Context: the caller holds lock().
    """
    wanted = {"sources": " ".join(SOURCES), "contents": " ".join(CONTENTS), "size": DISK_SIZE,
              "files": json.dumps(FILES), "customize": CUSTOMIZE, "options": OPTIONS}
    if paths.read_stamp(STAMP) == wanted and BASE.exists():
        return
    packages.ensure("for a machine")
    for path in (STAMP, BASE, GRUB, LOG):
        path.unlink(missing_ok=True)
    for folder in ("files", "root"):
        shutil.rmtree(HOME / folder, ignore_errors=True)
    for name, text in FILES.items():
        path = HOME / "files" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    # QEMU starts GRUB, so the package shall not ask for a disk that gets a boot sector.
    hooks = ["--essential-hook=echo grub-pc grub-pc/install_devices_empty boolean true | chroot \"$1\" "
             "debconf-set-selections", f"--customize-hook={CUSTOMIZE}"]
    _run(["mmdebstrap", "--variant=important", f"--include={','.join(CONTENTS)}", "--format=null",
          "--aptopt=APT::Install-Recommends \"false\"", *hooks, SUITE, "-", *SOURCES], LOG,
         FILES=str(HOME / "files"), OUTPUT=str(HOME), SIZE=DISK_SIZE, OPTIONS=OPTIONS)
    paths.write_whole(STAMP, json.dumps(wanted))


@dataclass(frozen=True)
class Direct:
    """A kernel of the disk that QEMU starts itself, with its initramfs, for a measurement.

    Only the command runs, without servers and other units. The disk stays as it is. With `icount` there is one CPU, and
    time counts instructions. A kernel that dies of QEMU's fault before the command begins is started again.
    """

    release: str
    append: str = ""
    memory: str = MEMORY
    cpus: int = CPUS
    icount: bool = False


class Machine:
    """A machine with a disk of its own, which a boot may change."""

    def __init__(self, folder: Path, base: Path | None = None) -> None:
        """Copy the disk of a fresh machine into a folder, or use one as it is.

        Raises MachineError. Context: to copy a disk, the caller holds lock().
        """
        self.folder = folder
        self.disk, self.job = base or folder / "disk.img", folder / "job.img"
        if not base:
            make_base()
            _run(["cp", "--sparse=always", str(BASE), str(self.disk)], folder / "log")

    def releases(self) -> list[str]:
        """Return the versions of the kernels that are installed. Raises MachineError."""
        listed = self.folder / "boot"
        listed.unlink(missing_ok=True)
        _run(["debugfs", "-R", "ls -p /boot", str(self.disk)], listed)
        return sorted(re.findall(r"/vmlinuz-([^/]+)/", listed.read_text(encoding="utf-8")))

    def _kernel(self, direct: Direct | None) -> list[str]:
        """Return QEMU's options that say what starts, and what the machine has. Raises MachineError."""
        if not direct:
            return ["-kernel", str(GRUB), "-smp", str(CPUS), "-m", MEMORY, *boot.PLAIN_CPU.split()]
        for name, file in (("vmlinuz", "kernel"), ("initrd.img", "initrd")):
            _run(["debugfs", "-R", f"dump /boot/{name}-{direct.release} {self.folder}/{file}", str(self.disk)],
                 self.folder / "log")
            if not (self.folder / file).exists():  # debugfs says nothing by its exit status
                raise MachineError(f"the machine's disk has no /boot/{name}-{direct.release}")
        append = f"root=/dev/vda ro {OPTIONS} systemd.unit=job.service {direct.append}"
        clock = ["-icount", "shift=0,sleep=off"] if direct.icount else []
        return ["-kernel", f"{self.folder}/kernel", "-initrd", f"{self.folder}/initrd", "-append", append, "-snapshot",
                "-smp", str(1 if direct.icount else direct.cpus), "-m", direct.memory, "-cpu", "max", *clock]

    def _command(self, direct: Direct | None) -> list[str]:
        drives = [word for path in (self.disk, self.job)
                  for word in ("-drive", f"file={path},format=raw,if=virtio,cache=unsafe")]
        # It ends with this process, however that ends.
        return ["setpriv", "--pdeathsig", "KILL", boot.QEMU, "-machine", "q35", *self._kernel(direct), *drives,
                "-display", "none", "-monitor", "none", "-nic", "none", "-no-reboot",
                "-serial", f"file:{self.folder}/console", "-serial", f"file:{self.folder}/output"]

    def _read(self, name: str) -> str:
        path = self.folder / name
        return path.read_text(encoding="utf-8", errors="replace").replace("\r", "") if path.exists() else ""

    def boot(self, command: str, files: Path | None = None, timeout: float = 900,
             direct: Direct | None = None) -> Done:
        """Boot, run a command for bash, with the folder `files` at /mnt/files, power off, and return the result.

        `timeout`, in seconds, is for the whole boot. Raises MachineError if the machine does not power itself off by
        then, or without having run the command.
        """
        self._write_job(command, files)
        for attempt in itertools.count(1):
            begun = time.monotonic()
            late = "" if self._qemu_ends(self._command(direct), timeout) else f" within {timeout:.0f} s"
            console, (_, started, output) = self._read("console"), self._read("output").partition(BEGUN)
            if started or late or not (direct and QEMU_FAULT.search(console)) or attempt == boot.ATTEMPTS:
                break
            boot.start_again("the machine died of a breakpoint (int3) before its command began", attempt)
        said = STATUS.search(output)
        if late or not said:
            raise MachineError(f"the machine did not {'power off' if said else 'end the command'}{late}; its console "
                               f"ends: {console[-2000:]}\nand its output: {output[-2000:]}")
        return Done(int(said[1]), output[:said.start()], console, splat.find(console), time.monotonic() - begun,
                    attempt - 1)

    def _write_job(self, command: str, files: Path | None) -> None:
        """Make the disk with the command and its files. Raises MachineError."""
        with tempfile.TemporaryDirectory(dir=self.folder) as name:
            job = Path(name)
            (job / "command").write_text(command, encoding="utf-8")
            if files:
                shutil.copytree(files, job / "files")
            self.job.unlink(missing_ok=True)
            size = sum(path.stat().st_size for path in job.rglob("*")) // 1000 + 16 * 1024  # 2 % for ext4's own
            _run(["mke2fs", "-q", "-t", "ext4", "-O", "^has_journal", "-m", "0", "-d", str(job), str(self.job),
                  f"{size}k"], self.folder / "log")

    def _qemu_ends(self, command: list[str], timeout: float) -> bool:
        """Run QEMU until it ends, or for `timeout` seconds, and say whether it ended itself."""
        for name in ("console", "output"):
            (self.folder / name).unlink(missing_ok=True)
        with open(self.folder / "log", "ab") as log:
            qemu = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            qemu.wait(timeout)
            return True
        except subprocess.TimeoutExpired:
            return False
        finally:
            qemu.kill()
            qemu.wait()
