"""How a generated call is judged: how many terms its sums have, how far single elements may be off."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from pytest_ascend.operators.calling import double, forward, most_elements, on_tensors, tensors
from pytest_ascend.operators.judging import FEW, expected, overflows, settings, sizes_of_sums
from pytest_ascend.operators.operator import ARITHMETIC, FUNCTION, Operator
from pytest_ascend.operators.reference import Results, Tensors
from pytest_ascend.operators.samples import USUAL_TERMS, Sample
from pytest_ascend.operators.target import BACKWARD, IN_PLACE, Call, Target
from pytest_ascend.precision import Verdict
from pytest_ascend.precision.choices import PROMISES, OpenCall
from pytest_ascend.precision.compare import joined
from pytest_ascend.records.verdict import Limit
from pytest_ascend.run.comparing import Disagreement, PrecisionCompare
from pytest_ascend.system.dispatching import unseen

#: Numbers of which few differ: their results may all be right by luck.
_LEVEL = ("few", "equal")
#: What a function of single elements, and its gradient, is off by in the reference run that is off by all that is
#: allowed: two ulp and a rounding, and in a gradient three times the CPU's own rounding.
_REFERENCE_ULPS = {False: 2.6, True: 4.1}
#: So many tensors of one call have verdicts of their own in the log.
_SHORT = 4
#: More elements than any tensor has.
_UNKNOWN = 1 << 62


def judge_call(target: Target, compare: PrecisionCompare, call: Call, actual: Tensors, result: Results) -> None:
    """Judge the results of a generated call. Raises Disagreement."""
    operator, name, backward = target.operator, call.name, call.direction == BACKWARD
    if overflows(result):
        return
    if pair := determined(target, call, actual, result):
        compare(*pair, name=operator.name, standard="binary")
        return
    wanted = result.expected if backward else expected(operator, result)
    terms = _terms(target, call)
    sums: list[float | None] = []
    if call.direction != IN_PLACE:
        sums = sizes_of_sums(operator, call.sample, target.dtype, wanted, backward=backward)
    with unseen():
        if not sums:
            summed = backward and _is_a_sum(target, call)
            how = settings(operator, {name: result}, terms=terms, backward=backward, summed=summed)
            is_single = _is_of_single_elements(operator, call) and not {*_LEVEL} & {*(call.axes)}
            seen = replace(compare, note=partial(_note_again, compare, backward)) if is_single else compare
            seen({name: actual}, {name: wanted}, name=operator.name, **how)
        for place, scale in enumerate(sums):  # each output has sums of its own
            own = Results(_only(place, result.expected), tuple(_only(place, run) for run in result.reference_runs))
            how = settings(operator, {name: own}, terms=terms, backward=backward) | {"scale": scale}
            compare({name: _only(place, actual)}, {name: _only(place, wanted)}, name=operator.name, **how)


def determined(target: Target, call: Call, actual: Tensors, result: Results) -> Sequence[Any] | None:
    """Return what PyTorch promises of the results of a call that may choose, as among equal elements, and of the CPU's.

    None for other operators and gradients, and where the results do not have the structure of such a call.
    """
    if call.direction or target.operator.function not in PROMISES:
        return None
    args, kwargs = target.on_cpu(call.sample)
    asked = OpenCall(*PROMISES[target.operator.function], args, kwargs, ())
    with unseen():
        try:
            return [
                asked.determined(each[0] if len(each) == 1 else each) for each in (actual, result.reference_runs[0])
            ]
        except (IndexError, RuntimeError, TypeError, ValueError):
            return None


def has_ties(target: Target, call: Call) -> bool:
    """Whether a gradient may go to any of several equal elements."""
    if target.operator.function not in PROMISES:
        return False
    with unseen():
        data = tensors(target.on_cpu(call.sample))[0].reshape(-1).sort().values
        return bool((data.diff() == 0).any())


def note_shortly(note: Callable[[Verdict], None], verdict: Verdict) -> None:
    """Note a verdict; of one that agrees on a list of tensors only the whole: hundreds would exceed a line of a log."""
    is_long = verdict.agrees and len(verdict.leaves) > _SHORT
    note(replace(verdict, leaves=()).as_whole() if is_long else verdict)


def _note_again(compare: PrecisionCompare, backward: bool, verdict: Verdict) -> None:
    """Look at a verdict on a function of single elements once more, and note it. Raises Disagreement."""
    final = too_far(verdict, backward=backward)
    compare.note(final)
    if verdict.agrees and not final.agrees:
        raise Disagreement(final.message)


def too_far(verdict: Verdict, *, backward: bool) -> Verdict:
    """Return the verdict on a function of single elements; it disagrees where one is off by more ulp than any may be.

    That is three ulp for rounding, as the judge has it, and twice what reference runs are off by beyond theirs. The
    judge takes errors of reference runs for a sample of what may come, and allows three times as much at the edge of an
    octave. But the one that is off by two ulp in each element is off by all that is allowed. Where the CPU's own result
    is off by more, as where numbers nearly cancel, and for few elements, which may not show it, the judge knows better.
    """
    if not verdict.agrees:
        return verdict
    leaves = verdict.leaves or (verdict,)
    judged = [_single_too_far(each, backward=backward) for each in leaves]
    is_new = any(found is not each for found, each in zip(judged, leaves, strict=True))
    return joined(judged, verdict.path) if is_new else verdict


def _single_too_far(leaf: Verdict, *, backward: bool) -> Verdict:
    """Return the verdict on one tensor, which disagrees where an element is off by more than any may be."""
    off, shown, count = (leaf.metrics.get(key) for key in ("ulp_max", "reference_ulp_max", "count"))
    if off is None or shown is None or count is None:  # another standard was asked for
        return leaf
    most = 3 + 2 * max(shown - 0.5, 0)
    if off <= most or shown > _REFERENCE_ULPS[backward] or count < FEW:
        return leaf
    headline = f"one element is off by {off:.3g} ulp, where reference runs are off by at most {shown:.3g}"
    return replace(
        leaf,
        agrees=False,
        headline=headline,
        message=f"{leaf.path}: {headline}",
        metrics={**leaf.metrics, "limit_used": off / most},
        limit=Limit(name="largest error in ulp", value=most),
    )


def _terms(target: Target, call: Call) -> int:
    """Return how many terms a sum of a call has at most, as far as that is known."""
    operator, shapes = target.operator, [source.shape for source in call.sample.values()]
    backward = call.direction == BACKWARD
    longest = most_elements(shapes)
    if backward and operator.function in PROMISES:  # each element of a gradient comes from one place, if from any
        return 1
    if operator.traits.sums_windows and len(shapes) == 1 and longest > USUAL_TERMS:
        if operator.terms == 1 and not backward:
            return 1
        return max(1, min(reached(operator, call.sample, target.dtype, backward=backward), longest))
    terms = max(operator.terms, min(longest, USUAL_TERMS)) if operator.terms > 1 else operator.terms
    return max(terms, longest) if operator.terms > USUAL_TERMS or operator.traits.sums_inputs or backward else terms


def _is_a_sum(target: Target, call: Call) -> bool:
    """Whether a gradient is a sum of those from above, each times a number, over a window: that of a pool is.

    Of few, those that cancel show too little.
    """
    operator, shapes = target.operator, [source.shape for source in call.sample.values()]
    is_linear = operator.exactness == ARITHMETIC and operator.traits.sums_windows and len(shapes) == 1
    return (
        is_linear
        and most_elements(shapes) > FEW
        and reached(operator, call.sample, target.dtype, backward=True) < _UNKNOWN
    )


def _is_of_single_elements(operator: Operator, call: Call) -> bool:
    """Whether each number of a result, or of a gradient, is a function of one element of each tensor."""
    is_function = operator.exactness == FUNCTION and operator.terms == 1
    has_one_shape = len({source.shape for source in call.sample.values()}) == 1
    # Of lists, the tensors in one place have one shape.
    is_alike = operator.traits.takes_lists or (operator.traits.broadcasts and has_one_shape)
    return is_function and (is_alike or call.direction != BACKWARD)


def _only(place: int, found: Tensors) -> Tensors:
    return [each if place == number else None for number, each in enumerate(found)]


def reached(operator: Operator, sample: Sample, dtype: torch.dtype, *, backward: bool = False) -> int:
    """Return on how many elements of a call's only tensor one of its results depends: of three results, the most.

    With ``backward``, how many results depend on an element, whose gradient is the sum of as many terms. Twice as many
    are returned, as others may have some more; more than there are where that cannot be found out.
    """
    with unseen(), torch.enable_grad():
        args, kwargs = on_tensors(
            lambda each: double(each).nan_to_num(1.0, 1.0, 1.0), sample.arguments(operator.name, dtype)
        )
        (leaf,) = tensors((args, kwargs))
        if not leaf.is_floating_point():
            return _UNKNOWN
        leaf.requires_grad_()
        found = forward(operator, operator.function, args, kwargs)[0]
        if not found.numel() or not found.requires_grad:
            return _UNKNOWN
        return 2 * (_contributions if backward else _dependencies)(found, leaf)


def _contributions(found: torch.Tensor, leaf: torch.Tensor) -> int:
    """Return how many elements of the result contribute to one of a gradient; _UNKNOWN if that is more than their sum.

    A gradient is linear in those from above: its own gradient tells from which results it comes. That of a
    normalization depends on the input as well.
    """
    above = torch.ones_like(found, requires_grad=True)
    try:
        (gradient,) = torch.autograd.grad(found, leaf, above, create_graph=True)
        (of_input,) = torch.autograd.grad(gradient.sum(), leaf, retain_graph=True, allow_unused=True)
    except RuntimeError:  # it has no gradient of its own
        return _UNKNOWN
    return _UNKNOWN if of_input is not None and of_input.any() else _dependencies(gradient, above)


def _dependencies(results: torch.Tensor, on: torch.Tensor) -> int:
    """Return on how many elements of a tensor the first, the central or the last result depends: the most."""
    shape = results.shape
    places = {tuple(0 for _ in shape), tuple(size // 2 for size in shape), tuple(size - 1 for size in shape)}
    return max(int(torch.autograd.grad(results[place], on, retain_graph=True)[0].count_nonzero()) for place in places)
