# SPDX-License-Identifier: GPL-2.0
"""The dashboard, the alert rules and the bpftrace scripts name only what exists."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

import kernel_surface
from guest import paths
from quirelib import cli
from test_reports import samples

MONITORING = paths.REPO / "tool/monitoring"
RULES = MONITORING / "quire-alerts.yml"
SCRIPTS = sorted((paths.REPO / "tool/bpftrace").glob("*.bt"))
EVENTS = paths.OVERLAY / "include/trace/events"
# A metric of the node exporter, and the labels that Prometheus and the dashboard add to what is scraped.
FOREIGN = {"node_textfile_mtime_seconds": {"file"}}
ADDED = {"instance", "job"}
WORDS = {"rate", "increase", "sum", "time", "by", "and", "or", "on", "unless", "label_values", "le"}
EVENT = re.compile(r"tracepoint:quire:(\w+)(?:\n/[^/]*/)?\n\{(.*?)\n\}", re.S)
# The sizes of the types of fields in the trace headers.
SIZES = {"unsigned int": 4, "int": 4, "dev_t": 4, "pid_t": 4}


@pytest.fixture(scope="module", name="metrics")
def fixture_metrics(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """The metrics that quirectl prints for a kernel with all features, each with its labels."""
    folder = tmp_path_factory.mktemp("metrics")
    root = kernel_surface.make(folder / "root")
    assert cli.main(["--root", str(root), "metrics", "--output", str(folder / "metrics")]) == 0
    found = samples((folder / "metrics").read_text(encoding="utf-8"))
    return {name: {label for labels, _ in values for label in labels} for name, values in found.items()} | FOREIGN


def rules() -> list[dict[str, Any]]:
    """Return the alert rules."""
    group, = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    found: list[dict[str, Any]] = group["rules"]
    return found


def panels() -> list[dict[str, Any]]:
    """Return the dashboard's panels that show something."""
    board = json.loads((MONITORING / "quire-dashboard.json").read_text(encoding="utf-8"))
    return [panel for panel in board["panels"] if panel["type"] != "row"]


def check(expression: str, metrics: dict[str, set[str]]) -> None:
    """Assert that an expression's metrics, and the labels in its selectors, exist, and that its brackets match."""
    assert all(expression.count(a) == expression.count(b) for a, b in ("()", "[]", "{}")), expression
    plain = re.sub(r'"[^"]*"|\[[^]]*\]', "", expression)
    plain = re.sub(r"\b(by|on) \([^)]*\)", "", plain)
    selectors = re.findall(r"\b([a-z_][a-z0-9_]*)\b(?!\s*\()(?:\{([^}]*)\})?", plain)
    named = {name for name, _ in selectors} - WORDS
    named -= {label for _, inner in selectors for label in re.findall(r"(\w+)\s*=", inner)}
    assert named and named <= set(metrics), (expression, named - set(metrics))
    for name, inner in selectors:
        labels = set(re.findall(r"(\w+)\s*=", inner))
        assert not labels or labels <= metrics[name] | ADDED, (expression, name, labels)


def test_alerts(metrics: dict[str, set[str]]) -> None:
    """Each alert has a unique name, an expression of metrics that exist, a severity, and a description."""
    assert len({rule["alert"] for rule in rules()}) == len(rules()) >= 5
    for rule in rules():
        check(rule["expr"], metrics)
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
        said = rule["annotations"]
        assert said["summary"].startswith("{{ $labels.instance }}: ") and said["description"]


def test_alerts_by_prometheus() -> None:
    """If Prometheus' own tool is installed, it accepts the rules."""
    if not shutil.which("promtool"):
        pytest.skip("no promtool")
    done = subprocess.run(["promtool", "check", "rules", str(RULES)], text=True, check=False, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT)
    assert done.returncode == 0, done.stdout


def test_dashboard(metrics: dict[str, set[str]]) -> None:
    """Each panel has its own place and number, and expressions of metrics that exist."""
    board = json.loads((MONITORING / "quire-dashboard.json").read_text(encoding="utf-8"))
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    cells: list[tuple[int, int]] = []
    for panel in board["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells += [(x, y) for x in range(place["x"], place["x"] + place["w"]) for y in range(place["y"],
                                                                                         place["y"] + place["h"])]
    assert len(set(cells)) == len(cells)
    for panel in panels():
        assert panel["title"] and panel["targets"]
        for target in panel["targets"]:
            check(target["expr"], metrics)
    features = {target["expr"].split("quire_")[1].split("_")[0] for panel in panels() for target in panel["targets"]}
    assert set(kernel_surface.FEATURES) <= features


def test_what_check_finds(metrics: dict[str, set[str]]) -> None:
    """check() finds a wrong metric, a wrong label and a missing bracket."""
    good = 'sum by (order) (rate(quire_prezero_zeroed_blocks{zone="DMA",instance=~"$i"}[5m])) > 0.5'
    check(good, metrics)
    for old, new in (("zeroed_blocks", "zeroed_block"), ("zone=", "zones="), ("))", ")")):
        with pytest.raises(AssertionError):
            check(good.replace(old, new), metrics)


@cache
def events() -> dict[str, list[tuple[str, str]]]:
    """Return the tracepoints of quire in the kernel's headers, each with the types and names of its fields."""
    text = "\n".join(path.read_text(encoding="utf-8") for path in sorted(EVENTS.glob("quire_*.h")))
    fields = {name: [("string", inner.split(",")[0]) if kind == "string" else
                     (inner.rsplit(",", 1)[0].strip(), inner.rsplit(",", 1)[1].strip())
                     for kind, inner in re.findall(r"__(field|string)\(([^)]*)\)", body)]
              for name, body in re.findall(r"(?:DECLARE_EVENT_CLASS|TRACE_EVENT)\((\w+),(.*?)\n\);", text, re.S)}
    found = {name: fields[name] for name in re.findall(r"\bTRACE_EVENT\((\w+),", text)}
    return found | {name: fields[kind] for kind, name in re.findall(r"DEFINE_EVENT\((\w+), (\w+),", text)}


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_scripts_name_tracepoints(path: Path) -> None:
    """Each tracepoint and each of its fields that a script names is in the kernel's headers."""
    text = path.read_text(encoding="utf-8")
    found = list(EVENT.finditer(text))
    assert path.stat().st_mode & 0o111 and len(found) == text.count("tracepoint:") > 0
    for match in found:
        name = match.group(1)
        assert name in events(), name
        used = set(re.findall(r"args->(\w+)", match.group(0)))
        assert used <= {field for _, field in events()[name]}, (name, used)


def test_scripts_for_each_of_these() -> None:
    """There is a script for breaks, adoptions, joins, collapses and scrubbing."""
    events = ("adopt", "break", "collapse", "join", "scrub")
    assert [path.stem for path in SCRIPTS] == [f"quire-{event}" for event in events]


def formats() -> Iterator[tuple[str, str]]:
    """Yield each tracepoint with its format as tracefs shows it."""
    common = ("unsigned short common_type", 0, 2), ("unsigned char common_flags", 2, 1), \
        ("unsigned char common_preempt_count", 3, 1), ("int common_pid", 4, 4)
    for name, fields in events().items():
        lines, offset = [*common], 8
        for kind, field in fields:
            size = 4 if kind == "string" else SIZES.get(kind, 8)
            offset = -(-offset // size) * size
            lines.append((f"__data_loc char[] {field}" if kind == "string" else f"{kind} {field}", offset, size))
            offset += size
        told = "".join(f"\tfield:{what};\toffset:{at};\tsize:{size};\tsigned:0;\n" for what, at, size in lines)
        yield name, f'name: {name}\nID: 1\nformat:\n{told}\nprint fmt: ""\n'


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_scripts_compile(path: Path, tmp_path: Path) -> None:
    """bpftrace compiles each script, if it is installed and a fake tracefs with our tracepoints can be mounted."""
    target = Path("/sys/kernel/tracing")
    alone = ["unshare", "--mount"]
    told = shutil.which("bpftrace") and subprocess.run(["bpftrace", "--help"], text=True, check=False,
                                                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT).stdout
    # In later versions the option means something else, and needs a running kernel.
    if not told or not re.search(r"^ +-d +\(dry run\)", told, re.M) or not target.is_dir() or subprocess.run(
            [*alone, "mount", "-t", "tmpfs", "none", str(target)], check=False, stderr=subprocess.DEVNULL).returncode:
        pytest.skip("no bpftrace, or no mount namespace for it")
    for name, text in formats():
        (tmp_path / "events/quire" / name).mkdir(parents=True)
        (tmp_path / "events/quire" / name / "format").write_text(text, encoding="utf-8")
    (tmp_path / "available_events").write_text("".join(f"quire:{name}\n" for name in events()), encoding="utf-8")
    (tmp_path / "types.h").write_text("typedef unsigned int dev_t;\ntypedef unsigned long pgoff_t;\n", encoding="utf-8")
    script = f"mount --bind {tmp_path} {target}; exec bpftrace --include {tmp_path}/types.h -d {path}"
    done = subprocess.run([*alone, "sh", "-c", script], text=True, check=False, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT)
    missing = [name for name, _ in EVENT.findall(path.read_text(encoding="utf-8"))
               if not re.search(rf'^define i64 @"?tracepoint:quire:{name}', done.stdout, re.M)]
    assert done.returncode == 0 and not missing, "\n".join([*missing, done.stdout[-2000:]])
