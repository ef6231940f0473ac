"""Reductions give the same bits on the emulated device as on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from .both import FLOATS, INTEGERS, assert_same, floats, integers, operators

Reduction = Callable[..., Any]

SMOOTH: dict[str, Reduction] = {
    "sum": torch.sum,
    "mean": torch.mean,
    "prod": torch.prod,
    "nansum": torch.nansum,
    "logsumexp": lambda x: torch.logsumexp(x, (0, 2)),
    "var": torch.var,
    "std": torch.std,
    "var_mean": torch.var_mean,
    "std_mean": torch.std_mean,
    "norm": torch.norm,
    "norm of order 1": lambda x: torch.linalg.vector_norm(x, 1, (1, 2), keepdim=True),
    "norm of order 3": lambda x: torch.linalg.vector_norm(x, 3),
    "sum along dimensions": lambda x: x.sum((0, -1), keepdim=True),
    "mean along dimensions": lambda x: x.mean((1, 2)),
    "prod along a dimension": lambda x: x.prod(1, keepdim=True),
    "var without correction": lambda x: x.var((0, 1), correction=0),
    "std with correction 2": lambda x: x.std(2, correction=2, keepdim=True),
    "var_mean along dimensions": lambda x: torch.var_mean(x, (0, 2), correction=0, keepdim=True),
    "std_mean along a dimension": lambda x: torch.std_mean(x, -1),
    "cumsum": lambda x: x.cumsum(1),
    "cumprod": lambda x: x.cumprod(-1),
    "amax": lambda x: x.amax((0, 2)),
    "amin": lambda x: x.amin(1, keepdim=True),
    "max": torch.max,
    "min": torch.min,
    "max along a dimension": lambda x: x.max(1),
    "min along a dimension": lambda x: x.min(-1, keepdim=True),
    "cummax": lambda x: x.cummax(1),
    "cummin": lambda x: x.cummin(2),
    "aminmax": lambda x: tuple(x.aminmax(dim=1)),
    "median": torch.median,
    "nanmedian": torch.nanmedian,
    "median along a dimension": lambda x: x.median(1),
    "nanmedian along a dimension": lambda x: x.nanmedian(2, keepdim=True),
    "kthvalue": lambda x: x.kthvalue(2, 1),
    "logcumsumexp": lambda x: x.logcumsumexp(1),
}

EXACT: dict[str, Reduction] = {
    "sum": torch.sum,
    "sum along a dimension": lambda x: x.sum(1),
    "sum as float": lambda x: x.sum(0, dtype=torch.float32),
    "prod": torch.prod,
    "all": torch.all,
    "any": torch.any,
    "all along a dimension": lambda x: x.all(1),
    "any along a dimension": lambda x: x.any(-1, keepdim=True),
    "count_nonzero": torch.count_nonzero,
    "count_nonzero along a dimension": lambda x: x.count_nonzero(1),
    "argmax": torch.argmax,
    "argmin": torch.argmin,
    "argmax along a dimension": lambda x: x.argmax(1),
    "argmin along a dimension": lambda x: x.argmin(-1, keepdim=True),
    "amax": lambda x: x.amax((0, 1)),
    "max along a dimension": lambda x: x.max(2),
    "min": torch.min,
    "cumsum": lambda x: x.cumsum(1),
    "cumprod": lambda x: x.cumprod(0),
    "mode": lambda x: x.mode(1),
}


#: What torch_npu leaves to the CPU.
BY_THE_CPU = ("mode", "logcumsumexp")


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", SMOOTH)
def test_floats_with_gradients(name: str, dtype: torch.dtype) -> None:
    by = "cpu" if name in BY_THE_CPU else "device"
    assert_same(SMOOTH[name], floats(3, 4, 5, dtype=dtype), backward=True, by="any" if by == "cpu" else by)
    assert_same(SMOOTH[name], floats(3, 4, 5, dtype=dtype), strided=True, by=by)
    assert_same(SMOOTH[name], floats(5, 4, 3, dtype=dtype).permute(2, 1, 0), by=by)


@pytest.mark.parametrize("dtype", [*INTEGERS, torch.bool])
@pytest.mark.parametrize("name", EXACT)
def test_integers(name: str, dtype: torch.dtype) -> None:
    if "arg" in name and dtype == torch.bool:
        pytest.skip("CPU has no such kernel")
    by = "cpu" if name in BY_THE_CPU else "device"
    assert_same(EXACT[name], integers(3, 4, 5, low=-2, high=3, dtype=dtype), by=by)


@pytest.mark.parametrize("name", ["all", "any", "count_nonzero", "argmax", "argmin", "mode"])
def test_floats_that_give_no_gradient(name: str) -> None:
    for dtype in FLOATS:
        by = "cpu" if name in BY_THE_CPU else "device"
        assert_same(EXACT[name], floats(3, 4, 5, dtype=dtype), strided=True, by=by)


@pytest.mark.parametrize("name", ["sum", "mean", "max", "min", "amax", "median", "argmax", "var", "norm", "logsumexp"])
def test_nan_is_found(name: str) -> None:
    values = floats(3, 4, 5)
    values[1, 2, 3] = float("nan")
    assert_same(SMOOTH.get(name) or EXACT[name], values)


@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (1,)])
@pytest.mark.parametrize("name", ["sum", "mean", "prod", "all", "any"])
def test_odd_shapes(name: str, shape: tuple[int, ...]) -> None:
    assert_same(getattr(torch, name), torch.ones(shape), by="device" if 0 not in shape else "any")


def test_an_empty_tensor_has_no_largest_element() -> None:
    with pytest.raises((RuntimeError, IndexError)):
        torch.empty(0, device="npu").max()


def test_out() -> None:
    def into(x: torch.Tensor) -> torch.Tensor:
        out = torch.full((3, 8), 7.0, device=x.device)
        torch.sum(x, 2, out=out[:, ::2])
        return out

    assert_same(into, floats(3, 4, 5))


def test_histograms_and_counts() -> None:
    assert_same(lambda x: torch.histc(x, 10, -2, 2), floats(100))
    assert_same(lambda x: torch.histc(x, 7), floats(100))
    assert_same(torch.bincount, integers(50, low=0, high=9))
    assert_same(lambda x, weights: torch.bincount(x, weights, 20), integers(50, low=0, high=9), floats(50))


def test_trace() -> None:
    assert_same(torch.trace, floats(4, 6), backward=True)


def test_renorm() -> None:
    assert_same(lambda x: torch.renorm(x, 2, 0, 1.5), floats(4, 6))
    assert_same(lambda x: x.renorm_(1, 1, 0.5), floats(4, 6))


def test_a_clipped_gradient() -> None:
    def clip(x: torch.Tensor) -> list[torch.Tensor]:
        x.grad = x.detach().clone()
        return [torch.nn.utils.clip_grad_norm_([x], 0.5), x.grad]

    assert_same(clip, floats(4, 6))


@pytest.mark.filterwarnings("ignore:_aminmax is deprecated:UserWarning")
def test_both_extremes() -> None:
    assert_same(torch.aminmax, floats(4, 6))
    assert_same(torch._aminmax, floats(4, 6))
    assert_same(lambda x: torch._aminmax(x, 1), floats(4, 6))


def test_norms_of_the_older_kind() -> None:
    assert_same(lambda x: torch.ops.aten.norm.ScalarOpt_dim(x, 2, [1]), floats(4, 6))
    assert_same(
        lambda x: torch.ops.aten.norm.ScalarOpt_dtype(x, 1, dtype=torch.float32), floats(4, 6, dtype=torch.float16)
    )


def test_quantile() -> None:
    assert_same(lambda x: torch.quantile(x, 0.3, dim=1), floats(4, 9), backward=True)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_autocast_sums_in_float32(dtype: torch.dtype) -> None:
    with torch.autocast("npu", dtype):
        assert torch.ones(3, dtype=dtype, device="npu").sum().dtype == torch.float32


def test_the_operators_run_on_the_device() -> None:
    x = floats(3, 4).npu()
    assert operators(x.sum) == {"aclnnReduceSum"}
    assert operators(lambda: x.max(1)) == {"aclnnMaxDim"}
    assert operators(lambda: x.var(1)) == {"aclnnVarCorrection"}
    assert operators(lambda: x.cumsum(1)) == {"aclnnCumsum"}
