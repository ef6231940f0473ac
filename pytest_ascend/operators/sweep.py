"""A case ``sweep``: generated calls of one operator in one dtype, each judged against the CPU."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import TypeAlias

from pytest_ascend.dispatching import unseen
from pytest_ascend.operators.call_judging import BACKWARD, IN_PLACE, judge_call, name_of, note_shortly
from pytest_ascend.operators.calling import Layout, as_it_is, most_elements, moves_gradients, tensors
from pytest_ascend.operators.generator import AXES, EXPANDED, IN_PLACE_EVERY, Generated
from pytest_ascend.operators.judging import FEW, Joined, alike, call_digests, digest, is_as_near, joined
from pytest_ascend.operators.operator import FUNCTION
from pytest_ascend.operators.reference import Tensors
from pytest_ascend.operators.shrinking import shrunk
from pytest_ascend.operators.sweep_reference import Sweep
from pytest_ascend.operators.target import Target
from pytest_ascend.operators.templates import shift_of
from pytest_ascend.precision import Verdict
from pytest_ascend.run.comparing import Disagreement, PrecisionCompare

#: A device's results, and the CPU's.
Pair: TypeAlias = tuple[Tensors, Tensors]

#: Of this many calls, the digests of one are kept.
_DIGEST_EVERY = 3
#: Of this many calls, all but one run backward as well.
_FORWARD_ALONE_EVERY = 3
#: Of this many calls, one follows the same call in another dtype.
_OTHER_DTYPE_EVERY = 9


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
    """Whether a call passes beside the reference run that made it legal; if not, it may beside more of them.

    That is plain where each number is as near to the exact one as that of the run, which has no verdict of its own.
    """
    result = _sweep_of(target).results_beside(pair[1], each.sample, way)
    if result is None:
        return False
    if target.operator.exactness == FUNCTION or target.operator.terms > 1:  # others are rounded once
        with unseen():
            if is_as_near(pair[0], result):
                return True
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
    is_plain = operator.traits.is_pointwise and not (operator.one_set_of_inputs and each.is_laid_out)
    is_plain |= moves_gradients(operator) or operator.local_gradient
    is_asked &= is_plain or not any(axis.startswith("special") for axis in each.axes)
    if operator.exactness == FUNCTION:
        # Over one element the gradient of a normalization is rounding alone; over few, or rows that are the same, all
        # elements are as wrong as the worst, while a judge uses the mean.
        is_asked &= not {"few", "equal", EXPANDED} & {*each.axes} and not (operator.terms > 1 and "one" in each.axes)
    if operator.gradient_of_result:
        is_asked &= most_elements([values.shape for values in each.sample.values()]) > FEW
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
