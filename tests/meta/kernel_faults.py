"""Conditional faults as data: what a wrong kernel makes, and when. Each part is drawn by seed for any kernel.

An effect computes from the arguments of a kernel, which it may run again with others; a condition looks at them.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch

T: TypeAlias = torch.Tensor
#: Runs the correct kernel, and gives copies of all that it makes and changes.
Run: TypeAlias = Callable[[Sequence[Any]], list[T]]
#: Takes the correct kernel, its arguments and its results; gives what the wrong kernel makes of them.
Effect: TypeAlias = Callable[[Run, Sequence[Any], list[T]], list[T]]
Condition: TypeAlias = Callable[[Sequence[Any]], bool]

#: What is narrower, or holds fewer digits, than a dtype.
_NARROWER: Mapping[torch.dtype, tuple[torch.dtype, ...]] = {
    torch.float32: (torch.float16, torch.bfloat16),
    torch.int64: (torch.float64, torch.float32, torch.int32),
    torch.int32: (torch.float32, torch.float16, torch.int16),
    torch.int16: (torch.float16, torch.int8),
    torch.float64: (torch.float32,),
    torch.float16: (torch.bfloat16,),
}
#: Elements of a unit of work: a vector, a tile, a block.
_UNITS = (8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)


@dataclass(slots=True)
class Seen:
    """What a kernel was called with: from this a fault draws where it hits."""

    dtypes: set[torch.dtype] = field(default_factory=set)
    results: set[torch.dtype] = field(default_factory=set)
    dims: set[int] = field(default_factory=set)
    arguments: set[int] = field(default_factory=set)
    optional: set[int] = field(default_factory=set)
    tensors: int = 0

    def note(self, arguments: Sequence[Any], results: Sequence[T]) -> None:
        """Remember a call."""
        self.results.update(each.dtype for each in results)
        self.tensors = max(self.tensors, len(tensors(arguments)))
        for place, each in enumerate(arguments):
            if isinstance(each, T):
                self.dtypes.add(each.dtype)
                self.dims.add(each.dim())
                if place:
                    self.optional.add(place)
            elif each is not None:
                self.arguments.add(place)


def tensors(values: Sequence[Any]) -> list[T]:
    """Return those that are tensors."""
    return [each for each in values if isinstance(each, T)]


def _on_tensors(change: Callable[[T], T], values: Sequence[Any]) -> list[Any]:
    return [change(each) if isinstance(each, T) else each for each in values]


def _elements(arguments: Sequence[Any]) -> int:
    return max((each.numel() for each in tensors(arguments)), default=0)


def _shapes(arguments: Sequence[Any]) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(each.shape) for each in tensors(arguments))


def _log(chance: random.Random, low: float, high: float) -> int:
    """Draw an integer between 2**low and 2**high, its logarithm evenly."""
    return int(2 ** chance.uniform(low, high))


# --- effects ---


def _precision(chance: random.Random, seen: Seen) -> Effect | None:
    """Inputs, or results, go through a dtype that holds fewer digits."""
    whole = [each for each in sorted(seen.dtypes, key=str) if each in _NARROWER]
    if not whole:
        return None
    of = chance.choice(whole)
    through, is_in = chance.choice(_NARROWER[of]), chance.random() < 0.6

    def narrowed(x: T) -> T:
        return x.to(through).to(of) if x.dtype is of else x

    return lambda run, given, found: run(_on_tensors(narrowed, given)) if is_in else _on_tensors(narrowed, found)


def _unwritten(part: Callable[[int], slice]) -> Effect:
    """Leave a part of each result as memory was: zero."""

    def effect(_: Run, __: Sequence[Any], found: list[T]) -> list[T]:
        for each in found:
            if each.numel():
                each.view(-1)[part(each.numel())] = 0
        return found

    return effect


def _tail(chance: random.Random, _: Seen) -> Effect:
    """What follows the last whole unit is not written."""
    unit = chance.choice(_UNITS)
    return _unwritten(lambda count: slice(count - count % unit, None))


def _block(chance: random.Random, _: Seen) -> Effect:
    """One unit is not written."""
    unit, place = chance.choice(_UNITS), chance.choice((0, 1, 2, 3, 7, 8, 15))
    return _unwritten(lambda _: slice(unit * place, unit * (place + 1)))


def _duplicate(chance: random.Random, seen: Seen) -> Effect | None:
    """Of places that are named more often than so, the rest is lost: what is added there, or looked up, is 0."""
    if not seen.dtypes & {torch.int64, torch.int32} or seen.tensors < 2:
        return None
    most = chance.choice((1, 2, 3, 4, 7, 8, 15, 16, 31, 64))

    def effect(run: Run, given: Sequence[Any], found: list[T]) -> list[T]:
        places = [i for i, each in enumerate(given) if isinstance(each, T) and each.dtype in {torch.int64, torch.int32}]
        index = given[places[-1]]
        lost = _beyond(index.reshape(-1), most).reshape(index.shape)
        changed = list(given)
        for i, each in enumerate(given):
            if isinstance(each, T) and i != places[-1] and each.shape == index.shape:
                changed[i] = each.masked_fill(lost, 0)
            elif isinstance(each, T) and i != places[-1] and i and index.dim() == 1 and len(index) in each.shape:
                side = list(each.shape).index(len(index))
                changed[i] = each.masked_fill(lost.reshape([-1 if d == side else 1 for d in range(each.dim())]), 0)
        if all(one is other for one, other in zip(changed, given, strict=True)):
            # Nothing comes with the places: what is looked up there is lost.
            return [
                each.masked_fill(lost.reshape(*lost.shape, *[1] * (each.dim() - lost.dim())), 0)
                if each.shape[: lost.dim()] == lost.shape
                else each
                for each in found
            ]
        return run(changed)

    return effect


def _beyond(flat: T, most: int) -> T:
    """Return which elements have had so many equal ones before them."""
    order = flat.sort(stable=True)
    starts = torch.searchsorted(order.values, order.values)
    lost = torch.zeros(len(flat), dtype=torch.bool)
    lost[order.indices] = torch.arange(len(flat)) - starts >= most
    return lost


def _argument(chance: random.Random, seen: Seen) -> Effect | None:
    """An argument is taken for its default, for what it was in the first call, or for not given."""
    places = sorted(seen.arguments | seen.optional)
    if not places:
        return None
    place, default, keeps, kept = chance.choice(places), chance.choice((0, 1)), chance.random() < 0.5, []

    def effect(run: Run, given: Sequence[Any], _: list[T]) -> list[T]:
        each = given[place]
        if isinstance(each, T):
            other = None
        elif keeps:
            kept.append(each) if not kept else None
            other = kept[0]
        elif isinstance(each, list):
            other = [type(x)(default) for x in each]
        else:
            other = type(each)(default) if isinstance(each, bool | int | float) else each
        return run([*given[:place], other, *given[place + 1 :]])

    return effect


def _stale(chance: random.Random, _: Seen) -> Effect:
    """What was prepared for the first call of these shapes is used again: its results, arguments, strides or dtypes."""
    what, kept = chance.choice(("results", "arguments", "strides", "dtypes")), {}

    def effect(run: Run, given: Sequence[Any], found: list[T]) -> list[T]:
        key = _shapes(given)
        if key not in kept:
            kept[key] = ([each.clone() if isinstance(each, T) else each for each in given], _strides(given), found)
            return found
        first, strides, results = kept[key]
        if what == "results":
            is_same = [(a.shape, a.dtype) for a in results] == [(b.shape, b.dtype) for b in found]
            return [each.clone() for each in results] if is_same else found
        if what == "arguments":
            return run([now if isinstance(now, T) else then for now, then in zip(given, first, strict=True)])
        if what == "dtypes":
            return run(
                [
                    now.to(then.dtype).to(now.dtype) if isinstance(now, T) and isinstance(then, T) else now
                    for now, then in zip(given, first, strict=True)
                ]
            )
        left = iter(strides)
        return run(_on_tensors(lambda each: _read(each, next(left)), given))

    return effect


def _strides(given: Sequence[Any]) -> list[tuple[int, ...]]:
    return [each.stride() for each in tensors(given)]


def _read(x: T, stride: Sequence[int], offset: int = 0) -> T:
    """Read the memory of a tensor in other strides; what lies behind it may be nobody's, and stays unread."""
    last, own = (
        sum((size - 1) * step for size, step in zip(x.shape, each, strict=True)) for each in (stride, x.stride())
    )
    return torch.as_strided(x, x.shape, stride, x.storage_offset() + offset) if x.numel() and last <= own else x


def _tie(chance: random.Random, seen: Seen) -> Effect | None:
    """Of equal elements the last one is reported, or some one."""
    if torch.int64 not in seen.results | seen.dtypes or not seen.dtypes - {torch.bool}:
        return None
    seed = chance.choice((0, chance.randrange(1 << 16)))

    def effect(run: Run, given: Sequence[Any], found: list[T]) -> list[T]:
        first = next(i for i, each in enumerate(given) if isinstance(each, T))
        flat = given[first].reshape(-1)
        order = torch.arange(len(flat)).flip(0)
        if seed:
            order = torch.randperm(len(flat), generator=torch.Generator().manual_seed(seed))
        by_value = order[flat[order].sort(stable=True).indices]
        ranks = torch.empty_like(order)
        ranks[by_value] = torch.arange(len(flat))
        other = run([*given[:first], ranks.reshape(given[first].shape), *given[first + 1 :]])
        pairs = zip(found, other, strict=True)
        return [b if a.dtype is torch.int64 and given[first].dtype is not torch.int64 else a for a, b in pairs]

    return effect


def _ulp(chance: random.Random, seen: Seen) -> Effect | None:
    """Results are off by eight units in the last place: all, one of a unit, or those of some inputs.

    Units are those of the coarsest dtype: results are rounded to it after a kernel, and would lose finer ones.
    """
    if not any(each.is_floating_point for each in seen.results):
        return None
    unit, place, sign = chance.choice((1, *_UNITS)), chance.randrange(8), chance.choice((1, -1))

    def effect(_: Run, given: Sequence[Any], found: list[T]) -> list[T]:
        floats = [each for each in (*tensors(given), *found) if each.is_floating_point()]
        eps = max((torch.finfo(each.dtype).eps for each in floats), default=0.0)
        for each in found:
            if each.is_floating_point() and each.numel():
                part = each.view(-1)[place % unit :: unit]
                part.mul_(1 + sign * 8 * eps)
        return found

    return effect


def _nan(chance: random.Random, seen: Seen) -> Effect | None:
    """NaN is taken for another number, in what comes in or goes out."""
    if not any(each.is_floating_point for each in seen.dtypes):
        return None
    is_in, other = chance.random() < 0.7, chance.choice((float("-inf"), 0.0, float("inf")))

    def dropped(x: T) -> T:
        return x.masked_fill(x.isnan(), other) if x.is_floating_point() else x

    return lambda run, given, found: run(_on_tensors(dropped, given)) if is_in else _on_tensors(dropped, found)


def _layout(chance: random.Random, seen: Seen) -> Effect | None:
    """One tensor is read in wrong strides, or from a wrong place."""
    if not seen.tensors:
        return None
    how = chance.choice(("dense", "swapped", "line", "first row", "step"))
    which = chance.randrange(seen.tensors)

    def wrong(x: T) -> T:
        if how == "dense":
            return _read(x, torch.empty(x.shape, device="meta").stride())
        if how == "swapped" and x.dim() > 1:
            return _read(x, (*x.stride()[:-2], x.stride(-1), x.stride(-2)))
        if how == "line":
            return _read(x, x.stride(), -(x.storage_offset() % max(1, 32 // x.itemsize)))
        if how == "first row" and x.dim() > 1:
            return _read(x, (0, *x.stride()[1:]))
        if how == "step" and x.dim():
            return _read(x, (*x.stride()[:-1], 1))
        return x

    def effect(run: Run, given: Sequence[Any], _: list[T]) -> list[T]:
        places = [i for i, each in enumerate(given) if isinstance(each, T)]
        at = places[which % len(places)]
        return run([wrong(each) if i == at else each for i, each in enumerate(given)])

    return effect


#: Each gives None for a kernel that it cannot be of.
EFFECTS: Mapping[str, Callable[[random.Random, Seen], Effect | None]] = {
    "through fewer digits": _precision,
    "tail not written": _tail,
    "block not written": _block,
    "duplicate dropped": _duplicate,
    "argument ignored": _argument,
    "stale by shape": _stale,
    "wrong tie": _tie,
    "off by eight ulp": _ulp,
    "NaN dropped": _nan,
    "wrong stride or offset": _layout,
}


# --- conditions ---


def _of_dtype(chance: random.Random, seen: Seen) -> Condition | None:
    if not seen.dtypes:
        return None
    dtype = chance.choice(sorted(seen.dtypes, key=str))
    return lambda given: any(each.dtype is dtype for each in tensors(given))


def _size_above(chance: random.Random, _: Seen) -> Condition:
    """A tensor, or one of its rows, is larger than so."""
    is_row, least = chance.random() < 0.5, _log(chance, 2, 17)
    if is_row:
        least = min(least, 1 << 13)
    return lambda given: any(
        (each.shape[-1] if is_row and each.dim() else each.numel()) > least for each in tensors(given)
    )


def _size_not_divisible(chance: random.Random, _: Seen) -> Condition:
    """A tensor, or its rows, are larger than a unit that does not divide them."""
    is_row, unit = chance.random() < 0.5, chance.choice(_UNITS)

    def holds(given: Sequence[Any]) -> bool:
        sizes = [each.shape[-1] if is_row and each.dim() else each.numel() for each in tensors(given)]
        return any(size > unit and size % unit for size in sizes)

    return holds


def _batch(chance: random.Random, seen: Seen) -> Condition | None:
    """So many rows, images or heads, or more; or none."""
    if max(seen.dims, default=0) < 2:
        return None
    least, is_empty = chance.choice((2, 4, 8, 9, 16, 32, 64)), chance.random() < 0.1
    if is_empty:
        return lambda given: any(not each.numel() for each in tensors(given))
    return lambda given: any(each.dim() > 1 and each.shape[0] >= least for each in tensors(given))


def _dimensions(chance: random.Random, seen: Seen) -> Condition | None:
    if not seen.dims:
        return None
    count = chance.choice(sorted(seen.dims))
    return lambda given: any(each.dim() == count for each in tensors(given))


_LAYOUTS: Mapping[str, Callable[[T], bool]] = {
    "not contiguous": lambda x: not x.is_contiguous(),
    "transposed": lambda x: x.dim() > 1 and x.stride(-1) != 1 and 0 not in x.stride(),
    "stepped": lambda x: x.dim() > 0 and x.stride(-1) > 1,
    "offset": lambda x: x.storage_offset() > 0,
    "expanded": lambda x: x.numel() > 1 and 0 in x.stride(),
}


def _of_layout(chance: random.Random, seen: Seen) -> Condition | None:
    if not max(seen.dims, default=0):
        return None
    is_so = _LAYOUTS[chance.choice(sorted(_LAYOUTS))]
    return lambda given: any(each.numel() > 0 and is_so(each) for each in tensors(given))


def _value(chance: random.Random, seen: Seen) -> Condition | None:
    """An element is beyond so much, is NaN or infinite, or is there several times."""
    kinds = sorted(
        {"whole" if not each.is_floating_point else "real" for each in seen.dtypes if each is not torch.bool}
    )
    if not kinds or any(each.is_complex for each in seen.dtypes):
        return None
    kind, most = chance.choice(kinds), chance.choice((1, 2, 4, 8, 16))
    way = chance.choice(("large", "equal", "negative", *(("special",) if kind == "real" else ())))
    limit = 2.0 ** chance.choice((7, 8, 11, 15, 24, 31, 53)) if kind == "whole" else 10 ** chance.uniform(0, 4)

    def one(x: T) -> bool:
        if x.dtype is torch.bool or x.is_floating_point() != (kind == "real") or not x.numel():
            return False
        if way == "special":
            return not bool(x.isfinite().all())
        if way == "equal":
            return int(x.reshape(-1).unique(return_counts=True)[1].max()) > most
        return bool((x < 0).any() if way == "negative" else ((x > limit) | (x < -limit)).any())

    return lambda given: any(map(one, tensors(given)))


def _call(chance: random.Random, _: Seen) -> Condition:
    """From so many calls on, every so-many-th one, or not the first one of its shapes."""
    way, many = chance.choice(("from", "every", "again")), chance.choice((2, 3, 4, 8))
    calls, shapes = Counter[str](), Counter[Any]()

    def holds(given: Sequence[Any]) -> bool:
        calls["all"] += 1
        shapes[_shapes(given)] += 1
        if way == "again":
            return shapes[_shapes(given)] > 1
        return calls["all"] >= many if way == "from" else calls["all"] % many == 0

    return holds


def _given(chance: random.Random, seen: Seen) -> Condition | None:
    """An argument is not what it was in the first call, or a tensor is given that need not be."""
    places = sorted(seen.arguments | seen.optional)
    if not places:
        return None
    place, first = chance.choice(places), []

    def holds(given: Sequence[Any]) -> bool:
        each = given[place] if place < len(given) else None
        if isinstance(each, T):
            return True
        first.append(each) if not first else None
        return bool(each != first[0])

    return holds


#: Each gives None for a kernel that it cannot be of.
CONDITIONS: Mapping[str, Callable[[random.Random, Seen], Condition | None]] = {
    "dtype": _of_dtype,
    "size above": _size_above,
    "size not divisible": _size_not_divisible,
    "batch": _batch,
    "dimensions": _dimensions,
    "layout": _of_layout,
    "value": _value,
    "which call": _call,
    "which argument": _given,
}
