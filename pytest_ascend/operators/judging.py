"""How a result is judged: by the golden, and by what a correct device may return for the same inputs."""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import torch

from pytest_ascend.operators import calling
from pytest_ascend.operators.callables import NORMWISE
from pytest_ascend.operators.operator import ARITHMETIC, FUNCTION, MOVE, Operator
from pytest_ascend.operators.reference import Results, Tensors
from pytest_ascend.operators.samples import EXACT, Sample
from pytest_ascend.precision import Samples
from pytest_ascend.records.record import CallDigests
from pytest_ascend.run import inputs
from pytest_ascend.system.dispatching import HALF, unseen

#: Gradients are computed from the forward result, whose error may be up to three times that of rounding alone.
PROPAGATED = 3.0
#: Significand bits of the references' dtypes, and their allowed error, in units of the largest.
_REFERENCE_BITS, _REFERENCE_ULPS = 64, 16.0
#: Integer types for the bits of a number, by its bytes.
_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}

#: So few results do not show how large their sums are on the way.
FEW = 64

#: All elements of several results in one flat tensor per dtype, by its name.
Joined: TypeAlias = dict[str, torch.Tensor]


def settings(
    operator: Operator, results: Mapping[str, Results], *, terms: int = 0, backward: bool = False, summed: bool = False
) -> dict[str, Any]:
    """Return the settings of ``precision_compare`` for these results; ``terms`` is the number of terms in each sum.

    ``summed`` says that a gradient is nothing but a sum, as that of a pool is.
    """
    terms = terms or operator.terms
    # If a call has fewer reference runs than others, as the CPU lacks it in a layout, its first one is repeated.
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
        reference_runs.append(
            {name: [*map(shaken, each.expected, each.reference_runs[0])] for name, each in results.items()}
        )
    # One term would tell the judge that each element is rounded once: a function may have sums inside.
    once = operator.exactness != FUNCTION and (summed or not backward)
    return {"reference_runs": Samples(reference_runs), "accumulation": terms if once or terms > 1 else None}


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
    """Return for each of the ``wanted`` results how large its sums are on the way; nothing if that is not known.

    Terms of both signs may cancel, and leave less than the sum's rounding errors; few results do not show it. A sum of
    n terms of random sign reaches the root of n times their usual size: the sum of their magnitudes by the root of n.
    """
    has_sums = operator.traits.broadcasts if backward else operator.terms > 1
    if not has_sums or not any(0 < each.numel() <= FEW for each in calling.tensors(wanted)):
        return []
    with unseen():
        args, kwargs = sample.arguments(operator.name, dtype)
        shapes = [tuple(each.shape) for each in calling.tensors((args, kwargs))]
        found: Tensors
        try:
            if backward:
                found = _magnitudes_in_gradients(operator, sample, dtype, np.broadcast_shapes(*shapes))
            else:
                found = [*calling.forward(operator, operator.function, *calling.on_tensors(_magnitude, (args, kwargs)))]
        except Exception:  # noqa: BLE001 - the operator takes no such numbers, or no such shapes
            return []
        longest = calling.most_elements(shapes) if backward else max(map(math.prod, shapes), default=0)
        pairs = zip(found, wanted, strict=True)
        return [
            None if its is None or own is None or its.numel() > FEW else _size_of_sums(own, its, longest)
            for own, its in pairs
        ]


def _magnitudes_in_gradients(operator: Operator, sample: Sample, dtype: torch.dtype, whole: tuple[int, ...]) -> Tensors:
    """Return the sums of the magnitudes of each gradient's terms: one for each result an element is broadcast to."""
    given = sample.arguments(operator.name, dtype)
    args, kwargs = calling.on_tensors(lambda tensor: calling.double(tensor).expand(whole).clone(), given)
    leaves = calling.with_grad(sample, (args, kwargs), dtype)
    outputs = calling.forward(operator, operator.function, args, kwargs)
    found = calling.back(operator, outputs, leaves, lambda outputs: calling.upstream(operator, sample, outputs, dtype))
    own = [each.shape for each in sample.values() if each.wants_grad(dtype)]
    return [each if each is None else each.abs().sum_to_size(shape) for each, shape in zip(found, own, strict=True)]


def in_any_order(
    operator: Operator, sample: Sample, dtype: torch.dtype, results: Results, *, backward: bool
) -> Results:
    """Return the results with one more reference run, where torch's CPU kernel rounds each of several terms of 16 bits.

    Elements that come to one place, or gradients of one element, are then added in any order: as when several threads
    add to one place. The run is off by a rounding of the sum of the terms' magnitudes.
    """
    is_sum = operator.exactness == MOVE if backward else operator.exactness == ARITHMETIC and operator.terms > 1
    if dtype not in HALF or not is_sum or sample.group == EXACT:
        return results
    with unseen():
        pairs = zip(results.expected, results.reference_runs[0], strict=True)
        known = ((own, x) for x, own in pairs if x is not None and own is not None and own.is_floating_point())
        is_rounded = any(not own.equal(x.to(own.dtype)) and bool(own.isfinite().all()) for own, x in known)
        if not (is_rounded or operator.traits.sums_inputs):
            return results
        args, kwargs = calling.on_tensors(
            _magnitude if not backward else calling.double, sample.arguments(operator.name, dtype)
        )
        try:
            leaves = calling.with_grad(sample, (args, kwargs), dtype) if backward else []
            found: Tensors = [*calling.forward(operator, operator.function, args, kwargs)]
            if backward:
                upstream = partial(calling.upstream, operator, sample, dtype=dtype)
                found = calling.back(
                    operator, calling.tensors(found), leaves, lambda its: [_magnitude(each) for each in upstream(its)]
                )
        except (RuntimeError, TypeError, ValueError):  # it takes no float64, or no positive numbers
            return results
        both = zip(results.expected, found, results.reference_runs[0], strict=True)
        another = [own if sizes is None or own is None else _moved(each, sizes, own) for each, sizes, own in both]
    return Results(results.expected, (*results.reference_runs, another))


def _directions(key: str, like: torch.Tensor) -> torch.Tensor:
    """Return 1 or -1 for each element, at random."""
    return inputs.signs(key, max(like.numel(), 1))[: like.numel()].reshape(like.shape)


def _moved(expected: torch.Tensor | None, sizes: torch.Tensor, own: torch.Tensor) -> torch.Tensor:
    """Return a result off by a rounding of these sizes, up or down at random, where there are several terms."""
    if expected is None or sizes.shape != expected.shape or not own.is_floating_point():
        return own
    direction = _directions("ops/order", expected)
    has_several = sizes > expected.abs() * (1 + 1e-9)
    moved = expected + direction * torch.where(has_several, sizes * torch.finfo(own.dtype).eps / 2, 0.0)
    return torch.where(expected.isfinite(), moved, expected).to(own.dtype)


def _size_of_sums(magnitudes: torch.Tensor, wanted: torch.Tensor, longest: int) -> float | None:
    if not wanted.numel() or not wanted.is_floating_point():
        return None
    walk = _usual_size(magnitudes) / math.sqrt(max(longest / wanted.numel(), 1))
    size = max(walk, _usual_size(wanted))
    return size if 0 < size < math.inf else None


def _magnitude(tensor: torch.Tensor) -> torch.Tensor:
    return calling.double(tensor).abs() if tensor.is_floating_point() else tensor


def _usual_size(values: torch.Tensor) -> float:
    return float(values.double().nan_to_num(0.0, 0.0, 0.0).square().mean().sqrt())


def overflows(result: Results) -> bool:
    """Whether the CPU itself leaves the dtype's range on the way to a result within it: then nothing is promised."""
    pairs = zip(result.reference_runs[0], result.expected, strict=True)
    return any(
        bool((right.to(own.dtype).isfinite() & ~own.isfinite()).any())
        for own, right in pairs
        if own is not None and right is not None and own.is_floating_point()
    )


def is_unsure(result: Results) -> bool:
    """Whether the CPU leaves the dtype's range, or is off by more than an eighth of its numbers, root mean square."""
    pairs = zip(result.reference_runs[0], result.expected, strict=True)
    known = [(x - right, right) for x, right in pairs if x is not None and right is not None and x.is_floating_point()]
    power = [[float(x.nan_to_num(0, 0, 0).square().mean()) for x in pair] for pair in known]
    return overflows(result) or any(64 * error > numbers for error, numbers in power)


def is_as_near(actual: Tensors, results: Results) -> bool:
    """Whether each number is as near to the exact one as the CPU's, or nearer: no error model could object.

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

    A device that computes what torch's CPU kernels compute is correct by definition.
    """
    return next((run for run in results.reference_runs if alike({"": actual}, {"": run})), None)


def alike(actual: Mapping[str, Tensors], wanted: Mapping[str, Tensors]) -> tuple[Joined, Joined] | None:
    """Return all elements of both, joined, if they are equal in dtype, shape and every bit; else None.

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
    """Return all elements of several such results in one flat tensor per dtype."""
    parts: dict[str, list[torch.Tensor]] = {}
    for each in results:
        for dtype, elements in each.items():
            parts.setdefault(dtype, []).append(elements)
    return {dtype: torch.cat(found) if len(found) > 1 else found[0] for dtype, found in parts.items()}


def digest(values: Sequence[torch.Tensor | None]) -> str:
    """Return a SHA-256 of tensors by dtype, shape and every bit, truncated to 128 bits; all NaN count as equal."""
    found = hashlib.sha256()
    for each in values:
        found.update(f"{None if each is None else (each.dtype, tuple(each.shape))}".encode())
        if each is not None:
            plain = _one_nan(each.detach().cpu().resolve_conj().resolve_neg()).reshape(-1)
            plain = plain if plain.stride() == (1,) else plain.clone(memory_format=torch.contiguous_format)
            found.update(plain.view(torch.uint8).numpy().tobytes())
    return found.hexdigest()[:32]


def call_digests(operator: Operator, inputs: str, outputs: Tensors, *, backward: bool) -> CallDigests:
    """Return a call's digests, and whether every correct device gives these bits: for moved or integer results."""
    with unseen():
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
    return plain.view(_INTEGERS[plain.element_size()]) if plain.dtype is not torch.bool else plain


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
    """Return a result that a device may give: each element is off by ``ulps``, up or down at random.

    Transcendental functions, quotients and roots are not correctly rounded everywhere: OpenCL's embedded profile, CUDA
    and vector libraries allow some ulp. ``propagated`` times the error of the reference run is added, if errors of an
    earlier pass are part of it. With ``together``, each element is off by as much as the largest.
    """
    if (
        expected is None
        or reference_runs is None
        or not (reference_runs.is_floating_point() or reference_runs.is_complex())
    ):
        return reference_runs
    error, wide = _error(expected, reference_runs.dtype, ulps, together=together), reference_runs.to(expected.dtype)
    if reference_runs.is_complex():  # each part is off by as much as the whole
        expected, wide, error = torch.view_as_real(expected), torch.view_as_real(wide), error.unsqueeze(-1)
    direction = _directions("ops/shaken", expected)
    if propagated:
        error = error + propagated * (wide - expected).abs()
    moved = expected + direction * error
    moved = (torch.view_as_complex(moved) if reference_runs.is_complex() else moved).to(reference_runs.dtype)
    return torch.where(moved.isfinite() & reference_runs.isfinite(), moved, reference_runs)


def _error(expected: torch.Tensor, dtype: torch.dtype, ulps: float, *, together: bool) -> torch.Tensor:
    """Return the allowed error of each element; in float64 in units of the largest: nothing more exact is known."""
    info = torch.finfo(dtype)
    size, is_reference = expected.abs().nan_to_num(0.0, 0.0, 0.0), info.bits == _REFERENCE_BITS
    ulps = _REFERENCE_ULPS if is_reference else ulps
    if (is_reference or together) and size.numel():
        size = size.max().expand_as(size)
    exponent = torch.frexp(size.clamp(info.smallest_normal, info.max)).exponent.double() - 1
    return ulps * info.eps * torch.exp2(exponent)


def signs(values: Sequence[torch.Tensor | None]) -> list[torch.Tensor]:
    """Return where numbers are negative or a negative zero; NaN has no sign."""
    with unseen():
        return [each.signbit() & ~each.isnan() for each in values if each is not None and each.is_floating_point()]
