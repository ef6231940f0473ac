"""Whether a golden of the catalogue can be trusted: a second reference, of other code than the first, has to agree."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from pytest_ascend.operators.operator import Operator
from pytest_ascend.operators.reference import Results
from pytest_ascend.operators.samples import Sample

from .database import database
from .second import DEFINITION, NUMPY, Limits, agreeing, references

#: Longer sums and other formulas lose a few digits of float64.
NARROW: Limits = (1e-11, 1e-13)


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


def _addmm(bias: Any, left: Any, right: Any, beta: float = 1, alpha: float = 1) -> Any:
    return (beta * bias if beta else 0) + alpha * (left @ right)


def _div(x: Any, y: Any, rounding_mode: str | None = None) -> Any:
    quotient = np.true_divide(x, y)
    return {"floor": np.floor, "trunc": np.trunc}.get(str(rounding_mode), lambda each: each)(quotient)


def _spread(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(x: Any, dim: Any = None, keepdim: bool = False, correction: int = 1) -> Any:
        return function(x, axis=tuple(dim) if isinstance(dim, list) else dim, keepdims=keepdim, ddof=correction)

    return call


#: By NumPy, where the database has no such reference, or one that does not take all calls.
ARRAYS: Mapping[str, Callable[..., Any]] = {
    "mul": np.multiply,
    "atan2": np.arctan2,
    "bitwise_left_shift": np.left_shift,
    "bitwise_right_shift": np.right_shift,
    **{name: getattr(np, name) for name in ("where", "outer", "dot", "logaddexp", "reshape", "tril", "triu", "flip")},
    **dict.fromkeys(("matmul", "mm", "bmm", "mv"), np.matmul),
    **dict.fromkeys(("div", "div.rounding_mode"), _div),
    **dict.fromkeys(("addmm", "baddbmm", "addmv"), _addmm),
    **{f"scaled_dot_product_attention{kind}": _attention for kind in ("", ".masked", ".causal", ".grouped", ".long")},
    "linear": lambda x, weight, bias=0.0: x @ weight.T + bias,
    "lerp": lambda x, y, w: x + w * (y - x),
    "addcmul": lambda x, y, z, value=1: x + value * y * z,
    "addcdiv": lambda x, y, z, value=1: x + value * y / z,
    "relu6": lambda x: np.clip(x, 0, 6),
    "leaky_relu": lambda x, negative_slope=0.01: np.where(x > 0, x, x * negative_slope),
    "softmax": _softmax,
    "log_softmax": lambda x, dim: np.log(_softmax(x, dim)),
    "var": _spread(np.var),
    "std": _spread(np.std),
    "cumsum": lambda x, dim: np.cumsum(x, axis=dim),
    "cumprod": lambda x, dim: np.cumprod(x, axis=dim),
    "meshgrid": lambda parts, indexing: np.meshgrid(*parts, indexing=indexing),
    "stack": lambda parts, dim: np.stack(parts, axis=dim),
    "index_select": lambda x, dim, index: np.take(x, index, axis=dim),
    "embedding": lambda index, weight, padding_idx=None: weight[index],  # noqa: ARG005
    "masked_select": lambda x, mask: x[np.broadcast_to(mask, x.shape)],
}


def reference_of(operator: Operator) -> str:
    """Say what the second reference is, as the golden's meta does."""
    kinds = [kind for kind, _ in references(operator, database().get(operator.name, ()), ARRAYS)]
    if NUMPY in kinds:
        return "numpy float64"
    return DEFINITION if kinds else "no second reference: torch's own kernels in the dtype agree"


def admit(operator: Operator, sample: Sample, dtype: str, results: Results) -> str:
    """Return the second reference that agrees, "" if there is none. Raises AssertionError if all disagree."""
    known = references(operator, database().get(operator.name, ()), ARRAYS)
    name = agreeing(operator, sample, dtype, results.expected, known, NARROW)
    assert name is not None, f"{operator.name}, {dtype}: {sample.name}: the second reference disagrees"
    return name
