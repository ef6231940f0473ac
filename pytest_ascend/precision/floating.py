"""Judging real floating-point tensors: by the error model, or by a published rule that processes every chunk."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import torch

from pytest_ascend.precision import errors
from pytest_ascend.precision.diagnosis import Sample, causes, index_of, map_of, pattern_of, worst_elements
from pytest_ascend.precision.error_model import Finding, judge_by_model, judge_quickly
from pytest_ascend.precision.errors import Measurement, Observer
from pytest_ascend.precision.formats import ALLOWANCES, FORMATS, Allowances, Floats, Format
from pytest_ascend.precision.settings import ANY, DEFAULT, STANDARDS, Request, Setting, Standard, adjusted, explain
from pytest_ascend.precision.tallies import SHARES, percentiles, pieces
from pytest_ascend.records.verdict import Limit, Rule, Verdict, Worst
from pytest_ascend.system.errors import UsageError

Numbers: TypeAlias = Mapping[str, float]
#: A published rule: an observer of every chunk, and a function that returns the deciding finding after the pass.
Published: TypeAlias = tuple[Observer, Callable[[Measurement], Finding]]


@dataclass(slots=True)
class Errors:
    """Errors relative to a bound at each expected value: the number that exceed it, their sum and their maximum."""

    bound: Callable[[Floats], Floats]
    beyond: int = 0
    total: float = 0.0
    largest: float = 0.0

    def add(self, actual: Floats, expected: Floats, *_reference_runs: Floats) -> None:
        """Process a chunk."""
        error, bound = np.abs(actual - expected), self.bound(expected)
        ratio = error / bound
        self.beyond += int(np.count_nonzero(error > bound))
        self.total += float(ratio.sum())
        self.largest = max(self.largest, float(ratio.max(initial=0.0)))


def relative(numbers: Numbers, _form: Format) -> Published:
    """Limit the mean and maximum of the relative error, whose denominator is the magnitude plus ``offset``.

    Both must be below their limits; equality is too much.
    """
    seen = Errors(lambda expected: np.abs(expected) + numbers["offset"])
    limit, mean_limit = (math.nextafter(numbers[name], 0) for name in ("max", "mean"))

    def finding(found: Measurement) -> Finding:
        average = seen.total / max(found.actual.count, 1)
        mean = Finding(rule="mean relative error", value=average, limit=mean_limit)
        largest = Finding(
            rule="largest relative error",
            value=seen.largest,
            limit=limit,
            allowed=lambda expected: limit * seen.bound(expected),
        )
        return largest if largest.is_broken else max(mean, largest, key=lambda each: each.used)

    return seen.add, finding


def mixed(numbers: Numbers, form: Format) -> Published:
    """Require a share of elements within ``atol + rtol * abs(expected)``, and none beyond ``max(floor, ulps)``."""
    usual = _within_tolerances(numbers)
    far = Errors(lambda expected: np.maximum(numbers["floor"], numbers["ulps"] * form.ulp(np.abs(expected))))

    def add(*chunk: Floats) -> None:
        usual.add(*chunk)
        far.add(*chunk)

    def finding(found: Measurement) -> Finding:
        rule = "error of one element, as a multiple of max(floor, 32 ulp)"
        furthest = Finding(rule=rule, value=far.largest, limit=1.0, allowed=far.bound)
        rule, share = "share of elements beyond atol + rtol * abs(expected)", usual.beyond / max(found.actual.count, 1)
        beyond = Finding(rule=rule, value=share, limit=1 - numbers["share"], allowed=usual.bound)
        return furthest if furthest.is_broken else max(furthest, beyond, key=lambda each: each.used)

    return add, finding


def close(numbers: Numbers, _form: Format) -> Published:
    """Require every element within ``atol + rtol * abs(expected)``."""
    seen, rule = _within_tolerances(numbers), "error of one element, as a multiple of atol + rtol * abs(expected)"
    return seen.add, lambda _: Finding(rule=rule, value=seen.largest, limit=1.0, allowed=seen.bound)


def _within_tolerances(numbers: Numbers) -> Errors:
    return Errors(lambda expected: numbers["atol"] + numbers["rtol"] * np.abs(expected))


def ulp(numbers: Numbers, form: Format) -> Published:
    """Limit the share of elements beyond a number of ulp, or (if the standard has one) the mean error in ulp.

    Either a low mean or a low share is enough.
    """
    seen = Errors(lambda expected: numbers["ulps"] * form.ulp(np.abs(expected)))
    limit, rule = math.nextafter(numbers["share"], 0), f"share of elements beyond {numbers['ulps']:g} ulp"

    def finding(found: Measurement) -> Finding:
        count = max(found.actual.count, 1)
        share = Finding(rule=rule, value=seen.beyond / count, limit=limit, allowed=seen.bound)
        mean = Finding(rule="mean error in ulp", value=found.actual.ulp_sum / count, limit=numbers["mean"])
        return mean if share.is_broken and not mean.is_broken else share

    return seen.add, finding


def thousandth(numbers: Numbers, _form: Format) -> Published:
    """Require a share of elements with a relative error of at most 0.1 %, from the sums of the pass."""

    def finding(found: Measurement) -> Finding:
        rule, count = "share of elements beyond 0.1 %", found.actual.count
        share, limit = 1 - found.actual.within[0] / count if count else 0.0, 1 - numbers["share"]
        return Finding(rule=rule, value=share, limit=limit, allowed=lambda expected: 0.001 * np.abs(expected))

    return lambda *_: None, finding


def binary(numbers: Numbers, _form: Format) -> Published:
    """Require bitwise equality: a single unequal element fails; zeros of different sign are unequal."""
    unequal, limit = [0], numbers["elements"]

    def add(actual: Floats, expected: Floats, *_reference_runs: Floats) -> None:
        unequal[0] += int(np.count_nonzero((actual != expected) | (np.signbit(actual) != np.signbit(expected))))

    return add, lambda _: Finding(rule=Rule.UNEQUAL_BITS, value=float(unequal[0]), limit=limit, allowed=np.zeros_like)


@dataclass(slots=True)
class Tally:
    """Errors of one side. Values below ``small_value`` are counted separately, if wrong by more than ``small_atol``."""

    numbers: Numbers
    count: int = 0
    square_sum: float = 0.0
    usual: int = 0
    rel_sum: float = 0.0
    rel_max: float = 0.0
    small_off: int = 0

    def add(self, actual: Floats, expected: Floats) -> None:
        """Process a chunk (float64)."""
        error, magnitude = np.abs(actual - expected), np.abs(expected)
        is_small = magnitude < self.numbers["small_value"]
        ratio = error[~is_small] / magnitude[~is_small]
        self.count += error.size
        self.square_sum += float(error.dot(error))
        self.usual += ratio.size
        self.rel_sum += float(ratio.sum())
        self.rel_max = max(self.rel_max, float(ratio.max(initial=0.0)))
        self.small_off += int(np.count_nonzero(error[is_small] > self.numbers["small_atol"]))

    def figures(self) -> dict[str, tuple[str, float]]:
        """Return the metrics to compare with the other side's, with their titles, by the names of their limits."""
        return {
            "max_rel": ("largest relative error", self.rel_max),
            "mean_rel": ("mean relative error", self.rel_sum / max(self.usual, 1)),
            "rmse": ("RMSE", math.sqrt(self.square_sum / max(self.count, 1))),
            "small": ("share of small values that are off", self.small_off / max(self.count - self.usual, 1)),
        }


def ratio(numbers: Numbers, _form: Format) -> Published:
    """Limit the device's errors relative to those of a second device, each of which counts as at least the floor.

    The reference run is the second device's result in the same dtype; only its finite values count.
    """
    ours, theirs = Tally(numbers), Tally(numbers)

    def add(actual: Floats, expected: Floats, *reference_runs: Floats) -> None:
        if not reference_runs:
            hint = "give reference_runs=..., the same function run on the CPU in the same dtype"
            raise UsageError("standard benchmark-ratio needs the result of a second device", hint=hint)
        ours.add(actual, expected)
        finite = np.isfinite(reference_runs[0])
        theirs.add(reference_runs[0][finite], expected[finite])

    def finding(_: Measurement) -> Finding:
        found, others = [], theirs.figures()
        for key, (title, mine) in ours.figures().items():
            its = others[key][1]
            if key != "small":
                value = mine / max(its, numbers["floor"])
            else:
                value = mine / its if its else 10_000.0 if mine else 1.0  # as for the smallest share
            rule = f"{title}, as a multiple of the second device's"
            found.append(Finding(rule=rule, value=value, limit=numbers[key]))
        return max(found, key=lambda each: each.used)

    return add, finding


#: The rules that a row of the table of standards can name.
RULES: Mapping[str, Callable[[Numbers, Format], Published]] = {
    each.__name__: each for each in (relative, mixed, close, ulp, thousandth, ratio, binary)
}

#: Most wrong elements examined for a pattern.
LOOKED_AT = 1 << 16


def judge_floating(
    path: str, actual: torch.Tensor, expected: torch.Tensor, reference_runs: Sequence[torch.Tensor], request: Request
) -> Verdict:
    """Judge tensors of equal shape; ``expected`` may have a finer format than ``actual``."""
    form = FORMATS[actual.dtype]
    standard = adjusted(request.standard, form.name, request.limits, request.waiver)
    numbers = standard.numbers(form.name)
    tensors = (actual, expected, *reference_runs)
    if standard.rule == "model":
        with np.errstate(all="ignore"):
            seen = _at_first_sight(path, tensors, form, request, standard)
        if seen is not None:
            return seen
    observe, finding_of = RULES[standard.rule](numbers, form) if standard.rule != "model" else (None, None)
    equal = errors.measured_equal(actual, expected, form) if standard.rule == "binary" else None
    found = equal or errors.measure(actual, expected, reference_runs, form, observe)
    if found.nonfinite.mismatches:
        got, wanted = (errors.NAMES[each] for each in found.nonfinite.first_is)
        text = f"{got} where {wanted} is expected"
        finding = Finding(rule=text, value=float(found.nonfinite.mismatches), limit=0.0)
    else:
        with np.errstate(all="ignore"):
            if finding_of is not None:
                finding = finding_of(found)
            else:
                sums, largest = found.actual, (each.ulp_max for each in found.reference_runs)
                root = min((sums.expected_square_sum / max(sums.count, 1)) ** 0.5, sums.expected_max)
                # An error of a reference run above half an ulp shows that it is not correctly rounded.
                approximated = (request.accumulation or 1) == 1 and any(0.51 < each < 4 for each in largest)
                setting = replace(_setting(expected, form, request, root), approximated=approximated)
                finding = judge_by_model(found, setting, _allowances(numbers))
    return _verdict(path, tensors, found, finding, standard)


def _at_first_sight(
    path: str, tensors: Sequence[torch.Tensor], form: Format, request: Request, standard: Standard
) -> Verdict | None:
    """Accept tensors that are equal, or whose errors rounding or sums explain; None if metrics must decide."""
    actual, expected, *reference_runs = tensors
    size = actual.numel()
    if not size or not all(each.device.type == "cpu" and each.is_contiguous() for each in tensors):
        return None
    found = errors.quick_measure(actual, expected, form, only_rounding=bool(reference_runs))
    if found is None:
        return None
    setting = _setting(expected, form, request, (found.expected_square_sum / found.count) ** 0.5)
    allowances = _allowances(standard.numbers(form.name))
    finding = judge_quickly(found, setting, allowances, has_reference_runs=bool(reference_runs))
    if finding is None:
        return None
    # Metrics are computed from the tensors when read; only a few if the tensors have changed since.
    versions = [each._version for each in tensors]  # noqa: SLF001 - no public name exists

    def compute() -> Mapping[str, float]:
        if versions != [each._version for each in tensors]:  # noqa: SLF001
            return {}
        return figures(errors.measure(actual, expected, reference_runs, form))

    return Verdict(
        path=path,
        agrees=True,
        standard=standard.label,
        headline="agrees",
        metrics=Figures({"count": float(found.count), "max_abs": found.abs_max, "limit_used": finding.used}, compute),
        worst=_worst(tensors, errors.furthest_of(found, actual, expected)) if found.abs_max else None,
        limit=Limit(name=str(finding.rule), value=finding.limit),
        waiver=standard.waiver,
    )


def _allowances(numbers: Mapping[str, float]) -> Allowances:
    if numbers is STANDARDS[f"{DEFAULT}@1"].limits[ANY]:
        return ALLOWANCES
    whole: Any = {**numbers, "independent": int(numbers["independent"]), "terms": int(numbers["terms"])}
    return Allowances(**whole)


def _setting(expected: torch.Tensor, form: Format, request: Request, root_mean_square: float) -> Setting:
    distinct = expected.numel()
    if distinct >= 32:  # the number of distinct nonzero values in a sample of at most 1024
        flat = expected.reshape(-1) if expected.is_contiguous() else expected.flatten()[:: 1 + distinct // 1024]
        values = flat[:: 1 + flat.numel() // 1024].cpu().to(torch.float64).numpy()
        distinct = int(np.unique(values[values != 0]).size)
    return Setting(
        format=form,
        root_mean_square=root_mean_square,
        request=request,
        finer=FORMATS[expected.dtype].digits > form.digits,
        distinct=distinct,
    )


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
        limit=Limit(name=str(finding.rule), value=finding.limit),
        waiver=standard.waiver,
    )
    if verdict.agrees:
        return verdict
    sample, worst = _wrong_elements(tensors, found, finding)
    if worst >= 0 and finding.allowed is not None and finding.rule == Rule.ELEMENT:
        # The worst element's own error and limit: so far, both are known only by octave.
        actual, expected = (float(each[index_of(worst, each.shape)]) for each in tensors[:2])
        limit = float(finding.allowed(np.array([expected]))[0])
        finding = replace(finding, value=abs(actual - expected), limit=limit)
    pattern = pattern_of(sample)
    if not pattern:
        ours, theirs = (each.numpy() for each in next(pieces(tensors[:2], errors.CHUNK, torch.float64)))
        where = ALTOGETHER.get(finding.rule, "")
        if finding.block is not None:
            start = finding.block * found.actual.block
            where += f" (elements {start} to {min(start + found.actual.block, tensors[0].numel()) - 1})"
        differs = ours != theirs
        pattern = "; ".join(filter(None, [where, *causes(ours[differs], theirs[differs], found.actual.format.name)]))
    text = f"{finding.rule}: {finding.value:.4g}, allowed {finding.limit:.4g}"
    if sample.total:
        text = f"{sample.total} of {tensors[0].numel()} elements differ; {text}"
    verdict = replace(
        verdict,
        headline=text,
        metrics={**figures(found), "limit_used": finding.used, "mismatches": float(sample.total)},
        worst=_worst(tensors, worst) if worst >= 0 else verdict.worst,
        limit=Limit(name=str(finding.rule), value=finding.limit),
        pattern=pattern,
        worst_elements=worst_elements(sample),
        where=map_of(sample),
    )
    return replace(verdict, message="\n".join(explain(verdict)))


#: The usual cause when no single element has a large error, but all of them together do.
ALTOGETHER: dict[str, str] = {
    Rule.BIAS: "no element is far off, but they are all off to one side: another rounding mode",
    Rule.RMS: "no element is far off, but on the whole more than reference runs",
    Rule.BLOCK: "no element is far off, but one block is further off than reference runs",
}


def _wrong_elements(tensors: Sequence[torch.Tensor], found: Measurement, finding: Finding) -> tuple[Sample, int]:
    """Pass over the tensors again, to find the elements beyond the limit and the worst of them."""
    parts: list[tuple[Floats, Floats, Floats]] = []
    total, worst, start, furthest = 0, -1, 0, 0.0
    for piece in pieces(tensors, errors.CHUNK, torch.float64):
        arrays = [each.numpy() for each in piece]
        with np.errstate(all="ignore"):
            if found.actual.count < tensors[0].numel():
                beyond = _beyond(arrays, found, finding)
            else:  # all are finite
                error = np.abs(arrays[0] - arrays[1])
                allowed = np.inf if finding.allowed is None else finding.allowed(arrays[1])
                beyond = np.where(error == 0, 0.0, error / allowed)
        wrong = np.flatnonzero(beyond > 1)
        if wrong.size and sum(each[0].size for each in parts) < LOOKED_AT:
            parts.append((wrong + start, arrays[0][wrong], arrays[1][wrong]))
        if wrong.size and beyond[wrong].max() > furthest:
            furthest = float(beyond[wrong].max())
            worst = start + int(wrong[int(beyond[wrong].argmax())])
        total += wrong.size
        start += arrays[0].size
    return Sample.of(tensors[0], parts, total), worst


def _beyond(arrays: Sequence[Floats], found: Measurement, finding: Finding) -> Floats:
    """Return each element's error as a multiple of its limit; Inf where NaN or Inf is misplaced."""
    actual, expected, *reference_runs = arrays
    form = found.actual.format
    is_number = errors.classes(expected, form.largest) == errors.FINITE
    finite = (errors.classes(actual) == errors.FINITE) & is_number
    ratio = np.zeros(actual.shape)
    if finding.allowed is not None:
        ours, theirs = actual[finite], expected[finite]
        error = np.abs(ours - theirs)
        ratio[finite] = np.where(error == 0, 0.0, error / finding.allowed(theirs))
    ratio[~errors.accepts(actual, expected, reference_runs, form)] = np.inf
    if not found.nonfinite.explains_nan(form):
        ratio[np.isnan(actual) & is_number] = np.inf
    return ratio


def _worst(tensors: Sequence[torch.Tensor], place: int) -> Worst:
    index = index_of(place, tensors[0].shape)
    digits = {torch.float64: 17, torch.float32: 9}  # these distinguish neighbouring values; six for shorter formats
    ours, theirs = (f"{each[index].item():.{digits.get(each.dtype, 6)}g}" for each in tensors[:2])
    return Worst(index=index, actual=ours, expected=theirs)


class Figures(Mapping[str, float]):
    """Metrics computed when read; ``known`` holds those that the judge has computed already."""

    def __init__(self, known: Mapping[str, float], compute: Callable[[], Mapping[str, float]]) -> None:
        self._known, self._compute = dict(known), compute

    @functools.cached_property
    def _all(self) -> Mapping[str, float]:
        found = {**self._compute(), **self._known}
        self._compute = dict  # frees what it refers to
        return found

    def __getitem__(self, name: str) -> float:
        return self._known[name] if name in self._known else self._all[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)

    def __bool__(self) -> bool:
        return True  # without computing the metrics

    def __repr__(self) -> str:
        return repr(dict(self))


def figures(found: Measurement) -> dict[str, float]:
    """Return every metric by name. Relative errors are Inf where zero was expected and the value is not zero.

    The cosine is 1 if both vectors are zero, 0 if only one is.
    """
    sums, special = found.actual, found.nonfinite
    count = max(sums.count, 1)
    result = {
        "count": float(sums.count),
        "max_abs": sums.abs_max,
        "mean_abs": sums.abs_sum / count,
        "max_rel": sums.rel_max,
        "mean_rel": sums.rel_sum / count,
        "rmse": math.sqrt(sums.square_sum / count),
        "ulp_max": sums.ulp_max,
        "ulp_mean": sums.ulp_sum / count,
        **percentiles(sums.spread.entries()),
        **{f"within_{share:g}": within / count for share, within in zip(SHARES, sums.within, strict=True)},
        "cosine": 1.0 if sums.actual_square_sum == sums.expected_square_sum else 0.0,
        "bias_ulp": sums.outward_sum / count,
    }
    if norm := math.sqrt(sums.actual_square_sum) * math.sqrt(sums.expected_square_sum):
        result["cosine"] = max(-1.0, min(1.0, sums.product_sum / norm))
    if special.nan_actual or special.nan_expected or special.inf_actual or special.inf_expected:
        for name in ("nan_actual", "nan_expected", "inf_actual", "inf_expected"):
            result[name] = float(getattr(special, name))
        result["nonfinite_mismatches"] = float(special.mismatches)
    if found.reference_runs:
        squares = (each.square_sum / max(each.count, 1) for each in found.reference_runs)
        result["reference_rmse"] = math.sqrt(max(squares))
        result["reference_ulp_max"] = max(each.ulp_max for each in found.reference_runs)
    return result
