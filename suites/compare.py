# SPDX-License-Identifier: GPL-2.0
"""What the cases of a suite say on two kernels, read from a script's output and compared as sets.

A case says several things: its status and, in the Linux Test Project, a line for each check that it makes. The program,
or the source line, that reports a check names it. Each is pass, skip, fail, broken, timeout or missing, from good to
bad (sets.ORDER).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

import sets

WORDS = {"TPASS": "pass", "TCONF": "skip", "TFAIL": "fail", "TBROK": "broken", "TWARN": "broken"}
# "mmap01.c:85: TPASS: ..." of the library for programs, "mmap1    1  TPASS  :  ..." of the old one and of scripts.
CHECK = re.compile(rf"(?:([\w.+-]+\.[ch]:\d+):|([\w.+-]+\s+\d+)) +({'|'.join(WORDS)})\s*:")
OWN_LIMIT = re.compile(r"^Test timeouted|TBROK\s*:.* timed out", re.M)
STATUS = "status"


def results(output: str, outcome_of: Callable[[int], str]) -> dict[str, str]:
    """Return "case: check" -> outcome from the output of suites/cases.sh; the status of each case is a check, too.

    `outcome_of` says what an exit status means. A case that began and has no status has the status missing.
    """
    found: dict[str, str] = {}
    case = ""
    for line in output.splitlines():
        status = re.fullmatch(r"== (\S+) status (\d+)", line)
        if status and status[1] == case:
            key = f"{case}: {STATUS}"
            found[key] = "timeout" if found[key] == "timeout" else outcome_of(int(status[2]))
            case = ""
        elif (begun := re.fullmatch(r"== (\S+)", line)):
            case = begun[1]
            found[f"{case}: {STATUS}"] = "missing"
        elif case and OWN_LIMIT.search(line):
            found[f"{case}: {STATUS}"] = "timeout"
        elif case and (check := CHECK.match(line)):
            key = f"{case}: {check[1] or ' '.join(check[2].split())}"
            found[key] = sets.worst(found.get(key, "pass"), WORDS[check[3]])
    return found


def level(base: dict[str, str], ours: dict[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the checks of both kernels with those added that only the other reports, and not as pass.

    A source line that reports a failure says nothing if there is none.
    """
    there = {key: "pass" for key, outcome in ours.items() if outcome != "pass"} | base
    here = {key: "pass" for key, outcome in base.items() if outcome != "pass" and not key.endswith(f": {STATUS}")}
    return there, here | ours


def worse(base: dict[str, str], ours: dict[str, str], name: str) -> dict[str, str]:
    """Return the checks that are worse on our kernel, with what they say on both; `name` is the base's."""
    return sets.regressions(*level(base, ours), name)


def cases_of(checks: dict[str, str]) -> list[str]:
    """Return the cases that checks belong to, each once, in their order."""
    return list(dict.fromkeys(key.split(": ", 1)[0] for key in checks))


@dataclass
class Verdict:
    """How the cases of a part compare, by their names.

    `worse` says of each check that is worse both times what it said on both kernels. A case is in `unsteady` if a check
    of it was worse the first time only.
    """

    cases: list[str]
    checks: int
    worse: dict[str, str] = field(default_factory=dict)
    better: list[str] = field(default_factory=list)
    unsteady: list[str] = field(default_factory=list)
    alike: dict[str, int] = field(default_factory=dict)

    def counts(self) -> dict[str, int]:
        """Return how many cases are worse, better and the same; these add up to all."""
        bad, good = len(cases_of(self.worse)), len(self.better)
        return {"cases": len(self.cases), "worse": bad, "better": good, "same": len(self.cases) - bad - good}


def judge(base: dict[str, str], ours: dict[str, str], steady: dict[str, str], first: dict[str, str]) -> Verdict:
    """Return the verdict on the first run of both kernels: `first` was worse in it, `steady` in the second, too.

    `alike` counts the cases by their status where this is the same on both kernels.
    """
    bad, names = cases_of(steady), cases_of(base)
    better = [case for case in cases_of(worse(ours, base, "")) if case not in cases_of(first)]
    alike: dict[str, int] = {}
    for case in names:
        status = base[f"{case}: {STATUS}"]
        if status == ours.get(f"{case}: {STATUS}"):
            alike[status] = alike.get(status, 0) + 1
    return Verdict(names, len(set(base) | set(ours)), steady, better,
                   [case for case in cases_of(first) if case not in bad], alike)
