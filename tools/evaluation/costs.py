"""What pytest-ascend costs, beside the same work without it in the same run: time, memory and sizes."""

from __future__ import annotations

import functools
import gc
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import click
import torch
from rich.console import Console
from rich.table import Table

from pytest_ascend import emulator

from .support import least_s, run_suite


@click.group(help=__doc__)
def main() -> None:
    """Choose what is measured."""


def _show(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    table = Table(*heads)
    for row in rows:
        table.add_row(*row)
    Console().print(table)


# --- the timing of benchmarks ---

ROUNDS, TURNS, BUDGET_S = 2000, 5, 1.0
#: Side of the square matrices of a product that takes about 1 ms.
SIDE = 384
TEST = f"""
import json, torch
torch.set_num_threads(1)
def test_product(benchmark):
    x = torch.ones({SIDE}, {SIDE})
    benchmark(lambda: x @ x)
    print("MEDIAN", benchmark.stats.stats.median)
"""


def _pytest_benchmarks_s() -> float:
    """Return the median of pytest-benchmark alone, in a process of its own."""
    with tempfile.TemporaryDirectory() as name:
        test = Path(name, "test_product.py")
        test.write_text(TEST, encoding="utf-8")
        command = [sys.executable, "-m", "pytest", "-qs", "-p", "no:ascend", str(test)]
        done = subprocess.run(command, cwd=name, capture_output=True, text=True, check=True)  # noqa: S603
        return float(done.stdout.partition("MEDIAN ")[2].split()[0])


@main.command()
def timing() -> None:
    """Time a round beside the bare call, and compare medians with torch.utils.benchmark and pytest-benchmark."""
    from torch.utils.benchmark import Timer

    from pytest_ascend.device.cpu_and_cuda import Cpu
    from pytest_ascend.performance.timing import Rounds, plain, time_rounds

    torch.set_num_threads(1)
    rounds, x = Rounds(call=lambda: None, device=Cpu()), torch.ones(SIDE, SIDE)

    def bare() -> float:
        return median(least_s(rounds.call, 1) for _ in range(ROUNDS))

    more = min(median(plain(rounds, rounds.run, ROUNDS)) for _ in range(TURNS)) - min(bare() for _ in range(TURNS))
    click.echo(f"a round costs {more * 1e6:.2f} us beside the call")
    timer = Timer("call()", globals={"call": lambda: x @ x}, num_threads=1)
    measures: dict[str, Callable[[], float]] = {
        "ascend_benchmark": lambda: (
            median(time_rounds(lambda _: lambda: x @ x, Cpu(), budget_s=BUDGET_S).latencies_us) / 1e6
        ),
        "torch.utils.benchmark": lambda: timer.blocked_autorange(min_run_time=BUDGET_S).median,
        "pytest-benchmark": _pytest_benchmarks_s,
    }
    found: dict[str, list[float]] = {name: [] for name in measures}
    for _ in range(TURNS):
        for name, measure in measures.items():
            found[name].append(measure())
    heads = [f"product of {SIDE}x{SIDE}, median of", *(f"turn {turn} us" for turn in range(1, TURNS + 1))]
    _show(heads, [(name, *(f"{each * 1e6:.0f}" for each in times)) for name, times in found.items()])


# --- child processes ---


@main.command()
@click.option("--rounds", default=2, show_default=True)
@click.option("-k", "keyword", default="", help="As pytest has it.")
@click.option("--level", default="standard", show_default=True)
def isolation(rounds: int, keyword: str, level: str) -> None:
    """Compare a run with child processes with one without, by CPU time; exit with 1 above 10 %."""

    def cpu_s(mode: str) -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        with tempfile.TemporaryDirectory() as folder:
            run_suite(Path(folder), "-k", keyword, f"--ascend-isolation={mode}", f"--ascend-level={level}")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    found: dict[str, list[float]] = {"off": [], "on": []}
    for _ in range(rounds):
        for mode, times in found.items():
            times.append(cpu_s(mode))
            click.echo(f"isolation {mode}: {times[-1]:.1f} s of CPU time")
    share = min(found["on"]) / min(found["off"]) - 1
    click.echo(f"isolation costs {share:+.1%}")
    sys.exit(share > 0.10)


# --- the emulated device ---


def _training_step(device: str) -> Callable[[], None]:
    """Return one SGD step of ResNet50, batch 4, on a device."""
    from suites.models.architectures import ResNet50

    torch.manual_seed(0)
    model = ResNet50().to(device).train()
    images, labels = torch.randn(4, 3, 224, 224).to(device), torch.arange(4).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    def step() -> None:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()
        if device != "cpu":
            torch.npu.synchronize()

    return step


@main.command()
def emulation() -> None:
    """Compare small operators and a training step of ResNet50 on the emulated device with the CPU."""
    emulator.activate()
    import torch_npu  # noqa: F401

    from pytest_ascend.emulator import dispatch

    seconds, call_of = [], dispatch.call_of

    def watched(*given: Any) -> tuple[Callable[..., Any], Callable[..., None]]:
        read, compute = call_of(*given)

        def reading(*words: int) -> Any:
            seconds.append(-time.perf_counter())
            return read(*words)

        def computing(*given: Any) -> None:
            compute(*given)
            seconds[-1] += time.perf_counter()

        return reading, computing

    dispatch.call_of = watched  # before the first operator
    x, y = torch.randn(4, 4), torch.randn(4, 4)
    operators: dict[str, Callable[..., object]] = {
        "add": torch.add, "mul": torch.mul, "relu": lambda a, _: torch.relu(a), "add_": lambda a, b: a.add_(b),
    }  # fmt: skip
    rows = []
    for name, function in operators.items():
        cpu, npu = (
            least_s(functools.partial(function, *given), 15, 2000) * 1e6 for given in ((x, y), (x.npu(), y.npu()))
        )
        rows.append((name, f"{cpu:.1f}", f"{npu:.1f}", f"{npu - cpu:.1f}"))
    _show(["operator on 4x4 float32", "CPU us", "emulated us", "more us"], rows)
    inside = sum(seconds) / len(seconds) * 1e6
    click.echo(f"of which in Python, from the arguments' words to the written result: {inside:.1f} us a call")
    steps = {device: _training_step(device) for device in ("cpu", "npu")}
    turns = [{device: least_s(step, 1) for device, step in steps.items()} for _ in range(5)]
    cpu, npu = (min(turn[device] for turn in turns[1:]) for device in steps)
    click.echo(f"ResNet50 training step, batch 4: CPU {cpu:.2f} s, emulated {npu:.2f} s, ratio {npu / cpu:.2f}")


# --- a call in the operator suite ---


def _memory(tensor: torch.Tensor) -> torch.Tensor:
    """Return all memory that a tensor lies in, which is what has to be copied."""
    return tensor.detach().as_strided((tensor.untyped_storage().nbytes() // tensor.element_size(),), (1,), 0)


def _placed(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    there = _memory(tensor).to(device, copy=True).as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())
    return there.requires_grad_(tensor.requires_grad)


@dataclass(frozen=True, slots=True)
class Noted:
    """A function that notes its calls on a device, with tensors on the CPU in the same strides."""

    function: Callable[..., Any]
    calls: list[tuple[Callable[..., Any], Any]]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call, and note with what, unless it is refused."""
        from pytest_ascend.operators.calling import on_tensors, tensors

        is_on_device = any(each.device.type == "npu" for each in tensors((args, kwargs)))
        given = on_tensors(lambda each: _placed(each, torch.device("cpu")), (args, kwargs)) if is_on_device else None
        found = self.function(*args, **kwargs)
        if given:
            self.calls.append((self.function, given))
        return found


def _bare(function: Callable[..., Any], given: Any, device: torch.device) -> Callable[[], None]:
    """Return a call without anything around it: copies, both sides, and the results brought back."""
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
    """Compare cases of operators with their calls made bare, on one thread; exit with 1 above three times as long.

    Bare is a call on the device and on the CPU, in the same dtypes and strides, with the copies to the device and back.
    The case is all that its test does, once its golden is read: inputs, stored results, the watch for fallbacks, the
    judge.
    """
    emulator.activate()
    from pytest_ascend.device.fallback import FallbackWatch
    from tests.meta.kernel_cases import STANDARD, complaint, emulated

    cases, sums = STANDARD[::every], dict[str, list[float]]()
    gc.freeze()  # as it is in the processes of a run: what was imported is not looked at again and again
    for case in cases:
        noted: list[tuple[Callable[..., Any], Any]] = []
        subject = emulated(case)
        of = subject.operator
        in_place = Noted(of.changes_first, noted) if of.in_place else False
        subject.operator = replace(of, function=Noted(of.function, noted), in_place=in_place)
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
    _show(["property", "calls", "bare, µs", "in the suite, µs", "ratio"], rows)
    sys.exit(sums["all"][1] / sums["all"][0] > 3.0)


# --- pages ---

#: Watches from the beginning for work that keeps a page from answering for more than 50 ms.
_LONG_TASKS = """
window.longTasks = [];
new PerformanceObserver((list) => window.longTasks.push(...list.getEntries().map((each) => each.duration)))
  .observe({ type: "longtask", buffered: true });
"""
_FOUND = "() => /^\\d+ of/.test(document.querySelector('#found').textContent)"


def _in_the_browser(page: Path) -> Iterator[tuple[str, float, float, str]]:
    """Measure what opening a page from its file costs a running browser; nothing where there is none."""
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
    """Make and open the page of a synthetic run, and a matrix of runs; exit with 1 where a promise is not kept."""
    from pytest_ascend.page import html
    from pytest_ascend.page.matrix import render_matrix, scan
    from pytest_ascend.runlog.writing import read
    from pytest_ascend.verdict.summary import ORDER, summarise
    from tests.unit.runlog import synthetic

    count, runs = (22_000, 200) if full else (2_200, 10)
    outcomes, os.fsync = ["passed"] * 40 + list(ORDER), lambda _: None  # nobody waits for the disk
    figures: list[tuple[str, float, float, str]] = []

    def timed(name: str, promised: float, work: Callable[[], str]) -> str:
        start = time.process_time()
        text = work()
        figures.append((f"{name} (CPU)", time.process_time() - start, promised, "s"))
        figures.append((f"{name}: size", len(text.encode()) / 1e6, 6.0, "MB"))
        return text

    with tempfile.TemporaryDirectory() as folder:
        cases, logs = synthetic.op_cases(count), [Path(folder, f"{number}", "run.jsonl") for number in range(4)]
        for number, log in enumerate(logs):  # the runs of the matrix take turns with them
            synthetic.write_log(log, cases, outcomes=outcomes[number:], stack=synthetic.HARDWARE)
        page = Path(folder, "page.html")
        page.write_text(timed("page from its log", 6.6, lambda: html.render(summarise(read(logs[0])))), "utf-8")
        figures += _in_the_browser(page)
        timed(f"matrix of {runs} runs", 120.0, lambda: render_matrix(scan(logs[number % 4]) for number in range(runs)))
    rows = [(name, f"{found:.2f} {unit}", f"{promised:g} {unit}") for name, found, promised, unit in figures]
    _show([f"{count:,} cases", "found", "promised of 22,000"], rows)
    sys.exit(any(found > promised for _, found, promised, _ in figures))
