"""Judging real floating-point tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from pytest_ascend.precision.allowances import ALLOWANCES, Allowances, Setting
from pytest_ascend.precision.cause import causes
from pytest_ascend.precision.chunks import pieces
from pytest_ascend.precision.explain import explain
from pytest_ascend.precision.figures import Figures, figures
from pytest_ascend.precision.formats import FORMATS, Format
from pytest_ascend.precision.judge import Finding, judge_by_model, judge_look
from pytest_ascend.precision.look import Look, look, look_at_few
from pytest_ascend.precision.measure import CHUNK, WIDE_UP_TO, Measurement, measure, measured_equal
from pytest_ascend.precision.nonfinite import FINITE, NAMES, accepts, classes, classes_in
from pytest_ascend.precision.pattern import Sample, pattern_of
from pytest_ascend.precision.rules import RULES
from pytest_ascend.precision.spread import EXACT_UP_TO
from pytest_ascend.precision.standards import ANY, DEFAULT, STANDARDS, Standard, adjusted
from pytest_ascend.records.verdict import Limit, Verdict, Worst

if TYPE_CHECKING:
    from pytest_ascend.precision.request import Request

Floats: TypeAlias = npt.NDArray[Any]

#: The numbers of the default standard, for dtypes that have no others.
_USUAL = STANDARDS[f"{DEFAULT}@1"].limits[ANY]
#: The most wrong elements that are looked at for a pattern.
LOOKED_AT = 1 << 16


def judge_floating(
    path: str, actual: torch.Tensor, expected: torch.Tensor, honest: Sequence[torch.Tensor], request: Request
) -> Verdict:
    """Judge tensors of equal shape; ``expected`` may be of a finer format than ``actual``."""
    form = FORMATS[actual.dtype]
    standard = adjusted(request.standard, form.name, request.limits, request.waiver)
    numbers = standard.numbers(form.name)
    tensors = (actual, expected, *honest)
    if standard.rule == "model" and (seen := _at_first_sight(path, tensors, form, request, standard)) is not None:
        return seen
    rule = None if standard.rule == "model" else RULES[standard.rule](numbers, form)
    equal = measured_equal(actual, expected, form) if standard.rule == "binary" else None
    found = equal or measure(actual, expected, honest, form, rule)
    finding = _nonfinite(found)
    if finding is None:
        with np.errstate(all="ignore"):
            finding = rule.finding(found) if rule is not None else _by_model(found, expected, form, request, numbers)
    verdict = _verdict(path, tensors, found, finding, standard)
    return replace(verdict, message=f"{verdict.message}\n  {request.beside}") if verdict.message else verdict


def _at_first_sight(
    path: str, tensors: Sequence[torch.Tensor], form: Format, request: Request, standard: Standard
) -> Verdict | None:
    """Accept large tensors that are equal, or that rounding or sums explain; None where figures have to decide."""
    actual, expected, *honest = tensors
    size = actual.numel()
    if not size or not all(each.device.type == "cpu" and each.is_contiguous() for each in tensors):
        return None
    if size <= EXACT_UP_TO:
        with np.errstate(all="ignore"):
            found = look_at_few(actual, expected, honest, form)
    elif size > WIDE_UP_TO and actual.element_size() > 1:
        found = look(actual, expected, form, only_rounding=bool(honest))
    else:
        return None
    if found is None:
        return None
    setting = Setting(
        format=form,
        root_mean_square=(found.expected_square_sum / found.count) ** 0.5,
        accumulation=request.accumulation,
        scale=request.scale,
        finer=FORMATS[expected.dtype].digits > form.digits,
        distinct=_distinct(expected),
    )
    finding = judge_look(found, setting, _allowances(standard.numbers(form.name)), is_beside=bool(honest))
    if finding is None:
        return None
    return Verdict(
        path=path,
        agrees=True,
        standard=standard.label,
        headline="agrees",
        metrics=_figures_when_read(tensors, form, found, finding),
        worst=_worst(tensors, found.place(actual, expected)) if found.furthest else None,
        limit=Limit(name=finding.rule, value=finding.limit),
        waiver=standard.waiver,
    )


def _figures_when_read(tensors: Sequence[torch.Tensor], form: Format, found: Look, finding: Finding) -> Figures:
    """Return figures that are computed from the tensors when somebody reads them; of tensors changed since, few."""
    versions = [each._version for each in tensors]  # noqa: SLF001 - no public name exists
    actual, expected, *honest = tensors

    def compute() -> Mapping[str, float]:
        if versions != [each._version for each in tensors]:  # noqa: SLF001
            return {}
        return figures(measure(actual, expected, honest, form))

    known = {"count": float(found.count), "max_abs": found.furthest, "limit_used": finding.used}
    return Figures(known, compute)


def _by_model(
    found: Measurement, expected: torch.Tensor, form: Format, request: Request, numbers: Mapping[str, float]
) -> Finding:
    return judge_by_model(found, _setting(found, expected, form, request), _allowances(numbers))


def _allowances(numbers: Mapping[str, float]) -> Allowances:
    if numbers is _USUAL:
        return ALLOWANCES
    whole: Any = {**numbers, "independent": int(numbers["independent"]), "terms": int(numbers["terms"])}
    return Allowances(**whole)


def _setting(found: Measurement, expected: torch.Tensor, form: Format, request: Request) -> Setting:
    sums = found.actual
    return Setting(
        format=form,
        root_mean_square=min((sums.expected_square_sum / max(sums.count, 1)) ** 0.5, sums.expected_max),
        accumulation=request.accumulation,
        scale=request.scale,
        finer=FORMATS[expected.dtype].digits > form.digits,
        distinct=_distinct(expected),
        branching=request.branching,
        approximated=(request.accumulation or 1) == 1 and any(0.51 < each.ulp_max < 4 for each in found.honest),
    )


def _distinct(expected: torch.Tensor) -> int:
    """How many different values, zero aside, a sample of at most 1024 elements holds."""
    if expected.numel() < 32:
        return expected.numel()
    flat = expected.reshape(-1) if expected.is_contiguous() else expected.flatten()[:: 1 + expected.numel() // 1024]
    values = flat[:: 1 + flat.numel() // 1024].cpu().to(torch.float64).numpy()
    return int(np.unique(values[values != 0]).size)


def _nonfinite(found: Measurement) -> Finding | None:
    if not found.nonfinite.mismatches:
        return None
    got, wanted = (NAMES[each] for each in found.nonfinite.first_is)
    return Finding(rule=f"{got} where {wanted} is expected", value=float(found.nonfinite.mismatches), limit=0.0)


def _verdict(
    path: str, tensors: Sequence[torch.Tensor], found: Measurement, finding: Finding, standard: Standard
) -> Verdict:
    verdict = Verdict(
        path=path,
        agrees=not finding.is_broken,
        standard=standard.label,
        headline="agrees",
        metrics=Figures({"limit_used": finding.used}, lambda: figures(found)),
        worst=_worst(tensors, found.actual.abs_argmax) if found.actual.abs_max > 0 else None,
        limit=Limit(name=finding.rule, value=finding.limit),
        waiver=standard.waiver,
    )
    return _broken(verdict, tensors, found, finding) if finding.is_broken else verdict


def _broken(verdict: Verdict, tensors: Sequence[torch.Tensor], found: Measurement, finding: Finding) -> Verdict:
    sample, worst = _wrong_elements(tensors, found, finding)
    finding = _at(tensors, worst, finding)
    text = f"{finding.rule}: {finding.value:.4g}, allowed {finding.limit:.4g}"
    if sample.total:
        text = f"{sample.total} of {tensors[0].numel()} elements differ; {text}"
    verdict = replace(
        verdict,
        headline=text,
        metrics={**verdict.metrics, "mismatches": float(sample.total)},
        worst=_worst(tensors, worst) if worst >= 0 else verdict.worst,
        limit=Limit(name=finding.rule, value=finding.limit),
        pattern=pattern_of(sample) or _pattern_of_all(tensors, found, finding),
    )
    return replace(verdict, message="\n".join(explain(verdict)))


def _at(tensors: Sequence[torch.Tensor], worst: int, finding: Finding) -> Finding:
    """Return the figures of the worst element itself, where they are known only to an octave."""
    if worst < 0 or finding.allowed is None or finding.rule != "error of one element":
        return finding
    index = np.unravel_index(worst, tuple(tensors[0].shape)) if tensors[0].dim() else ()
    actual, expected = (float(each[tuple(int(i) for i in index)]) for each in tensors[:2])
    limit = float(finding.allowed(np.array([expected]))[0])
    return replace(finding, value=abs(actual - expected), limit=limit)


#: What it usually means when no element is far off, but all of them together are.
ALTOGETHER = {
    "mean signed error in ulp": "no element is far off, but they are all off to one side: another rounding mode",
    "root mean square error": "no element is far off, but they all are more than honest ones",
    "root mean square error of one block": "no element is far off, but one block is worse than honest ones",
}


def _pattern_of_all(tensors: Sequence[torch.Tensor], found: Measurement, finding: Finding) -> str:
    ours, theirs = next(_float64(tensors))[:2]
    where = ALTOGETHER.get(finding.rule, "")
    if finding.block is not None:
        start = finding.block * found.actual.block
        where += f" (elements {start} to {min(start + found.actual.block, tensors[0].numel()) - 1})"
    differs = ours != theirs
    return "; ".join(filter(None, [where, *causes(ours[differs], theirs[differs], found.actual.format.name)]))


def _wrong_elements(tensors: Sequence[torch.Tensor], found: Measurement, finding: Finding) -> tuple[Sample, int]:
    """Go over the tensors again: which elements are beyond the limit, and which of them most."""
    sample, total, worst, start, furthest = Sample.of(tensors[0]), 0, -1, 0, 0.0
    for arrays in _float64(tensors):
        with np.errstate(all="ignore"):
            beyond = _beyond(arrays, found, finding)
        wrong = np.flatnonzero(beyond > 1)
        if wrong.size and sample.size < LOOKED_AT:
            sample.add(wrong + start, arrays[0][wrong], arrays[1][wrong])
        if wrong.size and beyond[wrong].max() > furthest:
            furthest = float(beyond[wrong].max())
            worst = start + int(wrong[int(beyond[wrong].argmax())])
        total += wrong.size
        start += arrays[0].size
    return sample.of_total(total), worst


def _beyond(arrays: Sequence[Floats], found: Measurement, finding: Finding) -> Floats:
    """Return each element's error as a multiple of what is allowed; Inf where NaN or Inf are out of place."""
    actual, expected, *honest = arrays
    form = found.actual.format
    is_number = classes_in(expected, form) == FINITE
    finite = (classes(actual) == FINITE) & is_number
    ratio = np.zeros(actual.shape)
    if finding.allowed is not None:
        ours, theirs = actual[finite], expected[finite]
        error = np.abs(ours - theirs)
        ratio[finite] = np.where(error == 0, 0.0, error / finding.allowed(theirs))
    ratio[~accepts(actual, expected, honest, form)] = np.inf
    if not found.nonfinite.explains_nan(form):
        ratio[np.isnan(actual) & is_number] = np.inf
    return ratio


def _float64(tensors: Sequence[torch.Tensor]) -> Iterator[list[Floats]]:
    for piece in pieces(tensors, CHUNK):
        yield [each.to(torch.float64).numpy() for each in piece]


def _worst(tensors: Sequence[torch.Tensor], place: int) -> Worst | None:
    if place < 0:
        return None
    index: list[int] = []
    rest = place
    for size in reversed(tensors[0].shape):
        rest, within = divmod(rest, size)
        index.insert(0, within)
    ours, theirs = (
        _shown(each.reshape(-1)[place] if each.is_contiguous() else each[tuple(index)]) for each in tensors[:2]
    )
    return Worst(index=tuple(index), actual=ours, expected=theirs)


#: Digits that tell neighbouring values apart; of shorter formats six.
SHOWN_DIGITS = {torch.float64: 17, torch.float32: 9}


def _shown(value: torch.Tensor) -> str:
    return f"{value.item():.{SHOWN_DIGITS.get(value.dtype, 6)}g}"
