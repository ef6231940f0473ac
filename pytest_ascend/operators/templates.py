"""The table's calls as templates of generated ones: which is next, with whose arguments, in how many dimensions."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from pytest_ascend.operators.operator import Operator
from pytest_ascend.operators.samples import EXACT, FORWARD, SHAPES, TEMPLATE, Sample, Source, on_leaves, sources_in
from pytest_ascend.operators.values import StoredTensor, Values

#: Dimensions of three calls of these, in turn; 0 leaves them as the table has them.
DEPTHS = (0, 2, 3, 0, 5, 1, 2)
#: Tensors in each list of three calls, in turn; 0 leaves the lists as they are.
LISTS = (0, 24, 9, 1)
#: The size of one more leading dimension.
_MORE = 6
#: Sizes for a call whose dimensions are all equal, from the last dimension on.
_APART = (9, 7, 5, 3, 2, 4, 10)


def templates_of(operator: Operator, dtype: str) -> list[tuple[int, Sample]]:
    """Return the calls to start from, with their places: the usual ones, and those of several shapes."""
    samples = (each for each in operator.samples(dtype) if each.group != EXACT)
    usual = [(place, each) for place, each in enumerate(samples) if each.values()]
    kept = [
        (place, each)
        for place, each in usual
        if not any(isinstance(v, Values) and v.kind == "given" for v in each.values())
        and (
            each.group in {FORWARD, TEMPLATE}
            or (each.group == SHAPES and len(each.sizes()) > 1 and len(each.values()) > 1)
        )
    ]
    with_given = [(place, each) for place, each in usual if each.group == FORWARD]
    # Numbers without dimensions are used as in the table; what is empty stays so in every size.
    resizable, given = ([each for each in found if each[1].sizes()] for found in (kept, with_given))
    full = [each for each in resizable if not any(0 in v.shape for v in each[1].values())]
    return full or resizable or kept or given or with_given


def shift_of(operator: Operator, dtype: str) -> int:
    """Return by how much a dtype is ahead of the first one in every cycle."""
    return operator.dtypes.index(dtype)


def kinds_of(templates: list[tuple[int, Sample]]) -> list[list[int]]:
    """Return the numbers of the templates by their kinds of arguments: each kind may be an overload with its kernel.

    Results that are not reduced take every second turn: an error in one element may not show in a mean.
    """
    found: dict[str, list[int]] = {}
    for number, (_, each) in enumerate(templates):
        found.setdefault(repr(on_leaves(_kind, (each.args, dict(each.kwargs)))), []).append(number)
    reduced = [of for of in found.values() if templates[of[0]][1].kwargs.get("reduction", "mean") != "none"]
    whole = [of for of in found.values() if of not in reduced]
    if not reduced or not whole:
        return [*found.values()]
    turns = max(len(reduced), len(whole))
    pairs = zip(itertools.cycle(whole), itertools.cycle(reduced), strict=False)
    return [of for pair in itertools.islice(pairs, turns) for of in pair]


def _kind(leaf: Any) -> Any:
    """Return what sets an argument apart from those of another kind: its type; texts and truth values themselves.

    Of a tensor, its dimensions, and which are broadcast.
    """
    if isinstance(leaf, Source):
        return [size == 1 for size in leaf.shape]
    return leaf if isinstance(leaf, (str, bool)) else type(leaf).__name__


def in_turn(kinds: list[list[int]], turn: int) -> int:
    """Return the number of a template: the kinds take turns, and those of one kind."""
    own = kinds[turn % len(kinds)]
    return own[turn // len(kinds) % len(own)]


def with_arguments(
    operator: Operator, templates: list[tuple[int, Sample]]
) -> Callable[[int], tuple[int, list[tuple[int, Sample]]]]:
    """Return the function that gives of a template, by its number, its place, and its tensors with the arguments of
    every call that fits, with that one's place. Of a user's operator, these are other calls of the same sizes.
    """
    is_pointwise = operator.traits.is_pointwise

    @functools.cache  # long cycles come back to a template many times
    def fitting(number: int) -> tuple[int, list[tuple[int, Sample]]]:
        place, first = templates[number]
        if is_pointwise:
            first = first.with_grads_of(each for _, each in templates)
        # The sizes of several tensors may depend on arguments, as a convolution's channels on its groups.
        if can_regenerate(operator, first) or (len(first.values()) > 1 and not is_pointwise):
            return place, [(index, each) for index, each in templates if each.sizes() == first.sizes()]
        every = (
            (index, first.with_arguments_of(each, any_rank=is_pointwise and "dim" not in each.kwargs))
            for index, each in templates
        )
        return place, [(index, made) for index, made in every if made]

    return fitting


def can_regenerate(operator: Operator, template: Sample) -> bool:
    """Whether the call's tensors come from a user's function, which can draw them in other sizes."""
    return any(isinstance(each, StoredTensor) for each in template.values()) and not operator.one_set_of_inputs


def with_rank(operator: Operator, template: Sample, number: int) -> Sample:
    """Return the call with tensors of more dimensions, or fewer, where the operator takes any."""
    sources = template.values()
    most = max((len(each.shape) for each in sources), default=0)
    if (
        can_regenerate(operator, template)
        or not most
        or any(isinstance(each, Values) and each.kind == "given" for each in sources)
    ):
        return template
    depth = DEPTHS[number % len(DEPTHS)]
    try:
        np.broadcast_shapes(*(each.shape for each in sources))
    except ValueError:  # a weight of each channel
        return template
    if not operator.traits.is_pointwise and not _is_elementwise_loss(operator, template):
        depth = most + 1 if operator.traits.takes_batches and depth == DEPTHS[1] else 0

    # If all dimensions have the same size, none could be changed alone.
    is_apart = operator.traits.is_pointwise or (operator.one_set_of_inputs and number % 2 == 1)
    own = dict(enumerate(_APART, 1)) if is_apart and len({*template.sizes()}) == 1 else {}

    def changed(leaf: Any) -> Any:
        if not isinstance(leaf, (Values, StoredTensor)) or (depth and len(leaf.shape) < min(depth, most)):
            return leaf
        added = (_MORE, *range(2, 1 + depth - most))[: depth - most] if depth > most else ()
        shape = (*added, *leaf.shape)[-depth:] if depth else leaf.shape
        shape = tuple(own.get(len(shape) - i, size) if size > 1 else size for i, size in enumerate(shape))
        if shape == leaf.shape:
            return leaf
        if isinstance(leaf, Values):
            return replace(leaf, shape=shape)
        return leaf.picked(shape, f"{operator.name}/{number}/deepened")

    return template.with_sources(changed)


def _is_elementwise_loss(operator: Operator, template: Sample) -> bool:
    """Whether the call is of a loss that compares two tensors element by element, in any number of dimensions."""
    sources = template.values()
    is_loss = "reduction" in template.kwargs and operator.traits.has_losses
    is_alike = len(sources) > 1 and len({each.shape for each in sources}) == 1
    return is_loss and is_alike and not any(map(is_index, sources))


def is_index(leaf: Source) -> bool:
    """Whether a tensor has a dtype of its own: an index, a mask."""
    return bool(leaf.dtype) if isinstance(leaf, Values) else isinstance(leaf, StoredTensor) and not leaf.follows


def with_list_length(operator: Operator, template: Sample, number: int) -> Sample:
    """Return the call with longer or shorter lists, where the operator takes lists of any length.

    All change that are as long as the first one of tensors. Longer ones begin anew with their first element.
    """
    length, args = LISTS[number % len(LISTS)], template.args
    count = next((len(each) for each in args if isinstance(each, (list, tuple)) and sources_in(each)), 0)
    if not operator.traits.takes_lists or not length or not count:
        return template

    def changed(each: Any) -> Any:
        is_one = isinstance(each, (list, tuple)) and len(each) == count
        return [each[place % count] for place in range(length)] if is_one else each

    kwargs = {key: changed(each) for key, each in template.kwargs.items()}
    return replace(template, args=tuple(map(changed, args)), kwargs=kwargs)


def takes_a_number(operator: Operator, template: Sample) -> bool:
    """Whether a tensor of the call may have no dimensions: one of those that broadcast, or the only one."""
    return operator.traits.is_pointwise or (len(template.values()) == 1 and isinstance(template.args[0], Source))


def with_a_number(operator: Operator, template: Sample, number: int) -> Sample:
    """Return the call with one of its tensors without dimensions; whether that is legal depends on the others."""
    sources = template.values()
    which = sources[number % len(sources)]

    def changed(leaf: Any) -> Any:
        if leaf is not which or ("dim" in template.kwargs and len(sources) > 1):
            return leaf
        if isinstance(leaf, Values):
            return leaf if leaf.kind == "given" else replace(leaf, shape=())
        if isinstance(leaf, StoredTensor) and operator.one_set_of_inputs:
            return leaf.picked((), f"{operator.name}/{number}/single")
        return leaf

    return template.with_sources(changed)
