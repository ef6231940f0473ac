"""Judgement of results: against the golden, within what a correct device may return for the same inputs."""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import torch

from pytest_ascend.operators import calling
from pytest_ascend.operators.callables import NORMWISE
from pytest_ascend.operators.operator import ARITHMETIC, FUNCTION, MOVE, Operator
from pytest_ascend.operators.reference import Results, Tensors, call_changed
from pytest_ascend.operators.samples import USUAL_TERMS, Sample
from pytest_ascend.operators.target import BACKWARD, IN_PLACE, Call, Target
from pytest_ascend.precision import Samples, Verdict
from pytest_ascend.precision.choices import PROMISES, OpenCall
from pytest_ascend.precision.compare import joined as one_verdict
from pytest_ascend.precision.formats import INTEGERS
from pytest_ascend.precision.nested import widened
from pytest_ascend.records.record import CallDigests
from pytest_ascend.records.verdict import Limit
from pytest_ascend.run.comparing import Disagreement, PrecisionCompare
from pytest_ascend.system.dispatching import no_dispatch
from pytest_ascend.system.groups import by_key

#: Gradients are computed from the forward result, whose error may be up to three times that of rounding alone.
PROPAGATED = 3.0
#: Significand bits of the reference dtypes, and the error allowed for them, in units of the largest element.
_REFERENCE_BITS, _REFERENCE_ULPS = 64, 16.0

#: With so few results, their size does not show how large the sums are on the way.
FEW = 64

#: All elements of several results, in one flat tensor per dtype; keys are dtype names.
Joined: TypeAlias = dict[str, torch.Tensor]


def settings(
    operator: Operator, results: Mapping[str, Results], *, terms: int = 0, backward: bool = False, summed: bool = False
) -> dict[str, Any]:
    """Return the settings of ``precision_compare`` for these results; ``terms`` is the number of terms in each sum.

    ``summed`` means that a gradient is only a sum, like that of a pool.
    """
    terms = terms or operator.terms
    # If a call has fewer reference runs, because the CPU rejects a layout, its first one is repeated.
    count = max(len(each.reference_runs) for each in results.values())
    reference_runs = [
        {name: each.reference_runs[place if place < len(each.reference_runs) else 0] for name, each in results.items()}
        for place in range(count)
    ]
    if operator.exactness == MOVE and not backward:
        return {"standard": "binary", "reference_runs": reference_runs[0]}
    if operator.exactness == FUNCTION or (backward and operator.exactness != MOVE and not summed):
        together = operator.traits.sums_all or operator.function in NORMWISE
        shaken = partial(perturbed, ulps=operator.ulps, propagated=PROPAGATED if backward else 0.0, together=together)
        runs = {name: [*map(shaken, each.expected, each.reference_runs[0])] for name, each in results.items()}
        if backward:
            runs |= {name: each.reference_runs[0] for name, each in results.items() if _is_exact(each)}
        reference_runs.append(runs)
    # One term would mean that each element is rounded once; a function may have sums inside.
    once = operator.exactness != FUNCTION and (summed or not backward)
    return {"reference_runs": Samples(reference_runs), "accumulation": terms if once or terms > 1 else None}


def _is_exact(result: Results) -> bool:
    """Return whether the CPU rounds nothing: the gradient is a copy, a selection or a small integer on any device."""
    pairs = zip(result.expected, result.reference_runs[0], strict=True)
    known = [(right, own) for right, own in pairs if right is not None and own is not None]
    return all(own.dtype is not right.dtype and own.to(right.dtype).equal(right) for right, own in known)


def expected(operator: Operator, results: Results) -> Tensors:
    """Return the expected results; for an operator that only moves elements, converted to the dtype."""
    if operator.exactness != MOVE:
        return results.expected
    return [
        each if each is None or usual is None else each.to(usual.dtype)
        for each, usual in zip(results.expected, results.reference_runs[0], strict=True)
    ]


def sizes_of_sums(
    operator: Operator, sample: Sample, dtype: torch.dtype, wanted: Tensors, *, backward: bool = False
) -> list[float | None]:
    """Return the size of the sums on the way to each of the ``wanted`` results; an empty list if it is unknown.

    Terms of both signs may cancel and leave less than the sum's rounding errors, which few results do not show. A sum
    of n terms of random sign is about the root of n times their usual size: the sum of magnitudes over the root of n.
    """
    has_sums = operator.traits.broadcasts if backward else operator.terms > 1
    if not has_sums or not any(0 < each.numel() <= FEW for each in calling.tensors(wanted)):
        return []
    with no_dispatch():
        shapes = [tuple(each.shape) for each in calling.tensors(sample.arguments(operator.name, dtype))]
        compute = partial(call_changed, operator.function, operator, sample, dtype, upstream=widened, backward=backward)
        try:
            if backward:  # an element has as many terms as the results it is broadcast to
                whole = np.broadcast_shapes(*shapes)
                terms = compute(lambda tensor: widened(tensor).expand(whole).clone())
                own = [each.shape for each in sample.values() if each.wants_grad(dtype)]
                found = [
                    each if each is None else each.abs().sum_to_size(shape)
                    for each, shape in zip(terms, own, strict=True)
                ]
            else:
                found = compute(calling.magnitude)
        except Exception:  # noqa: BLE001 - the operator rejects such numbers or shapes
            return []
        longest = calling.most_elements(shapes) if backward else max(map(math.prod, shapes), default=0)
        return [_size_of_sums(own, its, longest) for own, its in zip(found, wanted, strict=True)]


def _size_of_sums(magnitudes: torch.Tensor | None, wanted: torch.Tensor | None, longest: int) -> float | None:
    if magnitudes is None or wanted is None or not 0 < wanted.numel() <= FEW or not wanted.is_floating_point():
        return None
    finite = (each.double().nan_to_num(0.0, 0.0, 0.0) for each in (magnitudes, wanted))
    of_terms, of_result = (float(each.square().mean().sqrt()) for each in finite)
    size = max(of_terms / math.sqrt(max(longest / wanted.numel(), 1)), of_result)
    return size if 0 < size < math.inf else None


def overflows(result: Results) -> bool:
    """Return whether the CPU overflows on the way to a result within range: then nothing is promised."""
    pairs = zip(result.reference_runs[0], result.expected, strict=True)
    known = ((own, right) for own, right in pairs if own is not None and right is not None and own.is_floating_point())
    return any(bool((right.to(own.dtype).isfinite() & ~own.isfinite()).any()) for own, right in known)


def is_unsure(result: Results) -> bool:
    """Return whether the CPU overflows, or its RMS error exceeds an eighth of the RMS of the expected values."""
    pairs = zip(result.reference_runs[0], result.expected, strict=True)
    known = [(x - right, right) for x, right in pairs if x is not None and right is not None and x.is_floating_point()]
    power = [[float(x.nan_to_num(0, 0, 0).square().mean()) for x in pair] for pair in known]
    return overflows(result) or any(64 * error > numbers for error, numbers in power)


def is_as_near(actual: Tensors, results: Results) -> bool:
    """Return whether each element is at least as accurate as the CPU's: no error model could reject it.

    False for other dtypes or shapes, where the CPU has no result, and for complex numbers.
    """
    for ours, cpus, exact in zip(actual, results.reference_runs[0], results.expected, strict=False):
        if ours is None or cpus is None or exact is None:
            if not ours is cpus is exact:
                return False
            continue
        if ours.dtype != cpus.dtype or ours.shape != cpus.shape or not ours.is_floating_point():
            return False
        mine, its = ours.double(), cpus.double()
        is_near = ((mine - exact).abs() <= (its - exact).abs()) & ((mine != 0) | (mine.signbit() == its.signbit()))
        is_same = (mine.isinf() & (mine == its)) | (mine.isnan() & its.isnan() & exact.isnan())
        if not (is_near | is_same).all():
            return False
    return True


def matching_run(actual: Tensors, results: Results) -> Tensors | None:
    """Return the reference run that ``actual`` equals in dtype, shape and every bit; None if there is none.

    A device that computes the same as torch's CPU kernels is correct by definition.
    """
    return next((run for run in results.reference_runs if alike({"": actual}, {"": run})), None)


def alike(actual: Mapping[str, Tensors], wanted: Mapping[str, Tensors]) -> tuple[Joined, Joined] | None:
    """Return all elements of both, joined, if they agree in dtype, shape and every bit; else None.

    All NaN count as equal.
    """
    if actual.keys() != wanted.keys():
        return None
    found = {name: actual[name] for name in wanted}
    if _forms(found) != _forms(wanted):
        return None
    ours, theirs = _joined(found), _joined(wanted)
    if not _have_same_bits(ours, theirs):
        ours, theirs = ({dtype: _one_nan(each) for dtype, each in side.items()} for side in (ours, theirs))
    return (ours, theirs) if _have_same_bits(ours, theirs) else None


def joined(results: Iterable[Joined]) -> Joined:
    """Return several joined results as one flat tensor per dtype."""
    parts = by_key(pair for each in results for pair in each.items())
    return {dtype: torch.cat(found) if len(found) > 1 else found[0] for dtype, found in parts.items()}


def digest(values: Sequence[torch.Tensor | None]) -> str:
    """Return a SHA-256 over dtype, shape and bits of the tensors, truncated to 128 bits; all NaN count as equal."""
    found = hashlib.sha256()
    for each in values:
        found.update(f"{None if each is None else (each.dtype, tuple(each.shape))}".encode())
        if each is not None:
            plain = _one_nan(each.detach().cpu().resolve_conj().resolve_neg()).reshape(-1)
            plain = plain if plain.stride() == (1,) else plain.clone(memory_format=torch.contiguous_format)
            found.update(plain.view(torch.uint8).numpy().tobytes())
    return found.hexdigest()[:32]


def call_digests(operator: Operator, inputs: str, outputs: Tensors, *, backward: bool) -> CallDigests:
    """Return a call's digests, and whether every correct device must give these bits: for moved or integer results."""
    with no_dispatch():
        is_whole = not any(out is not None and (out.is_floating_point() or out.is_complex()) for out in outputs)
        is_exact = is_whole or (operator.exactness == MOVE and not backward)
        return CallDigests(inputs, digest(outputs), is_exact)


def _forms(results: Mapping[str, Tensors]) -> list[Any]:
    return [[each if each is None else (each.dtype, each.shape) for each in found] for found in results.values()]


def _joined(results: Mapping[str, Tensors]) -> Joined:
    """Return all elements in one flat tensor per dtype, in the same order for results of the same shapes."""
    every = itertools.chain.from_iterable(results.values())
    return joined({str(x.dtype): x.resolve_conj().resolve_neg().reshape(-1)} for x in every if x is not None)


def _have_same_bits(ours: Joined, theirs: Joined) -> bool:
    return all(_bits(ours[dtype]).equal(_bits(theirs[dtype])) for dtype in theirs)


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    plain = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    return plain.view(INTEGERS[plain.element_size()]) if plain.dtype is not torch.bool else plain


def _one_nan(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.is_complex():
        return torch.view_as_complex(_one_nan(torch.view_as_real(tensor)))
    return torch.where(tensor.isnan(), torch.nan, tensor) if tensor.is_floating_point() else tensor


def perturbed(
    expected: torch.Tensor | None,
    reference_runs: torch.Tensor | None,
    ulps: float = 2.0,
    propagated: float = 0.0,
    *,
    together: bool = False,
) -> torch.Tensor | None:
    """Return a result that a device may give: each element has an error of ``ulps``, of random sign.

    Transcendental functions, quotients and roots are not correctly rounded everywhere: OpenCL's embedded profile, CUDA
    and vector libraries allow some ulp. ``propagated`` times the error of the reference run is added, if errors of an
    earlier pass contribute. With ``together``, each element has the error of the largest.
    """
    if expected is None or reference_runs is None:
        return reference_runs
    if not (reference_runs.is_floating_point() or reference_runs.is_complex()):
        return reference_runs
    # In float64 the error is relative to the largest, as no better reference exists.
    info = torch.finfo(reference_runs.dtype)
    size, is_reference = expected.abs().nan_to_num(0.0, 0.0, 0.0), info.bits == _REFERENCE_BITS
    ulps = _REFERENCE_ULPS if is_reference else ulps
    if (is_reference or together) and size.numel():
        size = size.max().expand_as(size)
    exponent = torch.frexp(size.clamp(info.smallest_normal, info.max)).exponent.double() - 1
    error, wide = ulps * info.eps * torch.exp2(exponent), reference_runs.to(expected.dtype)
    if reference_runs.is_complex():  # each part has the error of the whole
        expected, wide, error = torch.view_as_real(expected), torch.view_as_real(wide), error.unsqueeze(-1)
    direction = calling.directions("ops/shaken", expected)
    if propagated:
        error = error + propagated * (wide - expected).abs()
    moved = expected + direction * error
    moved = (torch.view_as_complex(moved) if reference_runs.is_complex() else moved).to(reference_runs.dtype)
    return torch.where(moved.isfinite() & reference_runs.isfinite(), moved, reference_runs)


def signs(values: Sequence[torch.Tensor | None]) -> list[torch.Tensor]:
    """Return masks of negative numbers and negative zeros; NaN counts as unsigned."""
    with no_dispatch():
        return [each.signbit() & ~each.isnan() for each in values if each is not None and each.is_floating_point()]


#: Error, in ulp, of the perturbed reference run of a pointwise function, and of its gradient: the whole allowance of
#: two ulp and a rounding; for a gradient, plus three times the CPU's own rounding.
_OFF_BY = {False: 2.6, True: 4.1}
#: At most this many tensors of one call get log verdicts of their own; a number larger than any tensor's elements.
_SHORT, _UNKNOWN = 4, 1 << 62


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
    with no_dispatch():
        if not sums:
            summed = backward and _is_a_sum(target, call)
            how = settings(operator, {name: result}, terms=terms, backward=backward, summed=summed)
            # Whether each element of a result, or of a gradient, depends on one element of each tensor: of lists, the
            # tensors in the same place have one shape. With few distinct values, all may be correct by chance.
            has_one_shape = len({source.shape for source in call.sample.values()}) == 1
            is_alike = operator.traits.takes_lists or (operator.traits.broadcasts and has_one_shape)
            is_single = operator.exactness == FUNCTION and operator.terms == 1 and (is_alike or not backward)
            is_single = is_single and not {"few", "equal"} & {*call.axes}
            seen = replace(compare, note=partial(_note_again, compare, backward)) if is_single else compare
            seen({name: actual}, {name: wanted}, name=operator.name, **how)
        for place, scale in enumerate(sums):  # each output has its own sums
            own = Results(_only(place, result.expected), tuple(_only(place, run) for run in result.reference_runs))
            how = settings(operator, {name: own}, terms=terms, backward=backward) | {"scale": scale}
            compare({name: _only(place, actual)}, {name: _only(place, wanted)}, name=operator.name, **how)


def determined(target: Target, call: Call, actual: Tensors, result: Results) -> Sequence[Any] | None:
    """Return what PyTorch determines of the device's and the CPU's results, for a call that may choose among equals.

    None for other operators and gradients, and if the results do not have the structure of such a call.
    """
    if call.direction or target.operator.function not in PROMISES:
        return None
    args, kwargs = target.on_cpu(call.sample)
    asked = OpenCall(*PROMISES[target.operator.function], args, kwargs, ())
    with no_dispatch():
        try:
            both = (actual, result.reference_runs[0])
            return [asked.determined(each[0] if len(each) == 1 else each) for each in both]
        except (IndexError, RuntimeError, TypeError, ValueError):
            return None


def has_ties(target: Target, call: Call) -> bool:
    """Return whether a gradient may go to any one of several equal elements."""
    if target.operator.function not in PROMISES:
        return False
    with no_dispatch():
        data = calling.tensors(target.on_cpu(call.sample))[0].reshape(-1).sort().values
        return bool((data.diff() == 0).any())


def note_shortly(note: Callable[[Verdict], None], verdict: Verdict) -> None:
    """Note a verdict; if a long list of tensors agrees, only as a whole: hundreds would exceed a line of a log."""
    is_long = verdict.agrees and len(verdict.leaves) > _SHORT
    note(replace(verdict, leaves=()).as_whole() if is_long else verdict)


def _note_again(compare: PrecisionCompare, backward: bool, verdict: Verdict) -> None:
    """Apply the ulp cap to the verdict on a pointwise function, and note it. Raises Disagreement."""
    final = with_ulp_cap(verdict, backward=backward)
    compare.note(final)
    if verdict.agrees and not final.agrees:
        raise Disagreement(final.message)


def with_ulp_cap(verdict: Verdict, *, backward: bool) -> Verdict:
    """Return the verdict on a pointwise function, changed to a disagreement if one element exceeds a cap in ulp.

    The cap is three ulp for rounding, plus twice the reference runs' excess over half an ulp. The error model allows
    three times the reference runs' largest error at the edge of an octave, though the perturbed run uses the whole
    allowance. The model's verdict stands for few elements and where the CPU's error is larger, as in cancellation.
    """
    if not verdict.agrees:
        return verdict
    leaves = verdict.leaves or (verdict,)
    judged = [_leaf_with_ulp_cap(each, backward=backward) for each in leaves]
    is_new = any(found is not each for found, each in zip(judged, leaves, strict=True))
    return one_verdict(judged, verdict.path) if is_new else verdict


def _leaf_with_ulp_cap(leaf: Verdict, *, backward: bool) -> Verdict:
    """Return the verdict on one tensor, changed to a disagreement if one element exceeds the cap."""
    off, shown, count = (leaf.metrics.get(key) for key in ("ulp_max", "reference_ulp_max", "count"))
    if off is None or shown is None or count is None:  # another standard was used
        return leaf
    most = 3 + 2 * max(shown - 0.5, 0)
    if off <= most or shown > _OFF_BY[backward] or count < FEW:
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
    """Return an upper bound of the terms in a call's sums, as far as known."""
    operator, shapes = target.operator, [source.shape for source in call.sample.values()]
    backward = call.direction == BACKWARD
    longest = calling.most_elements(shapes)
    if backward and operator.function in PROMISES:  # each gradient element comes from at most one place
        return 1
    if operator.traits.sums_windows and len(shapes) == 1 and longest > USUAL_TERMS:
        if operator.terms == 1 and not backward:
            return 1
        return max(1, min(reached(operator, call.sample, target.dtype, backward=backward), longest))
    terms = max(operator.terms, min(longest, USUAL_TERMS)) if operator.terms > 1 else operator.terms
    return max(terms, longest) if operator.terms > USUAL_TERMS or operator.traits.sums_inputs or backward else terms


def _is_a_sum(target: Target, call: Call) -> bool:
    """Return whether a gradient is a weighted sum of incoming gradients over a window, like that of a pool.

    False for few elements: where they cancel, they show too little.
    """
    operator, shapes = target.operator, [source.shape for source in call.sample.values()]
    is_linear = operator.exactness == ARITHMETIC and operator.traits.sums_windows and len(shapes) == 1
    if not is_linear or calling.most_elements(shapes) <= FEW:
        return False
    return reached(operator, call.sample, target.dtype, backward=True) < _UNKNOWN


def _only(place: int, found: Tensors) -> Tensors:
    return [each if place == number else None for number, each in enumerate(found)]


def reached(operator: Operator, sample: Sample, dtype: torch.dtype, *, backward: bool = False) -> int:
    """Return how many elements of a call's only tensor affect one result: the most, over three of the results.

    With ``backward``, return how many results an element affects, the number of terms in its gradient. The count is
    doubled, as other elements may have some more; it exceeds any tensor's size if it cannot be determined.
    """
    with no_dispatch(), torch.enable_grad():
        given = sample.arguments(operator.name, dtype)
        args, kwargs = calling.on_tensors(lambda each: widened(each).nan_to_num(1.0, 1.0, 1.0), given)
        (leaf,) = calling.tensors((args, kwargs))
        if not leaf.is_floating_point():
            return _UNKNOWN
        leaf.requires_grad_()
        found = calling.forward(operator, operator.function, args, kwargs)[0]
        if not found.numel() or not found.requires_grad:
            return _UNKNOWN
        return 2 * (_contributions if backward else _dependencies)(found, leaf)


def _contributions(found: torch.Tensor, leaf: torch.Tensor) -> int:
    """Return how many result elements contribute to a gradient element; _UNKNOWN if the gradient is not just their sum.

    A gradient is linear in the incoming one, so its own gradient shows which results contribute. The gradient of a
    normalization depends on the input as well.
    """
    grad_output = torch.ones_like(found, requires_grad=True)
    try:
        (gradient,) = torch.autograd.grad(found, leaf, grad_output, create_graph=True)
        (of_input,) = torch.autograd.grad(gradient.sum(), leaf, retain_graph=True, allow_unused=True)
    except RuntimeError:  # the gradient is not differentiable
        return _UNKNOWN
    return _UNKNOWN if of_input is not None and of_input.any() else _dependencies(gradient, grad_output)


def _dependencies(results: torch.Tensor, on: torch.Tensor) -> int:
    """Return how many elements of a tensor affect the first, the central or the last result: the most of these."""
    shape = results.shape
    places = {tuple(0 for _ in shape), tuple(size // 2 for size in shape), tuple(size - 1 for size in shape)}
    return max(int(torch.autograd.grad(results[place], on, retain_graph=True)[0].count_nonzero()) for place in places)
