# SPDX-License-Identifier: GPL-2.0
"""The documents are right about the repository, and nothing in the repository depends on one machine."""

from __future__ import annotations

import dataclasses
import re
import subprocess
from functools import cache

import pytest

import kernel_surface
from bench import core, storage, workloads
from guest import paths, tree
from quirelib import cli, knobs


@cache
def tracked() -> dict[str, str]:
    """Return the text of all files that git knows, by path."""
    done = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=paths.REPO,
                          text=True, check=True, stdout=subprocess.PIPE)
    texts = {}
    for name in filter(None, done.stdout.split("\0")):
        path = paths.REPO / name
        if path.is_file() and not path.is_symlink():
            texts[name] = path.read_text(encoding="utf-8", errors="replace")
    return texts


def papers() -> list[str]:
    """Return the documents."""
    return sorted(name for name in tracked() if name.endswith((".md", ".rst")))


def verbs() -> set[str]:
    """Return the goals of the Makefile."""
    return set(re.findall(r"^([a-z][a-z-]*):", (paths.REPO / "Makefile").read_text(encoding="utf-8"), re.M))


def test_lines_of_hooks() -> None:
    """CONTRIBUTING.md says how many lines the hooks add and remove, and in how many files."""
    listed = subprocess.run(["git", "apply", "--numstat", *sorted((paths.REPO / "kernel/hooks").glob("*.patch"))],
                            cwd=paths.REPO, text=True, check=True, capture_output=True).stdout
    rows = [line.split("\t") for line in listed.splitlines()]
    added, removed = (sum(int(row[at]) for row in rows) for at in (0, 1))
    said = re.search(r"add (\d+) lines\s+and remove (\d+), in (\d+) files", tracked()["CONTRIBUTING.md"])
    assert said and [int(number) for number in said.groups()] == [added, removed, len({row[2] for row in rows})]


def test_no_path_of_a_machine() -> None:
    """No file has a path of somebody's clone, or of a folder beside it."""
    here = re.escape(str(paths.REPO))
    places = re.compile(rf"\.\./shared\b|(?<![\w.{{}}$*-])({here}|/work|/home/(?!user\b)\w+)(/|\b)")
    found = [f"{name}: {line.strip()}" for name, text in tracked().items() if name != "tests/test_docs.py"
             for line in text.splitlines() if places.search(line)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("name", papers())
def test_verbs_exist(name: str) -> None:
    """Each `make VERB` in a document is a goal of the Makefile."""
    named = set(re.findall(r"\bmake ([a-z][a-z-]*)", "\n".join(re.findall(r"`[^`]*`|^    .*$|^\t.*$|^make .*$",
                                                                        tracked()[name], re.M))))
    foreign = {"headers", "olddefconfig", "tinyconfig"}
    assert named - foreign <= verbs()


def test_help_names_every_verb() -> None:
    """`make help` lists every goal that a person would use, and the README the important ones."""
    done = subprocess.run(["make", "-s", "help"], cwd=paths.REPO, text=True, check=True, stdout=subprocess.PIPE)
    assert verbs() - {"help"} <= set(re.findall(r"make ([a-z-]+)", done.stdout))
    readme = tracked()["README.md"]
    assert not [verb for verb in ("demo", "check", "check-debug", "soak", "bench", "kernel") if
                f"make {verb}" not in readme]


def wrong_switches(text: str) -> list[str]:
    """Return what a text has in back quotes as FEATURE/KNOB or FEATURE/KNOB=VALUE and the kernel does not take."""
    found = re.findall(rf"`((?:{'|'.join(kernel_surface.FEATURES)})/\w+)(?:=(\w+))?`", text)
    wrong = []
    for name, value in found:
        knob = knobs.find(*name.split("/"))
        if not knob or (value and not (value.isdecimal() and knob.low <= int(value) <= knob.high)):
            wrong.append(f"no {name}" if not knob else f"{name} does not take {value}")
    return wrong


def wrong_workload(workload: workloads.Workload, results: list[dict]) -> list[str]:
    """Return what is wrong with a workload of the README's table: what does not exist, or was not measured."""
    wrong = [f"no feature {name}" for name in workload.features if name not in kernel_surface.FEATURES]
    wrong += wrong_switches("".join(f"`{knob}`" for knob in workload.knobs) + workload.also + workload.never)
    wrong += [f"not FEATURE/KNOB=VALUE: {knob}" for knob in workload.knobs if not re.fullmatch(r"\w+/\w+=\w+", knob)]
    wrong += [f"no result for {fact.what}" for fact in workload.facts if not fact.finding(results)]
    wrong += [f"no rows of {fact.benchmark}" for fact in workload.facts
              if not (storage.FOLDER / f"{fact.benchmark}.md").exists()]
    switched = {knob for fact in workload.facts for result in results if result["name"] == fact.benchmark
                for knob in result.get("knobs") or ()}
    wrong += [f"measured with {knob}" for knob in switched - set(workload.knobs)]
    return wrong + ([] if workload.gains and workload.costs else ["a gain without a cost, or a cost without a gain"])


@cache
def measured() -> list[dict]:
    """Return the stored results that the README shows: those of installed kernels come first."""
    results: list[dict] = storage.load(storage.PACKAGES)["results"] + storage.load(storage.FOLDER)["results"]
    return results


@pytest.mark.parametrize("workload", workloads.WORKLOADS, ids=lambda workload: workload.name)
def test_workloads(workload: workloads.Workload) -> None:
    """The README's table has figures that were measured, and features and knobs that exist."""
    assert not wrong_workload(workload, measured())


def test_wrong_workloads_are_seen() -> None:
    """A result that is missing, and a feature or knob that does not exist, are found in a workload."""
    good = next(one for one in workloads.WORKLOADS if one.knobs)
    fact = good.gains[0]
    for change, says in (
        ({"features": ("fork", "frok")}, "no feature frok"),
        ({"knobs": (*good.knobs, "shm/mixed=1")}, "no shm/mixed"),
        ({"knobs": (*good.knobs, "fork/mixed=2")}, "fork/mixed does not take 2"),
        ({"knobs": (*good.knobs, "mixed")}, "not FEATURE/KNOB=VALUE: mixed"),
        ({"knobs": ()}, "measured with fork/mixed=1"),
        ({"also": "`text/placment`"}, "no text/placment"),
        ({"gains": (dataclasses.replace(fact, aim="nonesuch"),)}, f"no result for {fact.what}"),
        ({"gains": (workloads.Fact("it", "micro", metric="ns", where={"op": "nonesuch"}),)}, "no result for it"),
        ({"gains": (workloads.Fact("it", "limits", metric="ns"),)}, "no rows of limits"),
        ({"costs": ()}, "a gain without a cost, or a cost without a gain"),
    ):
        assert says in wrong_workload(dataclasses.replace(good, **change), measured())
    without = [result for result in measured() if result["name"] != fact.benchmark]
    assert f"no result for {fact.what}" in wrong_workload(good, without)


def test_ceiling_of_zeroed_memory() -> None:
    """What the README says that hardware can gain is what the benchmark notes."""
    said = " ".join(workload.limit for workload in workloads.WORKLOADS if "prezero" in workload.features)
    note = core.load("pft").note.split("hardware's ceiling")[1]
    assert re.findall(r"[\d.]+", said) == re.findall(r"[\d.]+", re.sub(r"\(.*?\)", "", note))


def verbs_of_quirectl() -> set[str]:
    """Return the commands of quirectl."""
    shown = cli.parser().format_help()
    return set(re.findall(r"^    (\w+)", shown, re.M))


@pytest.mark.parametrize("name", [name for name in papers() if "/" not in name or name.startswith("docs/")])
def test_switches_exist(name: str) -> None:
    """Features, knobs and commands of quirectl in our own documents exist."""
    text = tracked()[name]
    assert not wrong_switches(text)
    quoted = "\n".join(re.findall(r"`[^`\n]*`|^    .*$", text, re.M))
    assert set(re.findall(r"\bquirectl ([a-z]+)\b(?!-)", quoted)) <= verbs_of_quirectl()
    named = {one for words in re.findall(r"\bquire=([a-z,]+)", quoted) for one in words.split(",")}
    assert named <= {*kernel_surface.FEATURES, "on", "off"}


@pytest.mark.parametrize("name", papers())
def test_links_lead_somewhere(name: str) -> None:
    """Relative links between documents lead to files."""
    folder = (paths.REPO / name).parent
    links = re.findall(r"\]\((?!https?://|#|mailto:)([^)#]+)(?:#[^)]*)?\)", tracked()[name])
    assert not [link for link in links if not (folder / link).exists()]


def headings(text: str) -> set[str]:
    """Return the anchors that a page's headings have."""
    lines = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
    return {re.sub(r"[^\w -]", "", line.lower()).replace(" ", "-") for line in re.findall(r"^#+ (.+)$", lines, re.M)}


@pytest.mark.parametrize("name", [name for name in papers() if name.endswith(".md")])
def test_anchors_exist(name: str) -> None:
    """A link to a heading of our documents leads to one."""
    folder = (paths.REPO / name).parent
    links = re.findall(r"\]\((?!https?://)([^)#\s]*)#([^)\s]+)\)", tracked()[name])
    assert not [f"{path}#{anchor}" for path, anchor in links if anchor not in headings(
        (folder / path if path else paths.REPO / name).read_text(encoding="utf-8"))]


@pytest.mark.parametrize("name", papers())
def test_files_named_exist(name: str) -> None:
    """A path in back quotes that begins with one of our folders exists (build/ is generated)."""
    ours = {path.split("/")[0] for path in tracked() if "/" in path}
    named = re.findall(r"`((?:\w[\w.-]*/)+[\w.-]+)`", tracked()[name])
    missing = [path for path in named if path.split("/")[0] in ours and not (paths.REPO / path).exists()
               and not (paths.TREE / path).exists() and not re.search(r"[A-Z]{3,}", path)]
    assert not missing


def test_base_conf_is_complete() -> None:
    """base.conf names a package, the file that it installs, the series, and verified versions of that series."""
    conf = tree.read_base_conf()
    assert conf["package"] == f"linux-source-{conf['series']}"
    assert conf["package"] in conf["tarball"]
    assert conf["verified"] and all(version.startswith(conf["series"] + ".") for version in conf["verified"].split())


def test_every_source_has_a_licence() -> None:
    """Programs and kernel sources state their licence in the first lines."""
    sources = [name for name in tracked() if name.endswith((".py", ".c", ".h", ".S", ".sh")) and tracked()[name]]
    assert not [name for name in sources if "SPDX-License-Identifier" not in "\n".join(
        tracked()[name].splitlines()[:3])]
