"""Random numbers: correctly distributed in every block, equal for equal seeds, different on the next call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
import torch

from pytest_ascend.operators.operator import HALVES
from pytest_ascend.precision import Samples
from pytest_ascend.records.case import Case, Measure
from pytest_ascend.run import inputs
from pytest_ascend.run.comparing import PrecisionCompare

from .batteries import BATTERIES
from .drawings import COUNT, COUNT_IN_16_BITS, DRAWINGS, MASKED, attend, composed, given, unwritten
from .statistics import FALSE_ALARM, judge, repeated, worst_of

_BY_NAME = {drawing.name: drawing for drawing in DRAWINGS}


def drawn(case: Case, device: torch.device) -> torch.Tensor:
    """Draw, and copy to the CPU. Memory for the result is filled with an impossible value beforehand."""
    junk = unwritten((COUNT_IN_16_BITS if case.dtype in HALVES else COUNT,), case.dtype, device)
    target = junk.clone()
    del junk
    return _BY_NAME[case.subject].draw(target).detach().cpu()


@pytest.mark.ascend_cases("random", "distribution")
def test_distribution(case: Case, npu_device: torch.device, ascend_measure: Measure) -> None:
    torch.manual_seed(2024)
    distribution, values = _BY_NAME[case.subject].distribution, drawn(case, npu_device).flatten()
    impossible = (~distribution.possible(values)).nonzero().flatten()
    if len(impossible):
        first = int(impossible[0])
        pytest.fail(f"{len(impossible)} elements cannot be drawn; element {first} is {values[first].item()}")
    if finding := repeated(values):
        pytest.fail(f"{case.subject}: {finding}")
    worst = judge(distribution.cell(values), distribution.probabilities)
    ascend_measure("p_value_corrected", worst.probability)
    if worst.probability < FALSE_ALARM:
        pytest.fail(f"not the distribution of {case.subject}: {worst.what}, probability {worst.probability:.1e}")


@pytest.mark.ascend_cases("random", "battery")
def test_battery(case: Case, npu_device: torch.device, ascend_measure: Measure) -> None:
    torch.manual_seed(2025)
    found = list(BATTERIES[case.subject][1](npu_device))
    impossible = [each for each in found if isinstance(each, str)]
    assert not impossible, "; ".join(impossible)
    worst = worst_of([each for each in found if not isinstance(each, str)])
    ascend_measure("p_value_corrected", worst.probability)
    if worst.probability < FALSE_ALARM:
        pytest.fail(f"{case.subject}: {worst.what}: probability {worst.probability:.1e}")


@pytest.mark.ascend_cases("random", "seed")
def test_seed(case: Case, npu_device: torch.device, precision_compare: PrecisionCompare) -> None:
    torch.manual_seed(7)
    first, second = drawn(case, npu_device), drawn(case, npu_device)
    torch.manual_seed(7)
    again = drawn(case, npu_device)
    torch.manual_seed(8)
    other = drawn(case, npu_device)
    precision_compare(again, first, standard="binary", name=f"{case.subject}, seeded alike")
    assert not torch.equal(first, second), f"{case.subject}: two calls after one seed give the same numbers"
    assert not torch.equal(first, other), f"{case.subject}: another seed gives the same numbers"


@pytest.mark.ascend_cases("random", "state")
def test_state(case: Case, npu_device: torch.device, precision_compare: PrecisionCompare) -> None:
    torch.manual_seed(9)
    drawn(case, npu_device)
    module: Any = torch.random if npu_device.type == "cpu" else getattr(torch, npu_device.type)
    which = () if npu_device.type == "cpu" else (npu_device,)
    kept = module.get_rng_state(*which)
    first = [drawn(case, npu_device) for _ in range(2)]
    module.set_rng_state(kept, *which)
    with torch.random.fork_rng(
        [npu_device.index or 0 for _ in which], device_type=npu_device.type if which else "cuda"
    ):
        torch.manual_seed(10)
        drawn(case, npu_device)
    again = [drawn(case, npu_device) for _ in range(2)]
    precision_compare(again, first, standard="binary", name=f"{case.subject}, from a state that was kept")


@pytest.mark.ascend_cases("random", "backward")
def test_backward(case: Case, npu_device: torch.device, precision_compare: PrecisionCompare) -> None:
    """Check attention with dropout and its gradients for the weights that the result shows as kept."""
    torch.manual_seed(10)
    x = given(getattr(torch, case.dtype))
    above = inputs.uniform("random/attention/above", x[0].shape, dtype=x[0].dtype)
    drop = partial(attend, is_masked=MASKED[case.subject])
    actual = _forward_and_backward(drop, [each.to(npu_device) for each in x], above.to(npu_device))
    known = partial(composed, is_kept=actual["result"] != 0)
    exact = _forward_and_backward(known, [each.double() for each in x], above.double())
    in_dtype = _forward_and_backward(known, x, above)
    precision_compare(actual, exact, reference_runs=Samples([in_dtype]), name=case.subject)


def _forward_and_backward(
    function: Callable[..., torch.Tensor], given: Sequence[torch.Tensor], above: torch.Tensor
) -> dict[str, torch.Tensor]:
    leaves = [each.clone().requires_grad_() for each in given]
    result = function(*leaves)
    named = zip(("query", "key", "value"), torch.autograd.grad(result, leaves, above), strict=True)
    return {"result": result.detach().cpu(), **{f"gradient of the {name}": each.cpu() for name, each in named}}
