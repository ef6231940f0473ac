"""What pages cost: the time to make them, their size, and the time until a browser has them open and searched.

    python tools/report.py [--full]

Makes logs of synthetic cases, renders a page of 22,000 cases and a matrix of 200 runs, and prints what each took beside
what is promised. Without --full, a tenth of the cases and a twentieth of the runs. Times are those of the CPU, but for
one called elapsed; the browser is Chromium where one is found. Exits with 1 where a promise of --full is not kept.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import click
from rich.console import Console
from rich.table import Table

from pytest_ascend.page import html
from pytest_ascend.page.matrix import render_matrix, scan
from pytest_ascend.runlog.writing import read
from pytest_ascend.verdict.summary import ORDER, summarise

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tests.unit.runlog import synthetic

T = TypeVar("T")
CASES, RUNS = 22_000, 200
#: Logs that differ; the runs of the matrix take turns with them, so that a small disk holds them.
LOGS = 4
OUTCOMES = ["passed"] * 40 + list(ORDER)


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the result: what was found beside what is promised of the full form."""

    name: str
    found: float
    promised: float
    unit: str


def timed(work: Callable[[], T]) -> tuple[T, float]:
    """Return the result of a call and the seconds of CPU that it took."""
    start = time.process_time()
    result = work()
    return result, time.process_time() - start


def logs(folder: Path, cases: int) -> list[Path]:
    """Write the logs of a few runs, without waiting for the disk."""
    sync, os.fsync = os.fsync, lambda _: None
    try:
        found = synthetic.op_cases(cases)
        return [
            synthetic.write_log(
                folder / f"{number}" / "run.jsonl", found, outcomes=OUTCOMES[number:], stack=synthetic.HARDWARE
            )
            for number in range(LOGS)
        ]
    finally:
        os.fsync = sync


def page_figures(log: Path, page: Path) -> Iterator[Figure]:
    """Measure one page, from its log to the browser."""
    text, seconds = timed(lambda: html.render(summarise(read(log))))
    yield Figure("page: rendered from its log (CPU)", seconds, 6.6, "s")
    yield Figure("page: size", len(text.encode()) / 1e6, 6.0, "MB")
    page.write_text(text, encoding="utf-8")
    yield from in_the_browser(page)


#: Watches from the beginning for work that keeps a page from answering for more than 50 ms.
_LONG_TASKS = """
window.longTasks = [];
new PerformanceObserver((list) => window.longTasks.push(...list.getEntries().map((each) => each.duration)))
  .observe({ type: "longtask", buffered: true });
"""
_FOUND = "() => /^\\d+ of/.test(document.querySelector('#found').textContent)"


def in_the_browser(page: Path) -> Iterator[Figure]:
    """Measure what opening a page from its file costs a running browser; nothing where there is none."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        return
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - only where a browser is

    with (
        sync_playwright() as playwright,
        playwright.chromium.launch(executable_path=browser, args=["--no-sandbox"]) as it,
    ):
        tab = it.new_page()
        tab.add_init_script(_LONG_TASKS)
        devtools = tab.context.new_cdp_session(tab)
        devtools.send("Performance.enable", {"timeDomain": "threadTicks"})
        tab.goto(page.as_uri(), wait_until="load")
        ready = tab.evaluate("performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd / 1e3")
        metrics = {each["name"]: each["value"] for each in devtools.send("Performance.getMetrics")["metrics"]}
        yield Figure("page: interactive in Chromium (CPU of its thread)", metrics["TaskDuration"], 0.5, "s")
        yield Figure("page: interactive in Chromium (elapsed)", ready, 1.0, "s")
        yield Figure("page: longest task while it opens", max(tab.evaluate("longTasks"), default=0.0) / 1e3, 0.5, "s")
        yield Figure("page: elements", tab.evaluate("document.querySelectorAll('*').length"), 3_000, "")
        tab.fill("#find", "softmax backward float16")
        tab.wait_for_function(_FOUND)
        after = {each["name"]: each["value"] for each in devtools.send("Performance.getMetrics")["metrics"]}
        searched = after["TaskDuration"] - metrics["TaskDuration"]
        yield Figure("page: searched in Chromium (CPU of its thread)", searched, 1.0, "s")


def matrix_figures(found: list[Path], runs: int) -> Iterator[Figure]:
    """Measure the matrix over many runs."""
    paths = [found[number % len(found)] for number in range(runs)]
    text, seconds = timed(lambda: render_matrix(scan(path) for path in paths))
    yield Figure(f"matrix of {runs} runs (CPU)", seconds, 120.0, "s")
    yield Figure("matrix: size", len(text.encode()) / 1e6, 6.0, "MB")


def measure(cases: int, runs: int) -> list[Figure]:
    """Measure everything."""
    with tempfile.TemporaryDirectory() as folder:
        found = logs(Path(folder), cases)
        return [*page_figures(found[0], Path(folder) / "page.html"), *matrix_figures(found, runs)]


@click.command(help=__doc__)
@click.option("--full", is_flag=True, help="22,000 cases and 200 runs.")
def main(*, full: bool) -> None:
    """Print the figures."""
    cases, runs = (CASES, RUNS) if full else (CASES // 10, RUNS // 20)
    figures = measure(cases, runs)
    table = Table("", "found", f"promised of {CASES:,} cases", title=f"{cases:,} cases")
    for each in figures:
        table.add_row(each.name, f"{each.found:.2f} {each.unit}", f"{each.promised:g} {each.unit}")
    Console().print(table)
    sys.exit(any(each.found > each.promised for each in figures))


if __name__ == "__main__":
    main()
