# SPDX-License-Identifier: GPL-2.0
"""What a benchmark is, how its output is read, and how several runs are combined into one result.

A benchmark is a folder with a bench.py that defines BENCHMARK, and the programs that it runs in the guest. They print
lines "@KEY=VALUE ... | METRIC=NUMBER ..."; the guest script adds "#uname", "#state" and "#stat" lines. Nothing in this
module uses a guest or a clock.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import re
import statistics
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
COLUMNS = ("vanilla", "off", "on")
FEATURES = ("fork", "shm", "prezero", "text", "rmap")
MET, MISSED, UNMEASURABLE = "met", "missed", "not measurable here"


@dataclasses.dataclass(frozen=True)
class Column:
    """A kernel to measure: variant and boot options. None stands for the options that enable a benchmark's features."""

    name: str
    variant: str
    boot: str | None = ""


STANDARD = {
    "vanilla": Column("vanilla", "vanilla"),
    "off": Column("off", "quire"),
    "on": Column("on", "quire", None),
}


@dataclasses.dataclass(frozen=True)
class Aim:
    """The bound that a number should reach.

    The aim is judged by the rows of `column` whose keys match `where` (a tuple lists alternatives); the worst row
    counts. `how` says how a row is scored. "value" takes the metric itself. The others compare it with the same row (or
    the row `other`) of the column `against`: "ratio" divides by that value, "times" is how many times smaller the
    metric is, and "less" is how much smaller. The score must be at most `limit`; with "times", "less" or more_is_better
    it must be at least `limit`. The host disturbs the clock: tolerance() says which rows count there.
    """

    text: str
    metric: str
    where: Mapping[str, str | tuple[str, ...]]
    limit: float
    how: str = "ratio"
    column: str = "on"
    against: str = "vanilla"
    other: dict[str, str] | None = None
    clock: str = "icount"
    more_is_better: bool = False
    headline: bool = False

    @property
    def at_least(self) -> bool:
        """Say whether larger scores are better."""
        return self.more_is_better or self.how in ("times", "less")


@dataclasses.dataclass(frozen=True)
class Figure:
    """A figure published by the earlier work that a benchmark responds to: before and after, in a unit."""

    source: str
    what: str
    before: float
    after: float
    unit: str


@dataclasses.dataclass(frozen=True)
class Options:
    """How to run a benchmark: by which clock, at what size, and on which kernels.

    With jump, instructions are counted on kernels with jump labels. With packages, the kernels are those that are
    installed on a Debian machine: Debian's and ours.
    cpus is the number of CPUs of a guest that is measured by the clock; a guest in which instructions are counted has
    one.
    """

    icount: bool = False
    jump: bool = False
    packages: bool = False
    quick: bool = False
    tiny: bool = False
    cpus: int = 2

    @property
    def guest_cpus(self) -> int:
        """Return how many CPUs the guest has."""
        return 1 if self.icount else self.cpus

    def pick(self, full: int, quick: int, tiny: int) -> int:
        """Return the size for this run."""
        return tiny if self.tiny else quick if self.quick else full


@dataclasses.dataclass(frozen=True)
class Benchmark:
    """One benchmark.

    script returns the shell lines that run in the guest, in a separate folder that holds the programs.
    features are switched on in the column "on". shown are the metrics that get a table. Of these, larger values are
    better for those in more_is_better, those in by_clock mean nothing when instructions are counted, an emulated CPU
    does not count those in hardware, and only kernels with lockdep have those in lock_events. native names the metrics
    that are printed together in one row, in the form of the earlier work that the benchmark responds to.
    one_event names metrics of a single event, the slowest of many. An interrupt may decide them, so off is not judged
    by them.
    knobs are written if their feature is on: "fork/mixed=1" is a file and a value under sysfs.
    boot is added to the boot options of every column, and emulated_boot if the guest is emulated.
    numa is the number of NUMA nodes of the guest.
    least takes the smallest value of several boots instead of the median, because disturbances only add to the value.
    """

    name: str
    title: str
    features: tuple[str, ...]
    programs: tuple[str, ...] | Callable[[Options], tuple[str, ...]]
    script: Callable[[Options], str]
    shown: tuple[str, ...]
    more_is_better: frozenset[str] = frozenset()
    by_clock: frozenset[str] = frozenset()
    hardware: frozenset[str] = frozenset()
    lock_events: frozenset[str] = frozenset()
    one_event: frozenset[str] = frozenset()
    least: bool = False
    native: tuple[str, ...] = ()
    memory: str = "4G"
    numa: int = 1
    timeout: int = 1800
    note: str = ""
    icount_note: str = ""
    boots: tuple[tuple[str, int], ...] = (("icount", 1),)  # for the published results: clocks, and boots of each column
    smoke: bool = True  # short enough at its smallest size for the tests to run it
    aims: tuple[Aim, ...] = ()
    figures: tuple[Figure, ...] = ()
    knobs: tuple[str, ...] = ()
    boot: str = ""
    emulated_boot: str = ""
    main: tuple[dict[str, str], str] | None = None  # some keys of the row, and the metric, for the summary


class BenchError(Exception):
    """A benchmark cannot run, or its output cannot be read; the message says why."""


@dataclasses.dataclass
class Run:
    """What one boot printed."""

    rows: list[tuple[dict[str, str], dict[str, float]]]
    uname: str = ""
    states: dict[str, str] = dataclasses.field(default_factory=dict)
    stats: dict[str, int] = dataclasses.field(default_factory=dict)
    restarts: int = 0  # how many times the guest was started again because of its host


def names() -> list[str]:
    """Return the names of all benchmarks, the machine probe first."""
    found = sorted(p.parent.name for p in HERE.glob("*/bench.py"))
    return sorted(found, key=lambda name: name != "machine")


def load(name: str) -> Benchmark:
    """Return the benchmark of that name."""
    path = HERE / name / "bench.py"
    if not path.is_file():
        raise BenchError(f"no benchmark {name!r}; there are: {', '.join(names())}")
    if str(HERE.parent) not in sys.path:
        sys.path.insert(0, str(HERE.parent))
    spec = importlib.util.spec_from_file_location(f"bench_{name.replace('-', '_')}", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    benchmark: Benchmark = module.BENCHMARK
    return benchmark


def parse_pairs(text: str) -> dict[str, str]:
    """Return the KEY=VALUE words of a text as a dictionary, in order."""
    pairs = {}
    for word in text.split():
        key, sep, value = word.partition("=")
        if not sep or not key:
            raise BenchError(f"not KEY=VALUE: {word!r}")
        pairs[key] = value
    return pairs


def parse_row(line: str) -> tuple[dict[str, str], dict[str, float]]:
    """Return the keys and the metrics of one '@' line."""
    keys, bar, metrics = line[1:].partition("|")
    if not bar:
        raise BenchError(f"the result line {line!r} has no bar between keys and metrics")
    try:
        return parse_pairs(keys), {k: float(v) for k, v in parse_pairs(metrics).items()}
    except ValueError as error:
        raise BenchError(f"a metric in {line!r} is not a number") from error


def parse_output(text: str) -> Run:
    """Return what a boot printed; lines of other forms are ignored."""
    run = Run([])
    for line in text.splitlines():
        line = line.strip()
        if line.startswith("@"):
            run.rows.append(parse_row(line))
        elif line.startswith("#uname "):
            run.uname = line.split(None, 1)[1]
        elif line.startswith("#state "):
            _, name, state = line.split(None, 2)
            run.states[name] = state
        elif line.startswith("#stat "):
            _, name, value = line.split(None, 2)
            run.stats[name] = int(value)
    return run


def combine(runs: Sequence[Run], least: bool = False) -> dict:
    """Return one column: for each row and metric the median (or least) of the runs, and the runs themselves."""
    rows: dict[tuple, dict] = {}
    for run in runs:
        for keys, metrics in run.rows:
            row = rows.setdefault(tuple(keys.items()), {"keys": keys, "metrics": {}})
            for name, value in metrics.items():
                row["metrics"].setdefault(name, {"runs": []})["runs"].append(value)
    for row in rows.values():
        for metric in row["metrics"].values():
            metric["median"] = min(metric["runs"]) if least else statistics.median(metric["runs"])
    return {
        "uname": runs[-1].uname if runs else "",
        "states": runs[-1].states if runs else {},
        "stats": runs[-1].stats if runs else {},
        "rows": list(rows.values()),
    }


def column_of(spec: str) -> Column:
    """Return the column that a word of the command line names: a standard one, or LABEL=VARIANT[:BOOT OPTIONS]."""
    if spec in STANDARD:
        return STANDARD[spec]
    match = re.fullmatch(r"([\w.+-]+)=([\w-]+)(?::(.*))?", spec)
    if not match or match.group(1) in STANDARD:
        raise BenchError(f"no column {spec!r}: use {', '.join(COLUMNS)} or LABEL=VARIANT[:BOOT OPTIONS]")
    return Column(match.group(1), match.group(2), match.group(3) or "")


def find(results: Iterable[dict], name: str, clock: str) -> dict | None:
    """Return the result of a benchmark by a clock."""
    return next((r for r in results if (r["name"], r["clock"]) == (name, clock)), None)


def columns_of(result: dict) -> list[str]:
    """Return the names of a result's columns, the standard ones first."""
    return sorted(result["columns"], key=lambda name: (COLUMNS.index(name) if name in COLUMNS else len(COLUMNS)))


def value_of(column: dict | None, keys: dict[str, str], metric: str) -> float | None:
    """Return the median of a row's metric in a column, or None."""
    for row in (column or {}).get("rows", ()):
        if row["keys"] == keys and metric in row["metrics"]:
            median: float = row["metrics"][metric]["median"]
            return median
    return None


def summary(result: dict) -> tuple[str, dict[str, float | None]] | None:
    """Return the name and each column's value of the row and metric that represent the benchmark."""
    if not result["main"]:
        return None
    keys, metric = result["main"]
    for label in labels_in_order(result["columns"].values()):
        if all(label.get(k) == v for k, v in keys.items()):
            values = {name: value_of(column, label, metric) for name, column in result["columns"].items()}
            return f"{' '.join(label.values())}: {metric}", values
    return None


def ratio(value: float | None, base: float | None) -> float | None:
    """Return value / base, or None if that has no meaning."""
    if value is None or base is None or base <= 0 or value < 0:
        return None
    return value / base


def _fits(label: dict[str, str], where: Mapping[str, str | tuple[str, ...]]) -> bool:
    return all(label.get(k) in (v if isinstance(v, tuple) else (v,)) for k, v in where.items())


def _row_value(column: dict | None, where: Mapping[str, str | tuple[str, ...]], metric: str) -> float | None:
    for row in (column or {}).get("rows", ()):
        if _fits(row["keys"], where) and metric in row["metrics"]:
            median: float = row["metrics"][metric]["median"]
            return median
    return None


@dataclasses.dataclass(frozen=True)
class Finding:
    """How a result scores for an aim: the score, and the value and base that it was computed from."""

    score: float
    value: float
    base: float | None


def _score(aim: Aim, value: float, base: float | None) -> float | None:
    if aim.how == "value":
        return value
    if base is None or (aim.how == "ratio" and not base):
        return None
    return {"less": base - value, "times": base / max(value, 1.0), "ratio": value / (base or 1)}[aim.how]


def _findings(aim: Aim, result: dict | None, column: str) -> dict[tuple, Finding]:
    """Return the finding for each row of a column, by the row's keys."""
    columns = result["columns"] if result else {}
    against = columns.get(aim.against)
    found = {}
    for row in columns.get(column, {}).get("rows", ()):
        if not _fits(row["keys"], aim.where) or aim.metric not in row["metrics"]:
            continue
        value = row["metrics"][aim.metric]["median"]
        base = _row_value(against, {**row["keys"], **(aim.other or {})}, aim.metric)
        if aim.other and base is None:
            base = _row_value(against, {**aim.where, **aim.other}, aim.metric)
        score = _score(aim, value, base)
        if score is not None:
            found[tuple(row["keys"].items())] = Finding(score, value, base)
    return found


def tolerance(aim: Aim) -> float | None:
    """Return the factor by which off may differ from vanilla in a row that counts for an aim by the clock.

    It is the factor that the aim allows or asks for, and at least 1.01: boots of one kernel differ by a percent. None
    means that all rows count.
    """
    if (aim.clock, aim.column) != ("time", "on") or aim.how not in ("ratio", "times"):
        return None
    return max(aim.limit, 1 / aim.limit, 1.01)


def passed_over(aim: Aim, result: dict | None) -> set[tuple]:
    """Return the keys of the rows that do not count for an aim: off differs too much there, or was not measured."""
    allowed = tolerance(aim)
    if not result or allowed is None:
        return set()
    off, vanilla = (result["columns"].get(name) for name in ("off", "vanilla"))
    found = set()
    for keys in _findings(aim, result, aim.column):
        drift = ratio(value_of(off, dict(keys), aim.metric), value_of(vanilla, dict(keys), aim.metric))
        if not drift or max(drift, 1 / drift) > allowed:
            found.add(keys)
    return found


@dataclasses.dataclass(frozen=True)
class Decision:
    """The row that decides an aim: its keys and finding, and how many rows do not count; `counts` if this one does."""

    keys: tuple
    found: Finding
    left_out: int
    counts: bool


def decide(aim: Aim, result: dict | None) -> Decision | None:
    """Return the worst of an aim's rows that count, or, if none does, of all; None if it was not measured."""
    rows, left_out = _findings(aim, result, aim.column), passed_over(aim, result)
    counting = {keys: found for keys, found in rows.items() if keys not in left_out}
    pick = min if aim.at_least else max
    worst = pick((counting or rows).items(), key=lambda one: one[1].score, default=None)
    return Decision(*worst, len(left_out), bool(counting)) if worst else None


def achieved(aim: Aim, result: dict | None) -> Finding | None:
    """Return a result's finding for an aim, from the worst of its rows; None if it was not measured."""
    decision = decide(aim, result)
    return decision.found if decision else None


def row_off(aim: Aim, result: dict | None, keys: tuple) -> Finding | None:
    """Return what a row of an aim scores with the features off; None if it was not measured."""
    return _findings(aim, result, "off").get(keys)


def met(aim: Aim, found: Finding | None) -> bool | None:
    """Say whether a finding reaches an aim; None if there is none."""
    if found is None:
        return None
    return found.score >= aim.limit if aim.at_least else found.score <= aim.limit


def judge(aim: Aim, result: dict | None) -> str | None:
    """Return MET, MISSED or UNMEASURABLE; None if the aim was not measured.

    By the clock, an aim cannot be judged without a row in which off is near vanilla. An aim that asks for no gain is
    not called met where off misses it.
    """
    decision = decide(aim, result)
    if not decision:
        return None
    if not decision.counts:
        return UNMEASURABLE
    if not met(aim, decision.found):
        return MISSED
    no_gain = aim.limit <= 1 if aim.at_least else aim.limit >= 1
    off = row_off(aim, result, decision.keys)
    return UNMEASURABLE if tolerance(aim) and no_gain and off and not met(aim, off) else MET


def losses(result: dict) -> list[tuple[str, float, float]]:
    """Return each row's name, off/vanilla, and the loss, which is above 1 if off is worse, whichever way is better."""
    found = []
    columns = result["columns"]
    for label in labels_in_order(columns.values()):
        for metric in (m for m in result["shown"] if m not in result.get("one_event", [])):
            change = ratio(value_of(columns.get("off"), label, metric), value_of(columns.get("vanilla"), label, metric))
            if change is None:
                continue
            loss = 1 / change if metric in result["more_is_better"] and change > 0 else change
            found.append((f"{' '.join(label.values())}: {metric}", change, loss))
    return found


def worst_off(result: dict) -> tuple[str, float] | None:
    """Return the row in which the column "off" is worst against vanilla, and how much worse."""
    found = max(losses(result), key=lambda entry: entry[2], default=None)
    return (found[0], found[2]) if found else None


def worse_off(result: dict, percent: float) -> list[str]:
    """Return the rows in which the column "off" is worse than vanilla by more than `percent`."""
    return [
        f"{result['name']} {row} off/vanilla {change:.3f}"
        for row, change, loss in losses(result)
        if (loss - 1) * 100 > percent
    ]


def not_on(result: dict) -> list[str]:
    """Return the features that the column "on" asked for but that were not on."""
    column = result["columns"].get("on")
    if not column:
        return []
    return [f for f in result["features"] if column["states"].get(f) != "on"]


def labels_in_order(columns: Iterable[dict]) -> list[dict[str, str]]:
    """Return the keys of all rows of all columns, each once, in order of appearance."""
    seen: dict[tuple, dict[str, str]] = {}
    for column in columns:
        for row in column["rows"]:
            seen.setdefault(tuple(row["keys"].items()), row["keys"])
    return list(seen.values())
