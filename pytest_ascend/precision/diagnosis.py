"""Where the wrong elements are, what that usually means, and whether a known deviation of the chip explains them.

Chip makers document deviations from PyTorch's promises. If one of the chip in use explains a wrong result, the judge
says so; the verdict stays the same. ``baselines/expectations.json`` lists the chips for which each is documented.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import sqrt
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from pytest_ascend.environment.chips import family
from pytest_ascend.precision.formats import ALLOWANCES, Floats
from pytest_ascend.precision.kernel_fallbacks import active
from pytest_ascend.precision.settings import Request, explain
from pytest_ascend.records.verdict import FLUSHES, HALVES, SATURATES, Verdict, Worst, as_expected_of
from pytest_ascend.system.programs import for_now


@dataclass(frozen=True, slots=True)
class Sample:
    """Wrong elements: their row-major positions and both values; ``total`` includes those left out."""

    shape: tuple[int, ...]
    dtype: str
    places: Floats
    actual: Floats
    expected: Floats
    total: int
    #: The number of elements of the tensor, and whether the sample includes every wrong one.
    elements: int
    is_whole: bool

    @classmethod
    def of(cls, tensor: Tensor, parts: Sequence[tuple[Floats, Floats, Floats]], total: int) -> Sample:
        """Return the sample of a tensor; each part has positions, actual and expected values of some wrong elements."""
        nothing = np.zeros(0, np.int64)
        places, actual, expected = map(np.concatenate, zip(*parts, strict=True)) if parts else (nothing,) * 3
        dtype, is_whole = str(tensor.dtype).removeprefix("torch."), places.size == total
        return cls(tuple(tensor.shape), dtype, places, actual, expected, total, tensor.numel(), is_whole)


def index_of(place: int, shape: Sequence[int]) -> tuple[int, ...]:
    """Return the index of an element from its row-major position; () for a scalar."""
    return tuple(map(int, np.unravel_index(place, tuple(shape))))


#: Elements listed per comparison; rows and columns of the map of wrong elements.
MOST_REPORTED, MAP_ROWS, MAP_COLUMNS = 8, 24, 48


def worst_elements(sample: Sample) -> tuple[Worst, ...]:
    """Return the worst of the wrong elements, misplaced NaN and Inf first."""
    if not sample.places.size or not np.issubdtype(sample.actual.dtype, np.number):
        return ()
    form = "{}" if np.issubdtype(sample.actual.dtype, np.integer) else "{:.9g}"
    with np.errstate(all="ignore"):
        gaps = np.abs(sample.actual.astype(np.float64) - sample.expected.astype(np.float64))
    order = np.argsort(-np.nan_to_num(gaps, nan=np.inf, posinf=np.inf), kind="stable")[:MOST_REPORTED]
    return tuple(
        Worst(
            index=index_of(int(sample.places[place]), sample.shape),
            actual=form.format(sample.actual[place]),
            expected=form.format(sample.expected[place]),
        )
        for place in order
    )


def map_of(sample: Sample) -> tuple[str, ...]:
    """Return a map of the wrong elements, for a Verdict; empty if the sample does not include all of them."""
    if not sample.is_whole or not sample.places.size or sample.elements < 2:
        return ()
    width = sample.shape[-1]
    height = sample.elements // width
    rows, columns = min(height, MAP_ROWS), min(width, MAP_COLUMNS)
    down, across = np.divmod(sample.places, width)
    wrong = np.zeros((rows, columns))
    np.add.at(wrong, (down * rows // height, across * columns // width), 1)
    sizes = [np.bincount(np.arange(size) * cells // size) for size, cells in ((height, rows), (width, columns))]
    share = wrong / np.outer(*sizes)
    return tuple("".join(str(int(level)) for level in row) for row in np.ceil(share * 9))


def pattern_of(sample: Sample) -> str:
    """Return the pattern of the wrong elements and what it usually means; "" if there is none."""
    if not sample.total or not sample.places.size:
        return ""
    where = next(filter(None, (look(sample) for look in PLACES)), "scattered over the tensor")
    return "; ".join([where, *causes(sample.actual, sample.expected, sample.dtype)])


def _everywhere(sample: Sample) -> str:
    if sample.total == 1:
        return "a single element"
    if sample.total == sample.elements:
        return "all elements"
    return f"nearly all elements ({sample.total} of {sample.elements})" if sample.total > 0.99 * sample.elements else ""


def _run(sample: Sample) -> str:
    """Return a text if they are one contiguous block in memory order: at the end, at the start or within."""
    first, last = int(sample.places[0]), int(sample.places[-1])
    if not sample.is_whole or last - first + 1 != sample.total:
        return ""
    if last == sample.elements - 1:
        return f"the last {sample.total} elements: a tail that was not computed or not written"
    if first == 0:
        return f"the first {sample.total} elements"
    return f"one block of {sample.total} elements from element {first}"


def _slices(sample: Sample) -> str:
    """Return a text if they are entire rows, columns or planes: few different indices in one dimension."""
    if len(sample.shape) < 2 or not sample.is_whole:
        return ""
    for axis, (size, index) in enumerate(zip(sample.shape, np.unravel_index(sample.places, sample.shape), strict=True)):
        found = np.unique(index)
        are_few = found.size <= max(1, size // 4) and np.ptp(found) + 1 == found.size
        if are_few and sample.total >= 0.9 * found.size * (sample.elements // size):
            names = f"{found[0]}" if found.size == 1 else f"{found[0]} to {found[-1]}"
            return f"everything at index {names} of dimension {axis}"
    return ""


def _box(sample: Sample) -> str:
    """Return a text if they are a rectangular block."""
    if len(sample.shape) < 2 or not sample.is_whole:
        return ""
    index = np.unravel_index(sample.places, sample.shape)
    ranges = [(int(each.min()), int(each.max()) + 1) for each in index]
    volume = int(np.prod([stop - start for start, stop in ranges]))
    if sample.total < 0.9 * volume or volume == sample.elements:
        return ""
    return f"the block [{', '.join(f'{start}:{stop}' for start, stop in ranges)}]"


def _every(sample: Sample) -> str:
    """Return a text if they are at equal distances."""
    if sample.places.size < 3:
        return ""
    step = int(np.gcd.reduce(np.diff(sample.places)))
    first = int(sample.places[0])
    return f"every {step}th element from element {first % step}" if step > 1 else ""


def _one_index(sample: Sample) -> str:
    """Return a text if they are scattered, but all in one row, column or plane."""
    for axis, index in enumerate(np.unravel_index(sample.places, sample.shape) if len(sample.shape) > 1 else ()):
        if sample.places.size >= 4 and np.unique(index).size == 1:
            return f"only at index {int(index[0])} of dimension {axis}"
    return ""


#: Checks of where the wrong elements are, from the most specific to the least specific.
PLACES: tuple[Callable[[Sample], str], ...] = (_everywhere, _run, _slices, _box, _every, _one_index)


def causes(actual: Floats, expected: Floats, dtype: str) -> Iterator[str]:
    """Yield the usual causes of such wrong values, the most specific first."""
    if not np.issubdtype(actual.dtype, np.number):
        return
    ours, theirs = actual.astype(np.float64), expected.astype(np.float64)
    finite = np.isfinite(ours) & np.isfinite(theirs)
    if np.any(np.isnan(theirs) & ~np.isnan(ours)):
        yield "NaN was dropped, as by a maximum, minimum or clamp that does not pass it on"
    elif np.any(np.isnan(ours)):
        yield "NaN where there is none, as of memory that was never written, 0/0, or an overflow on the way"
    elif np.any(np.isinf(theirs) & np.isfinite(ours)):
        yield "a finite number for Inf, as of saturation instead of overflow"
    elif np.any(np.isinf(ours)):
        yield "Inf where there is none, as of an overflow on the way"
    elif finite.any():
        ours, theirs = ours[finite], theirs[finite]
        with np.errstate(all="ignore"):
            found = next((text for test, text in CAUSES if test(ours, theirs)), None) or _by_digits(ours, theirs, dtype)
        yield from [found] if found else []


def _far(ours: Floats, theirs: Floats) -> bool:
    return float(np.median(np.abs(ours - theirs) / np.maximum(np.abs(theirs), 1e-300))) > 0.05


def _rearranged(ours: Floats, theirs: Floats) -> bool:
    alike = ours.size > 3 and bool(np.allclose(np.sort(ours), np.sort(theirs), rtol=1e-2, atol=1e-30))
    return alike and _far(ours, theirs)


def _shifted(ours: Floats, theirs: Floats) -> bool:
    if ours.size < 4 or not _far(ours, theirs):
        return False
    pairs = ((ours[1:], theirs[:-1]), (ours[:-1], theirs[1:]))
    return any(float(np.mean(np.isclose(a, b, rtol=1e-2))) > 0.9 for a, b in pairs)


def _scaled(ours: Floats, theirs: Floats) -> bool:
    ratio = ours[theirs != 0] / theirs[theirs != 0]
    if ratio.size < 4 or not np.isfinite(ratio).all():
        return False
    middle = float(np.median(ratio))
    return abs(middle - 1) > 0.01 and float(np.max(np.abs(ratio - middle))) < 0.01 * abs(middle)


def _offset(ours: Floats, theirs: Floats) -> bool:
    gap = ours - theirs
    middle = np.median(gap)
    return ours.size > 3 and middle != 0 and float(np.max(np.abs(gap - middle))) < 0.05 * abs(middle)


def _unrelated(ours: Floats, theirs: Floats) -> bool:
    if ours.size < 16 or not ours.any() or not theirs.any():
        return False
    lengths = float(np.linalg.norm(ours) * np.linalg.norm(theirs))
    return lengths > 0 and abs(float(ours @ theirs)) < 0.5 * lengths


#: Tests of wrong values (float64, only finite ones) for common causes: the first that applies is reported.
CAUSES: tuple[tuple[Callable[[Floats, Floats], bool], str], ...] = (
    (
        lambda ours, theirs: bool(np.all(ours == 0) and np.any(theirs)),
        "zeros instead of values, as of what is not computed, not written, masked away, or flushed as too small",
    ),
    (
        lambda ours, _: ours.size > 3 and bool(np.all(ours == ours[0])),
        "one value for all, as where a broadcast or an offset is ignored",
    ),
    (lambda ours, theirs: bool(np.allclose(ours, -theirs, rtol=1e-2, atol=0)), "the sign is wrong"),
    (_shifted, "the values of the neighbours, as of an offset or index off by one"),
    (_rearranged, "the right values in the wrong places, as where strides, an axis or an order are ignored"),
    (_scaled, "all off by one factor, as of a scale, a mean for a sum, or a factor left out"),
    (_offset, "all off by one amount, as of a bias or a term left out or added twice"),
    (_unrelated, "hardly related to what was expected (cosine below 0.5)"),
)

#: Formats in which float32 results are silently computed: significand bits and names.
SHORTER = {8: "bfloat16", 11: "float16 or a 10-bit mantissa (TF32, HF32)", 12: "an 11-bit mantissa (HF32)"}
OF_HF32 = "as of products in HF32"
#: The cause suggested by the size of the errors alone.
AS_OF_16_BITS = "errors as large as those of a 16-bit format or a 10-bit mantissa"
#: Errors are a smooth function if the mean squared difference of neighbours is below this share of the mean square;
#: for independent errors the expected share is 2 (von Neumann's ratio).
_SMOOTH = 0.1


def formula_of(x: Floats, actual: Floats, expected: Floats) -> str:
    """Return a sentence if the error of a unary function is a smooth function of the input; "" otherwise.

    ``x``, ``actual`` and ``expected`` are flat float64 arrays. Rounding errors are not smooth; another formula's are.
    """
    order = np.argsort(x, kind="stable")
    order = order[np.isfinite(x[order]) & np.isfinite(actual[order]) & np.isfinite(expected[order])]
    error, at = actual[order] - expected[order], x[order]
    square = float(np.mean(np.square(error))) if error.size >= 32 else 0.0
    if not 0 < square < np.inf or float(np.mean(np.square(np.diff(error)))) > _SMOOTH * square:
        return ""
    if np.unique(at).size < 32 or float(np.ptp(error)) < 0.05 * float(np.abs(error).max()):
        return ""
    worst = int(np.abs(error).argmax())
    largest = f"largest ({error[worst]:.2g}) at {at[worst]:.3g}"
    return f"the error is a smooth function of the input, {largest}: another formula?"


def _by_digits(ours: Floats, theirs: Floats, dtype: str) -> str:
    """Return a cause by the size of the relative error, or by low bits that are all zero; "" if there is none."""
    digits = {"float64": 53, "float16": 11, "bfloat16": 8}.get(dtype, 24)  # bits of the significand
    some = ours[ours != 0][:4096]
    if some.size >= 16:
        used = np.bitwise_or.reduce((np.abs(np.frexp(some)[0]) * 2.0**53).astype(np.int64))
        kept = 54 - int(used & -used).bit_length()  # significand bits in use
        if kept in SHORTER and kept < digits:
            return f"values have only {kept} significant bits: rounded to {SHORTER[kept]}"
    relative = np.abs(ours - theirs) / np.maximum(np.abs(theirs), 1e-300)
    typical = float(np.median(relative))
    away = np.sign(ours - theirs) * np.sign(theirs)
    if ours.size >= 32 and typical < 4 * 2.0 ** (1 - digits) and abs(float(np.mean(away))) > 0.9:
        return "all " + ("away from" if away[0] > 0 else "towards") + " zero by about an ulp: another rounding mode"
    if ours.size >= 16 and digits == 24 and 2.0**-16 < typical < 2.0**-8:
        return AS_OF_16_BITS
    if ours.size >= 16 and digits < 24 and 2.0 ** (2 - digits) < typical < 0.25:
        return "errors of many ulp, as of sums accumulated in the short format instead of float32"
    return ""


#: Judges a result. Arguments: path, actual, expected, reference_runs, request.
Judge: TypeAlias = Callable[[str, Tensor, Tensor, Sequence[Tensor], Request], Verdict]

#: The ratio of a float16 rounding to a float32 rounding.
_WIDER = 2.0**13
#: Limits of the error model that are multiples of a rounding, or of a reference run's error; and limits of sums, whose
#: factors are rounded once, however many terms are added in float32.
_OF_ROUNDINGS = (
    *("element_ulps", "rms_ulps", "bias_ulps", "approximation_ulps", "sampled_ulps"),
    *("largest", "sampled_largest", "block", "rms"),
)
_OF_SUMS = ("sums", "sums_rms")


def _finite(actual: Tensor, expected: Tensor) -> Tensor:
    """Return where a finite number replaces NaN, or an infinity of its sign."""
    infinite = expected.isinf() | (expected.abs() > torch.finfo(actual.dtype).max)
    return actual.isfinite() & (expected.isnan() | (infinite & (actual.signbit() == expected.signbit())))


def _flushed(actual: Tensor, expected: Tensor) -> Tensor:
    """Return where zero replaces a subnormal number."""
    return (actual == 0) & (expected != 0) & (expected.abs() < torch.finfo(actual.dtype).tiny)


#: For each deviation, a mask of the elements (of actual and expected) in which it may occur.
SHOWN_AT: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {SATURATES: _finite, FLUSHES: _flushed}


def of_chip() -> tuple[frozenset[str], tuple[str, ...]]:
    """Return how the NPU of this process deviates from what PyTorch promises; nothing without an NPU.

    Returns the chip's documented deviations (see ``docs/expectations.md``) and the names of settings now allowing HF32.
    """
    npu = getattr(torch, "npu", None) if "torch_npu" in sys.modules else None
    if npu is None or not npu.is_initialized():
        return frozenset(), ()
    # Settings that let a chip round the factors of float32 products to HF32; the first is on by default.
    parts = [part for part in ("conv", "matmul") if getattr(getattr(npu, part), "allow_hf32", False)]
    kind = family(str(npu.get_device_name()))
    has = {SATURATES: kind.saturates, HALVES: kind.halves, FLUSHES: kind.name == "950"} if kind else {}
    documented = frozenset(name for name, is_so in has.items() if is_so)
    return documented, tuple(f"torch.npu.{part}.allow_hf32" for part in parts)


@contextlib.contextmanager
def without_hf32(device: str | torch.device) -> Iterator[str]:
    """Make an NPU multiply float32 in float32, as ``pytest --ascend`` does, and restore the settings on exit.

    Yields a sentence on what was changed, or "" if nothing was, as on the CPU.
    """
    if str(device).startswith("cpu"):
        yield ""
        return
    if str(device).startswith("npu") and "torch_npu" in sys.modules:
        torch.zeros(1, device=device)  # settings can be read only after the NPU is in use
    changed = of_chip()[1]
    parts = [getattr(torch.npu, name.split(".")[2]) for name in changed]  # type: ignore[attr-defined]

    def allow(is_so: bool) -> None:
        for part in parts:
            part.allow_hf32 = is_so

    with for_now(allow, False, True):
        yield f"{' and '.join(changed)} switched off for this comparison: HF32 has 10 or 11 bits" if changed else ""


#: The dtypes examined, and most elements: examining needs tensors of the same size.
LOOKED_AT, ELEMENTS = (torch.float16, torch.bfloat16, torch.float32), 1 << 24


def explained(verdict: Verdict, tensors: Sequence[Tensor], request: Request, judge: Judge) -> Verdict:
    """Return a disagreeing verdict with a pattern that names the fewest deviations that explain all of it, if any do.

    ``tensors`` are the actual result, the expected one and the reference runs, all of one shape. If the chip may use
    HF32 and that explains the result, the pattern names the setting.
    """
    actual, (documented, hf32) = tensors[0], of_chip()
    if actual.dtype not in LOOKED_AT or actual.numel() > ELEMENTS or not (documented or hf32):
        return verdict
    actual, expected, *reference_runs = (each.detach().cpu() for each in tensors)
    shown = {name: SHOWN_AT[name](actual, expected) for name in SHOWN_AT if name in documented}
    names = [name for name, found in shown.items() if found.any()]
    by_size = hf32 or (HALVES in documented and active() != "halves")
    if actual.dtype is torch.float32 and request.standard.rule == "model" and by_size:
        names.append(HALVES)
    for chosen in (each for count in range(1, len(names) + 1) for each in combinations(names, count)):
        rest = torch.ones_like(actual, dtype=torch.bool)
        for name in chosen:
            rest &= ~shown[name] if name in shown else rest
        ours, theirs, *beside = (each[rest] for each in (actual, expected, *reference_runs))
        how = _in_halves(request) if HALVES in chosen else request
        if not ours.numel() or judge(verdict.path, ours, theirs, beside, how).agrees:
            text = as_expected_of(chosen)
            if HALVES in set(chosen) - documented:
                text = f"{OF_HF32}: {' and '.join(hf32)} is on (torch_npu's default for convolutions); set False"
            named = replace(verdict, pattern="; ".join(filter(None, [verdict.pattern, text])))
            return replace(named, message="\n".join(explain(named)))
    return verdict


def _in_halves(request: Request) -> Request:
    """Return a request that judges float32 by float16's limits."""
    usual = request.standard.numbers("float32")
    limits = {name: usual[name] * _WIDER for name in _OF_ROUNDINGS}
    limits |= {name: usual[name] * _WIDER / sqrt(request.accumulation or ALLOWANCES.terms) for name in _OF_SUMS}
    return replace(request, limits={**request.limits, **limits}, waiver=HALVES)
