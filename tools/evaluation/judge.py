"""The precision judge compared with others: correct results rejected, planted errors detected, time and memory."""

from __future__ import annotations

import resource
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TypeAlias

import click
import numpy as np
import torch
from torch import Tensor
from torch.testing import assert_close

from pytest_ascend.precision import compare
from tests.meta import correct_results, planted_errors

from .support import least_s, show, table

#: Returns whether a result is accepted, from: actual, expected, reference run, terms in each sum.
Judge: TypeAlias = Callable[[Tensor, Tensor, Tensor, int | None], bool]
OURS = "error-model (ours)"


def _by_standard(name: str) -> Judge:
    return lambda a, e, reference, _: compare(a, e, reference_runs=reference, standard=name).agrees


def _accepts(check: Callable[[], None]) -> bool:
    try:
        check()
    except AssertionError:
        return False
    return True


def _allclose(a: Tensor, e: Tensor, *_: object) -> bool:
    rtol = 1e-6 if a.dtype is torch.float32 else 1e-3
    return _accepts(lambda: np.testing.assert_allclose(a.double().numpy(), e.numpy(), rtol=rtol, atol=1e-8))


JUDGES: dict[str, Judge] = {
    OURS: lambda a, e, reference, terms: compare(a, e, reference_runs=reference, accumulation=terms).agrees,
    "torch.testing.assert_close": lambda a, e, *_: _accepts(lambda: assert_close(a, e.to(a.dtype), equal_nan=True)),
    "numpy assert_allclose (rtol 1e-6, 16 bits 1e-3; atol 1e-8)": _allclose,
    **{name: _by_standard(name) for name in ("mere-mare", "mixed@2026-07", "mixed@current", "benchmark-ratio-L1")},
    "ulp (msprobe)": _by_standard("ulp"),
    "thousandth (msprobe)": _by_standard("thousandth"),
}
SHOWN = (OURS, "torch.testing.assert_close", "mere-mare", "mixed@current", "benchmark-ratio-L1")


def fairness(thorough: bool) -> tuple[int, Counter[str]]:
    """Return the number of correct situations, and how many each judge rejects."""
    alarms, count = Counter[str](), 0
    for count, each in enumerate(correct_results.situations(thorough), 1):  # noqa: B007  (the last is the total)
        for name, judge in JUDGES.items():
            if not judge(each.actual, each.expected, each.reference_runs, each.accumulation):
                alarms[name] += 1
                click.echo(f"{name} rejects {each.name}", err=True) if name == OURS else None
    return count, alarms


def strictness() -> tuple[int, Counter[str], list[tuple[str, ...]]]:
    """Return the number of errors to detect, how many each judge detects, and rows with the smallest size detected."""
    bases, seen, rows, total = planted_errors.bases(), Counter[str](), list[tuple[str, ...]](), 0
    for fault in planted_errors.FAULTS:
        base, smallest = bases[fault.base], dict.fromkeys(JUDGES, "no")
        for size, spoilt in planted_errors.spoilt(fault, base):
            counts = planted_errors.must_be_seen(fault, size)
            total += counts
            for name, judge in JUDGES.items():
                if not judge(spoilt, base.expected, base.reference_runs, base.accumulation):
                    seen[name] += counts
                    smallest[name] = "yes" if len(fault.sizes) == 1 else f"{size:g}"
        rows.append((fault.name, fault.base, *(smallest[name] for name in SHOWN)))
    return total, seen, rows


def large_speed(elements: int) -> Iterator[tuple[str, ...]]:
    """Time both alternately on two similar float32 tensors: the best time, and the memory above the inputs."""
    actual = torch.randn(elements)
    expected = actual + 1e-7 * torch.randn(elements)
    tasks = (partial(assert_close, actual, expected, rtol=1e-5, atol=1e-5), partial(compare, actual, expected))
    turns = [[_measured(task) for task in tasks] for _ in range(4)]
    (theirs, their_mib), (ours, our_mib) = (
        (min(each[0] for each in found), max(each[1] for each in found)) for found in zip(*turns, strict=True)
    )
    name = f"{elements:.0e} float32 that differ by some ulp"
    yield name, f"{ours / theirs:.2f}", f"{their_mib:.0f} MiB", f"{our_mib:.0f} MiB"


def small_speed() -> Iterator[tuple[str, ...]]:
    """Time both alternately on ten elements, with the same task; a reference run is a second comparison for both."""
    torch.manual_seed(0)
    actual = torch.randn(10)
    close, wide, scaled = actual + 1e-7 * torch.randn(10), 1.1 * actual.double(), 1.1 * actual
    peer = lambda: assert_close(scaled, wide.to(scaled.dtype))  # noqa: E731
    tasks: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
        "that are equal": (lambda: compare(actual, actual.clone()), lambda: assert_close(actual, actual.clone())),
        "that differ by some ulp": (lambda: compare(close, actual), lambda: assert_close(close, actual)),
        "beside a float64 reference": (lambda: compare(scaled, wide), peer),
        "and 10 of a reference run beside one": (
            lambda: compare(scaled, wide, reference_runs=scaled),
            lambda: (peer(), peer()),
        ),
    }
    for name, both in tasks.items():
        turns = [[least_s(task, 1, 200, time.thread_time) for task in both] for _ in range(9)]
        ours, theirs = map(min, zip(*turns, strict=True))
        yield f"10 {name}", f"{ours / theirs:.1f}", "", ""


def _measured(task: Callable[[], object]) -> tuple[float, float]:
    """Return seconds, and the increase of peak resident memory (MiB)."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # Linux resets the peak
    base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    taken = least_s(task, 1)
    return taken, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - base) / 2**10


@click.command(help=__doc__)
@click.option("--full", is_flag=True, help="The thorough set of correct results: about ten minutes.")
@click.option("--elements", default=100_000_000, show_default=True, help="Size of the tensors that are timed.")
@click.option("--write", "is_written", is_flag=True, help="Put the tables into docs/evaluation/judge.md.")
def main(full: bool, elements: int, *, is_written: bool) -> None:
    """Measure, print, and write if requested."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # many small tensors: threads would only wait for each other
    count, alarms = fairness(full)
    total, seen, rows = strictness()
    torch.set_num_threads(threads)
    heads = ("judge", f"of {count} correct results rejected", f"of {total} errors seen")
    lines = [*table(heads, [(name, alarms[name], seen[name]) for name in JUDGES]), ""]
    lines += [*table(("error: smallest size seen", "of", *SHOWN), rows), ""]
    heads = ("elements", "time as a multiple of assert_close's", "memory above the inputs: assert_close", "ours")
    lines += table(heads, [*small_speed(), *large_speed(elements)])
    show(lines, "judge", "judge", is_written=is_written)
