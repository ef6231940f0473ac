"""Optimizers take the same steps on the emulated device as on the CPU, one by one, on lists, and fused."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch_npu

from .both import FLOATS, assert_same, floats, operators
from .kernel import called, close

OPTIMIZERS: dict[str, tuple[type[torch.optim.Optimizer], dict[str, Any]]] = {
    "SGD": (torch.optim.SGD, {"momentum": 0.9, "weight_decay": 0.01}),
    "SGD, Nesterov": (torch.optim.SGD, {"momentum": 0.9, "nesterov": True}),
    "Adam": (torch.optim.Adam, {"weight_decay": 0.01}),
    "AdamW": (torch.optim.AdamW, {}),
    "AdamW, AMSGrad": (torch.optim.AdamW, {"amsgrad": True}),
    "AdamW, maximising": (torch.optim.AdamW, {"maximize": True}),
    "Adam, maximising": (torch.optim.Adam, {"maximize": True}),
    "SGD, maximising": (torch.optim.SGD, {"momentum": 0.9, "maximize": True}),
    "RMSprop": (torch.optim.RMSprop, {"momentum": 0.5, "centered": True}),
    "Adagrad": (torch.optim.Adagrad, {}),
    "Adadelta": (torch.optim.Adadelta, {}),
    "Adamax": (torch.optim.Adamax, {}),
    "NAdam": (torch.optim.NAdam, {}),
    "RAdam": (torch.optim.RAdam, {}),
    "Rprop": (torch.optim.Rprop, {}),
}

SHAPES = ((3, 4), (5,), (6,))


def _train(name: str, *values: torch.Tensor, **form: bool) -> list[torch.Tensor]:
    """Take three steps along fixed gradients; gives parameters and the optimizer's state."""
    kind, options = OPTIMIZERS[name]
    parameters = [each.detach().clone().requires_grad_() for each in values]
    optimizer = kind(parameters, lr=0.1, **options, **form)  # type: ignore[call-arg]
    for step in range(3):
        for i, parameter in enumerate(parameters):
            parameter.grad = floats(*parameter.shape, seed=7 * step + i).to(parameter.dtype).to(parameter.device)
        optimizer.step()
    kept = [each for state in optimizer.state.values() for each in state.values() if isinstance(each, torch.Tensor)]
    return [each.detach() for each in parameters] + [each for each in kept if each.dim()]


def _parameters(dtype: torch.dtype) -> list[torch.Tensor]:
    return [floats(*shape, dtype=dtype, seed=seed) for seed, shape in enumerate(SHAPES)]


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("foreach", [False, True], ids=["one by one", "on lists"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_steps(name: str, foreach: bool, dtype: torch.dtype) -> None:
    assert_same(lambda *values: _train(name, *values, foreach=foreach), *_parameters(dtype))


@pytest.mark.parametrize("name", ["SGD", "SGD, Nesterov", "SGD, maximising", "Adam", "Adam, maximising"])
def test_fused_steps(name: str) -> None:
    assert_same(lambda *values: _train(name, *values, fused=True), *_parameters(torch.float32))


@pytest.mark.parametrize("name", ["AdamW", "AdamW, AMSGrad", "AdamW, maximising"])
def test_fused_adamw_within_the_rounding_of_its_float32_numbers(name: str) -> None:
    actual = _train(name, *(each.npu() for each in _parameters(torch.float32)), fused=True)
    expected = _train(name, *_parameters(torch.float32), fused=True)
    for mine, other in zip(actual, expected, strict=True):
        torch.testing.assert_close(mine.cpu(), other, rtol=2e-6, atol=1e-7)


@pytest.mark.parametrize("name", ["SGD", "SGD, Nesterov", "Adam"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_fused_steps_in_half_precision_reach_every_element(name: str, dtype: torch.dtype) -> None:
    """Torch 2.13's fused SGD leaves whole vectors of elements as they were on the CPU."""
    parameters = [torch.randn(4099, generator=torch.Generator().manual_seed(1)).to(dtype) for _ in range(2)]
    actual = _train(name, *(each.npu() for each in parameters), fused=True)
    for mine, other in zip(actual, _train(name, *(each.double() for each in parameters)), strict=True):
        torch.testing.assert_close(mine.cpu().double(), other.double(), rtol=0.05, atol=0.05)


def test_fused_optimizers_call_one_operator_for_a_step() -> None:
    parameters = [each.npu() for each in _parameters(torch.float32)]
    assert "aclnnFusedSgd" in operators(lambda: _train("SGD", *parameters, fused=True))
    assert "aclnnApplyAdamWV2" in operators(lambda: _train("AdamW", *parameters, fused=True))


@pytest.mark.parametrize("maximize", [False, True])
def test_adamw_by_its_own_name_takes_the_steps_of_torch(maximize: bool) -> None:
    parameter = floats(5, 3).requires_grad_()
    optimizer = torch.optim.AdamW([parameter], lr=0.1, weight_decay=0.2, maximize=maximize)
    states = tuple(each.npu() for each in (parameter.detach().clone(), torch.zeros(5, 3), torch.zeros(5, 3)))
    for step in range(3):
        parameter.grad = floats(5, 3, seed=step)
        powers = (0.9**step, 0.999**step)
        given = (*powers, 0.1, 0.2, 0.9, 0.999, 1e-8, parameter.grad.npu(), None, False, maximize)
        torch_npu.npu_apply_adam_w(*given, out=states)
        optimizer.step()
        torch.testing.assert_close(states[0].cpu(), parameter.detach(), rtol=2e-6, atol=1e-7)


@pytest.mark.parametrize(
    ("steps", "found", "scale", "wanted"),
    [
        (0, 0.0, 8.0, (8.0, 1)),  # one good step more
        (1, 0.0, 8.0, (16.0, 0)),  # the second good step
        (1, 1.0, 8.0, (4.0, 0)),
        (1, 0.0, 3e38, (3e38, 0)),  # it would be infinite
    ],
)
def test_the_scale_of_a_loss(steps: int, found: float, scale: float, wanted: tuple[float, int]) -> None:
    given = torch.tensor([scale]), torch.tensor([steps], dtype=torch.int32), torch.tensor([found])
    made, tracker = called("AmpUpdateScale", *given, growthFactor=2.0, backoffFactor=0.5, growthInterval=2)
    close(made, torch.tensor([wanted[0]]))
    assert tracker.tolist() == [wanted[1]]


@pytest.mark.parametrize("bad", [1.0, math.inf, math.nan])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_gradients_are_unscaled_and_what_is_not_finite_is_found(dtype: torch.dtype, bad: float) -> None:
    grads = [torch.tensor(each, dtype=dtype) for each in (6.0, [3.0, bad, 2.0**-10], [])]
    found = torch.zeros(1)
    called("ForeachNonFiniteCheckAndUnscale", grads, found, torch.tensor([2.0**-3]))
    close(grads[0], torch.tensor(0.75, dtype=dtype))
    close(grads[1][::2], torch.tensor([0.375, 2.0**-13], dtype=dtype))
    assert found.item() == (not math.isfinite(bad))
