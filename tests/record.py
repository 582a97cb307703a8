#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Record in tests/records what others' test sets say on vanilla, so that a check need not build and boot it.

Each SET (default: all) is run a few times on vanilla, which is built first. Of each case the worst outcome is kept;
cases that differed between the runs are listed as unsteady, and no comparison looks at them.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPO))

from guest import boot, build, cli, paths, tree  # noqa: E402  pylint: disable=wrong-import-position
import sets  # noqa: E402  pylint: disable=wrong-import-position

# A guest that cannot be started, a kernel that complains, programs that do not build.
ERRORS = (boot.BootError, AssertionError, subprocess.CalledProcessError, OSError, MemoryError)


def all_sets() -> dict[str, sets.Set]:
    """Return every set by its name."""
    import test_mm_sets  # pylint: disable=import-outside-toplevel
    import test_text_sets  # pylint: disable=import-outside-toplevel
    return {one.name: one for one in [*test_mm_sets.SETS, test_text_sets.SET]}


def merged(runs: list[dict[str, str]]) -> tuple[dict[str, str], list[str]]:
    """Return each case's worst outcome in some runs of a set, sorted, and the cases that differed between them."""
    seen = {case: {run.get(case, "missing") for run in runs} for case in sorted(set().union(*runs))}
    return ({case: max(outcomes, key=sets.ORDER.index) for case, outcomes in seen.items()},
            [case for case, outcomes in seen.items() if len(outcomes) > 1])


def run_once(one: sets.Set) -> dict[str, str]:
    """Run a set on vanilla; raises BootError if one of its tests did not come to its end."""
    found = one.run(one.tests, "vanilla", "")
    cut_off = [test for test in one.tests if f"{test}: status" not in found]
    if cut_off:
        raise boot.BootError(f"{', '.join(cut_off)} did not come to an end: run it again on an idle host")
    return found


def record(one: sets.Set, runs: int) -> None:
    """Run a set on vanilla some times and write its record."""
    one.prepare()
    cases, unsteady = merged([run_once(one) for _ in range(runs)])
    sets.RECORDS.mkdir(exist_ok=True)
    whole = {"key": sets.key_of(one, "vanilla"), "runs": runs, "unsteady": unsteady, "cases": cases}
    paths.write_whole(one.record, json.dumps(whole, indent=1) + "\n")
    passed = list(cases.values()).count("pass")
    print(f"{one.name}: {passed} of {len(cases)} cases passed, {len(unsteady)} unsteady{':' * bool(unsteady)}")
    print("".join(f"  {case}\n" for case in unsteady), end="", flush=True)


def record_all(wanted: list[sets.Set], runs: int) -> int:
    """Record sets and return the exit status; one that cannot be recorded is named, and the others still are."""
    status = 0
    for one in wanted:
        try:
            record(one, runs)
        except ERRORS as error:
            print(f"error: {one.name}: {cli.explain(error)}", file=sys.stderr, flush=True)
            status = 1
    return status


def needed(kernel: str) -> list[str]:
    """Return the kernels that a check needs besides ours: vanilla where a record does not fit."""
    why = {one.name: sets.misfit(one, kernel) for one in all_sets().values() if one.in_check}
    for name, reason in why.items():
        if reason:
            print(f"vanilla is needed for the set {name}: {reason}", file=sys.stderr)
    return ["vanilla"] if any(why.values()) else []


def main(argv: list[str] | None = None) -> int:
    """Command line."""
    known = all_sets()
    parser = cli.Parser(prog="tests/record.py", description=__doc__, epilog=f"The sets: {', '.join(known)}",
                        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3, choices=range(1, 101), metavar="N", help="1 to 100 (default 3)")
    parser.add_argument("--needed", action="store_true",
                        help="only print which kernel a check needs besides quire, which is built: vanilla, or none")
    parser.add_argument("sets", nargs="*", metavar="SET")
    args = parser.parse_args(argv)
    unknown = [name for name in args.sets if name not in known]
    if unknown:
        parser.error(f"no set {', '.join(unknown)}; there are: {', '.join(known)}")
    try:
        if args.needed:
            print(*needed("quire"))
            return 0
        build.build_all(["vanilla"])
        return record_all([known[name] for name in args.sets or known], args.runs)
    except (*ERRORS, build.BuildError, tree.TreeError) as error:
        print(f"error: {cli.explain(error)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    paths.own_python()
    sys.exit(main())
