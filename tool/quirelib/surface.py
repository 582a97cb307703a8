# SPDX-License-Identifier: GPL-2.0
"""The interface of a quire kernel in /sys and /proc, and explanations of why the kernel refuses something."""

from __future__ import annotations

import errno
import itertools
import os
from pathlib import Path

from quirelib import knobs

FEATURES = ("fork", "shm", "prezero", "text", "rmap")
NOT_KNOBS = ("enabled", "state")
WRITABLE = 0o222
SYSCTLS = ("scrub_start", "scrub_stop", "scrub_load")
# Why prezero's knob "engine" refuses dma.
ENGINE = {
    errno.ENODEV: "there is no DMA channel that can fill or copy memory; load the driver of one first.",
    errno.EOPNOTSUPP: "the DMA channel does not reach all memory, or cannot work on single pages.",
    errno.EBUSY: "the DMA channel hung before; the kernel does not use it again until the next boot.",
}


class Refused(Exception):
    """Something cannot be done; the message says why and what to do next."""


def read(path: Path) -> str:
    """Return a file's text without the newline at its end, or "-" if the file is write-only."""
    if path.exists() and not path.stat().st_mode & 0o444:
        return "-"
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except PermissionError as error:
        raise Refused(f"this user may not read {path}. Run quirectl as root.") from error
    except OSError as error:
        raise Refused(f"{path}: {error.strerror}") from error


class Quire:
    """The kernel's interface, below a root folder, which is / except in tests."""

    def __init__(self, root: Path) -> None:
        self.top = root / "sys/kernel/mm/quire"
        self.proc = root / "proc"
        if not self.top.is_dir():
            raise Refused(
                f"this is not a quire kernel ({self.release()} has no {self.top}).\n"
                "Boot one; in the quire repository `make demo` boots one in a guest."
            )

    def release(self) -> str:
        """Return the name of the running kernel."""
        path = self.proc / "sys/kernel/osrelease"
        return path.read_text(encoding="utf-8").strip() if path.is_file() else "the running kernel"

    def version(self) -> str:
        """Return the version of quire."""
        path = self.top / "version"
        return read(path) if path.is_file() else "unknown"

    def features(self) -> list[str]:
        """Return the features that are built in: those that we know in our order, then others."""
        found = {p.name for p in self.top.iterdir() if (p / "enabled").is_file()}
        return [f for f in FEATURES if f in found] + sorted(found - set(FEATURES))

    def chosen(self, name: str | None) -> list[str]:
        """Return the features that a word names: one, or all."""
        present = self.features()
        if name in (None, "all"):
            return present
        if name in present:
            return [name]
        if name in FEATURES:
            raise Refused(f"the feature {name} is not built into this kernel; it has: {', '.join(present) or 'none'}.")
        raise Refused(f"there is no feature {name!r}; this kernel has: {', '.join(present) or 'none'}, or all.")

    def state(self, feature: str) -> str:
        """Return on, off, draining or disabled_by_warning."""
        return read(self.top / feature / "state")

    def stats(self, feature: str) -> dict[str, int]:
        """Return a feature's counters."""
        folder = self.top / feature / "stats"
        if not folder.is_dir():
            return {}
        return {p.name: int(read(p)) for p in sorted(folder.iterdir())}

    def knob_path(self, feature: str, knob: str, gauges: bool = False) -> Path:
        """Return the file of a knob or, with `gauges`, of a gauge."""
        paths = self.knobs(feature)
        known = ", ".join(paths) or "none"
        if knob in paths:
            return paths[knob]
        shown = self.gauges(feature)
        if knob in shown and gauges:
            return shown[knob]
        if knob in shown:
            raise Refused(f"{feature}/{knob} is a gauge: it is read-only. The knobs of {feature}: {known}.")
        raise Refused(f"{feature} has no knob {knob!r}; its knobs: {known}.")

    def _files(self, feature: str) -> dict[str, Path]:
        return {p.name: p for p in sorted((self.top / feature).iterdir()) if p.is_file() and p.name not in NOT_KNOBS}

    def knobs(self, feature: str) -> dict[str, Path]:
        """Return the knobs of a feature and their files; prezero's include the sysctls of its daemon."""
        found = {name: path for name, path in self._files(feature).items() if path.stat().st_mode & WRITABLE}
        if feature == "prezero":
            for name in SYSCTLS:
                path = self.proc / "sys/vm" / name
                if path.is_file():
                    found[name] = path
        return found

    def gauges(self, feature: str) -> dict[str, Path]:
        """Return the files beside a feature's knobs that can only be read."""
        return {name: path for name, path in self._files(feature).items() if not path.stat().st_mode & WRITABLE}

    def write(self, path: Path, value: str, what: str) -> None:
        """Write a value, or raise Refused with what to do next."""
        if not value:
            # The kernel takes an empty write for success.
            raise Refused(f"{what}: the value is empty.{bounds(path)}")
        try:
            # A single write(2) that must not create a file if the kernel has none.
            fd = os.open(path, os.O_WRONLY)
            try:
                os.write(fd, value.encode())
            finally:
                os.close(fd)
        except OSError as error:
            raise Refused(f"{what}: {self.advice(error, path, value)}") from error

    def advice(self, error: OSError, path: Path, value: str) -> str:
        """Return why a write failed, and what to do."""
        disabled = path.name == "enabled" and self.state(path.parent.name) == "disabled_by_warning"
        if disabled and value == "1":
            return (
                "the kernel found an inconsistency and keeps this feature off until the next boot.\n"
                "Look for the warning in `dmesg`, and report it; `quirectl drain` undoes what is left."
            )
        if error.errno in (errno.EACCES, errno.EPERM):
            if os.geteuid() != 0:
                return "only root may change this. Run the command with sudo."
            return "the kernel does not allow this; `dmesg | tail` may say why."
        if error.errno in (errno.EINVAL, errno.ERANGE):
            now = "" if read(path) == "-" else f" (it stays {read(path)})"
            return f"the kernel refuses the value {value!r}{now}.{bounds(path)}"
        if error.errno == errno.EAGAIN and path.name == "scrub_now":
            return "prezero is off; switch it on first: quirectl enable prezero"
        if path.name == "engine" and error.errno in ENGINE:
            return ENGINE[error.errno]
        if value == "2" and error.errno in (errno.EAGAIN, errno.EBUSY):
            return "the kernel could not undo everything, because some of it is in use; try again later."
        if error.errno == errno.EBUSY:
            return "the feature is busy; wait until its state is on or off (`quirectl status`) and try again."
        if value == "2" and error.errno == errno.ENOMEM:
            return "the kernel had too little memory to undo everything; free some and try again."
        if error.errno == errno.ENOMEM:
            return f"the kernel has too little memory for {value!r}."
        return f"{error.strerror}; `dmesg | tail` may say why."


def bounds(path: Path) -> str:
    """Return a sentence that says what a knob's file takes, "" if that is not known."""
    feature = "prezero" if path.name in SYSCTLS else path.parent.name
    knob = knobs.find(feature, path.name)
    return f" It takes {knob.bounds} ({knob.unit})." if knob else ""


def columns(rows: list[list[str]]) -> str:
    """Return lines with aligned columns; further lines of a cell are below its first line."""
    lines = []
    for row in rows:
        cells = [cell.splitlines() or [""] for cell in row]
        lines += [list(line) for line in itertools.zip_longest(*cells, fillvalue="")]
    widths = [max(map(len, column)) for column in zip(*lines)]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in lines)
