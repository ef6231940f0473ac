"""A case ``sweep``: generated calls of one operator in one dtype, each judged against the CPU."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeAlias

import torch

from pytest_ascend.coverage.manifest import SWEEP_SEED
from pytest_ascend.dispatching import unseen
from pytest_ascend.operators.call_judging import BACKWARD, IN_PLACE, judge_call, name_of, note_shortly
from pytest_ascend.operators.calling import (
    Layout,
    as_it_is,
    bounded,
    is_affordable,
    moves_gradients,
    on_tensors,
    tensors,
)
from pytest_ascend.operators.generator import AXES, EXPANDED, IN_PLACE_EVERY, Generated, generate
from pytest_ascend.operators.judging import (
    Joined,
    alike,
    call_digests,
    digest,
    joined,
)
from pytest_ascend.operators.operator import FUNCTION, Operator
from pytest_ascend.operators.reference import (
    CPU,
    Definition,
    Results,
    Tensors,
    can_hold,
    computed,
    differentiated,
    own_forward,
    own_gradients,
)
from pytest_ascend.operators.samples import Sample
from pytest_ascend.operators.shrinking import shrunk
from pytest_ascend.operators.target import Target, in_dtype
from pytest_ascend.operators.templates import POINTWISE, shift_of
from pytest_ascend.operators.values import StoredTensor
from pytest_ascend.precision import Verdict
from pytest_ascend.run.comparing import Disagreement, PrecisionCompare

#: A device's results, and the CPU's.
Pair: TypeAlias = tuple[Tensors, Tensors]

#: The calls of a case, by its property: what is asked at level standard is not asked again at full.
CALLS = {"sweep": range(24), "sweep-more": range(24, 240)}
#: So many more are made at most, where some of those are not legal.
SPARE = 12
#: Of this many calls, the digests of one are kept.
_DIGEST_EVERY = 3
#: Of this many calls, all but one run backward as well.
_FORWARD_ALONE_EVERY = 3
#: Of this many calls, one follows the same call in another dtype.
_OTHER_DTYPE_EVERY = 9


@dataclass(frozen=True, slots=True)
class Sweep:
    """The reference of generated calls, computed when needed. ``defined``: by the operator's definition.

    ``seed`` is that of the calls, None where they are given.
    """

    operator: Operator
    dtype: str
    calls: tuple[Generated, ...]
    seed: int | str | None = None
    defined: bool = False
    _definition: list[Definition] = field(default_factory=list)

    @classmethod
    def of(
        cls, operator: Operator, dtype: str, count: int | range, seed: int | str = SWEEP_SEED, *, defined: bool = False
    ) -> Sweep:
        """Generate the calls of an operator: so many, or those of a range that begins with a multiple of three."""
        which = range(count) if isinstance(count, int) else count
        calls = tuple(generate(operator, dtype, which.stop, seed, which.start))
        return cls(operator, dtype, calls, seed, defined, [Definition(operator)])

    def spare(self) -> Iterator[Generated]:
        """Generate more calls, to take the place of those that are not legal."""
        if self.seed is not None and self.calls:
            count = self.calls[-1].number + 1
            yield from generate(self.operator, self.dtype, count + SPARE, self.seed, start=count)

    def samples(self, _: str, __: str) -> tuple[Sample, ...]:
        """Return all calls."""
        return tuple(each.sample for each in self.calls)

    def forward(self, sample: Sample, dtype: str) -> Results:
        """Return the expected results of a call. Raises the CPU's error if it is not legal."""
        with unseen():
            if self.defined:
                return self._definition[0].forward(sample, dtype)
            return computed(self.operator, sample, dtype)

    def backward(self, sample: Sample, dtype: str) -> Results:
        """Return the gradients of a call."""
        with unseen():
            if self.defined:
                return self._definition[0].backward(sample, dtype)
            return differentiated(self.operator, sample, dtype)

    def expression(self, source: StoredTensor, _: torch.dtype) -> str:
        """Return the Python expression of a tensor, "" if unknown."""
        return source.expression

    def _is_asked(self, given: Any) -> bool:
        """Whether a call is none of those that the operator leaves out, some of which end the process."""
        args, kwargs = given
        with unseen():
            try:
                return not callable(self.operator.sweep) or self.operator.sweep(*args, **kwargs)
            except Exception:  # noqa: BLE001 - arguments that the predicate does not expect: the call is not legal
                return False

    def usual(self, sample: Sample, given: Any, layout: Layout) -> Tensors | None:
        """Return the CPU's results of a call in the dtype itself, None if it is not legal."""
        if not self._is_asked(given):
            return None
        try:
            if self.defined:
                is_asked = is_affordable(self.operator, given)
                return self.forward(sample, self.dtype).reference_runs[0] if is_asked else None
            with bounded(self.operator, given):
                found = own_forward(self.operator, given, _copied(layout), getattr(torch, self.dtype))
            if not any(each.numel() for each in tensors(found)):
                self.forward(sample, self.dtype)  # float64 refuses empty results that half precision lets pass
        except Exception:  # noqa: BLE001 - whatever the CPU raises, the call is not legal; or it takes too much
            return None
        return found

    def usual_gradients(self, sample: Sample, given: Any) -> Tensors | None:
        """Return the CPU's gradients in the dtype itself, None if it has none, or they take too much.

        Where a gradient is asked for, a product copies what it is broadcast to.
        """
        try:
            if self.defined:
                return self.backward(sample, self.dtype).reference_runs[0]
            with bounded(self.operator, given):
                return own_gradients(self.operator, sample, self.dtype, given=given)
        except Exception:  # noqa: BLE001
            return None

    def usual_in_place(self, given: Any, layout: Layout) -> Tensors | None:
        """Return the first tensor after the CPU changed it in place, None if that is impossible."""
        with unseen():
            try:
                if not can_hold(self.operator, given, _copied(layout), getattr(torch, self.dtype)):
                    return None
                args, kwargs = on_tensors(_copied(layout), given)
                before = [each.shape for each in tensors(args[0])]
                self.operator.changes_first(*args, **kwargs)
                found = tensors(args[0])
                return [*found] if [each.shape for each in found] == before else None  # the CPU lets some of them grow
            except Exception:  # noqa: BLE001
                return None

    def results(self, sample: Sample, way: str) -> Results:
        """Return the expected results of a call, by its way: "" for forward, BACKWARD or IN_PLACE."""
        if way == BACKWARD:
            return self.backward(sample, self.dtype)
        found = self.forward(sample, self.dtype)
        return in_dtype(found, getattr(torch, self.dtype)) if way == IN_PLACE else found

    def results_beside(self, usual: Tensors, sample: Sample, way: str) -> Results | None:
        """Return the expected results with the only reference run that is known; None if they need more."""
        if self.defined or way == IN_PLACE:
            return None
        with unseen():
            exact = (differentiated if way else computed)(self.operator, sample, self.dtype, layouts=())
        return Results(exact.expected, (usual,))


def _copied(layout: Layout) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return a function that copies a tensor on the CPU: some operators change their inputs."""

    def copied(tensor: torch.Tensor) -> torch.Tensor:
        there = layout(tensor, CPU)
        return there.clone() if there.data_ptr() == tensor.data_ptr() else there

    return copied


class WrongCall(Disagreement):
    """A wrong generated call, as small as it still fails: ``call``, and the way it was made."""

    def __init__(self, message: str, each: Generated, way: str) -> None:
        super().__init__(message)
        self.call, self.way = each, way


def check(target: Target, compare: PrecisionCompare) -> None:
    """Run all calls. Raises WrongCall, with the smallest failing call, if one is wrong.

    Raises NotImplementedError, or what torch raises, if the installed torch does not have the operator.
    """
    target.varied = run(target, compare)
    if not target.varied:
        sweep = _sweep_of(target)
        try:
            sweep.forward(sweep.calls[0].sample, sweep.dtype)
        except NotImplementedError:  # this torch does not have the operator
            raise
        except Exception as error:  # the call is not legal
            if "is now removed" in str(error):  # torch keeps a function that says so
                raise
        raise Disagreement(f"{target.operator.name}: the CPU takes none of {len(sweep.calls)} generated calls")


def run(target: Target, compare: PrecisionCompare) -> Counter[str]:
    """Run all calls that the CPU accepts, and count what they varied. Raises WrongCall as :func:`check` does.

    The names are "size empty", "values sorted", "layout transposed", "way backward" ...; "arguments" counts the table's
    calls, each with its own arguments, that were used.
    """
    reference, compare = _sweep_of(target), replace(compare, note=partial(note_shortly, compare.note))
    varied: Counter[str] = Counter()
    templates = set()
    doubtful: list[tuple[Generated, str, Pair]] = []
    exact: list[tuple[Joined, Joined]] = []
    inputs, legal = "", 0
    for number, each in enumerate(itertools.chain(reference.calls, reference.spare())):
        if legal == len(reference.calls):
            break
        for way, found in _answers(target, reference, each):
            legal += not way
            varied.update(("calls", f"way {way or 'forward'}"))
            if not way:
                varied.update(f"{kind} {what}" for kind, what in zip(AXES, each.axes, strict=True))
                templates.add(each.template)
            if number % _DIGEST_EVERY == 0:
                with unseen():
                    inputs = inputs if way else digest(tensors(target.on_cpu(each.sample)))
                compare.digests[name_of(each, way)] = call_digests(
                    target.operator, inputs, found[0], backward=way == BACKWARD
                )
            if pair := _alike(*found):
                exact.append(pair)
            else:
                doubtful.append((each, way, found))
    if exact:
        text = f"{target.operator.name}, {len(exact)} as the CPU has them"
        with unseen():
            compare(*(joined(every) for every in zip(*exact, strict=True)), standard="binary", name=text)
    for each, way, found in doubtful:
        if not _passes_quickly(target, compare, each, way, found):
            _judge_or_shrink(target, compare, each, found[0], way)
    if templates:
        varied["arguments"] = len(templates)
    return varied


def note(varied: Mapping[str, int], measure: Callable[[str, float], None]) -> None:
    """Write what generated calls varied to the log, as "asked_size_empty" and the like."""
    for what, count in sorted(varied.items()):
        measure(f"asked_{what.replace(' ', '_')}", count)


def _passes_quickly(target: Target, compare: PrecisionCompare, each: Generated, way: str, pair: Pair) -> bool:
    """Whether a call passes beside the reference run that made it legal; if not, it may beside more of them."""
    result = _sweep_of(target).results_beside(pair[1], each.sample, way)
    if result is None:
        return False
    verdicts: list[Verdict] = []
    try:
        judge_call(result, target, replace(compare, note=verdicts.append), each, pair[0], way)
    except Disagreement:
        return False
    for verdict in verdicts:
        compare.note(verdict)
    return True


def _judge_or_shrink(target: Target, compare: PrecisionCompare, each: Generated, actual: Tensors, way: str) -> None:
    """Judge a call. Raises Disagreement, with the smallest failing call."""
    if each.sample not in target.samples:  # a spare one
        target.samples = (*target.samples, each.sample)
    try:
        _judge(target, compare, each, actual, way)
    except Disagreement as error:
        smaller = _shrunk(target, each, way)
        if smaller is not each:
            target.samples = (*target.samples, smaller.sample)
            found = _results_of(target, _sweep_of(target), smaller, way)
            try:
                if found is not None:
                    _judge(target, compare, smaller, found[0], way)
            except Disagreement as of_smaller:
                raise WrongCall(str(of_smaller), smaller, way) from error
        raise WrongCall(str(error), each, way) from error


def _sweep_of(target: Target) -> Sweep:
    assert isinstance(target.reference, Sweep)  # noqa: S101 - a case of this kind has such a reference
    return target.reference


def _answers(target: Target, reference: Sweep, each: Generated) -> Iterator[tuple[str, Pair]]:
    """Yield the ways in which a call is made, with its results: nothing if it is not legal."""
    ways = [*_ways(target, each)]
    usual = _usual(target, reference, each, "")
    if usual is None:
        return
    wanted = _usual(target, reference, each, BACKWARD) if BACKWARD in ways else None
    if each.number % _OTHER_DTYPE_EVERY == 0:
        target.run_in_other_dtype(each.sample)
    layout = _layout(target, each)
    if wanted is None:
        yield "", (list(target.run(each.sample, layout)), usual)
    else:  # the results of one call, as a training has them
        found, gradients = target.go_both_ways(each.sample, layout)
        yield "", (list(found), usual)
        yield BACKWARD, (_without_unused(gradients, wanted), wanted)
    if IN_PLACE in ways and (pair := _results_of(target, reference, each, IN_PLACE)):
        yield IN_PLACE, pair


def _without_unused(gradients: Tensors, usual: Tensors) -> Tensors:
    """Return gradients without those of zero where the CPU has none: of an input that nothing depends on."""
    pairs = zip(gradients, usual, strict=True)
    return [None if mine is not None and its is None and not mine.any() else mine for mine, its in pairs]


def _ways(target: Target, each: Generated) -> Iterator[str]:
    """Yield how a call is made beside forward: backward or in place, depending on its number."""
    operator, wants = target.operator, any(v.wants_grad(target.dtype) for v in each.sample.values())
    # For recorded ones it is not known which inputs without elements have a gradient.
    is_asked = not (operator.one_set_of_inputs and any(0 in values.shape for values in each.sample.values()))
    # A product's gradient is the product of the others, or the whole over one, with NaN: either is allowed. And torch's
    # CPU has other kernels for some layouts, which take NaN for another number (logit).
    is_plain = operator.family in POINTWISE and not (operator.one_set_of_inputs and each.is_laid_out)
    is_plain |= moves_gradients(operator)
    is_asked &= is_plain or not any(axis.startswith("special") for axis in each.axes)
    if operator.exactness == FUNCTION:
        # Over one element the gradient of a normalization is rounding alone; over few, or rows that are the same, all
        # elements are as wrong as the worst, while a judge uses the mean.
        is_asked &= not {"few", "equal", EXPANDED} & {*each.axes} and not (operator.terms > 1 and "one" in each.axes)
    is_asked &= (each.number + shift_of(operator, target.case.dtype)) % _FORWARD_ALONE_EVERY > 0
    if operator.grad and target.dtype.is_floating_point and wants and is_asked:
        yield BACKWARD
    if operator.in_place and each.number % IN_PLACE_EVERY == 0:
        yield IN_PLACE


def _layout(target: Target, each: Generated) -> Layout:
    layouts = target.layouts() if target.operator.layouts else {}
    return layouts.get(each.layout, as_it_is)


def _usual(target: Target, reference: Sweep, each: Generated, way: str) -> Tensors | None:
    """Return the CPU's results of a call made in a way, None if it is not legal."""
    try:
        given = target.on_cpu(each.sample)
    except (ValueError, RuntimeError):  # these sizes do not match these numbers
        return None
    if way == BACKWARD:
        return reference.usual_gradients(each.sample, given)
    layout = _layout(target, each)
    return reference.usual_in_place(given, layout) if way else reference.usual(each.sample, given, layout)


def _results_of(target: Target, reference: Sweep, each: Generated, way: str) -> Pair | None:
    """Return the device's and the CPU's results of a call made in one way, None if it is not legal."""
    usual, layout = _usual(target, reference, each, way), _layout(target, each)
    if usual is None:
        return None
    if way == BACKWARD:
        return _without_unused(target.go_back(each.sample, layout), usual), usual
    return list((target.change if way else target.run)(each.sample, layout)), usual


def _alike(found: Tensors, usual: Tensors) -> tuple[Joined, Joined] | None:
    with unseen():
        return alike({"": found}, {"": usual})


def _judge(target: Target, compare: PrecisionCompare, each: Generated, actual: Tensors, way: str) -> None:
    judge_call(_sweep_of(target).results(each.sample, way), target, compare, each, actual, way)


def _shrunk(target: Target, each: Generated, way: str) -> Generated:
    """Return the smallest call found that fails in the same way."""
    reference = _sweep_of(target)

    def fails(candidate: Generated) -> bool:
        try:
            found = _results_of(target, reference, candidate, way)
            if found is not None and not _alike(*found):
                _judge(target, PrecisionCompare(lambda _: None), candidate, found[0], way)
        except Disagreement:
            return True
        except Exception:  # noqa: BLE001 - another fault, or an illegal call
            return False
        return False

    return shrunk(each, fails)
