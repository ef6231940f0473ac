"""Generated calls of an operator: its own calls with other sizes, values and layouts, chosen to expose kernel bugs.

A call of the table serves as a template. Equal sizes in it are replaced together, which usually keeps the call legal;
the CPU runs it first and decides. Every choice depends on the operator, the dtype and a seed only, so the calls are
the same on every machine and version of torch.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, lru_cache, partial
from typing import Any, TypeAlias

import numpy as np
import torch

from pytest_ascend.operators.operator import FUNCTION, Operator
from pytest_ascend.operators.samples import (
    CHANGES,
    EXACT,
    FORWARD,
    SHAPES,
    TEMPLATE,
    Sample,
    Source,
    StoredTensor,
    Values,
    Variant,
    call,
    is_index,
    on_leaves,
    sources_in,
    with_sizes,
)
from pytest_ascend.run.inputs import FROM_TABLE, Chance
from pytest_ascend.system.groups import by_key

#: The table's calls with their positions in it; the replacements of sizes, and the name of this variation.
Placed: TypeAlias = list[tuple[int, Sample]]
Resized: TypeAlias = tuple[Mapping[int, int], str]
#: Sizes at which kernels switch code paths: ends of vectors, tiles, blocks and buffers.
EDGES = (8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
#: Sizes that divide no edge, and sums of edges.
ODD = (3, 5, 7, 11, 13, 48, 96, 80, 100, 1000)
#: Sizes around the largest 16-bit number.
LARGE = (65_535, 65_536, 65_537)
#: Most elements of all tensors together: for a usual call, for one with many rows, and for the largest.
USUAL, OF_ROWS, LARGEST = 1 << 13, 1 << 15, 1 << 17

#: Ranks for three calls each, in turn, and numbers of tensors in their lists; 0 keeps those of the table.
DEPTHS, LISTS = (0, 2, 3, 0, 5, 1, 2), (0, 24, 9, 1)
#: The size of an added leading dimension; sizes for a call whose dimensions are all equal, from the last dimension on.
_MORE, _APART = 6, (9, 7, 5, 3, 2, 4, 10)

AS_THEY_ARE = "as they are"
EDGY = "edges"
#: Variations of a call's values, in turn, where results for such values are defined.
NUMBERS = (
    *("special in the tail", EDGY, "few", "special at the head", "far", "special within", "sorted"),
    *(AS_THEY_ARE, "reversed", "equal"),
)
#: The tensors to which these apply, in turn, where it need not be the first.
_WHICH = FIRST, SECOND, ALL = "first", "second", "all"
#: Variations of sizes, in turn, for three calls each.
SIZES = ("edge", "one", "large", "empty", "edge", "many", "as the table has them", "rows")
#: Layouts of the second of three calls, in turn; expanded tensors are created expanded.
EXPANDED, CONTIGUOUS = "expanded", "contiguous"
LAYOUTS = ("transposed", "stepped", EXPANDED, "shifted", "")
#: In one of this many triples, the first call has the third one's layout, for kernels that cache preparations; in one
#: of this many, the second differs from the first in one integer argument.
_SAME_LAYOUT_EVERY, _INTEGER_EVERY = 4, 3
#: One in this many calls also changes its first tensor in place; that tensor must not be expanded.
IN_PLACE_EVERY = 4

#: What a call varies: one value per axis.
AXES = ("size", "values", "layout")


@dataclass(frozen=True, slots=True)
class Generated:
    """A generated call: the sample, the layout of its tensors ("" for the usual one), and what it varies.

    ``number`` counts the calls of a ``seed``; ``template`` is the index of the table's call that it was made from;
    ``resized`` lists the sizes replaced later, when the call was shrunk.
    """

    sample: Sample
    layout: str
    axes: tuple[str, ...]
    seed: int | str = 0
    number: int = 0
    resized: tuple[tuple[int, int], ...] = ()
    template: int = 0


def generate(operator: Operator, dtype: str, count: int, seed: int | str = 0, start: int = 0) -> Iterator[Generated]:
    """Yield ``count`` calls in triples: a call, another of the same sizes, and the first with other values.

    With ``start``, a multiple of three, the calls before that are skipped.
    The second has the first one's sizes and, if possible, other arguments. Each has its own layout, which exposes
    caches keyed by shape alone. Not all calls are legal. Each dtype starts at a different point of every cycle, so that
    together they cover more combinations of sizes, values, arguments and layouts.
    """
    templates, kinds, fitting = _start(operator, dtype)
    shift = operator.dtypes.index(dtype)
    for number in range(start // 3, -(-count // 3) if templates else 0):
        # Every third size is shared by all dtypes, which exposes caches that ignore the dtype.
        is_shared = number % 3 == 2
        chance = Chance(f"sweep/{operator.name}/{'' if is_shared else dtype}/{seed}/{number}")
        ahead = 0 if is_shared else shift
        # Advanced by one in each cycle of the sizes, so that every template gets every size.
        place, alike = fitting(in_turn(kinds, number + number // len(SIZES) + ahead))
        turn = [index for index, _ in alike].index(place) + number // 2
        (place, first), second = (
            (index, with_list_length(operator, with_rank(operator, each, number + ahead), number + ahead))
            for index, each in (alike[turn % len(alike)], alike[(turn + 1) % len(alike)])
        )
        # Only one of three calls gets empty dimensions or dimensions of 1, and two get large ones, which take three
        # times as long as others.
        least = operator.traits.least_size
        found = _resized(first, chance, number, ahead, least=least)
        resized = (found, found, found)
        if found[1] in {"empty", "one", "large"}:
            edged = _edged(first, chance, least), "edge"
            resized = (found, found if found[1] == "large" else edged, edged)
        other = first.with_another_integer(chance) if number % _INTEGER_EVERY == 1 else first
        if other is not first or second[1].elements(resized[1][0]) > LARGEST:  # its rank is too high for those sizes
            second = (place, other)
        # In one turn, a tensor of the second call is 0-d, if tensors are broadcast or it is the only one.
        is_alone = len(second[1].values()) == 1 and any(isinstance(each, Source) for each in second[1].args[:1])
        is_single = (number + ahead) % len(DEPTHS) == 3 and (operator.traits.is_pointwise or is_alone)
        if is_single:
            second = (second[0], with_a_number(operator, second[1], number))
        numbers, turn = numbers_of(operator, first, dtype), number + shift
        how = numbers[turn % len(numbers)]
        again = how if (number // 2 + shift) % 2 else AS_THEY_ARE
        third = LAYOUTS[(turn + 2) % len(LAYOUTS)]
        three = (
            ((place, first), how, third if number % _SAME_LAYOUT_EVERY == 0 else ""),
            (second, chance.of(numbers_of(operator, second[1], dtype)), LAYOUTS[turn % len(LAYOUTS)]),
            ((place, first), EDGY if EDGY in numbers and how != EDGY else again, third),
        )
        for position, ((index, template), how, placed) in enumerate(three):
            sizes, axis = resized[position]
            # No constant inputs for long sums: their rounding errors have one sign.
            how = AS_THEY_ARE if axis == "large" and how == "equal" and operator.terms > 1 else how  # noqa: PLW2901
            key = f"{FROM_TABLE}{operator.name}/{dtype}/{seed}/{number}/{position}"
            if can_regenerate(operator, template):
                template = next(itertools.islice(operator.sampled(dtype, key, sizes), index, None))  # noqa: PLW2901
            sample = _changed(operator, template, sizes, (how, _WHICH[(turn + position) % 3]), dtype, key)
            call_number = 3 * number + position
            sample, placed_all = _laid_out(operator, sample, placed, number, call_number)
            axes = ("0-d" if is_single and position == 1 else axis, how, placed or CONTIGUOUS)
            name = f"call {call_number} of seed {seed}: {sample.name}"
            given = replace(sample, name=name, group=FORWARD, generated=True)
            yield Generated(given, placed_all, axes, seed, call_number, template=index)


# --- templates: which comes next, with which arguments, of which rank ---


@lru_cache(maxsize=1)  # a case generates its calls in several parts
def _start(operator: Operator, dtype: str) -> tuple[Placed, list[list[int]], Callable[[int], tuple[int, Placed]]]:
    templates = templates_of(operator, dtype)
    return templates, kinds_of(templates), with_arguments(operator, templates)


def templates_of(operator: Operator, dtype: str) -> Placed:
    """Return the calls to start from, with their positions: the usual ones, and those with several shapes."""
    samples = (each for each in operator.samples(dtype) if each.group != EXACT)
    usual = [(place, each) for place, each in enumerate(samples) if each.values()]
    kept = []
    for place, each in usual:
        has_given = any(isinstance(v, Values) and v.kind == "given" for v in each.values())
        has_several = each.group == SHAPES and len(each.sizes()) > 1 and len(each.values()) > 1
        if not has_given and (has_several or each.group in {FORWARD, TEMPLATE}):
            kept.append((place, each))
    with_given = [(place, each) for place, each in usual if each.group == FORWARD]
    # Given numbers without dimensions keep their values; tensors without elements stay empty in every size.
    resizable, given = ([each for each in found if each[1].sizes()] for found in (kept, with_given))
    full = [each for each in resizable if not any(0 in v.shape for v in each[1].values())]
    return full or resizable or kept or given or with_given


def kinds_of(templates: Placed) -> list[list[int]]:
    """Return the indices of the templates by kinds of arguments: each kind may be an overload with its own kernel.

    Unreduced results take every second turn: an error in one element may not show in a mean.
    """

    def kind(leaf: Any) -> Any:
        # For a tensor, its dimensions, and which are broadcast; for others the type; strings and bools themselves.
        if isinstance(leaf, Source):
            return [size == 1 for size in leaf.shape]
        return leaf if isinstance(leaf, (str, bool)) else type(leaf).__name__

    kinds = (repr(on_leaves(kind, (each.args, dict(each.kwargs)))) for _, each in templates)
    found = by_key((key, number) for number, key in enumerate(kinds))
    reduced = [of for of in found.values() if templates[of[0]][1].kwargs.get("reduction", "mean") != "none"]
    whole = [of for of in found.values() if of not in reduced]
    if not reduced or not whole:
        return [*found.values()]
    turns = max(len(reduced), len(whole))
    pairs = zip(itertools.cycle(whole), itertools.cycle(reduced), strict=False)
    return [of for pair in itertools.islice(pairs, turns) for of in pair]


def in_turn(kinds: list[list[int]], turn: int) -> int:
    """Return the index of a template: kinds take turns, and so do the templates of each kind."""
    own = kinds[turn % len(kinds)]
    return own[turn // len(kinds) % len(own)]


def with_arguments(operator: Operator, templates: Placed) -> Callable[[int], tuple[int, Placed]]:
    """Return a function that maps a template's index to its position and to its variants with other calls' arguments.

    Each variant has the position of the call whose arguments it takes. For a user's operator, these are whole calls."""
    is_pointwise = operator.traits.is_pointwise

    @cache  # long cycles return to a template many times
    def fitting(number: int) -> tuple[int, Placed]:
        place, first = templates[number]
        if is_pointwise:
            first = first.with_grads_of(each for _, each in templates)
        # The sizes of several tensors may depend on arguments, such as a convolution's channels on its groups.
        if can_regenerate(operator, first) or (len(first.values()) > 1 and not is_pointwise):
            return place, [(index, each) for index, each in templates if each.sizes() == first.sizes()]
        every = (
            (index, first.with_arguments_of(each, any_rank=is_pointwise and "dim" not in each.kwargs))
            for index, each in templates
        )
        return place, [(index, made) for index, made in every if made]

    return fitting


def can_regenerate(operator: Operator, template: Sample) -> bool:
    """Return whether a user's function made the call's tensors, so that it can make them in other sizes."""
    return any(isinstance(each, StoredTensor) for each in template.values()) and not operator.one_set_of_inputs


def with_rank(operator: Operator, template: Sample, number: int) -> Sample:
    """Return the call with tensors of higher or lower rank, where the operator accepts any."""
    sources = template.values()
    most = max((len(each.shape) for each in sources), default=0)
    has_given = any(isinstance(each, Values) and each.kind == "given" for each in sources)
    if can_regenerate(operator, template) or not most or has_given:
        return template
    depth = DEPTHS[number % len(DEPTHS)]
    try:
        np.broadcast_shapes(*(each.shape for each in sources))
    except ValueError:  # such as a weight per channel
        return template
    # A loss may compare two tensors elementwise, at any rank.
    is_alike = len(sources) > 1 and len({each.shape for each in sources}) == 1 and not any(map(is_index, sources))
    is_elementwise_loss = is_alike and "reduction" in template.kwargs and operator.traits.has_losses
    if not operator.traits.is_pointwise and not is_elementwise_loss:
        depth = most + 1 if operator.traits.takes_batches and depth == DEPTHS[1] else 0

    # Equal sizes could not be changed separately.
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
        key = f"{operator.name}/{number}/deepened"
        return replace(leaf, shape=shape) if isinstance(leaf, Values) else leaf.picked(shape, key)

    return template.with_sources(changed)


def with_list_length(operator: Operator, template: Sample, number: int) -> Sample:
    """Return the call with longer or shorter lists, where the operator takes lists of any length.

    All lists as long as the first list of tensors change. Longer ones repeat from their first element.
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


def with_a_number(operator: Operator, template: Sample, number: int) -> Sample:
    """Return the call with one of its tensors 0-d; whether that is legal depends on the others."""
    count = len(template.values())

    def changed(leaf: Source, place: int) -> Source:
        if place != number % count or ("dim" in template.kwargs and count > 1):
            return leaf
        if isinstance(leaf, Values):
            return leaf if leaf.kind == "given" else replace(leaf, shape=())
        if isinstance(leaf, StoredTensor) and operator.one_set_of_inputs:
            return leaf.picked((), f"{operator.name}/{number}/single")
        return leaf

    return template.with_places(changed)


# --- sizes, values and layouts ---


def _laid_out(operator: Operator, sample: Sample, layout: str, number: int, call_number: int) -> tuple[Sample, str]:
    """Return the call with, in turn, its first tensor, all or the last laid out; and the layout of all of them.

    A kernel that applies one tensor's strides to another would pass if all tensors shared strides.
    """
    count = len(sample.values())
    places = ((0,), range(count), (count - 1,))[number % 3 if count > 1 else 1]
    if layout == EXPANDED and operator.traits.any_rows and operator.layouts:
        changes_first = bool(operator.in_place) and call_number % IN_PLACE_EVERY == 0
        return sample.expanded(set(places) - {0} if changes_first else places), layout
    is_taken = operator.layouts is True or layout in (operator.layouts or ())
    if len(places) < count and layout in CHANGES and is_taken:
        laid = sample.with_places(lambda leaf, its: Variant(values=leaf, how=layout) if its == places[0] else leaf)
        return laid, ""
    return sample, layout


def _resized(template: Sample, chance: Chance, number: int, ahead: int, *, least: int) -> Resized:
    """Return the replacement for each size, and the name of this variation.

    Each size takes its turn as the one that becomes empty, or one; every second time it is the first tensor's last
    dimension, along which products and sums have their terms. Sizes that must be small become ``least``: with 2, no
    unit of work would have a remainder.
    """
    sizes = template.sizes()
    if not any(each.shape for each in template.values()):
        return {}, "0-d"
    axis = SIZES[number % len(SIZES)] if sizes else "as the table has them"
    if axis == "as the table has them":
        return {}, axis
    if axis in {"empty", "one"}:  # in one position
        turn, terms = number // len(SIZES) + ahead, [*template.values()[0].shape[-1:]]
        which = terms[0] if turn % 2 == 0 and terms and terms[0] in sizes else sizes[turn % len(sizes)]
        return {which: 0 if axis == "empty" else 1}, axis
    if axis == "large":
        # Two times in three a long last dimension, if it can be changed; else any dimension.
        rows = [each.shape[-1] for each in template.values() if each.shape and each.shape[-1] in sizes]
        which = rows[0] if rows and chance.below(3) else chance.of(sizes)
        found = dict(_fitting(template, {which: chance.of(LARGE)}, LARGEST, least))
        # Halved by the limit, it would be a power of two in most calls.
        found[which] -= chance.of((0, 1, 3)) if found[which] not in LARGE else 0
        return found, axis
    if axis == "many":  # rows, images, heads: a large first dimension
        first = next((each.shape[0] for each in template.values() if each.shape and each.shape[0] in sizes), sizes[0])
        return _fitting(template, {first: chance.of(EDGES[2:5]) + chance.of((0, 1, 3))}, USUAL, least), axis
    return (_with_rows if axis == "rows" else _edged)(template, chance, least), axis


def _with_rows(template: Sample, chance: Chance, least: int) -> Mapping[int, int]:
    """Return replacements for the first and the last size: many long rows, and a remainder after every unit of work.

    One such call meets most conditions on sizes at once, for which other variations need a call each.
    """
    shapes, rest = [each.shape for each in template.values() if each.shape], chance.of((1, 3, 5, 7))
    first, last = shapes[0][0], shapes[0][-1]
    if first != last:
        wanted = {first: 64 + rest, last: 128 + rest}
    else:
        wanted = {last: 4096 + rest if all(len(shape) == 1 for shape in shapes) else 90 + rest}
    return _fitting(template, {size: to for size, to in wanted.items() if size in template.sizes()}, OF_ROWS, least)


def _edged(template: Sample, chance: Chance, least: int) -> Mapping[int, int]:
    """Return replacements for sizes: one at or next to an edge, maybe one at another edge, some of the others odd."""
    sizes = template.sizes()
    wanted = {chance.of(sizes): chance.of(EDGES) + chance.of((-1, 0, 1)), chance.of(sizes): chance.of(EDGES)}
    wanted |= {size: chance.of(ODD) for size in sizes if size not in wanted and chance.below(2)}
    return _fitting(template, wanted, USUAL, least)


def numbers_of(operator: Operator, template: Sample, dtype: str) -> tuple[str, ...]:
    """Return the variations that apply to the values of a call."""
    kind, data = getattr(torch, dtype), [each for each in template.values() if not is_index(each)]
    varied = data if operator.traits.varies_all else data[:1]
    found = (how for how in NUMBERS if any(_may_vary(operator, each, how, kind) for each in varied))
    return tuple(found) or (AS_THEY_ARE,)


def _fitting(template: Sample, wanted: Mapping[int, int], most: int, least: int) -> Mapping[int, int]:
    """Return the wanted sizes, shrinking the others first, until all tensors have at most ``most`` elements."""
    sizes = {size: size for size in template.sizes()} | dict(wanted)
    for size in sorted(sizes, key=lambda each: each in wanted):
        if template.elements(sizes) > most and size not in wanted:
            sizes[size] = min(size, least)
    while template.elements(sizes) > most and max(sizes.values()) > 2:
        largest = max(sizes, key=sizes.__getitem__)
        sizes[largest] = (sizes[largest] + 1) // 2
    return sizes


def _changed(  # noqa: PLR0917  (an operator, its call, and what is changed)
    operator: Operator, template: Sample, sizes: Mapping[int, int], how: tuple[str, str], dtype: str, key: str
) -> Sample:
    """Return the call in these sizes, with its values varied: ``how`` names the variation and the tensors."""
    kind, (change, which) = getattr(torch, dtype), how
    data = [place for place, each in enumerate(template.values()) if not is_index(each)]
    # In a comparison, equal values must occur.
    is_compared = operator.compares or operator.traits.compares
    which = ALL if is_compared else which if operator.traits.varies_all and len(data) > 1 else FIRST
    if change == "far" and operator.traits.takes_lists:  # CANN rounds the products, which would overflow
        which = FIRST
    varied = {FIRST: data[:1], SECOND: data[1:2], ALL: data}[which]
    places = itertools.count()

    def changed(leaf: Source, place: int) -> Source:
        if not isinstance(leaf, (Values, StoredTensor)):
            return leaf
        own, shape = leaf, tuple(sizes.get(size, size) for size in leaf.shape)
        if isinstance(leaf, Values):
            own = replace(leaf, shape=shape)
            if is_index(leaf) and leaf.kind == "uniform" and not leaf.low and leaf.dtype != "bool":
                # It stays below the smallest dimension that it may index.
                indexed = (size for each in template.values() if not is_index(each) for size in each.shape)
                if reached := [sizes.get(size, size) for size in indexed if size > leaf.high]:
                    own = replace(own, high=max(min(reached) - 1, 0))
        elif operator.one_set_of_inputs:
            own = leaf.picked(shape, f"{key}/{next(places)}")
        varies = place in varied and change != AS_THEY_ARE
        return Variant(values=own, how=change) if varies and _may_vary(operator, leaf, change, kind) else own

    sample = template.with_places(changed)
    args, kwargs = with_sizes(sample.args, sizes), with_sizes(dict(sample.kwargs), sizes)
    return replace(sample, args=args, kwargs=kwargs, name=call(*args, **kwargs).name)


def _is_free(leaf: Source) -> bool:
    """Return whether values may be of any size: those that must be positive, such as shift counts, must be small."""
    if not isinstance(leaf, StoredTensor):
        return isinstance(leaf, Values) and leaf.low < 0
    is_signed = not leaf.tensor.is_complex() and leaf.tensor.dtype is not torch.bool
    return is_signed and bool((leaf.tensor < 0).any())


def _may_vary(operator: Operator, leaf: Source, how: str, dtype: torch.dtype) -> bool:
    """Return whether results for an input with such values are defined."""
    if is_index(leaf) or dtype is torch.bool:
        return False
    if how == "edges":
        # Sums and products wrap around, as on the CPU.
        takes_any = not dtype.is_floating_point and operator.traits.any_integer
        return takes_any and (operator.traits.any_unsigned or _is_free(leaf))
    if how.startswith("special"):
        return operator.nonfinite and dtype.is_floating_point
    if how == "far":
        may_be_far = operator.traits.far and (operator.nonfinite or operator.traits.far_without_nan)
        return dtype.is_floating_point and may_be_far and _is_free(leaf)
    # The spread of equal values is 0: a result scaled by it would be rounding errors alone.
    is_level = operator.one_set_of_inputs or (operator.exactness == FUNCTION and operator.terms > 1)
    return how == AS_THEY_ARE or not (how in {"few", "equal"} and is_level)


def smaller(each: Generated) -> Iterator[Generated]:
    """Yield the call with each size in turn halved, then with each reduced by one."""
    sizes = sorted({size for v in each.sample.values() for size in v.shape if size > 1}, reverse=True)
    for size, to in [(size, size // 2) for size in sizes] + [(size, size - 1) for size in sizes]:
        yield resized(each, size, to)


def resized(each: Generated, size: int, to: int) -> Generated:
    """Return the call with one size replaced."""
    changed = each.sample.with_sources(partial(_cut, size=size, to=to))
    name = f"call {each.number} of seed {each.seed}, made smaller: {call(*changed.args, **changed.kwargs).name}"
    return replace(each, sample=replace(changed, name=name), resized=(*each.resized, (size, to)))


def _cut(leaf: Any, size: int, to: int) -> Any:
    if isinstance(leaf, Variant):
        return replace(leaf, values=_cut(leaf.values, size, to))
    if not isinstance(leaf, Values | StoredTensor):
        return leaf
    shape = tuple(to if each == size else each for each in leaf.shape)
    return replace(leaf, shape=shape) if isinstance(leaf, Values) else leaf.cut(shape)
