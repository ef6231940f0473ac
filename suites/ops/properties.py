"""The properties that every operator is asked for, and which of them apply to it. Each is one test in test_ops.py."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping

import torch

from .operator import BOOL, FLOATS, FORWARD, FUNCTION, INTS, LAYOUT, PROMOTION, SHAPES, SPECIAL, Operator, Sample

#: Integers beside the usual ones: asked for their values, and for the rest at level full.
NARROW = INTS[2:]


@functools.cache
def chosen(operator: Operator, property_: str, dtype: str) -> tuple[Sample, ...]:
    """Return the samples that a property is shown with."""
    return PROPERTIES[property_](operator, dtype)


def applies(operator: Operator, property_: str, dtype: str) -> bool:
    """Whether there is anything to show."""
    return bool(chosen(operator, property_, dtype))


def level_of_recorded(property_: str, dtype: str, *, first: bool) -> str:
    """Return the lowest level that runs a recorded operator's property, of which this is the first dtype or not."""
    usual = property_ in ("forward", "backward") and dtype in FLOATS[:2]
    in_float32 = property_ in ("special", "layout") and dtype == "float32"
    return "standard" if usual or in_float32 or (property_ == "repeat" and first) else "full"


def level(property_: str, dtype: str) -> str:
    """Return the lowest level that runs the property: the quickest, that of float32 forward, comes first."""
    if property_ == "forward" and dtype == "float32":
        return "smoke"
    return "full" if dtype in (*NARROW, *BOOL) and property_ not in ("forward", "promotion") else "standard"


def _of_group(group: str) -> Callable[[Operator, str], tuple[Sample, ...]]:
    return lambda operator, dtype: tuple(each for each in operator.samples(dtype) if each.group == group)


def _special(operator: Operator, dtype: str) -> tuple[Sample, ...]:
    """Samples of its own, or else the first usual one with NaN and infinities put in."""
    own, kind = _of_group(SPECIAL)(operator, dtype), getattr(torch, dtype)
    if own or not operator.nonfinite or not kind.is_floating_point:
        return own
    usual = _of_group(FORWARD)(operator, dtype)
    fitting = (each for each in usual if any(v.wants_grad(kind) and v.shape for v in each.values()))
    return tuple(each.with_nonfinite(kind) for each in itertools.islice(fitting, 1))


def _layouts(operator: Operator, dtype: str) -> tuple[Sample, ...]:
    """The usual calls, and the first that can be expanded."""
    usual = [each for each in operator.samples(dtype) if each.group == FORWARD and any(v.shape for v in each.values())]
    return (*usual, *expanded(operator, dtype))


def expanded(operator: Operator, dtype: str) -> tuple[Sample, ...]:
    """Return the first usual call of which a tensor has rows, with its tensors expanded from their first row."""
    # Along its own dimension an expanded tensor has nothing but ties, of which none has to come first.
    usual = sorted(_of_group(FORWARD)(operator, dtype), key=lambda each: each.kwargs.get("dim", 1) in (0, None))
    found = [each.expanded() for each in usual if any(values.can_repeat for values in each.values())]
    return tuple(found[:1])


def _differentiable(operator: Operator, dtype: str) -> tuple[Sample, ...]:
    if not operator.grad or dtype not in FLOATS:
        return ()
    kind = getattr(torch, dtype)
    usual = _of_group(FORWARD)(operator, dtype)
    return tuple(each for each in usual if any(values.wants_grad(kind) for values in each.values()))


def _with_out(operator: Operator, dtype: str) -> tuple[Sample, ...]:
    usual = _of_group(FORWARD)(operator, dtype)
    return (*usual[:2], *usual[2:][-1:]) if operator.out else ()


def _in_place(operator: Operator, dtype: str) -> tuple[Sample, ...]:
    """Where a result is floating and its input is not, nothing can be written in place."""
    keeps_dtype = dtype in FLOATS or operator.exactness != FUNCTION
    if not operator.in_place or not keeps_dtype:
        return ()
    return _of_group(FORWARD)(operator, dtype) + _of_group(SPECIAL)(operator, dtype)


def _repeated(operator: Operator, dtype: str) -> tuple[Sample, ...]:
    asked = operator.deterministic and dtype == operator.dtypes[0]
    return _of_group(FORWARD)(operator, dtype)[:2] if asked else ()


#: Property -> the samples of an operator that show it, for a dtype.
PROPERTIES: Mapping[str, Callable[[Operator, str], tuple[Sample, ...]]] = {
    "forward": _of_group(FORWARD),
    "special": _special,
    "shapes": _of_group(SHAPES),
    "promotion": _of_group(PROMOTION),
    "layout": _layouts,
    "backward": _differentiable,
    "backward-layout": _differentiable,
    "out": _with_out,
    "in-place": _in_place,
    "repeat": _repeated,
}

#: The groups whose results are stored; the other properties compare with those of "forward".
STORED = (FORWARD, SPECIAL, SHAPES, PROMOTION, LAYOUT)
