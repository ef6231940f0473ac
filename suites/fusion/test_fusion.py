"""Fused layers give the results of plain ones, in less time and with little more memory."""

from __future__ import annotations

import gc
import math
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from pytest_ascend.device import Device
from pytest_ascend.performance.timing import Call, Make, Rounds, one_thread, shares_the_host, timed
from pytest_ascend.performance.verdict import CONFIDENCE, Estimate, estimate, quantile
from pytest_ascend.records.case import Case, Measure
from pytest_ascend.records.verdict import HALVES, as_expected_of
from pytest_ascend.run.comparing import PrecisionCompare

from ..benchmarks.sizes import sizes_of
from . import FORMS, Form, drawn, numbers

#: Largest difference from the plain form, relative to its largest value; for half precision, eight roundings.
PRECISION_LOSS, PRECISION_LOSS_OF_HALVES = 1e-4, 8 * torch.finfo(torch.float16).eps
#: Least share of the plain form's time that fusing must save, and largest peak memory relative to the plain form's.
TIME_SAVED, MEMORY_RATIO = 0.3, 1.2
#: Degrees of freedom of an estimate's error, from eight blocks of rounds.
FREEDOM = 7


def precision_loss(fused: Tensor, plain: Tensor) -> float:
    """Return the difference of the fused from the plain form, relative to the latter's largest value; inf for NaN."""
    difference = (fused.double() - plain.double()).abs().max().item()
    return difference / plain.double().abs().max().item() if math.isfinite(difference) else math.inf


def saved(ratio: Estimate) -> tuple[float, float, float]:
    """Return the share of time saved, and the ends of its interval, with 95 % confidence on each side.

    ``ratio`` is the estimated time ratio of the fused to the plain form's rounds.
    """
    reach = quantile(CONFIDENCE, FREEDOM) * ratio.error
    return tuple(-math.expm1(ratio.value + by * reach) for by in (0, 1, -1))  # type: ignore[return-value]


def complaint_about_loss(loss: float) -> str:
    if loss <= PRECISION_LOSS:
        return ""
    message = f"the fused form is {loss:.2g} of the largest value off the plain one, {PRECISION_LOSS:g} allowed"
    return f"{message}; {as_expected_of([HALVES])}" if loss <= PRECISION_LOSS_OF_HALVES else message


def complaint_about_time(share: float, low: float, high: float) -> str:
    """Return a message if too little time is saved, or "" if enough is or the interval includes enough."""
    if high >= TIME_SAVED:
        return ""
    return f"fusing saves {share:.0%} of the time ({low:.0%} to {high:.0%}), {TIME_SAVED:.0%} expected"


def complaint_about_memory(fused_bytes: int, plain_bytes: int) -> str:
    if fused_bytes <= MEMORY_RATIO * plain_bytes:
        return ""
    ratio = fused_bytes / plain_bytes
    return f"the fused form takes {ratio:.2f} times the memory of the plain one, {MEMORY_RATIO:g} allowed"


#: Pairs of rounds before and during the timing of both forms.
WARM_ROUNDS, ROUNDS = 5, 40


@pytest.mark.ascend_cases("fusion", "precision")
def test_precision(
    case: Case, npu_device: torch.device, precision_compare: PrecisionCompare, ascend_measure: Measure
) -> None:
    fused, other, expected, runs = numbers(FORMS[case.subject], npu_device)
    loss = precision_loss(fused, other)
    ascend_measure("precision_loss", loss)
    precision_compare(fused, expected, reference_runs=runs, name=case.subject)
    assert not (complaint := complaint_about_loss(loss)), complaint


@pytest.mark.ascend_cases("fusion", "time")
def test_time(case: Case, _ascend_device: Device, benchmark: Any, ascend_measure: Measure) -> None:
    form, batch = FORMS[case.subject], sizes_of(_ascend_device).batch
    fused, other = (prepared(form, batch, each, _ascend_device.torch_device()) for each in (True, False))
    with one_thread(_ascend_device):
        share, low, high = saved(estimate(*_in_turn(fused, other, _ascend_device, benchmark)))
    for figure, value in (("time_saved_share", share), ("time_saved_low", low), ("time_saved_high", high)):
        ascend_measure(figure, value)
    _refuse_to_judge("time", _ascend_device)
    assert not (complaint := complaint_about_time(share, low, high)), complaint


@pytest.mark.ascend_cases("fusion", "memory")
def test_memory(case: Case, _ascend_device: Device, ascend_measure: Measure) -> None:
    """Measure the peak memory of both forms, with weights and input; only an NPU's is judged."""
    form, batch = FORMS[case.subject], sizes_of(_ascend_device).batch
    fused, other = (_peak_bytes(partial(prepared, form, batch, each), _ascend_device) for each in (True, False))
    if not other:
        raise NotImplementedError(f"measuring memory is not supported on {_ascend_device.label}")
    ascend_measure("peak_memory_fused_bytes", fused)
    ascend_measure("peak_memory_plain_bytes", other)
    ascend_measure("peak_memory_ratio", fused / other)
    _refuse_to_judge("memory", _ascend_device)
    assert not (complaint := complaint_about_memory(fused, other)), complaint


def _refuse_to_judge(what: str, device: Device) -> None:
    """Raise NotImplementedError if the host computes, as its measurements say nothing about an NPU."""
    if device.emulated:
        raise NotImplementedError(f"an NPU's {what} is not emulated: the figures are those of this machine's processor")
    if shares_the_host(device):
        raise NotImplementedError(f"judging {what} is not supported on {device.label}: the limits are an NPU's")


def prepared(form: Form, batch: int, fused: bool, device: torch.device) -> Call:
    layers, samples = drawn(form.pattern, batch)
    model, x = (form.fuse(layers) if fused else layers).to(device), samples.to(device)
    return torch.no_grad()(lambda: model(x))


def _in_turn(call: Call, other: Call, device: Device, benchmark: Any) -> tuple[list[float], list[float]]:
    """Return the times in us of rounds of ``call``, and of the round of ``other`` before each."""

    def waited_for() -> None:
        other()
        device.synchronize()

    rounds = Rounds(call=call, device=device, peer=waited_for)
    timed(rounds, rounds.run, WARM_ROUNDS)
    rounds.peers_us.clear()
    gc.collect()
    seconds = timed(rounds, rounds.run, ROUNDS, benchmark if benchmark.enabled else None)
    return [each * 1e6 for each in seconds], rounds.peers_us


def _peak_bytes(make: Make, device: Device) -> int:
    gc.collect()
    before = device.allocated_bytes()
    device.reset_peak_memory()
    make(device.torch_device())()
    device.synchronize()
    return max(0, device.peak_memory_bytes() - before)
