"""Damage on the way in: an operator works with other inputs than it is given. Each kind is drawn from a seed.

None knows the operator: what it does depends on dtypes, sizes, layouts and numbers alone.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from operator_damage import TO_INPUTS, TO_TENSORS, OnTheWayIn, Seen, T, has_same_bits


def _first_only(change: Callable[[T], T], places: Callable[[Sequence[int]], Sequence[int]]) -> OnTheWayIn:
    def hit(arguments: Sequence[Any]) -> Sequence[Any]:
        chosen = places([i for i, each in enumerate(arguments) if isinstance(each, T)])
        return [change(each) if i in chosen else each for i, each in enumerate(arguments)]

    return hit


def _tensor_in(change: Callable[[T], T]) -> Callable[[random.Random, Seen], OnTheWayIn]:
    """Change one of the tensors, or all; one in which nothing is to change stays as it lies in memory."""

    def changed(x: T) -> T:
        other = change(x)
        lies_alike = other.stride() == x.stride() and other.storage_offset() == x.storage_offset()
        return other if not lies_alike or not has_same_bits(other, x) else x

    def draw(chance: random.Random, _: Seen) -> OnTheWayIn:
        which = chance.choice((slice(None), slice(0, 1), slice(-1, None)))
        return _first_only(changed, lambda places: places[which])

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


ON_THE_WAY_IN: Mapping[str, Callable[[random.Random, Seen], OnTheWayIn | None]] = {
    **{f"inputs: {name}": _tensor_in(change) for name, change in {**TO_TENSORS, **TO_INPUTS}.items()},
    "argument as in the first call": _argument_kept,
    "argument as its default": _flag_turned,
    "last tensor not given": _optional_dropped,
    "broadcast by the first element": _broadcast_by_first,
    "all in the dtype of the first": _of_first_dtype,
}
