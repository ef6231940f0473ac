"""Kinds of damage that can be done to any operator of the emulated device, each drawn with its details from a seed.

A damage changes what an operator is given or what it gives. None knows the operator: what it does depends on dtypes,
sizes, layouts and numbers alone.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch

T: TypeAlias = torch.Tensor
#: Takes all arguments of an operator, and gives those that it is to work with.
OnTheWayIn: TypeAlias = Callable[[Sequence[Any]], Sequence[Any]]
#: Takes the arguments and the results, and gives the results that are to be believed; those may be changed in place.
OnTheWayOut: TypeAlias = Callable[[Sequence[Any], list[T]], list[T]]


@dataclass(frozen=True, slots=True)
class Seen:
    """What an operator was called with by honest cases: from this a damage draws where it hits."""

    dtypes: set[torch.dtype] = field(default_factory=set)
    dims: set[int] = field(default_factory=set)
    arguments: set[int] = field(default_factory=set)

    def note(self, arguments: Sequence[Any]) -> None:
        """Remember a call."""
        for place, each in enumerate(arguments):
            if isinstance(each, T):
                self.dtypes.add(each.dtype)
                self.dims.add(each.dim())
            elif each is not None:
                self.arguments.add(place)


# --- what is done to one tensor ---


def _dense(x: T) -> T:
    return torch.as_strided(x, x.shape, torch.empty(x.shape, device="meta").stride(), x.storage_offset())


def _densely_where(is_hit: Callable[[T], bool]) -> Callable[[T], T]:
    return lambda x: _dense(x) if x.numel() and not x.is_contiguous() and is_hit(x) else x


def _is_transposed(x: T) -> bool:
    return x.dim() >= 2 and x.stride(-1) != 1 and 0 not in x.stride()


def _from_line_start(x: T) -> T:
    offset = x.storage_offset()
    return torch.as_strided(x, x.shape, x.stride(), offset - offset % max(1, 32 // x.itemsize))


def _floats(change: Callable[[T], T]) -> Callable[[T], T]:
    return lambda x: change(x) if x.is_floating_point() else x


def _flushed(x: T) -> T:
    return torch.where(x.abs() < torch.finfo(x.dtype).smallest_normal, torch.zeros_like(x), x)


def _hf32(x: T) -> T:
    return ((x.contiguous().view(torch.int32) + 0x800) & ~0xFFF).view(x.dtype) if x.dtype is torch.float32 else x


def _through(dtype: torch.dtype, *only: torch.dtype) -> Callable[[T], T]:
    return lambda x: x.to(dtype).to(x.dtype) if x.dtype in only else x


_WHOLE = (torch.int64, torch.int32)
#: What is done to each tensor by itself.
_TO_TENSORS: Mapping[str, Callable[[T], T]] = {
    "NaN taken for the lowest": _floats(lambda x: torch.where(x.isnan(), torch.full_like(x, float("-inf")), x)),
    "infinities saturated": _floats(lambda x: x.clamp(-torch.finfo(x.dtype).max, torch.finfo(x.dtype).max)),
    "denormals flushed": _floats(_flushed),
    "sign of zero lost": _floats(lambda x: x + 0),
    "integers as float32": _through(torch.float32, *_WHOLE),
    "integers in 32 bits": _through(torch.int32, torch.int64),
    "float32 as float16": _through(torch.float16, torch.float32),
}
_TO_INPUTS: Mapping[str, Callable[[T], T]] = {
    "strides ignored": _densely_where(lambda _: True),
    "transposition ignored": _densely_where(_is_transposed),
    "stride 0 ignored": _densely_where(lambda x: 0 in x.stride()),
    "steps ignored": _densely_where(lambda x: x.dim() > 0 and x.stride(-1) > 1 and not _is_transposed(x)),
    "offset ignored": _from_line_start,
    "float32 as HF32": _hf32,
}


def _first_only(change: Callable[[T], T], places: Callable[[Sequence[int]], Sequence[int]]) -> OnTheWayIn:
    def hit(arguments: Sequence[Any]) -> Sequence[Any]:
        chosen = places([i for i, each in enumerate(arguments) if isinstance(each, T)])
        return [change(each) if i in chosen else each for i, each in enumerate(arguments)]

    return hit


# --- damage on the way in ---


def _tensor_in(change: Callable[[T], T]) -> Callable[[random.Random, Seen], OnTheWayIn]:
    """Change one of the tensors, or all."""

    def draw(chance: random.Random, _: Seen) -> OnTheWayIn:
        which = chance.choice((slice(None), slice(0, 1), slice(-1, None)))
        return _first_only(change, lambda places: places[which])

    return draw


def _argument_kept(chance: random.Random, seen: Seen) -> OnTheWayIn | None:
    """An argument that is no tensor is what it was in the first call, for ever."""
    if not seen.arguments:
        return None
    place, kept = chance.choice(sorted(seen.arguments)), []

    def hit(arguments: Sequence[Any]) -> Sequence[Any]:
        if arguments[place] is None:
            return arguments
        kept.append(arguments[place]) if not kept else None
        return [*arguments[:place], kept[0], *arguments[place + 1 :]]

    return hit


def _flag_turned(chance: random.Random, seen: Seen) -> OnTheWayIn | None:
    """A truth value or number is taken for its default: False, or 1 where it is a number other than 1, else 0."""
    if not seen.arguments:
        return None
    place = chance.choice(sorted(seen.arguments))
    default = chance.choice((0, 1))

    def hit(arguments: Sequence[Any]) -> Sequence[Any]:
        given = arguments[place]
        if isinstance(given, list) and given:
            return [*arguments[:place], [type(x)(default) for x in given], *arguments[place + 1 :]]
        if isinstance(given, bool | int | float):
            return [*arguments[:place], type(given)(default), *arguments[place + 1 :]]
        return arguments

    return hit


def _optional_dropped(_: random.Random, __: Seen) -> OnTheWayIn:
    """The last tensor is taken for one that was not given: a bias, a weight, a mask."""

    def hit(arguments: Sequence[Any]) -> Sequence[Any]:
        places = [i for i, each in enumerate(arguments) if isinstance(each, T)]
        return [None if i == places[-1] else x for i, x in enumerate(arguments)] if len(places) > 1 else arguments

    return hit


def _broadcast_by_first(_: random.Random, __: Seen) -> OnTheWayIn:
    """Of an operand that has to be broadcast, the first element stands for all."""

    def hit(arguments: Sequence[Any]) -> Sequence[Any]:
        most = max((each.numel() for each in arguments if isinstance(each, T)), default=0)
        return [
            each.reshape(-1)[:1].expand(each.numel()).reshape(each.shape)
            if isinstance(each, T) and 1 < each.numel() < most
            else each
            for each in arguments
        ]

    return hit


def _of_first_dtype(_: random.Random, __: Seen) -> OnTheWayIn:
    """All tensors are read in the dtype of the first."""

    def hit(arguments: Sequence[Any]) -> Sequence[Any]:
        first = next((each.dtype for each in arguments if isinstance(each, T)), None)
        return [each.to(first).to(each.dtype) if isinstance(each, T) and first else each for each in arguments]

    return hit


# --- damage on the way out ---


def _off(x: T, share: float = 0.02) -> T:
    """Give what is wrong, and not by rounding: every element of it."""
    if x.dtype is torch.bool:
        return ~x
    if x.is_floating_point() or x.is_complex():
        return x * (1 + share) + share / 8
    return x + 1


def _where(hits: Callable[[Sequence[Any], T], Any], share: float = 0.02) -> OnTheWayOut:
    """Spoil those elements of each result that ``hits`` gives an index of, None for none."""

    def hit(arguments: Sequence[Any], results: list[T]) -> list[T]:
        for result in results:
            index = hits(arguments, result) if result.numel() else None
            if index is not None:
                flat = result.view(-1)
                flat[index] = _off(flat[index], share)
        return results

    return hit


def _one_element(chance: random.Random, _: Seen) -> OnTheWayOut:
    place = chance.random()
    return _where(lambda _, x: slice(int(place * x.numel()), int(place * x.numel()) + 1))


def _tail(chance: random.Random, _: Seen) -> OnTheWayOut:
    """The elements after the last whole vector."""
    width = chance.choice((8, 16, 64))
    return _where(lambda _, x: slice(x.numel() - x.numel() % width, None) if x.numel() % width else None)


def _later_blocks(chance: random.Random, _: Seen) -> OnTheWayOut:
    start = chance.choice((64, 256, 1024))
    return _where(lambda _, x: slice(start, None))


def _whole(_: Sequence[Any], __: T) -> slice:
    return slice(None)


def _one_dtype(chance: random.Random, seen: Seen) -> OnTheWayOut | None:
    """All that is of one dtype."""
    if not seen.dtypes:
        return None
    dtype = chance.choice(sorted(seen.dtypes, key=str))
    return _where(lambda a, x: slice(None) if any(isinstance(e, T) and e.dtype is dtype for e in a) else None)


def _one_dimensionality(chance: random.Random, seen: Seen) -> OnTheWayOut | None:
    if not seen.dims:
        return None
    count = chance.choice(sorted(seen.dims))
    return _where(lambda a, x: slice(None) if any(isinstance(e, T) and e.dim() == count for e in a) else None)


def _of_nothing(_: random.Random, __: Seen) -> OnTheWayOut:
    """What is made of an empty tensor."""
    return _where(lambda a, x: slice(None) if any(isinstance(e, T) and not e.numel() for e in a) else None)


def _of_strided(_: random.Random, __: Seen) -> OnTheWayOut:
    return _where(lambda a, x: slice(None) if any(isinstance(e, T) and not e.is_contiguous() for e in a) else None)


def _interval(chance: random.Random, _: Seen) -> OnTheWayOut:
    """Where the first input lies in a small interval."""
    low = chance.uniform(-3, 2.5)

    def hits(arguments: Sequence[Any], x: T) -> Any:
        for each in arguments:
            if isinstance(each, T) and each.shape == x.shape and each.is_floating_point():
                return ((each >= low) & (each < low + 0.5)).reshape(-1)
        return None

    return _where(hits)


def _large(_: random.Random, __: Seen) -> OnTheWayOut:
    """The results that are far from zero: a range that was reduced badly."""
    return _where(lambda _, x: (x.abs() > 0.9 * x.abs().max()).reshape(-1) if x.is_floating_point() else None)


def _negative(_: random.Random, __: Seen) -> OnTheWayOut:
    return _where(lambda _, x: (x < 0).reshape(-1) if not x.is_complex() else None)


def _some_ulp(_: random.Random, __: Seen) -> OnTheWayOut:
    """Sixteen units in the last place, everywhere."""

    def hit(_: Sequence[Any], results: list[T]) -> list[T]:
        return [x * (1 + 16 * torch.finfo(x.dtype).eps) if x.is_floating_point() else x for x in results]

    return hit


def _last_result(_: random.Random, __: Seen) -> OnTheWayOut:
    """Of several results, the last: indices, a mask, what a gradient needs."""

    def hit(_: Sequence[Any], results: list[T]) -> list[T]:
        return [*results[:-1], _off(results[-1])] if len(results) > 1 else results

    return hit


def _row_repeated(_: random.Random, __: Seen) -> OnTheWayOut:
    """The last row is the one before it."""

    def hit(_: Sequence[Any], results: list[T]) -> list[T]:
        for x in results:
            if x.dim() and x.shape[0] > 1:
                x[-1] = x[-2].clone()
        return results

    return hit


def _every_second_call(_: random.Random, __: Seen) -> OnTheWayOut:
    """An element of every second call is a step away."""
    calls: list[None] = []

    def hit(_: Sequence[Any], results: list[T]) -> list[T]:
        calls.append(None)
        for x in results if len(calls) % 2 else ():
            if x.is_floating_point() and x.numel():
                flat = x.view(-1)
                flat[0] = torch.nextafter(flat[0], torch.ones_like(flat[0]) * 4)
        return results

    return hit


def _input_changed(_: random.Random, __: Seen) -> OnTheWayOut:
    """The first input, which is nobody's to write, is used as room to work in."""

    def hit(arguments: Sequence[Any], results: list[T]) -> list[T]:
        first = next((each for each in arguments if isinstance(each, T) and each.numel()), None)
        if first is not None and 0 not in first.stride():
            first.select(0, -1).zero_() if first.dim() else first.zero_()
        return results

    return hit


def _reads_beyond(_: random.Random, __: Seen) -> OnTheWayOut:
    """What lies behind the end of the first input goes into the last element, times a small number."""

    def hit(arguments: Sequence[Any], results: list[T]) -> list[T]:
        first = next((each for each in arguments if isinstance(each, T) and each.numel()), None)
        if first is None or not first.is_floating_point() or first.dim() == 0:
            return results
        end = sum((size - 1) * step for size, step in zip(first.shape, first.stride(), strict=True)) + 1
        beyond = torch.as_strided(first, (1,), (1,), first.storage_offset() + end)[0]
        for x in results:
            if x.is_floating_point() and x.numel():
                x.view(-1)[-1] += (beyond * 1e-3).to(x.dtype)
        return results

    return hit


def _tensor_out(change: Callable[[T], T]) -> Callable[[random.Random, Seen], OnTheWayOut]:
    return lambda _, __: lambda _, results: [change(x) for x in results]


ON_THE_WAY_IN: Mapping[str, Callable[[random.Random, Seen], OnTheWayIn | None]] = {
    **{f"inputs: {name}": _tensor_in(change) for name, change in {**_TO_TENSORS, **_TO_INPUTS}.items()},
    "argument as in the first call": _argument_kept,
    "argument as its default": _flag_turned,
    "last tensor not given": _optional_dropped,
    "broadcast by the first element": _broadcast_by_first,
    "all in the dtype of the first": _of_first_dtype,
}
ON_THE_WAY_OUT: Mapping[str, Callable[[random.Random, Seen], OnTheWayOut | None]] = {
    **{f"results: {name}": _tensor_out(change) for name, change in _TO_TENSORS.items()},
    "one element": _one_element,
    "tail": _tail,
    "later blocks": _later_blocks,
    "one dtype": _one_dtype,
    "one number of dimensions": _one_dimensionality,
    "of empty tensors": _of_nothing,
    "of strided tensors": _of_strided,
    "in an interval": _interval,
    "large results": _large,
    "negative results": _negative,
    "16 ulp": _some_ulp,
    "last of several results": _last_result,
    "last row repeated": _row_repeated,
    "every second call": _every_second_call,
    "input written to": _input_changed,
    "reads beyond the end": _reads_beyond,
}
