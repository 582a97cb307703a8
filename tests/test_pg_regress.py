# SPDX-License-Identifier: GPL-2.0
"""PostgreSQL's own regression suite with every feature on, compared as a set with the pristine kernel's outcomes."""

from __future__ import annotations

from pathlib import Path

import pytest

import pg_regress
import sets

SCRIPT = Path(__file__).parent / "workloads" / "pg_regress.sh"


@pytest.mark.soak
@pytest.mark.debug
def test_suite(kernel: str) -> None:
    """Nothing that passes on vanilla fails on quire, whose sessions share the page tables of their pool.

    What also fails on vanilla may fail: the suite may have another minor version than the server, and some of it needs
    a locale that is not installed.
    """
    try:
        prefix = pg_regress.server()
        suite = pg_regress.prepare(prefix)
    except pg_regress.Unavailable as reason:
        pytest.skip(f"no regression suite: {reason}")

    def run(_tests: list[str], variant: str, append: str) -> dict[str, str]:
        output = sets.run_guest([str(SCRIPT), str(prefix), str(suite)], variant, append, memory="4G", limit=3600)
        found = sets.results(output)
        print(f"{variant}: {list(found.values()).count('pass')} of {len(found)} passed")
        # Only counters other than 0 are printed.
        assert variant == "vanilla" or "shm/stats/tables_joined:" in output, output
        return found

    tests = ["pg_regress"]
    vanilla = run(tests, "vanilla", "")
    assert list(vanilla.values()).count("pass") > 150, f"hardly anything ran on vanilla: {vanilla}"
    sets.check(run, tests, "on", vanilla, kernel)


def test_lists_of_archives_get_their_sources() -> None:
    """Both formats of apt's lists of archives get source packages added, and keep their options."""
    line = "# deb http://old main\ndeb [signed-by=/key] http://host/debian stable main\n"
    assert pg_regress.with_sources(line, False) == (
        "# deb http://old main\ndeb [signed-by=/key] http://host/debian stable main\n"
        "deb-src [signed-by=/key] http://host/debian stable main\n")
    record = "Types: deb\nURIs: http://host/debian\nSuites: stable\nComponents: main\nSigned-By: /key\n"
    assert pg_regress.with_sources(record, True) == record.replace("deb\n", "deb deb-src\n", 1)
