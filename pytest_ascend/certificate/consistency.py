"""Check that the records of a log agree with themselves and with the release, by deriving them again.

A log is the issuer's own account. These checks cannot show that it is true, only that no part contradicts another.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Any

from pytest_ascend.certificate.words import counted_cases, named
from pytest_ascend.coverage.expectations import BETTER, Expectations, parse
from pytest_ascend.isolation.attempts import Attempt, Decision, End, decide
from pytest_ascend.records.outcome import OUTCOMES, Disputed, Errored, Fallback, Flaky, Passed, Waived
from pytest_ascend.records.record import AttemptRecord, ResultRecord
from pytest_ascend.records.verdict import Limit, Verdict
from pytest_ascend.runlog.contents import Attempted, SelfTest
from pytest_ascend.verdict.suites import describe

if TYPE_CHECKING:
    from pytest_ascend.certificate.requirements import Candidate

#: Rules of the judge by which the bundled suites are judged. No bundled case loosens one.
STANDARDS = ("error-model@1", "binary@1")
#: Properties whose pass rests on a measurement, in suites that compare otherwise.
MEASURED = {
    ("random", "distribution"): "p_value_corrected",
    ("stability", "batch-invariance"): "differing_elements_share",
}
#: Planted errors and correct results that the judge is tested with in every run (``run/self_test.py``).
PLANTED, CORRECT = 15, 5
#: Rules whose figure is among the metrics of a comparison: the share of the limit is that figure over the limit.
FIGURES = {"largest error in ulp": "ulp_max", "error where zero is expected": "max_abs"}
#: Figures in ascending order: none may exceed the next.
ASCENDING = (("ulp_p50", "ulp_p99", "ulp_p99.9", "ulp_max"), ("within_0.001", "within_0.005", "within_0.01"))
#: Functions that are approximated or sums: their last bits are a chip's own. On the emulated device all of them have
#: the CPU's; with the numerics of a chip none has (docs/certification.md). With fewer of them there is no finding.
ROUNDED = {
    *("elu", "selu", "gelu", "silu", "mish", "softplus", "sigmoid", "softmax", "log_softmax", "logaddexp", "exp2"),
    *("expm1", "log2", "log10", "log1p", "rsqrt", "sin", "cos", "sinh", "cosh", "asinh", "acosh", "atanh", "erfc"),
    *("cross_entropy", "conv1d", "layer_norm", "group_norm", "prod", "var", "std", "norm", "cumsum", "einsum"),
}
FEWEST_ROUNDED, CPU_SHARE = 12, 0.5
_SIGNED = ("cosine", "bias_ulp")
_CLOSE = 1e-6


def leaves(result: ResultRecord) -> Iterator[str]:
    """A comparison agrees if each of its parts does, and repeats the figures of one of them."""
    for verdict in result.verdicts:
        parts = verdict.leaves
        if parts and verdict.agrees != all(each.agrees for each in parts):
            yield f"{verdict.path} {_said(verdict)}, and its parts do not say so"
        elif parts and verdict.metrics not in [each.metrics for each in parts]:
            yield f"{verdict.path} has figures that none of its parts has"
        elif not parts and verdict.metrics:
            yield f"{verdict.path} has figures and no part"


def figures(result: ResultRecord) -> Iterator[str]:
    """Whether a part agrees follows from its figures and its limit, and its words follow from that."""
    for verdict in result.verdicts:
        for each in (verdict, *verdict.leaves):
            yield from (f"{each.path} {_said(each)}, and {why}" for why in _contradicted(each))


def standards(result: ResultRecord) -> Iterator[str]:
    """The bundled suites are judged by the release's own rules, and no limit of theirs is loosened."""
    for verdict in result.verdicts:
        for each in (verdict, *verdict.leaves):
            if each.standard.partition(":")[0] not in STANDARDS:
                yield f"{each.path} is judged by {each.standard}"
            elif each.waiver:
                yield f"{each.path} is judged by a looser limit: {each.waiver}"


def compared(result: ResultRecord) -> Iterator[str]:
    """A pass rests on a comparison, or on the figure that its suite measures."""
    case = result.case
    if not isinstance(result.outcome, Passed) or not describe(case.suite).compares or result.verdicts:
        return
    figure = MEASURED.get((case.suite, case.property), "")
    if figure not in result.measurements:
        yield f"passed without {f'the figure {figure}' if figure else 'a comparison'}"


def measured(result: ResultRecord) -> Iterator[str]:
    """A measurement is a number, and a median lies among the samples that it is of."""
    for name, value in result.measurements.items():
        samples = result.series.get(name.replace("_p50_us", "_us"), ())
        if math.isnan(value) and isinstance(result.outcome, Passed):
            yield f"{name} is no number"
        elif name.endswith("_p50_us") and samples and abs(median(samples) - value) > 0.05 * abs(median(samples)):
            yield f"{name} is {value:.6g}, and the median of its samples {median(samples):.6g}"


def silent(result: ResultRecord) -> Iterator[str]:
    """A pass has no explanation; every other outcome has a reason."""
    fields = {name: getattr(result, name) for name in ("waiver", "diagnosis", "snippet")}
    fields |= {"reason": result.outcome.reason, "detail": result.outcome.detail}
    if isinstance(result.outcome, Passed):
        better = result.outcome.reason.startswith(BETTER) and result.outcome.detail == ""
        yield from (
            f"passed, with a {name}" for name, value in fields.items() if value and not (better and name == "reason")
        )
    elif not result.outcome.reason:
        yield f"{result.outcome.name} without a reason"
    if bool(result.waiver) != isinstance(result.outcome, Waived) and not isinstance(result.outcome, Disputed):
        yield f"{result.outcome.name}, {'with' if result.waiver else 'without'} a waiver"


def fallen_back(result: ResultRecord) -> Iterator[str]:
    """What the CPU computed has right numbers, and names the operators."""
    if isinstance(result.outcome, Fallback):
        if not all(verdict.agrees for verdict in result.verdicts):
            yield "computed by the CPU, and a comparison disagrees"
        if not result.fallbacks:
            yield "computed by the CPU, and no operator is named"


def placed(result: ResultRecord) -> Iterator[str]:
    """A case is run by a test of its own suite."""
    if result.node_id and f"/suites/{result.case.suite}/" not in f"/{result.node_id.partition('::')[0]}":
        yield f"run by {result.node_id[:80]}, which is no test of its suite"


#: Name -> what one record must agree with itself in.
RECORD_CHECKS: Mapping[str, Callable[[ResultRecord], Iterator[str]]] = {
    "leaves": leaves,
    "figures": figures,
    "standard": standards,
    "comparison": compared,
    "measurements": measured,
    "words": silent,
    "fallback": fallen_back,
    "test": placed,
}


def _of_records(check: Callable[[ResultRecord], Iterator[str]]) -> Callable[[Candidate], Iterator[str]]:
    """Run one check on every record, and report the first one that contradicts itself."""

    def look(candidate: Candidate) -> Iterator[str]:
        found = [(each.case.id, why) for each in candidate.results for why in check(each)]
        if found:
            also = f"; so do {len(found) - 1:,} more" if len(found) > 1 else ""
            yield f"the log contradicts itself: {found[0][0]}: {found[0][1]}{also}"

    return look


def attempts(candidate: Candidate) -> Iterator[str]:
    """A case's outcome follows from its attempts, and all but the last were recorded when they were made."""
    noted = Counter(each.case for each in candidate.summary.run.events if isinstance(each, Attempted))
    wrong = [each.case.id for each in candidate.results if not _follows(each, noted[each.case.id])]
    if wrong:
        yield f"{counted_cases(len(wrong))} whose outcome does not follow from the attempts: {named(wrong)}"


def _follows(result: ResultRecord, noted: int) -> bool:
    if result.attempts:
        try:
            made = [_attempt(each) for each in result.attempts]
        except ValueError:
            return False
        decision = decide(made)
        if decision is Decision.FLAKY:
            return isinstance(result.outcome, Flaky)
        is_last = (made[-1].answer if made[-1].end is End.ANSWERED else Errored.name) == result.outcome.name
        return decision in (Decision.ACCEPT, Decision.BLAME) and is_last and noted in (0, len(made) - 1)
    return noted == 0


def _attempt(given: AttemptRecord) -> Attempt:
    return Attempt(card=given.card, end=End(given.end), answer=given.outcome, alone=given.alone)


def known_deviations(candidate: Candidate) -> Iterator[str]:
    """Waivers are those of the release, word for word; what the release expects to fail has not passed."""
    known = parse(candidate.release.parts["expectations"], candidate.summary.run.header.stack)
    found = [(each.case.id, why) for each in candidate.results for why in _waived_otherwise(each, known)]
    by_why: dict[str, list[str]] = {}
    for name, why in found:
        by_why.setdefault(why, []).append(name)
    yield from (f"{counted_cases(len(names))} {why}: {named(names)}" for why, names in by_why.items())


def _waived_otherwise(result: ResultRecord, known: Expectations) -> Iterator[str]:
    named_, outcome = known.find(result.case.id), result.outcome
    if isinstance(outcome, (Waived, Disputed)):
        below = outcome.detail.partition(":")[0]
        causes = (each for each in reversed(known.entries) if each.cause == result.waiver.get("cause"))
        cause = next((each for each in causes if each.matches(result.case.id)), None)
        if cause is None:
            yield f"{outcome.name}, for which this release knows no such cause"
        elif below not in OUTCOMES or dict(result.waiver) != cause.waiver(OUTCOMES[below]()):
            yield f"{outcome.name} otherwise than this release does"
        elif cause.outcome not in (below, Disputed.name) or cause.says not in outcome.detail:
            yield f"{outcome.name}, and deviating otherwise than this release knows"
        elif cause.derived and below == Fallback.name and not result.fallbacks:
            yield "waived as without a kernel, and no operator is named"
    elif isinstance(outcome, Passed) and named_ and named_.outcome != Disputed.name:
        if not named_.confirmed and outcome.reason.startswith(BETTER):
            return
        yield "passed, which this release expects to deviate: such a run says otherwise"


def invented(candidate: Candidate) -> Iterator[str]:
    """Every case of the log is one of the release, unchanged."""
    frozen = set(candidate.frozen)
    strange = [case.id for case in candidate.summary.run.header.manifest if case not in frozen]
    if strange:
        yield f"{counted_cases(len(strange))} that this release does not have: {named(strange)}"


def self_test(candidate: Candidate) -> Iterator[str]:
    """The judge was tested with all planted errors of this release."""
    for each in candidate.summary.run.events:
        if isinstance(each, SelfTest) and (each.planted, each.correct) != (PLANTED, CORRECT):
            numbers = f"{each.planted} planted errors and {each.correct} correct results"
            yield f"the judge of the run was tried on {numbers}; this release has {PLANTED} and {CORRECT}"


def a_cpu(candidate: Candidate) -> Iterator[str]:
    """The figures are those of a chip: results without any error are a CPU's own, as on the emulated device."""
    rounded = [
        each
        for each in candidate.of(Passed.name)
        if each.case.suite == "ops" and (each.case.property, each.case.dtype) == ("forward", "float32")
        if each.case.subject.rpartition(".")[2] in ROUNDED
    ]
    exact = sum(all(verdict.metrics.get("max_abs", 0.0) == 0 for verdict in each.verdicts) for each in rounded)
    if len(rounded) >= FEWEST_ROUNDED and exact > CPU_SHARE * len(rounded):
        yield f"{exact} of {len(rounded)} approximated functions have the CPU's very bits, as on the emulated device"


CHECKS: Mapping[str, Callable[[Candidate], Iterator[str]]] = {
    **{name: _of_records(check) for name, check in RECORD_CHECKS.items()},
    "attempts": attempts,
    "known-deviations": known_deviations,
    "invented": invented,
    "self-test": self_test,
    "cpu": a_cpu,
}


def _said(verdict: Verdict) -> str:
    return "agrees" if verdict.agrees else "disagrees"


def _contradicted(verdict: Verdict) -> Iterator[str]:
    """Yield the contradictions in a comparison."""
    agrees, metrics, limit = verdict.agrees, verdict.metrics, verdict.limit
    used, differing = metrics.get("limit_used"), metrics.get("mismatches", 0)
    if agrees != verdict.headline.startswith("agrees"):
        yield f"says {verdict.headline!r}"
    if agrees and (verdict.message or verdict.pattern):
        yield "explains a difference"
    if agrees and differing:
        yield f"{differing:g} elements differ"
    if used is not None and agrees != (used <= 1):
        yield f"used {used:.6g} of its limit"
    if limit and used is None:
        yield "does not say how much of its limit it used"
    yield from _impossible(metrics, limit)


def _impossible(metrics: Mapping[str, Any], limit: Limit | None) -> Iterator[str]:
    """Yield figures that no tensor has."""
    yield from (f"{name} is {value:g}" for name, value in metrics.items() if value < 0 and name not in _SIGNED)
    if metrics.get("count", 1.0) % 1:
        yield f"it has {metrics['count']:g} elements"
    for names in ASCENDING:
        values = [metrics[name] for name in names if name in metrics]
        if any(one > other * (1 + _CLOSE) for one, other in pairwise(values)):
            yield f"{', '.join(names)} do not ascend"
    figure = FIGURES.get(limit.name, "") if limit else ""
    if limit and figure in metrics and limit.value and "limit_used" in metrics:
        used = metrics[figure] / limit.value
        if abs(used - metrics["limit_used"]) > _CLOSE * max(used, 1e-3):
            yield f"{figure} is {used:.6g} of its limit, and not {metrics['limit_used']:.6g}"
