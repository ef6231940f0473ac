"""Every operator of the suite by name, what is special about it, and what a case of it is about.

That is its operator with the golden, or the generated calls that it makes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
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
    """What is special about one operator. A text is the reason.

    Of recorded operators are ``at_smoke``: generated calls at level smoke, since they reach kernels that no operator of
    the catalogue does; ``calls``: generated ones although the family has none, ``no_calls``: none; ``one_dtype``: in a
    first dtype only, ``no_integers``: not in integers; ``not_repeated``: need not repeat bit for bit, since PyTorch
    does not promise it. Of all operators are ``no_gradients``: generated calls do not run backward, and ``settings`` of
    :class:`~pytest_ascend.operators.Operator` that are other in generated calls: layouts in which torch_npu refuses or
    miscomputes the gradient, or on which the result depends; distances and means that are infinite or NaN by the way
    of computing them; places of equal elements, any of which may be given; means over windows, which are sums. With
    ``takes``, what torch_npu takes although PyTorch refuses it, calls that PyTorch refuses are not made.
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


#: By the operator's name.
EXCEPTIONS: Mapping[str, Exceptions] = {
    name: Exceptions(**row) for name, row in beside(__file__, "exceptions.json").items()
}
_USUAL = Exceptions()


def exceptions(name: str) -> Exceptions:
    return EXCEPTIONS.get(name, _USUAL)


_REACH = beside(__file__, "kernel_reach.json")
#: Operators with more generated calls than others: each makes a fifth or more of the calls of a kernel that fewer than
#: sixty different calls reached. And recorded ones with fewer, which make less than a twentieth of the calls of each of
#: their kernels. Counted by the evaluation ``operator-reach`` while each operator had 24 calls, or 42 in few dtypes.
RARE, SHARED = frozenset(_REACH["rare"]), frozenset(_REACH["shared"])

_FAMILIES = (pointwise, indexing, linear, movement, network, reduction)
#: Every operator of the catalogue, by name.
OPERATORS: dict[str, Operator] = {}
for _operator in (operator for family in _FAMILIES for operator in family.OPERATORS):
    if OPERATORS.setdefault(_operator.name, _operator) is not _operator:
        raise ValueError(f"two operators have one name: {_operator.name}")
#: Every recorded operator by name; those also in the catalogue are tested from there, in its dtypes.
RECORDED: dict[str, Entry] = load()


def _is_written(_: torch.Tensor, pad: Sequence[int], mode: str = "constant", *__: Any) -> bool:
    """Whether padding writes every element: what goes around is taken from what was cut off, which may be nothing."""
    return mode != "circular" or min(pad, default=0) >= 0


def without_holes(*_: Any, dilation: Any = 1, **__: Any) -> bool:
    """Whether windows have no holes, which host code refuses on an A2 and A3 (aclnn_max_pool3d_with_argmax.cpp)."""
    return dilation in (1, (1, 1, 1), [1, 1, 1])


def _in_order(_: Any, indices: torch.Tensor, *__: Any, offsets: torch.Tensor | None = None, **___: Any) -> bool:
    """Whether each row is in one bag of embeddings: bags may not overlap, and without any there are no rows."""
    return offsets is None or (bool((offsets.diff() >= 0).all()) and bool(offsets.numel() or not indices.numel()))


def _is_quick(x: torch.Tensor, sizes: Any, *_: Any, **__: Any) -> bool:
    """Whether adaptive pooling adds up few enough elements: many windows, each over a long row, take a minute."""
    wanted = sizes if isinstance(sizes, list | tuple) else [sizes] * 3
    work = [max(own, to or own) for own, to in zip(reversed(x.shape), reversed(wanted), strict=False)]
    return math.prod(work) * math.prod(x.shape[: -len(work)]) < 2**22


def _are_small(*operands: Any, **__: Any) -> bool:
    """Whether distances are exact enough for their difference."""
    numbers = [each for each in operands if isinstance(each, torch.Tensor) and each.numel()]
    return all(bool(each.abs().max() < 2**12) for each in numbers)


def _is_regular(matrix: torch.Tensor, n: int = 1, *_: Any, **__: Any) -> bool:
    """Whether a matrix that is inverted is far from singular: whether it is at all, rounding decides otherwise."""
    return n >= 0 or not matrix.numel() or bool((torch.linalg.cond(matrix.double()) < 2**12).all())


def _is_well_conditioned(matrix: torch.Tensor, *_: Any, **__: Any) -> bool:
    """Whether a gradient of an inverse has many right bits, and its square matrix of as many rows some room."""
    if max(matrix.shape[-2:]) > LONG:
        return False
    is_plain = not matrix.numel() or not matrix.isfinite().all()
    return is_plain or bool((torch.linalg.cond(matrix.double()) < 2**8).all())


def _stays_in_range(x: torch.Tensor, dim: int | None = None, **__: Any) -> bool:
    """Whether a product is within float32's range in whatever order: its gradient is made of partial products."""
    powers = x.double().abs().log2().nan_to_num(0.0, 0.0, 0.0)
    rows = powers.flatten().unsqueeze(0) if dim is None or not x.dim() else powers.movedim(dim, -1)
    return not rows.numel() or bool(torch.stack((rows.clamp(min=0).sum(-1), -rows.clamp(max=0).sum(-1))).max() < 120)


def _varies(rows: torch.Tensor) -> bool:
    """Whether no row of a matrix has equal elements only: scaled by its spread, rounding would be the result."""
    return not rows.numel() or not bool((rows.amax(1) == rows.amin(1)).any())


def _is_resolved(image: torch.Tensor, *grid_and_modes: Any, **__: Any) -> bool:
    """Whether there are such modes, and half precision can name the pixels of an image: coordinates go from -1 to 1."""
    is_known = all(mode in range(3) for mode in grid_and_modes[1:3] if isinstance(mode, int))
    return is_known and (image.element_size() > 2 or max(image.shape[2:], default=0) < 2**10)


def _fits(x: torch.Tensor, *kinds: Any, **_: Any) -> bool:
    """Whether a conversion is defined: not one to integers of NaN or of numbers beyond them."""
    wanted = next((each for each in kinds if isinstance(each, torch.dtype)), x.dtype)
    is_whole = not (wanted.is_floating_point or wanted.is_complex or wanted is torch.bool)
    return not (x.is_floating_point() and is_whole) or bool(fits(x, wanted).all())


def _writes_once(_: torch.Tensor, dim: int, index: torch.Tensor, *__: Any, **___: Any) -> bool:
    """Whether no two elements are written to one place, where any may remain."""
    return not index.dim() or bool((index.sort(dim).values.diff(dim=dim) != 0).all())


def _has_no_overlap(x: torch.Tensor, _: torch.Tensor, size: Any, stride: Any, storage_offset: int = 0) -> bool:
    """Whether no two elements of a view have one place in memory, where any may remain."""
    places = torch.arange(2 * x.numel()).as_strided(size, stride, storage_offset).reshape(-1).sort().values
    return not bool((places.diff() == 0).any())


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


#: Which generated calls are legal, beside those that the CPU refuses.
_LEGAL: Mapping[str, Callable[..., bool]] = {
    # Whether interpolation by area, which is adaptive pooling, is quick.
    "interpolate": lambda x, size=None, *_, mode="nearest", **__: mode != "area" or size is None or _is_quick(x, size),
    "prod": _stays_in_range,
    "linalg.matrix_power": _is_regular,
    "triplet_margin_loss": _are_small,
    "pinverse": _is_well_conditioned,
    # Whether an integral over steps of many signs has so few that rounding shows in no result.
    **dict.fromkeys(
        ("trapz", "trapezoid", "cumulative_trapezoid"), lambda y, x=None, **_: x is None or y.shape[-1:].numel() <= 64
    ),
    **{f"adaptive_{kind}_pool{n}d": _is_quick for kind in ("avg", "max") for n in (1, 2, 3)},
    "instance_norm": lambda images, *_, **__: _varies(images.flatten(2).flatten(0, 1)),
    "batch_norm": lambda images, *_, **__: _varies(images.transpose(0, 1).flatten(1)),
    "pad": _is_written,
    # Whether there is more to correlate than a row with itself, whose correlation is one: its gradient is rounding.
    "corrcoef": lambda x: x.dim() > 1 and len(x) != 1,
    # Whether the order of an operator's results is known: unsorted, torch 2.1 has NaN anywhere.
    "unique": lambda x, *_, sorted=True, **__: sorted or bool(x.isfinite().all()),  # noqa: A006
    **dict.fromkeys(("grid_sample", "grid_sampler_2d", "grid_sampler_3d"), _is_resolved),
    # Whether sums of products are finite in any order.
    "cov": lambda matrix, *_, **__: not matrix.numel() or bool(matrix.abs().max() < 2**31),
    # Whether a call is quick: torch multiplies matrices for one feature of the result after the other.
    "bilinear": lambda _, __, weight, *___, **____: weight.shape[0] <= 64,
    # Whether all labels are among the classes: kernels read beyond the chances otherwise.
    "ctc_loss": lambda chances, labels, *_, **__: not labels.numel() or int(labels.max()) < chances.shape[-1],
    # Whether a matrix has few rows: torch_npu makes a square one of them for its factors.
    "lu": lambda matrix, *_, **__: matrix.shape[-2] <= LONG,
    # Whether torch's CPU kernel exponentiates a matrix within a second: in half precision it multiplies slowly.
    "matrix_exp": lambda matrix, *_, **__: matrix.dtype not in HALF or matrix.shape[-1] <= 64,
    "max_pool3d": without_holes,
    "embedding_bag": _in_order,
    **dict.fromkeys(("multi_margin_loss", "pixel_unshuffle"), _has_elements),
    # Whether there are so few classes that each may be compared with each.
    "multilabel_margin_loss": lambda x, *_, **__: _has_elements(x) and x.shape[-1:].numel() <= 2**10,
    **dict.fromkeys(("polygamma", "special.polygamma"), _is_quick_from_zero),
    "histc": _is_between_borders,
    "to": _fits,
    "scatter": _writes_once,
    "as_strided_scatter": _has_no_overlap,
}

#: Samples kept from exploring.
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
        # Sums may be as long as an input; with special numbers, what the CPU refuses is left out.
        **{"terms": 1 if operator.traits.is_pointwise else USUAL_TERMS + 1, "nonfinite": True, **_changed(name)},
    )


def _changed(name: str) -> dict[str, Any]:
    special = exceptions(name)
    given = {key: tuple(each) if isinstance(each, list) else each for key, each in special.settings.items()}
    given |= ({"grad": False} if special.no_gradients else {}) | ({"refuses": False} if special.takes else {})
    return given | ({"sweep": _LEGAL[name]} if name in _LEGAL else {})


def _can_grow(sample: Sample) -> bool:
    """Whether a recorded call can have other sizes: by a factor that is no integer, a last bit decides the nearest."""
    is_continuous = sample.kwargs.get("mode", "nearest") not in ("nearest", "nearest-exact", "area")
    factor = sample.kwargs.get("scale_factor")
    return factor is None or is_continuous or float(factor).is_integer()


#: The dtypes that have generated calls at level smoke, and the threes of these, where who runs it after each change
#: waits for it. In the eighth each call meets most conditions on sizes at once: in five dtypes, it shows more than
#: others do in three.
AT_SMOKE = {"float32": (0, 4, 7), "bfloat16": (1, 7), "float16": (7,), "int32": (7,), "int64": (7,)}
#: The threes of level standard beside these, and how many there are at full. What 1, 4 and 5 show others show, too. Of
#: operators with rare kernels two dtypes take turns, the first with even ones. Of 636 planted faults, level standard
#: noticed 600 so, and 601 with all of the first 8, or the first 20; level smoke 507, with the fifth in bfloat16 497.
_EARLY, _OF_SHARED, _OF_RARE = ((0, 2, 3, 6, 7), 72), ((1, 2, 3, 7), 36), (range(20), 80)
_IN_TURN = {"float16": 0, "bfloat16": 1, "int32": 0, "int64": 1}


def target_of(
    case: Case, device: torch.device, store: GoldenStore, seed: int | str = SWEEP_SEED, level: str = "standard"
) -> Target:
    """Return the operator of a case with its golden, or its calls by ``seed`` and ``level``. Raises GoldenError."""
    if case.property == FOUND:
        operator = swept(case.subject, case.dtype, store)
        return Target(case, operator, sweep_of(operator, case.dtype, FINDINGS), device)
    if case.property in CALLS:
        operator = swept(case.subject, case.dtype, store)
        return Target(
            case, operator, SweepReference.of(operator, case.dtype, *calls_of(case, level), seed=seed), device
        )
    if is_recorded(case.subject, case.dtype):
        entry = RECORDED[case.subject]
        operator = operator_of(entry)
        return Target(case, operator, recording(store, entry.golden_id).of(operator), device)
    operator = OPERATORS[case.subject]
    return Target(case, operator, StoredGolden(operator, store), device)


def calls_of(case: Case, level: str = "standard") -> tuple[range, ...]:
    """Return which generated calls a case makes in a run of a level; those of standard are not made again at full."""
    threes = {*AT_SMOKE.get(case.dtype, AT_SMOKE["float32"])}
    if level != "smoke":
        is_rare, is_shared = case.subject in RARE, case.subject in SHARED
        early, count = _OF_RARE if is_rare else _OF_SHARED if is_shared else _EARLY
        turn = _IN_TURN.get(case.dtype) if is_rare else None
        now = {three for three in early if turn is None or three % 2 == turn} | (set() if is_shared else threes)
        threes = now if case.property == "sweep" else {*range(count)} - now
    return tuple(range(3 * three, 3 * three + 3) for three in sorted(threes))
