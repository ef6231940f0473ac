"""Generated calls of an operator: its own calls, in other sizes, numbers and layouts, as they break real kernels.

A call of the table serves as a template. Equal sizes in it are taken for the same size, so that another one put in the
place of both keeps the call a legal one; whether it is one is asked of the CPU, which is called first in any case. All
that is chosen follows from the operator, the dtype and a seed: the same calls on every machine and version of torch.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch

from pytest_ascend.operators.operator import FUNCTION, Operator
from pytest_ascend.operators.samples import FORWARD, SHAPES, Sample, Source, call
from pytest_ascend.operators.values import StoredTensor, Values, Variant
from pytest_ascend.run import inputs

#: Sizes at which kernels take another way: vectors, tiles, blocks and buffers end there.
EDGES = (8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
#: Sizes that divide nothing, and sums of edges.
ODD = (3, 5, 7, 11, 13, 48, 96, 80, 100, 1000)
#: A tensor of more elements than 16 bits count.
LARGE = (65_535, 65_536, 65_537)
#: Elements of all tensors of a usual call, and of the largest.
USUAL, LARGEST = 1 << 13, 1 << 17

AS_THEY_ARE = "as they are"
#: What is done to the numbers of a call, in turn, where anything is promised of such numbers.
NUMBERS = (
    *("special in the tail", "edges", "few", AS_THEY_ARE, "far", "sorted"),
    *("special at the head", "reversed", "special within", "equal"),
)
#: What is done to the sizes of three calls, in turn.
SIZES = ("edge", "one", "large", "empty", "edge", "many", "as the table has them", "edge")
#: Layouts of the second call of three, in turn; "expanded" is how the tensors are made.
EXPANDED = "expanded"
LAYOUTS = ("transposed", "stepped", EXPANDED, "shifted", "")

#: What a call varies, one thing of each kind.
AXES = ("size", "values", "layout")

#: Families whose operators take integers of any size.
_ANY_INTEGER = ("arithmetic", "comparison", "elementwise", "reduction", "sorting", "movement", "indexing", "activation")
#: Families whose operators give the same for equal elements, wherever these stand in memory: none has to come first.
_ANY_ROWS = ("arithmetic", "comparison", "elementwise", "activation", "movement", "linear algebra", "loss", "network")
#: Families of functions of one number that are defined far from zero where they are on both sides of it.
_FAR = ("elementwise", "activation")

Each = TypeVar("Each")


class Chance:
    """Choices that follow from a key alone."""

    def __init__(self, key: str) -> None:
        self._words = _words(key)

    def below(self, count: int) -> int:
        """Return an integer from 0 to ``count`` - 1."""
        return (next(self._words) >> 33) % count

    def of(self, choices: Sequence[Each]) -> Each:
        """Return one of these."""
        return choices[self.below(len(choices))]


def _words(key: str, block: int = 32) -> Iterator[int]:
    for start in itertools.count(0, block):
        yield from inputs.words(key, block, start=start).tolist()


@dataclass(frozen=True, slots=True)
class Generated:
    """A generated call: the sample, the layout of its tensors ("" for the usual one), and what it varies.

    ``number`` counts the calls of a ``seed``, ``template`` is the place of the call of the table that it comes from;
    ``resized`` are the sizes that were replaced since, to make it smaller.
    """

    sample: Sample
    layout: str
    axes: tuple[str, ...]
    seed: int | str = 0
    number: int = 0
    resized: tuple[tuple[int, int], ...] = ()
    template: int = 0


def generate(operator: Operator, dtype: str, count: int, seed: int | str = 0) -> Iterator[Generated]:
    """Yield ``count`` calls, three at a time: one, another of the same sizes, and the first with other numbers.

    Between the first and the third another call with the same sizes comes, with other arguments where the operator has
    some, and in another layout: what is kept by shape alone shows there. Not all of them are legal.
    """
    templates = templates_of(operator, dtype)
    for number in range(-(-count // 3) if templates else 0):
        chance = Chance(f"sweep/{operator.name}/{dtype}/{seed}/{number}")
        # One further on each turn of the sizes: so every template comes in every size.
        place, first = templates[(number + number // len(SIZES)) % len(templates)]
        alike = [each for each in templates if _sizes(each[1]) == _sizes(first)]
        second = alike[([each[0] for each in alike].index(place) + 1) % len(alike)]
        sizes, axis = _resized(first, chance, number)
        if _elements(second[1], sizes) > LARGEST:  # it has those sizes more often
            second = (place, first)
        numbers, layout = numbers_of(operator, first, dtype), LAYOUTS[number % len(LAYOUTS)]
        three = (
            ((place, first), numbers[number % len(numbers)], ""),
            (second, chance.of(numbers_of(operator, second[1], dtype)), layout),
            ((place, first), AS_THEY_ARE, ""),
        )
        for position, ((index, template), how, placed) in enumerate(three):
            key = f"sweep/{operator.name}/{dtype}/{seed}/{number}/{position}"
            if any(isinstance(each, StoredTensor) for each in template.values()) and not operator.one_set_of_inputs:
                template = operator.sampled(dtype, key, sizes)[index]  # noqa: PLW2901
            sample = _changed(operator, template, sizes, how, dtype, key)
            if placed == EXPANDED and operator.family in _ANY_ROWS and operator.layouts:
                sample = sample.expanded()
            name = f"call {3 * number + position} of seed {seed}: {sample.name}"
            axes = (axis, how, placed or "contiguous")
            given = replace(sample, name=name, group=FORWARD)
            yield Generated(given, placed, axes, seed, 3 * number + position, template=index)


def templates_of(operator: Operator, dtype: str) -> list[tuple[int, Sample]]:
    """Return the calls to start from, with their places: the usual ones, and those of several shapes."""
    usual = [(place, each) for place, each in enumerate(operator.samples(dtype)) if each.values()]
    kept = [
        (place, each)
        for place, each in usual
        if not any(isinstance(v, Values) and v.kind == "given" for v in each.values())
        and (each.group == FORWARD or (each.group == SHAPES and len(_sizes(each)) > 1 and len(each.values()) > 1))
    ]
    with_given = [(place, each) for place, each in usual if each.group == FORWARD]
    return kept or [each for each in with_given if _sizes(each[1])] or with_given


def _sizes(sample: Sample) -> tuple[int, ...]:
    """Return the sizes that a call has, each once, without 0 and 1; those of given numbers cannot be others."""
    given = [each for each in sample.values() if isinstance(each, Values) and each.kind == "given"]
    fixed = {size for each in given for size in each.shape}
    return tuple(sorted({size for each in sample.values() for size in each.shape if size > 1} - fixed))


def _resized(template: Sample, chance: Chance, number: int) -> tuple[Mapping[int, int], str]:
    """Return the size to put in place of each, and the name of what this varies."""
    sizes = _sizes(template)
    if not any(each.shape for each in template.values()):
        return {}, "0-d"
    axis = SIZES[number % len(SIZES)]
    if not sizes or axis == "as the table has them":
        return {}, "as the table has them"
    if axis in {"empty", "one"}:  # in one position
        return {chance.of(sizes): 0 if axis == "empty" else 1}, axis
    if axis == "large":
        return _fitting(template, {chance.of(sizes): chance.of(LARGE)}, LARGEST), axis
    if axis == "many":  # rows, images, heads: the first size is none that the others have
        first = next((each.shape[0] for each in template.values() if each.shape and each.shape[0] in sizes), sizes[0])
        return _fitting(template, {first: chance.of(EDGES[:5]) + chance.of((0, 1))}, USUAL), axis
    wanted = {chance.of(sizes): chance.of(EDGES) + chance.of((-1, 0, 1)), chance.of(sizes): chance.of(EDGES)}
    wanted |= {size: chance.of(ODD) for size in sizes if size not in wanted and chance.below(2)}
    return _fitting(template, wanted, USUAL), "edge"


def numbers_of(operator: Operator, template: Sample, dtype: str) -> tuple[str, ...]:
    """Return what may be done to the numbers of a call."""
    kind, data = getattr(torch, dtype), [each for each in template.values() if not _is_index(each)]
    varied = data if _varies_all(operator) else data[:1]
    found = (how for how in NUMBERS if any(_may_vary(operator, each, how, kind) for each in varied))
    return tuple(found) or (AS_THEY_ARE,)


def _varies_all(operator: Operator) -> bool:
    """Whether numbers of all inputs are changed, not those of the first alone."""
    return operator.family == "comparison" or operator.name in {"maximum", "minimum"}


def _fitting(template: Sample, wanted: Mapping[int, int], most: int) -> Mapping[int, int]:
    """Return the sizes with the others, or else these, made smaller until the tensors have few enough elements."""
    sizes = {size: size for size in _sizes(template)} | dict(wanted)
    for size in sorted(sizes, key=lambda each: each in wanted):
        if _elements(template, sizes) > most and size not in wanted:
            sizes[size] = 2
    while _elements(template, sizes) > most and max(sizes.values()) > 2:
        largest = max(sizes, key=sizes.__getitem__)
        sizes[largest] = (sizes[largest] + 1) // 2
    return sizes


def _elements(template: Sample, sizes: Mapping[int, int]) -> int:
    """Return how many elements the tensors of a call have in these sizes, all together."""
    return sum(math.prod(sizes.get(size, size) for size in each.shape) for each in template.values())


def _changed(  # noqa: PLR0917  (an operator, its call, and what is changed)
    operator: Operator, template: Sample, sizes: Mapping[int, int], how: str, dtype: str, key: str
) -> Sample:
    """Return the call in these sizes, with its numbers changed."""
    kind = getattr(torch, dtype)
    is_first, varies_all, places = True, _varies_all(operator), itertools.count()

    def changed(leaf: Any) -> Any:
        nonlocal is_first
        if not isinstance(leaf, (Values, StoredTensor)):
            return leaf
        own = leaf
        if isinstance(leaf, Values):
            own = replace(leaf, shape=tuple(sizes.get(size, size) for size in leaf.shape))
        elif operator.one_set_of_inputs:
            own = leaf.picked(tuple(sizes.get(size, size) for size in leaf.shape), f"{key}/{next(places)}")
        varies = how != AS_THEY_ARE and (is_first or varies_all) and _may_vary(operator, leaf, how, kind)
        is_first &= _is_index(leaf)
        return Variant(values=own, how=how) if varies else own

    sample = template.with_sources(changed)
    args, kwargs = _with_sizes(sample.args, sizes), _with_sizes(dict(sample.kwargs), sizes)
    resized = call(*args, **kwargs)
    return replace(sample, args=args, kwargs=kwargs, name=resized.name)


def _with_sizes(tree: Any, sizes: Mapping[int, int]) -> Any:
    """Return arguments with the sizes changed in lists of sizes, as the shape that layer_norm is given."""
    if isinstance(tree, dict):
        return {key: _with_sizes(each, sizes) for key, each in tree.items()}
    if isinstance(tree, (list, tuple)):
        is_shape = len(tree) > 0 and all(type(each) is int and each > 1 for each in tree)
        made = [sizes.get(each, each) if is_shape else _with_sizes(each, sizes) for each in tree]
        return tuple(made) if isinstance(tree, tuple) else made
    return tree


def _is_index(leaf: Source) -> bool:
    """Whether a tensor has a dtype of its own: an index, a mask."""
    return bool(leaf.dtype) if isinstance(leaf, Values) else isinstance(leaf, StoredTensor) and not leaf.follows


def _may_vary(operator: Operator, leaf: Source, how: str, dtype: torch.dtype) -> bool:
    """Whether anything is promised of an input with such numbers."""
    if _is_index(leaf) or dtype is torch.bool:
        return False
    # An integer that is to be positive, as a count of bits to shift by, is to be small as well.
    is_free = isinstance(leaf, Values) and leaf.low < 0
    if how == "edges":
        return not dtype.is_floating_point and is_free and operator.family in _ANY_INTEGER
    if how.startswith("special"):
        return operator.nonfinite and dtype.is_floating_point
    if how == "far":
        return dtype.is_floating_point and is_free and operator.family in _FAR
    # The spread of equal numbers is 0, and what is computed in its place is rounding alone.
    is_level = operator.one_set_of_inputs or (operator.exactness == FUNCTION and operator.terms > 1)
    return how == AS_THEY_ARE or not (how in {"few", "equal"} and is_level)
