"""The expected results of a call, and what correct devices compute: computed here, or read from storage."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any, Protocol, TypeAlias

import torch

from pytest_ascend.golden import Golden, GoldenStore
from pytest_ascend.operators import calling
from pytest_ascend.operators.calling import Layout
from pytest_ascend.operators.operator import ARITHMETIC, MOVE, STORED, Operator, chosen
from pytest_ascend.operators.samples import EXACT, Sample
from pytest_ascend.precision.formats import REAL_PARTS
from pytest_ascend.precision.kernel_fallbacks import active
from pytest_ascend.precision.nested import widened
from pytest_ascend.system.dispatching import HALF, ROUNDED_INSIDE, in_rounded_steps, lacks_half, no_dispatch
from pytest_ascend.system.errors import GoldenError
from pytest_ascend.system.programs import for_now

#: Outputs or gradients, in order; None for a gradient that does not exist.
Tensors: TypeAlias = list[torch.Tensor | None]

#: Moves or casts a tensor.
Change: TypeAlias = Callable[[torch.Tensor], torch.Tensor]

CPU = torch.device("cpu")
#: The layouts of reference runs: for these the CPU uses different kernels, some of which round more often.
SUM_LAYOUTS: tuple[Layout, ...] = (calling.contiguous, calling.stepped, calling.transposed)


@dataclass(frozen=True, slots=True)
class Results:
    """Expected results of a call: ``expected`` in float64 (integers, bool unchanged), ``reference_runs`` in the dtype.

    The first reference run is the usual one; the others use other layouts, or round more or less often.
    """

    expected: Tensors
    reference_runs: tuple[Tensors, ...]

    @property
    def first(self) -> torch.Tensor:
        """Return the first tensor of the first reference run. Raises ValueError if there is none."""
        found = self.reference_runs[0][0]
        if found is None:
            raise ValueError("the first result is None")
        return found


class Reference(Protocol):
    """The source of samples and expected results. Methods may raise GoldenError when they read stored results."""

    def samples(self, property_: str, dtype: str) -> tuple[Sample, ...]:
        """Return the samples for a property in a dtype."""

    def expect(self, sample: Sample, dtype: str, *, backward: bool = False) -> Results:
        """Return the expected results of a call, or one gradient for each input that has one."""


@dataclass(frozen=True, slots=True)
class Definition:
    """The reference of an operator with a definition, computed on the CPU when needed."""

    operator: Operator
    _known: dict[tuple[str, str, bool, str], Results] = field(default_factory=dict, kw_only=True)

    def samples(self, property_: str, dtype: str) -> tuple[Sample, ...]:
        """Return the samples for a property in a dtype."""
        return chosen(self.operator, property_, dtype)

    def expect(self, sample: Sample, dtype: str, *, backward: bool = False) -> Results:
        """Return the definition's results or gradients.

        They are computed in float64, as these rounded, in float32, and in the dtype from several layouts.
        """
        key = (sample.name, dtype, backward, active())
        if key not in self._known:
            with no_dispatch():
                self._known[key] = self._computed(sample, dtype, backward=backward)
        return self._known[key]

    def _computed(self, sample: Sample, dtype: str, *, backward: bool) -> Results:
        own, function = getattr(torch, dtype), self.operator.definition or self.operator.function
        compute = partial(call_changed, function, self.operator, sample, own, backward=backward)
        with numbers_in_float64():
            expected = compute(widened)
        # A result has the dtype that the operator declares for it, or else one of the case's precision.
        named = [getattr(torch, each) if each else own for each in self.operator.outputs]
        real = REAL_PARTS.get(own, own if own.is_floating_point else torch.float32)
        complex_ = {torch.float16: torch.complex32, torch.float64: torch.complex128}.get(real, torch.complex64)
        usual = [
            own if x is None else complex_ if x.is_complex() else real if x.is_floating_point() else x.dtype
            for x in expected
        ]
        dtypes = [own] * len(expected) if backward else named or usual
        if sample.group == EXACT:  # only one result is correct
            return Results(expected, (_cast(expected, dtypes),))
        in_float32 = compute(lambda each: each.float() if each.is_floating_point() else each)
        reference_runs = [_cast(expected, dtypes), _cast(in_float32, dtypes)]
        with contextlib.suppress(RuntimeError):  # a step of the definition has no 16-bit CPU kernel
            reference_runs += [_cast(compute(calling.onto(CPU, layout)), dtypes) for layout in SUM_LAYOUTS]
        reference_runs += [_cast(each, dtypes) for each in _rounded_once(compute, own)]
        return Results(expected, tuple(reference_runs))


def _cast(found: Tensors, dtypes: Sequence[torch.dtype]) -> Tensors:
    return [each if each is None else each.to(dtype) for each, dtype in zip(found, dtypes, strict=True)]


def computed(
    operator: Operator, sample: Sample, dtype: str, layouts: tuple[Layout, ...] = SUM_LAYOUTS, *, backward: bool = False
) -> Results:
    """Compute a call in float64, and by torch's CPU kernel in the dtype itself with inputs in each layout.

    With ``backward``, differentiate instead, from the same grad_outputs.
    """
    # as_strided reads other elements if the memory layout of its input changes.
    layouts = layouts[:1] if operator.name.startswith("as_strided") else layouts
    kind, exactly = getattr(torch, dtype), operator.definition or operator.function
    given = sample.arguments(operator.name, kind)
    own = partial(call_changed, operator.function, operator, sample, kind, given=given, backward=backward)
    with numbers_in_float64():
        exact = call_changed(exactly, operator, sample, kind, widened, given, backward=backward)
    runs = [_or_rounded(own, calling.onto(CPU, layout), kind) for layout in layouts[:1]]
    for layout in layouts[1:]:  # the CPU may reject some of them (view_as_complex)
        with contextlib.suppress(RuntimeError):
            runs.append(_or_rounded(own, calling.onto(CPU, layout), kind))
    return Results(exact, (*runs, *(_rounded_once(own, kind) if backward else ())))


def own_forward(operator: Operator, given: Any, change: Change, kind: torch.dtype) -> Tensors:
    """Return the CPU's results in the dtype itself, from the given inputs after ``change``."""
    return _or_rounded(
        lambda each: [*calling.forward(operator, operator.function, *calling.on_tensors(each, given))], change, kind
    )


def _or_rounded(compute: Callable[[Change], Tensors], change: Change, kind: torch.dtype) -> Tensors:
    """Return the CPU's results from changed inputs; compute in float32 with rounded steps if it has no half kernel.

    Old versions of torch lack many such kernels, such as mse_loss in bfloat16 in 2.3. Rounding the result alone would
    demand more than PyTorch promises: in float16 an intermediate step may overflow.
    """
    try:
        return compute(change)
    except RuntimeError as error:
        if kind not in HALF or not lacks_half(error):
            raise
    return in_rounded_steps(lambda: compute(change))


def _rounded_once(compute: Callable[[Change], Tensors], kind: torch.dtype) -> tuple[Tensors, ...]:
    """Return another reference run where this torch's CPU kernels of some operators round intermediate results.

    Chips do not. In half precision, torch before 2.7 rounds the sum in the gradient of a softmax, which turns some
    elements into zeros. Their error is small, but too strict a measure for a result that is correct everywhere else.
    """
    if kind not in HALF or not ROUNDED_INSIDE:
        return ()
    return (in_rounded_steps(lambda: compute(calling.onto(CPU))),)


def own_gradients(operator: Operator, sample: Sample, kind: torch.dtype, given: Any) -> Tensors:
    """Differentiate on the CPU in the dtype itself; ``given`` holds the sample's arguments."""
    own = partial(call_changed, operator.function, operator, sample, kind, given=given, backward=True)
    return _or_rounded(own, calling.onto(CPU), kind)


def call_changed(  # noqa: PLR0917 - an operator, its call, and how its inputs are changed
    function: Any,
    operator: Operator,
    sample: Sample,
    kind: torch.dtype,
    change: Change,
    given: Any = None,
    *,
    backward: bool,
    upstream: Change | None = None,
) -> Tensors:
    """Call, or differentiate, with inputs and grad_outputs changed in the same way: to float64, or in layout.

    ``upstream``, if given, is applied to the grad_outputs instead.
    """
    # The given arguments stay intact: they must neither require gradients nor be modified.
    copied = partial(calling.map_storage, torch.clone)
    made = sample.arguments(operator.name, kind) if given is None else calling.on_tensors(copied, given)
    args, kwargs = calling.on_tensors(change, made)
    leaves = calling.with_grad(sample, (args, kwargs), kind) if backward else []
    outputs = calling.forward(operator, function, args, kwargs)
    if not backward:
        return [*outputs]
    other = upstream or change
    return calling.back(
        operator, outputs, leaves, lambda its: [other(up) for up in calling.upstream(operator, sample, its, kind)]
    )


def numbers_in_float64() -> contextlib.AbstractContextManager[None]:
    """Make torch compute floating results from integers in float64, as in a quotient of two integers."""
    return for_now(torch.set_default_dtype, torch.float64, torch.get_default_dtype())


#: Suffixes of a result's name for the reference runs, by torch's CPU kernels in the dtype of the case: from contiguous
#: inputs, and from those in other layouts.
REFERENCE_RUN = ("~", "~stepped", "~transposed")
#: The expected results, and the reference runs.
_SIDES = 1 + len(REFERENCE_RUN)
BACKWARD = "backward"


@dataclass(frozen=True, slots=True)
class StoredGolden(Definition):
    """The reference of a catalogue operator: its golden. Raises GoldenError as :func:`golden_of` does."""

    store: GoldenStore

    def expect(self, sample: Sample, dtype: str, *, backward: bool = False) -> Results:
        """Return the stored results of a call, or one gradient for each input that has one."""
        if active() == "reference" or sample.group == EXACT:
            return Definition.expect(self, sample, dtype, backward=backward)
        count = sum(values.wants_grad(getattr(torch, dtype)) for values in sample.values()) if backward else 0
        return stored_results(self.store, self.operator, dtype, BACKWARD if backward else "forward", sample, count)


def golden_id(operator: Operator) -> str:
    """Return the ID of an operator's golden."""
    return f"ops/{operator.name}"


def tensor_name(dtype: str, part: str, sample: Sample, position: int) -> str:
    """Return a tensor's name: dtype, "forward" or "backward", sample, and the number of the output or input."""
    return f"{dtype}/{part}/{sample.name}/{position}"


def stored_samples(operator: Operator, dtype: str) -> tuple[Sample, ...]:
    """Return the samples with stored results: those of properties that need results of their own."""
    found = [sample for group in STORED for sample in chosen(operator, group, dtype)]
    return tuple({sample.name: sample for sample in found}.values())


def inputs_hash(operator: Operator, dtype: str) -> str:
    """Return a hash of a golden's inputs: if it differs, the golden belongs to another version of the catalogue."""
    said = repr([(each.name, each.args, dict(each.kwargs)) for each in stored_samples(operator, dtype)])
    return hashlib.sha256(said.encode()).hexdigest()[:16]


@cache
def golden_of(store: GoldenStore, operator: Operator) -> Golden:
    """Read an operator's golden, cached. Raises GoldenError if it is damaged, or made from other inputs."""
    golden = store.read(golden_id(operator))
    stale = [each for each in operator.dtypes if golden.meta["inputs"].get(each) != inputs_hash(operator, each)]
    if stale:
        raise GoldenError(
            f"the golden {golden.id!r} was made from other samples than the catalogue has now for {', '.join(stale)}",
            path=str(store.path(golden.id)),
            hint=f"build it again: 'pytest-ascend baseline build {golden.id}'",
        )
    return golden


def stored_results(  # noqa: PLR0917
    store: GoldenStore, operator: Operator, dtype: str, part: str, sample: Sample, count: int = 0
) -> Results:
    """Return the results of one call; ``count`` gives their number if some may be None.

    Raises GoldenError as :func:`golden_of` does.
    """
    tensors = golden_of(store, operator).tensors
    names = (tensor_name(dtype, part, sample, position) for position in itertools.count())
    found = list(itertools.islice(names, count) if count else itertools.takewhile(tensors.__contains__, names))
    with no_dispatch():
        expected, *runs = zip(*(_result(tensors, name) for name in found), strict=True) if found else [()] * _SIDES
    return Results(list(expected), tuple(map(list, runs)))


def _result(tensors: Mapping[str, torch.Tensor], name: str) -> tuple[torch.Tensor | None, ...]:
    """Return the expected result and the reference runs; a run that is not stored equals the first, or the expected."""
    expected, usual = tensors.get(name), tensors.get(name + REFERENCE_RUN[0])
    if expected is None:
        return (None,) * _SIDES
    if usual is None:
        expected, usual = widened(expected), expected
    elif usual.shape != expected.shape:
        usual = expected.to(usual.dtype)
    return expected, usual, *(tensors.get(name + suffix, usual) for suffix in REFERENCE_RUN[1:])


def in_any_order(
    operator: Operator, sample: Sample, dtype: torch.dtype, results: Results, *, backward: bool
) -> Results:
    """Return the results with one more reference run, where torch's CPU kernel rounds each of several 16-bit terms.

    Elements added to one place, or gradients of one element, are then summed in any order, as when several threads add
    to one place. The run's error is one rounding of the sum of the terms' magnitudes.
    """
    is_sum = operator.exactness == MOVE if backward else operator.exactness == ARITHMETIC and operator.terms > 1
    if dtype not in HALF or not is_sum or sample.group == EXACT:
        return results
    with no_dispatch():
        pairs = zip(results.expected, results.reference_runs[0], strict=True)
        known = ((own, x) for x, own in pairs if x is not None and own is not None and own.is_floating_point())
        is_rounded = any(not own.equal(x.to(own.dtype)) and bool(own.isfinite().all()) for own, x in known)
        if not (is_rounded or operator.traits.sums_inputs):
            return results
        compute = partial(call_changed, operator.function, operator, sample, dtype, upstream=calling.magnitude)
        try:
            found = compute(widened if backward else calling.magnitude, backward=backward)
        except (RuntimeError, TypeError, ValueError):  # the operator rejects float64, or positive numbers
            return results
        both = zip(results.expected, found, results.reference_runs[0], strict=True)
        another = [own if sizes is None or own is None else _moved(each, sizes, own) for each, sizes, own in both]
    return Results(results.expected, (*results.reference_runs, another))


def _moved(expected: torch.Tensor | None, sizes: torch.Tensor, own: torch.Tensor) -> torch.Tensor:
    """Return a result with an error of one rounding of these sizes, of random sign, where there are several terms."""
    if expected is None or sizes.shape != expected.shape or not own.is_floating_point():
        return own
    direction = calling.directions("ops/order", expected)
    has_several = sizes > expected.abs() * (1 + 1e-9)
    moved = expected + direction * torch.where(has_several, sizes * torch.finfo(own.dtype).eps / 2, 0.0)
    return torch.where(expected.isfinite(), moved, expected).to(own.dtype)
