"""Whether a golden can be trusted: a second reference, which shares no code with the first, has to agree."""

from __future__ import annotations

import math
import operator as python_operator
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch.utils._pytree import tree_map

from pytest_ascend.operators.calling import double
from pytest_ascend.operators.operator import Operator
from pytest_ascend.operators.reference import Results
from pytest_ascend.operators.samples import Sample

#: Both references compute in float64; longer sums and other formulas lose a few digits.
RELATIVE, ABSOLUTE = 1e-11, 1e-13


def _axes(dim: Any = None) -> Any:
    return tuple(dim) if isinstance(dim, list | tuple) else dim


def _reduced(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(x: Any, dim: Any = None, keepdim: bool = False, **named: Any) -> Any:
        return function(x, axis=_axes(dim), keepdims=keepdim, **named)

    return call


def _spread(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(x: Any, dim: Any = None, keepdim: bool = False, correction: int = 1) -> Any:
        return function(x, axis=_axes(dim), keepdims=keepdim, ddof=correction)

    return call


def _softmax(x: Any, dim: int) -> Any:
    if not x.size:
        return x
    shifted = np.exp(x - x.max(axis=dim, keepdims=True))
    return shifted / shifted.sum(axis=dim, keepdims=True)


def _attention(
    q: Any, k: Any, v: Any, attn_mask: Any = None, is_causal: bool = False, scale: float = 0.0, enable_gqa: bool = False
) -> Any:
    """Attend; a row of which nothing may be seen gives zeros."""
    if enable_gqa:
        k, v = (np.repeat(each, q.shape[-3] // each.shape[-3], axis=-3) for each in (k, v))
    scores = q @ np.swapaxes(k, -1, -2) * (scale or 1 / math.sqrt(q.shape[-1]))
    seen = np.tri(*scores.shape[-2:], dtype=bool) if is_causal else np.True_
    if attn_mask is not None and attn_mask.dtype == bool:
        seen = seen & attn_mask
    elif attn_mask is not None:
        scores = scores + attn_mask
    weights = np.where(seen, np.exp(scores - scores.max(axis=-1, keepdims=True)), 0.0)
    sums = weights.sum(axis=-1, keepdims=True)
    return weights / np.where(sums, sums, 1.0) @ v


def _layer_norm(x: Any, shape: Any, weight: Any = 1.0, bias: Any = 0.0, eps: float = 1e-5) -> Any:
    axes = tuple(range(-len(shape), 0))
    centred = x - x.mean(axis=axes, keepdims=True)
    return centred / np.sqrt((centred**2).mean(axis=axes, keepdims=True) + eps) * weight + bias


def _loss(of: Callable[..., Any]) -> Callable[..., Any]:
    def call(x: Any, target: Any, reduction: str = "mean") -> Any:
        values = of(x, target)
        return values if reduction == "none" else getattr(np, reduction)(values)

    return call


def _addmm(bias: Any, left: Any, right: Any, beta: float = 1, alpha: float = 1) -> Any:
    return (beta * bias if beta else 0) + alpha * (left @ right)


def _sigmoid(x: Any) -> Any:
    return np.where(
        x < 0, np.exp(np.minimum(x, 0)) / (1 + np.exp(np.minimum(x, 0))), 1 / (1 + np.exp(-np.maximum(x, 0)))
    )


def _div(x: Any, y: Any, rounding_mode: str | None = None) -> Any:
    quotient = np.true_divide(x, y)
    return {"floor": np.floor, "trunc": np.trunc}.get(str(rounding_mode), lambda each: each)(quotient)


def _gelu(x: Any, approximate: str = "none") -> Any:
    if approximate == "tanh":
        return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    return 0.5 * x * np.vectorize(lambda each: math.erfc(-each / math.sqrt(2)), otypes=[float])(x)


def _clamp(x: Any, min: float = -np.inf, max: float = np.inf) -> Any:  # noqa: A002  (as torch calls them)
    return np.minimum(np.maximum(x, min), max)


def _by_math(function: Callable[[float], float]) -> Callable[..., Any]:
    return np.vectorize(function, otypes=[float])


#: Operators of torch whose names NumPy or Python's ``operator`` has for something else, or with other arguments.
OTHERS = frozenset(
    (
        *("isclose", "nan_to_num", "take", "index", "repeat", "diag", "split", "getitem", "setitem", "zeros_like"),
        *(
            "ones_like",
            "full_like",
            "arange",
            "linspace",
            "eye",
            "sort",
            "argsort",
            "searchsorted",
            "unique",
            "nonzero",
        ),
    )
)
#: Definitions, written down with NumPy.
DEFINED: Mapping[str, Callable[..., Any]] = {
    "sign": lambda x: (x > 0) * 1 - (x < 0) * 1,
    "relu": lambda x: np.maximum(x, 0),
    "relu6": lambda x: np.clip(x, 0, 6),
    "leaky_relu": lambda x, negative_slope=0.01: np.where(x > 0, x, x * negative_slope),
    "sigmoid": _sigmoid,
    "silu": lambda x: x * _sigmoid(x),
    "tanh": np.tanh,
    "gelu": _gelu,
    "erf": _by_math(math.erf),
    "erfc": _by_math(math.erfc),
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "div": _div,
    "div.rounding_mode": _div,
    "round": np.round,
    "frac": lambda x: x - np.trunc(x),
    "clamp": _clamp,
    "lerp": lambda x, y, w: x + w * (y - x),
    "addcmul": lambda x, y, z, value=1: x + value * y * z,
    "addcdiv": lambda x, y, z, value=1: x + value * y / z,
    "sum": _reduced(np.sum),
    "mean": _reduced(np.mean),
    "prod": _reduced(np.prod),
    "nansum": _reduced(np.nansum),
    "amax": _reduced(np.max),
    "amin": _reduced(np.min),
    "all": _reduced(np.all),
    "any": _reduced(np.any),
    "count_nonzero": lambda x, dim=None: np.count_nonzero(x, axis=_axes(dim)),
    "var": _spread(np.var),
    "std": _spread(np.std),
    "argmax": lambda x, dim=None, keepdim=False: np.argmax(x, axis=dim, keepdims=keepdim),
    "argmin": lambda x, dim=None, keepdim=False: np.argmin(x, axis=dim, keepdims=keepdim),
    "cumsum": lambda x, dim: np.cumsum(x, axis=dim),
    "cumprod": lambda x, dim: np.cumprod(x, axis=dim),
    "softmax": _softmax,
    "log_softmax": lambda x, dim: np.log(_softmax(x, dim)),
    "layer_norm": _layer_norm,
    **{f"scaled_dot_product_attention{kind}": _attention for kind in ("", ".masked", ".causal", ".grouped", ".long")},
    "addmm": _addmm,
    "baddbmm": _addmm,
    "addmv": _addmm,
    "linear": lambda x, weight, bias=0.0: x @ weight.T + bias,
    "mse_loss": _loss(lambda x, y: (x - y) ** 2),
    "l1_loss": _loss(lambda x, y: np.abs(x - y)),
    "cat": lambda parts, dim: np.concatenate(parts, axis=dim),
    "meshgrid": lambda parts, indexing: np.meshgrid(*parts, indexing=indexing)[0],
    "stack": lambda parts, dim: np.stack(parts, axis=dim),
    "roll": lambda x, shifts, dims=None: np.roll(x, shifts, axis=dims),
    "index_select": lambda x, dim, index: np.take(x, index, axis=dim),
    "embedding": lambda index, weight, padding_idx=None: weight[index],  # noqa: ARG005
    "masked_select": lambda x, mask: x[np.broadcast_to(mask, x.shape)],
    "clone": lambda x: x,
    **dict.fromkeys(("mm", "bmm", "mv"), np.matmul),
    "permute": np.transpose,
    "transpose": np.swapaxes,
    "reshape": np.reshape,
}


def reference_of(operator: Operator) -> str:
    """Say what the second reference is, as the golden's meta does."""
    return "numpy float64" if _second(operator) else "no second reference: torch's own kernels in the dtype agree"


def _second(operator: Operator) -> Callable[..., Any] | None:
    """Return a definition, or what NumPy or Python has under the same name; None where there is neither."""
    name = operator.name
    if name in DEFINED or name in OTHERS:
        return DEFINED.get(name)
    return getattr(np, name, None) or getattr(python_operator, name, None)


def admit(operator: Operator, sample: Sample, dtype: str, results: Results) -> None:
    """Compare with the second reference. Raises AssertionError where it says something else, by name of the sample."""
    function = _second(operator)
    # NumPy has no such call, or one that means something else.
    if function is None or ("alpha" in sample.kwargs or "dtype" in sample.kwargs):
        return
    first = results.expected[0]
    assert first is not None
    arguments = sample.arguments(operator.name, getattr(torch, dtype))
    indexes = operator.family in ("indexing", "movement") or function is _attention  # masks stay masks
    # Wide enough that nothing overflows: as in torch, an integer wraps around in the result only.
    floating = first.is_floating_point()

    def wide(tensor: torch.Tensor) -> Any:
        if tensor.is_floating_point() or (floating and not indexes):
            return tensor.to(torch.float64).numpy()
        return tensor.to(torch.int64).numpy() if tensor.dtype is not torch.bool else tensor.numpy()

    args, kwargs = tree_map(lambda leaf: wide(leaf) if isinstance(leaf, torch.Tensor) else leaf, arguments)
    with np.errstate(all="ignore"):
        second = np.asarray(function(*args, **kwargs))
    actual = double(first).numpy()
    name = f"{operator.name}, {dtype}: {sample.name}"
    np.testing.assert_allclose(actual, second.astype(actual.dtype), RELATIVE, ABSOLUTE, err_msg=name)
