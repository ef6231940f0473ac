"""A case ``sweep``: generated calls of one operator in one dtype, each compared with the CPU."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

import torch

from pytest_ascend.operators import calling, judging, reference, refusing
from pytest_ascend.operators.generator import AXES, CONTIGUOUS, EXPANDED, IN_PLACE_EVERY, Generated, generate, smaller
from pytest_ascend.operators.operator import FUNCTION, Operator
from pytest_ascend.operators.reference import CPU, Definition, Results, Tensors
from pytest_ascend.operators.samples import Sample
from pytest_ascend.operators.target import BACKWARD, IN_PLACE, Call, Target
from pytest_ascend.precision.canaries import Canaries
from pytest_ascend.records.case import SWEEP_SEED, Measure
from pytest_ascend.run.comparing import Disagreement, PrecisionCompare, agrees, in_time
from pytest_ascend.system.dispatching import no_dispatch

#: The numbers of the calls of a case, by its property: level full does not repeat those of level standard.
CALLS = {"sweep": range(24), "sweep-more": range(24, 216)}
#: At most this many more calls are generated in place of illegal ones.
SPARE = 48
#: A call may take this many times as long as on the CPU, plus this many seconds, and these for each of its results: of
#: 37,610 calls none took longer. On a busy machine an unbind into 512 tensors did without the last.
_TIMES, _SPARE_S, _RESULT_S = 20, 0.004, 1e-4


@dataclass(frozen=True, slots=True)
class SweepReference:
    """The reference of generated calls, computed when needed: by the operator's ``definition`` if there is one.

    ``seed`` is that of the calls, None if the calls are given.
    """

    operator: Operator
    dtype: str
    calls: tuple[Generated, ...]
    seed: int | str | None = None
    definition: Definition | None = None

    @classmethod
    def of(
        cls, operator: Operator, dtype: str, *which: range, seed: int | str = SWEEP_SEED, defined: bool = False
    ) -> SweepReference:
        """Generate the calls of an operator with these numbers; each range must begin with a multiple of three."""
        calls = tuple(call for part in which for call in generate(operator, dtype, part.stop, seed, part.start))
        return cls(operator, dtype, calls, seed, Definition(operator) if defined else None)

    def spare(self) -> Iterator[Generated]:
        """Generate more calls, to replace illegal ones."""
        if self.seed is not None and self.calls:
            count = self.calls[-1].number + 1
            yield from generate(self.operator, self.dtype, count + SPARE, self.seed, start=count)

    def samples(self, _: str, __: str) -> tuple[Sample, ...]:
        """Return all calls."""
        return tuple(each.sample for each in self.calls)

    def expect(self, sample: Sample, dtype: str, *, backward: bool = False) -> Results:
        """Return a call's expected results, or its gradients. Raises the CPU's error if the call is illegal."""
        with no_dispatch():
            if self.definition:
                return self.definition.expect(sample, dtype, backward=backward)
            return reference.computed(self.operator, sample, dtype, backward=backward)

    def usual(self, call: Call, given: Any) -> Tensors | None:
        """Return the CPU's results of a call in the dtype itself; None if the call is illegal or too expensive."""
        try:
            if call.direction == IN_PLACE:
                return self._changed(call, given)
            if call.direction != BACKWARD:
                return self._results(call, given)
            if self.definition:
                return self.expect(call.sample, self.dtype, backward=True).reference_runs[0]
            with calling.bounded(self.operator, given):  # a product copies all where one gradient is requested
                return reference.own_gradients(self.operator, call.sample, getattr(torch, self.dtype), given)
        except Exception:  # noqa: BLE001 - whatever the CPU raises, the call is illegal or too expensive
            return None

    def _results(self, call: Call, given: Any) -> Tensors | None:
        args, kwargs = given
        with no_dispatch():  # some of the calls that the operator excludes crash the process
            if callable(self.operator.sweep) and not self.operator.sweep(*args, **kwargs):
                return None
        if self.definition:
            is_asked = calling.is_affordable(self.operator, given)
            return self.expect(call.sample, self.dtype).reference_runs[0] if is_asked else None
        with calling.bounded(self.operator, given):
            found = reference.own_forward(self.operator, given, _copied(call.layout), getattr(torch, self.dtype))
        if not any(each.numel() for each in calling.tensors(found)):
            self.expect(call.sample, self.dtype)  # float64 rejects some empty results that half precision accepts
        return found

    def _changed(self, call: Call, given: Any) -> Tensors | None:
        kind = getattr(torch, self.dtype)
        with no_dispatch():
            if not (kind.is_floating_point or kind.is_complex):
                first = reference.own_forward(self.operator, given, _copied(call.layout), kind)[0]
                if first is not None and not torch.can_cast(first.dtype, kind):
                    return None  # torch 2.8 and 2.9 crash when some integers are changed in place (mvlgamma_)
            args, kwargs = calling.on_tensors(_copied(call.layout), given)
            before = [each.shape for each in calling.tensors(args[0])]
            self.operator.changes_first(*args, **kwargs)
            found = calling.tensors(args[0])
            return [*found] if [each.shape for each in found] == before else None  # the CPU lets some tensors grow


def _copied(layout: calling.Layout) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return a function that copies a tensor on the CPU, since some operators modify their inputs."""

    def copied(tensor: torch.Tensor) -> torch.Tensor:
        there = layout(tensor, CPU)
        return there.clone() if there.data_ptr() == tensor.data_ptr() else there

    return copied


#: A device's results, and the CPU's.
Pair: TypeAlias = tuple[Tensors, Tensors]

#: Digests are kept for one in this many calls; all but one in this many also run backward; one in this many follows
#: the same call in another dtype; the first this many calls of an operator also try calls that PyTorch refuses.
_DIGEST_EVERY, _FORWARD_ALONE_EVERY, _OTHER_DTYPE_EVERY, _REFUSED_BESIDE = 3, 3, 9, 9
#: Attempts to shrink a failing call; calls whose corrupted results are judged as well, if the case plants canaries.
ATTEMPTS, _PLANTED = 60, 2


class WrongCall(Disagreement):
    """A wrong generated call, shrunk as far as it still fails, and its direction."""

    def __init__(self, message: str, generated: Generated, direction: str) -> None:
        super().__init__(message)
        self.generated, self.direction = generated, direction


def check(target: Target, compare: PrecisionCompare) -> None:
    """Run all calls. Raises WrongCall, with the smallest failing call, if a result is wrong.

    Raises NotImplementedError, or what torch raises, if the installed torch does not have the operator.
    """
    target.varied = run(target, compare)
    if not target.varied:
        sweep = _reference_of(target)
        try:
            sweep.expect(sweep.calls[0].sample, sweep.dtype)
        except NotImplementedError:  # this torch does not have the operator
            raise
        except Exception as error:  # the call is illegal
            if "is now removed" in str(error):  # torch keeps a stub that raises this
                raise
        raise Disagreement(f"{target.operator.name}: the CPU takes none of {len(sweep.calls)} generated calls")


def run(target: Target, compare: PrecisionCompare) -> Counter[str]:
    """Run all calls that the CPU accepts, and count what they vary. Raises WrongCall as :func:`check` does.

    The counters' names are "size empty", "values sorted", "layout transposed", "way backward" ...; "arguments" counts
    the calls of the table that were used, each with its own arguments.
    """
    asked, canaries = _reference_of(target), compare.canaries
    compare = replace(compare, note=partial(judging.note_shortly, compare.note), canaries=None)
    answered: list[tuple[Call, Pair]] = []
    varied: Counter[str] = Counter()
    templates = set()
    doubtful: list[tuple[Call, Pair]] = []
    exact: list[tuple[judging.Joined, judging.Joined]] = []
    inputs, legal = "", 0
    for number, each in enumerate(itertools.chain(asked.calls, asked.spare())):
        if legal == len(asked.calls):
            break
        for call, pair in _answers(target, each):
            is_forward = not call.direction
            legal += is_forward
            varied.update(("calls", f"way {call.direction or 'forward'}"))
            if is_forward:
                varied.update(f"{kind} {what}" for kind, what in zip(AXES, each.axes, strict=True))
                templates.add(each.template)
            if number % _DIGEST_EVERY == 0:
                with no_dispatch():
                    inputs = judging.digest(calling.tensors(target.on_cpu(each.sample))) if is_forward else inputs
                backward = call.direction == BACKWARD
                compare.digests[call.name] = judging.call_digests(target.operator, inputs, pair[0], backward=backward)
            answered += [(call, pair)] if canaries else []
            if same := _alike(pair):
                exact.append(same)
            else:
                doubtful.append((call, pair))
    if exact:
        text = f"{target.operator.name}, {len(exact)} results bit-identical to the CPU's"
        with no_dispatch():
            compare(*(judging.joined(every) for every in zip(*exact, strict=True)), standard="binary", name=text)
    for number, (call, pair) in enumerate(doubtful):
        is_first = not (exact or number)  # the log must tell a case without a verdict from one without comparisons
        if is_first or not _passes_quickly(target, compare, call, pair):
            _judge_or_shrink(target, compare, call, pair[0])
    if canaries:
        _plant(target, canaries, answered)
    if templates:
        varied["arguments"] = len(templates)
    return varied


def _plant(target: Target, canaries: Canaries, answered: Sequence[tuple[Call, Pair]]) -> None:
    """Check that corrupted results of the calls with the most elements are rejected, judged like correct ones.

    Excludes special values, and numbers that cancel on the CPU too (variance of two neighbours): limits are as wide.
    """
    compare = PrecisionCompare(lambda _: None)

    def accepts(call: Call, usual: Tensors, result: Results, wrong: Tensors) -> bool:
        if _alike((wrong, usual)) or _passes_quickly(target, compare, call, (wrong, usual)):
            return True
        return agrees(lambda each: judging.judge_call(target, each, call, wrong, result), compare)

    usual = (each for each in answered if not any(axis.startswith("special") for axis in each[0].axes))
    fair = [each for each in usual if not judging.has_ties(target, each[0])]  # any of equal elements is correct
    by_size = sorted(fair, key=lambda each: -sum(x.numel() for x in calling.tensors(each[1][0])))
    wanted = ((call, pair, result) for call, pair in by_size if not judging.is_unsure(result := target.expect(call)))
    for call, (actual, own), result in itertools.islice(wanted, _PLANTED):
        canaries.plant(actual, partial(accepts, call, own, result), target.on_cpu(call.sample))


def note(varied: Mapping[str, int], measure: Measure) -> None:
    """Write what generated calls varied to the log, as "generated_size_empty" and so on."""
    for what, count in sorted(varied.items()):
        measure(f"generated_{what.replace(' ', '_')}", count)


def _passes_quickly(target: Target, compare: PrecisionCompare, call: Call, pair: Pair) -> bool:
    """Return whether a call passes with the CPU's usual run as its only reference run; if not, it may with more.

    Skips the error model if every element is at least as accurate as the CPU's.
    """
    (actual, usual), asked = pair, _reference_of(target)
    if asked.definition or call.direction == IN_PLACE:  # which need more reference runs
        return False
    with no_dispatch():
        exact = reference.computed(asked.operator, call.sample, asked.dtype, (), backward=call.direction == BACKWARD)
    result = Results(exact.expected, (usual,))
    if target.operator.exactness == FUNCTION or target.operator.terms > 1:  # others are rounded once
        with no_dispatch():
            if judging.is_as_near(actual, result):
                return True
    return agrees(lambda each: judging.judge_call(target, each, call, actual, result), compare)


def _judge_or_shrink(target: Target, compare: PrecisionCompare, call: Call, actual: Tensors) -> None:
    """Judge a call. Raises WrongCall, with the smallest call found that fails in the same way."""
    generated = call.origin
    assert generated  # noqa: S101 - a sweep has only generated calls

    def wrong(candidate: Generated, compare: PrecisionCompare) -> Disagreement | None:
        of_candidate = _call(target, candidate, call.direction)
        try:
            pair = _pair(target, of_candidate)
            if pair and not _alike(pair):
                judging.judge_call(target, compare, of_candidate, pair[0], target.expect(of_candidate))
        except Disagreement as error:
            return error
        except Exception:  # noqa: BLE001, S110 - another fault, or an illegal call
            pass
        return None

    try:
        judging.judge_call(target, compare, call, actual, target.expect(call))
    except Disagreement as error:
        smallest, candidates = generated, smaller(generated)
        for _ in range(ATTEMPTS):
            if (candidate := next(candidates, None)) is None:
                break
            if wrong(candidate, PrecisionCompare(lambda _: None)):
                smallest, candidates = candidate, smaller(candidate)
        of_smaller = wrong(smallest, compare) if smallest is not generated else None
        raise WrongCall(str(of_smaller or error), smallest if of_smaller else generated, call.direction) from error


def _reference_of(target: Target) -> SweepReference:
    assert isinstance(target.reference, SweepReference)  # noqa: S101 - a sweep case has such a reference
    return target.reference


def _call(target: Target, each: Generated, direction: str = "") -> Call:
    layouts = target.layouts() if target.operator.layouts else {}
    label = ", ".join(filter(None, (each.layout, direction)))
    return Call(each.sample, layouts.get(each.layout, calling.preserve_layout), direction, label, each)


def _answers(target: Target, each: Generated) -> Iterator[tuple[Call, Pair]]:
    """Yield the calls made from a generated one, with the device's and the CPU's results; none if it is illegal."""
    directions, call = [*_directions(target, each)], _call(target, each)
    start = time.perf_counter()
    usual = _usual(target, call)
    if usual is None:
        return
    back = _call(target, each, BACKWARD)
    wanted = _usual(target, back) if BACKWARD in directions and not judging.has_ties(target, call) else None
    usual_s = time.perf_counter() - start
    if each.number % _OTHER_DTYPE_EVERY == 0:
        target.run_in_other_dtype(each.sample)
    is_asked = target.case.dtype == target.operator.dtypes[0] and each.number < _REFUSED_BESIDE
    if is_asked and target.operator.refuses and not (target.origin or _reference_of(target).definition):
        refusing.check(target.operator, target.on_cpu(each.sample), target.device, each.number)

    def made() -> tuple[Tensors, Tensors]:  # results and gradients come from one call, as in training
        return (target.execute(call), []) if wanted is None else target.both_ways(call)

    timed = call if wanted is None else back
    # Some gradients run hundreds of small operators, as that of cumprod with a zero; a user's operator may be slow.
    is_timed = not target.origin and each.axes[0] != "empty"  # without elements the CPU takes no time at all
    allowed_s = (_TIMES * usual_s + _SPARE_S + _RESULT_S * len(usual)) * (1 if wanted is None else 10)
    limit_s = allowed_s if is_timed else float("inf")
    try:
        found, gradients = in_time(made, usual_s, limit_s, f"{target.operator.name}, {timed.name}", target.device)
    except Disagreement as error:
        raise WrongCall(str(error), each, timed.direction) from error
    yield call, (found, usual)
    if wanted is not None:
        yield back, (_without_unused(gradients, wanted), wanted)
    if IN_PLACE in directions and (pair := _pair(target, changing := _call(target, each, IN_PLACE))):
        yield changing, pair


def _without_unused(gradients: Tensors, usual: Tensors) -> Tensors:
    """Return gradients, with None for zeros where the CPU has None: for inputs that do not affect the result."""
    pairs = zip(gradients, usual, strict=True)
    return [None if mine is not None and its is None and not mine.any() else mine for mine, its in pairs]


def _directions(target: Target, each: Generated) -> Iterator[str]:
    """Yield the directions in which a call is made besides forward: backward or in place, depending on its number."""
    operator, wants = target.operator, any(v.wants_grad(target.dtype) for v in each.sample.values())
    # Recorded operators do not tell which inputs without elements have a gradient.
    is_asked = not (operator.one_set_of_inputs and any(0 in values.shape for values in each.sample.values()))
    # The gradient of a product is the product of the others, or the whole divided by one, which gives NaN: either is
    # allowed. For some layouts torch's CPU has other kernels, which treat NaN as another number (logit).
    is_plain = operator.traits.is_pointwise and not (operator.one_set_of_inputs and each.axes[-1] != CONTIGUOUS)
    is_plain |= calling.moves_gradients(operator) or operator.local_gradient
    is_asked &= is_plain or not any(axis.startswith("special") for axis in each.axes)
    if operator.exactness == FUNCTION:
        # For one element, or nearly equal rows, a normalization's gradient is rounding error alone; for few elements or
        # equal rows, all elements have the error of the worst, while the judge uses the mean.
        is_asked &= not {"few", "equal", EXPANDED, *({"one", "sorted"} if operator.terms > 1 else ())} & {*each.axes}
    if operator.gradient_of_result:
        is_asked &= calling.most_elements([values.shape for values in each.sample.values()]) > judging.FEW
    is_asked &= (each.number + operator.dtypes.index(target.case.dtype)) % _FORWARD_ALONE_EVERY > 0
    if operator.grad and target.dtype.is_floating_point and wants and is_asked:
        yield BACKWARD
    if operator.in_place and each.number % IN_PLACE_EVERY == 0:
        yield IN_PLACE


def _usual(target: Target, call: Call) -> Tensors | None:
    """Return the CPU's results of a call, None if it is illegal."""
    try:
        given = target.on_cpu(call.sample)
    except (ValueError, RuntimeError):  # the sizes do not fit the given numbers
        return None
    return _reference_of(target).usual(call, given)


def _pair(target: Target, call: Call) -> Pair | None:
    """Return the device's and the CPU's results of a call, None if it is illegal."""
    usual = _usual(target, call)
    if usual is None:
        return None
    found = target.execute(call)
    return _without_unused(found, usual) if call.direction == BACKWARD else found, usual


def _alike(pair: Pair) -> tuple[judging.Joined, judging.Joined] | None:
    with no_dispatch():
        return judging.alike({"": pair[0]}, {"": pair[1]})
