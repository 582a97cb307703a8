# SPDX-License-Identifier: GPL-2.0
"""guest.boot and guest/run, on real guests: status, output, and every way in which a kernel complains."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

import pytest

from guest import boot, build, paths

TRIGGER = "/sys/kernel/debug/quire/trigger"

# Walks over the page tables of a process that shares them with its child, as code does that takes them for private.
WALK = """echo 1 >/sys/kernel/mm/quire/fork/min_tables; python3 -c "
import os, signal, time
memory = bytearray(b'x') * (16 << 20)
child = os.fork()
if not child:
    time.sleep(1000)
with open('/sys/kernel/debug/quire/pt_check', 'w') as file:
    file.write('walk')
os.kill(child, signal.SIGKILL)
" || echo no walk"""


def trigger(word: str) -> str:
    """Return a command that provokes an event, and prints a line before and, if it gets there, after."""
    return f"echo before; echo {word} > {TRIGGER}; echo after"


def guest_run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the guest/run command."""
    return subprocess.run([str(paths.REPO / "guest/run"), *arguments], text=True, check=False, timeout=1800,
                          capture_output=True, stdin=subprocess.DEVNULL)


def test_output_status_and_surroundings(kernel: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command's whole output and its status are passed on, and its environment is as documented.

    What GUEST_AT_END says runs in the guest after the command, and neither its output nor its status counts.
    """
    with tempfile.NamedTemporaryFile(dir=paths.BUILD) as at_end:
        monkeypatch.setenv("GUEST_AT_END", f"cp /run/seen {at_end.name}; echo not shown; exit 3")
        check_output(kernel)
        assert Path(at_end.name).read_text(encoding="utf-8") == "0\n"


def check_output(kernel: str) -> None:
    """Run a command that prints much, leaves a file and fails."""
    script = ("set -e; seq 100000; echo to-stderr >&2; id -u | tee /run/seen; touch /tmp/file; "
              f"test -e {paths.REPO}/base.conf; test -d /sys/kernel/debug/quire; test -w /dev/shm; "
              "test -e /sys/fs/cgroup/cgroup.controllers; nproc; exit 7")
    done = guest_run("--kernel", kernel, "--cpus", "2", "--timeout", "1200", "--", "bash", "-c", script)
    assert done.returncode == 7, done.stderr
    assert done.stdout == "".join(f"{number}\n" for number in range(1, 100001)) + "to-stderr\n0\n2\n"


@pytest.mark.soak
def test_vanilla_boots_without_quire() -> None:
    """The pristine kernel runs in the same guest, and has nothing of quire."""
    result = boot.run("test ! -e /sys/kernel/mm/quire", kernel="vanilla")
    assert result.ok, result.reason or result.output


def test_icount_is_one_cpu_and_repeatable() -> None:
    """With instruction counting there is one CPU, and the same work takes the same guest time within 10 %."""
    loop = ("nproc; for run in 1 2 3; do read a _ </proc/uptime; i=0; while ((i < 200000)); do ((i += 1)); done; "
            "read b _ </proc/uptime; echo $a $b; done")
    result = boot.run(loop, icount=True, timeout=900)
    assert result.ok, result.reason or result.output
    cpus, *rows = result.output.split("\n")[:4]
    times = [float(end) - float(start) for start, end in (row.split() for row in rows)]
    assert cpus == "1"
    assert max(times[1:]) <= min(times[1:]) * 1.1 + 0.02


@pytest.mark.parametrize("word, kinds, title", [
    ("warn", {"warning"}, "WARNING: "),
    ("bug", {"bug", "oops"}, "kernel BUG at "),
    ("panic", {"panic"}, "Kernel panic - not syncing: quire: deliberate panic"),
])
def test_splats_are_seen_and_named(kernel: str, word: str, kinds: set[str], title: str) -> None:
    """A warning, a bug and a panic each give status 70, their kind and their first line."""
    result = boot.run(trigger(word), kernel=kernel, timeout=1200)
    assert result.status == boot.SPLAT
    assert {one.kind for one in result.splats} & kinds
    assert any(title in one.title for one in result.splats), [one.title for one in result.splats]
    # What a command printed just before a panic may not have arrived yet.
    assert word == "panic" or result.output.startswith("before\n")


def test_run_prints_the_splat() -> None:
    """guest/run exits with 70 and prints what the kernel said."""
    done = guest_run("--", "bash", "-c", trigger("warn"))
    assert done.returncode == boot.SPLAT
    assert done.stdout == "before\nafter\n"
    assert "deliberate warning" in done.stderr


@pytest.mark.debug
@pytest.mark.debug_only
def test_the_debug_kernels_checkers_are_seen() -> None:
    """Reports come for a walk that ignores sharing, locks in either order, a write past an object, and a leak.

    The locks come before the write, because KASAN's report ends lockdep.
    """
    script = "; ".join((WALK, *(trigger(word) for word in ("lockdep", "kasan", "leak"))))
    result = boot.run(script, kernel="debug", append="quire=fork", timeout=1200)
    assert result.status == boot.SPLAT
    assert {one.kind for one in result.splats} == {"warning", "lockdep", "kasan", "leak"}, \
        [one.title for one in result.splats]
    assert "no walk" not in result.output
    assert "__pte_offset_map" in result.console


def test_hang_is_ended_and_told_from_a_splat(kernel: str) -> None:
    """A command that never ends gives 71 after its timeout, with the output until then."""
    result = boot.run(trigger("hang"), kernel=kernel, timeout=10)
    assert result.status == boot.HUNG, result.reason
    assert result.output == "before\n"
    assert "did not end" in result.reason


def test_dead_machine_is_ended(kernel: str) -> None:
    """If all CPUs spin, nothing in the guest can print or end it; the command's timeout gives 71 here, too."""
    result = boot.run(trigger("dead"), kernel=kernel, timeout=10)
    assert result.status == boot.HUNG, result.reason
    assert "did not end" in result.reason
    # What was printed just before may not have arrived yet.
    assert result.output in ("", "before\n")


def test_missing_kernel_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without a kernel, guest/run says how to make one, or which ones there are, and no answer about KVM is kept."""
    done = guest_run("--kernel", "nonesuch", "--", "true")
    assert done.returncode == 1
    assert done.stderr == f"error: no kernel variant 'nonesuch'; there are: {', '.join(build.FRAGMENTS)}\n"
    monkeypatch.setattr(paths, "BUILD", tmp_path)
    with pytest.raises(boot.BootError, match="make kernel VARIANT=quire"):
        boot.kvm_works("quire")
    assert not list(tmp_path.iterdir())
