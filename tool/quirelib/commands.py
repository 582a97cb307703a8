# SPDX-License-Identifier: GPL-2.0
"""The commands that show and change features, counters and knobs."""

from __future__ import annotations

import argparse
import json
import time

from quirelib.knobs import KNOBS
from quirelib.surface import FEATURES, Quire, Refused, columns, read

ABOUT = {
    "fork": "fork shares page tables copy-on-write",
    "shm": "processes share the page tables of shared memory",
    "prezero": "free pages are zeroed ahead of faults",
    "text": "program text is mapped by 2 MiB pages",
    "rmap": "less reverse-mapping work in fork, exec and exit",
}
WRITES = {"disable": "0", "enable": "1", "drain": "2"}

Counters = dict[str, dict[str, int]]


def status(quire: Quire, args: argparse.Namespace) -> None:
    """Print the state of every feature."""
    states = {f: quire.state(f) for f in quire.features()}
    if args.json:
        print(json.dumps({"version": quire.version(), "kernel": quire.release(), "features": states}, indent=2))
        return
    print(f"quire {quire.version()} on {quire.release()}")
    print(columns([[f"  {f}", state, ABOUT.get(f, "")] for f, state in states.items()]) or "  no feature is built in")
    broken = [f for f, state in states.items() if state == "disabled_by_warning"]
    if broken:
        print(f"\n{', '.join(broken)}: the kernel found an inconsistency and switched it off until the next boot; "
              "see dmesg.")
    elif states and not any(state == "on" for state in states.values()):
        print("\nNothing is on. To switch on: quirectl enable FEATURE, or at boot: quirectl boot all")


def switch(quire: Quire, args: argparse.Namespace) -> None:
    """Switch features on or off, or drain them, and print the command that undoes it."""
    failed = []
    for feature in quire.chosen(args.feature):
        before = quire.state(feature)
        try:
            quire.write(quire.top / feature / "enabled", WRITES[args.command], f"{args.command} {feature}")
        except Refused as error:
            failed.append(str(error))
            continue
        after = quire.state(feature)
        undo = {("off", "on"): "disable", ("on", "off"): "enable"}.get((before, after))
        print(f"{feature}: {before} -> {after}" + (f"   (back: quirectl {undo} {feature})" if undo else ""))
    if failed:
        raise Refused("\n".join(failed))


def show_stats(now: Counters, before: Counters | None, seconds: float, nonzero: bool) -> None:
    """Print the counters, and rates if there is an earlier reading."""
    rows = [["FEATURE", "COUNTER", "VALUE"] + (["PER SECOND"] if before else [])]
    for feature, stats in now.items():
        for name, value in stats.items():
            if nonzero and not value:
                continue
            row = [feature, name, str(value)]
            if before:
                row.append(f"{(value - before[feature].get(name, 0)) / seconds:.1f}")
            rows.append(row)
    print(columns(rows) if len(rows) > 1 else "all counters are 0" if any(now.values()) else "no counters", flush=True)


def stats_command(quire: Quire, args: argparse.Namespace) -> None:
    """Print counters once, or repeatedly with their rates."""
    if args.json and args.watch:
        raise Refused("--json prints the counters once; leave out --watch.")
    if args.count and not args.watch:
        raise Refused("--count says how often --watch prints; give --watch, too.")
    features = quire.chosen(args.feature)
    reading = {f: quire.stats(f) for f in features}
    if args.json:
        print(json.dumps({f: {name: value for name, value in stats.items() if value or not args.nonzero}
                          for f, stats in reading.items()}, indent=2))
        return
    show_stats(reading, None, 0, args.nonzero)
    turns = args.count - 1 if args.count else None
    while args.watch and turns != 0:
        start = time.monotonic()
        time.sleep(args.watch)
        print()
        before, reading = reading, {f: quire.stats(f) for f in features}
        show_stats(reading, before, time.monotonic() - start, args.nonzero)
        turns = turns - 1 if turns is not None else None


def show_values(found: dict[str, dict[str, str]], what: str, as_json: bool) -> None:
    """Print the values of knobs or gauges."""
    if as_json:
        print(json.dumps(found, indent=2))
        return
    rows = [[feature, name, value] for feature, values in found.items() for name, value in values.items()]
    print(columns([["FEATURE", what, "VALUE"], *rows]) if rows else f"no {what.lower()}s")


def knobs_list(quire: Quire, args: argparse.Namespace) -> None:
    """Print the knobs and their values."""
    found = {f: {k: read(p) for k, p in quire.knobs(f).items()} for f in quire.chosen(args.feature)}
    show_values(found, "KNOB", args.json)


def gauges_command(quire: Quire, args: argparse.Namespace) -> None:
    """Print the gauges and their values."""
    found = {f: {k: read(p) for k, p in quire.gauges(f).items()} for f in quire.chosen(args.feature)}
    show_values(found, "GAUGE", args.json)


def knobs_explain(quire: Quire | None, args: argparse.Namespace) -> None:
    """Print what is known of each knob; on a quire kernel, only of the knobs that it has."""
    if quire:
        features = quire.chosen(args.feature)
    else:
        features = list(FEATURES) if args.feature in (None, "all") else [args.feature]
    rows = [["FEATURE", "KNOB", "BOUNDS", "DEFAULT", "UNIT", "WHAT"]]
    rows += [[k.feature, k.name, k.bounds, k.default, k.unit, k.what] for k in KNOBS if k.feature in features]
    if len(rows) == 1:
        raise Refused(f"no knobs of {args.feature!r} are known; the features are: {', '.join(FEATURES)}, or all.")
    print(columns(rows))


def knobs_get(quire: Quire, args: argparse.Namespace) -> None:
    """Print one knob's value."""
    if args.feature == "all":
        raise Refused("this command takes one feature, not all.")
    (feature,) = quire.chosen(args.feature)
    print(read(quire.knob_path(feature, args.knob, gauges=True)))


def knobs_set(quire: Quire, args: argparse.Namespace) -> None:
    """Set one knob and print the command that undoes it."""
    if args.feature == "all":
        raise Refused("this command takes one feature, not all.")
    (feature,) = quire.chosen(args.feature)
    path = quire.knob_path(feature, args.knob)
    before = read(path)
    quire.write(path, args.value, f"{feature}/{args.knob}")
    if before == "-":
        print(f"{feature}/{args.knob}: done")
        return
    print(f"{feature}/{args.knob}: {before} -> {read(path)}   "
          f"(back: quirectl knobs set {feature} {args.knob} {before})")


def boot_line(quire: Quire | None, args: argparse.Namespace) -> None:
    """Print the boot option for some features, and where it goes."""
    names = args.features or (["all"] if quire is None else [f for f in quire.features() if quire.state(f) == "on"])
    known = list(dict.fromkeys([*FEATURES, *(quire.features() if quire else ())]))
    unknown = [n for n in names if n not in (*known, "all")]
    if unknown:
        raise Refused(f"there is no feature {unknown[0]!r}; the features are: {', '.join(known)}, or all.")
    option = "quire=on" if "all" in names else "quire=" + (",".join(names) or "off")
    print(f"boot option: {option}")
    if not names:
        print("nothing is on now, so it switches nothing on; for others: quirectl boot all, quirectl boot FEATURE...")
    cmdline = args.root / "proc/cmdline"
    words = cmdline.read_text(encoding="utf-8", errors="replace").split() if cmdline.is_file() else []
    words = words[:words.index("--")] if "--" in words else words  # what follows is for init
    ours = [w for w in words if w.startswith("quire=")]
    print(f"booted with: {ours[-1] if ours else 'no quire= option (all off)'}")
    print(
        "\nWith GRUB, as root:\n"
        f"  echo 'GRUB_CMDLINE_LINUX=\"$GRUB_CMDLINE_LINUX {option}\"' >/etc/default/grub.d/quire.cfg\n"
        "  update-grub\n"
        "To take it back: remove that file and run update-grub again. For one boot only: press e in GRUB's menu\n"
        "and add the option to the line that starts with linux."
    )
