"""What a catalogue entry is: an operator, and the samples that it is called with."""

from __future__ import annotations

import functools
import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import torch

from .stored_tensor import StoredTensor
from .trees import leaves, on_leaves
from .values import Values

#: What stands in a sample in place of a tensor.
Source: TypeAlias = Values | StoredTensor

FLOATS = ("float32", "float16", "bfloat16")
INTS = ("int64", "int32", "int16", "int8", "uint8")
BOOL = ("bool",)
ALL = (*FLOATS, *INTS, *BOOL)

#: How exact a correct device is, see judging.py.
MOVE, ARITHMETIC, FUNCTION = "move", "arithmetic", "function"

#: Elements of a tensor that counts as large, and terms in the longest sum over any other.
LONG, USUAL_TERMS = 512, 256

#: What a sample is about; the groups that a property runs are in properties.py.
FORWARD, SPECIAL, SHAPES, PROMOTION, LAYOUT = "forward", "special", "shapes", "promotion", "layout"


@dataclass(frozen=True, kw_only=True, slots=True)
class Sample:
    """One call: its arguments, with a :data:`Source` in place of each tensor. ``group`` says what it shows.

    ``all_bits`` tells of a recorded one that its numbers are of one dtype, with all bits that this has.
    """

    name: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    group: str = FORWARD
    all_bits: bool = False

    def values(self) -> list[Source]:
        """Return the tensors to be made, in order."""
        return [leaf for leaf in leaves((self.args, dict(self.kwargs))) if isinstance(leaf, Source)]

    def arguments(self, operator: str, dtype: torch.dtype) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Make the arguments, with tensors on the CPU: the same for the same operator and sample everywhere."""
        places = itertools.count()

        def made(leaf: Any) -> Any:
            if not isinstance(leaf, Source):
                return leaf
            return leaf.make(f"ops/{operator}/{self.name}/{next(places)}", dtype)

        args, kwargs = on_leaves(made, (self.args, dict(self.kwargs)))
        return args, kwargs

    def with_nonfinite(self, dtype: torch.dtype) -> Sample:
        """Return the same call with NaN and infinities in the first tensor that could be differentiated by."""
        first = next(each for each in self.values() if each.wants_grad(dtype) and each.shape)
        swap = lambda leaf: leaf.with_nonfinite() if leaf is first else leaf  # noqa: E731
        args, kwargs = on_leaves(swap, (self.args, dict(self.kwargs)))
        return replace(self, name=f"{self.name}, not all finite", args=args, kwargs=kwargs, group=SPECIAL)

    @property
    def is_long(self) -> bool:
        """Whether a tensor is so large that the longest sums may be over it."""
        return any(math.prod(each.shape) > LONG for each in self.values())

    def expanded(self) -> Sample:
        """Return the same call with every tensor expanded along its first dimension."""
        swap = lambda leaf: leaf.expanded() if isinstance(leaf, Source) else leaf  # noqa: E731
        args, kwargs = on_leaves(swap, (self.args, dict(self.kwargs)))
        return replace(self, name=f"{self.name}, expanded", args=args, kwargs=kwargs, group=LAYOUT)


def call(*args: Any, group: str = FORWARD, name: str = "", **kwargs: Any) -> Sample:
    """Describe one call; where no name is given, its shapes and arguments are the name."""
    return Sample(name=name or _name(args, kwargs), args=args, kwargs=kwargs, group=group)


def _name(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
    parts = [_text(each) for each in args] + [f"{key}={_text(value)}" for key, value in kwargs.items()]
    return ", ".join(parts)


def _text(value: Any) -> str:
    if isinstance(value, Source):
        return value.label
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_text, value))}]"
    return str(value).removeprefix("torch.")


#: Gives the samples for a dtype.
Inputs: TypeAlias = Callable[[torch.dtype], Iterable[Sample]]


@dataclass(frozen=True, slots=True, eq=False)
class Operator:
    """One line of the catalogue.

    ``function`` takes the arguments of each sample that ``inputs`` gives for a dtype. ``exactness`` is MOVE (nothing is
    computed: every bit is promised), ARITHMETIC (one correct rounding) or FUNCTION (2 ulp); ``terms`` is the number of
    terms in its longest sum. ``grad`` tells whether it is differentiable, ``out`` whether it takes ``out=``,
    ``in_place`` whether ``Tensor.NAME_`` exists. ``signed_zero`` tells that IEEE 754 promises a zero's sign.
    ``reference`` replaces ``function`` where float64 needs another call. ``strides`` is true where the strides of the
    result are promised: it is a view or a copy. ``deterministic`` is false where the order of additions is not
    promised, ``channels_last`` where the layout is not asked for (see left_out.py), ``nonfinite`` where nothing is
    promised of NaN and infinities. ``recorded`` tells that one set of inputs serves all floating dtypes.
    """

    name: str
    function: Callable[..., Any]
    inputs: Inputs
    dtypes: tuple[str, ...] = FLOATS
    family: str = ""
    exactness: str = FUNCTION
    terms: int = 1
    grad: bool = True
    out: bool = False
    in_place: bool = False
    signed_zero: bool = False
    strides: bool = False
    deterministic: bool = True
    channels_last: bool = True
    nonfinite: bool = True
    reference: Callable[..., Any] | None = None
    recorded: bool = False

    def samples(self, dtype: str) -> tuple[Sample, ...]:
        """Return all samples for a dtype, each with a name of its own."""
        return _samples(self, dtype)


@functools.cache
def _samples(operator: Operator, dtype: str) -> tuple[Sample, ...]:
    seen: Counter[str] = Counter()
    found = []
    for sample in operator.inputs(getattr(torch, dtype)):
        seen[sample.name] += 1
        times = seen[sample.name]
        found.append(sample if times == 1 else replace(sample, name=f"{sample.name} #{times}"))
    return tuple(found)


def in_family(family: str, *operators: Operator) -> tuple[Operator, ...]:
    """Put operators into a family."""
    return tuple(replace(operator, family=family) for operator in operators)
