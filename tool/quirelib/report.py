# SPDX-License-Identifier: GPL-2.0
"""The command that packs what a bug report needs, without secrets, into one file."""

from __future__ import annotations

import argparse
import io
import json
import os
import re
import subprocess
import tarfile
import time
from collections.abc import Callable
from pathlib import Path

from quirelib.output import write_whole
from quirelib.surface import Quire, Refused, read

# Boot options whose values concern memory and say nothing about the owner of a machine.
KEPT = re.compile(r"(quire|mem|memmap|transparent_hugepage\w*|thp_\w+|hugepages|(default_)?hugepagesz|hugetlb\w*|"
                  r"numa\w*|init_on_(alloc|free)|page_poison\w*|debug_pagealloc|page_owner|slub_debug|"
                  r"slab_\w+|kasan[.\w]*|kfence[.\w]*|kmemleak|mitigations|pti|nopti|nokaslr|no5lvl|maxcpus|nr_cpus|"
                  r"isolcpus|nohz_full|rcu_nocbs|cma|movablecore|kernelcore|movable_node|swiotlb|"
                  r"(intel_|amd_)?iommu[.\w]*|preempt|cgroup[.\w]*|zswap[.\w]*|ro|rw|quiet|splash|debug|"
                  r"panic\w*|loglevel)(=|$)")
STAMP = re.compile(r"^(?:<\d+>)?(?:\[[^]]*\] ?)*")
# Registers, stacks and bytes of code may hold anybody's data.
DATA = re.compile(r"\b(R[A-D]X|R[SD]I|RBP|R\d\d|CR\d|DR\d|FS|GS|CS|PKRU|ORIG_RAX): |\bRSP: |\bCode: |^Stack: ")
# At the beginning of a message: a line that says "general protection fault" later on is about a program.
BEGIN = re.compile(r"-*\[ cut here \]|BUG: unable to handle|Oops: |general protection fault")
END, LONGEST = "---[ end trace", 300
README = """\
What quirectl bugreport packed on {release}, quire {version}.

{files}

Not in it: other lines of the kernel's log; boot options that do not concern memory, except the names of those that
have a value; options for init; registers and stacks of a trace; names of files, users or this machine; what processes
map or hold. A trace of a warning names the process that ran into it.
"""
Part = tuple[str, str, Callable[[Quire, Path], str]]


def _json(what: Callable[[Quire, str], object]) -> Callable[[Quire, Path], str]:
    return lambda quire, _root: json.dumps({f: what(quire, f) for f in quire.features()}, indent=2) + "\n"


def version(quire: Quire, _root: Path) -> str:
    """Return which kernel this is."""
    return f"quire {quire.version()}\nkernel {quire.release()}\nmachine {os.uname().machine}\n"


def cmdline(_quire: Quire, root: Path) -> str:
    """Return the boot options that concern memory, and of others that have a value the name; not those for init."""
    options: list[str] = []
    for word in (root / "proc/cmdline").read_text(encoding="utf-8", errors="replace").split():
        if word == "--":
            break
        name, equals, _ = word.partition("=")
        options.append(word if KEPT.match(word) else f"{name}=..." if equals else "...")
    return " ".join(options) + "\n"


def log(_quire: Quire, _root: Path) -> str:
    """Return the kernel's messages about quire, and whole warnings that name it, without registers."""
    done = subprocess.run(["dmesg"], text=True, errors="replace", check=False, capture_output=True)
    if done.returncode:
        return f"(dmesg says: {done.stderr.strip()})\n"
    return "".join(f"{line}\n" for line in of_quire(done.stdout.splitlines()))


def of_quire(lines: list[str]) -> list[str]:
    """Return the lines of the log that quire wrote, and the traces that mention quire."""
    kept: list[str] = []
    trace: list[str] | None = None
    for line in lines:
        if trace is None and BEGIN.match(STAMP.sub("", line)):
            trace = []
        if trace is not None:
            trace.append(line)
            if END in line or len(trace) == LONGEST:
                kept += _harmless(trace)
                trace = None
        elif STAMP.sub("", line).startswith("quire: "):
            kept.append(line)
    return kept + _harmless(trace or [])


def _harmless(trace: list[str]) -> list[str]:
    if not any("quire" in line for line in trace):
        return []
    return [line for line in trace if not DATA.search(STAMP.sub("", line))]


def _proc(name: str) -> Callable[[Quire, Path], str]:
    return lambda _quire, root: (root / "proc" / name).read_text(encoding="utf-8", errors="replace")


PARTS: tuple[Part, ...] = (
    ("version.txt", "the kernel's release, quire's version, the kind of machine", version),
    ("state.json", "the state of each feature", _json(Quire.state)),
    ("knobs.json", "the knobs and their values", _json(lambda q, f: {k: read(p) for k, p in q.knobs(f).items()})),
    ("gauges.json", "what is shared and pooled now", _json(lambda q, f: {k: read(p) for k, p in q.gauges(f).items()})),
    ("counters.json", "the counters since boot", _json(Quire.stats)),
    ("vmstat.txt", "/proc/vmstat", _proc("vmstat")),
    ("meminfo.txt", "/proc/meminfo", _proc("meminfo")),
    ("cmdline.txt", "the boot options that concern memory, and the names of others that have a value", cmdline),
    ("dmesg.txt", "the kernel's messages about quire", log),
)


def pack(files: dict[str, str], folder: str) -> bytes:
    """Return a compressed tar archive with these files in one folder."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in files.items():
            data = content.encode()
            member = tarfile.TarInfo(f"{folder}/{name}")
            member.size, member.mtime, member.mode = len(data), int(time.time()), 0o644
            archive.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


def bugreport(quire: Quire, args: argparse.Namespace) -> None:
    """Pack what a report needs, and print a list of it."""
    listing = "\n".join(f"{name:<14} {what}" for name, what, _ in PARTS)
    files = {"README.txt": README.format(release=quire.release(), version=quire.version(), files=listing)}
    for name, _, collect in PARTS:
        try:
            files[name] = collect(quire, args.root)
        except (Refused, OSError) as error:
            files[name] = f"(not available: {error})\n"
    folder = f"quire-bugreport-{time.strftime('%Y%m%d-%H%M%S')}"
    output = args.output or Path(f"{folder}.tar.gz")
    write_whole(output, pack(files, folder), 0o600)
    if str(output) != "-":
        print(f"{output}: written. Look through it before you send it; it contains:\n{listing}")
