"""Making a failing generated call smaller, as long as it still fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from pytest_ascend.operators.generator import Generated
from pytest_ascend.operators.samples import call
from pytest_ascend.operators.values import StoredTensor, Values, Variant

#: Attempts to shrink a failing call.
ATTEMPTS = 60


def shrunk(each: Generated, fails: Callable[[Generated], bool]) -> Generated:
    """Return the smallest call found that still fails: with sizes halved, or less by one."""
    smallest, candidates = each, smaller(each)
    for _ in range(ATTEMPTS):
        candidate = next(candidates, None)
        if candidate is None:
            break
        if fails(candidate):
            smallest, candidates = candidate, smaller(candidate)
    return smallest


def smaller(each: Generated) -> Iterator[Generated]:
    """Yield the call with each size halved, then with each less by one."""
    sizes = sorted({size for v in each.sample.values() for size in v.shape if size > 1}, reverse=True)
    for size, to in [(size, size // 2) for size in sizes] + [(size, size - 1) for size in sizes]:
        yield resized(each, size, to)


def resized(each: Generated, size: int, to: int) -> Generated:
    """Return the call with one size replaced."""
    changed = each.sample.with_sources(partial(_resized, size=size, to=to))
    name = f"call {each.number} of seed {each.seed}, made smaller: {call(*changed.args, **changed.kwargs).name}"
    return replace(each, sample=replace(changed, name=name), resized=(*each.resized, (size, to)))


def _resized(leaf: Any, size: int, to: int) -> Any:
    if isinstance(leaf, Variant):
        return replace(leaf, values=_resized(leaf.values, size, to))
    if isinstance(leaf, Values):
        return replace(leaf, shape=tuple(to if each == size else each for each in leaf.shape))
    if isinstance(leaf, StoredTensor):
        return leaf.cut(tuple(to if each == size else each for each in leaf.shape))
    return leaf
