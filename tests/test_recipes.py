# SPDX-License-Identifier: GPL-2.0
"""The pages of docs/recipes: their commands work as they are, the counters that they name move, and nothing stays.

All pages run in one guest, each with its `sh` blocks in one shell and in the order of the page. The guest first starts
what the reader's machine already runs.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable

import pytest

import kernel_surface
from guest import boot, paths
from quirelib import cli, knobs, settings

FOLDER = paths.REPO / "docs/recipes"
PAGES = sorted(path.stem for path in FOLDER.glob("*.md") if path.stem != "README")
SECTIONS = ("Switch on", "Verify", "Keep", "Undo", "Costs")
LINES = 80
# What each page's reader has running, and how the guest ends it.
SERVERS = {
    "redis": ("""
redis-server --daemonize yes --save "" --dir /tmp --logfile /tmp/redis.log --enable-debug-command local >/dev/null
until redis-cli ping 2>/dev/null | grep -q PONG; do sleep 0.2; done
redis-cli debug populate 60000 key 500 >/dev/null
""", "redis-cli shutdown nosave"),
    "postgresql": ("""
wait $cluster
cd /dev/shm/pg
as "$bin/pg_ctl" --pgdata data --silent --wait --timeout 300 --log log --options "-c shared_buffers=64MB -c fsync=off \
    -c listen_addresses= -k /var/run/postgresql" start || cat log
""", 'as "$bin/pg_ctl" --pgdata data --silent --mode immediate stop'),
}
# Making a cluster takes longest, and the second CPU does it beside the first page.
# A failed command ends its page, and the others still run. Of a pipeline, the last command counts.
GUEST = """
{server} /tmp/bin &
server=$!
until [ -e /tmp/bin/quirectl ]; do sleep 0.2; done
export PATH=/tmp/bin:$PATH
ip link set lo up
bin=$(ls -d /usr/lib/postgresql/*/bin | tail -n 1)
as() {{ runuser -u postgres -- "$@"; }}
install -d -o postgres -g postgres /var/run/postgresql /dev/shm/pg
(cd /dev/shm/pg && as "$bin/initdb" --pgdata data --no-sync --no-instructions --locale C >/dev/null 2>&1) &
cluster=$!
state() {{
    printf '\\n@@ %s\\nat %d s\\n' "$1" $SECONDS
    # One of these files cannot be read.
    grep -s . /sys/kernel/mm/quire/*/* /sys/kernel/mm/quire/*/stats/* /proc/sys/vm/scrub_* || true
}}
kept() {{ printf '\\n@@ %s kept\\n' "$1"; cat /etc/quire.conf; printf '\\n@@ more output\\n'; }}
"""
PAGE = """
{server}
state '{page} before'
printf '\\n@@ {page} output\\n'
(
set -e
trap 'echo "failed: $BASH_COMMAND"' ERR
{commands}
)
printf '\\n@@ {page} status\\n%s\\n' $?
state '{page} after'
{end}
cd /
"""


def text_of(page: str) -> str:
    """Return a page."""
    return (FOLDER / f"{page}.md").read_text(encoding="utf-8")


def sections(page: str) -> dict[str, str]:
    """Return the sections of a page by their headings; what comes before the first has the heading ""."""
    parts = re.split(r"^## (.*)\n", text_of(page), flags=re.M)
    return {"": parts[0], **dict(zip(parts[1::2], parts[2::2], strict=True))}


def commands(text: str) -> list[str]:
    """Return the blocks of a text that are run."""
    return re.findall(r"^```sh\n(.*?)^```$", text, re.M | re.S)


def counters(text: str) -> dict[str, str]:
    """Return what a text's tables expect of counters, each as FEATURE/stats/NAME."""
    return dict(re.findall(r"^\| `(\w+/stats/\w+)` \| ([^|]*) \|", text, re.M))


def script(page: str) -> str:
    """Return the guest's lines for a page."""
    lines = []
    for heading, text in sections(page).items():
        lines += commands(text)
        lines += [f"state '{page} verified'"] if heading == "Verify" else []
        lines += [f"state '{page} saved'\nkept '{page}'"] if heading == "Keep" else []
        lines += [f"kept '{page} undone'"] if heading == "Undo" else []
    server, end = SERVERS.get(page, ("", ""))
    return PAGE.format(server=server, page=page, commands="\n".join(lines), end=end)


def parts_of(output: str) -> dict[str, str]:
    """Return what the guest printed after each of its marks."""
    parts = re.split(r"^@@ (.*)\n", output, flags=re.M)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def values(state: str) -> dict[str, str]:
    """Return the numbers and names in sysfs, by FEATURE/NAME or FEATURE/stats/NAME."""
    found = re.findall(r"^(?:/sys/kernel/mm/quire|/proc/sys)/([\w/]+):(\S*)$", state, re.M)
    return {name.replace("vm/", "prezero/", 1): value for name, value in found}


def told(output: str) -> str:
    """Return what the guest printed, without the files of sysfs."""
    return re.sub(r"^(?:/sys/kernel/mm/quire|/proc/sys/vm)/.*\n", "", output, flags=re.M)


def switches(state: str) -> dict[str, str]:
    """Return the knobs and switches in what the guest printed."""
    names = {f"{feature}/enabled" for feature in kernel_surface.FEATURES}
    names |= {f"{knob.feature}/{knob.name}" for knob in knobs.KNOBS}
    return {name: value for name, value in values(state).items() if name in names}


def stored(text: str) -> dict[str, str]:
    """Return the settings in the text of a quire.conf."""
    found = filter(None, map(settings.parse, text.splitlines()))
    return {f"{feature}/{knob}": value for feature, knob, value in found}


def complaints(page: str, said: dict[str, str]) -> list[str]:
    """Return what is wrong with what a page did."""
    if said.get(f"{page} status", "").strip() != "0":
        return ["a command failed"]
    before, verified, saved, after = (said[f"{page} {mark}"] for mark in ("before", "verified", "saved", "after"))
    wrong = [f"{name} did not grow" for name, expected in counters(sections(page)["Verify"]).items()
             if expected == "grows" and int(values(verified)[name]) <= int(values(before)[name])]
    if switches(saved) == switches(before):
        wrong.append("nothing was switched on")
    for moment, state, file in (("saved", saved, said[f"{page} kept"]), ("undone", after, said[f"{page} undone kept"])):
        if stored(file) != switches(state):
            wrong.append(f"/etc/quire.conf does not have what was set when it was {moment}")
    return wrong + [f"{name} stays {value}" for name, value in switches(after).items()
                    if value != switches(before)[name]]


@pytest.mark.parametrize("page", PAGES)
def test_pages(page: str) -> None:
    """A page is short and complete; the counters that it names exist, and one of each of its features must grow."""
    text = text_of(page)
    assert len(text.splitlines()) <= LINES
    assert [name for name in sections(page) if name in SECTIONS] == [*SECTIONS]
    assert "**It helps**" in text and "**It does not help**" in text
    assert all(commands(sections(page)[name]) for name in SECTIONS[:-1])
    named = counters(text)
    assert set(named) <= {f"{feature}/stats/{name}" for feature in kernel_surface.FEATURES
                          for name in kernel_surface.counters(feature)}
    assert len(named) == len(re.findall(r"^\| `", text, re.M))
    switched = set(re.findall(r"^quirectl enable (\w+)$", "\n".join(commands(text)), re.M))
    assert switched and {name.split("/")[0] for name, expected in named.items() if expected == "grows"} <= switched


def test_all_pages_are_listed() -> None:
    """The list of recipes leads to all pages."""
    assert sorted(re.findall(r"\]\((\w+)\.md\) \|", text_of("README"))) == PAGES


@pytest.mark.parametrize("page", PAGES)
def test_commands_are_quirectls(page: str) -> None:
    """quirectl knows the commands, options, features and knobs of a page, also in the blocks that are not run."""
    text = text_of(page)
    lines = re.findall(r"^quirectl .*", "\n".join(re.findall(r"^```\w+\n(.*?)^```$", text, re.M | re.S)), re.M)
    lines += re.findall(r"`(quirectl [^`]*)`", text)
    assert lines
    for line in lines:
        args = cli.parser().parse_args(shlex.split(re.sub(r'\$!|"?\$\w+"?', "1", line), comments=True)[1:])
        feature = getattr(args, "feature", None)
        assert feature in (None, *kernel_surface.FEATURES), line
        assert not hasattr(args, "knob") or knobs.find(str(feature), args.knob), line


def test_wrong_pages_are_seen() -> None:
    """A command that fails, a counter that stands still, and settings that stay or are not stored are reported."""
    def state(enabled: int, shared: int) -> str:
        top = "/sys/kernel/mm/quire"
        return "".join(f"{top}/{name}:{value}\n" for name, value in (
            ("fork/enabled", enabled), ("fork/stats/tables_shared", shared), ("rmap/stats/borrowed", shared)))

    good = {"before": state(0, 3), "output": "", "verified": state(1, 4), "saved": state(1, 4),
            "kept": "fork.enabled = 1\n", "undone kept": "fork.enabled = 0\n", "status": "0\n", "after": state(0, 5)}
    assert not complaints("redis", {f"redis {name}": value for name, value in good.items()})
    for change, says in (
        ({"status": "1\n"}, "a command failed"),
        ({"verified": state(1, 3)}, "fork/stats/tables_shared did not grow"),
        ({"saved": state(0, 4), "kept": "fork.enabled = 0\n"}, "nothing was switched on"),
        ({"kept": "fork.enabled = 0\n"}, "/etc/quire.conf does not have what was set when it was saved"),
        ({"undone kept": "fork.enabled = 1\n"}, "/etc/quire.conf does not have what was set when it was undone"),
        ({"after": state(1, 5)}, "fork/enabled stays 1"),
    ):
        assert says in complaints("redis", {f"redis {name}": value for name, value in {**good, **change}.items()})


def test_recipes_in_a_guest(guest: Callable[..., boot.Result]) -> None:
    """All pages run with transparent huge pages as Debian has them, each is judged, and the checkers find nothing."""
    server = shlex.quote(str(paths.REPO / "tests/workloads/quirectl_server.py"))
    lines = GUEST.format(server=server) + "".join(map(script, PAGES)) + "kill $server\n"
    result = guest(lines, walks=True, memory="2G", timeout=1200, append="transparent_hugepage=always")
    said = parts_of(result.output)
    print(told(result.output))
    wrong = [f"docs/recipes/{page}.md: {line}" for page in PAGES for line in complaints(page, said)]
    assert result.status == 0 and not wrong, "\n".join(wrong)
