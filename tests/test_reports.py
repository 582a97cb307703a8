# SPDX-License-Identifier: GPL-2.0
"""What quirectl writes for others to read: metrics, who shares what."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

import kernel_surface
from guest import paths
from quirelib import cli
from test_settings import unit

SAMPLE = re.compile(r'([a-z][a-z0-9_]*)(?:\{((?:[a-z]+="(?:[^"\\\n]|\\[\\n"])*",?)*)\})? (-?\d+)')


@pytest.fixture(name="root")
def fixture_root(tmp_path: Path) -> Path:
    """A root with all features."""
    return kernel_surface.make(tmp_path / "root")


def run(root: Path, *words: str) -> int:
    """Run quirectl on a root, and return its exit status."""
    return cli.main(["--root", str(root), *words])


def samples(text: str) -> dict[str, list[tuple[dict[str, str], int]]]:
    """Return the samples of Prometheus' text format by metric; whatever is wrong with the text fails."""
    found: dict[str, list[tuple[dict[str, str], int]]] = {}
    types: dict[str, str] = {}
    assert text.endswith("\n")
    for line in text.splitlines():
        if line.startswith("# HELP "):
            assert re.fullmatch(r"# HELP [a-z0-9_]+ \S.*\.", line), line
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert kind in ("gauge", "counter") and name not in types, line
            assert (kind == "counter") == name.endswith("_total"), line
            types[name] = kind
        else:
            match = SAMPLE.fullmatch(line)
            assert match and match.group(1) in types, line
            labels = dict(re.findall(r'([a-z]+)="((?:[^"\\]|\\.)*)"', match.group(2) or ""))
            assert labels not in [one for one, _ in found.get(match.group(1), [])], line
            found.setdefault(match.group(1), []).append((labels, int(match.group(3))))
    assert set(found) == set(types)
    return found


def metrics(root: Path, capfd: pytest.CaptureFixture[str]) -> dict[str, list[tuple[dict[str, str], int]]]:
    """Return what `quirectl metrics` prints."""
    capfd.readouterr()
    assert run(root, "metrics") == 0
    return samples(capfd.readouterr().out)


def test_metrics_have_all_there_is(root: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Each counter and each gauge is a metric, each knob over a number and each state a sample."""
    found = metrics(root, capfd)
    for feature in kernel_surface.FEATURES:
        for number, name in enumerate(kernel_surface.counters(feature), 1):
            level = (feature, name) in {("prezero", "zeroed_pages"), ("prezero", "quarantined_pages")}
            assert found.pop(f"quire_{feature}_{name}" + ("" if level else "_total")) == [({}, number)]
    assert found.pop("quire_shm_mapped_bytes") == [({}, 5120)]
    assert found.pop("quire_shm_tables") == found.pop("quire_rmap_borrowers") == [({}, 5)]
    blocks = found.pop("quire_prezero_zeroed_blocks")
    assert len(blocks) == 22 and ({"node": "0", "zone": "Normal", "order": "9"}, 9) in blocks
    knobs = {(labels["feature"], labels["knob"]): value for labels, value in found.pop("quire_knob")}
    assert knobs == {key: one.default for key, one in kernel_surface.numbers().items()}
    assert found.pop("quire_info") == [({"version": "0.1", "kernel": "6.12.117-quire"}, 1)]
    on = {labels["feature"] for labels, value in found.pop("quire_feature_enabled") if value}
    states = {labels["feature"]: labels["state"] for labels, value in found.pop("quire_feature_state") if value}
    assert on == {"fork", "prezero"} and states["fork"] == "on" and states["rmap"] == "off" and len(states) == 5
    assert not found


def test_labels_are_escaped(root: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A release with a quotation mark does not break the format."""
    path = root / "proc/sys/kernel/osrelease"
    path.chmod(0o644)
    path.write_text('6.12"\\x\n', encoding="utf-8")
    assert metrics(root, capfd)["quire_info"][0][0]["kernel"] == '6.12\\"\\\\x'


def test_metrics_in_a_file(root: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """It has the same, others may read it, and nothing is left beside it."""
    assert run(root, "metrics", "--output", str(root / "quire.prom")) == 0
    assert capfd.readouterr().out == ""
    text = (root / "quire.prom").read_text(encoding="utf-8")
    assert run(root, "metrics") == 0 and capfd.readouterr().out == text
    assert (root / "quire.prom").stat().st_mode & 0o777 == 0o644
    assert sorted(os.listdir(root)) == ["proc", "quire.prom", "sys"]


def test_units_of_metrics() -> None:
    """The timer starts the service, which writes where Debian's node exporter reads, if that is there."""
    service, timer = (unit(paths.REPO / "tool/systemd" / f"quire-metrics.{kind}") for kind in ("service", "timer"))
    program, *words = service["Service"]["ExecStart"].split()
    args = cli.parser().parse_args(words)
    assert program == "/usr/sbin/quirectl" and args.command == "metrics" and args.output.suffix == ".prom"
    assert service["Unit"]["ConditionPathIsDirectory"] == str(args.output.parent)
    assert service["Service"]["ReadWritePaths"] == f"-{args.output.parent}"
    assert timer["Install"]["WantedBy"] == "timers.target" and "Unit" not in timer["Timer"]


def processes(root: Path) -> None:
    """Make three processes: two share, the third has nothing."""
    told = "fork_policy: default\nfork_shared_tables: {}\nfork_shared_kb: {}\nfork_charged_tables: {}\n" \
           "shm_shared_tables: 0\nshm_shared_kb: {}\nrmap_areas: 9\nrmap_borrowed: {}\n"
    for pid, numbers in ((11, (1, 2048, 1, 0, 3)), (12, (2, 4096, 0, 8192, 0)), (13, (0, 0, 0, 0, 0))):
        (root / f"proc/{pid}").mkdir()
        (root / f"proc/{pid}/comm").write_text(f"server{pid}\n", encoding="utf-8")
        (root / f"proc/{pid}/quire").write_text(told.format(*numbers), encoding="utf-8")


def test_top(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Those that share are listed, the most first by the key; once where there is no terminal."""
    processes(root)
    assert run(root, "top") == 0
    head, names, *rows = capsys.readouterr().out.splitlines()
    assert head.startswith("2 processes share") and head.endswith(" 1") and names.split()[:2] == ["PID", "NAME"]
    assert [row.split() for row in rows] == [["12", "server12", "4096", "8192", "0", "0"],
                                             ["11", "server11", "2048", "0", "1", "3"]]
    assert run(root, "top", "--sort", "borrowed", "--lines", "1", "--json") == 0
    assert [one["pid"] for one in json.loads(capsys.readouterr().out)] == [11]


def test_top_again(root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """It is printed as often as is asked for, with the pauses in between."""
    processes(root)
    pauses: list[float] = []
    monkeypatch.setattr("time.sleep", pauses.append)
    assert run(root, "top", "--count", "3", "--interval", "5") == 0
    assert capsys.readouterr().out.count("processes share") == 3 and pauses == [5.0, 5.0]


def test_only_what_is_not_zero(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--nonzero leaves out counters at 0, as a table and as JSON; `stat` is the same command."""
    folder = root / "sys/kernel/mm/quire/fork/stats"
    for path in folder.iterdir():
        path.chmod(0o644)
        path.write_text(f"{int(path.name == 'tables_shared')}\n", encoding="utf-8")
    assert run(root, "stat", "fork", "--nonzero") == 0
    assert [line.split() for line in capsys.readouterr().out.splitlines()[1:]] == [["fork", "tables_shared", "1"]]
    assert run(root, "stats", "fork", "--nonzero", "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"fork": {"tables_shared": 1}}
    (folder / "tables_shared").write_text("0\n", encoding="utf-8")
    assert run(root, "stats", "fork", "--nonzero") == 0 and capsys.readouterr().out == "all counters are 0\n"
