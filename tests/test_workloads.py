# SPDX-License-Identifier: GPL-2.0
"""Real programs with every feature on: they behave as on any kernel, and the features' checkers find nothing."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from guest import boot, paths

WORKLOADS = Path(__file__).parent / "workloads"


def counted(result: boot.Result, counter: str) -> int:
    """Return one of the counters that checks.sh printed, such as fork/stats/tables_shared."""
    match = re.search(rf"^/sys/kernel/mm/quire/{counter}:(\d+)$", result.output, re.M)
    return int(match.group(1)) if match else 0


def check_cow(output: str) -> None:
    """Redis reports the same cost of its writes during a snapshot, whether fork shares or copies."""
    found = re.findall(r"^policy (\d): (\d+) tables shared, rdb_last_cow_size:(\d+)$", output, re.M)
    shared, cow = ([int(line[index]) for line in found] for index in (1, 2))
    # A thousand values of 2000 bytes, two to a page, and whatever else the two processes write.
    assert len(found) == 2 and shared[0] == 0 and shared[1] > 4, output
    assert min(cow) > 1000 * 2000 and abs(cow[0] - cow[1]) < min(cow) / 4, output


@pytest.mark.debug
def test_redis_snapshot(kernel: str, guest: Callable[..., boot.Result]) -> None:
    """A dump holds the data of the moment it was asked for, twice over, and so does the server that loads it.

    Only the plain kernel checks the cost of a snapshot that the server reports: the check waits for changes to fall
    into the snapshot.
    """
    cow = [] if kernel == "debug" else ["redis", "cow"]
    result = guest([str(WORKLOADS / "redis.sh"), "40000", "1", *cow], append="quire=on", timeout=900)
    assert result.status == 0, result.output
    assert "rdb_last_bgsave_status:ok" in result.output
    assert "round 1:" in result.output
    if cow:
        check_cow(result.output)
    assert counted(result, "fork/stats/tables_shared") > 0, result.output


def test_compiler_output(guest: Callable[..., boot.Result], tmp_path: Path) -> None:
    """Three compilers at once produce what one produces on the host."""
    source = tmp_path / "input.c"
    source.write_text("\n".join(f"int f{i}(int x) {{ return x * {i} + f{i - 1}(x % {i + 1}); }}" if i else
                                "int f0(int x) { return x; }" for i in range(200)), encoding="utf-8")
    program = paths.BUILD / "input.c"
    program.write_bytes(source.read_bytes())
    output = tmp_path / "input.s"
    subprocess.run(["gcc", "-O2", "-frandom-seed=1", "-S", "-o", str(output), str(program)], check=True)
    expected = hashlib.sha256(output.read_bytes() * 3).hexdigest()
    result = guest(f"{WORKLOADS / 'compile.sh'} {program} && {WORKLOADS / 'checks.sh'}", append="quire=on", timeout=900)
    assert result.status == 0, result.output
    assert expected in result.output
    assert counted(result, "text/stats/wide_faults") > 0, result.output


def test_postgres(guest: Callable[..., boot.Result]) -> None:
    """Concurrent transactions add up, before and after a crash, and every checksum and index is right."""
    result = guest([str(WORKLOADS / "postgres.sh"), "4", "20"], append="quire=on", timeout=900)
    assert result.status == 0, result.output
    assert "the sums are right before and after a crash" in result.output
    assert counted(result, "shm/stats/tables_joined") > 0, result.output


@pytest.mark.debug
def test_frozen_and_thawed(guest: Callable[..., boot.Result]) -> None:
    """CRIU writes processes that share page tables to files and makes them anew: what each had is what it has then.

    It reads through the shared tables by ptrace and vmsplice, and asks which pages changed since it first looked. The
    second time it gives memory back as it is touched, by userfaultfd.
    """
    if not shutil.which("criu"):
        pytest.skip("criu is not installed: make packages")
    result = guest(f"{WORKLOADS}/criu.sh && {WORKLOADS}/criu.sh lazy", append="quire=on", timeout=600)
    assert result.status == 0, result.output
    assert counted(result, "fork/stats/tables_shared") > 0, result.output
    assert counted(result, "shm/stats/tables_joined") > 0, result.output


@pytest.mark.debug
def test_checkpoints(guest: Callable[..., boot.Result]) -> None:
    """gdb's checkpoints are forks of a process that share its tables: what one writes, or gdb in it, no other sees."""
    if not shutil.which("gdb"):
        pytest.skip("gdb is not installed: make packages")
    with tempfile.TemporaryDirectory(dir=paths.BUILD) as folder:
        subprocess.run(["gcc", "-g", "-O0", "-Wall", "-Wextra", "-Werror", "-o", f"{folder}/checkpoints",
                        str(WORKLOADS / "checkpoints.c")], check=True)
        command = f"gdb -nx -batch -x {WORKLOADS}/checkpoints.gdb {folder}/checkpoints"
        result = guest(f"echo 1 >/sys/kernel/mm/quire/fork/min_tables && {command} && {WORKLOADS}/checks.sh",
                       append="quire=on", timeout=600)
    assert result.status == 0, result.output
    assert re.findall(r"^([a-z ,]+): (\d+)$", result.output, re.M) == [
        ("process", "21"), ("first", "0"), ("first, changed", "11"), ("second", "0"), ("process again", "21"),
        ("process alone with one", "21"), ("changed at the end", "0"), ("changed at the end", "21")], result.output
    assert counted(result, "fork/stats/tables_shared") >= 8, result.output


@pytest.mark.soak
def test_stress(guest: Callable[..., boot.Result]) -> None:
    """stress-ng's memory stressors verify what they read, and the checkers find nothing afterwards."""
    result = guest([str(WORKLOADS / "stress.sh"), "60"], append="quire=on", timeout=900)
    assert result.status == 0, result.output
    assert counted(result, "fork/stats/tables_shared") > 0, result.output
    assert counted(result, "shm/stats/tables_joined") > 0, result.output


@pytest.mark.soak
@pytest.mark.debug
def test_stress_long(guest: Callable[..., boot.Result], minutes: int) -> None:
    """The same for the time that was asked for."""
    result = guest([str(WORKLOADS / "stress.sh"), str(minutes * 60)], append="quire=on", timeout=minutes * 60 + 900)
    assert result.status == 0, result.output


@pytest.mark.soak
@pytest.mark.debug
@pytest.mark.parametrize("name", ("redis", "valkey"))
def test_redis_long(guest: Callable[..., boot.Result], minutes: int, name: str) -> None:
    """Many snapshots of a larger data set."""
    if not shutil.which(f"{name}-server"):
        pytest.skip(f"{name}-server is not installed; Debian 12 has Valkey in bookworm-backports: "
                    "apt install -t bookworm-backports valkey-server valkey-tools")
    result = guest([str(WORKLOADS / "redis.sh"), "200000", str(max(2, minutes // 2)), name], append="quire=on",
                   timeout=minutes * 60 + 1800)
    assert result.status == 0, result.output


@pytest.mark.soak
@pytest.mark.debug
@pytest.mark.parametrize("clients", (40, 150))
def test_postgres_long(guest: Callable[..., boot.Result], minutes: int, clients: int) -> None:
    """Many clients, some of which connect for every transaction."""
    transactions = minutes * 800 // clients
    result = guest([str(WORKLOADS / "postgres.sh"), str(clients), str(transactions), "4"], append="quire=on",
                   timeout=minutes * 60 + 1800)
    assert result.status == 0, result.output
