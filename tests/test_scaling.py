# SPDX-License-Identifier: GPL-2.0
"""Tests of will-it-scale in guests: its driver on the host, the turns that kernels take, the numbers and the table."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from guest import boot
from suites import publishing, running, scaling, storage

# A test in the form that will-it-scale has them, with a helper for each task.
TEST = r"""
#include <unistd.h>
char *testcase_description = "bytes through a pipe";
void new_task(void *(*func)(void *), void *arg);
static void *send(void *arg)
{
	while (write(((int *)arg)[1], "x", 1) == 1)
		;
	return 0;
}
void testcase(unsigned long long *iterations, unsigned long nr)
{
	int fds[2];
	char c;

	(void)nr;
	if (pipe(fds))
		return;
	new_task(send, fds);
	while (read(fds[0], &c, 1) == 1)
		(*iterations)++;
}
"""


@pytest.mark.parametrize("mode", list(scaling.MODES))
def test_driver(tmp_path: Path, mode: str) -> None:
    """The driver counts what all tasks do, and neither they nor their helpers outlive it.

    Each of them holds the pipe that the driver prints to, so run() returns when the last one is gone.
    """
    (tmp_path / "test.c").write_text(TEST, encoding="utf-8")
    program = tmp_path / f"driven_{mode}"
    subprocess.run(["gcc", "-O2", "-Wall", "-Wextra", "-Werror", *scaling.MODES[mode], "-o", str(program),
                    str(scaling.DRIVER), str(tmp_path / "test.c"), "-pthread"], check=True)
    said = subprocess.run([str(program), "3", "20", "100"], text=True, check=True, stdout=subprocess.PIPE).stdout
    count, seconds = said.split()
    assert int(count) > 100 and float(seconds) >= 0.1
    # Nor do tasks that begin when the driver has already ended, as on a busy machine.
    subprocess.run([str(program), "64", "0", "0"], check=True, stdout=subprocess.PIPE, timeout=60)
    assert subprocess.run([str(program)], check=False, stderr=subprocess.DEVNULL).returncode == 2


def test_rates() -> None:
    """Operations a second are read by name; a program that did nothing, or said nothing, is an error that names it."""
    assert scaling.rates("noise\na_threads 300 1.5\nb_threads 10 2.0\n", ["a_threads", "b_threads"]) == {
        "a_threads": 200.0, "b_threads": 5.0}
    for output in ("a_threads 0 1.0\n", "a_threads\n", ""):
        with pytest.raises(scaling.SuiteError, match="a_threads did nothing in a guest"):
            scaling.rates(output, ["a_threads"])


def test_kernels_take_turns() -> None:
    """By the clock each boot of the three kernels is beside those of the others; instructions are counted once."""
    assert list(scaling.runs("icount", 3)) == [(1, "vanilla"), (1, "off"), (1, "on")]
    timed = list(scaling.runs("time", 2))
    assert timed[:6] == [(1, "vanilla"), (1, "off"), (1, "on")] * 2 and len(timed) == 24


@pytest.fixture(name="host")
def fixture_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host whose suite is built, and whose guests do 100 operations a second on vanilla, 80 with the features on."""
    (tmp_path / "origin.json").write_text('{"commit": "1", "version": "75f66e4"}', encoding="utf-8")
    for name, path in (("HOME", tmp_path), ("STAMP", tmp_path / "origin.json")):
        monkeypatch.setattr(scaling, name, path)
    monkeypatch.setattr(storage, "SCALE", tmp_path / "results")
    monkeypatch.setattr(boot, "image_of", lambda kernel: tmp_path / "origin.json")
    monkeypatch.setattr(running, "about", lambda kernel: {"kernel": kernel.variant, "commit": "abc", "version": "6.12"})
    monkeypatch.setattr(running, "unclean", lambda kernels: "")

    def run(command: str, variant: str, memory: str, cpus: int, append: str, icount: bool, timeout: float,
            **options: Any) -> boot.Result:
        assert memory and timeout and options["plain_cpu"] and (cpus == 1 or not icount)
        count = 80 if append == "quire=on" else 100
        first, *programs = command.splitlines()
        assert first == "echo 0 > /proc/sys/kernel/randomize_va_space"
        names = [line.split()[1] for line in programs]
        return boot.Result(0, "".join(f"{name} {count} 1.0\n" for name in names), "")

    monkeypatch.setattr(boot, "run", run)
    return tmp_path


def test_numbers_are_kept(host: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each clock has a file with a row for each program and number of tasks, of which the table is made."""
    assert scaling.main(["--boots", "2"]) == 0
    rows = json.loads((host / "results/time.json").read_text(encoding="utf-8"))["rows"]
    assert len(rows) == len(scaling.programs()) * len(scaling.TASKS)
    assert rows[1] == {"program": "page_fault1_processes", "tasks": 2, "vanilla": [100.0, 100.0], "off": [100.0, 100.0],
                       "on": [80.0, 80.0]}
    assert "time mmap1_threads, 8 tasks: off 1.000, on 1.250 of vanilla's time" in capsys.readouterr().out
    text = publishing.scale(publishing.scales()).replace(" of\n", " of ")
    assert "\n| `brk1_threads` | 10,000,000 | 1.000 | **1.250** |" in text and "medians of 2 boots" in text


def test_bold_wants_a_steady_base() -> None:
    """A number is bold only if the features alone make it worse."""
    assert publishing.times({"vanilla": [100], "off": [100], "on": [90]}) == ["1.000", "**1.111**"]
    assert publishing.times({"vanilla": [100], "off": [90], "on": [90]}) == ["1.111", "1.111"]
    assert publishing.times({"vanilla": [100, 1, 100], "off": [100], "on": [200]}) == ["1.000", "0.500"]


def test_numbers_are_not_kept(host: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A part of the tests, or a kernel with edits, leaves the numbers alone."""
    assert scaling.main(["--clock", "icount", "--only", "brk"]) == 0
    assert "not kept: only some of its tests ran" in capsys.readouterr().err
    monkeypatch.setattr(running, "unclean", lambda kernels: "edits")
    assert scaling.main(["--clock", "icount"]) == 0
    assert "not kept: edits" in capsys.readouterr().err and not (host / "results").exists()


def test_errors(host: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """One line says what is wrong: no such test, a guest that fails, nothing built."""
    assert scaling.main(["--only", "nonesuch"]) == 1
    assert "no test begins with nonesuch; there are: page_fault1" in capsys.readouterr().err
    monkeypatch.setattr(boot, "run", lambda *arguments, **options: boot.Result(70, "", "", reason="kernel bug: x"))
    assert scaling.main(["--clock", "icount"]) == 1
    assert capsys.readouterr().err.endswith("error: vanilla with 1 tasks: kernel bug: x\n")
    (host / "origin.json").unlink()
    assert scaling.main([]) == 1
    assert "will-it-scale is not built yet: name a git clone" in capsys.readouterr().err
