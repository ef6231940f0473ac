"""Damage on the way out: an operator computes well, and gives something else. Each kind is drawn from a seed.

None knows the operator: what it does depends on dtypes, sizes, layouts and numbers alone.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from operator_damage import TO_TENSORS, OnTheWayOut, Seen, T


def _off(x: T, share: float = 0.02) -> T:
    """Return what is wrong, and not by rounding: every element of it."""
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
    return _where(lambda _, __: slice(start, None))


def _one_dtype(chance: random.Random, seen: Seen) -> OnTheWayOut | None:
    """All that is of one dtype."""
    if not seen.dtypes:
        return None
    dtype = chance.choice(sorted(seen.dtypes, key=str))
    return _where(lambda a, _: slice(None) if any(isinstance(e, T) and e.dtype is dtype for e in a) else None)


def _one_dimensionality(chance: random.Random, seen: Seen) -> OnTheWayOut | None:
    if not seen.dims:
        return None
    count = chance.choice(sorted(seen.dims))
    return _where(lambda a, _: slice(None) if any(isinstance(e, T) and e.dim() == count for e in a) else None)


def _of_nothing(_: random.Random, __: Seen) -> OnTheWayOut:
    """What is made of an empty tensor."""
    return _where(lambda a, _: slice(None) if any(isinstance(e, T) and not e.numel() for e in a) else None)


def _of_strided(_: random.Random, __: Seen) -> OnTheWayOut:
    return _where(lambda a, _: slice(None) if any(isinstance(e, T) and not e.is_contiguous() for e in a) else None)


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


ON_THE_WAY_OUT: Mapping[str, Callable[[random.Random, Seen], OnTheWayOut | None]] = {
    **{f"results: {name}": _tensor_out(change) for name, change in TO_TENSORS.items()},
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
