# SPDX-License-Identifier: GPL-2.0
"""Boot a kernel variant with virtme-ng, run a command in it, and judge what the kernel said.

The guest's script opens two virtio ports by name and writes to files on the host through them. One port carries the
command's output, the other the script's own messages (started, ended, leak, tainted, status). The serial console goes
to a third file, so panics are recorded too. Nothing depends on the guest writing back its file systems.

The root is always 9p, although virtme-ng prefers virtiofs: Debian 12 and 13 differ in which virtiofsd works, and guests
should be the same everywhere. The mount is cached, which is not the default of 9p. A read() from an uncached file pins
the program's buffer, as direct I/O does; nearly every process of a guest would have pinned memory, while hardly any
process on a real machine has.

guest/init comes first in the PATH of virtme-ng's init, and replaces the slowest program that it runs.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from guest import build, paths, races, splat

SPLAT = 70      # exit status: the kernel complained
HUNG = 71       # exit status: the command, or the guest, did not end in time
DIED = 72       # exit status: the guest ended without a status and without a splat
QEMU = "qemu-system-x86_64"
# The last -cpu counts; virtme-ng gives an emulated guest "max". With SMAP, QEMU keeps the translations of the kernel's
# accesses twice, and with ERMS, Linux clears a page by an instruction that QEMU emulates byte by byte.
PLAIN_CPU = "-cpu max,smap=off,erms=off"
ATTEMPTS = 3
BOOT_LIMIT = {"debug": 420.0, "kcsan": 420.0}
BOOT_LIMIT_OTHERS = 180.0
POWEROFF_LIMIT = 240.0
LEAST_MEGABYTES = 64    # with so much the quire kernel still comes to its command
NO_INIT = ("the guest did not reach its init within {:.0f} s: run fewer guests at once, or see where the kernel hangs "
           "(guest/run --console)")
NO_END = "the command did not end within {:.0f} s: it hangs, or needs more time (guest/run --timeout) or an idle host"
NO_POWEROFF = "the guest did not power off within {:.0f} s: see where the kernel hangs (guest/run --console)"
ROOT_FLAGS = "version=9p2000.L,trans=virtio,access=any,msize=524288,cache=loose"
TAINTS = {5: "bad page", 7: "oops", 9: "warning", 14: "soft lockup"}
BINARIES = ("/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/bin", "/bin")

# virtme-ng does not report how QEMU ended, so this wrapper records the status. As in every shell, a status above 128
# means that a signal ended QEMU.
QEMU_SCRIPT = """#!/bin/sh
{qemu} "$@"
status=$?
echo $status >{folder}/qemu.status
exit $status
"""

# $1 is the run's folder; the command is a script in it. The guest's script must survive whatever the command does to
# memory, so the OOM killer spares the script, but not the command.
GUEST_SCRIPT = r"""#!/bin/bash
run=$1
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
mounts=$(</proc/mounts)
mounted() { [[ $mounts == *" $2 $1 "* ]] || { mkdir -p "$2"; mount -t "$1" none "$2"; }; }
exec 3>/dev/virtio-ports/quire.protocol
echo -1000 >/proc/self/oom_score_adj
mounted debugfs /sys/kernel/debug
mounted tracefs /sys/kernel/tracing
[[ $mounts == *' cgroup2 '* ]] || mount -t cgroup2 none /sys/fs/cgroup
mounted tmpfs /dev/shm
mounted devpts /dev/pts
chmod 1777 /dev/shm
mkfifo /run/quire.output
cat /run/quire.output >/dev/virtio-ports/quire.output &
copier=$!
echo started >&3
(
	echo 0 >/proc/self/oom_score_adj
	exec 3>&-
	exec bash "$run/command"
) </dev/null >/run/quire.output 2>&1
status=$?
echo ended >&3
# A daemon that the command left behind may hold the pipe.
for _ in {1..50}; do kill -0 $copier 2>/dev/null || break; sleep 0.1; done
[ ! -f "$run/at_end" ] || bash "$run/at_end"
if [ -w /sys/kernel/debug/kmemleak ] && [ -z "$(grep -o kmemleak=off /proc/cmdline)" ]; then
	# kmemleak switches itself off for good if it runs out of memory.
	echo scan >/sys/kernel/debug/kmemleak || echo "leak kmemleak is off, leaks would not be seen" >&3
	# kmemleak does not report an object that is younger than five seconds, or that is new or has changed since the
	# previous scan. Another scan may clear a suspect.
	sleep 6
	echo scan >/sys/kernel/debug/kmemleak
	if [ -s /sys/kernel/debug/kmemleak ] || [ -n "$(head -c1 /sys/kernel/debug/kmemleak | tr -d '\0')" ]; then
		echo scan >/sys/kernel/debug/kmemleak
		head -n 60 /sys/kernel/debug/kmemleak | sed 's/^/leak /' >&3
	fi
fi
echo "tainted $(cat /proc/sys/kernel/tainted)" >&3
echo "status $status" >&3
"""


class BootError(Exception):
    """A guest cannot be started at all."""


@dataclass
class Result:
    """The result of a command in a guest: its own time (seconds), and the guest's before it and after it.

    `foreign` has the races of Linux's own that KCSAN found: only those that involve our code are splats. `restarts` is
    how many times the guest was started again because of its host.
    """

    status: int
    output: str
    console: str
    splats: list[splat.Splat] = field(default_factory=list)
    foreign: list[splat.Splat] = field(default_factory=list)
    seconds: float = 0.0
    reason: str = ""
    restarts: int = 0
    to_init: float = 0.0
    to_end: float = 0.0

    @property
    def ok(self) -> bool:
        """The command succeeded and the kernel did not complain."""
        return self.status == 0 and not self.splats


def _environment() -> dict[str, str]:
    path = [str(paths.VENV / "bin"), *BINARIES, os.environ.get("PATH", "")]
    return {**os.environ, "PATH": ":".join(path)}


def _find(program: str) -> str | None:
    return shutil.which(program, path=_environment()["PATH"])


def _command_script(cmd: list[str] | str, cwd: str) -> str:
    line = cmd if isinstance(cmd, str) else "exec " + shlex.join(cmd)
    # The variables are exported, not put before the command, so that `exec` can replace the shell.
    return ("export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8\n"
            f"cd {shlex.quote(cwd)} 2>/dev/null || cd /\n{line}\n")


def _vng(folder: Path, kernel: Path, memory: str, cpus: int, append: str, icount: bool, kvm: bool,
         numa: int, qemu_options: str = "") -> list[str]:
    vng = _find("vng")
    if not vng or not _find(QEMU):
        raise BootError(f"{QEMU if vng else 'virtme-ng (vng)'} is missing: make packages")
    qemu = (f"-chardev file,id=qoutput,path={folder}/output -chardev file,id=qprotocol,path={folder}/protocol "
            "-device virtio-serial-pci,id=qports "
            "-device virtserialport,bus=qports.0,name=quire.output,chardev=qoutput "
            "-device virtserialport,bus=qports.0,name=quire.protocol,chardev=qprotocol")
    if icount:
        qemu += " -icount shift=0,sleep=off"
    if numa > 1 and cpus > 1:
        # Linux warns if the CPUs of one socket are on two nodes.
        qemu += f" -smp cpus={cpus},sockets={cpus}"
    if qemu_options:
        qemu += " " + qemu_options
    command = [vng, "--run", str(kernel), "--verbose", "--user", "root", "--disable-microvm", "--force-9p",
               "--cpus", str(cpus), "--memory", memory, f"--rwdir={paths.REPO}", "--qemu", str(folder / "qemu"),
               f"--qemu-opts={qemu}", "--append", f"rootflags={ROOT_FLAGS}",
               "--exec", f"bash {shlex.quote(str(folder / 'guest.sh'))} {shlex.quote(str(folder))}"]
    if not kvm:
        # While the guest waits for its host's processors, the kernel's timer check may find the timer dead.
        command += ["--disable-kvm", "--append", "no_timer_check"]
    if numa > 1:
        megabytes = _megabytes(memory) // numa
        shares = [cpus // numa + (node < cpus % numa) for node in range(numa)]
        first = 0
        for share in shares:
            span = f",cpus={first}-{first + share - 1}" if share else ""
            command += ["--numa", f"{megabytes}M{span}"]
            first += share
    # Linux passes the parameters that it does not know to init, as environment variables.
    for option in (f"PATH={paths.REPO / 'guest/init'}", *append.split()):
        command += ["--append", option]
    return command


def _megabytes(memory: str) -> int:
    match = re.fullmatch(r"(\d+)([GM]?)", memory.upper())
    if not match:
        raise BootError(f"not a size of memory: {memory!r}, write it like 4G or 1500M")
    return int(match.group(1)) * (1024 if match.group(2) == "G" else 1)


def _host_megabytes() -> int:
    """Return the host's memory, swap included."""
    text = Path("/proc/meminfo").read_text(encoding="ascii")
    return sum(int(kb) for kb in re.findall(r"^(?:MemTotal|SwapTotal): *(\d+) kB", text, re.M)) // 1024


def check_memory(memory: str) -> None:
    """Raise BootError if `memory` is no memory size, is too little for a guest, or is more than the host has."""
    if _megabytes(memory) < LEAST_MEGABYTES:
        raise BootError(f"{memory} of memory is too little for a guest: give it {LEAST_MEGABYTES}M or more "
                        "(guest/run --memory)")
    if _megabytes(memory) > _host_megabytes():
        raise BootError(f"the guest shall have {memory} of memory, but the host has {_host_megabytes()} MB with "
                        "its swap: add swap, or give less (guest/run --memory; a benchmark's guest has a fixed size)")


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    parent = paths.BUILD / "run"
    parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="guest-", dir=parent))
    try:
        yield folder
    finally:
        if not os.environ.get("KEEP_RUN"):
            shutil.rmtree(folder, ignore_errors=True)


def _write_scripts(folder: Path, command: str) -> None:
    (folder / "guest.sh").write_text(GUEST_SCRIPT, encoding="utf-8")
    (folder / "command").write_text(command, encoding="utf-8")
    if at_end := os.environ.get("GUEST_AT_END"):
        (folder / "at_end").write_text(at_end, encoding="utf-8")
    qemu = folder / "qemu"
    qemu.write_text(QEMU_SCRIPT.format(qemu=_find(QEMU), folder=shlex.quote(str(folder))), encoding="utf-8")
    qemu.chmod(0o755)


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""


class _Guest:
    """One start of a guest: its process group, its files, the thread that stores its console."""

    def __init__(self, folder: Path, command: list[str], on_output: Callable[[str], None] | None) -> None:
        self.folder = folder
        self.on_output = on_output
        self.passed = 0
        self.killed = False
        for name in ("output", "protocol", "console", "vng", "qemu.status"):
            (folder / name).unlink(missing_ok=True)
        with open(folder / "vng", "wb") as chatter:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=chatter,
                                            stderr=subprocess.PIPE, env=_environment(), start_new_session=True)
        # The reaper kills the guest when the pipe closes, which also happens if this process is killed.
        held, self.hold = os.pipe()
        self.reaper = subprocess.Popen(["sh", "-c", 'read _; kill -s KILL -- "-$1" 2>/dev/null', "reaper",
                                        str(self.process.pid)], stdin=held, start_new_session=True)
        os.close(held)
        self.thread = threading.Thread(target=self._store_console, daemon=True)
        self.thread.start()

    def _store_console(self) -> None:
        assert self.process.stderr
        with open(self.folder / "console", "wb") as console:
            while chunk := os.read(self.process.stderr.fileno(), 65536):
                console.write(chunk)
                console.flush()

    def protocol(self) -> list[str]:
        """Return the complete lines that the guest's script has sent so far."""
        text = _read(self.folder / "protocol")
        return text[:text.rfind("\n") + 1].splitlines()

    def said(self, word: str) -> str | None:
        """Return the rest of the first protocol line that starts with a word."""
        for line in self.protocol():
            if line.split(" ", 1)[0] == word:
                return line[len(word):].strip()
        return None

    def ended_by_signal(self) -> bool:
        """Say whether a signal ended QEMU, other than a kill by this class."""
        return int(_read(self.folder / "qemu.status") or 0) > 128

    def pass_output(self) -> None:
        """Pass on what the command has printed since the last call."""
        if self.on_output and (self.folder / "output").exists():
            with open(self.folder / "output", "rb") as output:
                output.seek(self.passed)
                chunk = output.read()
            end = len(chunk) if self.process.poll() is not None else chunk.rfind(b"\n") + 1
            if end:
                self.on_output(chunk[:end].decode("utf-8", errors="replace"))
                self.passed += end

    def wait(self, until: Callable[[], bool], limit: float) -> bool:
        """Wait until `until` holds or the guest ends; return False if the limit passes first."""
        deadline = time.monotonic() + limit
        while self.process.poll() is None and not until():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.1)
            self.pass_output()
        return True

    def kill(self) -> None:
        """Have the reaper end the guest and all the helpers that it started."""
        if self.killed:
            return
        self.killed = True
        os.close(self.hold)
        self.reaper.wait()
        self.process.wait()
        self.thread.join(10)
        self.pass_output()


def _judge(guest: _Guest, timed_out: str, seconds: float, kernel: str) -> Result:
    console = _read(guest.folder / "console")
    output = _read(guest.folder / "output")
    splats, foreign = races.split(splat.find(console), paths.BUILD / kernel / "vmlinux")
    leaks = [line[5:] for line in guest.protocol() if line.startswith("leak ")]
    if leaks:
        splats.append(splat.Splat("leak", leaks[0], "\n".join(leaks)))
    tainted = int(guest.said("tainted") or 0)
    bits = [name for bit, name in TAINTS.items() if tainted & 1 << bit]
    if bits and not splats:
        splats.append(splat.Splat("taint", f"tainted {tainted}: {', '.join(bits)}", "(its message is not in the log)"))
    said = guest.said("status")
    result = Result(int(said) if said else DIED, output, console, splats, foreign, seconds)
    if timed_out:
        result.status, result.reason = HUNG, timed_out
    elif not said:
        result.reason = ("the guest ended without a status: if the host's dmesg says that QEMU was killed for memory, "
                         "run fewer guests at once, add swap or give less (guest/run --memory)")
    if splats:
        panics = [known for known in splats if known.kind == "panic"]
        first = panics[0] if panics else splats[0]
        result.status, result.reason = SPLAT, f"kernel {first.kind}: {first.title}"
    return result


def _run_once(guest: _Guest, kernel: str, timeout: float) -> tuple[Result, str]:
    """Return a guest's result, and the phase in which its host failed it: "init", "command", or "" for none.

    It is not a failure of the host if the kernel complained, or if the command has a status or reached its limit.
    """
    begun, boot_limit = time.monotonic(), BOOT_LIMIT.get(kernel, BOOT_LIMIT_OTHERS)
    in_time = guest.wait(lambda: guest.said("started") is not None, boot_limit)
    if guest.said("started") is None:
        guest.kill()
        result = _judge(guest, "" if in_time else NO_INIT.format(boot_limit), 0, kernel)
        result.console += _read(guest.folder / "vng")
        return result, "" if result.splats else "init"
    started, timed_out = time.monotonic(), ""
    if not guest.wait(lambda: guest.said("ended") is not None, timeout):
        timed_out = NO_END.format(timeout)
    ended = time.monotonic()
    # The search for leaks comes before the status.
    if not timed_out and not (guest.wait(lambda: guest.said("status") is not None, max(timeout, POWEROFF_LIMIT)) and
                              guest.wait(lambda: False, POWEROFF_LIMIT)):
        timed_out = NO_POWEROFF.format(POWEROFF_LIMIT)
    guest.kill()
    result = _judge(guest, timed_out, ended - started, kernel)
    result.to_init, result.to_end = started - begun, time.monotonic() - ended
    finished = timed_out or guest.said("status") or result.splats
    return result, "command" if not finished and guest.ended_by_signal() else ""


def _test() -> str:
    """Return the test that runs, "" for none."""
    return os.environ.get("PYTEST_CURRENT_TEST", "").rsplit(" (", 1)[0]


def start_again(reason: str, attempt: int) -> None:
    """Tell, and note for the report of a test run, that a guest is started again, and why."""
    print(f"guest: {reason}; starting it again", file=sys.stderr, flush=True)
    paths.note("restarts", test=_test(), reason=reason, attempt=attempt)


def _note_times(kernel: str, result: Result) -> None:
    if _test():
        paths.note("guests", test=_test(), kernel=kernel, to_init=round(result.to_init, 1),
                   seconds=round(result.seconds, 1), to_end=round(result.to_end, 1))


def run(cmd: list[str] | str, kernel: str = "quire", memory: str = "4G", cpus: int = 2, append: str = "",
        icount: bool = False, timeout: float = 600, numa: int = 1, on_output: Callable[[str], None] | None = None,
        kvm: bool | None = None, qemu: str = "", rerun: bool = True, plain_cpu: bool = False,
        leaks: bool = True) -> Result:
    """Boot a variant, run a command (a list, or a line for bash) in it as root, and return the result.

    The guest sees the host's files read-only; it can write to this repository and to its own /tmp. `timeout` counts
    from the command's start. With `icount` there is one CPU and guest time counts instructions. `qemu` holds further
    options of QEMU, such as a device.

    A guest that does not reach its init is started up to three times in all. A guest whose QEMU was ended by a signal
    is started again once, unless the command must not run twice (`rerun`). A failure of the kernel or of the command is
    never retried.

    Two things save the host's time: an emulated processor without what is slow to emulate (`plain_cpu`), and no
    kmemleak (`leaks=False`), which is nearly half of what a debug kernel does.
    """
    check_memory(memory)
    image = image_of(kernel)
    if kernel == "debug":
        # While Linux identifies the boot CPU, it briefly forgets that page tables have five levels. KASAN reports an
        # interrupt in that window as a wild access.
        append = f"no5lvl {'' if leaks else 'kmemleak=off '}{append}"
    if icount:
        cpus, kvm = 1, False
    if kvm is None:
        kvm = kvm_works(kernel)
    if plain_cpu and not kvm:
        qemu = f"{PLAIN_CPU} {qemu}"
    with _folder() as folder:
        _write_scripts(folder, _command_script(cmd, os.getcwd()))
        command = _vng(folder, image, memory, cpus, append, icount, kvm, numa, qemu)
        for attempt in itertools.count(1):
            guest = _Guest(folder, command, on_output)
            try:
                result, failed = _run_once(guest, kernel, timeout)
            finally:
                guest.kill()
            _note_times(kernel, result)
            if not failed or attempt == ATTEMPTS or (failed == "command" and not rerun):
                break
            rerun = rerun and failed != "command"
            start_again(result.reason, attempt)
    result.restarts = attempt - 1
    return result


def image_of(kernel: str) -> Path:
    """Return a variant's kernel image; raises BootError if there is none, or no such variant."""
    if kernel not in build.FRAGMENTS:
        raise BootError(f"no kernel variant {kernel!r}; there are: {', '.join(build.FRAGMENTS)}")
    image = build.image_of(kernel)
    if not image.exists():
        raise BootError(f"no kernel build/{kernel}/bzImage: make kernel VARIANT={kernel}")
    return image


def kvm_works(kernel: str) -> bool:
    """Say whether a guest boots to its init with KVM: probe once, and keep the answer in build/kvm.json.

    A /dev/kvm that opens, and even makes a CPU, may still not boot a guest. Raises BootError if there is no such
    kernel; no answer is kept then.
    """
    image = image_of(kernel)
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return False
    answer = paths.BUILD / "kvm.json"
    known = paths.read_stamp(answer)
    if known:
        return bool(known["works"])
    with _folder() as folder:
        _write_scripts(folder, "true\n")
        guest = _Guest(folder, _vng(folder, image, "1G", 1, "", False, True, 1), None)
        guest.wait(lambda: guest.said("status") is not None, 90)
        works = guest.said("status") == "0"
        guest.kill()
    paths.write_whole(answer, json.dumps({"works": works}))
    return works
