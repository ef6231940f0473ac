"""Each property that operators are asked for sees what is wrong with an operator there, and accuses no right one.

The operators and goldens are those of the suite, the device is the CPU, and the fault is a function in the place of
PyTorch's: so each property is shown to look at what the device made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch

from pytest_ascend.coverage import manifest
from pytest_ascend.golden import GoldenStore
from pytest_ascend.golden.commands import reproducible
from pytest_ascend.operators.checks import CHECKS, check
from pytest_ascend.operators.exploring import FOUND
from pytest_ascend.operators.operator import FLOATS, HALVES
from pytest_ascend.operators.reference import StoredGolden
from pytest_ascend.operators.sweep import CALLS, SweepReference
from pytest_ascend.operators.target import Target
from pytest_ascend.records.case import Case
from pytest_ascend.run.comparing import Disagreement, PrecisionCompare
from pytest_ascend.system.bundled import folder
from suites.ops.table import OPERATORS

T = torch.Tensor
Function = Callable[..., Any]

STORE = GoldenStore(folder("baselines") / "golden")
#: Operator, property and dtype of each case that is judged here, right and wrong.
CASES = {case.id: case for case in manifest.load(folder("suites")) if case.suite == "ops"}


@pytest.fixture(autouse=True)
def as_goldens_are_made() -> Iterator[None]:
    with reproducible():
        yield


def judged(case_id: str, **wrong: Function) -> None:
    case: Case = CASES[case_id]
    right = OPERATORS[case.subject]
    swept = case.property in CALLS
    reference = SweepReference.of(right, case.dtype, CALLS[case.property]) if swept else StoredGolden(right, STORE)
    target = Target(case, replace(right, **wrong), reference, torch.device("cpu"))
    check(target, PrecisionCompare(lambda _: None))


# --- out= ---


def first_doubled(x: T, *, out: T) -> T:
    torch.sigmoid(x, out=out)
    out.view(-1)[:1].mul_(2) if out.is_contiguous() else None
    return out


def last_forgotten(x: T, *, out: T) -> T:
    found = torch.sigmoid(x)
    if not out.numel():
        out.resize_(x.shape)
    left = out[(-1,) * out.dim()].clone() if out.numel() else None
    out.copy_(found)
    if left is not None:
        out[(-1,) * out.dim()] = left
    return out


def only_into_gaps_wrongly(x: T, *, out: T) -> T:
    """Right, but for a view with gaps, which it takes for dense."""
    if out.numel() and not out.is_contiguous():
        torch.as_strided(out, x.shape, torch.empty(x.shape, device="meta").stride()).copy_(torch.sigmoid(x))
        return out
    return torch.sigmoid(x, out=out)


def beside_the_view(x: T, *, out: T) -> T:
    if out.numel():
        torch.empty(0, dtype=out.dtype).set_(out.untyped_storage()).zero_()
    return torch.sigmoid(x, out=out)


def another_tensor(x: T, *, out: T) -> T:
    return torch.sigmoid(x, out=out).clone()


def not_resized(x: T, *, out: T) -> T:
    return torch.sigmoid(x, out=out) if out.numel() else out


# --- layouts and gradients ---


def dense(x: T) -> T:
    return torch.as_strided(x, x.shape, torch.empty(x.shape, device="meta").stride(), x.storage_offset())


class Tanh(torch.autograd.Function):
    """Right on the way there; on the way back it reads gradients in the order of memory."""

    @staticmethod
    def forward(ctx: Any, x: T) -> T:
        ctx.save_for_backward(found := torch.tanh(x))
        return found

    @staticmethod
    def backward(ctx: Any, grad_outputs: T) -> T:
        (found,) = ctx.saved_tensors
        return dense(grad_outputs) * (1 - found * found)


class TanhOfStepped(Tanh):
    """Wrong in one gradient, and only where the incoming one is neither dense nor transposed."""

    @staticmethod
    def backward(ctx: Any, grad_outputs: T) -> T:
        (found,) = ctx.saved_tensors
        gradient = grad_outputs * (1 - found * found)
        if grad_outputs.numel() and 1 not in grad_outputs.stride():
            gradient[(0,) * gradient.dim()] += 0.5
        return gradient


def halved_on_the_way_back(x: T) -> T:
    found = torch.tanh(x)
    return found / 2 + (found / 2).detach()


# --- values ---


def in_the_first_dtype(x: Any, y: Any, **named: Any) -> T:
    right = torch.add(x, y, **named)
    return right.to(x.dtype) if isinstance(x, T) else right


def off_in_mixed_dtypes(x: Any, y: Any, **named: Any) -> T:
    right = torch.add(x, y, **named)
    mixed = isinstance(x, T) and isinstance(y, T) and x.dtype != y.dtype
    return right + right.abs().to(right.dtype) if mixed and right.dtype is not torch.bool else right


def tail_is_zero(x: T) -> T:
    found = torch.tanh(x)
    if found.numel() > 16 and found.numel() % 16:
        found = found.clone(memory_format=torch.contiguous_format)
        found.view(-1)[-1] = 0
    return found


def not_broadcast(x: T, y: T, **named: Any) -> T:
    if isinstance(y, T) and y.numel() < x.numel():
        y = y.reshape(-1)[:1]
    return torch.add(x, y, **named)


class Remembers:
    """Gives another last bit when it is called again."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, x: T) -> T:
        self.calls += 1
        found = torch.tanh(x)
        return torch.nextafter(found, torch.zeros_like(found)) if self.calls % 2 else found


class ChangesWhatItIsGiven:
    """Gives the same twice, and has changed its input when it is done."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, x: T) -> T:
        self.calls += 1
        found = torch.tanh(x)
        if self.calls % 2 == 0:
            x.detach().zero_()
        return found


# --- sums ---


def loses_a_term(x: T, y: T) -> T:
    place = 2 * x.shape[-1] // 3
    return x @ y.index_fill(0, torch.tensor(place, device=y.device), 0)


def without_its_tail(x: T, y: T) -> T:
    whole = max(x.shape[-1] // 16 * 16, 1)
    return x[..., :whole] @ y[:whole]


def summed_in_its_dtype(of: Function, x: T, **named: Any) -> T:
    """Sixteen terms at a time, as a kernel that keeps its sum in half precision."""
    if x.shape[-1] < 1000:
        return of(x, **named)
    found = torch.zeros_like(x[..., 0])
    for part in torch.split(x, 16, -1):
        found = found + part.float().sum(-1).to(x.dtype)
    return found / (x.shape[-1] if of is torch.mean else 1) + 0 * of(x, **named)


def overwritten(x: T, dim: int, index: T, source: T, **_: Any) -> T:
    return x.index_copy(dim, index, source)


# --- in place ---


def of_another_tensor(x: T, y: Any, **named: Any) -> T:
    return torch.add(x, y, **named)


def behind_autograds_back(x: T, y: Any, **named: Any) -> T:
    x.data.copy_(torch.add(x, y, **named))
    return x


def grows(x: T, y: Any, **named: Any) -> T:
    if isinstance(y, T) and torch.broadcast_shapes(x.shape, y.shape) != x.shape:
        return x
    return x.add_(y, **named)


#: Property -> what is wrong with an operator, with the case that has to say so.
PLANTED: dict[str, list[tuple[str, str, Function]]] = {
    "forward": [("ops/tanh/forward/float32", "function", tail_is_zero)],
    "special": [
        ("ops/tanh/special/float32", "function", lambda x: torch.tanh(x.nan_to_num())),
        ("ops/neg/special/float32", "function", lambda x: torch.neg(x) + 0),
    ],
    "shapes": [("ops/add/shapes/float32", "function", not_broadcast)],
    "promotion": [
        ("ops/add/promotion/float32", "function", off_in_mixed_dtypes),
        ("ops/add/promotion/bfloat16", "function", in_the_first_dtype),
    ],
    "layout": [("ops/tanh/layout/float32", "function", lambda x: torch.tanh(dense(x)))],
    "backward": [("ops/tanh/backward/float32", "function", halved_on_the_way_back)],
    "backward-layout": [
        ("ops/tanh/backward-layout/float32", "function", Tanh.apply),
        ("ops/tanh/backward-layout/float16", "function", TanhOfStepped.apply),
        ("ops/tanh/backward-layout/bfloat16", "function", halved_on_the_way_back),
    ],
    "exact": [
        *(
            (f"ops/{name}/exact/{dtype}", "function", fault)
            for name in ("mm", "dot")
            for dtype in FLOATS
            for fault in (loses_a_term, without_its_tail)
        ),
        *(
            (f"ops/{name}/exact/{dtype}", "function", partial(summed_in_its_dtype, getattr(torch, name)))
            for name in ("sum", "mean")
            for dtype in HALVES
        ),
        ("ops/index_add/exact/bfloat16", "function", overwritten),
    ],
    "out": [
        ("ops/sigmoid/out/float32", "function", each)
        for each in (
            first_doubled,
            last_forgotten,
            only_into_gaps_wrongly,
            beside_the_view,
            another_tensor,
            not_resized,
        )
    ],
    "in-place": [
        ("ops/add/in-place/float32", "in_place", each) for each in (of_another_tensor, behind_autograds_back, grows)
    ],
    "repeat": [
        ("ops/tanh/repeat/float32", "function", Remembers()),
        ("ops/tanh/repeat/float32", "function", ChangesWhatItIsGiven()),
    ],
    "sweep": [("ops/tanh/sweep/float32", "function", tail_is_zero)],
    "sweep-more": [("ops/tanh/sweep-more/float32", "function", tail_is_zero)],
}
EACH = [fault for faults in PLANTED.values() for fault in faults]


def name_of(function: Function) -> str:
    return getattr(function, "__name__", type(function).__name__)


@pytest.mark.parametrize("case_id", sorted({case_id for case_id, _, _ in EACH}))
def test_what_is_right_passes(case_id: str) -> None:
    judged(case_id)


@pytest.mark.parametrize(
    ("case_id", "what", "wrong"), EACH, ids=[f"{case_id}, {name_of(wrong)}" for case_id, _, wrong in EACH]
)
def test_what_is_wrong_is_seen(case_id: str, what: str, wrong: Function) -> None:
    with pytest.raises(Disagreement):
        judged(case_id, **{what: wrong})


def test_every_property_has_a_planted_fault() -> None:
    asked = {case.property for case in CASES.values()}
    assert (
        asked - {FOUND} == PLANTED.keys() == CHECKS.keys() - {FOUND}
    )  # findings: tests/unit/operators/test_exploring.py
    assert all({CASES[case_id].property for case_id, _, _ in faults} == {name} for name, faults in PLANTED.items())
