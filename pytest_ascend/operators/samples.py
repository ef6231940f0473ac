"""One call of an operator as data: descriptions that give the same tensors on every machine, or stored tensors."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, TypeAlias

import numpy as np
import torch

from pytest_ascend.precision.formats import INTEGERS
from pytest_ascend.run import inputs
from pytest_ascend.run.inputs import FROM_TABLE, Chance

#: A number, or the name of one that depends on the dtype (see :data:`NAMED`).
Number: TypeAlias = float | str


@dataclass(frozen=True, kw_only=True, slots=True)
class Values:
    """A description of a tensor. ``shape`` is torch's; ``kind`` names how its values are made (see :data:`KINDS`).

    ``dtype`` is torch's name, "" for the case's. ``grad`` tells whether it may require a gradient. ``repeated`` uses
    the first row for all: an expanded tensor, with stride 0. ``sprinkled`` inserts NaN and infinities.
    """

    shape: tuple[int, ...]
    kind: str
    low: float = -1.0
    high: float = 1.0
    numbers: tuple[Number, ...] = ()
    dtype: str = ""
    grad: bool = True
    repeated: bool = False
    sprinkled: bool = False

    def make(self, key: str, dtype: torch.dtype) -> torch.Tensor:
        """Return the tensor on the CPU. ``key`` names the random stream, ``dtype`` is the case's."""
        own = getattr(torch, self.dtype) if self.dtype else dtype
        made = KINDS[self.kind](self, key, own).to(own)
        tensor = _sprinkled(made) if self.sprinkled else made
        return tensor[:1].expand_as(tensor) if self.repeated and self.can_repeat else tensor

    @property
    def label(self) -> str:
        """Return its part of a sample's name."""
        kind = "" if self.kind in ("uniform", "normal", "given") else f" {self.kind}"
        return ("x".join(map(str, self.shape)) or "0-d") + (f" {self.dtype}" if self.dtype else "") + kind

    @property
    def can_repeat(self) -> bool:
        """Return whether it has several rows, so that the first can be repeated."""
        return len(self.shape) > 1 and self.shape[0] > 1

    def wants_grad(self, dtype: torch.dtype) -> bool:
        """Return whether the input requires a gradient, in a case of this dtype."""
        return self.grad and not self.dtype and dtype.is_floating_point

    def with_nonfinite(self) -> Values:
        """Return the same with NaN first, -Inf last, and Inf in the middle."""
        return replace(self, sprinkled=True)

    def expanded(self) -> Values:
        """Return the same with stride 0 along the first dimension."""
        return replace(self, repeated=True)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class StoredTensor:
    """A stored tensor on the CPU, contiguous; it is converted to the case's dtype and a layout.

    ``follows`` is false for a tensor with a fixed dtype: an index, a mask. ``grad`` tells whether it may require a
    gradient. ``stride`` is that of the recorded tensor if it was not contiguous. ``number`` is its index in the
    recording, -1 if the recording does not hold it unchanged.
    """

    tensor: torch.Tensor
    follows: bool = True
    grad: bool = False
    stride: tuple[int, ...] | None = None
    number: int = -1

    @property
    def shape(self) -> tuple[int, ...]:
        """Return its shape."""
        return tuple(self.tensor.shape)

    @property
    def label(self) -> str:
        """Return its part of a sample's name."""
        shape = "x".join(map(str, self.shape)) or "0-d"
        own = "" if self.follows else f" {str(self.tensor.dtype).removeprefix('torch.')}"
        return shape + own + (" strided" if self.stride else "")

    @property
    def can_repeat(self) -> bool:
        """Return whether it has several rows, so that the first can be repeated; indices and masks stay unchanged."""
        return (self.follows or self.number >= 0) and len(self.shape) > 1 and self.shape[0] > 1

    def make(self, _: str, dtype: torch.dtype) -> torch.Tensor:
        """Return a copy on the CPU, in the case's dtype and the recorded layout."""
        own = self.tensor.to(dtype) if self.follows else self.tensor
        return laid_out(own, self.stride) if self.stride else own.clone()

    def wants_grad(self, dtype: torch.dtype) -> bool:
        """Return whether the input requires a gradient, in a case of this dtype."""
        return self.grad and self.follows and (dtype.is_floating_point or dtype.is_complex)

    def with_nonfinite(self) -> StoredTensor:
        """Return the same with NaN first, -Inf last, and Inf in the middle."""
        return replace(self, tensor=_sprinkled(self.tensor), number=-1)

    def picked(self, shape: tuple[int, ...], key: str) -> StoredTensor:
        """Return a tensor of another shape with values picked from this one's, which the operator accepts."""
        if not self.tensor.numel():
            return self
        return replace(self, tensor=_picked(self.tensor.reshape(-1), shape, key), stride=None, number=-1)

    def cut(self, shape: tuple[int, ...]) -> StoredTensor:
        """Return the first elements along each dimension, contiguous."""
        first = self.tensor[tuple(slice(size) for size in shape)].contiguous()
        return replace(self, tensor=first, stride=None, number=-1)

    def expanded(self) -> StoredTensor:
        """Return the same with stride 0 along the first dimension."""
        if not self.can_repeat:
            return self
        stride = (0, *self.tensor.stride()[1:])
        repeated = self.tensor[:1].expand(self.shape).contiguous()
        return replace(self, tensor=repeated, stride=stride, number=-1)


@dataclass(frozen=True, kw_only=True, slots=True)
class Variant:
    """A description with values or layout changed: ``how`` is one of :data:`CHANGES`.

    ``repeated`` uses the first row for all, as in :class:`Values`.
    """

    values: Values | StoredTensor | Variant
    how: str
    repeated: bool = False
    #: Rows cannot be repeated after a change.
    can_repeat: ClassVar[bool] = False

    @property
    def shape(self) -> tuple[int, ...]:
        """Return its shape."""
        return self.values.shape

    @property
    def label(self) -> str:
        """Return its part of a sample's name."""
        return f"{self.values.label} ({self.how})"

    @property
    def changes(self) -> tuple[str, ...]:
        """Return the names of its changes, the first one first."""
        return (*(self.values.changes if isinstance(self.values, Variant) else ()), self.how)

    def make(self, key: str, dtype: torch.dtype) -> torch.Tensor:
        """Return the tensor on the CPU. ``key`` names the random stream, ``dtype`` is the case's."""
        made, change = self.values.make(key, dtype), CHANGES[self.how]
        if not made.numel():
            return made
        return change(made[:1], key).expand_as(made) if self.repeated and made.ndim > 1 else change(made, key)

    def wants_grad(self, dtype: torch.dtype) -> bool:
        """Return whether the input requires a gradient, in a case of this dtype."""
        return self.values.wants_grad(dtype)

    def with_nonfinite(self) -> Variant:
        """Return itself, since its values are already chosen."""
        return self

    def expanded(self) -> Variant:
        """Return the same with stride 0 along the first dimension."""
        return replace(self, repeated=self.values.can_repeat)


#: Named values of a floating dtype: the largest, the smallest normal, subnormals, the next after 1.
NAMED: Mapping[str, Callable[[torch.finfo], float]] = {
    "max": lambda info: info.max,
    "-max": lambda info: -info.max,
    "tiny": lambda info: info.smallest_normal,
    "-tiny": lambda info: -info.smallest_normal,
    "denormal": lambda info: info.smallest_normal / 4,
    "-denormal": lambda info: -info.smallest_normal / 4,
    "least": lambda info: info.smallest_normal * info.eps,
    "1+eps": lambda info: 1 + info.eps,
}


def _drawn(values: Values, key: str, dtype: torch.dtype) -> torch.Tensor:
    if not dtype.is_floating_point:
        return _integers(values, key, dtype)
    if values.kind == "normal":
        return inputs.normal(key, values.shape, std=values.high, dtype=dtype)
    return inputs.uniform(key, values.shape, low=values.low, high=values.high, dtype=dtype)


def _integers(values: Values, key: str, dtype: torch.dtype) -> torch.Tensor:
    first, step, count = range_of(values, dtype)
    if step == 1:
        return inputs.integers(key, values.shape, low=first, high=first + count)
    return inputs.integers(key, values.shape, low=0, high=count) * step + first


def range_of(values: Values, dtype: torch.dtype) -> tuple[int, int, int]:
    """Return the first of the integers to choose from, their step and their number.

    They cover as much of [low, high] as the dtype can represent, in steps if that is more than 2**32 integers.
    """
    low, high = values.low, values.high
    if values.kind == "normal":
        high = 1 if dtype is torch.bool else min(2**40, torch.iinfo(dtype).max // 4)
        low = -high
    least, most = (0, 1) if dtype is torch.bool else (torch.iinfo(dtype).min, torch.iinfo(dtype).max)
    first, last = max(math.ceil(low), least), min(math.floor(high), most)
    step = (last - first) // 2**31 + 1
    return first, step, (last - first) // step + 1


def _distinct(values: Values, key: str, dtype: torch.dtype) -> torch.Tensor:
    count = math.prod(values.shape)
    order = inputs.permutation(key, count) - count // 2
    return (order * 0.25 if dtype.is_floating_point else order).reshape(values.shape)


def _places(values: Values, key: str, _: torch.dtype) -> torch.Tensor:
    """Return the same order for each line, starting one further on than in the line before."""
    dim = int(values.low) % len(values.shape)
    count = values.shape[dim]
    if not count:
        return torch.empty(values.shape, dtype=torch.int64)
    others = [1 if place == dim else size for place, size in enumerate(values.shape)]
    starts = torch.arange(math.prod(others)).reshape(others)
    along = torch.arange(count).reshape([-1 if place == dim else 1 for place in range(len(others))])
    return inputs.permutation(key, count)[(along + starts) % count]


def _codes(values: Values, _: str, __: torch.dtype) -> torch.Tensor:
    rows, depth = values.shape[-2:]
    bits = torch.arange(rows)[:, None] >> torch.arange(depth) & 1
    return (int(values.high) * (1 - 2 * bits)).expand(values.shape).contiguous()


def _given(values: Values, _: str, dtype: torch.dtype) -> torch.Tensor:
    numbers = [NAMED[each](torch.finfo(dtype)) if isinstance(each, str) else each for each in values.numbers]
    made = torch.float64 if dtype.is_floating_point else torch.int64
    return torch.tensor(numbers, dtype=made).reshape(values.shape)


#: How each kind of values is made.
KINDS: Mapping[str, Callable[[Values, str, torch.dtype], torch.Tensor]] = {
    **dict.fromkeys(("uniform", "normal"), _drawn),
    "distinct": _distinct,
    "places": _places,
    "few": lambda values, key, _: _integers(values, key, torch.uint8),
    "given": _given,
    "whole": lambda values, key, _: _integers(values, key, torch.int64),
    "addends": lambda values, key, dtype: inputs.integers(
        key, values.shape, low=1, high=3 if dtype.itemsize < 4 else 4096
    ),
    "rising": lambda values, key, _: inputs.rising(key, values.shape, dim=int(values.low), high=int(values.high)),
    "codes": _codes,
}


def _sprinkled(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor with NaN first, -Inf last, and Inf in the middle."""
    return with_one(with_one(with_one(tensor, 0), tensor.numel() // 2, float("inf")), -1, float("-inf"))


def _picked(pool: torch.Tensor, shape: Sequence[int], key: str) -> torch.Tensor:
    """Return values from a pool, each drawn with equal probability."""
    chosen = inputs.integers(f"{key}/picked", (math.prod(shape),), low=0, high=pool.numel())
    return pool.index_select(0, chosen).reshape(tuple(shape))


def _edges(made: torch.Tensor, key: str) -> torch.Tensor:
    """Return integers next to the limits of float or of 32 bits, and the limits of the dtype."""
    info = torch.iinfo(made.dtype)
    around = [sign * 2**bits + step for bits in (7, 8, 15, 24, 31, 53) for sign in (1, -1) for step in (-1, 0, 1, 3)]
    held = [each for each in (*around, 0, 1, info.max, info.max - 1, info.min + 1) if info.min < each <= info.max]
    return _picked(torch.tensor(held, dtype=torch.int64), made.shape, key).to(made.dtype)


def with_one(made: torch.Tensor, place: int, number: float = float("nan")) -> torch.Tensor:
    """Return a copy with one element replaced by ``number``."""
    changed = made.clone()
    changed.view(-1)[place] = number
    return changed


def _sorted(made: torch.Tensor) -> torch.Tensor:
    """Return the elements sorted along the last dimension; numpy sorts integers, which keep the order, fastest."""
    if made.dtype is torch.bool or made.is_complex() or not made.ndim or not made.numel():
        return made.sort(-1).values
    is_floating = made.is_floating_point()
    whole = _in_order(made.view(INTEGERS[made.element_size()])) if is_floating else made
    # Via DLPack and back via the buffer protocol: torch 2.1's own conversions do not work with numpy 2.
    order = np.sort(np.from_dlpack(whole.contiguous()), kind="stable" if whole.element_size() < 4 else None)
    found = torch.frombuffer(order, dtype=whole.dtype).reshape(made.shape)
    return _in_order(found).view(made.dtype) if is_floating else found


def _in_order(bits: torch.Tensor) -> torch.Tensor:
    """Map the bits of floating-point numbers to integers in the same order; applied again, it gives the bits back."""
    return bits ^ ((bits >> (8 * bits.element_size() - 1)) & torch.iinfo(bits.dtype).max)


def _stepped(made: torch.Tensor, _: str) -> torch.Tensor:
    """Return the elements interleaved with others, which no kernel may read."""
    if not made.ndim:
        return made
    others = torch.full_like(made, float("nan") if made.is_floating_point() else 77)
    return torch.stack((made, others), -1)[..., 0]


#: Changes of values, or of one tensor's layout, by name.
CHANGES: Mapping[str, Callable[[torch.Tensor, str], torch.Tensor]] = {
    "few": lambda made, key: _picked(made.reshape(-1)[:3], made.shape, key),
    "equal": lambda made, _: made.reshape(-1)[:1].expand(made.numel()).reshape(made.shape).clone(),
    "sorted": lambda made, _: _sorted(made),
    "reversed": lambda made, _: _sorted(made).flip(-1) if made.ndim else made,
    "edges": _edges,
    "whole": lambda made, key: inputs.integers(f"{key}/whole", made.shape, low=-1, high=2).to(made.dtype),
    # Far enough for any threshold; half precision ends at 65,504.
    "far": lambda made, _: made * (64 if made.dtype is torch.float16 else 4096),
    "special at the head": lambda made, _: with_one(made, 0),
    "special within": lambda made, _: with_one(with_one(made, made.numel() // 2, float("inf")), made.numel() // 3),
    "special in the tail": lambda made, _: with_one(made, -1),
    "stepped": _stepped,
    "transposed": lambda made, _: made.transpose(0, -1).contiguous().transpose(0, -1) if made.ndim > 1 else made,
}


def laid_out(
    tensor: torch.Tensor, stride: tuple[int, ...], whole: torch.Tensor | None = None, offset: int = 0
) -> torch.Tensor:
    """Return a copy with these strides, in given memory; along strides of 0 all elements must be equal."""
    if not tensor.numel():
        return torch.empty_strided(tensor.shape, stride, dtype=tensor.dtype)
    if whole is None:
        span = 1 + sum((size - 1) * step for size, step in zip(tensor.shape, stride, strict=True))
        whole = torch.zeros(span, dtype=tensor.dtype)
    first = tensor[tuple(slice(1 if step == 0 else None) for step in stride)]
    whole.as_strided(first.shape, stride, offset).copy_(first)
    return whole.as_strided(tensor.shape, stride, offset)


def uniform(*shape: int, low: float = -1.0, high: float = 1.0, dtype: str = "", grad: bool = True) -> Values:
    """Describe values that are uniform over [low, high]; integers reach both ends."""
    return Values(shape=shape, kind="uniform", low=low, high=high, dtype=dtype, grad=grad)


def normal(*shape: int, std: float = 1.0, dtype: str = "", grad: bool = True) -> Values:
    """Describe values around 0; integers cover a quarter of their range, up to 2**40."""
    return Values(shape=shape, kind="normal", high=std, dtype=dtype, grad=grad)


def integers(*shape: int, low: int, high: int, dtype: str = "int64") -> Values:
    """Describe integers in [low, high] with a fixed dtype: indices, targets, counts."""
    return Values(shape=shape, kind="uniform", low=low, high=high, dtype=dtype, grad=False)


def mask(*shape: int) -> Values:
    """Describe True and False with equal probability."""
    return Values(shape=shape, kind="uniform", low=0, high=1, dtype="bool", grad=False)


def distinct(*shape: int, grad: bool = True) -> Values:
    """Describe shuffled multiples of 1/4 around 0, none twice: no ties. In bfloat16 only up to 256 are distinct."""
    return Values(shape=shape, kind="distinct", grad=grad)


def places(*shape: int, dim: int = 0) -> Values:
    """Describe int64 indices along a dimension, each exactly once, for writes whose order would matter."""
    return Values(shape=shape, kind="places", low=dim, dtype="int64", grad=False)


def few(*shape: int, high: int = 3) -> Values:
    """Describe integers from 0 to ``high``, most of them repeated, to get ties."""
    return Values(shape=shape, kind="few", low=0, high=high, grad=False)


def whole(*shape: int, low: int = 1, high: int = 2, grad: bool = True) -> Values:
    """Describe small integers in [low, high], in the case's dtype."""
    return Values(shape=shape, kind="whole", low=low, high=high, grad=grad)


def addends(*shape: int) -> Values:
    """Describe integers of which a dtype can hold sums of a hundred: 1 and 2 in 16 bits, up to 4,095 in float32."""
    return Values(shape=shape, kind="addends", grad=True)


def rising(*shape: int, dim: int = -1, high: int = 1, grad: bool = True) -> Values:
    """Describe integers up to ``high`` along a dimension, the second half negative.

    Their sum is small, while partial sums reach half their number: exact in float32 in any order, and wrong in 16 bits.
    """
    return Values(shape=shape, kind="rising", low=dim, high=high, grad=grad)


def codes(*shape: int, high: int = 1) -> Values:
    """Describe rows of plus and minus ``high``, from the bits of each row's number: up to 2^depth rows are distinct."""
    return Values(shape=shape, kind="codes", low=0, high=high, grad=False)


def given(*numbers: Number, shape: tuple[int, ...] | None = None, dtype: str = "", grad: bool = False) -> Values:
    """Describe these numbers; names stand for values that depend on the dtype."""
    return Values(shape=shape or (len(numbers),), kind="given", numbers=numbers, dtype=dtype, grad=grad)


#: The description of a tensor in a sample.
Source: TypeAlias = Values | StoredTensor | Variant


def is_index(leaf: Source) -> bool:
    """Return whether a tensor has a fixed dtype: an index, a mask."""
    return bool(leaf.dtype) if isinstance(leaf, Values) else isinstance(leaf, StoredTensor) and not leaf.follows


#: Least elements of a large tensor; terms in the longest sum over any other tensor.
LONG, USUAL_TERMS = 512, 256

#: What a sample tests; operator.py lists the groups of each property.
FORWARD, SPECIAL, SHAPES, PROMOTION, LAYOUT = "forward", "special", "shapes", "promotion", "layout"
#: Calls with only one correct result, whatever the order of their sums.
EXACT = "exact"
#: Calls that are not tested themselves, but serve as templates of generated ones.
TEMPLATE = "template"
GROUPS = (FORWARD, SPECIAL, SHAPES, PROMOTION, LAYOUT, EXACT, TEMPLATE)

# torch's own pytrees support more containers but take ten times as long, longer than most operators.
_CONTAINERS = (tuple, list, dict)


def leaves(tree: Any) -> list[Any]:
    """Return the leaves in order: everything but tuples, lists and dictionaries."""
    if not isinstance(tree, _CONTAINERS):
        return [tree]
    found = []
    for each in tree.values() if isinstance(tree, dict) else tree:
        # A generator per level would take longer than everything else here.
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

    A user's sample may hold the tensors themselves. ``all_bits`` means that a recorded sample's numbers use all bits of
    one dtype, ``generated`` that it is in no table.
    """

    name: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    group: str = FORWARD
    all_bits: bool = False
    generated: bool = False
    #: Cached, since generating calls reads it hundreds of times.
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
        """Return the distinct sizes that can be changed: not 0 and 1, and not those of given numbers."""
        given = [each for each in self.values() if isinstance(each, Values) and each.kind == "given"]
        fixed = {size for each in given for size in each.shape}
        return tuple(sorted({size for each in self.values() for size in each.shape if size > 1} - fixed))

    def elements(self, sizes: Mapping[int, int]) -> int:
        """Return the total number of elements of all tensors, with these sizes replaced."""
        return sum(math.prod(sizes.get(size, size) for size in each.shape) for each in self.values())

    def stream(self, operator: str) -> str:
        """Return the key of the random streams for its tensors and incoming gradients."""
        return f"{FROM_TABLE if self.generated else 'ops/'}{operator}/{self.name}"

    def arguments(self, operator: str, dtype: torch.dtype) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments, with tensors on the CPU: the same everywhere for the same operator and sample."""
        places, stream = itertools.count(), self.stream(operator)

        def made(leaf: Any) -> Any:
            return leaf.make(f"{stream}/{next(places)}", dtype) if isinstance(leaf, Source) else leaf

        args, kwargs = on_leaves(made, (self.args, dict(self.kwargs)))
        return args, kwargs

    def with_sources(self, change: Callable[[Any], Any]) -> Sample:
        """Return the same call with ``change`` applied to each argument that is not a container."""
        args, kwargs = on_leaves(change, (self.args, dict(self.kwargs)))
        return replace(self, args=args, kwargs=kwargs)

    def with_grads_of(self, others: Iterable[Sample]) -> Sample:
        """Return the call; if none of its tensors requires a gradient, copy these settings from another call.

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

        Both need the same number of tensors, in the same places, and of the same rank unless ``any_rank``.
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
        """Return the call with one integer argument, or one of a list, changed at random; itself if it has none.

        Lists of its tensors' sizes are left unchanged. Most of the changed calls are legal.
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

    def with_places(self, change: Callable[[Source, int], Source]) -> Sample:
        """Return the same call with each tensor changed, by its position: two tensors may share a description."""
        places = itertools.count()
        return self.with_sources(lambda leaf: change(leaf, next(places)) if isinstance(leaf, Source) else leaf)

    def with_nonfinite(self, dtype: torch.dtype) -> Sample | None:
        """Return the call with NaN and infinities in its first differentiable tensor; None if it has none."""
        fit = [each.wants_grad(dtype) and bool(each.shape) and 0 not in each.shape for each in self.values()]
        if not any(fit):
            return None
        first = fit.index(True)
        changed = self.with_places(lambda leaf, place: leaf.with_nonfinite() if place == first else leaf)
        return replace(changed, name=f"{self.name}, not all finite", group=SPECIAL)

    def with_whole_numbers(self) -> Sample:
        """Return the call with its numbers replaced by -1, 0 and 1, whose sums are exact in any order."""
        changed = self.with_places(lambda leaf, _: leaf if is_index(leaf) else Variant(values=leaf, how="whole"))
        return replace(changed, name=f"{self.name}, whole numbers", group=EXACT)

    def expanded(self, places: Collection[int] | None = None) -> Sample:
        """Return the call with every tensor, or those in ``places``, expanded along the first dimension."""
        changed = self.with_places(lambda leaf, place: leaf.expanded() if places is None or place in places else leaf)
        return replace(changed, name=f"{self.name}, expanded", group=LAYOUT)


def call(*args: Any, group: str = FORWARD, name: str = "", **kwargs: Any) -> Sample:
    """Describe one call; the default name is made of its shapes and arguments.

    ``group`` is what it tests: "forward", "special" (NaN, infinities, limits of the dtype), "shapes" (empty, broadcast,
    0-d), "promotion" (mixed dtypes), "exact" (sums that are exact in any order) or "template" (nothing: like those of
    "forward", it is a template of generated calls). Raises ValueError for any other.
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
    """Return arguments with sizes replaced in lists of sizes, such as the shape passed to layer_norm."""
    if isinstance(tree, dict):
        return {key: with_sizes(each, sizes) for key, each in tree.items()}
    if isinstance(tree, (list, tuple)):
        is_shape = len(tree) > 0 and all(type(each) is int and each > 1 for each in tree)
        made = [sizes.get(each, each) if is_shape else with_sizes(each, sizes) for each in tree]
        return tuple(made) if isinstance(tree, tuple) else made
    return tree


def _has_integers(argument: Any, sizes: Collection[int]) -> bool:
    """Return whether an argument is an integer, or a list of integers other than the sizes of a tensor."""
    if isinstance(argument, (list, tuple)):
        return len(argument) > 0 and all(type(each) is int for each in argument) and not {*argument} <= {*sizes}
    return type(argument) is int


def _with_another(argument: Any, chance: Chance) -> Any:
    """Return an integer increased or decreased by one or two; for a list, change one element."""
    if isinstance(argument, (list, tuple)):
        place = chance.below(len(argument))
        made = [_with_another(each, chance) if place == number else each for number, each in enumerate(argument)]
        return tuple(made) if isinstance(argument, tuple) else made
    # Negative and positive numbers have different meanings: a dimension from the end.
    return argument + (chance.of((-1, 1, 2)) if argument > 1 else chance.of((1, 2)) if argument >= 0 else -1)


def sources_in(argument: Any) -> int:
    """Return the number of tensors in an argument."""
    return sum(isinstance(leaf, Source) for leaf in leaves(argument))
