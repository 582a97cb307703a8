# SPDX-License-Identifier: GPL-2.0
"""Hibernate a guest. QEMU runs without virtme-ng, because a 9p root cannot be resumed from an image."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from guest import boot, paths

INIT = Path(__file__).parent / "workloads/hibernate.sh"
SWAP = 1 << 30


def initramfs(folder: Path, programs: list[Path]) -> Path:
    """Make an initramfs of busybox, our init, and programs."""
    root, image = folder / "root", folder / "initramfs"
    (root / "bin").mkdir(parents=True)
    busybox = shutil.which("busybox", path="/bin:/usr/bin")
    assert busybox, "busybox-static is missing: make packages"
    shutil.copy(busybox, root / "bin/busybox")
    shutil.copy(INIT, root / "init")
    (root / "init").chmod(0o755)
    for program in programs:
        shutil.copy(program, root / program.name)
    names = "\n".join(path.relative_to(root).as_posix() for path in sorted(root.rglob("*")))
    with open(image, "wb") as output:
        subprocess.run(["cpio", "--quiet", "-o", "-H", "newc"], cwd=root, input=names.encode(), stdout=output,
                       check=True)
    return image


def start(folder: Path, kernel: str, how: str, programs: list[Path], timeout: float) -> tuple[str, str]:
    """Boot once, with a swap disk that survives the boot; return the output of our init, and the console."""
    image, swap, report = folder / "initramfs", folder / "swap", folder / "report"
    if not image.exists():
        initramfs(folder, programs)
        with open(swap, "wb") as disk:
            disk.truncate(SWAP)
    command = ["qemu-system-x86_64", "-machine", "q35", "-m", "1G", "-display", "none", "-monitor", "none",
               "-serial", "stdio", "-serial", f"file:{report}", "-no-reboot", "-nic", "none", "-cpu", "max",
               "-accel", "kvm" if boot.kvm_works(kernel) else "tcg",
               "-kernel", str(paths.BUILD / kernel / "bzImage"), "-initrd", str(image),
               "-drive", f"file={swap},if=virtio,format=raw,cache=unsafe",
               "-append", f"console=ttyS0 quiet loglevel=5 panic=-1 no_timer_check quire=prezero how={how}"]
    path = ":".join(["/usr/bin", "/bin", os.environ.get("PATH", "")])
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          timeout=timeout, check=False, env={**os.environ, "PATH": path})
    return (report.read_text(encoding="utf-8", errors="replace"), done.stdout.decode("utf-8", errors="replace"))
