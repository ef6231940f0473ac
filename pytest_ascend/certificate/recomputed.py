"""Recompute a run's description from its log and the release, and compare it with the log.

Each function yields a sentence for every statement of the log that contradicts the rest of the log or the release.
Plausibility is not judged: only re-execution reveals a consistent lie (docs/certification.md: what a log cannot show).
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from datetime import date, timedelta, timezone
from hashlib import sha256
from pathlib import PurePosixPath
from statistics import median
from typing import TYPE_CHECKING, Any

from pytest_ascend.certificate import timestamp
from pytest_ascend.certificate.words import of_cases
from pytest_ascend.coverage.expectations import BETTER, Expectations
from pytest_ascend.doctor.combination import speaks_of
from pytest_ascend.doctor.examination import RULES
from pytest_ascend.environment import compatibility, evidence
from pytest_ascend.environment.chips import family, objections, pinned
from pytest_ascend.environment.compatibility import INCOMPATIBLE
from pytest_ascend.environment.evidence import Evidence
from pytest_ascend.environment.npu_smi import soc
from pytest_ascend.environment.stack import Component, same
from pytest_ascend.environment.versions import Version, is_version
from pytest_ascend.records.bounds import moment
from pytest_ascend.records.outcome import OUTCOMES, Disputed, Errored, Fallback, Flaky, Passed, Waived
from pytest_ascend.records.record import ResultRecord
from pytest_ascend.records.verdict import Rule, Verdict
from pytest_ascend.runlog.contents import FULL, Attempted, LeftBehind, Quarantined, Resumed, TimeStamped
from pytest_ascend.runlog.reading import broken_chain
from pytest_ascend.system.attempts import Attempt, Decision, End, decide
from pytest_ascend.system.groups import by_key
from pytest_ascend.system.suites import describe
from pytest_ascend.verdict.merge import LONGEST

if TYPE_CHECKING:
    from pytest_ascend.certificate.requirements import Candidate

#: Rules by which the bundled suites are judged. No bundled case loosens one.
STANDARDS = ("error-model@1", "binary@1")
#: Properties that pass by a measurement, without a comparison.
MEASURED = {
    ("distributed", "collective"): "ranks",
    ("distributed", "product"): "error_over_allowed",
    ("distributed", "training"): "error_over_allowed",
    ("numerics", "accuracy"): "error_ulp",
    ("numerics", "gradient"): "error_ulp",
    ("random", "distribution"): "p_value_corrected",
    ("random", "battery"): "p_value_corrected",
    ("stability", "batch-invariance"): "differing_elements_share",
}
#: Rules whose figure is among the metrics of a comparison: the share of the limit is that figure over the limit. It is
#: less if the limit belongs to a single element and another element is further off.
FIGURES = {"largest error in ulp": "ulp_max", "error where zero is expected": "max_abs"}
#: The test of a case in any installation, as its path below ``suites``; a test with a single case has no brackets.
PLACE = re.compile(r"(?:.*/)?suites/((\w+)/test_\w+\.py::test_\w+(?:\[([^\0\n]+)\])?)")
#: This share of the passes may be in a dtype that the chip lacks: torch_npu computes logcumsumexp on the host, and
#: empty tensors reach no kernel (4 of 7,542 passes of level standard on a 310P).
WITHOUT_KERNEL = 0.005
#: Options that a user may choose, or that other statements of the log determine; all others must have their defaults.
_FREE = {
    *("device", "level", "challenge", "report", "against", "baselines", "timestamp", "ranks", "isolation", "cards"),
    *("deadline_s", "case_deadline_s", "resume", "arguments", "numerics", "expectations", "timing", "shard", "shards"),
    *("faults", "standard"),  # which are checked by a requirement of their own
}
#: Tolerance between two clocks; the log has whole seconds.
_SLACK = timedelta(seconds=60)
#: Tolerance between an authority's clock and a machine's.
_STAMP_SLACK = timedelta(minutes=10)
_ROUNDING_S = 2.0
#: Part of a stack -> the doctor's component for it.
_SEEN: Mapping[str, tuple[str, ...]] = {
    "driver": (evidence.DRIVER,),
    "firmware": (evidence.FIRMWARE,),
    "cann": (evidence.TOOLKIT, evidence.RUNTIME),
    "torch": (evidence.TORCH,),
    "torch_npu": (evidence.TORCH_NPU,),
    "torch_npu_commit": (evidence.COMMIT,),
    "nnal": (evidence.NNAL,),
    **{name.replace("-", "_"): (name,) for name in evidence.LIBRARIES},
    "python": (evidence.PYTHON,),
}


def differs(what: str, said: object, computed: object) -> Iterator[str]:
    """Yield a sentence if the log differs from what was computed."""
    if said != computed:
        yield f"the log says {what} {_shown(said)}, and {_shown(computed)} follows from the rest"


def _shown(value: object) -> str:
    return (f"{value:.6g}" if isinstance(value, float) else repr(value))[:120]


def header(candidate: Candidate) -> Iterator[str]:
    """Check that the header follows from the level, the chip, the release and the parts of a merged log."""
    head = candidate.summary.run.header
    frozen = {case.id: case for case in candidate.frozen}
    strange = [case.id for case in head.manifest if frozen.get(case.id) != case]
    yield from of_cases(strange, "that this release does not have")
    listed = {case.id for case in head.manifest}
    has_ranks = any(frozen[each].suite == "distributed" for each in listed & frozen.keys())
    due = (each for each in candidate.frozen if each.is_in(head.level) and (has_ranks or each.suite != "distributed"))
    # Missing cases of the tier are a requirement of their own.
    absent = [each.id for each in due if each.id not in listed and not candidate.tier.covers(each.suite)]
    if head.selection.kind == FULL:
        yield from of_cases(absent, f"of level {head.level} are not in its manifest")
    if head.shard:
        yield f"the log is part {head.shard.index} of {head.shard.count} of a run"
    parts = head.merged
    yield from differs("shards", head.options.get("shards"), len(parts) or None)
    yield from differs("the shard", head.options.get("shard"), f"1/{len(parts)}" if parts else None)
    hosts = list(dict.fromkeys(each.host for each in parts)) or [head.stack.host]
    if len(hosts) > 1 or "; " in head.stack.host:
        yield f"parts of the run were on different machines: {head.stack.host}"
    if parts:
        run_id = sha256("".join(each.run_id for each in parts).encode()).hexdigest()[:32]
        yield from differs("the number of the run", head.run_id, run_id)
        yield from differs("its start", moment(head.started), min(moment(each.started) for each in parts))
        yield from differs("its host", head.stack.host, hosts[0])
        ends = [moment(each.finished) for each in parts if each.finished]
        if candidate.summary.run.footer and len(ends) == len(parts):
            yield from differs("its end", moment(candidate.summary.run.footer.finished), max(ends))


def options(candidate: Candidate) -> Iterator[str]:
    """Check that the options are those of a whole run on an NPU, and that their consequences in the log follow."""
    head = candidate.summary.run.header
    given: dict[str, Any] = dict(head.options)
    if not re.fullmatch(r"auto|npu(:\d+)?", str(given.get("device", "auto"))):
        yield f"the run was asked for on the device {given['device']}"
    yield from differs("the level of the options", given.get("level"), head.level)
    cards = given.get("cards")
    usual = {"slowdown": 0.05, "seed": 1, "emulated_devices": cards if isinstance(cards, int) else None}
    for name in given.keys() - _FREE:
        if given[name] and given[name] != usual.get(name):
            yield f"the run had the option {name}={_shown(given[name])}"
    baselines = str(given.get("baselines", ""))
    yield from differs("the folder of the baselines", PurePosixPath(baselines).name, "baselines")
    # The arguments that rerun a case with these options.
    defaults = {"device": "auto", "level": "standard", "challenge": None, "ranks": 0, "isolation": "auto"}
    asked = (name for name, default in defaults.items() if given.get(name, default) != default)
    again = (f"--ascend-{'certify=challenge' if each == 'challenge' else each}={given[each]}" for each in asked)
    yield from differs("the arguments", sorted(given.get("arguments", ())), sorted(again))
    modes, timing, numerics = pinned(head.stack.chip), dict(given.get("timing", {})), dict(given.get("numerics") or {})
    for name in sorted({*modes, *numerics}):
        yield from differs(f"the setting {name}", numerics.get(name), modes.get(name))
        yield from differs(f"the setting {name} of timing", timing.get(name), modes.get(name))
    yield from (f"the run had {each}" for each in timing if each.startswith("emulated"))
    yield from differs("the cards of timing", timing.get("cards"), cards or 1)
    yield from differs("the known deviations", given.get("expectations"), candidate.known.summaries())


def judged(verdict: Verdict) -> Iterator[str]:
    """Check that each comparison's agreement follows from its figures and its limit, or from its parts."""
    metrics, limit, parts = verdict.metrics, verdict.limit, verdict.leaves
    used = metrics.get("limit_used")
    agrees = all(each.agrees for each in parts) if parts else verdict.agrees  # a dtype or shape has no figure
    # A limit of zero has no share: the number of differing elements is used instead.
    is_within = used is None or (used == 0 if limit and not limit.value else used <= 1)
    yield from differs("it agrees:", verdict.agrees, is_within and (agrees or (used is not None and not parts)))
    yield from differs("in words that it agrees:", verdict.headline.startswith("agrees"), verdict.agrees)
    if parts and metrics not in [each.metrics for each in parts]:
        yield "it has figures that none of its parts has"
    if verdict.agrees and (verdict.message or verdict.pattern or metrics.get("mismatches", 0)):
        yield "it agrees, and explains a difference"
    if verdict.standard.partition(":")[0] not in STANDARDS or verdict.waiver:
        yield f"it was judged by {verdict.standard}{f', loosened: {verdict.waiver}' if verdict.waiver else ''}"
    if limit and used is None:
        yield "it does not say how much of its limit it used"
    # All other metrics are sizes, counts and shares.
    negative = [name for name, value in metrics.items() if value < 0 and name not in ("cosine", "bias_ulp")]
    if negative or metrics.get("count", 0.0) % 1:
        yield f"{(negative or ['count'])[0]} is {metrics[(negative or ['count'])[0]]:g}, which is no size"
    figure = FIGURES.get(limit.name, "") if limit else ""
    if verdict.agrees and limit and figure in metrics and limit.value and used is not None:
        share = metrics[figure] / limit.value
        less = used < share and limit.name == str(Rule.ZERO)
        if abs(share - used) > 1e-6 * max(share, 1e-3) and not less:
            yield from differs("limit_used", used, share)


def record(result: ResultRecord) -> Iterator[str]:
    """Check that a record follows from its comparisons, figures and operators on the CPU."""
    case, outcome = result.case, result.outcome
    for verdict in result.verdicts:
        yield from (f"{each.path}: {why}" for each in (verdict, *verdict.leaves) for why in judged(each))
        if not verdict.leaves and verdict.metrics:
            yield f"{verdict.path}: it has figures and no part"
    place = PLACE.fullmatch(result.node_id)
    if outcome.name != "not-run" and not (place and place[2] == case.suite and place[3] in (None, case.id)):
        yield f"run by {result.node_id[:80] or 'no test'}, which is not the test of the case"
    for name, value in result.measurements.items():
        samples = result.series.get(name.replace("_p50_us", "_us"), ())
        if name.endswith("_p50_us") and samples and abs(median(samples) - value) > 0.05 * abs(median(samples)):
            yield from differs(name, value, median(samples))
        elif math.isnan(value) and isinstance(outcome, Passed):
            yield f"{name} is no number"
    if isinstance(outcome, Passed):
        figure = MEASURED.get((case.suite, case.property), "")
        is_due = figure or describe(case.suite).compares
        if is_due and not result.verdicts and figure not in result.measurements:
            yield f"passed without {f'the figure {figure}' if figure else 'a comparison'}"
        is_better = outcome.reason.startswith(BETTER)
        if (outcome.reason and not is_better) or outcome.detail or result.diagnosis or result.snippet:
            yield "passed, and explains a deviation"
    elif not outcome.reason:
        yield f"{outcome.name} without a reason"
    if bool(result.waiver) != isinstance(outcome, Waived) and not isinstance(outcome, (Disputed, Flaky)):
        yield f"{outcome.name}, {'with' if result.waiver else 'without'} a waiver"
    if isinstance(outcome, Fallback) and not (result.fallbacks and all(each.agrees for each in result.verdicts)):
        yield "computed by the CPU, and a comparison disagrees or no operator is named"


def records(candidate: Candidate) -> Iterator[str]:
    """Check that every record follows from its parts, and that no chip passes in a dtype that it lacks."""
    kind = family(candidate.summary.run.header.stack.chip)
    found = [(each.case.id, why) for each in candidate.results for why in record(each)]
    if kind and not kind.bfloat16:
        passed = candidate.of(Passed.name)
        of_ops = (each.case for each in passed if (each.case.suite, each.case.dtype) == ("ops", "bfloat16"))
        subjects = ((case.id, case.subject.partition(".")[0]) for case in of_ops)
        lacking = [each for each, name in subjects if objections(name, ["bfloat16"], kind.name)]
        if len(lacking) > WITHOUT_KERNEL * len(passed):
            found += [(each, f"passed in bfloat16, in which no {kind.name} computes it") for each in lacking]
    if found:
        also = f"; so do {len(found) - 1:,} more" if len(found) > 1 else ""
        yield f"the log contradicts itself: {found[0][0]}: {found[0][1]}{also}"


def attempts(candidate: Candidate) -> Iterator[str]:
    """Check that outcomes follow from attempts, and that all but the last were recorded when they were made."""
    noted = Counter(each.case for each in candidate.summary.run.events if isinstance(each, Attempted))
    wrong = [each.case.id for each in candidate.results if not follows(each, noted[each.case.id])]
    yield from of_cases(wrong, "whose outcome does not follow from the attempts")


def follows(result: ResultRecord, noted: int) -> bool:
    """Return whether the outcome of a case follows from its attempts, of which ``noted`` were recorded as events."""
    if not result.attempts:
        return noted == 0
    try:
        made = [Attempt(card=a.card, end=End(a.end), answer=a.outcome, alone=a.alone) for a in result.attempts]
    except ValueError:
        return False
    decision = decide(made)
    if decision is Decision.FLAKY:
        return isinstance(result.outcome, Flaky)
    is_last = (made[-1].answer if made[-1].end is End.ANSWERED else Errored.name) == result.outcome_name
    return decision in (Decision.ACCEPT, Decision.BLAME) and is_last and noted in (0, len(made) - 1)


def known_deviations(candidate: Candidate) -> Iterator[str]:
    """Check that waivers are the release's, word for word; cases that the release expects to fail must not pass."""
    found = ((each.case.id, why) for each in candidate.results for why in waived_otherwise(each, candidate.known))
    for why, names in by_key((why, name) for name, why in found).items():
        yield from of_cases(names, why)


def waived_otherwise(result: ResultRecord, known: Expectations) -> Iterator[str]:
    """Yield how the waiver of a case, or its pass, differs from the release's known deviations."""
    entry, outcome = known.find(result.case.id), result.outcome
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
    elif isinstance(outcome, Passed) and entry and not entry.optional and entry.outcome != Disputed.name:
        is_unsaid = entry.confirmed or not outcome.reason.startswith(BETTER)
        yield from ["passed, which this release expects to deviate: such a run says otherwise"] if is_unsaid else []


def chain(candidate: Candidate) -> Iterator[str]:
    """Check that the lines of the log are chained by their hashes, so that none was changed after it was written."""
    run = candidate.summary.run
    if not run.header.chain:
        yield "the lines of the log are not chained by their hashes, as earlier releases wrote them"
    elif run.broken:
        yield broken_chain(run.broken)


def time_stamps(candidate: Candidate) -> Iterator[str]:
    """Check that each time-stamp belongs to its line and to the time of the run; the verifier checks its authority."""
    run = candidate.summary.run
    if run.footer is None:
        return
    began, last = moment(run.header.started) - _STAMP_SLACK, moment(run.header.started)
    finished = moment(run.footer.finished)
    for each in run.events:
        if isinstance(each, Resumed):
            last = moment(each.at)
        elif isinstance(each, TimeStamped) and each.answer:
            at = timestamp.moment_of(each.answer, each.digest)
            if not began <= at <= finished + _STAMP_SLACK or at < last - _STAMP_SLACK:
                yield f"{each.authority} stamped a line at {at.isoformat()}, which is not within the run"


def clock(candidate: Candidate) -> Iterator[str]:
    """Check that times are in order, after the release, and leave enough time for the cases on the cards of the run."""
    run = candidate.summary.run
    if run.footer is None:  # rejected by a check of its own
        return
    started, finished = moment(run.header.started), moment(run.footer.finished)
    elapsed_s = (finished - started).total_seconds()
    known = date.fromisoformat(compatibility.load().as_of)
    if started.astimezone(timezone.utc).date() < known:
        yield f"the run started on {started.date()}, and what this release knows of versions is of {known}"
    if finished < started:
        yield f"the run finished at {run.footer.finished}, before it started at {run.header.started}"
    if (finished - _SLACK).astimezone(timezone.utc).date() > candidate.on:
        yield f"the certificate is of {candidate.on}, and the run ended on {finished.date()}"
    if finished - started > LONGEST:
        yield f"the run took {(finished - started).days:,} days; {LONGEST.days} at most are one run"
    times = [each for each in run.events if isinstance(each, Resumed)]
    deadline_s = float(run.header.options.get("deadline_s") or 0)
    at_last_s = (finished - moment(times[-1].at)).total_seconds() if times else elapsed_s
    if deadline_s and at_last_s > deadline_s + _SLACK.total_seconds():
        yield f"the run took {at_last_s:,.0f} s, and its deadline was {deadline_s:,.0f} s"
    lanes = max((len(each.cards) for each in candidate.cards), default=1)
    lanes = max(lanes, len(run.header.doctor.get("devices", ()))) * max(len(run.header.merged), 1)
    took = [each.duration_s for each in run.records]
    if max(took, default=0.0) > elapsed_s + _ROUNDING_S or sum(took) > lanes * (elapsed_s + _ROUNDING_S):
        yield f"the cases took {sum(took):,.0f} s, in a run of {elapsed_s:,.0f} s"
    last, count = started, 0
    for each in times:
        at = moment(each.at)
        if not last <= at <= finished or not count <= each.records <= len(run.records):
            yield f"the run was continued at {each.at} with {each.records} records, which is out of order"
        last, count = (at, each.records) if not run.header.merged else (started, 0)


def versions(candidate: Candidate) -> Iterator[str]:
    """Check that chip and versions are known to the release, and belong together."""
    stack, known = candidate.summary.run.header.stack, compatibility.load()
    npu = stack.torch_npu.partition("+")[0]
    if stack.chip and family(stack.chip) is None:
        yield f"{stack.chip!r} is no NPU that this release knows"
    correction = re.fullmatch(r"(\d+\.\d+)\.[1-9]\d*", stack.cann, re.ASCII)
    released = [stack.cann, *([f"{correction[1]}.0"] if correction else [])] if is_version(stack.cann) else []
    if stack.cann and not any(Version(each) in known.cann_releases for each in released):
        yield f"this release knows no CANN {stack.cann}"
    if npu and not known.knows(npu):
        yield f"this release knows no torch_npu {npu}"
    number = re.match(r"\d+\.\d+\.\d+", npu)
    if number and stack.torch.partition("+")[0] != number[0]:
        yield f"torch_npu {npu} is not for torch {stack.torch}"
    statements = known.statements(npu) if stack.cann else ()
    if statements and not any(each.says != INCOMPATIBLE and speaks_of(each, stack.cann) for each in statements):
        yield f"torch_npu {npu} does not belong to CANN {stack.cann}"


def machine(candidate: Candidate) -> Iterator[str]:
    """Check that the stack is what the doctor found, and follows from its evidence and the release's rules."""
    head = candidate.summary.run.header
    doctor, rules = head.doctor, {rule.id: rule for rule in RULES}
    if not doctor:
        return
    found = {str(each.get("name")): each for each in doctor.get("components", ())}
    for part, names in _SEEN.items():
        seen = [str(found[name].get("version", "")) for name in names if name in found] or [""]
        stated = str(getattr(head.stack, part))
        if not any(same(each, stated) for each in seen):
            known = " and ".join(filter(None, seen)) or "none"
            yield f"the stack says {part} {stated or 'unknown'}, and the doctor saw {known}"
    for name, each in found.items():
        yield from differs(f"{name} is", str(each.get("version", "")), _component(each).version)
    arch = str(found.get(evidence.ARCH, {}).get("version", ""))
    if arch not in head.stack.host or arch not in head.stack.os:
        yield f"the doctor saw the architecture {arch or 'unknown'}; the run was on {head.stack.host}"
    if not str(doctor.get("machine", "")).startswith("this machine"):
        yield f"the doctor looked at {doctor.get('machine')}, and not at the machine of the run"
    given = {str(each.get("id")): each for each in doctor.get("findings", ())}
    for name, finding in given.items():
        rule = rules.get(name)
        if name in ("emulated", "ascend.absent"):
            yield f"{finding['what']}, where an NPU was to be tested"
        elif rule is None or (finding["severity"], finding["why"]) != (rule.severity, rule.why):
            yield f"the finding {name!r} is not one of this release's, or not as grave as there"
    disputed = [name for name, each in found.items() if name != evidence.CHIP and _component(each).disagreeing]
    if disputed and "version.disagreement" not in given:
        yield f"sources disagree on the version of {disputed[0]}, and the doctor did not report it"


def _component(data: Mapping[str, Any]) -> Component:
    name = str(data["name"])
    given = (Evidence(name, each["value"], each["source"], internal=each["internal"]) for each in data["evidence"])
    return Component(name, tuple(given))


def devices(candidate: Candidate) -> Iterator[str]:
    """Check that the run's cards are devices that npu-smi listed: healthy, of the run's chip, each once.

    The key of a device is its NPU and chip: a server with a 950 shows no address, and two chips of a card share one.
    """
    head, events = candidate.summary.run.header, candidate.summary.run.events
    seen = {(each.get("npu"), each.get("chip", -1)): each for each in head.doctor.get("devices", ())}
    if len(seen) < len(head.doctor.get("devices", ())) and not head.merged:
        yield "a device of the machine is listed twice"
    cards = [card for event in candidate.cards for card in event.cards]
    used: list[Any] = []
    for card in cards if seen else ():
        npu, chip = card.get("npu"), card.get("chip", -1)
        alike = (each for (number, die), each in seen.items() if number == npu and (die == chip or -1 in (die, chip)))
        used.append(next(alike, None))
    for card, device in zip(cards, used, strict=False):
        where = f"npu:{card['index']}"
        if device is None and card.get("npu", -1) >= 0:
            yield f"{where} is NPU {card['npu']}, which npu-smi did not list"
        for name in ("bus", "memory_total_mb") if device else ():
            if card.get(name) and device.get(name):
                yield from differs(f"{name} of {where}", card[name], device[name])
    for device in [each for each in used if each] or list(seen.values()):
        name = str(device.get("name", ""))
        if device.get("health") != "OK":
            yield f"the health of device {device.get('npu')} was {device.get('health')}"
        if soc(name) != head.stack.chip and family(soc(name)) != family(head.stack.chip):
            yield f"npu-smi saw {name}, and the run was on {head.stack.chip}"
    began: dict[int, Any] = {}  # a resumed run may have used other cards: they are compared by part
    for each in candidate.cards:
        here = {card["index"]: card.get("npu") for card in each.cards}
        if each.when == "after" and began not in ({}, here):
            yield "the cards after the run are not those before it"
        began = here
    labels = {each.card for each in events if isinstance(each, (Attempted, LeftBehind, Quarantined))}
    labels |= {each.card for result in candidate.summary.run.records for each in result.attempts}
    numbers = {str(card["index"]) for card in cards} or {str(each) for each in range(len(seen))}
    strange = sorted(each for each in labels if each.partition(":")[0] != "npu" or each[4:] not in numbers)
    if numbers and strange:
        yield f"the run was on {', '.join(strange)}, and its cards were {', '.join(sorted(numbers))}"


_Check = Callable[["Candidate"], Iterator[str]]
#: Checks of the log against itself and the release. The id of a refusal is the name of its function.
OF_THE_LOG: tuple[_Check, ...] = (header, records, attempts, known_deviations, chain, time_stamps, clock)
#: Checks of what the log records about an NPU's machine; an emulated device has none.
OF_THE_MACHINE: tuple[_Check, ...] = (options, versions, machine, devices)
