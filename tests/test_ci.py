# SPDX-License-Identifier: GPL-2.0
""".ci/run, with a make(1) that only says how its goals ended: what counts, what is left out, and what is cut short."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from guest import paths

# Says of each goal that two tests passed, or does what a variable named as the goal says.
MAKE = """#!/bin/sh
echo "made $1, RACES=$RACES"
mkdir -p build/counts
eval "$(printenv "$(echo "$1" | tr - _)")"
[ -e build/counts/$1 ] || echo '{"passed": 2}' >build/counts/$1
"""
# Says the seconds in the file "now".
DATE = "#!/bin/sh\ncat now\n"
FAIL = """echo '{"passed": 1, "failed": 1}' >build/counts/$1; exit 2"""
ENDS = r"^\d+ passed, \d+ failed, \d+ skipped$"


@pytest.fixture(name="clone")
def fixture_clone(tmp_path: Path) -> Path:
    """A folder with all that .ci/run needs, the fake make(1), and a date(1) whose time stands still."""
    guest = (str(file.relative_to(paths.REPO)) for file in paths.REPO.glob("guest/*.py"))
    for name in (".ci/run", "tests/run.py", *guest):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(paths.REPO / name, tmp_path / name)
    (tmp_path / "bin").mkdir()
    for name, text in (("make", MAKE), ("date", DATE)):
        (tmp_path / "bin" / name).write_text(text, encoding="utf-8")
        (tmp_path / "bin" / name).chmod(0o755)
    (tmp_path / "now").write_text("0\n", encoding="utf-8")
    return tmp_path


def start(clone: Path, limit: int, needed: int, goals: dict[str, str]) -> subprocess.Popen[str]:
    """Run the script with other limits, in seconds, and what the goals are to do."""
    script = (clone / ".ci/run").read_text(encoding="utf-8")
    script = re.sub(r"^NEEDED=\d+$", f"NEEDED={needed}", re.sub(r"^LIMIT=\d+$", f"LIMIT={limit}", script, flags=re.M),
                    flags=re.M)
    (clone / ".ci/run").write_text(script, encoding="utf-8")
    environment = {**os.environ, "RACES": "", "PATH": f"{clone}/bin:{os.environ['PATH']}", **goals}
    return subprocess.Popen(["sh", ".ci/run"], cwd=clone, env=environment, text=True, stdout=subprocess.PIPE,
                            start_new_session=True)


@pytest.mark.parametrize("goals, status, ends", [
    ({}, 0, "6 passed, 0 failed"), ({"check": FAIL}, 1, "5 passed, 1 failed"),
    ({"check_debug": FAIL}, 1, "5 passed, 1 failed"), ({"check_races": FAIL}, 1, "5 passed, 1 failed"),
    ({"check_races": """echo '{"passed": 2}' >build/counts/$1; kill -KILL $PPID"""}, 1, "6 passed, 0 failed"),
    ({"check_races": "exit 124"}, 1, "4 passed, 1 failed")])
def test_all_goals_count(clone: Path, goals: dict[str, str], status: int, ends: str) -> None:
    """All three goals run whichever fails, and the sum is the last line. Only the last looks at our files alone."""
    done = start(clone, 5100, 2400, goals)
    said = done.communicate(timeout=60)[0]
    assert done.returncode == status and re.search(ENDS, said.splitlines()[-1]) and ends in said.splitlines()[-1], said
    assert [line for line in said.splitlines() if line.startswith("made")] == [
        "made check, RACES=", "made check-debug, RACES=", "made check-races, RACES=files"]


def test_no_time_is_left(clone: Path) -> None:
    """The last goal does not begin where it might not end in time."""
    said = start(clone, 10, 11, {}).communicate(timeout=60)[0]
    assert "made check-races" not in said and "were left; run it alone" in said
    assert said.splitlines()[-1].startswith("4 passed, 0 failed")


@pytest.mark.parametrize("before, status, ends", [
    ("", 0, "4 passed, 0 failed"), ("""echo '{"failed": 1}' >build/counts/$1;""", 1, "4 passed, 1 failed")])
def test_cut_short(clone: Path, before: str, status: int, ends: str) -> None:
    """A goal that is cut short counts for nothing, but for the tests that had failed. Its time passes at once here."""
    done = start(clone, 5100, 2400, {"check_races": f"{before} echo 5100 >now; sleep 600 & kill $PPID; wait"})
    said = done.communicate(timeout=60)[0]
    assert done.returncode == status and said.splitlines()[-1].startswith(ends), said
    assert "note: make check-races did not end in" in said


def test_interrupted(clone: Path) -> None:
    """Nothing of the last goal goes on when the script is ended."""
    done = start(clone, 5100, 1, {"check_races": "sleep 600 & echo $$ >pid; wait"})
    pid = clone / "pid"
    while not pid.exists() or not pid.read_text(encoding="utf-8"):
        time.sleep(0.05)
    os.killpg(done.pid, signal.SIGTERM)
    done.communicate(timeout=60)
    assert done.returncode == 130
    with pytest.raises(ProcessLookupError):
        while True:
            os.kill(int(pid.read_text(encoding="utf-8")), 0)
            time.sleep(0.05)
