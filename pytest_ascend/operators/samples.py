"""One call of an operator: its arguments, with a description of each tensor."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import torch

from pytest_ascend.operators.values import StoredTensor, Values, Variant
from pytest_ascend.run.inputs import FROM_TABLE, Chance

#: The description of a tensor in a sample.
Source: TypeAlias = Values | StoredTensor | Variant

#: Elements of a large tensor, and terms in the longest sum over any other.
LONG, USUAL_TERMS = 512, 256

#: What a sample tests; properties.py has the groups of each property.
FORWARD, SPECIAL, SHAPES, PROMOTION, LAYOUT = "forward", "special", "shapes", "promotion", "layout"
#: Calls with one right result, whatever the order of their sums.
EXACT = "exact"
#: Of this group are calls that are not tested themselves: generated ones start from them too.
TEMPLATE = "template"
GROUPS = (FORWARD, SPECIAL, SHAPES, PROMOTION, LAYOUT, EXACT, TEMPLATE)

# torch's own pytrees support more containers and take ten times as long, more than most operators do.
_CONTAINERS = (tuple, list, dict)


def leaves(tree: Any) -> list[Any]:
    """Return everything but tuples, lists and dictionaries, in order."""
    if not isinstance(tree, _CONTAINERS):
        return [tree]
    found = []
    for each in tree.values() if isinstance(tree, dict) else tree:
        # A generator for each level would take longer than all else here.
        found.extend(leaves(each)) if isinstance(each, _CONTAINERS) else found.append(each)
    return found


def on_leaves(change: Callable[[Any], Any], tree: Any) -> Any:
    """Return the structure with each leaf changed; a named tuple becomes a tuple."""
    if not isinstance(tree, _CONTAINERS):
        return change(tree)
    values = tree.values() if isinstance(tree, dict) else tree
    changed = [on_leaves(change, each) if isinstance(each, _CONTAINERS) else change(each) for each in values]
    if isinstance(tree, dict):
        return dict(zip(tree, changed, strict=True))
    return tuple(changed) if isinstance(tree, tuple) else changed


@dataclass(frozen=True, kw_only=True, slots=True)
class Sample:
    """One call: its arguments, with a :data:`Source` for each tensor. ``group`` is what it tests.

    A user's sample may have tensors themselves. ``all_bits`` says of a recorded one that its numbers use all bits of
    one dtype, ``generated`` that it is in no table.
    """

    name: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    group: str = FORWARD
    all_bits: bool = False
    generated: bool = False
    #: Known once they were looked for: generating calls looks hundreds of times.
    _values: list[Source] = field(init=False, repr=False, compare=False)

    def values(self) -> list[Source]:
        """Return the tensors' descriptions, in order."""
        try:
            return self._values
        except AttributeError:
            found = [leaf for leaf in leaves((self.args, dict(self.kwargs))) if isinstance(leaf, Source)]
            object.__setattr__(self, "_values", found)
            return found

    def sizes(self) -> tuple[int, ...]:
        """Return the sizes that can be changed, each once: not 0 and 1, and not those of given numbers."""
        given = [each for each in self.values() if isinstance(each, Values) and each.kind == "given"]
        fixed = {size for each in given for size in each.shape}
        return tuple(sorted({size for each in self.values() for size in each.shape if size > 1} - fixed))

    def elements(self, sizes: Mapping[int, int]) -> int:
        """Return how many elements all tensors have together, with these sizes replaced."""
        return sum(math.prod(sizes.get(size, size) for size in each.shape) for each in self.values())

    def stream(self, operator: str) -> str:
        """Return the key of the random streams of its tensors, and of the gradients from above."""
        return f"{FROM_TABLE if self.generated else 'ops/'}{operator}/{self.name}"

    def arguments(self, operator: str, dtype: torch.dtype) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments, with tensors on the CPU: the same for the same operator and sample everywhere."""
        places, stream = itertools.count(), self.stream(operator)

        def made(leaf: Any) -> Any:
            return leaf.make(f"{stream}/{next(places)}", dtype) if isinstance(leaf, Source) else leaf

        args, kwargs = on_leaves(made, (self.args, dict(self.kwargs)))
        return args, kwargs

    def with_sources(self, change: Callable[[Any], Any]) -> Sample:
        """Return the same call with each argument that is not a container changed."""
        args, kwargs = on_leaves(change, (self.args, dict(self.kwargs)))
        return replace(self, args=args, kwargs=kwargs)

    def with_grads_of(self, others: Iterable[Sample]) -> Sample:
        """If none of its tensors requires a gradient, return it with those of another call requiring one.

        The table has no gradients for large tensors, since they would have to be stored.
        """
        mine = self.values()
        if any(each.grad for each in mine if isinstance(each, (Values, StoredTensor))):
            return self
        every = ([isinstance(its, Values) and its.grad for its in other.values()] for other in others)
        if found := next((grads for grads in every if any(grads) and len(grads) == len(mine)), None):
            given = iter(found)
            return self.with_sources(lambda leaf: replace(leaf, grad=next(given)) if isinstance(leaf, Values) else leaf)
        return self

    def with_arguments_of(self, other: Sample, *, any_rank: bool) -> Sample | None:
        """Return the call with another one's arguments but its own tensors; None if these do not fit together.

        Both have as many tensors, in the same places, and with as many dimensions unless ``any_rank``.
        """
        if len(self.args) != len(other.args):
            return None
        pairs = [
            *zip(self.args, other.args, strict=True),
            *((self.kwargs.get(key), other.kwargs.get(key)) for key in {**self.kwargs, **other.kwargs}),
        ]
        if any(sources_in(mine) != sources_in(its) for mine, its in pairs):
            return None
        if not any_rank and [len(each.shape) for each in self.values()] != [len(each.shape) for each in other.values()]:
            return None
        args = tuple(mine if sources_in(mine) else its for mine, its in pairs[: len(self.args)])
        kwargs = {key: self.kwargs[key] if sources_in(its) else its for key, its in other.kwargs.items()}
        return replace(self, args=args, kwargs=kwargs)

    def with_another_integer(self, chance: Chance) -> Sample:
        """Return the same call with one integer argument, or one of a list, changed by chance; itself if it has none.

        Lists of its tensors' sizes stay as they are. Most of the changed calls are legal.
        """
        sizes = {size for each in self.values() for size in each.shape}
        arguments: dict[int | str, Any] = dict(enumerate(self.args)) | dict(self.kwargs)
        places = [key for key, each in arguments.items() if _has_integers(each, sizes)]
        if not places:
            return self
        place = chance.of(places)
        changed = _with_another(arguments[place], chance)
        args = (changed if number == place else each for number, each in enumerate(self.args))
        kwargs = {key: changed if key == place else each for key, each in self.kwargs.items()}
        return replace(self, args=tuple(args), kwargs=kwargs)

    def with_layout(self, layout: str, place: int) -> Sample:
        """Return the same call with one of its tensors, by its place, laid out as :data:`CHANGES` has it."""
        return self._with_places(lambda leaf, its: Variant(values=leaf, how=layout) if its == place else leaf)

    def _with_places(self, change: Callable[[Source, int], Source]) -> Sample:
        places = itertools.count()
        return self.with_sources(lambda leaf: change(leaf, next(places)) if isinstance(leaf, Source) else leaf)

    def with_nonfinite(self, dtype: torch.dtype) -> Sample:
        """Return the same call with NaN and infinities in the first differentiable tensor."""
        first = next(each for each in self.values() if each.wants_grad(dtype) and each.shape)
        changed = self.with_sources(lambda leaf: leaf.with_nonfinite() if leaf is first else leaf)
        return replace(changed, name=f"{self.name}, not all finite", group=SPECIAL)

    def with_whole_numbers(self) -> Sample:
        """Return the same call with -1, 0 and 1 in place of its numbers, whose sums are exact in any order."""

        def whole(leaf: Any) -> Any:
            follows = isinstance(leaf, Variant) or (isinstance(leaf, Values) and not leaf.dtype)
            follows |= isinstance(leaf, StoredTensor) and leaf.follows
            return Variant(values=leaf, how="whole") if follows else leaf

        return replace(self.with_sources(whole), name=f"{self.name}, whole numbers", group=EXACT)

    def expanded(self, places: Collection[int] | None = None) -> Sample:
        """Return the same call with every tensor expanded along its first dimension, or only those of these places."""
        changed = self._with_places(lambda leaf, place: leaf.expanded() if places is None or place in places else leaf)
        return replace(changed, name=f"{self.name}, expanded", group=LAYOUT)


def call(*args: Any, group: str = FORWARD, name: str = "", **kwargs: Any) -> Sample:
    """Describe one call; the default name is made of its shapes and arguments.

    ``group`` is what it tests: "forward", "special" (NaN, infinities, limits of the dtype), "shapes" (empty, broadcast,
    0-d), "promotion" (mixed dtypes), "exact" (sums that are exact in any order) or "template" (nothing: generated calls
    start from it, as they do from those of "forward"). Raises ValueError for any other.
    """
    if group not in GROUPS:
        raise ValueError(f"{group!r} is no group of calls: use one of {', '.join(GROUPS)}")
    parts = [_text(each) for each in args] + [f"{key}={_text(value)}" for key, value in kwargs.items()]
    return Sample(name=name or ", ".join(parts), args=args, kwargs=kwargs, group=group)


def _text(value: Any) -> str:
    if isinstance(value, Source):
        return value.label
    if isinstance(value, torch.Tensor):
        return "x".join(map(str, value.shape)) or "0-d"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_text, value))}]"
    return str(value).removeprefix("torch.")


def with_sizes(tree: Any, sizes: Mapping[int, int]) -> Any:
    """Return arguments with the sizes replaced in lists of sizes, such as the shape given to layer_norm."""
    if isinstance(tree, dict):
        return {key: with_sizes(each, sizes) for key, each in tree.items()}
    if isinstance(tree, (list, tuple)):
        is_shape = len(tree) > 0 and all(type(each) is int and each > 1 for each in tree)
        made = [sizes.get(each, each) if is_shape else with_sizes(each, sizes) for each in tree]
        return tuple(made) if isinstance(tree, tuple) else made
    return tree


def _has_integers(argument: Any, sizes: Collection[int]) -> bool:
    """Whether an argument is an integer, or a list of them which are not the sizes of a tensor."""
    if isinstance(argument, (list, tuple)):
        return len(argument) > 0 and all(type(each) is int for each in argument) and not {*argument} <= {*sizes}
    return type(argument) is int


def _with_another(argument: Any, chance: Chance) -> Any:
    """Return an integer that is larger or smaller by one or two; of a list, change one."""
    if isinstance(argument, (list, tuple)):
        place = chance.below(len(argument))
        made = [_with_another(each, chance) if place == number else each for number, each in enumerate(argument)]
        return tuple(made) if isinstance(argument, tuple) else made
    # Negative numbers mean another thing than positive ones: a dimension from the end.
    return argument + (chance.of((-1, 1, 2)) if argument > 1 else chance.of((1, 2)) if argument >= 0 else -1)


def sources_in(argument: Any) -> int:
    """Return how many tensors are in an argument."""
    return sum(isinstance(leaf, Source) for leaf in leaves(argument))
