# SPDX-License-Identifier: GPL-2.0
"""The HTML report: what it shows, and, where Chromium is installed, how it looks on a wide and on a narrow screen."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from bench import core, plots, reporting, runner, table

RESULTS = core.HERE / "results"
NAMES = ("after-fork.icount", "micro.icount", "redis.time", "text.icount", "text.time")
# A browser says how the page came out, in an element of its own.
LOOK = """<script>
const box = e => e.getBoundingClientRect(), shown = e => box(e).width > 0;
const all = (e, what) => [...e.querySelectorAll(what)].filter(shown);
const meet = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1 &&
    Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 1;
const overlap = [], outside = [], holes = [], small = [];
for (const svg of all(document, "svg")) {
    const name = svg.getAttribute("aria-label"), texts = all(svg, "g[id^=text_]").map(box), frame = box(svg);
    texts.forEach((a, i) => texts.slice(i + 1).forEach(b => meet(a, b) && overlap.push(name)));
    texts.forEach(a => (a.left < frame.left - 1 || a.right > frame.right + 1) && outside.push(name));
    // The least letters have 7 points on a plot of 460 or more.
    if (7 * frame.width / svg.viewBox.baseVal.width < 5.5) small.push(name);
}
for (const grid of all(document, ".plots")) {
    const cells = all(grid, ":scope > div").map(box), right = box(grid).right;
    const last = cells[cells.length - 1];
    if (last.right < right - 2) holes.push(grid.previousElementSibling.textContent);
}
const wide = document.documentElement.scrollWidth - window.innerWidth;
document.body.insertAdjacentHTML("beforeend", "<pre id=look></pre>");
document.getElementById("look").textContent = JSON.stringify(
    {overlap, outside, holes, small, wide, plots: all(document, "svg").length, columns: new Set(
        all(document, ".plots > div:not(.both)").map(e => Math.round(box(e).left))).size});
</script>"""


@pytest.fixture(scope="module", name="results")
def fixture_results() -> list[dict]:
    """Published results: an odd number of plots, both clocks, rows of different keys, figures of others."""
    return [json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8")) for name in NAMES]


@pytest.fixture(scope="module", name="page")
def fixture_page(results: list[dict]) -> str:
    """The report of the results."""
    return reporting.page(results, None)


def test_contents_and_verdicts_come_first(results: list[dict], page: str) -> None:
    """Each benchmark has a link to a place of its own, and the verdicts stand before the first plot."""
    links = re.findall(r"<a href=#([\w-]+)>", page)
    assert links == re.findall(r"<h2 id=([\w-]+)>", page) and len(set(links)) == len(results)
    assert page.index("<nav>") < page.index("<caption>Aims: ") < page.index("<svg")
    assert re.search(r'<td class="word missed">missed</td><td class="word">redis</td>', page)


def test_what_was_not_on_is_said(results: list[dict]) -> None:
    """A column in which a feature was not on, and what the clock cannot see, are named above the plots."""
    result = json.loads(json.dumps(results[0]))
    result["columns"]["on"]["states"]["fork"] = "off"
    page = reporting.page([result], None)
    assert page.index("NOTE: the feature fork was not on in the column") < page.index(result["notes"][0]) < page.index(
        "<svg")


def test_no_row_is_there_twice(results: list[dict]) -> None:
    """In the tables of a benchmark each measured row has one row, with all that was measured."""
    for result in results:
        text = reporting.numbers_of(result)
        rows = [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in text.split("<tr>") if "<td" in row]
        labels = [label for group in table.groups(core.labels_in_order(result["columns"].values())) for label in group]
        assert [row[:len(label)] for row, label in zip(rows, labels, strict=True)] == [
            [html.escape(value) for value in label.values()] for label in labels]


def test_columns_have_units(results: list[dict]) -> None:
    """The headings of the numbers name column, metric and unit."""
    assert "<th>on: latest_fork_usec [µs]</th>" in reporting.numbers_of(results[NAMES.index("redis.time")])
    assert [plots.unit_of(name) for name in (
        "cpu_ns_per_fault", "sets_per_s", "fault/wsec", "slabs", "first_ns", "pmd_share", "touches_per_ms", "p99.9_us",
        "us_per_GB", "work_per_s", "pagetables_kB")] == [
        "ns per fault", "1/s", "faults/s", "", "ns", "share", "1/ms", "µs", "µs per GB", "1/s", "kB"]


@pytest.mark.parametrize("width, columns", [(1280, 2), (390, 1)])
@pytest.mark.skipif(not shutil.which("chromium"), reason="no Chromium: sudo apt install chromium")
def test_page_in_a_browser(page: str, tmp_path: Path, width: int, columns: int) -> None:
    """No two texts of a plot overlap, nothing is cut off or too small, and no column of the plots stays empty."""
    path = tmp_path / "report.html"
    path.write_text(page + LOOK, encoding="utf-8")
    done = subprocess.run(["chromium", "--headless", "--no-sandbox", "--disable-gpu", f"--window-size={width},2000",
                           f"--user-data-dir={tmp_path}/profile", "--dump-dom", path.as_uri()], text=True, check=True,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    said = re.search(r'<pre id="look">(.*?)</pre>', done.stdout, re.S)
    assert said, done.stdout[-500:]
    look: dict[str, Any] = json.loads(html.unescape(said[1]))
    assert look["plots"] > 20 and look["columns"] == columns
    assert not any(look[name] for name in ("overlap", "outside", "holes", "small")) and look["wide"] <= 0, look


def test_plot_of_a_new_result(tmp_path: Path) -> None:
    """What bench/run has just saved is drawn, although it has one column and no published figures."""
    result = json.loads((RESULTS / "micro.icount.json").read_text(encoding="utf-8"))
    one = {**result, "quick": True, "columns": {"on": result["columns"]["on"]}}
    results, probe = reporting.read([runner.save(one, None, tmp_path / "micro.json")])
    page = reporting.page(results, probe)
    # The only plot is as wide as two; a narrow screen has another.
    assert page.count("<svg") == 2 and "Aims" not in page
