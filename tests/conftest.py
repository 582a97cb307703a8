# SPDX-License-Identifier: GPL-2.0
"""What the tests share: the guest on the selected kernel, and the selftests built and run in it."""

from __future__ import annotations

import fcntl
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ktap
from guest import boot, paths, splat

SELFTESTS = paths.OVERLAY / "tools/testing/selftests/quire"
PROGRAMS = paths.BUILD / "selftests"
# The checkers of the debug kernel slow a guest down by about so much.
DEBUG_SLOWDOWN = 4


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --kernel."""
    parser.addoption("--kernel", default="quire", help="the variant that guest tests run on (quire, debug)")


@pytest.fixture(scope="session", name="kernel")
def fixture_kernel(request: pytest.FixtureRequest) -> str:
    """The kernel variant under test."""
    return str(request.config.getoption("--kernel"))


@pytest.fixture(scope="session", name="minutes")
def fixture_minutes() -> int:
    """How long a soak test may take."""
    return int(os.environ.get("MINUTES", "10"))


@pytest.fixture(scope="session", name="guest")
def fixture_guest(kernel: str) -> Callable[..., boot.Result]:
    """guest(cmd, **options of guest.boot.run): run a command; the kernel must not complain and the guest must end.

    `kernel=` overrides the variant. The command's own status is the caller's to judge.
    """
    def run(cmd: list[str] | str, **options: Any) -> boot.Result:
        options.setdefault("kernel", kernel)
        options.setdefault("timeout", 600)
        if options["kernel"] == "debug":
            options["timeout"] *= DEBUG_SLOWDOWN
        result = boot.run(cmd, **options)
        assert not result.splats, f"{splat.summary(result.splats)}\noutput:\n{_tail(result.output)}"
        assert result.status not in (boot.HUNG, boot.DIED), (
            f"{result.reason}\noutput:\n{_tail(result.output)}\nconsole:\n{_tail(result.console)}")
        return result
    return run


def _tail(text: str, lines: int = 40) -> str:
    return "\n".join(text.splitlines()[-lines:])


@pytest.fixture(scope="session", name="selftest_programs")
def fixture_selftest_programs() -> Path:
    """The folder with the quire selftests, built once however many workers there are."""
    paths.BUILD.mkdir(exist_ok=True)
    with open(paths.BUILD / ".selftests.lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = subprocess.run(["make", "-C", str(SELFTESTS), f"OUTPUT={PROGRAMS}",
                               f"KSFT={paths.TREE / 'tools/testing/selftests'}"], text=True, check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert done.returncode == 0, f"the selftests do not build:\n{_tail(done.stdout)}"
    return PROGRAMS


@pytest.fixture(scope="session", name="selftest")
def fixture_selftest(guest: Callable[..., boot.Result], selftest_programs: Path) -> Callable[..., ktap.Report]:
    """selftest(name, *arguments, append="quire=on", **options): run a selftest in a guest; all of it must pass.

    Cases that the program itself skips are allowed, unless it skips all: the test is then skipped, with the reasons.
    """
    def run(name: str, *arguments: str, append: str = "quire=on", **options: Any) -> ktap.Report:
        program = selftest_programs / name
        assert program.exists(), f"no selftest {name}"
        result = guest([str(program), *arguments], append=append, **options)
        report = ktap.parse(result.output)
        detail = f"\noutput:\n{_tail(result.output, 80)}"
        assert not report.failed, f"failed: {', '.join(report.failed)}{detail}"
        assert not report.problems, f"{'; '.join(report.problems)} (status {result.status}){detail}"
        if not report.passed:
            pytest.skip("; ".join(report.skipped))
        assert result.status == 0, f"status {result.status}{detail}"
        return report
    return run
