# SPDX-License-Identifier: GPL-2.0
"""The runs of our models: what guests run, how their steps are read and added up, and what is said of a mismatch."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from guest import boot, splat
from suites import modelling, publishing, storage

RIGHT = "seed 5\n# 70 steps, seed 5\nok 1\n# fork_model.c:153:trees:20 steps, 3 a second\npswpin 1\npswpout 2\n"
USED = "user_usec 12000000\nsystem_usec 120000000\n"


@pytest.fixture(name="host")
def fixture_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """A host with no kernel, whose guests find a mismatch in rmap-shared alone; return the options of each guest."""
    guests: list[dict[str, Any]] = []

    def one(script: str, **options: Any) -> boot.Result:
        guests.append({"script": script, **options})
        wrong = "rmap" in options["append"] and "fork" in options["append"]
        return boot.Result(1 if wrong else 0, RIGHT + "step 8 failed\n" * wrong + USED, "")
    monkeypatch.setattr(modelling.boot, "run", one)
    (tmp_path / "bzImage").touch()
    monkeypatch.setattr(modelling.boot, "image_of", lambda variant: tmp_path / "bzImage")
    monkeypatch.setattr(modelling.programs, "build", lambda: tmp_path)
    monkeypatch.setattr(modelling, "HOME", tmp_path)
    monkeypatch.setattr(modelling.running, "unclean", lambda kernels: "")
    monkeypatch.setattr(modelling.running, "about", lambda kernel: {"commit": "abc", "version": "6.12"})
    monkeypatch.setattr(storage, "MODELS", tmp_path / "models/steps.json")
    return guests


def test_steps_add_up(host: list[dict[str, Any]]) -> None:
    """Each run adds to those that are kept, with seeds that no other guest has."""
    assert modelling.main(["fork", "rmap", "--minutes", "2"]) == modelling.main(["fork"]) == 0
    assert [one["append"] for one in host] == ["quire=fork", "quire=rmap", "quire=fork"]
    assert host[0]["numa"] == 2 and "-lt 120 ]" in host[0]["script"] and "for other in prezero" in host[0]["script"]
    runs = publishing.paths.read_stamp(storage.MODELS)["runs"]
    assert [(one["model"], one["steps"], one["seconds"]) for one in runs] == [
        ("fork", 90, 120), ("rmap", 90, 120), ("fork", 90, 600)]
    assert runs[0]["seed"] != runs[1]["seed"]
    text = publishing.modelled({"runs": runs})
    assert runs[0]["system"] == 0.5 and runs[0]["user"] == 0.05
    assert "| fork | quire | 180 | 0.2 | 0.20 | 2 | 17 % | 2 % |  | none |" in text
    assert "270 steps without a mismatch" in text and "the kernel quire 864,197 hours." in text.replace("\n", " ")


def test_a_run_that_takes_longer(host: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps a second and parts of the CPUs' time are of the time that a guest took, not of what was asked for."""
    monkeypatch.setattr(modelling.boot, "run", lambda *_, **__: boot.Result(0, RIGHT + USED + "took 240\n", ""))
    assert modelling.main(["fork", "--minutes", "2"]) == 0 and not host
    (run,) = publishing.paths.read_stamp(storage.MODELS)["runs"]
    assert (run["seconds"], run["system"], run["user"]) == (240, 0.25, 0.025)


def test_interrupt(host: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C does not wait for the guests, which end with the process; the models before it are kept."""
    ended, waited = threading.Event(), threading.Event()
    right = modelling.boot.run

    def one(script: str, **options: Any) -> boot.Result:
        if len(host) == 1:
            while not storage.MODELS.exists():
                time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGINT)
            ended.wait(60)
            waited.set()
        return right(script, **options)

    def leave(status: int) -> None:
        raise SystemExit(status)

    monkeypatch.setattr(modelling.boot, "run", one)
    monkeypatch.setattr(modelling.os, "_exit", leave)
    # A shell's background jobs ignore the signal, and Python then raises nothing.
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(SystemExit) as error:
            modelling.main(["fork", "rmap"])
    finally:
        signal.signal(signal.SIGINT, handler)
    assert error.value.code == 130 and not waited.is_set()
    ended.set()
    assert waited.wait(60)
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and thread.name.startswith("ThreadPoolExecutor"):
            thread.join(60)
    assert [one["model"] for one in publishing.paths.read_stamp(storage.MODELS)["runs"]] == ["fork"]


def test_kernel_that_changes(host: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch,
                             capsys: pytest.CaptureFixture[str]) -> None:
    """Steps on a kernel that was built meanwhile are not kept: nobody knows which one ran."""
    ages = iter([[1.0], [1.0], [2.0]])
    monkeypatch.setattr(modelling.running, "ages", lambda kernels: next(ages))
    assert modelling.main(["fork", "rmap"]) == 0 and len(host) == 2
    assert "the steps of rmap are not kept: a kernel was built meanwhile" in capsys.readouterr().err
    assert [one["model"] for one in publishing.paths.read_stamp(storage.MODELS)["runs"]] == ["fork"]


def test_mismatch(host: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]) -> None:
    """A run that found a mismatch is kept with its seed, and its steps do not count."""
    assert modelling.main(["rmap", "rmap-shared"]) == 1
    runs = publishing.paths.read_stamp(storage.MODELS)["runs"]
    assert not runs[0]["wrong"] and "status 1" in runs[1]["wrong"]
    assert "step 8 failed" in capsys.readouterr().err
    assert publishing.mean_share([{"seconds": 9}, *runs], "user") == publishing.mean_share(runs, "user")
    assert publishing.mean_share([{"seconds": 9}], "user") == ""
    text = publishing.modelled({"runs": runs})
    assert f"(from seed {runs[1]['seed']} on)" in text and "\n90 steps without" in text


def test_steps_of_shm() -> None:
    """Each passed run of shm_model took as many steps as its source says."""
    source = (modelling.programs.SOURCE / "shm_model.c").read_text(encoding="utf-8")
    value = {name: int(number) for name, number in re.findall(r"^#define (\w+) (\d+)$", source, re.M)}
    said = "# PASSED: 1 / 1 tests passed.\n" * 2 + "# FAILED: 0 / 1 tests passed.\n"
    assert modelling.steps_of(modelling.MODELS["shm"], said) == 2 * 10 * value["STEPS"]
    assert modelling.steps_of(modelling.MODELS["shm-race"], said) == 2 * 10 * value["PROCS"] * value["RACE_STEPS"]


def test_no_pressure(host: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    """A run in which nothing was swapped proves less than the table says, so it counts as a fault."""
    monkeypatch.setattr(modelling.boot, "run", lambda *_, **__: boot.Result(0, RIGHT.replace("out 2", "out 0"), ""))
    assert modelling.main(["fork"]) == 1 and not host
    assert "no pressure" in publishing.paths.read_stamp(storage.MODELS)["runs"][0]["wrong"]


@pytest.mark.parametrize("said, wrong", [
    ("failed 7\nfailed 1200\n", ""), ("failed 7\nfailed 0\n", "no allocations failed"),
    ("failed 7\n", "no allocations failed"), ("", "no allocations failed")])
def test_failing_allocations(host: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, said: str,
                             wrong: str) -> None:
    """On the debug kernel allocations fail, and a run in which none did is a fault."""
    monkeypatch.setattr(modelling.boot, "run", lambda *_, **__: boot.Result(0, RIGHT + USED + said, ""))
    monkeypatch.setattr(modelling, "spared", lambda kernel: ("0x10", "0x20") if kernel == "debug" else None)
    assert modelling.main(["shm", "--kernel", "debug"]) == (1 if wrong else 0) and not host
    (run,) = publishing.paths.read_stamp(storage.MODELS)["runs"]
    assert run["wrong"].startswith(wrong) and bool(run["wrong"]) == bool(wrong)
    if not wrong:
        assert run["failed"] == 1207 and "| 1,207 | none |" in publishing.modelled({"runs": [run]})


def test_races(host: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    """On the kernel kcsan, KCSAN is on when a model begins; a race of ours is a fault, and others are counted once."""
    assert modelling.main(["shm", "--kernel", "kcsan"]) == 0
    assert modelling.races.ON in host[0]["script"] and modelling.races.LATE in host[0]["append"]
    one, two, ours = (splat.Splat("race", f"data-race in {name}", "") for name in ("f", "g", "h"))
    results = [boot.Result(0, RIGHT + USED, "", [], [two, one, two]), boot.Result(0, RIGHT + USED, "", [ours], [one])]
    monkeypatch.setattr(modelling.boot, "run", lambda *_, **__: results.pop(0))
    assert modelling.main(["shm", "shm-race", "--kernel", "kcsan"]) == 1
    runs = publishing.paths.read_stamp(storage.MODELS)["runs"]
    assert [one["races"] for one in runs] == [[], [one.title, two.title], [one.title]] and "in h" in runs[2]["wrong"]
    assert "KCSAN found: 2." in publishing.modelled({"runs": runs}).replace("\n", " ")
    assert "KCSAN found" not in publishing.modelled({"runs": runs[:1]})


def test_where_no_allocation_fails() -> None:
    """From the first of the functions to what follows the last of them, whatever else is between them."""
    rows = ["10 T a", "20 t xas_alloc", "30 T xas_get_mark", "40 T xas_nomem", "50 t xas_nomem.cold", "60 T b"]
    assert modelling.between("\n".join(rows)) == ("0x20", "0x50") and modelling.spared("quire") is None


@pytest.mark.parametrize("name", list(modelling.MODELS))
def test_script(name: str) -> None:
    """What guests run is a script, and a model's own features are left alone."""
    model = modelling.MODELS[name]
    for script in (model.script(60, 7, ("0x10", "0x20")), model.script(60, 7)):
        assert ("echo 0x20 >reject-end" in script) == ("inject stop" in script)
        subprocess.run(["bash", "-n", "-c", script], check=True)
    others = script.split("for other in ", 1)[1].split(";", 1)[0].split()
    assert "\nseed=7\n" in script and sorted([*others, *model.features]) == sorted(modelling.FEATURES)


def test_unknown_model(capsys: pytest.CaptureFixture[str]) -> None:
    """One line says which models there are."""
    with pytest.raises(SystemExit):
        modelling.main(["nonesuch"])
    assert "no model nonesuch; there are: fork, rmap" in capsys.readouterr().err
