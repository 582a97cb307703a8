# SPDX-License-Identifier: GPL-2.0
"""Prometheus and its node exporter, as Debian packages them, take what quirectl writes, and the alerts fire."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import kernel_surface
from guest import paths
from quirelib import cli
from test_monitoring import RULES, panels, rules

EXPORTER = "prometheus-node-exporter"
pytestmark = pytest.mark.skipif(not (shutil.which("prometheus") and shutil.which(EXPORTER)),
                                reason=f"no prometheus, or no {EXPORTER}")
LONGEST = 30
CONFIG = """
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: [{rules}]
scrape_configs: [{{job_name: node, static_configs: [{{targets: ["127.0.0.1:{port}"]}}]}}]
"""


def free_ports(number: int) -> list[int]:
    """Return TCP ports that nobody uses now."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(number)]
        return [one.getsockname()[1] for one in sockets]


def vmstat_fields() -> str:
    """Return the pattern of lines of /proc/vmstat that docs/tools.md gives the exporter."""
    text = (paths.REPO / "docs/tools.md").read_text(encoding="utf-8")
    return text.split("    --collector.vmstat.fields='")[1].split("'\n")[0]


class Server:
    """Prometheus, which scrapes a node exporter, which reads what quirectl writes about a fake kernel."""

    def __init__(self, folder: Path, stack: contextlib.ExitStack) -> None:
        self.root, self.metrics, self.log = folder / "root", folder / "text/quire.prom", folder / "log"
        kernel_surface.make(self.root)
        self.metrics.parent.mkdir()
        (self.root / "proc/vmstat").write_text("nr_free_pages 5\npgfault 7\nquire_fork_tables_shared 9\n",
                                               encoding="utf-8")
        self.write({"prezero/stats/quarantined_pages": "0"})
        exporter, self.port = free_ports(2)
        (folder / "config").write_text(CONFIG.format(rules=RULES, port=exporter), encoding="utf-8")
        self.started = [stack.enter_context(subprocess.Popen(command, stdout=log, stderr=log)) for log, command in (
            (stack.enter_context(open(self.log, "ab")), command) for command in (
                [EXPORTER, "--collector.disable-defaults", "--collector.textfile", "--collector.vmstat",
                 f"--collector.vmstat.fields={vmstat_fields()}", f"--path.procfs={self.root}/proc",
                 f"--collector.textfile.directory={self.metrics.parent}", f"--web.listen-address=127.0.0.1:{exporter}"],
                ["prometheus", f"--config.file={folder}/config", f"--storage.tsdb.path={folder}/data",
                 f"--web.listen-address=127.0.0.1:{self.port}"]))]
        for process in self.started:
            stack.callback(process.kill)

    def write(self, files: dict[str, str]) -> None:
        """Change files of the fake kernel, and write its metrics as quire-metrics.service does."""
        for name, content in files.items():
            path = self.root / "sys/kernel/mm/quire" / name
            path.unlink()  # it is read-only
            path.write_text(f"{content}\n", encoding="utf-8")
        assert cli.main(["--root", str(self.root), "metrics", "--output", str(self.metrics)]) == 0

    def ask(self, path: str, **query: str) -> Any:
        """Return what Prometheus answers, None while it does not listen; an error of an expression fails."""
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        try:
            with urllib.request.urlopen(url) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            assert error.code == 503, error.read()  # not yet ready
        except urllib.error.URLError:
            pass
        return None

    def until(self, what: Callable[[], Any]) -> Any:
        """Return what a function finds, as soon as it finds something.

        Fails if a program ends, or if nothing is found while Prometheus scrapes LONGEST times.
        """
        begun = self.scrapes()
        while not (found := what()):
            assert all(process.poll() is None for process in self.started), self.log.read_text(encoding="utf-8")
            assert self.scrapes() - begun < LONGEST
            time.sleep(0.2)
        return found

    def scrapes(self) -> int:
        """Return how often Prometheus has scraped the exporter."""
        return sum(int(one["value"][1]) for one in self.find("count_over_time(up[1h])"))

    def find(self, expression: str) -> list[dict[str, Any]]:
        """Return the samples that an expression has now, none for an empty result."""
        found: list[dict[str, Any]] = (self.ask("query", query=expression) or {"result": []})["result"]
        return found

    def firing(self) -> dict[str, dict[str, Any]]:
        """Return the alerts that fire, by name."""
        alerts = (self.ask("alerts") or {"alerts": []})["alerts"]
        return {alert["labels"]["alertname"]: alert for alert in alerts if alert["state"] == "firing"}


@pytest.fixture(scope="module", name="server")
def fixture_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A running Prometheus that has scraped twice, so that rates exist."""
    with contextlib.ExitStack() as stack:
        server = Server(tmp_path_factory.mktemp("prometheus"), stack)
        server.until(lambda: server.find("count_over_time(quire_info[1m]) > 1"))
        yield server


def test_metrics_arrive(server: Server) -> None:
    """Each line that quirectl writes is a sample in Prometheus; the exporter refuses none, and knows the file's age."""
    lines = [line for line in server.metrics.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    assert int(server.find('count({__name__=~"quire_.*"})')[0]["value"][1]) == len(lines)
    assert server.find("node_textfile_scrape_error")[0]["value"][1] == "0"
    assert server.find('node_textfile_mtime_seconds{file=~".*quire\\\\.prom"}')


def test_lines_of_vmstat_arrive(server: Server) -> None:
    """With the option of docs/tools.md, the exporter passes on our lines and those that it passes on without."""
    found = {one["metric"]["__name__"]: one["value"][1] for one in server.find('{__name__=~"node_vmstat_.*"}')}
    assert found == {"node_vmstat_pgfault": "7", "node_vmstat_quire_fork_tables_shared": "9"}


def test_panels_show_something(server: Server) -> None:
    """Each expression of the dashboard is valid, and finds samples."""
    for panel in panels():
        for target in panel["targets"]:
            expression = target["expr"].replace("$instance", ".*").replace("$__rate_interval", "1m")
            assert "$" not in expression and server.find(expression), expression


def test_alerts_fire(server: Server) -> None:
    """No rule fails. None fires at first; those without a delay do when their cause is there, and name it."""
    def evaluated() -> list[dict[str, Any]]:
        groups = (server.ask("rules") or {"groups": []})["groups"]
        found = [rule for group in groups for rule in group["rules"]]
        return found if found and all(rule["health"] != "unknown" for rule in found) else []

    health = {rule["name"]: rule["health"] for rule in server.until(evaluated)}
    assert health == {rule["alert"]: "ok" for rule in rules()}
    assert not server.firing()
    server.write({"rmap/state": "disabled_by_warning", "prezero/stats/quarantined_pages": "512"})
    os.utime(server.metrics, (time.time() - 3600,) * 2)
    wanted = {"QuireFeatureDisabledByWarning", "QuirePagesQuarantined", "QuireMetricsStale"}
    server.until(lambda: wanted <= set(server.firing()))
    firing = server.firing()
    assert set(firing) == wanted
    said = {name: alert["annotations"]["summary"] for name, alert in firing.items()}
    assert "inconsistency in rmap" in said["QuireFeatureDisabledByWarning"]
    assert re.match(r"127\.0\.0\.1:\d+: 512 pages are out of use", said["QuirePagesQuarantined"])
