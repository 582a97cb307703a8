# SPDX-License-Identifier: GPL-2.0
"""Fuzzes the system calls of memory management with syzkaller, while its programs switch all features on and off.

syzkaller is built from a git clone of it, with a description of our knobs (made of tool/quirelib/knobs.py) and of calls
on memory that can have shared tables (fuzz.txt), and begins with some programs of ours (fuzz_seeds.txt). Its manager
starts emulated guests of the kernel fuzz, which is the debug kernel with KCOV in our code alone: programs are kept that
reach something new in mm/quire. The corpus and the crashes, with what reproduces them, stay in
build/suites/syzkaller/work, where the next run goes on. Each run is added to suites/results/fuzz/syzkaller.json, of
which suites/publish makes a table in docs/trust.md.
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from guest import boot, build, cli, packages, paths
from quirelib.knobs import KNOBS, Knob
from suites import publishing, running, storage
from suites.suite import HERE, SuiteError, checkout, origin

NAME = publishing.NAME
VARIANT = "fuzz"
HOME = paths.BUILD / "suites" / NAME
SOURCE, STAMP, WORK = HOME / "source", HOME / "origin.json", HOME / "work"
CALLS_FILE, SEEDS_FILE, INIT = HERE / "fuzz.txt", HERE / "fuzz_seeds.txt", HERE / "fuzz_init.sh"
MANAGER, EXECUTOR = SOURCE / "bin/syz-manager", SOURCE / "bin/linux_amd64/syz-executor"
OURS = "mm/quire/"
# What is no work of the features: unit tests, which run at boot, and what each tracepoint consists of.
TEST_FILE = re.compile(r"_test\.c$")
TRACEPOINT = re.compile(r"(__traceiter|__probestub|trace_raw_output|trace_event_raw_event|perf_trace)_")
# syzkaller's own calls that programs use besides ours; a star stands for any variant, and no other variant is used.
CALLS = ("mmap", "munmap", "mremap", "mprotect", "madvise", "process_madvise", "mlock", "mlock2", "munlock", "mlockall",
         "munlockall", "msync", "mincore", "remap_file_pages", "memfd_create", "fallocate", "ftruncate", "userfaultfd",
         "ioctl$UFFDIO_*", "shmget", "shmget$private", "shmat", "shmdt", "shmctl$*", "process_vm_readv",
         "process_vm_writev", "mbind", "set_mempolicy", "get_mempolicy", "migrate_pages", "move_pages",
         "syz_io_uring_setup", "io_uring_register$IORING_REGISTER_BUFFERS",
         "io_uring_register$IORING_UNREGISTER_BUFFERS", "pkey_alloc", "pkey_free", "pkey_mprotect", "syz_clone",
         "syz_clone3", "ptrace", "ptrace$peek", "ptrace$poke", "ptrace$cont", "ptrace$setopts", "read", "write",
         "pread64", "pwrite64", "readv", "writev", "splice", "vmsplice", "tee", "pipe2", "sendfile", "copy_file_range",
         "prlimit64", "close", "dup", "fadvise64", "sync_file_range", "syz_pidfd_open", "process_mrelease",
         "kill", "exit", "readahead", "prctl$PR_SET_MM", "prctl$PR_SET_VMA", "prctl$PR_SET_THP_DISABLE",
         "syz_open_procfs$pagemap", "ioctl$PAGEMAP_SCAN", "set_mempolicy_home_node")
PLANTED_FOLDER = "planted"
PLANTED = ("openat$quire_trigger", "write$quire_trigger")
OPTIONS = ("root=/dev/root rootfstype=9p rootflags=trans=virtio,version=9p2000.L,msize=524288,cache=loose ro "
           "init={init} quire.key={key} ip=10.0.2.15::10.0.2.2:255.255.255.0::eth0:off quire=on kmemleak=off "
           "kunit.enable=0 panic_on_warn=1 transparent_hugepage=always hung_task_panic=1 net.ifnames=0")
QEMU = ("-machine pc -accel tcg,thread=multi {cpu} "
        "-object memory-backend-ram,size={half}M,id=m0 -object memory-backend-ram,size={half}M,id=m1 "
        "-numa node,memdev=m0,cpus=0-1 -numa node,memdev=m1 "
        "-fsdev local,id=fsdev0,path=/,security_model=none,readonly=on,multidevs=remap "
        "-device virtio-9p-pci,fsdev=fsdev0,mount_tag=/dev/root")
MEMORY = 2048
END_LIMIT = 120


def values(knob: Knob) -> list[str]:
    """Return values of a knob for programs to write: words, or its least, the next, the default and a few up to 16."""
    if knob.words:
        return re.findall(r"\w+", knob.words.replace(" or ", " "))
    some = {knob.low, knob.low + 1, 16, int(knob.default) if knob.default.isdigit() else knob.low}
    return [str(value) for value in sorted(some) if knob.low <= value <= knob.high]


def path_of(knob: Knob) -> str:
    """Return a knob's file."""
    if knob.name in ("scrub_load", "scrub_start", "scrub_stop"):
        return f"/proc/sys/vm/{knob.name}"
    return f"/sys/kernel/mm/quire/{knob.feature}/{knob.name}"


def file_calls(name: str, path: str, words: list[str]) -> str:
    """Return the description of a file that takes some words: how it is opened, written and read."""
    listed = ", ".join(f'"{word}"' for word in words)
    return (f"resource fd_quire_{name}[fd]\nquire_{name} = {listed}\n"
            f'openat$quire_{name}(fd const[AT_FDCWD], file ptr[in, string["{path}"]], flags const[O_RDWR], '
            f"mode const[0]) fd_quire_{name}\n"
            f"write$quire_{name}(fd fd_quire_{name}, buf ptr[in, stringnoz[quire_{name}]], len bytesize[buf])\n")


def description() -> str:
    """Return what syzkaller is told about quire."""
    features = dict.fromkeys(knob.feature for knob in KNOBS)
    files = [file_calls(f"{feature}_enabled", f"/sys/kernel/mm/quire/{feature}/enabled", ["0", "1", "2"])
             for feature in features]
    files += [file_calls(f"{knob.feature}_{knob.name}", path_of(knob), values(knob)) for knob in KNOBS]
    return "\n".join([CALLS_FILE.read_text(encoding="utf-8"), *files])


def our_calls() -> list[str]:
    """Return the names of the calls that we describe, except the planted one."""
    names = re.findall(r"^(\w+\$quire_?\w*)\(", description(), re.M)
    return [name for name in names if name not in PLANTED]


def others(wanted: list[str]) -> list[str]:
    """Return the variants of wanted calls that are not wanted themselves: to enable read(2) enables read$FUSE, too.

    Most variants are for files of drivers and networks. Those of other architectures are not known to the manager.
    """
    plain, found = {name for name in wanted if "$" not in name}, set()
    for file in SOURCE.glob("sys/linux/*.txt"):
        text = file.read_text(encoding="utf-8")
        arches = re.search(r"^meta arches\[(.*)\]$", text, re.M)
        if not arches or '"amd64"' in arches[1]:
            found |= set(re.findall(r"^(\w+\$\w+)\(", text, re.M))
    return sorted(name for name in found if name.partition("$")[0] in plain and name not in wanted)


def seeds() -> list[str]:
    """Return the programs that syzkaller begins with."""
    lines = SEEDS_FILE.read_text(encoding="utf-8").splitlines()
    text = "\n".join(line for line in lines if not line.startswith("#"))
    return [f"{program.strip()}\n" for program in re.split(r"\n{2,}", text) if program.strip()]


def write_seeds() -> None:
    """Write the seeds beside syzkaller's own, in place of older ones."""
    folder = SOURCE / "sys/linux/test"
    for old in folder.glob("quire_*"):
        old.unlink()
    for number, program in enumerate(seeds()):
        (folder / f"quire_{number}").write_text(program, encoding="utf-8")


def make(*goals: str) -> None:
    """Build something of syzkaller with its own Makefile. Raises SuiteError."""
    path = f"{os.environ.get('PATH', '')}:/usr/local/go/bin"
    if not shutil.which("go", path=path) or not shutil.which("g++"):
        raise SuiteError(f"{NAME} needs g++, and Go as new as its go.mod asks for: install both")
    log = HOME / "build.log"
    cli.progress(f"{NAME}: make {' '.join(goals)}, for some minutes")
    with open(log, "w", encoding="utf-8") as output:
        done = subprocess.run(["make", "-C", str(SOURCE), *goals], check=False, stdin=subprocess.DEVNULL, stdout=output,
                              stderr=subprocess.STDOUT, env={**os.environ, "PATH": path, "SYZ_ENV": "yes"})
    if done.returncode:
        raise SuiteError(f"{NAME} cannot be built, {log.relative_to(paths.REPO)} says why")


def build_it(source: Path | None) -> dict[str, str]:
    """Build syzkaller from a clone with our description, or take what was built last; return its origin.

    The seeds are written anew, as the manager reads them when it starts.

    Raises SuiteError.
    """
    known: dict[str, str] | None = paths.read_stamp(STAMP)
    if source is None and known is None:
        raise SuiteError(f"{NAME} is not built yet: name a git clone of it (suites/fuzz --source PATH)")
    told = description()
    wanted = {**(origin(source) if source else known or {}), "description": hashlib.sha256(told.encode()).hexdigest()}
    if wanted != known:
        STAMP.unlink(missing_ok=True)
        if source:
            checkout(source, wanted["commit"], SOURCE, STAMP)
        (SOURCE / "sys/linux/quire.txt").write_text(told, encoding="utf-8")
        make("manager", "executor", "execprog")
        paths.write_whole(STAMP, json.dumps(wanted))
    write_seeds()
    return wanted


def free_port() -> int:
    """Return a port that nobody listens at."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def key() -> Path:
    """Return the file of a key for ssh, made once. Raises SuiteError."""
    path = WORK / "key"
    if not path.exists():
        done = subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(path)], check=False,
                              text=True, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
        if done.returncode:
            raise SuiteError(f"ssh-keygen: {done.stderr.strip()}")
    return path


def settings(guests: int, plant: bool, port: int, key_file: Path) -> dict[str, Any]:
    """Return the manager's configuration."""
    calls = list(PLANTED) if plant else [*CALLS, *our_calls()]
    return {
        "name": "quire", "target": "linux/amd64", "http": f"127.0.0.1:{port}",
        "workdir": str(WORK / (PLANTED_FOLDER if plant else "manager")),
        "kernel_obj": str(build.objects_of(VARIANT)), "kernel_src": str(paths.TREE), "syzkaller": str(SOURCE),
        "image": str(WORK / "none"), "sshkey": str(key_file), "executor_bin_on_target": str(EXECUTOR),
        "procs": 2, "sandbox": "none", "type": "qemu", "cover": True, "reproduce": True,
        "enable_syscalls": calls, "disable_syscalls": others(calls),
        "vm": {"count": guests, "cpu": 2, "mem": MEMORY, "kernel": str(build.image_of(VARIANT)),
               "qemu": boot.QEMU, "network_device": "virtio-net-pci,romfile=",
               "cmdline": OPTIONS.format(init=INIT, key=key_file),
               "qemu_args": QEMU.format(cpu=boot.PLAIN_CPU, half=MEMORY // 2)},
    }


def last_of(bench: Path) -> dict[str, int]:
    """Return the last numbers that the manager has written, {} if there are none."""
    text = bench.read_text(encoding="utf-8") if bench.exists() else ""
    start = text.rfind("\n{")
    try:
        found: dict[str, int] = json.loads(text[max(start, 0):])
    except ValueError:
        return {}
    return found


def crashes(since: float) -> list[str]:
    """Return the titles of the crashes that the manager has saved since a time, each once."""
    found = set()
    for path in WORK.glob("*/crashes/*/description"):
        if any(log.stat().st_mtime >= since for log in path.parent.glob("log*")):
            found.add(path.read_text(encoding="utf-8").strip())
    return sorted(found)


def functions(text: str) -> tuple[int, int, list[str]]:
    """Return how many functions of ours there are and are reached, and the others' names, from the manager's table."""
    reached, missed = 0, []
    for line in csv.DictReader(text.splitlines()):
        name, file = line["Function"], line["Filename"]
        if OURS not in file or TEST_FILE.search(file) or TRACEPOINT.match(name):
            continue
        if int(line["Covered PCs"]):
            reached += 1
        else:
            missed.append(name)
    return reached + len(missed), reached, sorted(missed)


def ask(port: int, page: str) -> str:
    """Return a page of the manager, "" if it does not answer."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/{page}", timeout=300) as answer:
            return str(answer.read().decode())
    except (urllib.error.URLError, OSError) as error:
        print(f"note: {NAME}'s manager does not show {page}: {error}", file=sys.stderr)
        return ""


def fuzz(hours: float, guests: int, plant: bool) -> dict[str, Any]:
    """Run the manager for some hours; return what it has done. Raises SuiteError."""
    WORK.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(WORK / PLANTED_FOLDER, ignore_errors=True)
    (WORK / "none").touch()
    port, begun = free_port(), time.time()
    config, bench, log = WORK / "manager.json", WORK / f"bench.{begun:.0f}", WORK / "manager.log"
    paths.write_whole(config, json.dumps(settings(guests, plant, port, key()), indent=1))
    with open(log, "w", encoding="utf-8") as output:
        manager = subprocess.Popen([str(MANAGER), "-config", str(config), "-bench", str(bench)], stdout=output,
                                   stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        shown: dict[str, int] = {}
        while time.time() < begun + hours * 3600 and not (plant and crashes(begun)):
            if manager.poll() is not None:
                raise SuiteError(f"{NAME}'s manager ended by itself, {log.relative_to(paths.REPO)} says why")
            now = last_of(bench)
            if now and now != shown:
                shown = now
                cli.progress(f"{(time.time() - begun) / 3600:.2f} h: " + ", ".join(
                    f"{name} {now.get(name, 0):,}" for name in ("exec total", "corpus", "coverage", "crashes")))
            time.sleep(2)
        table = ask(port, "funccover")
    finally:
        manager.send_signal(signal.SIGINT)
        try:
            manager.wait(END_LIMIT)
        except subprocess.TimeoutExpired:
            os.killpg(manager.pid, signal.SIGKILL)
    total, reached, missed = functions(table)
    return {"hours": round((time.time() - begun) / 3600, 2), "executed": last_of(bench).get("exec total", 0),
            "corpus": last_of(bench).get("corpus", 0), "functions": total, "reached": reached, "missed": missed,
            "crashes": crashes(begun)}


def keep(found: dict[str, Any], known: dict[str, str]) -> None:
    """Add a run to those that are kept; what is not reached is kept of the last run alone."""
    run = {"date": time.strftime("%Y-%m-%d", time.gmtime()), "version": known["version"],
           "quire": paths.read_stamp(paths.BUILD / VARIANT / "origin.json"),
           **{name: value for name, value in found.items() if name != "missed"}}
    storage.FUZZ.parent.mkdir(parents=True, exist_ok=True)
    with paths.locked(HOME, "another run of the fuzzer to keep what it found"):
        old = paths.read_stamp(storage.FUZZ) or {"runs": []}
        paths.write_whole(storage.FUZZ, storage.text_of({"runs": [*old["runs"], run], "missed": found["missed"]}))


def run(args: Any) -> int:
    """Build, fuzz, tell and keep what was found; return the exit status."""
    boot.image_of(VARIANT)
    packages.ensure("to fuzz")
    HOME.mkdir(parents=True, exist_ok=True)
    known = build_it(Path(args.source) if args.source else None)
    kernel = running.Kernel(VARIANT, "", VARIANT)
    images = running.ages([kernel])
    found = fuzz(args.hours, args.guests, args.plant)
    if args.json:
        print(json.dumps(found, indent=1))
    else:
        print(f"{found['executed']:,} programs in {found['hours']} hours, {found['reached']} of {found['functions']} "
              f"functions of mm/quire reached")
        print("".join(f"crash: {title}\n" for title in found["crashes"]), end="")
    if args.plant:
        return 0 if any("trigger_write" in title for title in found["crashes"]) else 1
    if not found["functions"]:
        raise SuiteError(f"the run is not kept: {NAME}'s manager showed no function of mm/quire as reached or not; "
                         f"{(WORK / 'manager.log').relative_to(paths.REPO)} may say why")
    why = running.unfit([kernel], images)
    if why:
        print(f"note: the run is not kept: {why}", file=sys.stderr)
    else:
        keep(found, known)
    return 1 if found["crashes"] else 0


def main(argv: list[str] | None = None) -> int:
    """Do what the command line asks for."""
    parser = cli.Parser(prog="suites/fuzz", description=__doc__)
    parser.add_argument("--source", metavar="PATH", help="the git clone of syzkaller whose HEAD is built (default: "
                        "what was built last)")
    parser.add_argument("--hours", type=cli.hours, default=1.0, metavar="HOURS", help="how long (default 1)")
    parser.add_argument("--guests", type=cli.number(1, 16), default=1, metavar="N",
                        help="guests at a time, with 2 CPUs and 2 GB each (default 1; a crash is only reproduced with "
                        "two or more)")
    parser.add_argument("--plant", action="store_true", help="let programs do nothing but make the kernel warn on "
                        "purpose, and see whether that is found; nothing of it is kept")
    parser.add_argument("--json", action="store_true", help="print what was found as JSON")
    args = parser.parse_args(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the manager is ended too
    try:
        return run(args)
    except (SuiteError, boot.BootError, subprocess.CalledProcessError, OSError, ValueError, MemoryError) as error:
        print(f"error: {cli.explain(error)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
