# SPDX-License-Identifier: GPL-2.0
"""The benchmarks' own logic, and one guest in which every program runs once at its smallest."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from bench import core, demonstration, reporting, runner, table
from guest import boot

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
    """Rows, states and counters are read; other lines are passed over."""
    run = core.parse_output(
        "noise @x=1\n#uname 6.12.117-quire\n#state fork on\n#stat fork/shared 12\n"
        "@mode=burst page=2M | flt/cpu/s=12.5 Wall=3\n"
    )
    assert run.uname == "6.12.117-quire" and run.states == {"fork": "on"} and run.stats == {"fork/shared": 12}
    assert run.rows == [({"mode": "burst", "page": "2M"}, {"flt/cpu/s": 12.5, "Wall": 3.0})]


@pytest.mark.parametrize("line", ["@a=1 b=2", "@a=1 | ns", "@a=1 | ns=fast"])
def test_bad_rows_are_errors(line: str) -> None:
    """A result line that cannot be read is not passed over."""
    with pytest.raises(core.BenchError):
        core.parse_output(line)


def test_combine_takes_the_median(result: dict) -> None:
    """One slow boot of three does not move the value; the runs are kept."""
    assert core.value_of(result["columns"]["vanilla"], {"op": "a"}, "ns") == 100
    assert result["columns"]["vanilla"]["rows"][0]["metrics"]["ns"]["runs"] == [100, 90, 400]
    assert core.value_of(result["columns"]["vanilla"], {"op": "c"}, "ns") is None


@pytest.mark.parametrize(
    ("value", "base", "expected"), [(50, 100, 0.5), (0, 100, 0), (5, 0, None), (None, 1, None), (5, None, None)]
)
def test_ratio(value: float | None, base: float | None, expected: float | None) -> None:
    """There is no ratio to nothing."""
    assert core.ratio(value, base) == expected


def test_table(result: dict) -> None:
    """Three columns, and the ratios to vanilla."""
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


def test_conditions_are_printed(result: dict) -> None:
    """A number comes with its base, clock, guest and number of runs."""
    text = table.text_of(result)
    for part in ("base 6.12.117", "instructions", "TCG", "guest 4G and 1 cpu(s)", "median of 3 boot(s)", "quire=fork"):
        assert part in text


def test_a_feature_that_was_not_on_is_pointed_out(result: dict) -> None:
    """The column "on" is not believed."""
    assert core.not_on(result) == [] and "NOTE" not in table.text_of(result)
    result["columns"]["on"]["states"]["fork"] = "disabled_by_warning"
    assert core.not_on(result) == ["fork"] and "NOTE: the feature fork was not on" in table.text_of(result)


def test_gate(result: dict) -> None:
    """Off may cost so many percent; where more is better, a loss is the other way round."""
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
    """About four digits that count."""
    assert table.number(value) == text


def test_columns_and_boot_options() -> None:
    """Off is the quire kernel with no option; on has the features that the benchmark names."""
    fork = core.load("fork-table")
    assert [runner.kernel_of(c) for c in core.COLUMNS] == ["vanilla", "quire", "quire"]
    assert [runner.append_of(c, fork) for c in core.COLUMNS] == ["", "", "quire=fork,rmap"]


def test_every_benchmark_loads() -> None:
    """Each folder's entry is complete, its programs are built by the Makefile, its features exist."""
    makefile = (core.HERE / "Makefile").read_text(encoding="utf-8")
    for name in core.names():
        entry = core.load(name)
        assert entry.name == name and entry.title and set(entry.features) <= set(core.FEATURES)
        assert entry.more_is_better <= set(entry.shown)
        for program in entry.programs:
            assert program.replace("{mb}", "") in makefile
    assert set(demonstration.FIVE) <= set(core.names())
    assert {f for name in demonstration.FIVE for f in core.load(name).features} == set(core.FEATURES)


def test_unknown_benchmark() -> None:
    """A wrong name is answered with the right ones."""
    with pytest.raises(core.BenchError, match="there are: machine, after-fork"):
        core.load("frok-table")


def test_missing_kernel_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The error says which make verb builds it."""
    monkeypatch.setattr(runner, "REPO", tmp_path)
    with pytest.raises(core.BenchError, match="make kernel VARIANT=vanilla"):
        runner.check_kernels(["vanilla"])


def test_json_and_report(result: dict, tmp_path: Path) -> None:
    """What is saved is read back the same, and the report has a plot and a summary of it."""
    probe = a_column({"x": [5]})
    path = runner.save(result, probe, tmp_path / "micro.json")
    results, machine = reporting.read([path])
    assert machine == probe and results[0]["columns"] == json.loads(json.dumps(result["columns"]))
    text = reporting.write(results, machine, tmp_path / "report.html").read_text(encoding="utf-8")
    assert "data:image/png;base64," in text and "on/vanilla 0.250" in text and "median of 3 boot(s)" in text


def test_measure_alternates_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drift of the machine meets all columns alike; a failing benchmark does not stop the others."""
    order = []

    def boot_once(benchmark: core.Benchmark, column: str, _options: core.Options) -> core.Run:
        order.append(column)
        if benchmark.name == "micro":
            raise core.BenchError("micro failed")
        return core.Run([({"op": "a"}, {"ns": 1.0})])

    monkeypatch.setattr(runner, "boot_once", boot_once)
    monkeypatch.setattr(runner, "check_kernels", lambda columns: None)
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


def test_every_program_in_a_guest(guest: Callable[..., boot.Result]) -> None:
    """Each benchmark runs at its smallest in one guest, and prints rows with the metrics it shows."""
    entries = [core.load(name) for name in core.names()]
    runner.build_programs(entries, TINY)
    script = "".join(f"echo '#begin {e.name}'\n(\n{runner.guest_script(e, TINY)}\n) || exit 1\n" for e in entries)
    result = guest(script, append="quire=on", memory="2G")
    assert result.status == 0, result.output
    parts = dict(part.split("\n", 1) for part in result.output.split("#begin ")[1:])
    for entry in entries:
        run = core.parse_output(parts[entry.name])
        metrics = {m for _, row in run.rows for m in row}
        missing = set(entry.shown) | set(entry.native)
        assert not missing - metrics, f"{entry.name} printed no {missing - metrics}"
