#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Record vanilla's test outcomes and objects in tests/records, so that a check need not build and boot vanilla.

Vanilla is built first. Each SET of the kernel's own tests (default: all) is run on it a few times. The worst outcome of
each case is kept; cases that differ between the runs are listed as unsteady, and are not compared with anything. The
word objects means the digests of vanilla's objects, which are compared with the objects of a kernel with all options
off.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPO))

import objects  # noqa: E402
import sets  # noqa: E402
from guest import boot, build, cli, paths, tree  # noqa: E402

# A guest that cannot be started, a kernel that complains, programs that do not build.
ERRORS = (boot.BootError, AssertionError, subprocess.CalledProcessError, OSError, MemoryError)


def all_sets() -> dict[str, sets.Set]:
    """Return every set by its name."""
    import test_mm_sets
    import test_text_sets
    return {one.name: one for one in [*test_mm_sets.SETS, test_text_sets.SET]}


def merged(runs: list[dict[str, str]]) -> tuple[dict[str, str], list[str]]:
    """Return the worst outcome of each case in some runs of a set, sorted, and the cases that differ between them."""
    seen = {case: {run.get(case, "missing") for run in runs} for case in sorted(set().union(*runs))}
    return ({case: max(outcomes, key=sets.ORDER.index) for case, outcomes in seen.items()},
            [case for case, outcomes in seen.items() if len(outcomes) > 1])


def run_once(one: sets.Set) -> dict[str, str]:
    """Run a set on vanilla; raises BootError if one of its tests did not come to an end."""
    found = one.run(one.tests, "vanilla", "")
    cut_off = [test for test in one.tests if f"{test}: status" not in found]
    if cut_off:
        raise boot.BootError(f"{', '.join(cut_off)} did not come to an end: run it again on an idle host")
    return found


def record(one: sets.Set, runs: int) -> None:
    """Run a set on vanilla `runs` times and write its record."""
    one.prepare()
    cases, unsteady = merged([run_once(one) for _ in range(runs)])
    sets.RECORDS.mkdir(exist_ok=True)
    whole = {"key": sets.key_of(one, "vanilla"), "runs": runs, "unsteady": unsteady, "cases": cases}
    paths.write_whole(one.record, json.dumps(whole, indent=1) + "\n")
    passed = list(cases.values()).count("pass")
    print(f"{one.name}: {passed} of {len(cases)} cases passed, {len(unsteady)} unsteady{':' * bool(unsteady)}")
    print("".join(f"  {case}\n" for case in unsteady), end="", flush=True)


def record_all(wanted: list[sets.Set], runs: int) -> int:
    """Record sets and return the exit status; a failure is reported, and the other sets are still recorded."""
    status = 0
    for one in wanted:
        try:
            record(one, runs)
        except ERRORS as error:
            print(f"error: {one.name}: {cli.explain(error)}", file=sys.stderr, flush=True)
            status = 1
    return status


def needed(kernel: str) -> list[str]:
    """Return what guest.build must make for a check besides ours: vanilla, or its objects, if a record is not valid."""
    why = {f"the set {one.name}": sets.misfit(one, kernel) for one in all_sets().values() if one.in_check}
    whole = any(why.values())
    why["its objects"] = objects.misfit()
    for name, reason in why.items():
        if reason:
            print(f"vanilla is needed for {name}: {reason}", file=sys.stderr)
    return ["vanilla"] if whole else ["--objects", "vanilla"] if why["its objects"] else []


def main(argv: list[str] | None = None) -> int:
    """Command line."""
    known = all_sets()
    parser = cli.Parser(prog="tests/record.py", description=__doc__,
                        epilog=f"The sets: {', '.join(known)}, {objects.NAME}",
                        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3, choices=range(1, 101), metavar="N", help="1 to 100 (default 3)")
    parser.add_argument("--needed", action="store_true",
                        help="only print what guest.build must make for a check besides quire, which is built: "
                             "vanilla, its objects, or nothing")
    parser.add_argument("sets", nargs="*", metavar="SET")
    args = parser.parse_args(argv)
    wanted = args.sets or [*known, objects.NAME]
    unknown = [name for name in wanted if name not in known and name != objects.NAME]
    if unknown:
        parser.error(f"no set {', '.join(unknown)}; there are: {', '.join(known)}, {objects.NAME}")
    try:
        if args.needed:
            print(*needed("quire"))
            return 0
        asked = [known[name] for name in wanted if name in known]
        build.build_all(["vanilla"] if asked else [], ["vanilla"])
        if objects.NAME in wanted:
            objects.record()
        return record_all(asked, args.runs)
    except (*ERRORS, build.BuildError, tree.TreeError) as error:
        print(f"error: {cli.explain(error)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    paths.own_python()
    sys.exit(main())
