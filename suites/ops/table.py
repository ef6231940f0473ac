"""Every operator of the suite by name, and the source of its expected results."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

from pytest_ascend.dispatching import HALF
from pytest_ascend.golden import GoldenStore
from pytest_ascend.operators.exploring import KEPT, kept
from pytest_ascend.operators.operator import ARITHMETIC, InputFactory, Operator
from pytest_ascend.operators.recorded import Entry, load
from pytest_ascend.operators.replay import operator_of, recording
from pytest_ascend.operators.samples import LONG, USUAL_TERMS, Sample

from .families import (
    arithmetic,
    elementwise,
    indexing,
    linear,
    movement,
    network,
    reduction,
)
from .makers import exactly, together
from .templates import FURTHER, INSTEAD

_FAMILIES = (
    arithmetic,
    elementwise,
    indexing,
    linear,
    movement,
    network,
    reduction,
)


def _by_name() -> dict[str, Operator]:
    operators = [operator for family in _FAMILIES for operator in family.OPERATORS]
    table = {operator.name: operator for operator in operators}
    if len(table) < len(operators):
        names = [operator.name for operator in operators]
        raise ValueError(f"two operators have one name: {sorted({each for each in names if names.count(each) > 1})}")
    return table


#: Every operator of the catalogue, by name.
OPERATORS: dict[str, Operator] = _by_name()
#: Every recorded operator by name; those also in the catalogue are tested from there, in its dtypes.
RECORDED: dict[str, Entry] = load()

#: Families of recorded operators without sums; sums in others may be as long as their inputs.
ELEMENT_BY_ELEMENT = ("elementwise", "arithmetic", "foreach")

#: Operators without generated gradients: a difference of which few bits are known, as where attention has one key for a
#: query, or the share of an infinite product; a sum over heads that torch rounds in each step in half precision, and a
#: device once; those of stft, which torch_npu lacks for windows; those of quantiles, which any of several equal
#: elements may get: torch 2.14 sorts no more on the CPU; differences of powers of logarithms in half precision; sums
#: that torch rounds between their steps.
_WITHOUT_GRADIENTS = (
    *("renorm", "_foreach_tanh", "_foreach_sigmoid", "_foreach_expm1", "lu_solve", "masked.prod", "masked.cumprod"),
    *(f"scaled_dot_product_attention.{kind}" for kind in ("masked", "causal", "grouped")),
    *("stft", "quantile", "nanquantile", "logcumsumexp", "cartesian_prod"),
)


def _is_written(_: torch.Tensor, pad: Sequence[int], mode: str = "constant", *__: Any) -> bool:
    """Whether padding writes every element: what goes around is taken from what was cut off, which may be nothing."""
    return mode != "circular" or min(pad, default=0) >= 0


def _is_small(matrix: torch.Tensor, *_: Any, **__: Any) -> bool:
    """Whether sums of products are finite in any order."""
    return not matrix.numel() or bool(matrix.abs().max() < 2**31)


#: At most so many features of a result are asked of torch.nn.functional.bilinear.
_FEATURES = 64


def _has_few_features(_: torch.Tensor, __: torch.Tensor, weight: torch.Tensor, *___: Any, **____: Any) -> bool:
    """Whether a call is quick: torch multiplies matrices for one feature of the result after the other."""
    return weight.shape[0] <= _FEATURES


def _is_low(matrix: torch.Tensor, *_: Any, **__: Any) -> bool:
    """Whether a matrix has few rows: torch_npu makes a square one of them for its factors."""
    return matrix.shape[-2] <= LONG


def _is_fast_exponent(matrix: torch.Tensor, *_: Any, **__: Any) -> bool:
    """Whether torch's CPU kernel exponentiates a matrix within a second: in half precision it multiplies slowly."""
    return matrix.dtype not in HALF or matrix.shape[-1] <= 64


def _has_labels(chances: torch.Tensor, labels: torch.Tensor, *_: Any, **__: Any) -> bool:
    """Whether all labels are among the classes: kernels read beyond the chances otherwise."""
    return not labels.numel() or int(labels.max()) < chances.shape[-1]


def _in_order(
    _: torch.Tensor, indices: torch.Tensor, *__: Any, offsets: torch.Tensor | None = None, **___: Any
) -> bool:
    """Whether each row is in one bag of embeddings: bags may not overlap, and without any there are no rows."""
    return offsets is None or (bool((offsets.diff() >= 0).all()) and bool(offsets.numel() or not indices.numel()))


def _is_quick(x: torch.Tensor, sizes: Any, *_: Any, **__: Any) -> bool:
    """Whether adaptive pooling adds up few enough elements: many windows, each over a long row, take a minute."""
    wanted = sizes if isinstance(sizes, list | tuple) else [sizes] * 3
    work = [max(own, to or own) for own, to in zip(reversed(x.shape), reversed(wanted), strict=False)]
    return math.prod(work) * math.prod(x.shape[: -len(work)]) < 2**22


def _has_quick_windows(x: torch.Tensor, size: Any = None, *_: Any, mode: str = "nearest", **__: Any) -> bool:
    """Whether interpolation by area, which is adaptive pooling, is quick."""
    return mode != "area" or size is None or _is_quick(x, size)


def _are_small(*operands: Any, **__: Any) -> bool:
    """Whether distances are exact enough for their difference."""
    return all(
        not each.numel() or bool(each.abs().max() < 2**12) for each in operands if isinstance(each, torch.Tensor)
    )


def _is_regular(matrix: torch.Tensor, n: int = 1, *_: Any, **__: Any) -> bool:
    """Whether a matrix that is inverted is far from singular: whether it is at all, rounding decides otherwise."""
    return n >= 0 or not matrix.numel() or bool((torch.linalg.cond(matrix.double()) < 2**12).all())


def _is_well_conditioned(matrix: torch.Tensor, *_: Any, **__: Any) -> bool:
    """Whether a gradient of an inverse has many right bits: that of rows in order has few.

    It takes a square matrix of as many rows, which must not fill the memory.
    """
    if not matrix.numel() or not matrix.isfinite().all():
        return max(matrix.shape[-2:]) <= LONG
    return max(matrix.shape[-2:]) <= LONG and bool((torch.linalg.cond(matrix.double()) < 2**8).all())


def _has_few_steps(y: torch.Tensor, x: torch.Tensor | None = None, **_: Any) -> bool:
    """Whether an integral over steps of many signs has so few that rounding shows in no result."""
    return x is None or y.shape[-1:].numel() <= 64


def _stays_in_range(x: torch.Tensor, dim: int | None = None, **__: Any) -> bool:
    """Whether a product is within float32's range in whatever order: its gradient is made of partial products."""
    powers = x.double().abs().log2().nan_to_num(0.0, 0.0, 0.0)
    rows = powers.flatten().unsqueeze(0) if dim is None or not x.dim() else powers.movedim(dim, -1)
    return not rows.numel() or bool(torch.stack((rows.clamp(min=0).sum(-1), -rows.clamp(max=0).sum(-1))).max() < 120)


def _varies(rows: torch.Tensor) -> bool:
    """Whether no row of a matrix has equal elements only: scaled by its spread, rounding would be the result.

    One with NaN is NaN as a whole.
    """
    return not rows.numel() or not bool((rows.amax(1) == rows.amin(1)).any())


def _is_resolved(image: torch.Tensor, *grid_and_modes: Any, **__: Any) -> bool:
    """Whether there are such modes, and half precision can name the pixels of an image: coordinates go from -1 to 1."""
    is_known = all(mode in range(3) for mode in grid_and_modes[1:3] if isinstance(mode, int))
    return is_known and (image.element_size() > 2 or max(image.shape[2:], default=0) < 2**10)


def _has_rows(x: torch.Tensor) -> bool:
    """Whether there is more to correlate than a row with itself, whose correlation is one: its gradient is rounding."""
    return x.dim() > 1 and len(x) != 1


def _are_few_labels(x: torch.Tensor, *_: Any, **__: Any) -> bool:
    """Whether there are so few classes that each may be compared with each."""
    return _has_elements(x) and x.shape[-1:].numel() <= 2**10


def _is_quick_from_zero(*given: Any, **_: Any) -> bool:
    """Whether no number is so far below zero that the CPU's sum of as many terms takes minutes."""
    return not any(bool((each < -(2**9)).any()) for each in given if isinstance(each, torch.Tensor))


def _has_elements(x: torch.Tensor, *_: Any, **__: Any) -> bool:
    """Whether there is an element: torch's CPU kernel leaves out rows, columns or channels of a result for none."""
    return bool(x.numel())


def _is_between_borders(x: torch.Tensor, bins: int = 100, min: float = 0, max: float = 0) -> bool:  # noqa: A002
    """Whether each element is far enough from the borders of all bins to be counted in one of them alone."""
    if not x.numel() or not x.isfinite().all():
        return False
    low, high = (float(min), float(max)) if min != max else (float(x.min()), float(x.max()))
    places = (x.double() - low) / ((high - low) or 1) * bins
    inner = places[(x > low) & (x < high)]
    return bool(((inner - inner.round()).abs() > 1e-4).all())


def _has_an_order(x: torch.Tensor, *_: Any, sorted: bool = True, **__: Any) -> bool:  # noqa: A002
    """Whether the order of an operator's results is known: unsorted, torch 2.1 has NaN anywhere."""
    return sorted or bool(x.isfinite().all())


def _images_vary(images: torch.Tensor, *_: Any, **__: Any) -> bool:
    return _varies(images.flatten(2).flatten(0, 1))


def _channels_vary(images: torch.Tensor, *_: Any, **__: Any) -> bool:
    return _varies(images.transpose(0, 1).flatten(1))


#: What else is special about generated calls: layouts in which torch_npu refuses the gradient (see LEFT_OUT) or, of
#: logdet, computes a wrong one, or which the result depends on (as_strided_scatter); distances and means that are
#: infinite or NaN by the way of computing them; places of equal elements, of which any may be given; arguments for
#: which nothing is promised; and means over windows, which are sums and no functions.
_GENERATED: Mapping[str, Mapping[str, Any]] = {
    "cdist": {"layouts": (), "nonfinite": False},
    "pdist": {"layouts": ()},
    "logdet": {"layouts": ()},
    "as_strided_scatter": {"layouts": ()},
    "std_mean": {"nonfinite": False},
    "interpolate": {"sweep": _has_quick_windows},
    "prod": {"sweep": _stays_in_range},
    "linalg.matrix_power": {"sweep": _is_regular},
    "triplet_margin_loss": {"sweep": _are_small},
    "pinverse": {"sweep": _is_well_conditioned},
    **{name: {"sweep": _has_few_steps} for name in ("trapz", "trapezoid", "cumulative_trapezoid")},
    **{f"avg_pool{n}d": {"exactness": ARITHMETIC} for n in (1, 2, 3)},
    **{f"adaptive_avg_pool{n}d": {"exactness": ARITHMETIC, "sweep": _is_quick} for n in (1, 2, 3)},
    **{f"adaptive_max_pool{n}d": {"sweep": _is_quick} for n in (1, 2, 3)},
    **{name: {"grad": False} for name in _WITHOUT_GRADIENTS},
    "instance_norm": {"grad": False, "sweep": _images_vary},
    "batch_norm": {"sweep": _channels_vary},
    "pad": {"sweep": _is_written},
    "corrcoef": {"sweep": _has_rows},
    "unique": {"sweep": _has_an_order},
    **{name: {"sweep": _is_resolved} for name in ("grid_sample", "grid_sampler_2d", "grid_sampler_3d")},
    "cov": {"sweep": _is_small},
    "bilinear": {"sweep": _has_few_features},
    "ctc_loss": {"sweep": _has_labels},
    "lu": {"sweep": _is_low},
    "matrix_exp": {"sweep": _is_fast_exponent},
    "embedding_bag": {"sweep": _in_order},
    **{name: {"sweep": _has_elements} for name in ("multi_margin_loss", "pixel_unshuffle")},
    "multilabel_margin_loss": {"sweep": _are_few_labels},
    **{name: {"sweep": _is_quick_from_zero} for name in ("polygamma", "special.polygamma")},
    "histc": {"sweep": _is_between_borders},
    "median": {"outputs": ("",)},
    "nanmedian": {"outputs": ("",)},
}

#: Samples kept from exploring.
FINDINGS = kept(Path(__file__).with_name(KEPT))


def is_recorded(name: str, dtype: str) -> bool:
    """Whether the samples of an operator in a dtype are recorded."""
    return name not in OPERATORS or dtype not in OPERATORS[name].dtypes


def swept(name: str, dtype: str, store: GoldenStore) -> Operator:
    """Return an operator for generated calls: recorded ones start from their recording. Raises GoldenError."""
    if not is_recorded(name, dtype):
        return replace(OPERATORS[name], **_GENERATED[name]) if name in _GENERATED else OPERATORS[name]
    entry = RECORDED[name]
    reference = recording(store, entry.golden_id)

    def recorded(_: InputFactory) -> Iterator[Sample]:
        return filter(_can_grow, reference.samples("forward", dtype))

    return replace(
        operator_of(entry),
        inputs=INSTEAD.get(name) or together(recorded, FURTHER.get(name, exactly())),
        terms=1 if entry.family in ELEMENT_BY_ELEMENT else USUAL_TERMS + 1,
        # With special numbers; what the CPU then refuses is left out.
        **{"nonfinite": True, **_GENERATED.get(name, {})},
    )


def _can_grow(sample: Sample) -> bool:
    """Whether a recorded call can be generated in other sizes.

    By a factor that is no integer, an index of the nearest element lies on the border of two, and its last bit decides.
    """
    is_continuous = sample.kwargs.get("mode", "nearest") not in ("nearest", "nearest-exact", "area")
    factor = sample.kwargs.get("scale_factor")
    return factor is None or is_continuous or float(factor).is_integer()


class LeftOut(NamedTuple):
    """An operator, what is not tested of it, and what torch_npu does instead."""

    operator: str
    what: str
    instead: str
    seen_with: str = "torch_npu 2.13.0"


#: Applies to every element-wise operator.
EVERYWHERE = "strides as the input has them, of all that works element by element"
_LAYOUT = "raises: only the contiguous memory format is supported"

LEFT_OUT: tuple[LeftOut, ...] = (
    LeftOut(
        "gelu",
        "approximate='tanh'",
        "drops the argument: calls aclnnGelu and aclnnGeluBackward, which have none; aclnnGeluV2 is never called",
    ),
    LeftOut(
        "scaled_dot_product_attention",
        "four dimensions without heads",
        "divides by zero, which ends the process",
    ),
    *(
        LeftOut(
            name,
            "the gradient of a batch times one matrix or vector, without terms",
            "raises: cannot reshape tensor of 0 elements into shape [-1, 0]",
        )
        for name in ("matmul", "linear")
    ),
    LeftOut(
        "binary_cross_entropy_with_logits",
        "the gradient of the target",
        "gives none, without a word: op-plugin's derivatives call the target not differentiable, in every version",
    ),
    LeftOut(
        "cdist",
        "the gradient of a tensor that is not contiguous",
        "raises: _cdist_backward requires X1 to be contiguous",
    ),
    LeftOut("_foreach_sub", "int64 tensors minus one number", "raises: input must be half, float, int32 or bfloat16"),
    LeftOut("to", "memory_format=torch.channels_last", "raises: only contiguous_format"),
    *(
        LeftOut(name, "return_indices=True", "gives places in int32 instead of int64")
        for name in ("max_pool1d", "max_pool2d", "max_pool3d", "adaptive_max_pool3d")
    ),
    LeftOut("add", EVERYWHERE, "gives contiguous results"),
    LeftOut("argmax", "dim=None, keepdim=True", "gives one dimension, whatever the input has"),
    LeftOut("argmin", "dim=None, keepdim=True", "gives no dimension, whatever the input has"),
    LeftOut("bitwise_left_shift", "out= of another size", "does not resize it"),
    LeftOut("bitwise_right_shift", "out= of another size", "does not resize it"),
    LeftOut("gelu", "channels last", _LAYOUT),
    LeftOut("signbit", "channels last", _LAYOUT),
    LeftOut("bitwise_left_shift", "channels last", _LAYOUT),
    LeftOut("bitwise_right_shift", "channels last", _LAYOUT),
)
