# SPDX-License-Identifier: GPL-2.0
"""The documents are right about the repository, and nothing in the repository depends on one machine."""

from __future__ import annotations

import re
import subprocess
from functools import cache

import pytest

from guest import paths, tree


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


@pytest.mark.parametrize("name", papers())
def test_links_lead_somewhere(name: str) -> None:
    """Relative links between documents lead to files."""
    folder = (paths.REPO / name).parent
    links = re.findall(r"\]\((?!https?://|#|mailto:)([^)#]+)(?:#[^)]*)?\)", tracked()[name])
    assert not [link for link in links if not (folder / link).exists()]


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
