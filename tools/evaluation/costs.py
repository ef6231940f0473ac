"""What pytest-ascend costs: cases compared with bare calls, and pages compared with their promised limits."""

from __future__ import annotations

import gc
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import torch

from pytest_ascend import emulator

from .support import least_s, table


@click.group(help=__doc__)
def main() -> None:
    """Choose what is measured."""


# --- a call in the operator suite ---


def _memory(tensor: torch.Tensor) -> torch.Tensor:
    """Return the whole storage of a tensor, which is what has to be copied."""
    return tensor.detach().as_strided((tensor.untyped_storage().nbytes() // tensor.element_size(),), (1,), 0)


def _placed(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    there = _memory(tensor).to(device, copy=True).as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())
    return there.requires_grad_(tensor.requires_grad)


def _noted(function: Callable[..., Any], calls: list[tuple[Callable[..., Any], Any]]) -> Callable[..., Any]:
    """Return a function that records its successful calls on a device, with arguments copied to the CPU as laid out."""
    from pytest_ascend.operators.calling import on_tensors, tensors

    def call(*args: Any, **kwargs: Any) -> Any:
        is_on_device = any(each.device.type == "npu" for each in tensors((args, kwargs)))
        given = on_tensors(lambda each: _placed(each, torch.device("cpu")), (args, kwargs)) if is_on_device else None
        found = function(*args, **kwargs)
        if given:
            calls.append((function, given))
        return found

    return call


def _bare(function: Callable[..., Any], given: Any, device: torch.device) -> Callable[[], None]:
    """Return a bare call: copies to the device, calls on both sides, and results copied back."""
    from pytest_ascend.operators.calling import on_tensors, tensors

    copied, there = [_memory(each) for each in tensors(given)], on_tensors(lambda each: _placed(each, device), given)

    def called(arguments: Any) -> Sequence[torch.Tensor]:
        args, kwargs = arguments
        leaves = [each for each in tensors(arguments) if each.requires_grad]
        outputs = tensors([function(*args, **kwargs)])
        attached = [each for each in outputs if each.requires_grad]
        if not leaves or not attached:
            return outputs
        found = torch.autograd.grad(attached, leaves, [each.detach() for each in attached], allow_unused=True)
        return [each for each in found if each is not None]

    def call() -> None:
        for each in copied:
            each.to(device)
        for found in called(there):
            found.cpu()
        called(given)

    return call


@main.command()
@click.option("--every", default=40, show_default=True, help="Take one of so many cases of level standard.")
@click.option("--rounds", default=7, show_default=True, help="Rounds, of which the fastest counts.")
def calls(every: int, rounds: int) -> None:
    """Compare operator cases with bare calls, on one thread; exit with 1 if they take more than three times as long.

    A bare call runs on the device and on the CPU, in the same dtypes and strides, with copies to the device and back.
    A case includes all that its test does once its golden is read: inputs, stored results, fallback detection, the
    judge.
    """
    emulator.activate()
    from pytest_ascend.device.dispatcher import FallbackWatch
    from tests.meta.kernel_cases import STANDARD, complaint, emulated

    cases, sums = STANDARD[::every], dict[str, list[float]]()
    gc.freeze()  # as in the worker processes of a run: imported objects are not scanned again and again
    for case in cases:
        noted: list[tuple[Callable[..., Any], Any]] = []
        subject = emulated(case)
        of = subject.operator
        in_place = _noted(of.changes_first, noted) if of.in_place else False
        subject.operator = replace(of, function=_noted(of.function, noted), in_place=in_place)
        complaint(case, subject)
        ready = [_bare(function, given, subject.device) for function, given in noted]
        turns = []
        for _ in range(rounds):
            bare = least_s(lambda: [each() for each in ready], 1, clock=time.process_time)  # noqa: B023
            with FallbackWatch("npu"):
                turns.append((bare, least_s(lambda: complaint(case), 1, clock=time.process_time)))  # noqa: B023
        measured = (*map(min, zip(*turns, strict=True)), len(ready))
        for key in (case.property, "all"):
            sums[key] = [one + other for one, other in zip(sums.get(key, [0.0] * 3), measured, strict=True)]
    rows = [
        (key, f"{count:,.0f}", f"{bare / count * 1e6:.0f}", f"{whole / count * 1e6:.0f}", f"{whole / bare:.2f}")
        for key, (bare, whole, count) in sorted(sums.items(), key=lambda each: each[1])
        if count
    ]
    click.echo("\n".join(table(["property", "calls", "bare, µs", "in the suite, µs", "ratio"], rows)))
    sys.exit(sums["all"][1] / sums["all"][0] > 3.0)


# --- pages ---

#: Records, from the start, tasks that block the page for more than 50 ms.
_LONG_TASKS = """
window.longTasks = [];
new PerformanceObserver((list) => window.longTasks.push(...list.getEntries().map((each) => each.duration)))
  .observe({ type: "longtask", buffered: true });
"""
_FOUND = "() => /^\\d+ of/.test(document.querySelector('#found').textContent)"


def _in_the_browser(page: Path) -> Iterator[tuple[str, float, float, str]]:
    """Measure what opening a page from a file costs a running browser; yield nothing without a browser."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        return
    from playwright.sync_api import sync_playwright

    with sync_playwright() as it, it.chromium.launch(executable_path=browser, args=["--no-sandbox"]) as chromium:
        tab = chromium.new_page()
        tab.add_init_script(_LONG_TASKS)
        devtools = tab.context.new_cdp_session(tab)
        devtools.send("Performance.enable", {"timeDomain": "threadTicks"})

        def busy_s() -> float:
            metrics = devtools.send("Performance.getMetrics")["metrics"]
            return float(next(each["value"] for each in metrics if each["name"] == "TaskDuration"))

        tab.goto(page.as_uri(), wait_until="load")
        ready = tab.evaluate("performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd / 1e3")
        opened = busy_s()
        yield "page: interactive in Chromium (CPU of its thread)", opened, 0.5, "s"
        yield "page: interactive in Chromium (elapsed)", ready, 1.0, "s"
        yield "page: longest task while it opens", max(tab.evaluate("longTasks"), default=0.0) / 1e3, 0.5, "s"
        yield "page: elements", tab.evaluate("document.querySelectorAll('*').length"), 3_000, ""
        tab.fill("#find", "softmax backward float16")
        tab.wait_for_function(_FOUND)
        yield "page: searched in Chromium (CPU of its thread)", busy_s() - opened, 1.0, "s"


@main.command()
@click.option("--full", is_flag=True, help="22,000 cases and 200 runs; a tenth and a twentieth otherwise.")
def pages(*, full: bool) -> None:
    """Make and open the page of a synthetic run, and a matrix of runs; exit with 1 if a promised limit is exceeded."""
    from pytest_ascend.page import html
    from pytest_ascend.page.matrix import render_matrix, scan
    from pytest_ascend.runlog.writing import read
    from pytest_ascend.verdict.summary import ORDER, summarise
    from tests.unit.runlog import synthetic

    count, runs = (22_000, 200) if full else (2_200, 10)
    outcomes, os.fsync = ["passed"] * 40 + list(ORDER), lambda _: None  # no waiting for the disk
    figures: list[tuple[str, float, float, str]] = []

    def timed(name: str, promised: float, work: Callable[[], str]) -> str:
        start = time.process_time()
        text = work()
        figures.append((f"{name} (CPU)", time.process_time() - start, promised, "s"))
        figures.append((f"{name}: size", len(text.encode()) / 1e6, 6.0, "MB"))
        return text

    with tempfile.TemporaryDirectory() as folder:
        cases, logs = synthetic.op_cases(count), [Path(folder, f"{number}", "run.jsonl") for number in range(4)]
        for number, log in enumerate(logs):  # the matrix cycles through them
            synthetic.write_log(log, cases, outcomes=outcomes[number:], stack=synthetic.HARDWARE)
        page = Path(folder, "page.html")
        page.write_text(timed("page from its log", 6.6, lambda: html.render(summarise(read(logs[0])))), "utf-8")
        figures += _in_the_browser(page)
        timed(f"matrix of {runs} runs", 120.0, lambda: render_matrix(scan(logs[number % 4]) for number in range(runs)))
    rows = [(name, f"{found:.2f} {unit}", f"{promised:g} {unit}") for name, found, promised, unit in figures]
    click.echo("\n".join(table([f"{count:,} cases", "found", "promised of 22,000"], rows)))
    sys.exit(any(found > promised for _, found, promised, _ in figures))
