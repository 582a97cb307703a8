# SPDX-License-Identifier: GPL-2.0
"""guest.races, on texts of reports and on a small program; and the soak, which looks for races in our code."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import pressure
import run
from guest import boot, build, paths, races, splat

# What runs for each feature, with its boot option, again and again while $seed grows.
WORK = {
    "fork": ("fork", "fork_model $seed 2"),
    "shm": ("shm,fork", "shm_model $seed 1 model", "shm_model $seed 1 race"),
    "rmap": ("rmap,fork", "rmap_model 600 $seed deep shared", "rmap_race 5 shared"),
    "prezero": ("prezero", "prezero_stress 10 $seed 3"),
    "text": ("on", "text_stress 10 $seed"),
}

# Seconds that a guest may need besides the time that its test is given: the last command, the features' walks, the end.
SPARE = 600

CONSOLE = """\
[   12.000000] ==================================================================
[   12.000001] BUG: KCSAN: data-race in copy_page_range / pt_leave
[   12.000002]
[   12.000003] write (marked) to 0xffff888001234560 of 8 bytes by task 101 on cpu 1:
[   12.000004]  pt_leave+0x10/0x20
[   12.000005]  zap_pmd_range+0x30/0x40
[   12.000006]
[   12.000007] read to 0xffff888001234560 of 8 bytes by task 102 on cpu 0:
[   12.000008]  copy_page_range+0x50/0x60
[   12.000009]  |
[   12.000010]  +-> reordered to: dup_mmap+0x70/0x80
[   12.000011]
[   12.000012] value changed: 0x0000000000000001 -> 0x0000000000000002
[   12.000013]
[   12.000014] Reported by Kernel Concurrency Sanitizer on:
[   12.000015] CPU: 0 UID: 0 PID: 102 Comm: sh Not tainted 6.12.0 #1
[   12.000016] ==================================================================
"""
ONE = """\
BUG: KCSAN: data-race in tick_sched_do_timer+0x10/0x20

race at unknown origin, with read to 0xffffffff82000000 of 4 bytes by interrupt on cpu 0:
 tick_sched_do_timer+0x10/0x20
 do_idle+0x30/0x40

value changed: 0x00000001 -> 0x00000002
==================================================================
"""
TWO = splat.find(CONSOLE)[0].text
PLACES = {
    "pt_leave+0x10/0x20": [races.Place("pt_leave", "mm/quire/pt/pt.c", 7)],
    "zap_pmd_range+0x30/0x40": [races.Place("zap_pmd_range", "mm/memory.c", 70)],
    "copy_page_range+0x50/0x60": [races.Place("pmd_none", "arch/x86/include/asm/pgtable.h", 5),
                                  races.Place("copy_page_range", "mm/memory.c", 40)],
    "dup_mmap+0x70/0x80": [races.Place("dup_mmap", "kernel/fork.c", 3)],
}


def ours(place: races.Place) -> bool:
    """Stand in for the comparison with the tree."""
    return place.file.startswith("mm/quire/")


def test_a_report_is_read() -> None:
    """Both stacks of a report are found, each from the access on, and what follows them is left out."""
    (one,) = splat.find(CONSOLE)
    assert one.kind == races.KIND
    assert races.stacks(one.text) == [["pt_leave+0x10/0x20", "zap_pmd_range+0x30/0x40"],
                                      ["copy_page_range+0x50/0x60", "dup_mmap+0x70/0x80"]]
    assert races.stacks(ONE) == [["tick_sched_do_timer+0x10/0x20", "do_idle+0x30/0x40"]]


@pytest.mark.parametrize("entry", [
    "asm_sysvec_apic_timer_interrupt+0x1f/0x30", "asm_common_interrupt+0x1/0x2", "try_to_free_pages+0x1f/0x30",
    "try_to_free_mem_cgroup_pages+0x1f/0x30", "try_to_compact_pages+0x1f/0x30"])
def test_what_was_interrupted_is_no_part_of_it(entry: str) -> None:
    """A race is not ours because an interrupt came while our code ran, or because our code was short of memory."""
    below = "  zap_pmd_range+0x30/0x40"
    (one,) = splat.find(CONSOLE.replace(below, f"  {entry}\n[   12.000005]{below}"))
    assert races.stacks(one.text) == [["pt_leave+0x10/0x20", entry],
                                      ["copy_page_range+0x50/0x60", "dup_mmap+0x70/0x80"]]


def test_either_stack_makes_a_race_ours() -> None:
    """A race is ours if one of its functions is in our code; the place is named."""
    assert list(map(str, races.owned(TWO, PLACES, ours) or [])) == ["pt_leave (mm/quire/pt/pt.c:7)"]
    elsewhere = {**PLACES, "pt_leave+0x10/0x20": [races.Place("pt_leave", "mm/memory.c", 7)]}
    assert races.owned(TWO, elsewhere, ours) == []


@pytest.mark.parametrize("accesses", races.KNOWN)
def test_known_races(accesses: frozenset[str]) -> None:
    """A race that is known is none of ours, whoever calls; one of its functions with another is."""
    report, known = TWO, dict(PLACES)
    for name, frame in zip(sorted(accesses), ("pt_leave+0x10/0x20", "copy_page_range+0x50/0x60"), strict=True):
        new = f"{name}+0x1/0x2"
        report, known[new] = report.replace(frame, new), [races.Place(name, "mm/quire/pt/pt.c", 7)]
        assert bool(races.owned(report, known, ours)) == (name != sorted(accesses)[-1])


@pytest.mark.parametrize("report, lacks", [
    (TWO, "dup_mmap+0x70/0x80"), (TWO, "pt_leave+0x10/0x20"), (ONE, ""), ("BUG: KCSAN: data-race in f\n", "")])
def test_what_cannot_be_told_is_ours(report: str, lacks: str) -> None:
    """A report is not taken for one of Linux's own if a frame of it, or all stacks, cannot be found."""
    known = {frame: found for frame, found in PLACES.items() if frame != lacks}
    assert races.owned(report, known, ours) is None


def test_no_debugging_information(tmp_path: Path) -> None:
    """Without the kernel that a report is of, all races stay splats; other splats never leave."""
    found = splat.find(CONSOLE + "WARNING: CPU: 0 PID: 1 at a.c:1 f+0x1/0x2\nRIP: f\n---[ end trace 0 ]---\n" + ONE)
    assert [one.kind for one in found] == ["race", "warning", "race"]
    assert races.split(found, tmp_path / "vmlinux") == (found, [])


@pytest.mark.parametrize("file, status, foreign", [("mm/quire/pt/pt.c", boot.SPLAT, 0), ("mm/memory.c", 0, 1)])
def test_a_guest_fails_for_our_races_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, file: str, status: int,
                                           foreign: int) -> None:
    """A guest whose kernel reports a race of Linux's own ends with its command's status, and the race is listed."""
    (tmp_path / "quire").mkdir()
    (tmp_path / "quire/bzImage").touch()
    (tmp_path / "said").write_text(CONSOLE, encoding="utf-8")
    monkeypatch.setattr(paths, "BUILD", tmp_path)
    protocol = "printf 'started\\nended\\nstatus 0\\n'"
    monkeypatch.setattr(boot, "_vng", lambda folder, *rest: [
        "sh", "-c", f"cat {tmp_path}/said >&2; {protocol} >{folder}/protocol"])
    monkeypatch.setattr(races, "locate", lambda *_: {
        **PLACES, "pt_leave+0x10/0x20": [races.Place("pt_leave", file, 7)]})
    monkeypatch.setattr(races, "Ours", lambda *_, **__: ours)
    monkeypatch.delenv("RACES", raising=False)
    result = boot.run("true", memory="1G", timeout=60, kvm=False)
    assert result.status == status and len(result.foreign) == foreign
    assert [one.kind for one in result.splats] == [races.KIND] * (1 - foreign)


def test_functions_of_one_name() -> None:
    """Each function of a name may be meant; a frame's address is that after the call, and modules are not known."""
    known = races.symbols("ffffffff81000000 T f\nffffffff81000100 t f\nffffffff81000200 d f\n")
    assert known == {"f": [0xffffffff81000000, 0xffffffff81000100]}
    assert races.calls("f+0x10/0x20", known) == [0xffffffff8100000f, 0xffffffff8100010f]
    assert races.calls("f+0x10/0x20 [test_hmm]", known) == races.calls("g+0x1/0x2", known) == []


@pytest.mark.parametrize("path", ["/a/tree/o-kcsan/../mm/x.c", "../mm/x.c", "mm/x.c", "/b/tree/o-kcsan/mm/x.c"])
def test_paths_of_debugging_information(path: str) -> None:
    """A file has one name, whichever clone of the repository it was compiled in."""
    assert races.inside_source(path) == "mm/x.c"


def test_edits_and_overlay(tmp_path: Path) -> None:
    """A place is ours in each file of the overlay, and within three lines of an edit in a file of Linux."""
    before, after, overlay = (tmp_path / name for name in ("base", "tree", "overlay"))
    for folder in (before, after, overlay):
        (folder / "mm").mkdir(parents=True)
    lines = [f"line {number}\n" for number in range(1, 41)]
    (before / "mm/x.c").write_text("".join(lines), encoding="utf-8")
    (after / "mm/x.c").write_text("".join([*lines[:19], "ours\n", *lines[19:]]), encoding="utf-8")
    (overlay / "mm/y.c").touch()
    belongs = races.Ours(before, after, overlay)
    assert [line for line in range(1, 42) if belongs(races.Place("f", "mm/x.c", line))] == list(range(17, 24))
    assert belongs(races.Place("f", "mm/y.c", 1))
    assert not belongs(races.Place("f", "mm/z.c", 1))
    belongs = races.Ours(before, after, overlay, files=True)
    assert not belongs(races.Place("f", "mm/x.c", 20)) and belongs(races.Place("f", "mm/y.c", 1))


@pytest.mark.parametrize("said, counts", [(None, True), ("", True), ("files", False)])
def test_a_race_beside_an_edit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, said: str | None, counts: bool) -> None:
    """RACES=files says that a race beside an edit does not count; it is noted for a reader then. One in a file does."""
    monkeypatch.delenv("RACES", raising=False)
    if said is not None:
        monkeypatch.setenv("RACES", said)
    monkeypatch.setattr(paths, "BUILD", tmp_path)

    def rule(*_: Path, files: bool = False) -> Callable[[races.Place], bool]:
        return lambda place: place.file.startswith("mm/quire") or (not files and place.file == "mm/memory.c")

    monkeypatch.setattr(races, "Ours", rule)
    found = [one for one in splat.find(CONSOLE) if one.kind == races.KIND]
    monkeypatch.setattr(races, "locate", lambda *_: PLACES)
    assert races.split(found, tmp_path / "vmlinux") == (found, [])
    elsewhere = {**PLACES, "pt_leave+0x10/0x20": [races.Place("pt_leave", "mm/gup.c", 7)]}
    monkeypatch.setattr(races, "locate", lambda *_: elsewhere)
    assert races.split(found, tmp_path / "vmlinux") == ((found, []) if counts else ([], found))
    noted = run.races(0)
    assert ("zap_pmd_range (mm/memory.c:70)" in noted and "copy_page_range / pt_leave" in noted) != counts


def test_a_real_program(tmp_path: Path) -> None:
    """Frames of a compiled program are found, with the functions that were inlined there."""
    (tmp_path / "x.c").write_text(
        "int shared;\nstatic inline __attribute__((always_inline)) void inner(void)\n{\n\t__atomic_add_fetch(&shared, "
        "1, 5);\n\t__builtin_trap();\n}\nvoid outer(void)\n{\n\tinner();\n}\nint main(void)\n{\n\touter();\n}\n",
        encoding="utf-8")
    subprocess.run(["gcc", "-g", "-O1", "-o", "x", "x.c"], cwd=tmp_path, check=True)
    known = races.locate(["outer+0x1/0x10", "nothing+0x1/0x10"], tmp_path / "x")
    assert known["nothing+0x1/0x10"] == []
    assert [(place.function, Path(place.file).name) for place in known["outer+0x1/0x10"]][-1] == ("outer", "x.c")
    known = races.locate([f"outer+{offset:#x}/0x10" for offset in range(2, 12)], tmp_path / "x")
    assert ["inner", "outer"] in [[place.function for place in places] for places in known.values()]


@pytest.fixture(scope="module", name="kcsan")
def fixture_kcsan() -> str:
    """The kernel with KCSAN; a test is skipped where there is none."""
    if not build.image_of("kcsan").exists():
        pytest.skip("there is no build/kcsan/bzImage: make kernel VARIANT=kcsan")
    return "kcsan"


@pytest.mark.soak
@pytest.mark.kcsan
def test_a_deliberate_race_is_seen(kcsan: str) -> None:
    """The kernel has its checkers, and a race in our code is a splat, of which there is none from the start to here.

    KCSAN is on from the start, unlike in the other tests.
    """
    assert not build.lost(build.asked(build.fragments_of(kcsan)), paths.BUILD / kcsan / "config")
    result = boot.run("echo race >/sys/kernel/debug/quire/trigger", kernel=kcsan, timeout=600)
    assert result.status == boot.SPLAT, result.output
    assert {one.kind for one in result.splats} == {races.KIND}, [one.title for one in result.splats]
    assert all("count_together" in one.title for one in result.splats), [one.title for one in result.splats]
    assert not any("count_together" in one.text for one in result.foreign)


@pytest.mark.soak
@pytest.mark.kcsan
@pytest.mark.parametrize("feature", WORK)
def test_no_race_in_our_code(guest: Callable[..., boot.Result], selftest_programs: Path, minutes: int, kcsan: str,
                             feature: str) -> None:
    """Random use of a feature during reclaim, for the given time: KCSAN reports nothing that involves our code."""
    features, *commands = WORK[feature]
    script = pressure.script("\n".join(f"{selftest_programs}/{command}" for command in commands), minutes * 60)
    result = guest(races.ON + script, kernel=kcsan, append=f"quire={features} {races.LATE}",
                   timeout=minutes * 60 + SPARE, walks=True)
    print(f"{len(result.foreign)} races of Linux's own:", *(one.title for one in result.foreign), sep="\n  ")
    assert result.status == 0, result.output[-4000:]


@pytest.mark.soak
@pytest.mark.kcsan
def test_no_race_of_forks(guest: Callable[..., boot.Result], selftest_programs: Path, minutes: int, kcsan: str) -> None:
    """Writes, forks, pins, migration and reclaim at once: KCSAN reports nothing that involves our code.

    It makes its own pressure, and switches its own swap off, for which more pressure would leave too little memory.
    """
    result = guest(f"{races.ON}{selftest_programs}/fork_race {minutes * 60}", kernel=kcsan,
                   append=f"quire=fork {races.LATE}", timeout=minutes * 60 + SPARE, walks=True)
    assert result.status == 0, result.output[-4000:]
