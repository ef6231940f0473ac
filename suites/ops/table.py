"""Every operator of the suite by name, exceptions for single operators, and the target of each case.

The target is the operator with its golden, or with its generated calls.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from pytest_ascend.golden import GoldenStore
from pytest_ascend.operators.callables import fits
from pytest_ascend.operators.exploring import FOUND, KEPT, kept, sweep_of
from pytest_ascend.operators.operator import InputFactory, Operator
from pytest_ascend.operators.reference import StoredGolden
from pytest_ascend.operators.replay import Entry, load, operator_of, recording
from pytest_ascend.operators.samples import LONG, USUAL_TERMS, Sample
from pytest_ascend.operators.sweep import CALLS, SweepReference
from pytest_ascend.operators.target import Target
from pytest_ascend.records.case import SWEEP_SEED, Case
from pytest_ascend.system.bundled import beside
from pytest_ascend.system.dispatching import HALF

from .families import indexing, linear, movement, network, pointwise, reduction
from .makers import exactly, together
from .templates import FURTHER, INSTEAD


@dataclass(frozen=True, kw_only=True, slots=True)
class Exceptions:
    """Exceptions for one operator. A text gives the reason.

    For recorded operators: ``at_smoke``: generated calls at level smoke, since they reach kernels that no operator of
    the catalogue does; ``calls``: generated calls although the family has none; ``no_calls``: none; ``one_dtype``: only
    in the first dtype; ``no_integers``: not in integers; ``not_repeated``: need not repeat bit for bit, since PyTorch
    does not promise it. For all operators: ``no_gradients``: generated calls do not run backward; ``settings``:
    attributes of :class:`~pytest_ascend.operators.Operator` that differ for generated calls: layouts in which torch_npu
    refuses or miscomputes the gradient, or which affect the result; distances and means that become infinite or NaN
    depending on the algorithm; indices of equal elements, any of which is correct; means over windows, which are sums.
    ``takes``: what torch_npu accepts although PyTorch refuses it, so that calls that PyTorch refuses are not made.
    ``left_out``: what is not tested, and what torch_npu 2.13.0 does instead.
    """

    at_smoke: bool = False
    calls: bool = False
    no_calls: str = ""
    one_dtype: str = ""
    no_integers: str = ""
    no_gradients: str = ""
    takes: str = ""
    not_repeated: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)


#: Exceptions by the operator's name.
EXCEPTIONS: Mapping[str, Exceptions] = {
    name: Exceptions(**row) for name, row in beside(__file__, "exceptions.json").items()
}


def exceptions(name: str) -> Exceptions:
    return EXCEPTIONS.get(name) or Exceptions()


_REACH = beside(__file__, "kernel_reach.json")
#: Call budgets from kernel coverage: ``RARE`` operators have more generated calls, since each makes at least a fifth of
#: the calls of a kernel reached by fewer than sixty distinct calls; recorded ``SHARED`` ones have fewer: less than 1/20
#: of each of their kernels' calls. Counted by the evaluation ``operator-reach`` at 24 calls, or 42 in few dtypes.
RARE, SHARED = frozenset(_REACH["rare"]), frozenset(_REACH["shared"])

_FAMILIES = (pointwise, indexing, linear, movement, network, reduction)
#: Every operator of the catalogue, by name.
OPERATORS: dict[str, Operator] = {}
for _operator in (operator for family in _FAMILIES for operator in family.OPERATORS):
    if OPERATORS.setdefault(_operator.name, _operator) is not _operator:
        raise ValueError(f"two operators have one name: {_operator.name}")
#: Every recorded operator by name; those also in the catalogue are tested from the catalogue, in its dtypes.
RECORDED: dict[str, Entry] = load()


def without_holes(*_: Any, dilation: Any = 1, **__: Any) -> bool:
    """Return whether windows have no holes, refused by host code on A2 and A3 (aclnn_max_pool3d_with_argmax.cpp)."""
    return dilation in (1, (1, 1, 1), [1, 1, 1])


def _in_order(_: Any, indices: torch.Tensor, *__: Any, offsets: torch.Tensor | None = None, **___: Any) -> bool:
    """Return whether each row is in one bag of embeddings: bags must not overlap, and no bags means no rows."""
    return offsets is None or (bool((offsets.diff() >= 0).all()) and bool(offsets.numel() or not indices.numel()))


def _is_quick(x: torch.Tensor, sizes: Any, *_: Any, **__: Any) -> bool:
    """Return whether adaptive pooling adds few enough elements: many windows over long rows take a minute."""
    wanted = sizes if isinstance(sizes, list | tuple) else [sizes] * 3
    work = [max(own, to or own) for own, to in zip(reversed(x.shape), reversed(wanted), strict=False)]
    return math.prod(work) * math.prod(x.shape[: -len(work)]) < 2**22


def _are_small(*operands: Any, **__: Any) -> bool:
    """Return whether distances are exact enough for their difference."""
    numbers = [each for each in operands if isinstance(each, torch.Tensor) and each.numel()]
    return all(bool(each.abs().max() < 2**12) for each in numbers)


def _is_regular(matrix: torch.Tensor, n: int = 1, *_: Any, **__: Any) -> bool:
    """Return whether an inverted matrix is far from singular; near it, rounding decides whether it is invertible."""
    return n >= 0 or not matrix.numel() or bool((torch.linalg.cond(matrix.double()) < 2**12).all())


def _is_well_conditioned(matrix: torch.Tensor, *_: Any, **__: Any) -> bool:
    """Return whether an inverse's gradient has many correct bits, and its square matrix of as many rows has room."""
    if max(matrix.shape[-2:]) > LONG:
        return False
    is_plain = not matrix.numel() or not matrix.isfinite().all()
    return is_plain or bool((torch.linalg.cond(matrix.double()) < 2**8).all())


def _stays_in_range(x: torch.Tensor, dim: int | None = None, **__: Any) -> bool:
    """Return whether a product stays in float32's range in any order: its gradient consists of partial products."""
    powers = x.double().abs().log2().nan_to_num(0.0, 0.0, 0.0)
    rows = powers.flatten().unsqueeze(0) if dim is None or not x.dim() else powers.movedim(dim, -1)
    return not rows.numel() or bool(torch.stack((rows.clamp(min=0).sum(-1), -rows.clamp(max=0).sum(-1))).max() < 120)


def _varies(rows: torch.Tensor) -> bool:
    """Return whether no row of a matrix is constant: scaled by its spread, the result would be rounding error."""
    return not rows.numel() or not bool((rows.amax(1) == rows.amin(1)).any())


def _is_resolved(image: torch.Tensor, *grid_and_modes: Any, **__: Any) -> bool:
    """Return whether the modes exist, and half precision resolves an image's pixels in coordinates from -1 to 1."""
    is_known = all(mode in range(3) for mode in grid_and_modes[1:3] if isinstance(mode, int))
    return is_known and (image.element_size() > 2 or max(image.shape[2:], default=0) < 2**10)


def _fits(x: torch.Tensor, *kinds: Any, **_: Any) -> bool:
    """Return whether a conversion is defined: converting NaN or out-of-range numbers to integers is not."""
    wanted = next((each for each in kinds if isinstance(each, torch.dtype)), x.dtype)
    is_whole = not (wanted.is_floating_point or wanted.is_complex or wanted is torch.bool)
    return not (x.is_floating_point() and is_whole) or bool(fits(x, wanted).all())


def _has_no_overlap(x: torch.Tensor, _: torch.Tensor, size: Any, stride: Any, storage_offset: int = 0) -> bool:
    """Return whether no two elements of a view share a place in memory, where either may remain."""
    places = torch.arange(2 * x.numel()).as_strided(size, stride, storage_offset).reshape(-1).sort().values
    return not bool((places.diff() == 0).any())


def _is_quick_from_zero(*given: Any, **_: Any) -> bool:
    """Return whether no number is so far below zero that the CPU's sum with as many terms takes minutes."""
    return not any(bool((each < -(2**9)).any()) for each in given if isinstance(each, torch.Tensor))


def _has_elements(x: torch.Tensor, *_: Any, **__: Any) -> bool:
    """Return whether there are elements: for none, torch's CPU kernel skips rows, columns or channels of a result."""
    return bool(x.numel())


def _is_between_borders(x: torch.Tensor, bins: int = 100, min: float = 0, max: float = 0) -> bool:  # noqa: A002
    """Return whether each element is far enough from the bin borders to be counted in one bin only."""
    if not x.numel() or not x.isfinite().all():
        return False
    low, high = (float(min), float(max)) if min != max else (float(x.min()), float(x.max()))
    places = (x.double() - low) / ((high - low) or 1) * bins
    inner = places[(x > low) & (x < high)]
    return bool(((inner - inner.round()).abs() > 1e-4).all())


#: Conditions for generated calls to be legal, besides those that the CPU refuses.
_LEGAL: Mapping[str, Callable[..., bool]] = {
    # Interpolation by area is adaptive pooling, and has to be quick.
    "interpolate": lambda x, size=None, *_, mode="nearest", **__: mode != "area" or size is None or _is_quick(x, size),
    "prod": _stays_in_range,
    "linalg.matrix_power": _is_regular,
    "triplet_margin_loss": _are_small,
    "pinverse": _is_well_conditioned,
    # An integral over steps of varying sign must have few of them, so that rounding does not affect the result.
    **dict.fromkeys(
        ("trapz", "trapezoid", "cumulative_trapezoid"), lambda y, x=None, **_: x is None or y.shape[-1:].numel() <= 64
    ),
    **{f"adaptive_{kind}_pool{n}d": _is_quick for kind in ("avg", "max") for n in (1, 2, 3)},
    "instance_norm": lambda images, *_, **__: _varies(images.flatten(2).flatten(0, 1)),
    "batch_norm": lambda images, *_, **__: _varies(images.transpose(0, 1).flatten(1)),
    # Every element must be written: circular padding copies what was cropped, which may be nothing.
    "pad": lambda _, pad, mode="constant", *__: mode != "circular" or min(pad, default=0) >= 0,
    # There must be more than one row: the correlation of a row with itself is one, and its gradient is rounding error.
    "corrcoef": lambda x: x.dim() > 1 and len(x) != 1,
    # The order of results must be known: unsorted, torch 2.1 puts NaN anywhere.
    "unique": lambda x, *_, sorted=True, **__: sorted or bool(x.isfinite().all()),  # noqa: A006
    **dict.fromkeys(("grid_sample", "grid_sampler_2d", "grid_sampler_3d"), _is_resolved),
    # Sums of products must be finite in any order.
    "cov": lambda matrix, *_, **__: not matrix.numel() or bool(matrix.abs().max() < 2**31),
    # The call must be quick: torch multiplies matrices for one feature of the result after another.
    "bilinear": lambda _, __, weight, *___, **____: weight.shape[0] <= 64,
    # All labels must be valid classes: otherwise kernels read beyond the probabilities.
    "ctc_loss": lambda chances, labels, *_, **__: not labels.numel() or int(labels.max()) < chances.shape[-1],
    # The matrix must have few rows: torch_npu creates a square matrix of that size for its factors.
    "lu": lambda matrix, *_, **__: matrix.shape[-2] <= LONG,
    # torch's CPU kernel must finish within a second: in half precision it multiplies slowly.
    "matrix_exp": lambda matrix, *_, **__: matrix.dtype not in HALF or matrix.shape[-1] <= 64,
    "max_pool3d": without_holes,
    "embedding_bag": _in_order,
    **dict.fromkeys(("multi_margin_loss", "pixel_unshuffle"), _has_elements),
    # Classes must be few enough to compare each with each.
    "multilabel_margin_loss": lambda x, *_, **__: _has_elements(x) and x.shape[-1:].numel() <= 2**10,
    **dict.fromkeys(("polygamma", "special.polygamma"), _is_quick_from_zero),
    "histc": _is_between_borders,
    "to": _fits,
    # No two elements may be written to the same place, where either may remain.
    "scatter": lambda _, dim, index, *__, **___: (
        not index.dim() or bool((index.sort(dim).values.diff(dim=dim) != 0).all())
    ),
    "as_strided_scatter": _has_no_overlap,
}

#: Findings kept from exploration.
FINDINGS = kept(Path(__file__).with_name(KEPT))


def is_recorded(name: str, dtype: str) -> bool:
    return name not in OPERATORS or dtype not in OPERATORS[name].dtypes


def swept(name: str, dtype: str, store: GoldenStore) -> Operator:
    """Return an operator for generated calls: recorded ones start from their recording. Raises GoldenError."""
    if not is_recorded(name, dtype):
        changed = _changed(name)
        return replace(OPERATORS[name], **changed) if changed else OPERATORS[name]
    entry = RECORDED[name]
    reference = recording(store, entry.golden_id)

    def recorded(_: InputFactory) -> Iterator[Sample]:
        return filter(_can_grow, reference.samples("forward", dtype))

    operator = operator_of(entry)
    return replace(
        operator,
        inputs=INSTEAD.get(name) or together(recorded, FURTHER.get(name, exactly())),
        # Sums may be as long as an input; special values that the CPU refuses are left out.
        **{"terms": 1 if operator.traits.is_pointwise else USUAL_TERMS + 1, "nonfinite": True, **_changed(name)},
    )


def _changed(name: str) -> dict[str, Any]:
    special = exceptions(name)
    given = {key: tuple(each) if isinstance(each, list) else each for key, each in special.settings.items()}
    given |= ({"grad": False} if special.no_gradients else {}) | ({"refuses": False} if special.takes else {})
    return given | ({"sweep": _LEGAL[name]} if name in _LEGAL else {})


def _can_grow(sample: Sample) -> bool:
    """Return whether a recorded call can be resized: with a fractional factor, a last bit decides the nearest pixel."""
    is_continuous = sample.kwargs.get("mode", "nearest") not in ("nearest", "nearest-exact", "area")
    factor = sample.kwargs.get("scale_factor")
    return factor is None or is_continuous or float(factor).is_integer()


#: Dtypes with generated calls at level smoke, for which developers wait after each change, and their triples of calls.
#: In triple 7, each call meets most conditions on sizes at once; in five dtypes it shows more than others in three.
AT_SMOKE = {"float32": (0, 4, 7), "bfloat16": (1, 7), "float16": (7,), "int32": (7,), "int64": (7,)}
#: The further triples of level standard, and their number at full. Triples 1, 4 and 5 add little. For operators with
#: rare kernels two dtypes alternate, the first with even triples. Of 636 planted faults, level standard noticed 600 so,
#: and 601 with all of the first 8, or the first 20; level smoke 507, with the fifth in bfloat16 497.
_EARLY, _OF_SHARED, _OF_RARE = ((0, 2, 3, 6, 7), 72), ((1, 2, 3, 7), 36), (range(20), 80)
_IN_TURN = {"float16": 0, "bfloat16": 1, "int32": 0, "int64": 1}


def target_of(
    case: Case, device: torch.device, store: GoldenStore, seed: int | str = SWEEP_SEED, level: str = "standard"
) -> Target:
    """Return a case's operator with its golden, or with calls by ``seed`` and ``level``. Raises GoldenError."""
    if case.property == FOUND:
        operator = swept(case.subject, case.dtype, store)
        return Target(case, operator, sweep_of(operator, case.dtype, FINDINGS), device)
    if case.property in CALLS:
        operator = swept(case.subject, case.dtype, store)
        reference = SweepReference.of(operator, case.dtype, *calls_of(case, level), seed=seed)
        return Target(case, operator, reference, device)
    if is_recorded(case.subject, case.dtype):
        entry = RECORDED[case.subject]
        operator = operator_of(entry)
        return Target(case, operator, recording(store, entry.golden_id).of(operator), device)
    operator = OPERATORS[case.subject]
    return Target(case, operator, StoredGolden(operator, store), device)


def calls_of(case: Case, level: str = "standard") -> tuple[range, ...]:
    """Return the generated calls of a case at a level; level full does not repeat those of standard."""
    threes = {*AT_SMOKE.get(case.dtype, AT_SMOKE["float32"])}
    if level != "smoke":
        is_rare, is_shared = case.subject in RARE, case.subject in SHARED
        early, count = _OF_RARE if is_rare else _OF_SHARED if is_shared else _EARLY
        turn = _IN_TURN.get(case.dtype) if is_rare else None
        now = {three for three in early if turn is None or three % 2 == turn} | (set() if is_shared else threes)
        threes = now if case.property == "sweep" else {*range(count)} - now
    return tuple(range(3 * three, 3 * three + 3) for three in sorted(threes))
