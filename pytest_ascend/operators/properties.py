"""The properties of an operator, and which of them apply. Each is one check in checks.py."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping

import torch

from pytest_ascend.operators.operator import FLOATS, FUNCTION, Operator
from pytest_ascend.operators.samples import EXACT, FORWARD, LAYOUT, PROMOTION, SHAPES, SPECIAL, Sample, leaves
from pytest_ascend.records.case import Case
from pytest_ascend.system.errors import UsageError

#: Calls that run twice, to check that they repeat bit for bit.
_REPEATED = 4


@functools.cache
def chosen(operator: Operator, property_: str, dtype: str) -> tuple[Sample, ...]:
    """Return the samples of a property."""
    return PROPERTIES[property_](operator, dtype)


def cases_of(
    *operators: Operator, suite: str = "user", level: Callable[[Operator, str, str], str] | None = None
) -> tuple[Case, ...]:
    """Return the cases of these operators, for each dtype and applicable property.

    ``level`` gives the lowest level that runs a property of an operator in a dtype. Raises UsageError for an unknown
    dtype, for an operator without calls, and if two operators have the same name.
    """
    names = [each.name for each in operators]
    if twice := sorted({each for each in names if names.count(each) > 1}):
        raise UsageError(f"two operators have one name: {', '.join(twice)}", hint="give each a name of its own")
    for operator in operators:
        wrong = [each for each in operator.dtypes if not isinstance(getattr(torch, each, None), torch.dtype)]
        if wrong or not operator.dtypes:
            raise UsageError(
                f"the operator {operator.name!r} has the dtypes {operator.dtypes!r}",
                hint='name dtypes of torch: ("float32", "float16")',
            )
    level = level or usual_level
    return tuple(
        Case(
            suite=suite,
            subject=operator.name,
            property=property_,
            dtype=dtype,
            family=operator.family,
            level=level(operator, property_, dtype),
        )
        for operator in operators
        for dtype in operator.dtypes
        for property_ in PROPERTIES
        if chosen(operator, property_, dtype)
    )


def usual_level(operator: Operator, property_: str, dtype: str) -> str:
    """Return the lowest level that runs a property: layouts of further dtypes, the most expensive, come last."""
    if property_ == "sweep-more":
        return "full"
    if dtype == operator.dtypes[0]:
        return "smoke" if property_ == FORWARD else "standard"
    return "full" if "layout" in property_ else "standard"


def _of_group(group: str) -> Callable[[Operator, str], tuple[Sample, ...]]:
    return lambda operator, dtype: tuple(each for each in operator.samples(dtype) if each.group == group)


def _special(operator: Operator, dtype: str) -> tuple[Sample, ...]:
    """Return its own samples, or else the first usual one with NaN and infinities inserted."""
    own, kind = _of_group(SPECIAL)(operator, dtype), getattr(torch, dtype)
    if own or not operator.nonfinite or not kind.is_floating_point:
        return own
    usual = _of_group(FORWARD)(operator, dtype)
    fitting = (each for each in usual if any(v.wants_grad(kind) and v.shape for v in each.values()))
    return tuple(each.with_nonfinite(kind) for each in itertools.islice(fitting, 1))


def _layouts(operator: Operator, dtype: str) -> tuple[Sample, ...]:
    """Return the usual calls, and the first that can be expanded."""
    if not operator.layouts:
        return ()
    usual = [each for each in operator.samples(dtype) if each.group == FORWARD and any(v.shape for v in each.values())]
    return (*usual, *expanded(operator, dtype))


def expanded(operator: Operator, dtype: str) -> tuple[Sample, ...]:
    """Return the first usual call with a tensor that has rows, with its tensors expanded from their first row."""
    # Along the expanded dimension all elements are ties, whose order is undefined.
    usual = sorted(_of_group(FORWARD)(operator, dtype), key=lambda each: each.kwargs.get("dim", 1) in (0, None))
    found = [each.expanded() for each in usual if any(values.can_repeat for values in each.values())]
    return tuple(found[:1])


def _differentiable(operator: Operator, dtype: str) -> tuple[Sample, ...]:
    kind = getattr(torch, dtype)
    if not operator.grad or not kind.is_floating_point:
        return ()
    usual = _of_group(FORWARD)(operator, dtype)
    return tuple(each for each in usual if any(values.wants_grad(kind) for values in each.values()))


def _with_out(operator: Operator, dtype: str) -> tuple[Sample, ...]:
    usual = _of_group(FORWARD)(operator, dtype)
    return (*usual[:2], *usual[2:][-1:]) if operator.out else ()


def _in_place(operator: Operator, dtype: str) -> tuple[Sample, ...]:
    """Return the samples without a floating result for an integer input, which cannot be written in place."""
    keeps_dtype = dtype in FLOATS or operator.exactness != FUNCTION
    if not operator.in_place or not keeps_dtype:
        return ()
    return _of_group(FORWARD)(operator, dtype) + _of_group(SPECIAL)(operator, dtype)


def _repeated(operator: Operator, dtype: str) -> tuple[Sample, ...]:
    is_repeated = operator.deterministic and dtype == operator.dtypes[0]
    return _of_group(FORWARD)(operator, dtype)[:_REPEATED] if is_repeated else ()


def _exact(operator: Operator, dtype: str) -> tuple[Sample, ...]:
    """Return its own calls, and the usual ones with whole numbers, if other arguments do not make these inexact."""
    if dtype not in FLOATS:
        return ()
    usual = _of_group(FORWARD)(operator, dtype) if operator.exact_sums else ()
    found = (each.with_whole_numbers() for each in usual if all(map(_is_short, leaves((each.args, dict(each.kwargs))))))
    return (*found, *_of_group(EXACT)(operator, dtype))


def _is_short(argument: object) -> bool:
    """Whether an argument keeps sums of small integers exact: no dtype, and no number of many bits."""
    return not isinstance(argument, torch.dtype) and not (isinstance(argument, float) and argument * 4 % 1)


def _swept(operator: Operator, dtype: str) -> tuple[Sample, ...]:
    """Return the calls from which others are generated."""
    return tuple(each for each in _of_group(FORWARD)(operator, dtype) if each.values()) if operator.sweep else ()


#: Property -> the samples of an operator for a dtype.
PROPERTIES: Mapping[str, Callable[[Operator, str], tuple[Sample, ...]]] = {
    "forward": _of_group(FORWARD),
    "special": _special,
    "shapes": _of_group(SHAPES),
    "promotion": _of_group(PROMOTION),
    "layout": _layouts,
    "backward": _differentiable,
    "backward-layout": lambda operator, dtype: _differentiable(operator, dtype) if operator.layouts else (),
    "exact": _exact,
    "out": _with_out,
    "in-place": _in_place,
    "repeat": _repeated,
    "sweep": _swept,
    "sweep-more": _swept,
}

#: The groups whose results are stored; other properties compare with those of "forward".
STORED = (FORWARD, SPECIAL, SHAPES, PROMOTION, LAYOUT)
