# SPDX-License-Identifier: GPL-2.0
"""Fixtures that the tests share: a guest on the selected kernel, and the selftests, built and run in it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import group
import ktap
import programs
from guest import boot, splat


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
    said = os.environ.get("MINUTES", "10")
    if not said.isdigit() or not int(said):
        pytest.exit(f"MINUTES={said}: it takes a number of minutes, from 1 on", 2)
    return int(said)


@pytest.fixture(scope="session", name="guest")
def fixture_guest(kernel: str) -> Callable[..., boot.Result]:
    """guest(cmd, **options of guest.boot.run): run a command; the kernel must not complain and the guest must end.

    `kernel=` overrides the variant. `walks=True` makes the features' checkers walk after the command, which must be a
    string. The caller judges the command's own status.
    """
    def run(cmd: list[str] | str, walks: bool = False, **options: Any) -> boot.Result:
        if walks:
            cmd = group.with_walks(str(cmd))
        options.setdefault("kernel", kernel)
        options.setdefault("timeout", 600)
        options = group.shape(**options)
        if options["kernel"] == "debug":
            options["timeout"] *= group.DEBUG_SLOWDOWN
        result = boot.run(cmd, **options)
        complaint = _complaint(result) or group.walks(result.output)
        assert not complaint, complaint
        return result
    return run


def _complaint(result: boot.Result) -> str:
    """Say what is wrong with the guest itself, "" for nothing."""
    if result.splats:
        return f"{splat.summary(result.splats)}\noutput:\n{_tail(result.output)}"
    if result.status in (boot.HUNG, boot.DIED):
        return f"{result.reason}\noutput:\n{_tail(result.output)}\nconsole:\n{_tail(result.console)}"
    return ""


def _tail(text: str, lines: int = 40) -> str:
    return "\n".join(text.splitlines()[-lines:])


@pytest.fixture(scope="session", name="selftest_programs")
def fixture_selftest_programs() -> Path:
    """The folder with the quire selftests, built once for all workers."""
    return programs.build()


@pytest.fixture(scope="session", name="selftests")
def fixture_selftests(kernel: str, selftest_programs: Path) -> Callable[..., dict[str, ktap.Report]]:
    """selftests("name argument...", ..., append="quire=on", **options): run selftests one after the other in one guest.

    All cases of each program must pass. No program hides the results of the others. A complaint of the kernel, or of
    the features' checkers at the end, fails the whole group. `timeout` applies to each program. A program may skip some
    of its cases. If it skips all, the group fails, or the test is skipped if there is no other program.
    """
    def run(*commands: str, append: str = "quire=on", timeout: float = 600, **options: Any) -> dict[str, ktap.Report]:
        lines = [command.split() for command in commands]
        for name, *_ in lines:
            assert (selftest_programs / name).exists(), f"no selftest {name}"
        limit = timeout * (group.DEBUG_SLOWDOWN if kernel == "debug" else 1)
        # A single program has no limit in the guest: the timeout of the guest is the same.
        script = group.script([[str(selftest_programs / name), *rest] for name, *rest in lines],
                              limit if len(lines) > 1 else 0)
        result = boot.run(script, append=append, timeout=limit * len(lines), **group.shape(kernel, **options))
        found = group.outcomes(result.output, list(commands))
        print(group.summary(found))
        complaint = _complaint(result) or group.walks(result.output)
        bad = [one for one in found if one.complaint or (one.skipped and len(lines) > 1)]
        assert not bad and not complaint, "\n".join([
            group.summary(found), *(f"\noutput of {one.command}:\n{_tail(one.output or '', 80)}" for one in bad),
            complaint])
        if all(one.skipped for one in found):
            pytest.skip("; ".join(found[0].report.skipped))
        return {one.command: one.report for one in found}
    return run


@pytest.fixture(scope="session", name="selftest")
def fixture_selftest(selftests: Callable[..., dict[str, ktap.Report]]) -> Callable[..., ktap.Report]:
    """selftest(name, *arguments, append="quire=on", **options): run one selftest in a guest of its own."""
    def run(name: str, *arguments: str, **options: Any) -> ktap.Report:
        command = " ".join([name, *arguments])
        return selftests(command, **options)[command]
    return run
