"""Which samples of an operator are kept: a few small ones that cover all variation."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator

import torch
from torch.utils._pytree import tree_flatten

from pytest_ascend.operators.samples import Sample, StoredTensor

#: Elements of all inputs, and of all results, of a sample: the maximum, and the ideal number.
LARGEST, GOOD = 700, 40


def choose(candidates: Iterable[Sample], at_most: int) -> tuple[Sample, ...]:
    """Choose the samples with the most new features, small ones first; return them in their original order."""
    left = [(place, each, features(each)) for place, each in enumerate(candidates)]
    seen: set[Hashable] = set()
    taken: list[tuple[int, Sample]] = []
    while left and len(taken) < at_most:
        best = max(left, key=lambda one: (len(one[2] - seen), -_awkward(one[1]), -one[0]))
        if taken and not best[2] - seen:
            break
        seen |= best[2]
        taken.append(best[:2])
        left.remove(best)
    return tuple(sample for _, sample in sorted(taken, key=lambda one: one[0]))


def in_turn(candidates: Iterable[Sample]) -> Iterator[Sample]:
    """Yield all samples, each time the one with the most unseen features; start again once all have been seen."""
    left = [(each, features(each)) for each in candidates]
    seen: set[Hashable] = set()
    while left:
        best = max(left, key=lambda one: (size(one[0]) <= LARGEST, len(one[1] - seen), *_ease(one[0])))
        if not best[1] - seen:
            seen = set()
            continue
        seen |= best[1]
        left.remove(best)
        yield best[0]


def _ease(sample: Sample) -> tuple[bool, float]:
    """Return a sort key that is larger for samples that are easier to inspect: contiguous and of a good size."""
    return not any(isinstance(each, StoredTensor) and each.stride for each in sample.values()), -_awkward(sample)


def _awkward(sample: Sample) -> float:
    """Return how far a sample is from a good size, at which it is informative and cheap."""
    return abs(math.log2(1 + size(sample)) - math.log2(GOOD))


def size(sample: Sample) -> int:
    """Count the elements of all tensors."""
    return sum(int(torch.Size(each.shape).numel()) for each in sample.values())


def features(sample: Sample) -> set[Hashable]:
    """Return the features of a sample: each argument's value, each tensor's dimensions, whether empty or strided."""
    found: set[Hashable] = {("positions", len(sample.args)), ("named", tuple(sorted(sample.kwargs)))}
    return found.union(*(_of(place, each) for place, each in (*enumerate(sample.args), *sample.kwargs.items())))


def _of(place: Hashable, argument: object) -> Iterator[Hashable]:
    leaves, _ = tree_flatten(argument)
    if isinstance(argument, list | tuple):
        yield (place, "length", len(argument))
    for leaf in leaves:
        if isinstance(leaf, StoredTensor):
            yield (place, "dimensions", len(leaf.shape))
            yield (place, "empty", 0 in leaf.shape)
            yield (place, "strided", leaf.stride is not None)
            yield (place, "ones", 1 in leaf.shape)
        else:
            yield (place, "value", repr(leaf))
    plain = [repr(each) for each in leaves if not isinstance(each, StoredTensor)]
    if len(plain) > 1:
        yield (place, "values", tuple(plain))
