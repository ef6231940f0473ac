"""Compare a device's results with the expected ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from pytest_ascend.precision import diagnosis
from pytest_ascend.precision.choices import without_jumps
from pytest_ascend.precision.floating import judge_floating
from pytest_ascend.precision.formats import ALLOWANCES, FORMATS, REAL_PARTS, Floats
from pytest_ascend.precision.nested import Leaf, children, kind, leaves
from pytest_ascend.precision.reference import Reference, Source, in_shapes_of, plain
from pytest_ascend.precision.settings import Request, Standard, as_tensor, differences, explain, standard_of
from pytest_ascend.precision.tallies import pieces
from pytest_ascend.records.verdict import Limit, Rule, Verdict, Worst
from pytest_ascend.system.errors import UsageError

#: Rules that compare a device's errors with those of reference runs.
NEED_REFERENCE_RUNS = ("model", "ratio")
#: A rejection below this multiple of the limit is narrow; correct layers have reached 1.2. The same for tensors with so
#: few elements that eight reference runs show few errors; two biases have reached 1.6. The last is that number.
NARROWLY, NARROWLY_OF_FEW, FEW = 1.5, 4.0, 32
#: Number of wrong parts of a nested output that a message shows in full.
SHOWN = 8


class Samples(tuple[Any, ...]):
    """Several reference runs of one output: ``compare(actual, expected, reference_runs=Samples([first, second]))``.

    A plain list of tensors has the same meaning where ``expected`` is one tensor.
    """


def compare(
    actual: Any,
    expected: Any,
    *,
    reference_runs: Any = None,
    standard: str | Standard | None = None,
    name: str = "output",
    accumulation: int | None = None,
    scale: float | None = None,
    branching: bool = False,
    limits: Mapping[str, float] | None = None,
    waiver: str = "",
    dtype: str | torch.dtype | None = None,
    device: str | torch.device | None = None,
    stride: bool | tuple[int, ...] | None = None,
    requires_grad: bool | None = None,
) -> Verdict:
    """Judge ``actual`` against ``expected``; both may be tensors, arrays, numbers, or structures of these.

    ``expected`` is a float64 reference (for ``actual`` in any floating-point dtype), or has the dtype required of
    ``actual``. ``reference_runs`` is the result of a correct implementation (the CPU) for the same inputs and dtype, or
    several as a list or :class:`Samples`; a reference of :func:`cpu_reference` includes its own. ``accumulation`` is
    the number of terms per sum (1: each element is computed by itself), ``scale`` the usual sum of their magnitudes.
    With ``branching``, the result is a gradient through ReLU, max pooling or other comparisons, which a correct device
    may decide otherwise. ``dtype``, ``device``, ``stride`` (True: that of ``expected``) and ``requires_grad`` are what
    PyTorch promises. ``limits`` replaces numbers of the standard; a looser one needs its reason as ``waiver``.

    Never raises for results that differ; raises :class:`UsageError` for inputs that cannot be judged.
    """
    request = Request(
        standard=standard_of(standard),
        limits=limits or {},
        waiver=waiver,
        accumulation=accumulation,
        scale=scale,
        branching=branching,
        dtype=None if dtype is None else str(dtype),
        device=None if device is None else str(device),
        stride=stride,
        requires_grad=requires_grad,
    )
    if _source_of(expected):
        expected = in_shapes_of(actual, expected)
    whole = Leaf(name, actual, expected, () if reference_runs is None else _each(reference_runs, expected))
    if (verdict := _of_choice(whole, request)) is not None:
        return verdict
    if all(isinstance(each, torch.Tensor) for each in (actual, expected, *whole.reference_runs)):
        return _judge(whole, request).as_whole()
    return joined([_judge(leaf, request) for leaf in leaves(whole)], name, request.standard)


def _source_of(expected: Any) -> Source | None:
    """Return the source of the first part of a result, if that is a reference."""
    first = next(iter((children(expected) or {0: expected}).values()), None)
    return first.source if isinstance(first, Reference) else None


def _of_choice(whole: Leaf, request: Request) -> Verdict | None:
    """Judge the determined parts of a result whose function leaves something open, such as signs."""
    source = _source_of(whole.expected)
    choice = source.choice(whole.expected) if source else None
    if choice is None:
        return None
    of, expected, free = choice
    try:
        actual = of(whole.actual)
    except Exception:  # noqa: BLE001 - another structure, shape or dtype, which is reported as such
        return None
    verdicts = [_judge(leaf, request) for leaf in leaves(Leaf(whole.path, actual, expected))]
    verdict = joined(verdicts, whole.path, request.standard)
    return replace(verdict, message=f"{verdict.message}\n  PyTorch leaves open: {free}") if verdict.message else verdict


def _each(reference_runs: Any, expected: Any) -> tuple[Any, ...]:
    """Return the reference runs: several as :class:`Samples`, or as a list that cannot be one run of the output."""
    if isinstance(reference_runs, Samples) or not isinstance(reference_runs, list | tuple):
        return tuple(reference_runs) if isinstance(reference_runs, Samples) else (reference_runs,)
    parts = children(expected)
    several = parts is None or all((children(each) or {}).keys() == parts.keys() for each in reference_runs)
    return tuple(reference_runs) if several and reference_runs else (reference_runs,)


def _judge(leaf: Leaf, request: Request) -> Verdict:
    if leaf.mismatch:
        return _refused(leaf.path, [f"structure: {leaf.mismatch}"], request)
    if isinstance(leaf.actual, PLAIN) or isinstance(leaf.expected, PLAIN):
        if type(leaf.actual) is type(leaf.expected) and leaf.actual == leaf.expected:
            return Verdict(path=leaf.path, agrees=True, standard=request.standard.label, headline="agrees")
        both = isinstance(leaf.actual, PLAIN) and isinstance(leaf.expected, PLAIN)
        theirs, ours = (f"{each!r:.80}" if both else kind(each) for each in (leaf.expected, leaf.actual))
        return _refused(leaf.path, [f"expected {theirs}, got {ours}"], request)
    if isinstance(leaf.expected, Reference):
        return _judge_reference(leaf, request)
    return _judge_numbers(leaf, request, _beside(len(leaf.reference_runs), request))


def _judge_reference(leaf: Leaf, request: Request) -> Verdict:
    """Judge with the reference's own reference runs; compute more of them before rejecting."""
    expected, notes = leaf.expected, leaf.expected.source.notes
    own = replace(leaf, expected=plain(expected))
    actual = leaf.actual
    if leaf.reference_runs or request.standard.rule not in NEED_REFERENCE_RUNS or not isinstance(actual, torch.Tensor):
        return _judge_numbers(own, request, "; ".join([_beside(len(leaf.reference_runs), request), *notes]))

    def judged(count: int) -> Verdict:
        every = expected.reference_runs(actual.dtype, count)
        reference_runs = tuple(each for each in every if each.dtype is actual.dtype)
        said = "; ".join([expected.source.described(actual.dtype, len(reference_runs)), *notes])
        beside, sampled = replace(own, reference_runs=reference_runs), replace(request, sampled=len(reference_runs) > 1)
        verdict = _judge_numbers(beside, sampled, said)
        of_rounding = (Rule.LARGEST_ULPS, Rule.RMS_ULPS, Rule.BIAS)  # which do not depend on reference runs
        if verdict.limit is None or (verdict.agrees and verdict.limit.name in map(str, of_rounding)):
            return verdict
        at_jumps = _at_jumps(beside, expected)
        return verdict if at_jumps is None else _judge_numbers(at_jumps, sampled, said)

    usual, *more = expected.source.counts
    narrowly = NARROWLY if actual.numel() >= FEW else NARROWLY_OF_FEW
    verdict = judged(usual)
    for step, count in enumerate(more):
        if verdict.agrees or verdict.limit is None or (step and _badness(verdict) > narrowly):
            break
        verdict = judged(count)
    return verdict if verdict.agrees else _with_formula(verdict, actual, own.expected, expected.source.operand(actual))


def _at_jumps(leaf: Leaf, reference: Reference) -> Leaf | None:
    """Return the expected values on the sides of jumps that the result took; None if no element is at a jump."""
    actual, moved = leaf.actual, reference.moved(leaf.actual.dtype)
    if not moved or actual.shape != leaf.expected.shape:
        return None
    if not actual.is_floating_point():  # elements may equal those of any reference run
        return replace(leaf, reference_runs=(*leaf.reference_runs, *(each.to(actual.dtype) for each in moved)))
    found = without_jumps(actual, leaf.expected, leaf.reference_runs, moved)
    return None if found is None else replace(leaf, expected=found[0], reference_runs=found[1])


def _with_formula(verdict: Verdict, actual: torch.Tensor, expected: torch.Tensor, x: torch.Tensor | None) -> Verdict:
    """Return the verdict, with a pattern that says so if a unary function seems to use another formula."""
    without_hf32 = verdict.pattern.partition(diagnosis.OF_HF32)[0]  # HF32 causes no smooth error
    where, *causes = without_hf32.removesuffix("; ").split("; ")
    if x is None or verdict.limit is None or causes not in ([], [diagnosis.AS_OF_16_BITS]):
        return verdict
    text = diagnosis.formula_of(*(each.detach().cpu().double().reshape(-1).numpy() for each in (x, actual, expected)))
    if not text:
        return verdict
    verdict = replace(verdict, pattern="; ".join(filter(None, [where, text])))
    return replace(verdict, message="\n".join([*explain(verdict), verdict.message.splitlines()[-1]]))


def _judge_numbers(leaf: Leaf, request: Request, beside: str) -> Verdict:
    """Judge tensors, arrays and numbers; ``beside`` describes the reference runs in the message."""
    number = torch.get_default_dtype()
    expected = as_tensor(leaf.expected, f"expected {leaf.path}", torch.float64)
    reference_runs = [as_tensor(each, f"reference run {leaf.path}", number) for each in leaf.reference_runs]
    number = reference_runs[0].dtype if reference_runs and reference_runs[0].is_floating_point() else number
    actual = as_tensor(leaf.actual, leaf.path, number)
    wrong = list(differences(actual, expected, reference_runs, request, leaf.actual, leaf.expected))
    if wrong:
        return _refused(leaf.path, wrong, request)
    for one in reference_runs:
        if one.shape != expected.shape:
            raise UsageError(
                f"reference run {leaf.path} has shape {tuple(one.shape)}, expected {tuple(expected.shape)}",
                hint="run the same function on the same inputs for both",
            )
    if actual.dtype in REAL_PARTS:
        actual, expected, *reference_runs = (torch.view_as_real(each) for each in (actual, expected, *reference_runs))
    if actual.dtype in FORMATS:
        verdict = judge_floating(leaf.path, actual, expected, reference_runs, request)
        if not verdict.agrees:
            verdict = diagnosis.explained(verdict, [actual, expected, *reference_runs], request, judge_floating)
    else:
        chosen = [actual, expected, *(reference_runs if request.sampled else ())]
        verdict = judge_exact(leaf.path, chosen, request.standard)
    return replace(verdict, message=f"{verdict.message}\n  {beside}") if verdict.message else verdict


def _beside(reference_runs: int, request: Request) -> str:
    """Describe the reference runs used, and what would make the judgement sharper."""
    if request.standard.rule not in NEED_REFERENCE_RUNS:
        return ""
    if reference_runs:
        return f"compared with {reference_runs} reference run{'s' if reference_runs > 1 else ''}"
    known = request.accumulation
    terms = f"{known} terms" if known else f"{ALLOWANCES.terms} terms assumed"
    return (
        f"no reference runs, limits from the model of sums ({terms}): for tighter limits pass expected from "
        "cpu_reference(function, *inputs), or reference_runs=, the CPU's result in the same dtype"
    )


#: Types compared by ``==``, not numerically.
PLAIN = (type(None), str, bytes)


def _refused(path: str, wrong: Sequence[str], request: Request) -> Verdict:
    verdict = Verdict(path=path, agrees=False, standard=request.standard.label, headline="; ".join(wrong))
    return replace(verdict, message="\n".join(explain(verdict)))


def joined(found: Sequence[Verdict], name: str, standard: Standard | None = None) -> Verdict:
    """Return one verdict for several parts that are not nested themselves."""
    if not found:
        label = standard_of(standard).label
        return Verdict(path=name, agrees=True, standard=label, headline="agrees: nothing to compare")
    if len(found) == 1 and found[0].path == name:
        return found[0].as_whole()
    wrong = [each for each in found if not each.agrees]
    worst = max(wrong or found, key=_badness)
    headline, message = worst.headline, worst.message
    if wrong:
        counted = f"{len(wrong)} of {len(found)} parts differ; " if len(found) > 1 else ""
        headline = f"{counted}{worst.path}: {headline}"
        rest = [f"and {len(wrong) - SHOWN} more"] if len(wrong) > SHOWN else []
        message = "\n".join([f"{name}: {headline}", *(each.message for each in wrong[:SHOWN]), *rest])
    return replace(worst, path=name, headline=headline, message=message, leaves=tuple(found))


def _badness(verdict: Verdict) -> float:
    """Return a sort key, larger for worse: wrong attributes and misplaced NaN, then the error relative to its limit."""
    if verdict.agrees:
        return verdict.metrics.get("limit_used", 0.0)
    if verdict.limit is None or not verdict.metrics:
        return float("inf")
    return verdict.metrics.get("limit_used", 1.0)


#: Elements compared at a time, and most unequal elements searched for a pattern.
CHUNK, LOOKED_AT = 1 << 18, 1 << 16


def judge_exact(path: str, tensors: Sequence[torch.Tensor], standard: Standard) -> Verdict:
    """Judge tensors of an exact dtype and equal shape: actual, expected, and others that an element may equal instead.

    Correct devices may choose differently among nearly equal values, as when selecting the experts for a token.
    """
    parts: list[tuple[Floats, Floats, Floats]] = []
    unequal, start = 0, 0
    # Numpy lacks the shorter formats without an error model: their bits are compared.
    plain = [each.view(torch.uint8) if each.dtype.is_floating_point else each for each in tensors]
    for ours, theirs, *others in pieces(plain, CHUNK):
        wrong = ours != theirs
        for each in others:
            wrong &= ours != each
        differs = torch.nonzero(wrong).reshape(-1)
        unequal += differs.numel()
        if differs.numel() and sum(each[0].size for each in parts) < LOOKED_AT:
            parts.append((differs.numpy() + start, ours[differs].numpy(), theirs[differs].numpy()))
        start += ours.numel()
    sample = diagnosis.Sample.of(tensors[0], parts, unequal)
    label = f"{standard.label}: exact for {sample.dtype}"
    metrics = {"count": float(start), "mismatches": float(unequal)}
    if not unequal:
        return Verdict(path=path, agrees=True, standard=label, headline="agrees", metrics=metrics)
    # The element with the largest error, by Python's integers, which do not overflow.
    seen = zip(sample.actual[:4096], sample.expected[:4096], strict=True)
    place = int(np.argmax(np.array([abs(int(a) - int(e)) for a, e in seen], dtype=np.float64)))
    verdict = Verdict(
        path=path,
        agrees=False,
        standard=label,
        headline=f"{unequal} of {start} elements differ, where every one has to be equal",
        metrics={**metrics, "limit_used": float(unequal)},
        worst=Worst(
            index=diagnosis.index_of(int(sample.places[place]), sample.shape),
            actual=str(sample.actual[place]),
            expected=str(sample.expected[place]),
        ),
        limit=Limit(name=str(Rule.UNEQUAL), value=0.0),
        pattern=diagnosis.pattern_of(sample),
        worst_elements=diagnosis.worst_elements(sample),
        where=diagnosis.map_of(sample),
    )
    return replace(verdict, message="\n".join(explain(verdict)))


#: Metrics whose distribution is reported, and its percentiles.
REPORTED_METRICS, PERCENTILES = ("limit_used", "max_abs", "rmse", "ulp_mean", "ulp_max", "cosine"), (0, 50, 90, 99, 100)
#: The required form of a sample.
SAMPLE = "give (actual, expected) or (actual, expected, reference_run) for each"


@dataclass(frozen=True, kw_only=True, slots=True)
class PassRate:
    """One verdict per sample; ``figures`` maps each metric to its values at :data:`PERCENTILES`."""

    verdicts: tuple[Verdict, ...]
    figures: Mapping[str, tuple[float, ...]]

    @property
    def passed(self) -> int:
        """Return the number of samples that agree."""
        return sum(verdict.agrees for verdict in self.verdicts)

    @property
    def rate(self) -> float:
        """Return the share of samples that agree, from 0 to 1."""
        return self.passed / len(self.verdicts)

    def explain(self) -> Iterator[str]:
        """Yield the rate, the distributions, and the first samples that differ."""
        yield f"{self.passed} of {len(self.verdicts)} samples agree ({100 * self.rate:.4g} %)"
        yield f"{'figure':12}" + "".join(f"{f'p{each}':>12}" for each in PERCENTILES)
        for name, values in self.figures.items():
            yield f"{name:12}" + "".join(f"{value:12.3e}" for value in values)
        wrong = [f"sample {place}: {each.headline}" for place, each in enumerate(self.verdicts) if not each.agrees]
        yield from wrong[:8]


def pass_rate(samples: Iterable[Sequence[Any]], **settings: Any) -> PassRate:
    """Judge every sample: pairs of actual and expected, or triples with a reference run.

    ``settings`` are those of :func:`pytest_ascend.precision.compare`. Raises :class:`UsageError` without any sample.
    """
    if not isinstance(samples, Iterable):
        raise UsageError(f"{samples!r:.80} holds no samples", hint=SAMPLE)
    verdicts = []
    for sample in samples:
        if not isinstance(sample, tuple | list):
            raise UsageError(f"a sample is {kind(sample)}", hint=SAMPLE)
        if len(sample) not in (2, 3):
            raise UsageError(f"a sample has {len(sample)} parts", hint=SAMPLE)
        beside = {"reference_runs": sample[2]} if len(sample) > 2 else {}
        verdicts.append(compare(sample[0], sample[1], **beside, **settings))
    if not verdicts:
        raise UsageError("there are no samples to judge", hint="give pairs of actual and expected results")
    figures = {}
    for name in REPORTED_METRICS:
        if values := [verdict.metrics[name] for verdict in verdicts if name in verdict.metrics]:
            figures[name] = tuple(np.percentile(values, PERCENTILES, method="nearest").tolist())
    return PassRate(verdicts=tuple(verdicts), figures=figures)
