"""A row in a table of operators: the function on the device, its definition, its inputs, and which properties apply."""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import torch

from pytest_ascend.operators.samples import (
    EXACT,
    FORWARD,
    LAYOUT,
    PROMOTION,
    SHAPES,
    SPECIAL,
    Sample,
    StoredTensor,
    leaves,
)
from pytest_ascend.records.case import Case
from pytest_ascend.run import inputs
from pytest_ascend.system.errors import UsageError


@dataclass(frozen=True, kw_only=True, slots=True)
class Family:
    """Common traits of a family's operators; the defaults apply to families that are not in the table."""

    #: Each element of the result is computed from one element of each input, and inputs are broadcast.
    broadcasts: bool = False
    #: Usually unary: the gradient is a product of two numbers, which is reproducible bit for bit.
    is_of_one: bool = False
    #: The in-place variant does not broadcast its first operand, which is tested.
    keeps_size: bool = False
    #: Takes lists of tensors, and works elementwise on the tensors in the same place of each list.
    takes_lists: bool = False
    #: Results have at most as many elements as the broadcast inputs; or as all pairs of elements of two tensors, or of
    #: one tensor with itself, since no argument gives a size.
    never_grows: bool = False
    pairs_tensors: bool = False
    pairs_with_itself: bool = False
    #: Results are sums over windows of a length independent of the input's size; sums as long as an input (of products,
    #: or of all elements added to one place); or sums of all inputs, with errors relative to the largest element.
    sums_windows: bool = False
    sums_inputs: bool = False
    sums_all: bool = False
    #: Elements are moved or, in the gradient, added up: NaN in an incoming gradient stays NaN.
    moves_elements: bool = False
    #: A loss with ``reduction`` may compare two tensors of the same shape elementwise.
    has_losses: bool = False

    # What the generator may do with calls.

    #: Takes integers of any size, with the CPU's wrap-around; also where the table has no negative ones.
    any_integer: bool = False
    any_unsigned: bool = False
    #: Equal elements give equal results wherever they lie in memory: there are no ties to break.
    any_rows: bool = False
    #: Values may be far from zero: results neither cancel nor leave the dtype's range.
    far: bool = True
    #: The same where results for NaN are undefined. Not for attention: its softmax saturates, so that its gradient is
    #: the difference of equal numbers.
    far_without_nan: bool = True
    #: The values of all inputs are varied, not only the first one's; for comparisons, all at once, to get equal values.
    varies_all: bool = False
    compares: bool = False
    #: Usually accepts one more leading dimension.
    takes_batches: bool = False
    #: The replacement for sizes that must be small, where two is not enough: no unit of work would have a remainder,
    #: and pools and padding take that many elements at once.
    least_size: int = 2

    @property
    def is_pointwise(self) -> bool:
        """Return whether tensors may have any number of dimensions, and are broadcast."""
        return self.broadcasts or self.takes_lists


_UNKNOWN = Family()
_POINTWISE: dict[str, Any] = {"any_integer": True, "least_size": 3}
_BROADCAST: dict[str, Any] = {**_POINTWISE, "broadcasts": True, "never_grows": True, "any_rows": True}

#: The families of the suite ``ops``, by name. Users may name others.
FAMILIES: Mapping[str, Family] = {
    "arithmetic": Family(**_BROADCAST, keeps_size=True, varies_all=True),
    "comparison": Family(**_BROADCAST, varies_all=True, compares=True),
    "elementwise": Family(**_BROADCAST, is_of_one=True),
    "activation": Family(**_BROADCAST, is_of_one=True),
    "foreach": Family(**_POINTWISE, takes_lists=True, varies_all=True),
    "reduction": Family(never_grows=True, any_integer=True, any_unsigned=True, takes_batches=True),
    "loss": Family(never_grows=True, has_losses=True, any_rows=True),
    "linear algebra": Family(
        pairs_tensors=True,
        pairs_with_itself=True,
        sums_inputs=True,
        any_integer=True,
        any_rows=True,
        far_without_nan=False,
        varies_all=True,
    ),
    "network": Family(
        pairs_tensors=True, sums_windows=True, has_losses=True, any_integer=True, any_rows=True, least_size=4
    ),
    "indexing": Family(
        pairs_tensors=True, pairs_with_itself=True, sums_inputs=True, moves_elements=True, any_integer=True
    ),
    "sorting": Family(pairs_tensors=True, any_integer=True, takes_batches=True),
    "masked": Family(pairs_tensors=True, pairs_with_itself=True, any_integer=True, far=False, takes_batches=True),
    "movement": Family(moves_elements=True, any_integer=True, any_rows=True, least_size=4),
    "other": Family(any_integer=True, far=False, takes_batches=True),
    "linalg": Family(far=False),
    "fft": Family(sums_all=True),
    "special": Family(),
    "creation": Family(),
}


@dataclass(slots=True)
class InputFactory:
    """Makes input tensors on the CPU. Each call returns other values; a ``key`` always gives the same sequence.

    Tensors have the ``dtype`` of the case and require a gradient, unless ``grad=False``. A tensor with an explicit
    ``dtype=`` is the same in every case and requires no gradient. ``sizes`` maps sizes to their replacements. With
    ``grad=False`` on the factory, no tensor requires a gradient.
    """

    key: str
    dtype: torch.dtype
    sizes: Mapping[int, int] = field(default_factory=dict)
    grad: bool = True
    _count: int = field(default=0, init=False)

    def normal(
        self, *shape: int, std: float = 1.0, dtype: torch.dtype | None = None, grad: bool = True
    ) -> torch.Tensor:
        """Return approximately normal values of mean 0."""
        return self._finished(self._made("normal", shape, dtype or self.dtype, std=std), dtype, grad=grad)

    def uniform(
        self, *shape: int, low: float = -1.0, high: float = 1.0, dtype: torch.dtype | None = None, grad: bool = True
    ) -> torch.Tensor:
        """Return uniformly distributed values in [low, high)."""
        made = self._made("uniform", shape, dtype or self.dtype, low=low, high=high)
        return self._finished(made, dtype, grad=grad)

    def integers(self, *shape: int, low: int = 0, high: int, dtype: torch.dtype = torch.int64) -> torch.Tensor:
        """Return integers in [low, high): indices, targets, counts."""
        return self._made("integers", shape, dtype, low=low, high=high)

    def mask(self, *shape: int) -> torch.Tensor:
        """Return True and False with equal probability."""
        return self.integers(*shape, high=2, dtype=torch.bool)

    def given(self, numbers: Sequence[Any], dtype: torch.dtype | None = None, *, grad: bool = False) -> torch.Tensor:
        """Return a tensor of these numbers, nested as given."""
        return self._finished(torch.tensor(numbers, dtype=torch.float64).to(dtype or self.dtype), dtype, grad=grad)

    def _made(self, kind: str, shape: tuple[int, ...], dtype: torch.dtype, **how: float) -> torch.Tensor:
        """Call the function of :mod:`pytest_ascend.run.inputs` named ``kind``."""
        self._count += 1
        shape = tuple(self.sizes.get(size, size) for size in shape)
        return getattr(inputs, kind)(f"{self.key}/{self._count}", shape, dtype=dtype, **how)  # type: ignore[no-any-return]

    def _finished(self, made: torch.Tensor, dtype: torch.dtype | None, *, grad: bool) -> torch.Tensor:
        """Set requires_grad on a tensor of the case's dtype."""
        return made.requires_grad_(grad and self.grad and dtype is None and made.is_floating_point())


FLOATS = ("float32", "float16", "bfloat16")
HALVES = ("float16", "bfloat16")
INTS = ("int64", "int32", "int16", "int8", "uint8")
BOOL = ("bool",)
ALL = (*FLOATS, *INTS, *BOOL)

#: The exactness of a correct device; see judging.py.
MOVE, ARITHMETIC, FUNCTION = "move", "arithmetic", "function"

#: The value of ``grad_outputs`` for which every differentiable output gets a gradient.
ALL_OUTPUTS = -1
#: Layouts for an operator that does not support channels last.
DENSE = ("transposed", "stepped", "shifted")

#: Yields the samples for the dtype of the InputFactory.
Inputs: TypeAlias = Callable[[InputFactory], Iterable[Sample]]


@dataclass(frozen=True, slots=True, eq=False)
class Operator:
    """One row of a table of operators: bundled, of torch_npu, or of a user.

    ``function`` runs on the device. ``inputs`` yields the calls, made with the :class:`InputFactory` passed to it.
    ``definition``, by default ``function``, computes the expected result from the same arguments on the CPU in float64.

    ``dtypes`` are names of torch dtypes. ``exactness`` is MOVE (nothing is computed: results are bit-identical),
    ARITHMETIC (one correct rounding) or FUNCTION (``ulps`` units in the last place); ``exact=True`` is short for MOVE.
    ``terms`` is the number of terms in its longest sum. ``outputs`` gives the dtype of each output to compare, "" for
    the case's dtype; if it is empty, every output is compared. ``grad`` tells whether it is differentiable,
    ``grad_outputs`` how many of its outputs get an incoming gradient in a backward pass, or ALL_OUTPUTS.

    ``layouts`` tells whether inputs of any strides must work, or names the layouts that must. ``out`` tells whether it
    takes ``out=``; ``in_place`` is the variant that changes its first argument, or True for ``Tensor.NAME_``; None
    derives either from the schema of a ``torch.ops`` function. ``signed_zero`` means that IEEE 754 specifies the sign
    of a zero result, ``strides`` that the strides of the result are specified: it is a view or a copy.
    ``deterministic`` is false if calls need not repeat bit for bit, ``nonfinite`` if results for NaN and infinities are
    undefined. With ``sweep``, more calls are generated from these; legal are those that the CPU accepts and, if it is a
    function, for which it returns true. With ``one_set_of_inputs``, recorded inputs serve all floating dtypes.

    ``exact_sums`` means that it only adds, multiplies by given numbers and moves: for small integers, results and
    gradients are exact in any order, and the property "exact" makes every usual call with small integers.

    The rest supplements its :class:`Family`: ``compares`` if equal values must occur among its inputs,
    ``local_gradient`` if each element of a gradient depends on one element of each input, ``gradient_of_result`` if the
    gradient is computed from the rounded result, in which an element may have cancelled (1 - 1), ``grows`` if a result
    can have more elements than all pairs of its inputs' elements. ``refuses`` is false if calls that PyTorch refuses on
    the CPU need not be refused, or must not be tried.
    """

    name: str
    function: Callable[..., Any]
    inputs: Inputs
    dtypes: tuple[str, ...] = FLOATS
    family: str = ""
    exactness: str = FUNCTION
    terms: int = 1
    grad: bool = True
    out: bool | None = None
    in_place: bool | Callable[..., Any] | None = None
    signed_zero: bool = False
    strides: bool = False
    deterministic: bool = True
    layouts: bool | tuple[str, ...] = True
    nonfinite: bool = True
    definition: Callable[..., Any] | None = None
    outputs: tuple[str, ...] = ()
    grad_outputs: int = 1
    ulps: float = 2.0
    exact: bool = False
    one_set_of_inputs: bool = False
    sweep: bool | Callable[..., bool] = False
    compares: bool = False
    exact_sums: bool = False
    local_gradient: bool = False
    gradient_of_result: bool = False
    grows: bool = False
    refuses: bool = True

    def __post_init__(self) -> None:
        """Fill in arguments that have two forms, or follow from the schema of a ``torch.ops`` function."""
        if self.exact:
            object.__setattr__(self, "exactness", MOVE)
        packet: Any = self.function
        overloads = packet.overloads() if type(packet).__name__ == "OpOverloadPacket" else []
        if self.out is None:
            schemas = [getattr(packet, each)._schema for each in overloads]  # noqa: SLF001
            written = [[arg.name for arg in schema.arguments if arg.is_out] for schema in schemas]
            object.__setattr__(self, "out", ["out"] in written)
        if self.in_place is None:
            namespace, _, name = str(packet).partition(".")
            found = getattr(getattr(torch.ops, namespace), f"{name}_", None) if overloads else None
            object.__setattr__(self, "in_place", found)

    @property
    def traits(self) -> Family:
        """Return the traits of its family."""
        return FAMILIES.get(self.family, _UNKNOWN)

    def samples(self, dtype: str) -> tuple[Sample, ...]:
        """Return all samples for a dtype, with unique names. Raises UsageError if there are none."""
        return _samples(self, dtype)

    def sampled(self, dtype: str, key: str, sizes: Mapping[int, int]) -> Iterator[Sample]:
        """Yield the samples with other values and replaced sizes, each drawn only when needed."""
        make = InputFactory(key, getattr(torch, dtype), sizes)
        return (_described(sample, make) for sample in self.inputs(make))

    @property
    def changes_first(self) -> Callable[..., Any]:
        """Return the variant that changes its first argument. Raises AttributeError if torch has none of that name."""
        if callable(self.in_place):
            return self.in_place
        found: Callable[..., Any] = getattr(torch.Tensor, self.name.partition(".")[0] + "_")
        return found


@functools.cache
def _samples(operator: Operator, dtype: str) -> tuple[Sample, ...]:
    make, seen = InputFactory(f"operators/{operator.name}", getattr(torch, dtype)), Counter[str]()
    found = []
    for sample in operator.inputs(make):
        if not isinstance(sample, Sample):
            hint = "have its inputs= yield calls, as call(make.normal(3, 4))"
            raise UsageError(f"an input of the operator {operator.name!r} is a {type(sample).__name__}", hint=hint)
        seen[sample.name] += 1
        own, times = _described(sample, make), seen[sample.name]
        found.append(own if times == 1 else replace(own, name=f"{sample.name} #{times}"))
    if not found and not operator.one_set_of_inputs:
        hint = "have its inputs= give at least one call"
        raise UsageError(f"the operator {operator.name!r} has no calls in {dtype}", hint=hint)
    return tuple(found)


def _described(sample: Sample, make: InputFactory) -> Sample:
    """Return the sample with each tensor in it as a :class:`StoredTensor`."""
    known: dict[int, StoredTensor] = {}

    def described(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        if id(leaf) not in known:
            follows = leaf.dtype == make.dtype and (leaf.is_floating_point() or leaf.is_complex())
            tensor, stride = leaf.detach().contiguous(), None if leaf.is_contiguous() else leaf.stride()
            known[id(leaf)] = StoredTensor(tensor=tensor, follows=follows, grad=leaf.requires_grad, stride=stride)
        return known[id(leaf)]

    return sample.with_sources(described)


@functools.cache
def chosen(operator: Operator, property_: str, dtype: str) -> tuple[Sample, ...]:
    """Return the samples of a property."""
    return PROPERTIES[property_](operator, dtype)


def cases_of(
    *operators: Operator, suite: str = "user", level: Callable[[Operator, str, str], str] | None = None
) -> tuple[Case, ...]:
    """Return the cases of these operators, for each dtype and applicable property.

    ``level`` returns the lowest level that runs a property of an operator in a dtype. Raises UsageError for an unknown
    dtype, for an operator without calls, and if two operators have the same name.
    """
    names = [each.name for each in operators]
    if twice := sorted({each for each in names if names.count(each) > 1}):
        raise UsageError(f"two operators have one name: {', '.join(twice)}", hint="give each a name of its own")
    for operator in operators:
        wrong = [each for each in operator.dtypes if not isinstance(getattr(torch, each, None), torch.dtype)]
        if wrong or not operator.dtypes:
            hint = 'name dtypes of torch: ("float32", "float16")'
            raise UsageError(f"the operator {operator.name!r} has the dtypes {operator.dtypes!r}", hint=hint)
    level = level or usual_level
    return tuple(
        Case(
            suite=suite,
            subject=operator.name,
            property=property_,
            dtype=dtype,
            family=operator.family,
            level=level(operator, property_, dtype),
        )
        for operator in operators
        for dtype in operator.dtypes
        for property_ in PROPERTIES
        if chosen(operator, property_, dtype)
    )


def usual_level(operator: Operator, property_: str, dtype: str) -> str:
    """Return the lowest level that runs a property: layouts of the second dtype on, the most expensive, come last."""
    if property_ == "sweep-more":
        return "full"
    if dtype == operator.dtypes[0]:
        return "smoke" if property_ == FORWARD else "standard"
    return "full" if "layout" in property_ else "standard"


def _of_group(group: str) -> Callable[[Operator, str], tuple[Sample, ...]]:
    return lambda operator, dtype: tuple(each for each in operator.samples(dtype) if each.group == group)


def _special(operator: Operator, dtype: str) -> tuple[Sample, ...]:
    """Return the operator's own special samples, or else the first usual one with NaN and infinities inserted."""
    own, kind = _of_group(SPECIAL)(operator, dtype), getattr(torch, dtype)
    if own or not operator.nonfinite or not kind.is_floating_point:
        return own
    found = (each.with_nonfinite(kind) for each in _of_group(FORWARD)(operator, dtype))
    return tuple(itertools.islice(filter(None, found), 1))


def _layouts(operator: Operator, dtype: str) -> tuple[Sample, ...]:
    """Return the usual calls, and the first one that can be expanded."""
    if not operator.layouts:
        return ()
    usual = [each for each in operator.samples(dtype) if each.group == FORWARD and any(v.shape for v in each.values())]
    return (*usual, *expanded(operator, dtype))


def expanded(operator: Operator, dtype: str) -> tuple[Sample, ...]:
    """Return the first usual call that has a tensor with rows, with its tensors expanded from their first row."""
    # Along the expanded dimension all elements are ties, whose order is undefined.
    usual = sorted(_of_group(FORWARD)(operator, dtype), key=lambda each: each.kwargs.get("dim", 1) in (0, None))
    found = [each.expanded() for each in usual if any(values.can_repeat for values in each.values())]
    return tuple(found[:1])


def _differentiable(operator: Operator, dtype: str) -> tuple[Sample, ...]:
    kind = getattr(torch, dtype)
    if not operator.grad or not kind.is_floating_point:
        return ()
    usual = _of_group(FORWARD)(operator, dtype)
    return tuple(each for each in usual if any(values.wants_grad(kind) for values in each.values()))


def _with_out(operator: Operator, dtype: str) -> tuple[Sample, ...]:
    usual = _of_group(FORWARD)(operator, dtype)
    return (*usual[:2], *usual[2:][-1:]) if operator.out else ()


def _in_place(operator: Operator, dtype: str) -> tuple[Sample, ...]:
    """Return the samples, without those that give a floating result for integers, which cannot be stored in place."""
    keeps_dtype = dtype in FLOATS or operator.exactness != FUNCTION
    if not operator.in_place or not keeps_dtype:
        return ()
    return _of_group(FORWARD)(operator, dtype) + _of_group(SPECIAL)(operator, dtype)


def _repeated(operator: Operator, dtype: str) -> tuple[Sample, ...]:
    is_repeated = operator.deterministic and dtype == operator.dtypes[0]
    return _of_group(FORWARD)(operator, dtype)[:4] if is_repeated else ()


def _exact(operator: Operator, dtype: str) -> tuple[Sample, ...]:
    """Return its own calls, and the usual ones with whole numbers unless other arguments make these inexact."""
    if dtype not in FLOATS:
        return ()
    usual = _of_group(FORWARD)(operator, dtype) if operator.exact_sums else ()
    found = (each.with_whole_numbers() for each in usual if all(map(_is_short, leaves((each.args, dict(each.kwargs))))))
    return (*found, *_of_group(EXACT)(operator, dtype))


def _is_short(argument: object) -> bool:
    """Return whether an argument keeps sums of small integers exact: it is no dtype, and no number with many bits."""
    return not isinstance(argument, torch.dtype) and not (isinstance(argument, float) and argument * 4 % 1)


def _swept(operator: Operator, dtype: str) -> tuple[Sample, ...]:
    """Return the calls that others are generated from."""
    return tuple(each for each in _of_group(FORWARD)(operator, dtype) if each.values()) if operator.sweep else ()


#: Property -> the samples of an operator for a dtype.
PROPERTIES: Mapping[str, Callable[[Operator, str], tuple[Sample, ...]]] = {
    "forward": _of_group(FORWARD),
    "special": _special,
    "shapes": _of_group(SHAPES),
    "promotion": _of_group(PROMOTION),
    "layout": _layouts,
    "backward": _differentiable,
    "backward-layout": lambda operator, dtype: _differentiable(operator, dtype) if operator.layouts else (),
    "exact": _exact,
    "out": _with_out,
    "in-place": _in_place,
    "repeat": _repeated,
    "sweep": _swept,
    "sweep-more": _swept,
}

#: Groups with stored results; other properties compare with the results of "forward".
STORED = (FORWARD, SPECIAL, SHAPES, PROMOTION, LAYOUT)
