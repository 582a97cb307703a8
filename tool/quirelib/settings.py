# SPDX-License-Identifier: GPL-2.0
"""The commands that save the settings to a file, and apply the settings in a file.

A line of the file is `feature.knob = value`; `feature.enabled` is the switch. A # starts a comment. Lines are applied
in their order, so knobs that must hold from the start come before their feature's switch.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from quirelib.output import write_whole
from quirelib.surface import Quire, Refused, read

DEFAULT = "etc/quire.conf"
HEAD = """\
# The settings of quire {version} on {release}, written by quirectl save.
# Each line sets one knob: feature.knob = value. quirectl apply, and quire.service
# at boot, set them in this order. quirectl knobs explain says which values each
# knob takes; enabled takes 0 or 1.
"""
BROKEN = "# The kernel had switched it off because of an inconsistency.\n"


def save_text(quire: Quire) -> str:
    """Return the settings as the text of a file: for each feature first the knobs, then the switch."""
    parts = [HEAD.format(release=quire.release(), version=quire.version())]
    for feature in quire.features():
        values = {knob: read(path) for knob, path in quire.knobs(feature).items()}
        lines = [f"{feature}.{knob} = {value}\n" for knob, value in values.items() if value != "-"]
        state = quire.state(feature)
        if state == "disabled_by_warning":
            lines.append(BROKEN)
        lines.append(f"{feature}.enabled = {int(state == 'on')}\n")
        parts.append("".join(lines))
    return "\n".join(parts)


def save(quire: Quire, args: argparse.Namespace) -> None:
    """Write the settings to a file."""
    path = args.output or args.root / DEFAULT
    write_whole(path, save_text(quire))
    if str(path) != "-":
        print(f"{path}: written. At boot quire.service applies /{DEFAULT}; now: quirectl apply {path}")


def parse(line: str) -> tuple[str, str, str] | None:
    """Return a line's feature, knob and value, None if the line has no setting; raises Refused."""
    said = line.split("#", 1)[0].strip()
    if not said:
        return None
    name, equals, value = (part.strip() for part in said.partition("="))
    feature, dot, knob = name.partition(".")
    if not equals or not dot or not value or not feature or not knob:
        raise Refused(f"{said}: this is not of the form feature.knob = value.")
    return feature, knob, value


def put(quire: Quire, feature: str, knob: str, value: str) -> tuple[str, str]:
    """Set one knob or switch if its value differs; return its value before and after."""
    if feature == "all":
        raise Refused("a line sets one feature, not all.")
    quire.chosen(feature)
    if knob == "enabled":
        path = quire.top / feature / knob
        if value not in ("0", "1"):
            raise Refused(f"enabled takes 0 or 1, not {value!r}.")
    else:
        path = quire.knob_path(feature, knob)
    before = read(path)
    if before == "-":
        raise Refused("this knob starts an action and cannot be stored; to start it: "
                      f"quirectl knobs set {feature} {knob} {value}")
    if before != value:
        quire.write(path, value, "not set")
    return before, read(path)


def apply(quire: Quire, args: argparse.Namespace) -> None:
    """Apply a file line by line; report the lines that are refused, and apply the others."""
    path: Path = args.file or args.root / DEFAULT
    changed = unchanged = refused = 0
    for number, line in enumerate(_lines(path), 1):
        try:
            setting = parse(line)
            if setting is None:
                continue
            feature, knob, value = setting
            try:
                before, after = put(quire, feature, knob, value)
            except Refused as error:
                raise Refused(f"{feature}.{knob}: {error}") from error
        except Refused as error:
            refused += 1
            print(f"error: {path}:{number}: {' '.join(str(error).split())}", file=sys.stderr)
            continue
        if before == after:
            unchanged += 1
        else:
            changed += 1
            print(f"{feature}.{knob}: {before} -> {after}")
    print(f"{path}: {changed} changed, {unchanged} unchanged, {refused} refused")
    if refused and args.strict:
        raise Refused(f"{path}: {refused} of its lines were refused; see above.")


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError as error:
        raise Refused(f"there is no {path}; quirectl save writes one.") from error
    except OSError as error:
        raise Refused(f"{path}: {error.strerror}.") from error
