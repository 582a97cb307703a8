# SPDX-License-Identifier: GPL-2.0
"""The completions of bash and zsh offer what quirectl takes."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator

import pytest

from guest import paths
from quirelib import cli, knobs

BASH = paths.REPO / "tool/completions/quirectl"
ZSH = paths.REPO / "tool/completions/_quirectl"
ALL = ["all", "fork", "prezero", "rmap", "shm", "text"]


def commands(parser: argparse.ArgumentParser, before: str = "") -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Yield each command, and each action of one, with its parser."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, one in action.choices.items():
                yield before + name, one
                yield from commands(one, f"{before}{name} ")


COMMANDS = dict(commands(cli.parser()))


def options(parser: argparse.ArgumentParser) -> set[str]:
    """Return the long options of a command."""
    return {word for action in parser._actions for word in action.option_strings
            if word.startswith("--")}


def complete(*words: str) -> list[str]:
    """Return what bash offers for the last of the words after quirectl."""
    line = ["quirectl", *words]
    script = (f"source {shlex.quote(str(BASH))}; COMP_WORDS=({shlex.join(line)}); COMP_CWORD={len(line) - 1}; "
              '_quirectl; printf "%s\\n" "${COMPREPLY[@]}"')
    environment = {**os.environ, "PATH": f"{paths.REPO / 'tool'}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", script], text=True, check=True, capture_output=True, env=environment)
    assert not done.stderr, done.stderr
    return sorted(filter(None, done.stdout.splitlines()))


def test_bash_offers_every_command() -> None:
    """bash offers every command, and every action of knobs; the beginning of a word limits what it offers."""
    assert complete("") == sorted(name for name in COMMANDS if " " not in name)
    assert complete("knobs", "") == sorted(name.split()[1] for name in COMMANDS if " " in name)
    assert complete("bu") == ["bugreport"] and complete("--root", "/", "bo") == ["boot"]


@pytest.mark.parametrize("name", ["", *(name for name in COMMANDS if name != "knobs")])
def test_bash_offers_every_option(name: str) -> None:
    """For each command, bash offers the options that its parser takes, and no others."""
    assert set(complete(*name.split(), "--")) == options(COMMANDS[name] if name else cli.parser())


def test_bash_offers_features_and_knobs() -> None:
    """bash offers features if a command takes one, and the knobs of a feature."""
    for command in ("enable", "disable", "drain", "stats", "gauges", "boot", "knobs list", "knobs explain"):
        assert complete(*command.split(), "") == ALL, command
    for action in ("get", "set"):
        assert complete("knobs", action, "") == ALL[1:]
        for feature in ALL[1:]:
            assert complete("knobs", action, feature, "") == sorted(k.name for k in knobs.KNOBS if k.feature == feature)
    assert complete("enable", "fork", "") == [] and complete("boot", "fork", "r") == ["rmap"]
    assert complete("top", "--sort", "") == sorted(["all", "fork", "shm", "charged", "borrowed"])
    assert complete("default", "") == ["quire", "stock"] and complete("default", "quire", "") == []
    assert complete("save", "--output", str(paths.REPO / "READ")) == [str(paths.REPO / "README.md")]


def test_zsh_knows_every_command_and_option() -> None:
    """zsh describes commands and actions, and has the options of a command in that command's branch."""
    text = ZSH.read_text(encoding="utf-8")
    assert text.startswith("#compdef quirectl\n")
    assert set(re.findall(r"^\t\t'(\w+):", text, re.M)) | set(re.findall(r"'(\w+):[^']*'", text)) >= {
        name.split()[-1] for name in COMMANDS}
    branches = {name: body for names, body in re.findall(r"^\t(\w+(?: \| \w+)*)\)(.*?);;", text, re.S | re.M)
                for name in names.split(" | ")}
    for name, parser in COMMANDS.items():
        if name in ("knobs", "knobs get", "knobs set"):
            continue
        body = branches[name.split()[-1]].replace("$help", "'--help[").replace("$json", "'--json[")
        assert set(re.findall(r"'(--[\w-]+)\[", body)) == options(parser), name


def test_zsh_takes_it() -> None:
    """If zsh is installed, it finds no syntax error."""
    if not shutil.which("zsh"):
        pytest.skip("no zsh")
    done = subprocess.run(["zsh", "-n", str(ZSH)], text=True, check=False, stderr=subprocess.PIPE)
    assert done.returncode == 0 and not done.stderr, done.stderr
