# SPDX-License-Identifier: GPL-2.0
"""Other projects' suites: reading what their scripts print, comparing it, the skip list and the paper. With fakes."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

import sets
from guest import boot, paths, splat
from suites import compare, kselftest, ltp, publishing, running, storage, stress_ng, suite

OUTPUT = """== mmap01
tst_test.c:2045: TINFO: Tested kernel: 6.12
mmap01.c:85: TPASS: mapped 4096
mmap01.c:85: TFAIL: mapped 8192
mmap01.c:90: TCONF: no such flag

== mmap01 status 1
== shmat9
shmat9    1  TPASS  :  attached
shmat9    2  TBROK  :  shmat9.c:12: no memory
== shmat9 status 2
== slow
Test timeouted, sending SIGKILL!
== other status 0
== slow status 2
== cut
cut.c:1: TPASS: begun
"""


@pytest.mark.parametrize("status, outcome", [
    (0, "pass"), (1, "fail"), (2, "broken"), (4, "broken"), (32, "skip"), (3, "broken"), (33, "fail"), (124, "timeout"),
    (137, "fail"), (127, "broken"), (139, "fail"), (8, "fail"),
])
def test_status(status: int, outcome: str) -> None:
    """Bits add up to the worst of them; a signal is a failure, a command that is not found is broken."""
    assert ltp.outcome_of(status) == outcome


def test_script_output() -> None:
    """Checks count by the line or number that reports them, the worst of each; only a case's own end gives a status."""
    assert compare.results(OUTPUT, ltp.outcome_of) == {
        "mmap01: status": "fail", "mmap01: mmap01.c:85": "fail", "mmap01: mmap01.c:90": "skip",
        "shmat9: status": "broken", "shmat9: shmat9 1": "pass", "shmat9: shmat9 2": "broken",
        "slow: status": "timeout", "cut: status": "missing", "cut: cut.c:1": "pass"}


@pytest.mark.parametrize("base, ours, worse", [
    ("pass", "pass", False), ("pass", "skip", True), ("skip", "fail", True), ("fail", "broken", True),
    ("broken", "timeout", True), ("timeout", "missing", True), ("fail", "skip", False), ("timeout", "fail", False),
])
def test_order_of_outcomes(base: str, ours: str, worse: bool) -> None:
    """Each outcome is worse than those before it."""
    found = compare.worse({"a: status": base}, {"a: status": ours}, "off")
    assert found == ({"a: status": f"{base} on off, {ours} here"} if worse else {})


@pytest.mark.parametrize("base, ours, worse", [
    ({}, {"a: x.c:5": "fail"}, {"a: x.c:5": "pass on vanilla, fail here"}),
    ({}, {"a: x.c:5": "pass"}, {}),
    ({"a: x.c:5": "fail"}, {}, {}),
    ({"a: x.c:5": "pass"}, {}, {"a: x.c:5": "pass on vanilla, missing here"}),
])
def test_checks_of_one_kernel(base: dict[str, str], ours: dict[str, str], worse: dict[str, str]) -> None:
    """A check that fails on ours only is worse, as is one that passes on the base only; one that failed is not."""
    assert compare.worse({"a: status": "pass", **base}, {"a: status": "pass", **ours}, "vanilla") == worse


def test_case_that_is_missing() -> None:
    """A case without any outcome on ours is worse, whatever it was."""
    assert compare.cases_of(compare.worse({"a: status": "timeout"}, {}, "vanilla")) == ["a"]


def test_verdict() -> None:
    """Cases are worse, better or the same; what was worse once is unsteady, and not better by another check."""
    base = {"a: status": "pass", "b: status": "fail", "c: status": "skip", "d: status": "pass", "d: x.c:1": "fail"}
    ours = {"a: status": "fail", "b: status": "pass", "c: status": "skip", "d: status": "skip"}
    first = compare.worse(base, ours, "vanilla")
    assert set(first) == {"a: status", "d: status"}
    verdict = compare.judge(base, ours, {"a: status": first["a: status"]}, first)
    assert verdict.counts() == {"cases": 4, "worse": 1, "better": 1, "same": 2}
    assert (verdict.better, verdict.unsteady, verdict.alike, verdict.checks) == (["b"], ["d"], {"skip": 1}, 5)


CUT = -1  # the status of a case that the end of its guest cuts off, one second after it began


class Guests:
    """Stands for sets.boot_script(): what each kernel's guests say of cases, run after run; it notes what ran where."""

    def __init__(self, says: dict[str, list[dict[str, int | None]]], complaint: str = "") -> None:
        self.says, self.complaint, self.now = says, complaint, 0.0
        self.ran: list[tuple[str, list[str]]] = []

    def __call__(self, command: list[str], kernel: str, append: str, limit: float,
                 **options: Any) -> tuple[boot.Result, str]:
        names = [one.split()[0] for one in command[3:]]
        name = {"quire=on": "on", "quire=off": "off"}.get(append, kernel)
        self.ran.append((name, names))
        statuses, output = self.says[name].pop(0), ""
        for case in names:
            output += f"== {case}\n"
            options["on_output"](f"== {case}\n")
            if statuses.get(case, 0) in (None, CUT):
                self.now += 1 if statuses[case] == CUT else 301
                return boot.Result(boot.HUNG, output, "", reason="the command did not end"), self.complaint
            output += f"== {case} status {statuses.get(case, 0)}\n"
            if statuses.get(case) == 124:
                break
            self.now += 299
        return boot.Result(0, output, "", seconds=1800), self.complaint if name == "on" else ""


@pytest.fixture(name="host")
def fixture_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host with a suite that is built, of which the parts ipc and numa have cases, and with kernels."""
    runtest = tmp_path / "source/runtest"
    runtest.mkdir(parents=True)
    for part in ltp.PARTS.values():
        (runtest / part.file).touch()
    (runtest / "syscalls-ipc").write_text("#comment\n\na\ta -x 1\nb b\nc c\nleft left\n", encoding="utf-8")
    (tmp_path / "origin.json").write_text('{"commit": "1", "version": "v1"}', encoding="utf-8")
    (tmp_path / "ltp.skip").write_text("# Why.\nleft takes too long\n", encoding="utf-8")
    for name, path in (("HOME", tmp_path), ("SOURCE", tmp_path / "source"), ("STAMP", tmp_path / "origin.json"),
                       ("SKIP", tmp_path / "ltp.skip")):
        monkeypatch.setattr(ltp, name, path)
    monkeypatch.setattr(storage, "FOLDER", tmp_path / "results")
    monkeypatch.setattr(boot, "image_of", lambda kernel: tmp_path / "origin.json")
    monkeypatch.setattr(boot, "kvm_works", lambda kernel: False)
    monkeypatch.setattr(running, "about", lambda kernel: {"kernel": kernel.variant, "options": kernel.append})
    monkeypatch.setattr(running, "unclean", lambda kernels: "")
    return tmp_path


def run(monkeypatch: pytest.MonkeyPatch, guests: Guests, *arguments: str) -> int:
    """Run the part ipc with these guests and return the exit status."""
    monkeypatch.setattr(sets, "boot_script", guests)
    monkeypatch.setattr(running.time, "monotonic", lambda: guests.now)
    return running.main(["--part", "ipc", *arguments])


def result_of(host: Path, base: str = "vanilla") -> dict[str, Any]:
    """Return the summary that a run has kept."""
    result: dict[str, Any] = json.loads((host / f"results/ltp.ipc.quire-{base}.json").read_text(encoding="utf-8"))
    return result


def test_nothing_worse(host: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """One guest for each kernel runs all cases but those left out; the summary and the progress say what ran."""
    guests = Guests({"vanilla": [{"b": 32}], "on": [{"b": 32}]})
    assert run(monkeypatch, guests) == 0
    assert guests.ran == [("vanilla", ["a", "b", "c"]), ("on", ["a", "b", "c"])]
    result = result_of(host)
    assert (result["cases"], result["same"], result["left out"], result["hours"]) == (3, 3, 1, 1.0)
    assert result["alike"] == {"pass": 2, "skip": 1} and result["version"] == "v1"
    said = capsys.readouterr()
    assert "ipc on vanilla: case 2 of 3, b" in said.err and "ltp ipc: 3 cases, 3 same, 0 worse, 0 better" in said.out


def test_worse_twice(host: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """What is worse runs again on both kernels. Only what is worse again counts; the rest is called unsteady."""
    guests = Guests({"off": [{"c": 2}, {}], "on": [{"a": 1, "b": 32}, {"a": 1}]})
    assert run(monkeypatch, guests, "--base", "off") == 1
    assert guests.ran[2:] == [("off", ["a", "b"]), ("on", ["a", "b"])]
    result = result_of(host, "off")
    assert result["worse checks"] == {"a: status": "pass on off, fail here"}
    assert (result["unsteady"], result["better cases"], result["worse"], result["same"]) == (["b"], ["c"], 1, 1)
    said = capsys.readouterr().out
    assert "  worse: a: status: pass on off, fail here\n" in said and "  unsteady: b\n" in said


@pytest.mark.parametrize("status, outcome", [(124, "timeout"), (None, "timeout")])
def test_case_that_does_not_end(host: Path, monkeypatch: pytest.MonkeyPatch, status: int | None, outcome: str) -> None:
    """After a case that passed its limit, or that took the guest with it, the others run in a new guest."""
    guests = Guests({"vanilla": [{"b": status}, {}], "on": [{"b": status}, {}]})
    assert run(monkeypatch, guests) == 0
    assert guests.ran[:2] == [("vanilla", ["a", "b", "c"]), ("vanilla", ["c"])]
    assert result_of(host)["alike"] == {"pass": 2, outcome: 1}


def test_case_that_the_guest_cuts_off(host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A case that had just begun when the guest's limit ended it runs again, and is not taken for one that hangs."""
    guests = Guests({"vanilla": [{"b": CUT}, {}, {}], "on": [{"b": 1}, {"b": 1}]})
    assert run(monkeypatch, guests) == 1
    assert guests.ran == [("vanilla", ["a", "b", "c"]), ("vanilla", ["b", "c"]), ("on", ["a", "b", "c"]),
                          ("vanilla", ["b"]), ("on", ["b"])]
    assert result_of(host)["worse checks"] == {"b: status": "pass on vanilla, fail here"}
    # The first case of a guest had all of the guest's time.
    assert run(monkeypatch, Guests({"vanilla": [{"a": CUT}, {}], "on": [{"a": CUT}, {}]})) == 0
    assert result_of(host)["alike"] == {"pass": 2, "timeout": 1}


def test_complaints(host: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A complaint of our kernel fails the run, although no case is worse."""
    assert run(monkeypatch, Guests({"vanilla": [{}], "on": [{}]}, "WARNING: at mm/x.c\nmore")) == 1
    assert result_of(host)["complaints"] == ["ipc on quire: WARNING: at mm/x.c"]
    assert "complaint: ipc on quire: WARNING: at mm/x.c" in capsys.readouterr().out


def test_splats_are_told_by_their_titles(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first line of what a guest's kernel complained of, which is kept, is what a person would read first."""
    oops = splat.Splat("bug", "BUG: f", "BUG: f\nOops: 0\n")
    monkeypatch.setattr(boot, "run", lambda *_, **__: boot.Result(boot.SPLAT, "", "", [oops, oops]))
    assert sets.boot_script(["true"], "quire", "", 1)[1].splitlines()[:2] == ["--- kernel bug: BUG: f", "BUG: f"]


def test_summary_is_not_kept(host: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A run of single cases, of a sample, or of a kernel with edits leaves the summaries alone."""
    assert run(monkeypatch, Guests({"vanilla": [{}], "on": [{}]}), "--case", "a") == 0
    assert run(monkeypatch, Guests({"vanilla": [{}], "on": [{}]}), "--sample", "2") == 0
    monkeypatch.setattr(running, "unclean", lambda kernels: "edits")
    assert run(monkeypatch, Guests({"vanilla": [{}], "on": [{}]}), "--json") == 0
    said = capsys.readouterr()
    assert "only some of its cases ran" in said.err and "is not kept: edits" in said.err
    assert json.loads(said.out[said.out.index("["):])[0]["cases"] == 3 and not (host / "results").exists()


def test_sample() -> None:
    """A sample has so many cases, in their order, and a larger one has all of a smaller one."""
    every = [suite.Case(f"case{number}", "x") for number in range(40)]
    few, many = suite.sample(every, 5), suite.sample(every, 10)
    assert len(few) == 5 and len(many) == 10 and [case for case in many if case in few] == few
    assert many == [case for case in every if case in many] and many != every[:10] and suite.sample(every, 99) == every


@pytest.mark.skipif(not os.environ.get("LTP"), reason="LTP names no clone of the Linux Test Project")
def test_sample_in_a_guest() -> None:
    """Some cases of memory, processes and IPC have the same outcome with the features on as with them off."""
    command = [str(paths.REPO / "suites/run"), "--source", f"ltp={os.environ['LTP']}", "--base", "off", "--sample", "8"]
    done = subprocess.run([*command, "--part", "ipc", "--part", "memory", "--part", "processes"], text=True,
                          check=False, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert done.returncode == 0 and done.stdout.count(": 8 cases, 8 same, 0 worse") == 3, done.stdout


def test_kernel_that_changes(host: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A run during which a kernel was built anew may be of two kernels, and is not kept."""
    ages = iter([[1.0, 2.0], [1.0, 3.0]])
    monkeypatch.setattr(running, "ages", lambda kernels: next(ages))
    assert run(monkeypatch, Guests({"vanilla": [{}], "on": [{}]})) == 0
    assert "is not kept: a kernel was built meanwhile" in capsys.readouterr().err and not (host / "results").exists()


def test_several_guests_at_a_time(host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches on several threads give the same outcome."""
    monkeypatch.setattr(running, "BATCH", 1)
    monkeypatch.setattr(running.os, "_exit", lambda status: None)
    guests = Guests({"vanilla": [{}, {}, {}], "on": [{}, {}, {}]})
    assert run(monkeypatch, guests, "--jobs", "3") == 0
    assert len(guests.ran) == 6 and result_of(host)["same"] == 3


@pytest.mark.parametrize("text, says", [
    ("a too long\nb\n", "ltp.skip:2: b is left out without a reason"),
    ("a too long\n\na x\n", "ltp.skip:3: a is there twice"),
])
def test_wrong_skip_list(host: Path, capsys: pytest.CaptureFixture[str], text: str, says: str) -> None:
    """A line without a reason, or a name that is there twice, is an error in one line."""
    (host / "ltp.skip").write_text(text, encoding="utf-8")
    assert running.main([]) == 1
    assert capsys.readouterr().err == f"error: {says}\n"


def test_name_that_no_file_has(host: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A name of the skip list that is no case of the suite is reported."""
    (host / "ltp.skip").write_text("left too long\ngone too long\n", encoding="utf-8")
    assert run(monkeypatch, Guests({"vanilla": [{}], "on": [{}]})) == 0
    assert "note: ltp.skip has gone, which is no case of v1\n" in capsys.readouterr().err


def test_skip_list() -> None:
    """The committed lists can be read, and their reasons are more than a word."""
    for one in running.SUITES.values():
        found = suite.skip_list(suite.HERE / f"{one.NAME}.skip")
        assert all(" " in reason for reason in found.values())
        assert len(found) > 10 or one.NAME != ltp.NAME


def test_parts() -> None:
    """A part has the cases of its file whose names match, and not those of another part of this file."""
    oom, mm = ltp.PARTS["oom"], ltp.PARTS["mm"]
    assert oom.has("oom01") and not oom.has("ksm01") and mm.has("ksm01") and not mm.has("oom01")
    assert ltp.listed("# a b\na  b `c`\na d\nlonely\n") == [suite.Case("a", "b `c`")]


def test_stressors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each stressor is a case of the first class that has it, and its command names it."""
    classes = {"vm": "brk vm", "memory": "brk zlib", "os": "access vm zlib"}
    monkeypatch.setattr(stress_ng, "_said", lambda *arguments: (
        f"class '{arguments[1][:-1]}' stressors: {classes[arguments[1][:-1]]}\n"))
    names = {part: [case.name for case in stress_ng.cases(part)] for part in stress_ng.PARTS}
    assert names == {"vm": ["brk", "vm"], "memory": ["zlib"], "os": ["access"]}
    assert "--access 2 " in stress_ng.cases("os")[0].command
    monkeypatch.setattr(stress_ng, "_said", lambda *arguments: "Unknown class: 'vm?'\n")
    with pytest.raises(suite.SuiteError, match="knows no class vm: Unknown class"):
        stress_ng.cases("vm")


@pytest.mark.parametrize("status, outcome", [(0, "pass"), (1, "broken"), (2, "fail"), (3, "skip"), (4, "skip"),
                                             (124, "timeout"), (137, "fail"), (139, "fail"), (99, "broken")])
def test_status_of_stress_ng(status: int, outcome: str) -> None:
    """What stress-ng does not have, or has no resources for, is skipped; what it finds is a failure."""
    assert stress_ng.outcome_of(status) == outcome


@pytest.mark.usefixtures("host")
def test_suites_without_a_tree(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path,
                              host: Path) -> None:
    """A tree is refused for these; without the program, one line says how to get it."""
    assert running.main(["stress-ng", "--source", f"stress-ng={host}"]) == 1
    assert "stress-ng is Debian's, and takes no tree" in capsys.readouterr().err
    assert running.main(["kselftest", "--source", f"kselftest={host}"]) == 1
    assert "kselftest comes with the kernel's base: leave --source" in capsys.readouterr().err
    monkeypatch.setattr(stress_ng, "HOME", tmp_path / "stress-ng")
    monkeypatch.setattr(stress_ng, "NAME", "no-stress-ng")
    assert running.main(["stress-ng"]) == 1
    assert capsys.readouterr().err == "error: this host has no no-stress-ng: make packages\n"


def test_kselftest_reports_cases_of_its_own() -> None:
    """What a program reports in KTAP is a check of its case, beside its status; 4 is a skip."""
    output = ("== a\nTAP version 13\nok 1 one\nnot ok 2 two\n== a status 1\n== b\nok 1 # SKIP no root\n"
              "== b status 4\n== c\nok 1 one\n")
    assert kselftest.results(output) == {"a: one": "pass", "a: two": "fail", "a: status": "fail", "b: ": "skip",
                                         "b: status": "skip", "c: one": "pass", "c: status": "missing"}


def test_cases_of_kselftest(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The programs of a folder that were built are its cases; all but large ones run in a copy of it.

    futex has them one folder deeper.
    """
    (tmp_path / "futex/functional").mkdir(parents=True)
    (tmp_path / "futex/functional/futex_wait").touch()
    (tmp_path / "exec").mkdir()
    (tmp_path / "exec/null-argv").touch()
    with open(tmp_path / "exec/large", "wb") as file:
        file.truncate(kselftest.LARGE + 1)
    (tmp_path / "kselftest-list.txt").write_text("exec:null-argv\nexec:large\nfutex:run.sh\nexecs:no\n",
                                                 encoding="utf-8")
    monkeypatch.setattr(kselftest, "INSTALLED", tmp_path)
    small, large = kselftest.cases("exec")
    assert small.name == "null-argv" and small.command.endswith(" ./null-argv")
    assert large.name == "large" and large.command.endswith(f" {tmp_path}/exec/large")
    (case,) = kselftest.cases("futex")
    assert case.name == "futex_wait" and f"{tmp_path}/futex/functional/ " in case.command
    with pytest.raises(suite.SuiteError, match="kselftest has no program in timens"):
        kselftest.cases("timens")


@pytest.mark.parametrize("arguments, says", [
    (["nonesuch"], "no suite nonesuch; there are: ltp, kselftest, stress-ng, zdtm, xfstests"),
    (["--part", "nonesuch"], "no part nonesuch; there are: ipc, numa"),
    (["--limit", "0"], "takes a number of seconds above 0"),
    (["--jobs", "0"], "takes a number from 1 to 64"),
    (["--base", "debug"], "invalid choice: 'debug'"),
    (["--source", "ltp"], "--source takes SUITE=PATH"),
    (["--source", "pltp=."], "--source takes SUITE=PATH"),
    (["--source", "ltp=/nonesuch"], "there is no such folder"),
    (["--part", "ipc", "--case", "nonesuch"], "the part ipc has none of these cases"),
])
@pytest.mark.usefixtures("host")
def test_wrong_arguments(capsys: pytest.CaptureFixture[str], arguments: list[str], says: str) -> None:
    """One line says what is wrong."""
    try:
        status = running.main(arguments)
    except SystemExit as end:
        status = int(str(end.code))
    said = capsys.readouterr().err
    assert status in (1, 2) and said.startswith("error: ") and says in said and said.count("\n") == 1


def test_source_that_is_no_clone(host: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A folder without a repository is named, and without any source the error says how to give one."""
    (tmp_path / "given").mkdir()
    (tmp_path / "given/.git").touch()
    assert running.main(["--source", f"ltp={tmp_path}/given"]) == 1
    said = capsys.readouterr().err
    assert "give a git clone of the suite" in said and said.count("\n") == 1
    (host / "origin.json").unlink()
    assert running.main([]) == 1
    assert "ltp is not built yet" in capsys.readouterr().err


def test_build_happens_once(host: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The suite is built from a clone of the given tree's HEAD, again only if that moves; the given tree stays as it
    is."""
    given, steps = tmp_path / "given", []
    given.mkdir()

    def git(*arguments: str) -> None:
        subprocess.run(["git", "-c", "user.name=n", "-c", "user.email=e", *arguments], cwd=given, check=True,
                       stdout=subprocess.DEVNULL)

    git("init", "-q")
    git("commit", "-q", "--allow-empty", "-m", "one")
    monkeypatch.setattr(ltp, "LOG", host / "build.log")
    monkeypatch.setattr(ltp, "INSTALLED", host / "installed")
    monkeypatch.setattr(ltp, "TOOLS", ())
    monkeypatch.setattr(ltp.packages, "ensure", lambda group: None)
    monkeypatch.setattr(ltp, "_make", lambda command, environment: steps.append(command))
    before = sorted(given.rglob("*"))
    first = ltp.build(given)
    count = len(steps)
    assert count > 4 and ltp.build(given) == first == ltp.build(None) and len(steps) == count
    assert sorted(given.rglob("*")) == before
    git("commit", "-q", "--allow-empty", "-m", "two")
    assert ltp.build(given)["commit"] != first["commit"] and len(steps) == 2 * count


def test_paper_is_written_from_the_results() -> None:
    """docs/trust.md is what suites/publish makes of suites/results, and each result has the name of its file."""
    results = storage.load(storage.FOLDER)
    paper = publishing.paper(results, storage.load(storage.MATRIX), publishing.scales(),
                             paths.read_stamp(storage.FUZZ) or {}, paths.read_stamp(storage.MODELS) or {})
    assert publishing.PAPER.read_text(encoding="utf-8") == paper, "run suites/publish"
    assert {path.name for path in storage.FOLDER.glob("*.json")} == {storage.name_of(one) for one in results}
    for one in results:
        assert one["cases"] == one["same"] + one["worse"] + one["better"]
        assert one["part"] in running.SUITES[one["suite"]].PARTS


def test_paper_says_what_is_worse(host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The paper has a row for each part, and names what is worse, better, unsteady and complained of.

    The sections of the debug kernel come after those of the kernel that users install.
    """
    monkeypatch.setattr(running, "about", lambda kernel: {"kernel": kernel.variant, "options": kernel.append,
                                                          "version": "6.12", "configuration": "c", "commit": "abc"})
    assert run(monkeypatch, Guests({"vanilla": [{"c": 2}, {}], "on": [{"a": 1, "b": 1}, {"a": 1}]}, "BUG: x")) == 1
    paper = publishing.paper(storage.load(host / "results"), [], {}, {}, {})
    assert "\n| ipc | 3 | 1 | 1 | 1 |" in paper and "Of 3 cases, 1 are worse on quire." in paper
    for line in ("worse: a: status, pass on vanilla, fail here", "better: `c`", "unsteady: `b`",
                 "quire complains: ipc on quire: BUG: x"):
        assert f"\n* ipc, {line}\n" in f"{paper}\n"
    plain = storage.load(host / "results")[0]
    debug = plain | {"part": "cve", "quire": plain["quire"] | {"kernel": "debug"}}
    paper = publishing.paper([debug, plain], [], {}, {}, {})
    assert paper.index("## ltp: quire against vanilla") < paper.index("## ltp: debug against vanilla")


def test_results_that_are_cut_off(host: Path, monkeypatch: pytest.MonkeyPatch,
                                  capsys: pytest.CaptureFixture[str]) -> None:
    """A result that cannot be read is named, and the paper stays as it is."""
    (host / "results").mkdir()
    (host / "results/ltp.ipc.quire-vanilla.json").write_text('{"part"', encoding="utf-8")
    monkeypatch.setattr(publishing, "PAPER", host / "trust.md")
    assert publishing.main([]) == 1
    said = capsys.readouterr().err
    assert "ltp.ipc.quire-vanilla.json holds no result" in said and not (host / "trust.md").exists()


def test_edits_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that was built with edits has no summary."""
    kernel = running.Kernel("quire", "quire=on", "quire")
    monkeypatch.setattr(running, "about", lambda kernel: {"changed": "yes"})
    assert running.unclean([kernel]) == "the kernel quire was built with edits that are not committed"
