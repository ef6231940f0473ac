"""Check that a log is consistent about its origin: the machine, its stack, the options, the clock."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

from pytest_ascend.certificate import timestamp
from pytest_ascend.doctor.combination import speaks_of
from pytest_ascend.doctor.examination import RULES
from pytest_ascend.environment import compatibility, evidence
from pytest_ascend.environment.chips import chip_of, family, pinned
from pytest_ascend.environment.compatibility import INCOMPATIBLE
from pytest_ascend.environment.evidence import Evidence
from pytest_ascend.environment.npu_smi import soc
from pytest_ascend.environment.stack import Component, same
from pytest_ascend.environment.versions import Version, is_version
from pytest_ascend.records.bounds import moment
from pytest_ascend.runlog.contents import Attempted, LeftBehind, Quarantined, Resumed, TimeStamped
from pytest_ascend.runlog.reading import broken_chain
from pytest_ascend.verdict.merge import LONGEST

if TYPE_CHECKING:
    from pytest_ascend.certificate.requirements import Candidate

#: Tolerance between two clocks; the log has whole seconds.
SLACK_S = 60.0
#: Tolerance between an authority's clock and a machine's.
STAMP_SLACK = timedelta(minutes=10)
ROUNDING_S = 2.0
#: Findings that a machine with an NPU in use cannot have.
_ELSEWHERE = {"emulated": "the run was on the emulated CANN", "ascend.absent": "the machine has no sign of Ascend"}
#: Part of a stack -> the doctor's component for it.
_SEEN: Mapping[str, tuple[str, ...]] = {
    "driver": (evidence.DRIVER,),
    "firmware": (evidence.FIRMWARE,),
    "cann": (evidence.TOOLKIT, evidence.RUNTIME),
    "torch": (evidence.TORCH,),
    "torch_npu": (evidence.TORCH_NPU,),
    "torch_npu_commit": (evidence.COMMIT,),
    "python": (evidence.PYTHON,),
}
#: A device shows a little less memory than its chip has, or the next power of two.
_MEMORY = (0.5, 1.1)


def chain(candidate: Candidate) -> Iterator[str]:
    """The lines of the log are chained by their hashes, so that none was changed after it was written."""
    run = candidate.summary.run
    if not run.header.chain:
        yield "the lines of the log are not chained by their hashes, as earlier releases wrote them"
    elif run.broken:
        yield broken_chain(run.broken)


def time_stamps(candidate: Candidate) -> Iterator[str]:
    """Each time-stamp is of its line, and within the time of the run; the verifier checks its authority."""
    run = candidate.summary.run
    if run.footer is None:
        return
    began, last = moment(run.header.started) - STAMP_SLACK, moment(run.header.started)
    finished = moment(run.footer.finished)
    for each in run.events:
        if isinstance(each, Resumed):
            last = moment(each.at)
        elif isinstance(each, TimeStamped) and each.answer:
            at = timestamp.moment_of(each.answer, each.digest)
            if not began <= at <= finished + STAMP_SLACK or at < last - STAMP_SLACK:
                yield f"{each.authority} stamped a line at {at.isoformat()}, which is not within the run"


def clock(candidate: Candidate) -> Iterator[str]:
    """Times increase, and leave enough time for the cases."""
    run, now = candidate.summary.run, datetime.now(timezone.utc)
    if run.footer is None:  # refused by a check of its own
        return
    started, finished = moment(run.header.started), moment(run.footer.finished)
    if finished < started:
        yield f"the run finished at {run.footer.finished}, before it started at {run.header.started}"
    if finished > now + timedelta(seconds=SLACK_S):
        yield f"the run finished on {finished.date()}, which is still to come"
    if finished.astimezone(timezone.utc).date() > candidate.on:
        yield f"the certificate is of {candidate.on}, and the run ended on {finished.date()}"
    if finished - started > LONGEST:
        yield f"the run took {(finished - started).days:,} days; {LONGEST.days} at most are one run"
    yield from _too_fast(candidate, (finished - started).total_seconds())
    yield from _continued(candidate, started, finished)


def _too_fast(candidate: Candidate, elapsed_s: float) -> Iterator[str]:
    run = candidate.summary.run
    lanes = max(len(run.header.doctor.get("devices", ())), 1) * int(run.header.options.get("shards") or 1)
    took = [each.duration_s for each in run.records]
    if max(took, default=0.0) > elapsed_s + ROUNDING_S or sum(took) > lanes * elapsed_s + ROUNDING_S:
        yield f"the cases took {sum(took):,.0f} s, in a run of {elapsed_s:,.0f} s"


def _continued(candidate: Candidate, started: datetime, finished: datetime) -> Iterator[str]:
    last, records = started, 0
    for each in candidate.summary.run.events:
        if isinstance(each, Resumed):
            at = moment(each.at)
            if not last <= at <= finished or not records <= each.records <= len(candidate.summary.run.records):
                yield f"the run was continued at {each.at} with {each.records} records, which is out of order"
            last, records = at, each.records


def chip(candidate: Candidate) -> Iterator[str]:
    """The chip is an NPU that this release knows."""
    name = candidate.summary.run.header.stack.chip
    if name and family(name) is None:
        yield f"{name!r} is no NPU that this release knows"


def versions(candidate: Candidate) -> Iterator[str]:
    """The versions were published, and belong together."""
    stack, known = candidate.summary.run.header.stack, compatibility.load()
    npu = stack.torch_npu.partition("+")[0]
    if stack.cann and not _is_released(stack.cann, known):
        yield f"this release knows no CANN {stack.cann}"
    if npu and not known.knows(npu):
        yield f"this release knows no torch_npu {npu}"
    number = re.match(r"\d+\.\d+\.\d+", npu)
    if number and stack.torch.partition("+")[0] != number[0]:
        yield f"torch_npu {npu} is not for torch {stack.torch}"
    statements = known.statements(npu)
    if (
        statements
        and stack.cann
        and not any(each.says != INCOMPATIBLE and speaks_of(each, stack.cann) for each in statements)
    ):
        yield f"torch_npu {npu} does not belong to CANN {stack.cann}"


def _is_released(cann: str, known: compatibility.Compatibility) -> bool:
    if not is_version(cann):
        return False
    releases = set(known.cann_releases)
    correction = re.fullmatch(r"(\d+\.\d+)\.[1-9]\d*", cann, re.ASCII)
    return Version(cann) in releases or (correction is not None and Version(f"{correction[1]}.0") in releases)


def machine(candidate: Candidate) -> Iterator[str]:
    """The stack of the run is what the doctor found, and each version follows from the evidence on it."""
    header = candidate.summary.run.header
    if not header.doctor:
        return
    found = {str(each.get("name")): each for each in header.doctor.get("components", ())}
    for part, names in _SEEN.items():
        seen = [str(found[name].get("version", "")) for name in names if name in found]
        stated = str(getattr(header.stack, part))
        if not any(same(each, stated) for each in seen):
            yield f"the stack says {part} {stated or 'unknown'}, and the doctor saw {' and '.join(seen) or 'none'}"
    for name, each in found.items():
        if str(each.get("version", "")) != _component(each).version:
            yield f"what the doctor says of {name} does not follow from its evidence"
    arch = str(found.get(evidence.ARCH, {}).get("version", ""))
    if arch not in header.stack.host or arch not in header.stack.os:
        yield f"the doctor saw the architecture {arch or 'unknown'}; the run was on {header.stack.host}"
    if not str(header.doctor.get("machine", "")).startswith("this machine"):
        yield f"the doctor looked at {header.doctor.get('machine')}, and not at the machine of the run"


def _component(data: Mapping[str, Any]) -> Component:
    name = str(data["name"])
    given = (Evidence(name, each["value"], each["source"], internal=each["internal"]) for each in data["evidence"])
    return Component(name, tuple(given))


def findings(candidate: Candidate) -> Iterator[str]:
    """Each finding follows from a rule of this release, with its severity, and no required finding is missing."""
    doctor = candidate.summary.run.header.doctor
    rules = {rule.id: rule for rule in RULES}
    given = {str(each.get("id")): each for each in doctor.get("findings", ())}
    for name, each in given.items():
        rule = rules.get(name)
        if name in _ELSEWHERE:
            yield f"{_ELSEWHERE[name]}: {each['what']}"
        elif rule is None or (each["severity"], each["why"]) != (rule.severity, rule.why):
            yield f"the finding {name!r} is not one of this release's, or not as grave as there"
    disputed = [str(each["name"]) for each in doctor.get("components", ()) if _component(each).disagreeing]
    if set(disputed) - {evidence.CHIP} and "version.disagreement" not in given:
        yield f"sources disagree on the version of {disputed[0]}, and the doctor did not report it"


def devices(candidate: Candidate) -> Iterator[str]:
    """The devices listed by npu-smi have the run's chip, are healthy, unique, and the ones that were used."""
    header = candidate.summary.run.header
    seen = list(header.doctor.get("devices", ()))
    for each in seen:
        name = str(each.get("name", ""))
        if each.get("health") != "OK":
            yield f"the health of device {each.get('npu')} was {each.get('health')}"
        if soc(name) != header.stack.chip and family(soc(name)) != family(header.stack.chip):
            yield f"npu-smi saw {name}, and the run was on {header.stack.chip}"
        yield from _memory(each, header.stack.chip)
    if len({str(each.get("bus")) for each in seen}) < len(seen):
        yield "two devices of the machine have one address"
    events = (each for each in candidate.summary.run.events if isinstance(each, (Attempted, LeftBehind, Quarantined)))
    used = {each.card for each in events}
    used |= {each.card for record in candidate.summary.run.records for each in record.attempts}
    numbers = {*range(len(seen)), *(each.get("npu") for each in seen)}
    strange = [card for card in sorted(used) if not re.fullmatch(r"npu:\d+", card) or int(card[4:]) not in numbers]
    if seen and strange:
        yield f"the run was on {', '.join(strange)}, and the machine has {len(seen)} devices"


def _memory(device: Mapping[str, Any], name: str) -> Iterator[str]:
    known, total = chip_of(name), device.get("memory_total_mb")
    if known and known.memory_bytes and isinstance(total, int):
        share = (total << 20) / known.memory_bytes
        if not _MEMORY[0] <= share <= _MEMORY[1]:
            yield f"device {device.get('npu')} has {total:,} MB, and {name} {known.memory_bytes >> 20:,} MB"


def options(candidate: Candidate) -> Iterator[str]:
    """The run requested an NPU, with the numeric settings of this release for its chip."""
    given = candidate.summary.run.header.options
    if not re.fullmatch(r"auto|npu(:\d+)?", str(given.get("device", "auto"))):
        yield f"the run was asked for on the device {given['device']}"
    places = (given, dict(given.get("timing", {})))
    emulated = [name for each in places for name, value in each.items() if name.startswith("emulat") and value]
    if emulated:
        yield f"the run has options of the emulated device: {', '.join(sorted(set(emulated)))}"
    numerics, modes = given.get("numerics"), pinned(candidate.summary.run.header.stack.chip)
    if numerics != modes:
        changed = sorted(set(modes.items()) ^ set(dict(numerics or {}).items()), key=str)
        yield f"the run was computed with other numerics than this release pins: {changed[0][0] if changed else ''}"


def one_run(candidate: Candidate) -> Iterator[str]:
    """It is a whole run on one machine."""
    header = candidate.summary.run.header
    if header.shard:
        yield f"the log is part {header.shard.index} of {header.shard.count} of a run"
    if "; " in header.stack.host:
        yield f"parts of the run were on different machines: {header.stack.host}"


CHECKS: Mapping[str, Callable[[Candidate], Iterator[str]]] = {
    "chain": chain,
    "time-stamps": time_stamps,
    "clock": clock,
    "chip": chip,
    "versions": versions,
    "machine": machine,
    "findings": findings,
    "devices": devices,
    "options": options,
    "one-run": one_run,
}
