# SPDX-License-Identifier: GPL-2.0
"""What quirectl reports: metrics, bug reports, and who shares what."""

from __future__ import annotations

import io
import json
import os
import re
import tarfile
from pathlib import Path

import pytest

import kernel_surface
from guest import paths
from quirelib import cli, report
from test_settings import unit

SAMPLE = re.compile(r'([a-z][a-z0-9_]*)(?:\{((?:[a-z]+="(?:[^"\\\n]|\\[\\n"])*",?)*)\})? (-?\d+)')
CMDLINE = ("BOOT_IMAGE=/boot/vmlinuz root=UUID=7d8f ro luks.key=hunter2 quire=fork hugepagesz=2M mem=4G rd.x=pass "
           "secretword -- --password=hunter3")
LOG = """\
[    0.000000] Linux version 6.12.117-quire
[    0.000000] Command line: root=UUID=7d8f quire=on luks.key=hunter2
[    1.000000] quire: prezero: engine dma: channel dma0chan0 edu, 4096 bytes at once
[    2.000000] usb 1-1: SerialNumber: 0123quire
[    3.000000] ------------[ cut here ]------------
[    3.000000] WARNING: CPU: 0 PID: 9 at mm/other.c:1 other+0x1/0x2
[    3.000000] ---[ end trace 0000000000000000 ]---
[    4.000000] ------------[ cut here ]------------
[    4.000001] quire: fork: 3 pages too many
[    4.000002] WARNING: CPU: 0 PID: 42 at mm/quire/fork/fork.c:9 broken+0x1/0x2
[    4.000003] CPU: 0 UID: 0 PID: 42 Comm: redis-server Not tainted 6.12.117-quire
[    4.000004] RIP: 0010:broken+0x1/0x2
[    4.000005] Code: 70 61 73 73 77 6f 72 64
[    4.000006] RSP: 0018:ffffc9 EFLAGS: 00010246
[    4.000007] RAX: 6472307773736170 RBX: 0000000000000000 RCX: 0000000000000000
[    4.000008]  do_syscall_64+0x1/0x2
[    4.000009] ---[ end trace 0000000000000000 ]---
[    5.000000] audit: user hunter5 reads quire.conf
"""


@pytest.fixture(name="root")
def fixture_root(tmp_path: Path) -> Path:
    """A root with all features, and the files in /proc that a report includes."""
    root = kernel_surface.make(tmp_path / "root")
    (root / "proc/cmdline").chmod(0o644)
    (root / "proc/cmdline").write_text(f"{CMDLINE}\n", encoding="utf-8")
    (root / "proc/vmstat").write_text("nr_free_pages 1\nquire_fork_tables_shared 3\n", encoding="utf-8")
    (root / "proc/meminfo").write_text("MemTotal: 4 kB\n", encoding="utf-8")
    return root


def run(root: Path, *words: str) -> int:
    """Run quirectl on a root, and return its exit status."""
    return cli.main(["--root", str(root), *words])


def samples(text: str) -> dict[str, list[tuple[dict[str, str], int]]]:
    """Return the samples of Prometheus' text format by metric; fails if anything is wrong with the text."""
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
    """Each counter and each gauge is a metric; each numeric knob and each state is a sample."""
    found = metrics(root, capfd)
    for feature in kernel_surface.FEATURES:
        for number, name in enumerate(kernel_surface.counters(feature), 1):
            level = feature == "prezero" and name in {"zeroed_pages", "hugetlb_zeroed_pages", "quarantined_pages"}
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


def test_links_and_devices_stay(root: Path, tmp_path: Path) -> None:
    """What is written through a link is in its target, and a FIFO, as a device, is written to and not replaced."""
    (tmp_path / "target").touch()
    (tmp_path / "link").symlink_to(tmp_path / "target")
    assert run(root, "metrics", "--output", str(tmp_path / "link")) == 0
    assert (tmp_path / "link").is_symlink() and "quire_info" in (tmp_path / "target").read_text(encoding="utf-8")
    os.mkfifo(tmp_path / "fifo")
    reader = os.open(tmp_path / "fifo", os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert run(root, "save", "--output", str(tmp_path / "fifo")) == 0
        assert (tmp_path / "fifo").is_fifo() and b"fork.enabled" in os.read(reader, 1 << 16)
    finally:
        os.close(reader)


def test_links_of_others(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                         capfd: pytest.CaptureFixture[str]) -> None:
    """A link that another user made is not followed, also behind one of our own."""
    (tmp_path / "target").touch()
    (tmp_path / "planted").symlink_to(tmp_path / "target")
    (tmp_path / "own").symlink_to("planted")
    lstat = Path.lstat

    def owned(path: Path) -> os.stat_result:
        found = list(lstat(path))
        found[4] += path.name == "planted"
        return os.stat_result(found)

    monkeypatch.setattr(Path, "lstat", owned)
    for name in ("planted", "own"):
        assert run(root, "metrics", "--output", str(tmp_path / name)) == 1
        assert "planted is a link that another user made" in capfd.readouterr().err
    assert not (tmp_path / "target").stat().st_size and (tmp_path / "planted").is_symlink()


def test_metrics_in_a_file(root: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The file has the same text, others may read it, and nothing is left beside it."""
    assert run(root, "metrics", "--output", str(root / "quire.prom")) == 0
    assert capfd.readouterr().out == ""
    text = (root / "quire.prom").read_text(encoding="utf-8")
    assert run(root, "metrics") == 0 and capfd.readouterr().out == text
    assert (root / "quire.prom").stat().st_mode & 0o777 == 0o644
    assert sorted(os.listdir(root)) == ["proc", "quire.prom", "sys"]


def test_units_of_metrics() -> None:
    """The timer starts the service, which writes to the folder of Debian's node exporter, if that exists."""
    service, timer = (unit(paths.REPO / "tool/systemd" / f"quire-metrics.{kind}") for kind in ("service", "timer"))
    program, *words = service["Service"]["ExecStart"].split()
    args = cli.parser().parse_args(words)
    assert program == "/usr/sbin/quirectl" and args.command == "metrics" and args.output.suffix == ".prom"
    assert service["Unit"]["ConditionPathIsDirectory"] == str(args.output.parent)
    assert service["Service"]["ReadWritePaths"] == f"-{args.output.parent}"
    assert timer["Install"]["WantedBy"] == "timers.target" and "Unit" not in timer["Timer"]


def archive(path: Path) -> dict[str, str]:
    """Return the files of a report, which are all in one folder."""
    with tarfile.open(fileobj=io.BytesIO(path.read_bytes()), mode="r:gz") as packed:
        members = packed.getmembers()
        assert len({Path(member.name).parent for member in members}) == 1
        opened = {Path(member.name).name: packed.extractfile(member) for member in members}
        return {name: file.read().decode() for name, file in opened.items() if file}


@pytest.fixture(name="dmesg")
def fixture_dmesg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A dmesg that prints LOG."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "log").write_text(LOG, encoding="utf-8")
    (folder / "dmesg").write_text(f"#!/bin/sh\nexec cat {folder}/log\n", encoding="utf-8")
    (folder / "dmesg").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder / "dmesg"


def test_bugreport(root: Path, dmesg: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The report has the listed files, only its owner may read it, and the output names each file."""
    assert dmesg.exists() and run(root, "bugreport", "--output", str(tmp_path / "r.tar.gz")) == 0
    out = capsys.readouterr().out
    files = archive(tmp_path / "r.tar.gz")
    assert set(files) == {"README.txt", *(name for name, _, _ in report.PARTS)}
    assert all(name in out and name in files["README.txt"] for name, _, _ in report.PARTS)
    assert json.loads(files["counters.json"])["fork"]["tables_shared"] == \
        1 + kernel_surface.counters("fork").index("tables_shared")
    assert json.loads(files["knobs.json"])["prezero"]["scrub_start"] == "100"
    assert json.loads(files["gauges.json"])["shm"] == {"mapped_kb": "5", "tables": "5"}
    assert json.loads(files["state.json"])["prezero"] == "on" and "quire_fork_tables_shared" in files["vmstat.txt"]
    assert "kernel 6.12.117-quire\n" in files["version.txt"] and files["meminfo.txt"] == "MemTotal: 4 kB\n"
    assert (tmp_path / "r.tar.gz").stat().st_mode & 0o777 == 0o600


def test_bugreport_has_no_secrets(root: Path, dmesg: Path, tmp_path: Path) -> None:
    """Boot options lose their values unless they concern memory; the log has only quire's messages, without data."""
    assert dmesg.exists() and run(root, "bugreport", "--output", str(tmp_path / "r.tar.gz")) == 0
    files = archive(tmp_path / "r.tar.gz")
    assert files["cmdline.txt"] == \
        "BOOT_IMAGE=... root=... ro luks.key=... quire=fork hugepagesz=2M mem=4G rd.x=... ...\n"
    kept = [line.split("] ", 1)[1] for line in files["dmesg.txt"].splitlines()]
    assert [line.split(":")[0].strip() for line in kept] == [
        "quire", "------------[ cut here ]------------", "quire", "WARNING", "CPU", "RIP", "do_syscall_64+0x1/0x2",
        "---[ end trace 0000000000000000 ]---"]
    assert not re.search(r"hunter|7d8f|secretword|0123|mm/other", "".join(files.values()))


def test_bugreport_without_a_part(root: Path, dmesg: Path, tmp_path: Path) -> None:
    """A part that is not available says so in its place, and the other parts are there."""
    dmesg.write_text("#!/bin/sh\necho 'dmesg: Operation not permitted' >&2\nexit 1\n", encoding="utf-8")
    (root / "proc/vmstat").unlink()
    assert run(root, "bugreport", "--output", str(tmp_path / "r.tar.gz")) == 0
    files = archive(tmp_path / "r.tar.gz")
    assert files["dmesg.txt"] == "(dmesg says: dmesg: Operation not permitted)\n"
    assert files["vmstat.txt"].startswith("(not available: ") and files["meminfo.txt"] == "MemTotal: 4 kB\n"


def test_what_programs_run_into_is_no_trace() -> None:
    """The kernel's line about a program that did something wrong begins no trace: what follows it is left out."""
    lines = ["[1] traps: chrome[4711] general protection fault ip:7f sp:7f error:0", "[2] usb 1-1: SerialNumber: 12",
             "[3] quire: kscrubd runs", "[4] general protection fault, probably for address 0: 0000 [#1]",
             "[4] RIP: 0010:quire_x", "[4] ---[ end trace 0000000000000000 ]---", "[5] EXT4-fs (vda): mounted"]
    assert report.of_quire(lines) == lines[2:6]


def test_an_endless_trace_ends() -> None:
    """If the end of a trace is lost, only a limited number of lines is taken."""
    lines = ["[1] BUG: unable to handle page fault", "[1] RIP: 0010:quire_x", *(f"[2] other {n}" for n in range(2000))]
    assert len(report.of_quire(lines)) == report.LONGEST


def processes(root: Path) -> None:
    """Make three processes: two share, the third has nothing."""
    told = "sharing: default\nfork_shared_tables: {}\nfork_shared_kb: {}\nfork_charged_tables: {}\n" \
           "shm_shared_tables: 0\nshm_shared_kb: {}\nrmap_areas: 9\nrmap_borrowed: {}\n"
    for pid, numbers in ((11, (1, 2048, 1, 0, 3)), (12, (2, 4096, 0, 8192, 0)), (13, (0, 0, 0, 0, 0))):
        (root / f"proc/{pid}").mkdir()
        (root / f"proc/{pid}/comm").write_text(f"server{pid}\n", encoding="utf-8")
        (root / f"proc/{pid}/quire").write_text(told.format(*numbers), encoding="utf-8")


def test_top(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Processes that share are listed, the largest first by the key; without a terminal, only once."""
    processes(root)
    assert run(root, "top") == 0
    head, names, *rows = capsys.readouterr().out.splitlines()
    assert head.startswith("2 processes share") and head.endswith(" 1") and names.split()[:2] == ["PID", "NAME"]
    assert [row.split() for row in rows] == [["12", "server12", "4096", "8192", "0", "0"],
                                             ["11", "server11", "2048", "0", "1", "3"]]
    assert run(root, "top", "--sort", "borrowed", "--lines", "1", "--json") == 0
    assert [one["pid"] for one in json.loads(capsys.readouterr().out)] == [11]


def test_top_again(root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """top prints as often as it is asked to, with the pauses in between."""
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
