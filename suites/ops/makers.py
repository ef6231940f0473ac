"""Named factories of inputs for common kinds of operators, so that an operator's entry stays one line.

Sizes are close to vector lengths (15, 16, 17, 255, 256, 257, 1025); the main sample has four dimensions that no vector
length divides, so that layouts matter.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

import torch

from pytest_ascend.operators import InputFactory, Operator, Sample, call
from pytest_ascend.operators.operator import ALL_OUTPUTS, Inputs
from pytest_ascend.operators.samples import PROMOTION, SHAPES, SPECIAL, Number, Values, given, normal, uniform

Shape: TypeAlias = tuple[int, ...]
Ends: TypeAlias = tuple[float, float]
Named: TypeAlias = Mapping[str, Any]

IMAGE = (2, 3, 5, 7)
SIZES = ((), (0,), (2, 0, 3), (1,), (15,), (16,), (17,), (1, 257))

#: Special values for every unary function. Denormal results are left out.
NONFINITE: tuple[Number, ...] = ("nan", 0.0, "inf", -0.0, "-inf", 1.0, -1.0, 0.5, -0.5, 8.0, -8.0, 12.0, 120.0, -120.0)
#: The same with the limits of the dtype, for operators that only compare, round or add.
ENDS: tuple[Number, ...] = (*NONFINITE, "max", "-max", "tiny", "-tiny", "denormal", "-denormal", "least", "1+eps")
#: Multiples of a half and a quarter, which rounding modes treat differently.
HALVES: tuple[Number, ...] = (0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 0.25, 0.75, -0.25, -0.75, 3.0, -3.0)
#: Values combined into pairs, each first one with each second one, including non-finite numbers and signed zeros.
PAIRED: tuple[Number, ...] = ("nan", "inf", "-inf", 0.0, -0.0, 1.0, -2.5, "max", "denormal")

_WORDS: Mapping[str, float] = {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf")}


def numbers(*values: Number, shape: Shape | None = None) -> Values:
    """Describe a tensor of these numbers, which may also be "nan", "inf", "-inf" and the names in samples.py."""
    return given(*(_WORDS.get(each, each) if isinstance(each, str) else each for each in values), shape=shape)


def by(*args: Any, **named: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return args, named


def over(
    given: Values | tuple[Values, ...], *ways: tuple[tuple[Any, ...], dict[str, Any]], **each: Any
) -> Iterator[Sample]:
    """Yield a call of one or several tensors with each of these further arguments; ``each`` is added to all of them."""
    tensors = given if isinstance(given, tuple) else (given,)
    return (call(*tensors, *args, **named, **each) for args, named in ways)


def in_family(family: str, *operators: Operator) -> tuple[Operator, ...]:
    """Put operators into a family, with generated calls; each output with a gradient gets a grad_output."""
    settings: dict[str, Any] = {"family": family, "grad_outputs": ALL_OUTPUTS}
    # Near 0 the result of tanhshrink is a difference without significant bits.
    return tuple(replace(each, sweep=each.sweep or each.name != "tanhshrink", **settings) for each in operators)


def exactly(*samples: Sample) -> Inputs:
    """Use these samples, without the special ones for integers, which have no NaN."""
    usual = tuple(sample for sample in samples if sample.group != SPECIAL)
    return lambda make: samples if make.dtype.is_floating_point else usual


def of_integers(*samples: Sample) -> Inputs:
    return lambda make: () if make.dtype.is_floating_point else samples


def together(*makers: Inputs) -> Inputs:
    return lambda make: (sample for maker in makers for sample in maker(make))


def unary(
    low: float = -4.0,
    high: float = 4.0,
    *,
    special: tuple[Number, ...] = NONFINITE,
    arguments: tuple[Named, ...] = (),
    always: Named | None = None,
    whole: Ends | None = None,
) -> Inputs:
    """Make samples from [low, high] or, for integers, ``whole``; with ``always``, and with each of ``arguments``."""
    usual = always or {}

    def samples(make: InputFactory) -> Iterator[Sample]:
        least, most = (low, high) if make.dtype.is_floating_point or not whole else whole
        yield call(uniform(*IMAGE, low=least, high=most), **usual)
        yield call(uniform(1025, low=least, high=most, grad=False), **usual)
        for named in arguments:
            yield call(uniform(257, low=low, high=high), **named)
        if make.dtype.is_floating_point and special:
            for named in (usual, *arguments):
                yield call(numbers(*special), group=SPECIAL, **named)
        for shape in SIZES:
            yield call(uniform(*shape, low=low, high=high), group=SHAPES, **usual)

    return samples


#: Dtypes of the other operand in mixed-dtype calls.
PARTNERS = ("float32", "float16", "bfloat16", "int64", "int32", "uint8", "bool")
#: Pairs of shapes that are broadcast together.
BROADCAST = (((3, 1), (1, 4)), ((5,), ()), ((), (2, 3)), ((0, 1), (1, 5)), ((2, 3, 1, 5), (3, 4, 1)), ((1, 1), (4,)))


def binary(
    low: float = -4.0,
    high: float = 4.0,
    *,
    second: Ends | None = None,
    whole: Ends | None = None,
    special: tuple[Number, ...] = PAIRED,
    scalars: tuple[float, ...] = (),
    arguments: tuple[Named, ...] = (),
    partners: tuple[str, ...] = PARTNERS,
    second_grad: bool = True,
) -> Inputs:
    """Make samples of two tensors, the second from ``second``: broadcast, with ``scalars`` instead, of mixed dtypes."""
    other = second or (low, high)

    def both(left: Shape, right: Shape, ends: Ends = (low, high), *, grad: bool = True) -> tuple[Values, Values]:
        first = uniform(*left, low=ends[0], high=ends[1], grad=grad)
        return first, uniform(*right, low=other[0], high=other[1], grad=grad and second_grad)

    def samples(make: InputFactory) -> Iterator[Sample]:
        ends = (low, high) if make.dtype.is_floating_point or not whole else whole
        yield call(*both(IMAGE, IMAGE, ends))
        yield call(*both((1025,), (1025,), ends, grad=False))
        yield call(*both((2, 3, 5, 7), (5, 1)))
        for named in arguments:
            yield call(*both((257,), (257,), ends), **named)
        if make.dtype.is_floating_point and special:
            for named in ({}, *arguments):
                pairs = itertools.product(special, special)
                yield call(*(numbers(*each) for each in zip(*pairs, strict=True)), group=SPECIAL, **named)
            yield from (call(numbers(*special), each, group=SPECIAL) for each in scalars)
        for left, right in (*zip(SIZES, SIZES, strict=True), *BROADCAST):
            yield call(*both(left, right), group=SHAPES)
        # Converting a negative number to unsigned is unspecified.
        least = 0 if make.dtype is torch.uint8 else -math.inf
        legal = [each for each in scalars if each >= least]
        for each in legal:
            if make.dtype.is_floating_point or (make.dtype is not torch.bool and each == int(each)):
                yield call(both((257,), ())[0], each)
        for partner in partners:  # a second operand without dimensions has a lower priority in promotion
            for shape in ((3, 5), ()):
                beside = uniform(*shape, low=max(other[0], least), high=other[1], dtype=partner)
                yield call(uniform(3, 5, low=max(low, least), high=high), beside, group=PROMOTION)
        for each in legal if partners else ():
            yield call(both((3, 5), ())[0], each, group=PROMOTION)

    return samples


#: Dimensions over which a reduction runs.
_DIMS: tuple[Named, ...] = ({"dim": 0}, {"dim": -1}, {"dim": -2, "keepdim": True})
DIMS, ONE_DIM = (*_DIMS, {"dim": (0, 2)}, {"dim": (-1, 1), "keepdim": True}), (*_DIMS, {"dim": 1})


def reduction(
    low: float = -2.0,
    high: float = 2.0,
    *,
    dims: tuple[Named, ...] = DIMS,
    whole: bool = True,
    long: int = 4099,
    empty: bool = True,
    arguments: tuple[Named, ...] = (),
    special: bool = True,
) -> Inputs:
    """Make samples of full and partial reductions; with NaN at the start, middle and end; a long row; various sizes."""

    def samples(make: InputFactory) -> Iterator[Sample]:
        for named in (*([{}] if whole else []), *dims, *arguments):
            yield call(uniform(5, 6, 7, low=low, high=high), **named)
        if long:
            # All of one sign, so that a sum accumulated in 16 bits stops growing.
            yield call(uniform(9, long, low=0, high=3, grad=False), dim=-1)
            yield call(uniform(long, 5, low=0, high=3, grad=False), dim=0)
        if make.dtype.is_floating_point and special:
            yield from _with_nonfinite({"dim": -1}, {"dim": 0}, *([{}] if whole else []))
        for size in ((1,), (15,), (16,), (17,), (257,)):
            yield call(uniform(*size, low=low, high=high), dim=0, group=SHAPES)
        if whole:
            yield call(uniform(low=low, high=high), group=SHAPES)
        for dim in (-1, 0) if empty else (0,):
            yield call(uniform(3, 0, low=low, high=high), dim=dim, group=SHAPES)

    return samples


#: Rows of five, with a non-finite value at each position; the last row is ordinary.
ROWS: tuple[tuple[Number, ...], ...] = (
    ("nan", 1.0, 2.0, -1.0, 0.5),
    (1.0, 2.0, "nan", -1.0, 0.5),
    (0.5, 1.0, 2.0, -1.0, "nan"),
    ("nan", "nan", "nan", "nan", "nan"),
    ("inf", 1.0, 2.0, -1.0, 0.5),
    ("-inf", 1.0, 2.0, -1.0, 0.5),
    ("inf", "-inf", 2.0, -1.0, 0.5),
    ("inf", "nan", "-inf", -1.0, 0.5),
    (0.5, 1.0, 2.0, -1.0, 0.25),
)


def _with_nonfinite(*arguments: Named) -> Iterator[Sample]:
    flat = tuple(each for row in ROWS for each in row)
    columns = tuple(row[place] for place in range(len(ROWS[0])) for row in ROWS)
    for named in arguments:
        yield call(numbers(*flat, shape=(len(ROWS), 5)), group=SPECIAL, name=f"rows, {named}", **named)
        yield call(numbers(*columns, shape=(5, len(ROWS))), group=SPECIAL, name=f"columns, {named}", **named)


def along(*arguments: Named, source: Values | None = None, long: int = 0) -> Inputs:
    """Make calls along a dimension of a small tensor (softmax, cumsum, sort), each with these named arguments."""
    tensor = source or normal(3, 5, 7, std=2.0)

    def samples(make: InputFactory) -> Iterator[Sample]:
        for named in arguments:
            yield call(tensor, **named)
        if long:
            yield call(uniform(2, long, low=-0.5, high=1.0, grad=False), dim=-1)
        if make.dtype.is_floating_point:
            yield from _with_nonfinite({"dim": -1}, {"dim": 0})
        for shape in ((1,), (15,), (16,), (17,), (257,), (0, 3), (3, 0)):
            yield call(uniform(*shape, low=-4, high=4, grad=len(shape) > 1), dim=0, group=SHAPES)

    return samples


def with_loss_shapes(
    low: float = -3.0,
    high: float = 3.0,
    second: Ends | None = None,
    reductions: tuple[str, ...] = ("mean", "sum", "none"),
    *,
    of_both: bool = True,
) -> Inputs:
    least, most = second or (low, high)

    def samples(_: InputFactory) -> Iterator[Sample]:
        for reduction_ in reductions:
            target = uniform(5, 51, low=least, high=most, grad=False)
            yield call(uniform(5, 51, low=low, high=high), target, reduction=reduction_)
        if of_both:
            yield call(uniform(7, 19, low=low, high=high), uniform(7, 19, low=least, high=most), reduction="none")
        for size in (1, 17, 257):
            x, target = uniform(size, low=low, high=high), uniform(size, low=least, high=most, grad=False)
            yield call(x, target, group=SHAPES, reduction=reductions[0])

    return samples
