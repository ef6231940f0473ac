"""Kernels of optimizers, overflow and reductions by themselves, in forms that torch_npu seldom asks for."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from pytest_ascend.emulator.kernels import overflow
from pytest_ascend.emulator.kernels.random import generator
from pytest_ascend.emulator.tensors import write

from .both import integers
from .kernel import T, by_name, called, close, floats

# --- optimizers ---


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize("name", ["by name", "in place"])
def test_a_step_of_adam_by_its_definition(name: str, nesterov: bool, dtype: torch.dtype) -> None:
    var, m, grad = (floats(5, seed=seed).to(dtype) for seed in (0, 1, 3))
    v = floats(5, seed=2).abs().to(dtype)
    lr, beta1, beta2, eps, powers = 0.1, 0.9, 0.99, 0.01, (0.9**3, 0.99**3)
    numbers = [torch.tensor(each, dtype=dtype) for each in (*powers, lr, beta1, beta2, eps)]
    first = beta1 * m.double() + (1 - beta1) * grad.double()
    second = beta2 * v.double() + (1 - beta2) * grad.double() ** 2
    ahead = beta1 * first + (1 - beta1) * grad.double() if nesterov else first
    rate = lr * math.sqrt(1 - powers[1]) / (1 - powers[0])
    wanted = (var.double() - rate * ahead / (second.sqrt() + eps), first, second)
    if name == "by name":
        found = tuple(torch.empty_like(each) for each in (var, m, v))
        write(found, by_name("ApplyAdamD")(var, m, v, *numbers, grad, use_locking=False, use_nesterov=nesterov))
    else:
        called("ApplyAdam", var, m, v, *numbers, grad, False, nesterov)
        found = (var, m, v)
    near = 1e-5 if dtype == torch.float32 else 2e-2
    close([each.double() for each in found], list(wanted), rtol=near, atol=near)
    assert {each.dtype for each in found} == {dtype}


@pytest.mark.parametrize("maximize", [False, True])
def test_a_step_of_adamw_by_its_definition(maximize: bool) -> None:
    var, m, grad, v = floats(5), floats(5, seed=1), floats(5, seed=3), floats(5, seed=2).abs()
    lr, decay, beta1, beta2, eps, powers = 0.1, 0.2, 0.9, 0.99, 0.01, (0.9**3, 0.99**3)
    numbers = [torch.tensor(each) for each in (*powers, lr, decay, beta1, beta2, eps)]
    up = -grad if maximize else grad
    first, second = beta1 * m + (1 - beta1) * up, beta2 * v + (1 - beta2) * up**2
    largest = torch.full((5,), 0.5)
    for norm, amsgrad in ((None, False), (None, True), (largest, False), (largest, True)):
        below = torch.maximum(second, largest) if norm is not None and amsgrad else second
        step = (first / (1 - powers[0] * beta1)) / ((below / (1 - powers[1] * beta2)).sqrt() + eps)
        stepped = [each.clone() for each in (var, m, v)]
        called("ApplyAdamW", *stepped, *numbers, grad, norm, amsgrad, maximize)
        close(stepped, (var * (1 - lr * decay) - lr * step, first, second))


@pytest.mark.parametrize("found_inf", [0.0, 1.0])
def test_fused_steps_scale_gradients_and_are_left_out_where_some_are_infinite(found_inf: float) -> None:
    given, grads = [floats(3), floats(2, seed=1)], [floats(3, seed=2), floats(2, seed=3)]
    states = [[torch.zeros_like(each) for each in given] for _ in range(2)]
    wanted = [each.clone().requires_grad_() for each in given]
    optimizer = torch.optim.Adam(wanted, lr=0.1, weight_decay=0.2)
    for each, grad in zip(wanted, grads, strict=True):
        each.grad = grad.clone()
    if not found_inf:
        optimizer.step()
    called(
        "FusedAdam", given, [each * 4 for each in grads], *states, None, [torch.tensor(0.0)] * 2, torch.tensor(4.0),
        torch.tensor(found_inf), 0.1, 0.9, 0.999, 0.2, 1e-8,
    )  # fmt: skip
    close(given, [each.detach() for each in wanted])


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("nesterov", [False, True])
def test_a_fused_step_of_descent(nesterov: bool, first: bool) -> None:
    given, grads, kept = [floats(3)], [floats(3, seed=1)], [floats(3, seed=2)]
    grad = grads[0] / 4 + 0.2 * given[0]
    momentum = grad if first else 0.9 * kept[0] + (1 - (0.0 if nesterov else 0.3)) * grad
    step = grad + 0.9 * momentum if nesterov else momentum
    wanted = given[0] - 0.1 * step
    called(
        "FusedSgd", given, grads, kept, torch.tensor(4.0), 0.2, 0.9, 0.1, 0.0 if nesterov else 0.3, nesterov, False,
        first,
    )  # fmt: skip
    close((given[0], kept[0]), (wanted, momentum))
    plain = [floats(3)]
    called("FusedSgd", plain, [torch.ones(3)], None, None, 0.0, 0.0, 0.5, 0.0, False, True, True)
    close(plain[0], floats(3) + 0.5)


@pytest.mark.parametrize("norm", [0.5, 4.0])
def test_a_step_of_bert_adam_by_its_definition(norm: float) -> None:
    var, m, grad, v = floats(5), floats(5, seed=1), floats(5, seed=3), floats(5, seed=2).abs()
    lr, beta1, beta2, eps, most, decay = 0.1, 0.9, 0.99, 0.01, 1.0, 0.2
    numbers = [torch.tensor(each) for each in (lr, beta1, beta2, eps)]
    rest = [torch.tensor(each) for each in (most, norm, decay)]
    clipped = grad / max(norm / most, 1)
    first, second = beta1 * m + (1 - beta1) * clipped, beta2 * v + (1 - beta2) * clipped**2
    wanted = (var - lr * (first / (second.sqrt() + eps) + decay * var), first, second)
    close(by_name("ApplyAdamV2")(var, m, v, *numbers, grad, *rest, adam_mode="adam"), wanted)
    with pytest.raises(NotImplementedError, match="mbart_adam"):
        by_name("ApplyAdamV2")(var, m, v, *numbers, grad, *rest, adam_mode="mbart_adam")


# --- overflow ---


def test_what_overflows_becomes_the_largest_number_and_is_remembered() -> None:
    clear, told = by_name("NPUClearFloatStatus"), by_name("NPUGetFloatStatus")
    assert by_name("NPUAllocFloatStatus")().tolist() == [0.0] * 8
    assert clear(torch.ones(8)).eq(0).all()
    fine, whole = floats(3), torch.arange(3)
    overflow.saturate([fine, whole, None, 3, []])
    assert told(torch.ones(8)).eq(0).all()
    wrong = torch.tensor([math.inf, -math.inf, math.nan, 2.0]).half()
    overflow.saturate([fine, [whole, wrong]])
    assert wrong.tolist() == [65504.0, -65504.0, 0.0, 2.0]
    assert told(torch.zeros(8)).eq(1).all()
    assert clear(torch.ones(8)).eq(0).all()
    assert told(torch.ones(8)).eq(0).all()


def test_a_newer_chip_asks_for_the_status_and_clears_it_without_a_tensor() -> None:
    told, clear = by_name("NPUGetFloatStatusV2"), by_name("NPUClearFloatStatusV2")
    for overflowed in (False, True):
        overflow.saturate([torch.tensor([math.inf if overflowed else 1.0])])
        assert (told().dtype, told().tolist()) == (torch.int32, [int(overflowed)] * 8)
    assert clear() == ()
    assert not told().any()


@pytest.mark.parametrize(
    ("name", "family", "computes"),
    [
        ("aclnnAdd", "elementwise", True),
        ("aclnnCat", "movement", False),
        ("aclnnGather", "movement", False),
        ("aclnnSWhere", "elementwise", False),
        ("aclnnApplyTopKTopP", "routing", False),
        ("NPUGetFloatStatus", "overflow", False),
    ],
)
def test_what_moves_or_selects_cannot_overflow(name: str, family: str, computes: bool) -> None:
    kernel: Any = SimpleNamespace(name=name, family=family)
    assert overflow.computes(kernel) is computes


# --- reductions ---


@pytest.mark.parametrize("p", [0.0, 1.0, 2.0, 3.0, 2.0**31, -(2.0**31)])
@pytest.mark.parametrize("keep", [False, True])
def test_a_norm_is_a_sum_of_powers_and_then_a_root(p: float, keep: bool) -> None:
    x = floats(3, 4)
    x[0, 0] = 0
    order = {2.0**31: math.inf, -(2.0**31): -math.inf}.get(p, p)
    total = by_name("LpNormReduceV2")(x, p, [1], keep, 1e-12)
    assert total.shape == ((3, 1) if keep else (3,))
    close(by_name("LpNormUpdateV2")(total, p, 1e-12), torch.linalg.vector_norm(x, order, 1, keep))
    if p == 2:
        close(total, x.square().sum(1, keep))


@pytest.mark.parametrize("unbiased", [False, True])
@pytest.mark.parametrize("is_deviation", [False, True])
@pytest.mark.parametrize("dims", [[], [1], [0, 2]], ids=str)
def test_spreads_by_name(dims: list[int], is_deviation: bool, unbiased: bool) -> None:
    x = floats(3, 4, 5)
    spread = torch.std if is_deviation else torch.var
    how = {"dim": dims, "keepdim": True, "unbiased": unbiased, "if_std": is_deviation}
    wanted = spread(x, dims or None, correction=int(unbiased), keepdim=True)
    for name in ("ReduceStdWithMean", "ReduceStdV2Update"):
        close(by_name(name)(x, x.mean(), **how), wanted)
        close(by_name(name)(x, x.mean(), **how, correction=0), spread(x, dims or None, correction=0, keepdim=True))


BY_AXES: dict[str, Callable[..., T]] = {
    "ReduceAll": lambda x, *how: (x > 0).all(*how) if how else (x > 0).all(),
    "ReduceMax": torch.amax, "ReduceMin": torch.amin, "ReduceMean": torch.mean, "ReduceSum": torch.sum,
    "ReduceLogSumExp": torch.logsumexp,
}  # fmt: skip


@pytest.mark.parametrize("axes", [[1], [0, 2], []], ids=str)
@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("name", ["ReduceMax", "ReduceMin", "ReduceMean", "ReduceSum", "ReduceLogSumExp", "ReduceProd"])
def test_reductions_by_name(name: str, keep: bool, axes: list[int]) -> None:
    x = floats(3, 4, 5)
    dims = axes or [0, 1, 2]
    if name == "ReduceProd":
        wanted = x
        for dim in sorted(dims, reverse=True):
            wanted = wanted.prod(dim, keep)
        negative = by_name(name)(x, torch.tensor([each - 3 for each in axes]), keep)
        close(negative, wanted)
    else:
        wanted = BY_AXES[name](x, dims, keep)
    close(by_name(name)(x, torch.tensor(axes, dtype=torch.int64), keep), wanted)
    for name_, defined in (("ReduceAll", torch.all), ("ReduceAny", torch.any)):
        truth = x > 0.5
        found = by_name(name_)(truth, torch.tensor(axes, dtype=torch.int64), keep)
        assert found.equal(defined(truth, tuple(dims), keep))


@pytest.mark.parametrize("asked", [(True, True), (True, False), (False, True), (False, False)])
def test_distinct_elements_by_name(asked: tuple[bool, bool]) -> None:
    x = integers(40, low=0, high=9)
    values, inverse, counts = by_name("UniqueWithCountsAndSorting")(
        x, sorted=True, return_inverse=asked[0], return_counts=asked[1]
    )
    wanted = torch.unique(x, return_inverse=True, return_counts=True)
    assert values.equal(wanted[0])
    assert inverse.equal(wanted[1]) if asked[0] else inverse is None
    assert counts.equal(wanted[2]) if asked[1] else not counts.numel()
    again = called("Unique2", x, True, *asked)
    assert again[0].equal(values)
    in_a_row = called("UniqueConsecutive", x, *asked, 1000)
    wanted = torch.unique_consecutive(x, True, True)
    assert in_a_row[0].equal(wanted[0])
    assert in_a_row[1].equal(wanted[1]) if asked[0] else in_a_row[1] is None
    assert in_a_row[2].equal(wanted[2]) if asked[1] else not in_a_row[2].numel()


def test_distinct_rows_and_runs_along_a_dimension() -> None:
    x = torch.tensor([[1, 2], [0, 1], [1, 2], [1, 2]])
    for dim in (0, 1):
        wanted = torch.unique(x, return_inverse=True, return_counts=True, dim=dim)
        assert all(map(torch.equal, called("UniqueDim", x, True, False, dim), wanted))
    wanted = torch.unique_consecutive(x, True, True, dim=0)
    assert all(map(torch.equal, called("UniqueConsecutive", x, True, True, 0), wanted))


def test_generators_differ_in_seed_and_offset() -> None:
    drawn = {
        int(torch.randint(1 << 60, (1,), generator=generator(seed, offset))) for seed in range(9) for offset in range(9)
    }
    assert len(drawn) == 81
