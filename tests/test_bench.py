# SPDX-License-Identifier: GPL-2.0
"""The benchmarks' own logic, and one guest in which every program runs once at its smallest."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from bench import core, demonstration, publishing, reporting, runner, storage, table, workloads
from guest import boot, build, packages, paths, tree

TINY = core.Options(quick=True, tiny=True)


def a_column(values: dict[str, list[float]], states: dict[str, str] | None = None) -> dict:
    """Return a column whose rows are op=NAME with the metric ns."""
    length = len(next(iter(values.values())))
    runs = [
        core.Run([({"op": op}, {"ns": v[i]}) for op, v in values.items()], "6.12.0", states or {})
        for i in range(length)
    ]
    return core.combine(runs)


def a_result(**columns: dict) -> dict:
    """Return a result with these columns."""
    return {
        "name": "micro",
        "title": "small things",
        "features": ["fork"],
        "shown": ["ns"],
        "more_is_better": [],
        "native": [],
        "main": ({"op": "a"}, "ns"),
        "notes": [],
        "base": "6.12.117",
        "clock": "icount",
        "quick": True,
        "runs": 3,
        "guest": {"memory": "4G", "cpus": 1, "accelerator": "TCG"},
        "columns": columns,
    }


@pytest.fixture(name="result")
def _result() -> dict:
    return a_result(
        vanilla=a_column({"a": [100, 90, 400], "b": [8] * 3}),
        off=a_column({"a": [100, 100, 100], "b": [8] * 3}),
        on=a_column({"a": [25, 25, 25], "b": [0] * 3}, {"fork": "on"}),
    )


def test_parse_output() -> None:
    """Rows, states and counters are read; other lines are ignored."""
    run = core.parse_output(
        "noise @x=1\n#uname 6.12.117-quire\n#state fork on\n#stat fork/shared 12\n"
        "@mode=burst page=2M | flt/cpu/s=12.5 Wall=3\n"
    )
    assert run.uname == "6.12.117-quire" and run.states == {"fork": "on"} and run.stats == {"fork/shared": 12}
    assert run.rows == [({"mode": "burst", "page": "2M"}, {"flt/cpu/s": 12.5, "Wall": 3.0})]


@pytest.mark.parametrize("line", ["@a=1 b=2", "@a=1 | ns", "@a=1 | ns=fast"])
def test_bad_rows_are_errors(line: str) -> None:
    """A result line that cannot be read is an error."""
    with pytest.raises(core.BenchError):
        core.parse_output(line)


def test_combine_can_take_the_least() -> None:
    """With `least`, the smallest value counts instead of the median."""
    runs = [core.Run([({"op": "a"}, {"ns": value})]) for value in (7.0, 5.0, 6.0)]
    assert core.combine(runs, least=True)["rows"][0]["metrics"]["ns"] == {"runs": [7.0, 5.0, 6.0], "median": 5.0}


def test_combine_takes_the_median(result: dict) -> None:
    """One slow boot of three does not move the value; the runs are kept."""
    assert core.value_of(result["columns"]["vanilla"], {"op": "a"}, "ns") == 100
    assert result["columns"]["vanilla"]["rows"][0]["metrics"]["ns"]["runs"] == [100, 90, 400]
    assert core.value_of(result["columns"]["vanilla"], {"op": "c"}, "ns") is None


@pytest.mark.parametrize(
    ("value", "base", "expected"), [(50, 100, 0.5), (0, 100, 0), (5, 0, None), (None, 1, None), (5, None, None)]
)
def test_ratio(value: float | None, base: float | None, expected: float | None) -> None:
    """There is no ratio without two values, or to 0."""
    assert core.ratio(value, base) == expected


def test_table(result: dict) -> None:
    """The table has three columns, and the ratios to vanilla."""
    lines = table.text_of(result).splitlines()
    header = next(i for i, line in enumerate(lines) if line.startswith("op "))
    assert lines[header].split() == ["op", "vanilla", "off", "on", "off/vanilla", "on/vanilla"]
    assert lines[header + 2].split() == ["a", "100", "100", "25", "1.000", "0.250"]
    assert lines[header + 3].split() == ["b", "8", "8", "0", "1.000", "0.000"]
    assert "ns (less is better)" in lines


def test_table_without_vanilla(result: dict) -> None:
    """The demonstration has off and on, and their ratio."""
    del result["columns"]["vanilla"]
    assert "op  off  on  on/off" in table.text_of(result)


def test_summary(result: dict) -> None:
    """The summary has one line for each benchmark."""
    line = table.summary_text([result]).splitlines()[2]
    assert line.split() == ["micro", "a:", "ns", "100", "100", "25", "off/vanilla", "1.000,", "on/vanilla", "0.250"]


def test_conditions_are_printed(result: dict) -> None:
    """A number comes with its base, clock, guest and number of runs."""
    text = table.text_of(result)
    for part in ("base 6.12.117", "instructions", "TCG", "guest 4G and 1 cpu(s)", "median of 3 boot(s)", "quire=fork"):
        assert part in text


def test_a_feature_that_was_not_on_is_pointed_out(result: dict) -> None:
    """A note names each feature that was not on in the column "on"."""
    assert core.not_on(result) == [] and "NOTE" not in table.text_of(result)
    result["columns"]["on"]["states"]["fork"] = "disabled_by_warning"
    assert core.not_on(result) == ["fork"] and "NOTE: the feature fork was not on" in table.text_of(result)


def test_gate(result: dict) -> None:
    """Off may be worse by a given percentage; if more is better, a smaller value is worse."""
    assert core.worse_off(result, 0.5) == []
    result["columns"]["off"] = a_column({"a": [103], "b": [8]})
    assert core.worse_off(result, 5) == [] and core.worse_off(result, 1) == ["micro a: ns off/vanilla 1.030"]
    result["more_is_better"] = ["ns"]
    assert core.worse_off(result, 1) == []
    result["columns"]["off"] = a_column({"a": [50], "b": [8]})
    assert core.worse_off(result, 1) == ["micro a: ns off/vanilla 0.500"]


def test_rows_that_only_one_column_has() -> None:
    """A missing value is a dash, not a zero."""
    text = table.text_of(a_result(off=a_column({"a": [1]}), on=a_column({"b": [2]})))
    assert [line.split() for line in text.splitlines()[-2:]] == [["a", "1", "-", "-"], ["b", "-", "2", "-"]]


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (0.0, "0"), (1234567.0, "1,234,567"), (1234.56, "1,235"), (12.345, "12.35"), (0.01234, "0.0123")],
)
def test_number(value: float | None, text: str) -> None:
    """A number has about four significant digits."""
    assert table.number(value) == text


def test_columns_and_boot_options() -> None:
    """Off is the quire kernel with no option; on has the features that the benchmark names."""
    fork = core.load("fork-table")
    assert [runner.kernel_of(c, TINY) for c in core.COLUMNS] == ["vanilla", "quire", "quire"]
    assert [runner.append_of(c, fork, TINY) for c in core.COLUMNS] == ["", "", "quire=fork,rmap"]


def test_boot_option_for_emulation(monkeypatch: pytest.MonkeyPatch) -> None:
    """All columns get the option if the guest is emulated."""
    entry = dataclasses.replace(core.load("fork-table"), emulated_boot="slow")
    by = {"TCG": ["slow", "slow", "quire=fork,rmap slow"], "KVM": ["", "", "quire=fork,rmap"]}
    for accelerator, wanted in by.items():
        monkeypatch.setattr(runner, "accelerator", lambda *_, name=accelerator: name)
        assert [runner.append_of(c, entry, core.Options()) for c in core.COLUMNS] == wanted
        assert runner.append_of("vanilla", entry, core.Options(icount=True)) == wanted[0]


def test_boot_option_of_a_benchmark() -> None:
    """All columns get the option, on kernels of any name, so that all guests have the same memory."""
    hugetlb, pool = core.load("hugetlb"), "hugepagesz=1G hugepages=1"
    words = [runner.append_of(c, hugetlb, core.Options()) for c in (*core.COLUMNS, "x=debug:quire=on")]
    assert words == [pool, pool, f"quire=prezero {pool}", f"quire=on {pool}"]


def test_jump_labels_only_where_instructions_are_counted() -> None:
    """By the clock, a guest has two CPUs and may crash with jump labels. A custom column keeps the kernel it names."""
    counted = core.Options(icount=True, jump=True)
    columns = [*core.COLUMNS, "dbg=debug"]
    assert [runner.kernel_of(c, counted) for c in columns] == ["vanilla-jump", "quire-jump", "quire-jump", "debug"]
    assert [runner.kernel_of(c, core.Options(jump=True)) for c in columns] == ["vanilla", "quire", "quire", "debug"]
    assert publishing.command({**a_result(), "jump": True}).split()[2] == "--jump"


def test_every_benchmark_loads() -> None:
    """The entry of each folder is complete, the Makefile builds its programs, and its features exist."""
    makefile = (core.HERE / "Makefile").read_text(encoding="utf-8")
    for name in core.names():
        entry = core.load(name)
        assert entry.name == name and entry.title and set(entry.features) <= set(core.FEATURES)
        assert entry.more_is_better <= set(entry.shown)
        for program in runner.programs_of(entry, TINY):
            assert program.rstrip("0123456789") in makefile
    assert set(demonstration.FIVE) <= set(core.names())
    assert {f for name in demonstration.FIVE for f in core.load(name).features} == set(core.FEATURES)


def test_unknown_benchmark() -> None:
    """The error about a wrong name lists the right ones."""
    with pytest.raises(core.BenchError, match="there are: machine, after-fork"):
        core.load("frok-table")


def test_missing_kernel_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The error says which make verb builds it."""
    monkeypatch.setattr(runner, "REPO", tmp_path)
    with pytest.raises(core.BenchError, match="make kernel VARIANT=vanilla"):
        runner.check_kernels(["vanilla"], TINY)


def test_json_and_report(result: dict, tmp_path: Path) -> None:
    """What is saved is read back unchanged, and the report has a plot and a summary of it."""
    probe = a_column({"x": [5]})
    path = runner.save(result, probe, tmp_path / "micro.json")
    results, machine = reporting.read([path])
    assert machine == probe and results[0]["columns"] == json.loads(json.dumps(result["columns"]))
    text = reporting.write(results, machine, tmp_path / "report.html").read_text(encoding="utf-8")
    assert "<svg" in text and "on/vanilla 0.250" in text and "median of 3 boot(s)" in text


@pytest.mark.parametrize("text", ["{}", "[]", "3", '{"results": 3}', '{"results": [{"columns": {}}]}', '{"resu', None])
def test_report_of_what_is_no_result(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str | None) -> None:
    """A file that bench/run did not write, or no file, gives one line that says what to give instead."""
    path = tmp_path / "some.json"
    if text is not None:
        path.write_text(text, encoding="utf-8")
    assert reporting.main(["--output", str(tmp_path / "report.html"), str(path)]) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"error: {path} ") and said.endswith(": give a file that bench/run --json wrote\n")
    assert said.count("\n") == 1 and not (tmp_path / "report.html").exists()


def test_report_without_the_packages(result: dict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                     capsys: pytest.CaptureFixture[str]) -> None:
    """In a fresh clone, the error says what to run."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    path = runner.save(result, None, tmp_path / "micro.json")
    assert reporting.main(["--output", str(tmp_path / "report.html"), str(path)]) == 1
    said = capsys.readouterr().err
    assert said.startswith("error: matplotlib ") and said.endswith(": make packages\n") and said.count("\n") == 1


@pytest.mark.parametrize("main", [runner.main, demonstration.main])
def test_disk_that_fills_up_at_the_end(result: dict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                       capsys: pytest.CaptureFixture[str], main: Callable[[list[str]], int]) -> None:
    """The measurements are printed even if their file cannot be written, and the error is one line."""
    def full(*_: object, **_options: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(runner, "run_all", lambda *_, **_options: (a_column({"x": [5]}), [result], ["pft failed"]))
    monkeypatch.setattr(Path, "write_text", full)
    assert main(["--json", str(tmp_path / "all.json")] if main == runner.main else []) == 1
    said = capsys.readouterr()
    assert "== micro: small things" in said.out
    first, last = said.err.splitlines()
    assert first.endswith("FAILED pft failed") and last.endswith("No space left on device: make room and run it again")


def test_programs_without_make(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """On a host without make, the error says how to install it."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(core.BenchError, match="this host has no make, gcc: make packages"):
        runner.build_programs([core.load("micro")], TINY)


def test_results_of_uncommitted_edits_are_refused(monkeypatch: pytest.MonkeyPatch,
                                                  capsys: pytest.CaptureFixture[str]) -> None:
    """A kernel with uncommitted edits is not measured for the documents, which stay as they are."""
    monkeypatch.setattr(runner, "origin_of_kernel", lambda variant: {"changed": "yes"})
    monkeypatch.setattr(runner, "run_all", lambda *_, **_options: pytest.fail("measured all the same"))
    monkeypatch.setattr(publishing, "store", lambda data: pytest.fail("stored all the same"))
    assert publishing.main(["--run", "--clock", "icount", "micro"]) == 1
    assert "quire-jump was built with edits that are not committed" in capsys.readouterr().err


def test_measure_alternates_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drift of the machine affects all columns alike; a failing benchmark does not stop the others."""
    order = []

    def boot_once(benchmark: core.Benchmark, column: str, _options: core.Options) -> core.Run:
        order.append(column)
        if benchmark.name == "micro":
            raise core.BenchError("micro failed")
        return core.Run([({"op": "a"}, {"ns": 1.0})], restarts=1 if column == "on" else 0)

    monkeypatch.setattr(runner, "boot_once", boot_once)
    monkeypatch.setattr(runner, "check_kernels", lambda columns, options: None)
    monkeypatch.setattr(runner, "build_programs", lambda benchmarks, options: None)
    monkeypatch.setattr(runner, "accelerator", lambda column, options: "TCG")
    saved = []
    monkeypatch.setattr(runner, "save", lambda result, probe: saved.append(result["name"]))
    counted = frozenset({"pft"})
    _, results, failed = runner.run_all(
        ["micro", "pft"], ["off", "on"], core.Options(), 2, lambda text: None, counted
    )
    assert order == ["off", "off", "off", "on", "off", "on"]
    assert failed == ["micro failed"] and saved == ["pft"] and results[0]["columns"]["on"]["rows"]
    assert results[0]["clock"] == "icount"
    assert results[0]["notes"][-1] == "guests that were started again because of their host: 2"


def test_guests_of_several_sizes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A benchmark runs in guests with the CPUs that are asked for and its NUMA nodes; each result has its own file."""
    shapes = []

    def run(*_: object, cpus: int, numa: int, **_options: object) -> boot.Result:
        shapes.append((cpus, numa))
        return boot.Result(0, "@op=a | ns=1\n", "")

    monkeypatch.setattr(runner.boot, "run", run)
    monkeypatch.setattr(runner, "OUT", tmp_path)
    monkeypatch.setattr(runner, "check_kernels", lambda columns, options: None)
    monkeypatch.setattr(runner, "build_programs", lambda benchmarks, options: None)
    monkeypatch.setattr(runner, "accelerator", lambda column, options: "TCG")
    assert runner.main(["--columns", "off", "--cpus", "2,4", "--json", str(tmp_path / "all.json"), "pressure"]) == 0
    assert shapes == [(2, 1), (2, 2), (4, 2)]
    assert sorted(path.name for path in tmp_path.glob("time/*")) == ["pressure-4cpus.json", "pressure.json"]
    both = json.loads((tmp_path / "all.json").read_text(encoding="utf-8"))["results"]
    assert "guest 4G and 4 cpu(s) on 2 NUMA nodes" in table.conditions(both[1])
    assert core.Options(icount=True, cpus=4).guest_cpus == 1


AIM = core.Aim("a is quick", "ns", {"op": "a"}, 0.3)


@pytest.mark.parametrize(
    ("changes", "score", "reached"),
    [
        ({}, 0.25, True),
        ({"limit": 0.2}, 0.25, False),
        ({"how": "times", "limit": 4}, 4, True),
        ({"how": "less", "limit": 76}, 75, False),
        ({"how": "value", "limit": 25}, 25, True),
        ({"how": "value", "limit": 26, "more_is_better": True}, 25, False),
        ({"against": "on", "column": "off", "other": {"op": "b"}}, None, None),
        ({"column": "vanilla", "against": "vanilla", "other": {"op": "b"}, "limit": 12.5}, 12.5, True),
        ({"where": {"op": ("a", "b")}, "column": "off", "limit": 1}, 1, True),
        ({"where": {"op": "c"}}, None, None),
    ],
)
def test_aims(result: dict, changes: dict, score: float | None, reached: bool | None) -> None:
    """An aim is judged by the worst of its rows; without a row, or without a base, it is neither met nor missed."""
    aim = dataclasses.replace(AIM, **changes)
    found = core.achieved(aim, result)
    assert (found.score if found else None) == score and core.met(aim, found) is reached


def test_worst_row_counts(result: dict) -> None:
    """One bad row of many is not hidden by the others."""
    result["columns"]["off"] = a_column({"a": [90], "b": [9]})
    aim = dataclasses.replace(AIM, where={}, column="off")
    found = core.achieved(aim, result)
    assert found and found.score == 9 / 8
    assert core.worst_off(result) == ("b: ns", 9 / 8)
    assert core.worst_off({**result, "one_event": ["ns"]}) is None


@pytest.mark.parametrize(
    ("limit", "off", "on_b", "judged", "left_out"),
    [(1.25, {"a": [100], "b": [8]}, 20, core.MISSED, 0), (1.25, {"a": [100], "b": [99]}, 20, core.MET, 1),
     (1.25, {"a": [100]}, 20, core.MET, 1), (1.25, {"a": [79], "b": [4]}, 20, core.UNMEASURABLE, 2),
     (1.0, {"a": [100.5], "b": [8]}, 8, core.MET, 0), (1.0, {"a": [100], "b": [8.07]}, 8, core.UNMEASURABLE, 0),
     (1.0, {"a": [100], "b": [8.07]}, 8.1, core.MISSED, 0), (0.5, {"a": [190], "b": [15]}, 4, core.MET, 0)],
)
def test_aims_by_the_clock(result: dict, limit: float, off: dict, on_b: float, judged: str, left_out: int) -> None:
    """A row counts only if off is within the aim's limit of vanilla; no gain is met that off alone would miss."""
    aim = dataclasses.replace(AIM, where={}, limit=limit, clock="time")
    result["columns"].update(off=a_column(off), on=a_column({"a": [25], "b": [on_b]}))
    assert core.judge(aim, result) == judged and len(core.passed_over(aim, result)) == left_out
    assert not core.passed_over(AIM, result) and not core.passed_over(aim, None) and core.judge(aim, None) is None


def test_rows_that_are_passed_over_are_told(result: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    """The text about the aims says how many rows were ignored."""
    aim = dataclasses.replace(AIM, where={}, limit=1.25, clock="time")
    monkeypatch.setattr(core, "load", lambda name: dataclasses.replace(core.Benchmark(
        name, "", (), (), lambda options: "", ("ns",)), aims=(aim,)))
    result["columns"]["off"] = a_column({"a": [900], "b": [8]})
    text = table.aims_text({**result, "quick": False, "clock": "time"})
    assert "a is quick: rows that are not judged, as off differs from vanilla by more" in text and "8 → 0" in text


def test_every_aim_can_be_judged() -> None:
    """Aims name metrics that their benchmark shows, columns that exist, and clocks by which it is measured."""
    for entry in map(core.load, core.names()):
        for aim in entry.aims:
            assert aim.metric in entry.shown and aim.clock in dict(entry.boots), f"{entry.name}: {aim.text}"
            assert {aim.column, aim.against} <= set(core.COLUMNS) and set(dict(entry.boots)) <= set(publishing.CLOCKS)


def test_any_kernel_can_be_a_column() -> None:
    """A custom column has a name, a variant and boot options, and is compared with vanilla like the others."""
    assert core.column_of("dbg=debug:quire=fork,rmap loglevel=3") == core.Column("dbg", "debug",
                                                                               "quire=fork,rmap loglevel=3")
    assert core.column_of("gone=off").boot == ""
    for wrong in ("debug", "on=debug", "=debug"):
        with pytest.raises(core.BenchError, match="LABEL=VARIANT"):
            core.column_of(wrong)
    text = table.text_of(a_result(gone=a_column({"a": [2]}), vanilla=a_column({"a": [1]})))
    assert "op  vanilla  gone  gone/vanilla" in text


def test_papers_are_written_from_the_data() -> None:
    """docs/results.md, the README's table and all of bench/results are what bench/publish makes from the data."""
    files = publishing.files_of(storage.load(storage.FOLDER), storage.load(storage.PACKAGES))
    assert {publishing.PAPER, publishing.README, storage.FOLDER / "machine.md"} <= set(files)
    for path, text in files.items():
        assert path.is_file() and path.read_text(encoding="utf-8") == text, f"{path}: run bench/publish"
    there = {path for path in storage.FOLDER.rglob("*") if path.is_file()}
    assert not there - set(files), "bench/publish does not write these: delete them"


def stored(data: dict, folder: Path) -> dict:
    """Write data into a folder, and return what is read back."""
    for name, text in storage.texts(data).items():
        (folder / name).write_text(text, encoding="utf-8")
    return storage.load(folder)


def test_data_is_read_as_it_was_written(result: dict, tmp_path: Path) -> None:
    """Each result and probe has a file and is read back unchanged, fields in order; each row has a line."""
    assert storage.load(tmp_path) == {"machine": None, "machine_time": None, "results": []}
    odd = {**result, "name": "text", "clock": "time", "title": "µ → \"x\"\n",
           "columns": {"on": a_column({"a": [0.1]}), "off": core.combine([])}}
    data = json.loads(json.dumps({"machine": a_column({"x": [5]}), "machine_time": None, "results": [result, odd]}))
    again = stored(data, tmp_path)
    assert again == data and json.dumps(again) == json.dumps(data)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["machine.icount.json", "micro.icount.json",
                                                                "text.time.json"]
    lines = (tmp_path / "micro.icount.json").read_text(encoding="utf-8").splitlines()
    assert ' "features": ["fork"],' in lines and sum(line.startswith('    {"keys": {"op": ') for line in lines) == 6
    assert "results" not in core.names()


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("micro.icount.json", '{"name": "mic', "cannot be read"),
        ("micro.icount.json", "[]", "does not hold a result of micro"),
        ("micro.time.json", '{"name": "micro", "clock": "icount", "rows": []}', "does not hold a result of micro"),
        ("machine.icount.json", "{}", "does not hold a result of machine"),
        ("mirco.icount.json", "{}", "name it NAME.CLOCK.json"),
        ("micro.json", "{}", "name it NAME.CLOCK.json"),
    ],
)
def test_data_that_is_none(tmp_path: Path, name: str, text: str, says: str) -> None:
    """The error names a file whose content does not match its name, and says what to do about it."""
    (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(core.BenchError, match=f"{name} .*{says}.*delete it"):
        storage.load(tmp_path)


def test_results_replace_older_ones(result: dict) -> None:
    """A benchmark measured again by the same clock replaces its older result, and names its command."""
    data = publishing.merge({"results": []}, [result], a_column({"x": [5]}), "icount")
    again = publishing.merge(data, [{**result, "runs": 1}, {**result, "clock": "time"}], a_column({"x": [7]}), "time")
    assert publishing.merge(again, [], None, "time") == again
    assert [(r["clock"], r["runs"]) for r in again["results"]] == [("icount", 1), ("time", 3)]
    assert publishing.command(again["results"][1]) == "bench/run --clock --quick --repeat 3 micro"
    text = publishing.paper(again)
    assert "## micro" in text and "**missed**" not in publishing.off_table(again["results"])
    assert "(../bench/results/micro.md)" in text and publishing.rows_paper("micro", again).count("== micro") == 2
    assert publishing.rows_paper("machine", again).count("== the machine") == 2
    assert not publishing.rows_paper("pft", again)


def test_the_probe_alone_can_be_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """If it is named as a benchmark, the machine probe is made and stored, without a result beside it."""
    probe = a_column({"x": [5]})
    stored_data: list[tuple[dict, dict]] = []

    def run_all(names: list[str], *_: object, **_options: object) -> tuple[dict, list[dict], list[str]]:
        assert not names
        return probe, [], []

    monkeypatch.setattr(runner, "run_all", run_all)
    monkeypatch.setattr(publishing, "check_origin", lambda options: None)
    monkeypatch.setattr(publishing, "store", lambda lean, packages: stored_data.append((lean, packages)))
    lean, installed = storage.load(storage.FOLDER), storage.load(storage.PACKAGES)
    assert publishing.measure(["machine"], ["icount"], quick=False, packages=False) == []
    assert publishing.measure(["machine"], ["icount"], quick=False, packages=True) == []
    assert stored_data == [({**lean, "machine": probe}, installed), (lean, {**installed, "machine": probe})]


def test_missed_aims_are_in_the_results(result: dict) -> None:
    """docs/results.md begins with the headline aims, met or missed, and all other aims that are missed."""
    result = {**result, "quick": False}
    aims = {aim.text: core.judge(aim, result) for aim in core.load("micro").aims}
    text = publishing.headline({"results": [result]})
    for aim in core.load("micro").aims:
        assert (aim.text in text) == (aims[aim.text] is not None and (aim.headline or aims[aim.text] == core.MISSED))
    result["columns"]["on"]["rows"][0]["metrics"]["ns"]["median"] *= 10
    assert "**missed**" in publishing.headline({"results": [result]})
    assert "missed" in table.aims_text(result) and not table.aims_text({**result, "quick": True})


def test_missed_aims_are_in_the_readme() -> None:
    """Each aim that is missed is in the README: in the table by workload, or in the list below it."""
    data, packages = storage.load(storage.FOLDER), storage.load(storage.PACKAGES)
    results = packages["results"] + data["results"]
    text = " ".join(publishing.by_workload(data, packages).split())
    told = {(fact.benchmark, fact.aim): workloads.fact_text(fact, results)
            for workload in workloads.WORKLOADS for fact in workload.facts if fact.aim}
    missed = [(name, aim) for name in core.names() for aim in core.load(name).aims
              if core.judge(aim, core.find(results, name, aim.clock)) == core.MISSED]
    listed = text.split("does not have these missed ones")[1]
    for name, aim in missed:
        said = told.get((name, aim.text))
        assert "**missed**" in said and said in text if said else f'"{aim.text}" ' in listed
    assert missed and f" {len(missed)} missed, " in text


@pytest.mark.parametrize(
    ("value", "base", "said"),
    [(25, 100, "4x less"), (250, 100, "2.50x more"), (49, 100, "2.04x less"), (102.25, 100, "+2.2%"),
     (99.5, 100, "-0.5%"), (0.779, None, "0.7790"), (0, 100, "-100.0%"), (5, 0, "5")],
)
def test_changes(value: float, base: float | None, said: str) -> None:
    """A change is in percent, or a factor if that is at least 2; without a base it is the value."""
    assert workloads.change(core.Finding(0, value, base)) == said


def test_figures_of_a_workload(result: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    """A figure has its values, its clock, what off reads, and whether an aim is missed; without a row it says so."""
    aims = (dataclasses.replace(AIM, text="good", limit=0.5), dataclasses.replace(AIM, text="bad", limit=0.2))
    monkeypatch.setattr(core, "load", lambda name: dataclasses.replace(core.Benchmark(
        name, "", (), (), lambda options: "", ("ns",)), aims=aims))
    fact = workloads.Fact("it", "micro", aim="good", unit="ns")
    assert workloads.fact_text(fact, [result]) == "it: 4x less (100 → 25 ns)"
    assert workloads.fact_text(dataclasses.replace(fact, aim="bad", unit=""), [result]) == (
        "it: 4x less (aim ≤ -80% **missed**)")
    row = workloads.Fact("it", "micro", metric="ns", where={"op": "a"}, clock="time")
    clocked = {**result, "clock": "time", "columns": {**result["columns"], "off": a_column({"a": [110]})}}
    assert workloads.fact_text(row, [clocked]) == "it: 4x less (clock, 4.40x less against off)"
    there = {**result, "packages": True, "columns": clocked["columns"]}
    assert workloads.fact_text(row, [there, clocked]) == "it: 4x less (clock, 4.40x less against off; lean)"
    assert workloads.fact_text(fact, [there, clocked, result]) == "it: 4x less (100 → 25 ns; 4.40x less against off)"
    for wrong in (dataclasses.replace(fact, aim="nonesuch"), dataclasses.replace(row, clock="icount"),
                  dataclasses.replace(row, where={"op": "c"}), dataclasses.replace(row, metric="us")):
        assert wrong.finding([clocked]) is None
        assert workloads.fact_text(wrong, [clocked]) == "it: not measured"
    workload = workloads.Workload("work", (), ("fork", "rmap"), (fact,), (row,), "")
    assert workloads.row(workload, [there, clocked])[0] == (
        "**work** ([micro](bench/results/packages/micro.md), [micro, lean](bench/results/micro.md))")
    workload = workloads.Workload("work", (), ("fork", "rmap"), (fact,), (), "", knobs=("fork/mixed=1",))
    assert workloads.switches(workload, [result]) == "`fork`, `rmap`, `fork/mixed=1`"
    assert workloads.switches(workload, [{**result, "features": ["text"]}]).endswith(
        "; micro was measured with `text` features on")
    assert workloads.switches(workload, [{**result, "features": list(core.FEATURES)}]).endswith("with all features on")


def run_command(*command: str, **environment: str) -> tuple[int, str]:
    """Run a command of the repository; return its status and what it said on stderr."""
    done = subprocess.run(command, cwd=core.HERE.parent, text=True, check=False, stdin=subprocess.DEVNULL,
                          stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env={**os.environ, **environment})
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (["bench/run", "frok-table"], "there are: machine, after-fork"),
        (["bench/run", "--columns", "vanila", "micro"], "takes some of vanilla,off,on"),
        (["bench/run", "--column", "x=debgu", "micro"], "there are: vanilla, quire, debug, kcsan, off,"),
        (["bench/run", "--repeat", "0", "micro"], "--repeat takes a whole number above 0"),
        (["bench/run", "--clock", "--jump", "micro"], "--jump needs --icount"),
        (["bench/run", "--cpus", "2,many", "micro"], "takes numbers of CPUs from 1 to 8, such as 1,2,4,8"),
        (["bench/run", "--cpus", "16", "micro"], "takes numbers of CPUs from 1 to 8, such as 1,2,4,8"),
        (["bench/run", "--icount", "--cpus", "2", "micro"], "whose guest has one CPU"),
        (["bench/publish", "--run", "frok-table"], "there are: machine, after-fork"),
        (["bench/report", "nonesuch.json"], "nonesuch.json"),
        (["bench/run", "--json", "nonesuch/all.json", "micro"], "takes a file in an existing folder"),
        (["bench/demo", "--quick"], "error: unrecognized arguments: --quick (see bench/demo --help)"),
        (["guest/run"], "error: give a command after -- (see guest/run --help)"),
        (["guest/run", "--cpus", "0", "--", "true"], "--cpus: takes a number from 1 to 64, not '0' (see guest/run"),
        (["guest/run", "--cpus", "two", "--", "true"], "--cpus: takes a number from 1 to 64, not 'two'"),
        (["guest/run", "--numa", "9", "--", "true"], "--numa: takes a number from 1 to 8, not '9'"),
        (["guest/run", "--timeout", "-1", "--", "true"], "--timeout: takes a number of seconds above 0, not '-1'"),
        (["guest/run", "--timeout", "nan", "--", "true"], "--timeout: takes a number of seconds above 0, not 'nan'"),
        (["guest/run", "--memory", "16M", "--", "true"], "give it 64M or more (guest/run --memory)"),
        (["tool/quirectl", "stats", "--count", "0"],
         "--count: takes a whole number above 0, not '0' (see quirectl stats --help)"),
        (["tool/quirectl", "top", "--interval", "-2"], "--interval: takes a number of seconds above 0 and up to"),
        (["tool/quirectl"], "error: the following arguments are required: COMMAND (see quirectl --help)"),
        (["bench/attribute", "--jmp"], "see bench/attribute --help"),
        (["bench/attribute", "--timeout", "-5", "exit", "1", "1"], "--timeout: "),
        (["bench/pressure/simulate.py", "--cpus", "0"], "see bench/pressure/simulate.py --help"),
        (["tests/run.py", "--since", "now"], "see tests/run.py --help"),
        (["tests/quick.py", "--since"], "error: argument --since: expected one argument (see tests/quick.py --help)"),
        (["tests/record.py", "nonesuch"], "nonesuch"),
        (["guest/run", "--memory", "100000G", "--", "true"], "add swap, or give less (guest/run --memory"),
        (["guest/run", "--memory", "much", "--", "true"], "not a size of memory: 'much'"),
        ([sys.executable, "-m", "guest.build", "debgu"], "choose from 'vanilla', 'quire', 'debug', 'kcsan', 'off'"),
        (["make", "kernel", "VARIANT=debgu"], "choose from 'vanilla', 'quire', 'debug', 'kcsan', 'off'"),
    ],
)
def test_bad_input_is_answered(command: list[str], says: str) -> None:
    """A wrong word gives an error that lists the right ones, a status other than zero, and no traceback."""
    status, said = run_command(*command)
    assert status != 0 and says in said and "Traceback" not in said and "usage:" not in said
    assert [says in line for line in said.splitlines() if line.startswith("error: ")] == [True], said


def test_sources_that_are_none(tmp_path: Path) -> None:
    """A source that is no kernel is named in one line; the old base stays, and nothing is left beside it."""
    given, base = tmp_path / "given", tmp_path / "build/base"
    (given / "folder").mkdir(parents=True)
    base.mkdir(parents=True)
    (given / "broken.tar.xz").write_bytes(b"not a tarball")
    (given / "folder/Makefile").write_text("VERSION = 6\nPATCHLEVEL = 11\nSUBLEVEL = 3\n", encoding="utf-8")
    for name, content in (("other", "base.conf"), ("older", str(given / "folder/Makefile"))):
        subprocess.run(["tar", "-cf", given / f"{name}.tar", "--transform", "s,.*/,,;s,^,top/,", content], check=True,
                       cwd=core.HERE.parent, stderr=subprocess.DEVNULL)
    for name, says in ((".", "is not the source of a kernel"), ("broken.tar.xz", "cannot be unpacked"),
                       ("other.tar", "an archive, but not of the source of a kernel"), ("older.tar", "is Linux 6.11.3"),
                       ("folder", "is Linux 6.11.3")):
        with pytest.raises(tree.TreeError) as error:
            tree.unpack_base(given / name, base, "6.12", [])
        assert says in str(error.value) and str(given / name) in str(error.value) and "\n" not in str(error.value)
        assert [path.name for path in base.parent.iterdir()] == ["base"], name
    status, said = run_command(sys.executable, "-m", "guest.build", "vanilla", LINUX=str(tmp_path / "nowhere"))
    assert status == 1 and "set LINUX to the path of a 6.12.y tree or tarball" in said and "Traceback" not in said


def test_full_disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A build does not begin if the disk lacks room for it, and a build that is done already needs no room."""
    monkeypatch.setattr(paths, "BASE", tmp_path / "base")
    monkeypatch.setattr(paths, "TREE", tmp_path / "tree")
    for whole, objects in (["vanilla"], []), ([], ["vanilla"]):
        with pytest.raises(build.BuildError, match="make room"):
            build.check_space(whole, 1 << 20, objects)
    (tmp_path / "base/o-vanilla").mkdir(parents=True)
    (tmp_path / "base/o-vanilla/vmlinux").touch()
    (tmp_path / "base/o-vanilla/mm").mkdir()
    (tmp_path / "base/o-vanilla/mm/built-in.a").touch()
    build.check_space(["vanilla"], 1 << 20, ["vanilla"])


def test_no_apt(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """On a host that is not Debian, the error says so."""
    monkeypatch.setenv("PATH", "")
    assert packages.main(["--list"]) == 1
    assert "needs Debian 12 or 13" in capsys.readouterr().err


def test_guest_that_dies_is_one_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """The failure names benchmark, column and status, and ends with what the guest last said."""
    dead = boot.Result(boot.DIED, "last words", "", reason="the guest ended without a status")
    monkeypatch.setattr(runner.boot, "run", lambda *args, **options: dead)
    with pytest.raises(core.BenchError, match=r"(?s)micro, column on: status 72.*without a status.*last words"):
        runner.boot_once(core.load("micro"), "on", TINY)


@pytest.fixture(name="touching", scope="module")
def _touching(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the hugetlb benchmark's program for the host: it uses files in its working folder instead of the kernel's.

    "zero BYTE VALUE" sets a byte of two pages and checks them, "wait" waits until all pages are zeroed, and "make"
    makes a pool of four pages.
    """
    source = tmp_path_factory.mktemp("touching") / "touching.c"
    source.write_text("""
#define POOLS "."
#define PREZERO "."
#define LIMIT_S 0
#define main program
#include "hugetlb.c"
#undef main

int main(int argc, char **argv)
{
	static char mem[4 * PAGE] __attribute__((aligned(8)));

	if (argc < 2)
		return program(argc, argv);
	if (!strcmp(argv[1], "wait")) {
		wait_for_zeroed_pool();
	} else if (!strcmp(argv[1], "make")) {
		make_pool(2048, 4);
	} else {
		mem[0] = mem[2 * PAGE] = 1;
		mem[atol(argv[2])] = atol(argv[3]);
		expect_zero(mem, sizeof(mem), 2 * PAGE);
	}
	return 0;
}
""", encoding="utf-8")
    program = source.with_suffix("")
    folders = [f"-I{core.HERE / name}" for name in ("hugetlb", "lib")]
    subprocess.run(["gcc", "-O2", "-Wall", "-Wextra", "-Werror", "-Wno-unused-result", *folders, "-o", program, source],
                   check=True)
    return program


def run_touching(touching: Path, folder: Path, files: dict[str, str], *arguments: str) -> tuple[int, str]:
    """Write files into a folder, and run the program there; return its status and what it said on stderr."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    done = subprocess.run([touching, *arguments], cwd=folder, text=True, check=False, capture_output=True)
    assert not done.stdout
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    ("byte", "value", "page"),
    [(0, 1, None), (4095, 0, None), (0, 0, 0), (0, 2, 0), (1, 1, 0), (2 * 4096 - 1, 1, 0), (2 * 4096, 3, 1),
     (4 * 4096 - 1, 128, 1)],
)
def test_huge_page_that_is_not_zero(touching: Path, tmp_path: Path, byte: int, value: int, page: int | None) -> None:
    """The hugetlb benchmark fails, and names the page, if any of its bytes is not what it has to be."""
    said = run_touching(touching, tmp_path, {}, "zero", str(byte), str(value))
    assert said == ((0, "") if page is None else (1, f"huge page {page} was not zero\n"))


@pytest.mark.parametrize("free", ["3", "4", "5", None])
def test_pool_that_cannot_be_made(touching: Path, tmp_path: Path, free: str | None) -> None:
    """The hugetlb benchmark fails if the kernel makes fewer pages than it is asked for, or knows no such size."""
    files = {} if free is None else {"hugepages-2048kB/nr_hugepages": "0", "hugepages-2048kB/free_hugepages": free}
    said = run_touching(touching, tmp_path, files, "make")
    wanted = (0, "") if free == "4" else (1, f"{free} pages of 2048 kB are free, not 4\n")
    assert said == wanted if free else said == (1, "./hugepages-2048kB/nr_hugepages: No such file or directory\n")
    assert not free or (tmp_path / "hugepages-2048kB/nr_hugepages").read_text(encoding="utf-8") == "4"


@pytest.mark.parametrize(
    ("state", "zeroed", "status"),
    [("on", 4 * 512 + 2 * 262144, 0), ("on", 4 * 512, 1), ("on", 4 * 512 + 2 * 262144 + 1, 1), ("on", None, 1),
     ("off", 0, 0), ("off", None, 0), (None, None, 0)],
)
def test_pool_that_is_not_zeroed(touching: Path, tmp_path: Path, state: str | None, zeroed: int | None,
                                 status: int) -> None:
    """The hugetlb benchmark waits for all free pages of both sizes, but only where the kernel zeroes them."""
    files = {"hugepages-2048kB/free_hugepages": "4", "hugepages-1048576kB/free_hugepages": "2",
             "state": state, "stats/hugetlb_zeroed_pages": None if zeroed is None else str(zeroed)}
    given = {name: f"{text}\n" for name, text in files.items() if text is not None}
    said = run_touching(touching, tmp_path, given, "wait")
    assert said[0] == status and ("not all free huge pages" in said[1]) == bool(status and zeroed)


# These print metrics of two processes that run at the same time, which takes two CPUs.
PARALLEL = {"shm-table", "pressure"}


def run_smoke(guest: Callable[..., boot.Result], entries: list[core.Benchmark], cpus: int) -> None:
    """Run benchmarks at their smallest in one guest; each prints rows with the metrics that it shows."""
    script = "".join(f"echo '#begin {e.name}'\n(\n{runner.guest_script(e, TINY)}\n) || exit 1\n" for e in entries)
    result = guest(script, append="quire=on", memory="2G", cpus=cpus, numa=max(entry.numa for entry in entries))
    assert result.status == 0, result.output
    parts = dict(part.split("\n", 1) for part in result.output.split("#begin ")[1:])
    for entry in entries:
        run = core.parse_output(parts[entry.name])
        metrics = {m for _, row in run.rows for m in row}
        missing = (set(entry.shown) | set(entry.native)) - entry.hardware - entry.lock_events
        assert not missing - metrics, f"{entry.name} printed no {missing - metrics}"


def test_every_program_in_a_guest(guest: Callable[..., boot.Result]) -> None:
    """Each benchmark runs at its smallest, most of them on one CPU, as when instructions are counted.

    If an emulated guest shares the host's processors with another guest, its two CPUs wait for each other, which took
    twice the host's time.
    """
    entries = [entry for entry in map(core.load, core.names()) if entry.smoke]
    runner.build_programs(entries, TINY)
    run_smoke(guest, [entry for entry in entries if entry.name not in PARALLEL], 1)
    run_smoke(guest, [entry for entry in entries if entry.name in PARALLEL], 2)
