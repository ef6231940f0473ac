"""The proof of the precision judge: fairness, strictness and speed, beside other judges.

``python tools/judge.py`` prints the tables of ``docs/precision.md`` for a short set of situations;
``--full`` takes the thorough set (about ten minutes), ``--write`` puts the tables into the page.
Set ``TORCH_DEVICE_BACKEND_AUTOLOAD=0`` where torch_npu is installed without CANN.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import click
import judge_faults
import judge_situations
import numpy as np
import torch
from torch import Tensor

from pytest_ascend.precision import compare

#: Says whether a result is accepted: actual, expected, reference run, terms in each sum.
Judge: TypeAlias = Callable[[Tensor, Tensor, Tensor, int | None], bool]

PAGE = Path(__file__).parent.parent / "docs" / "precision.md"
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"


def _by_standard(name: str) -> Judge:
    return lambda actual, expected, reference_runs, _: (
        compare(actual, expected, reference_runs=reference_runs, standard=name).agrees
    )


def _ours(actual: Tensor, expected: Tensor, reference_runs: Tensor, terms: int | None) -> bool:
    return compare(actual, expected, reference_runs=reference_runs, accumulation=terms).agrees


def _raises(check: Callable[[], None]) -> bool:
    try:
        check()
    except AssertionError:
        return True
    return False


def _assert_close(actual: Tensor, expected: Tensor, _reference_runs: Tensor, _terms: int | None) -> bool:
    return not _raises(lambda: torch.testing.assert_close(actual, expected.to(actual.dtype), equal_nan=True))


def _allclose(actual: Tensor, expected: Tensor, _reference_runs: Tensor, _terms: int | None) -> bool:
    rtol = {torch.float32: 1e-6}.get(actual.dtype, 1e-3)
    ours, theirs = actual.double().numpy(), expected.numpy()
    return not _raises(lambda: np.testing.assert_allclose(ours, theirs, rtol=rtol, atol=1e-8))


JUDGES: dict[str, Judge] = {
    "error-model (ours)": _ours,
    "torch.testing.assert_close": _assert_close,
    "numpy assert_allclose (rtol 1e-6, 16 bits 1e-3; atol 1e-8)": _allclose,
    "mere-mare": _by_standard("mere-mare"),
    "mixed@2026-07": _by_standard("mixed@2026-07"),
    "mixed@current": _by_standard("mixed@current"),
    "benchmark-ratio-L1": _by_standard("benchmark-ratio-L1"),
    "ulp (msprobe)": _by_standard("ulp"),
    "thousandth (msprobe)": _by_standard("thousandth"),
}


def fairness(thorough: bool) -> tuple[int, Counter[str]]:
    """Return the number of correct situations, and how many each judge rejects."""
    alarms: Counter[str] = Counter(dict.fromkeys(JUDGES, 0))
    count = 0
    for count, each in enumerate(judge_situations.situations(thorough), 1):  # noqa: B007  (the last is the total)
        for name, judge in JUDGES.items():
            accepted = judge(each.actual, each.expected, each.reference_runs, each.accumulation)
            alarms[name] += not accepted
            if not accepted and judge is _ours:
                click.echo(f"false alarm: {each.name}", err=True)
    return count, alarms


def strictness() -> tuple[int, Counter[str], list[tuple[str, str, dict[str, str]]]]:
    """Return the number of faults that must be seen, how many each judge sees, and the smallest size that it sees."""
    bases = judge_faults.bases()
    seen: Counter[str] = Counter(dict.fromkeys(JUDGES, 0))
    rows, total = [], 0
    for fault in judge_faults.FAULTS:
        base = bases[fault.base]
        smallest: dict[str, str] = {}
        for size, spoilt in judge_faults.spoilt(fault, base):
            counts = judge_faults.must_be_seen(fault, size)
            total += counts
            for name, judge in JUDGES.items():
                if not judge(spoilt, base.expected, base.reference_runs, base.accumulation):
                    seen[name] += counts
                    smallest[name] = "yes" if len(fault.sizes) == 1 else f"{size:g}"
        rows.append((fault.name, fault.base, smallest))
    return total, seen, rows


def speed(elements: int) -> Iterator[str]:
    """Time both judges in turns, on two matching float32 tensors; return the best and the memory above the inputs."""
    actual = torch.randn(elements)
    expected = actual + 1e-7 * torch.randn(elements)
    theirs, ours = (float("inf"), 0.0), (float("inf"), 0.0)
    for _ in range(4):
        theirs = _better(theirs, _measured(lambda: torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)))
        ours = _better(ours, _measured(lambda: compare(actual, expected)))
    memory = f"{theirs[1]:.0f} MiB | {ours[1]:.0f} MiB"
    yield f"| {elements:.0e} float32 that differ by some ulp | {ours[0] / theirs[0]:.2f} | {memory} |"


def _better(one: tuple[float, float], other: tuple[float, float]) -> tuple[float, float]:
    return min(one[0], other[0]), max(one[1], other[1])


def small_speed() -> Iterator[str]:
    """Time both on ten elements, in turns, each on the same task; a reference run is a second comparison for both."""
    torch.manual_seed(0)
    actual = torch.randn(10)
    close, wide, scaled = actual + 1e-7 * torch.randn(10), 1.1 * actual.double(), 1.1 * actual
    usual = torch.testing.assert_close
    tasks: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
        "that are equal": (lambda: compare(actual, actual.clone()), lambda: usual(actual, actual.clone())),
        "that differ by some ulp": (lambda: compare(close, actual), lambda: usual(close, actual)),
        "beside a float64 reference": (
            lambda: compare(scaled, wide),
            lambda: usual(scaled, wide.to(scaled.dtype)),
        ),
        "and 10 of a reference run beside one": (
            lambda: compare(scaled, wide, reference_runs=scaled),
            lambda: (usual(scaled, wide.to(scaled.dtype)), usual(scaled, wide.to(scaled.dtype))),
        ),
    }
    for name, (task, peer) in tasks.items():
        theirs, ours = float("inf"), float("inf")
        for _ in range(9):
            theirs = min(theirs, _cpu_seconds(peer))
            ours = min(ours, _cpu_seconds(task))
        yield f"| 10 {name} | {ours / theirs:.1f} | | |"


def _cpu_seconds(task: Callable[[], object], times: int = 200) -> float:
    start = time.thread_time()
    for _ in range(times):
        task()
    return (time.thread_time() - start) / times


def _measured(task: Callable[[], object]) -> tuple[float, float]:
    """Return seconds, and how far resident memory rose (MiB)."""
    over, peak, base = threading.Event(), [_resident_mib()], _resident_mib()

    def watch() -> None:
        while not over.wait(0.002):
            peak[0] = max(peak[0], _resident_mib())

    watcher = threading.Thread(target=watch)
    watcher.start()
    start = time.perf_counter()
    task()
    taken = time.perf_counter() - start
    over.set()
    watcher.join()
    return taken, peak[0] - base


def _resident_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def tables(thorough: bool, elements: int) -> Iterator[str]:
    """Yield the lines of the measured part of the page."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # many small tensors: threads would only wait for each other
    count, alarms = fairness(thorough)
    total, seen, rows = strictness()
    torch.set_num_threads(threads)
    yield f"| judge | of {count} correct results rejected | of {total} faults seen |"
    yield "|---|---|---|"
    for name in JUDGES:
        yield f"| {name} | {alarms[name]} | {seen[name]} |"
    yield ""
    shown = ("error-model (ours)", "torch.testing.assert_close", "mere-mare", "mixed@current", "benchmark-ratio-L1")
    yield f"| fault: smallest size seen | of | {' | '.join(shown)} |"
    yield "|---|---|" + "---|" * len(shown)
    for fault, base, smallest in rows:
        yield f"| {fault} | {base} | {' | '.join(smallest.get(name, 'no') for name in shown)} |"
    yield ""
    yield "| elements | time as a multiple of assert_close's | memory above the inputs: assert_close | ours |"
    yield "|---|---|---|---|"
    yield from small_speed()
    yield from speed(elements)


def write(lines: list[str], page: Path) -> None:
    """Replace the measured part of the page."""
    text = page.read_text(encoding="utf-8")
    head, rest = text.split(BEGIN)
    beside = page.with_suffix(".new")
    beside.write_text(f"{head}{BEGIN}\n\n" + "\n".join(lines) + f"\n\n{END}{rest.split(END)[1]}", encoding="utf-8")
    beside.replace(page)


@click.command(help=__doc__)
@click.option("--full", is_flag=True, help="The thorough set of situations.")
@click.option("--write", "is_written", is_flag=True, help="Put the tables into docs/precision.md.")
@click.option("--elements", default=100_000_000, help="Size of the tensors whose comparison is timed.")
def main(full: bool, is_written: bool, elements: int) -> None:
    """Measure, print, and write where asked to."""
    lines = list(tables(full, elements))
    click.echo("\n".join(lines))
    if is_written:
        write(lines, PAGE)


if __name__ == "__main__":
    main()
