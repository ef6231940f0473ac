"""Sums in other orders and blocks: reductions, and functions that contain them.

Elements along a reduced dimension are read in another order: every b-th first, then every b-th from the second on, like
cores sharing a dimension. b depends only on the seed and the length, so a row's result does not depend on other rows.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from pytest_ascend.emulator.chip.functions import Call, nudge

T = torch.Tensor

_STRIDES = (3, 5, 7, 8, 11, 16, 24, 64)


@functools.lru_cache(maxsize=512)
def _order(length: int, seed: int) -> tuple[T, T]:
    """Return the order in which elements are read, and its inverse."""
    with torch.inference_mode(False):
        stride = _STRIDES[(seed * 31 + length) % len(_STRIDES)]
        order = torch.cat([torch.arange(start, length, stride) for start in range(min(stride, length))])
        order = order.flip(0) if seed % 2 else order
        return order, order.argsort()


def shuffled(x: Any, dims: list[int], seed: int, *, back: bool = False) -> Any:
    """Return a tensor with its elements reordered along each of ``dims`` that it has; other values unchanged."""
    if not isinstance(x, T):
        return x
    for dim in dims:
        if -x.dim() <= dim < x.dim() and x.shape[dim] > 1:
            x = x.index_select(dim, _order(x.shape[dim], seed)[back])
    return x


@dataclass(frozen=True)
class Order:
    """Which arguments to reorder, along which dimensions, and which results to restore."""

    inputs: str
    dims: Callable[[Call], list[int]]
    back: tuple[int, ...] = ()
    nudged: bool = False

    def __call__(self, call: Call, seed: int) -> Any:
        """Compute in the changed order."""
        dims, names = self.dims(call), self.inputs.split()
        first = call.get(names[0])
        if not dims or not isinstance(first, T) or not (first.is_floating_point() or first.is_complex()):
            return call.make()
        made = call.make({name: shuffled(call.get(name), dims, seed) for name in names})
        if self.back:
            several = isinstance(made, tuple)
            results = list(made) if several else [made]
            for place in self.back:
                if results[place] is not None:
                    results[place] = shuffled(results[place], dims, seed, back=True)
            if self.nudged:
                nudge(results, seed)
            if len(call.written) == len(results):
                results = [target.copy_(each) for target, each in zip(call.targets(), results, strict=True)]
            return tuple(results) if several else results[0]
        return nudge(made, seed) if self.nudged else made


# --- which dimensions ---


def _named(call: Call) -> list[int]:
    """Return the dimensions in the argument ``dim``; all dimensions without one."""
    dim = call.get("dim")
    if dim is None or (isinstance(dim, list | tuple) and not dim):
        return list(range(_first(call).dim()))
    return [dim] if isinstance(dim, int) else list(dim)


def _first(call: Call) -> T:
    return next(each for each in call.arguments.values() if isinstance(each, T))


def _normalized(call: Call) -> list[int]:
    return [-1 - each for each in range(len(call.get("normalized_shape")))]


def _but_channels(call: Call) -> list[int]:
    return [each for each in range(_first(call).dim()) if each != 1]


def _spatial(call: Call) -> list[int]:
    return list(range(2, _first(call).dim()))


def _all_if_reduced(call: Call) -> list[int]:
    operands = [each for each in call.arguments.values() if isinstance(each, T)]
    if not call.get("reduction", 1) or len({each.shape for each in operands}) > 1:
        return []
    return list(range(operands[0].dim()))


def _keys(call: Call) -> list[int]:
    return [] if call.get("is_causal") or call.get("attn_mask") is not None else [-2]


# --- summed in float64 by the CPU and in float32 by a chip ---


def _moments(call: Call, seed: int) -> Any:
    """Return variance or standard deviation, with the mean if requested, by two passes in float32."""
    x, dims = call.get("self"), _named(call)
    name = call.func.overloadpacket.__name__
    if x.dtype not in (torch.float32, torch.float16, torch.bfloat16) or "correction" not in call.names or call.written:
        return call.make()
    keep = bool(call.get("keepdim"))
    wide = shuffled(x.float(), dims[:1], seed)
    mean = wide.mean(dims, keepdim=True)
    count = x.numel() // max(1, mean.numel())
    correction = call.get("correction", 1)
    divisor = max(0.0, count - float(1 if correction is None else correction))
    spread = (wide - mean).square_().sum(dims, keepdim=True) / divisor
    spread = spread.sqrt_() if name.startswith("std") else spread
    results = [(each if keep else each.squeeze(tuple(dims))).to(x.dtype) for each in (spread, mean)]
    return tuple(results) if name.endswith("mean") else results[0]


def _factors(call: Call, seed: int) -> Any:
    """Multiply in another order, half precision in float32, and round once."""
    x, dim = call.get("self"), call.get("dim")
    if call.get("dtype", x.dtype) not in (x.dtype, None) or x.dtype not in (torch.float16, torch.bfloat16):
        return _PLAIN(call, seed)
    wide = shuffled(x.float(), _named(call), seed)
    made = wide.prod() if dim is None else wide.prod(dim, bool(call.get("keepdim")))
    return call.give(made.to(x.dtype))


def _log_sum_exp(call: Call, seed: int) -> Any:
    """Add the chip's own logarithm to the maximum, so that a large sum stays as accurate as a plain sum."""
    x, dims, keep = call.get("self"), _named(call), bool(call.get("keepdim"))
    if not x.is_floating_point() or x.dtype is torch.float64 or not x.numel():
        return call.make()
    wide = shuffled(x.float(), dims[:1], seed)
    highest = wide.amax(dims, keepdim=True)
    highest.masked_fill_(highest.isinf(), 0.0)
    total = nudge((wide - highest).exp_(), seed).sum(dims, keepdim=True)
    made = nudge(total.log_(), seed).add_(highest)
    return call.give((made if keep else made.squeeze(tuple(dims))).to(x.dtype))


def _running_sum(call: Call, seed: int) -> Any:
    """Compute a cumulative sum in blocks, in float32: within the blocks first, then their offsets."""
    x, dim = call.get("self"), call.get("dim")
    dtype = call.targets()[0].dtype if call.written else call.get("dtype") or x.dtype
    if dtype not in (torch.float32, torch.float16, torch.bfloat16) or not x.dim() or x.shape[dim] < 2:
        return call.make()
    wide, step = x.float().movedim(dim, 0), 1
    size = min(_STRIDES[seed % len(_STRIDES)] * 8, len(wide))
    padded = wide.new_zeros(-(-len(wide) // size) * size, *wide.shape[1:])
    padded[: len(wide)] = wide
    blocks = padded.unflatten(0, (-1, size))
    while step < size:  # doubling the step
        blocks = torch.cat([blocks[:, :step], blocks[:, step:] + blocks[:, :-step]], 1)
        step *= 2
    blocks[1:] += torch.from_numpy(np.add.accumulate(blocks[:-1, -1].numpy(), 0))[:, None]
    return call.give(blocks.flatten(0, 1)[: len(wide)].movedim(0, dim).contiguous().to(dtype))


def _accumulated(call: Call, seed: int) -> Any:
    """Add to the elements selected by an index, in another order."""
    index, added, dim = call.get("index"), call.get("source", call.get("src")), call.get("dim")
    if not added.dim() or not (added.is_floating_point() or added.is_complex()) or index.dim() == 0:
        return call.make()
    of_index = 0 if index.dim() == 1 else dim
    if index.shape[of_index] != added.shape[dim]:
        return call.make()
    added = shuffled(added, [dim], seed)
    return call.make({"index": shuffled(index, [of_index], seed), "source": added, "src": added})


_PLAIN = Order("self", _named)
_LOSS = Order("self target weight", _all_if_reduced)
_LOSS_OF_ROWS = Order(
    "self target", lambda call: [0] if call.get("reduction", 1) and call.get("self").dim() in (2, 4) else []
)

SUMS: Mapping[str, Callable[[Call, int], Any]] = {
    **dict.fromkeys(("sum", "nansum", "mean", "norm", "linalg_vector_norm"), _PLAIN),
    "prod": _factors,
    "logsumexp": _log_sum_exp,
    **dict.fromkeys(("std", "var", "std_mean", "var_mean"), _moments),
    "cumsum": _running_sum,
    **dict.fromkeys(("_softmax", "_log_softmax", "softmax", "log_softmax"), Order("self", _named, (0,), nudged=True)),
    **dict.fromkeys(
        ("_softmax_backward_data", "_log_softmax_backward_data"), Order("grad_output output", _named, (0,))
    ),
    "native_layer_norm": Order("input weight bias", _normalized, (0,), nudged=True),
    "native_layer_norm_backward": Order("grad_out input weight bias", _normalized, (0, 1, 2)),
    "native_batch_norm": Order("input", _but_channels, (0,), nudged=True),
    "native_batch_norm_backward": Order("grad_out input", _but_channels, (0,), nudged=True),
    "native_group_norm": Order("input", _spatial, (0,), nudged=True),
    "native_group_norm_backward": Order("grad_out input", _spatial, (0,), nudged=True),
    **dict.fromkeys(("mse_loss", "smooth_l1_loss", "huber_loss", "soft_margin_loss", "binary_cross_entropy"), _LOSS),
    **dict.fromkeys(("nll_loss_forward", "nll_loss2d_forward"), _LOSS_OF_ROWS),
    **dict.fromkeys(("index_add", "scatter_add"), _accumulated),
    "embedding_dense_backward": Order("grad_output indices", lambda call: [0] if call.get("indices").dim() else []),
    "_cdist_forward": Order("x1 x2", lambda _: [-1]),
    "_scaled_dot_product_flash_attention_for_cpu": Order("key value", _keys),
    "_scaled_dot_product_flash_attention_for_cpu_backward": Order("key value", _keys, (1, 2)),
}
