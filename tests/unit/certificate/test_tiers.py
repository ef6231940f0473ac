"""A faultless device earns each tier with the torch_npu that can be run here, and one defect of each kind loses it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from datetime import date
from functools import cache
from pathlib import Path

import pytest

from pytest_ascend.certificate.release import installed
from pytest_ascend.certificate.requirements import Candidate, refusals
from pytest_ascend.certificate.statement import limits
from pytest_ascend.certificate.tiers import TIERS
from pytest_ascend.coverage import manifest
from pytest_ascend.coverage.expectations import NAME, Expectation, Expectations, load
from pytest_ascend.records.case import Case, Stack
from pytest_ascend.records.outcome import OUTCOMES, Waived
from pytest_ascend.records.record import ResultRecord
from pytest_ascend.runlog.contents import Header, Run, Selection
from pytest_ascend.system.bundled import folder
from pytest_ascend.verdict.summary import summarise
from tests.unit.runlog.synthetic import replace

from .runs import OPTIONS, SELF_TEST, STACK, STARTED, doctor_of, passed

#: What torch_npu 2.13.0 was seen to lack by its dispatcher and by CANN's lists of dtypes, at level standard, by cause.
LACKING: Mapping[str, list[str]] = json.loads((Path(__file__).parent / "lacking_2_13.json").read_text(encoding="utf-8"))
NPU = replace(STACK, cann="9.1.0", torch="2.13.0+cpu", torch_npu="2.13.0")
DAY = date(2026, 3, 2)
FROZEN = {case.id: case for case in manifest.load(folder("suites")) if case.is_in("standard")}
#: A case of each tier's own suite that passes.
OF_TIER = {
    "operators": "ops/add/forward/float32",
    "models": "models/",
    "performance": "benchmarks/",
    "distributed": "distributed/",
}


#: Versions that run on the emulated device (docs/evaluation), each with a CANN that it is paired with. Of those other
#: than 2.13 the wheels are not at hand: their logs are made up of what is known of the version.
VERSIONS = {
    "2.14.0": "9.1.0",
    "2.13.0": "9.1.0",
    "2.12.0.post3": "9.1.0",
    "2.12.0": "9.1.0",
    "2.11.0.post3": "9.1.0",
    "2.11.0": "9.1.0",
    "2.10.0.post7": "9.1.0",
    "2.10.0.post6": "9.1.0",
    "2.9.0.post9": "9.1.0",
    "2.8.0.post5": "9.0.0",
    "2.7.1": "8.3.RC1",
    "2.6.0.post5": "8.5.0",
    "2.5.1.post1": "8.2.RC1",
}
#: Builds that the table of compatible versions does not pair with any CANN: they run, and earn no certificate.
UNPAIRED = {"2.12.0.post3", "2.11.0.post3", "2.10.0.post7", "2.10.0.post6", "2.9.0.post9"}


def npu(version: str) -> Stack:
    torch = ".".join(version.split(".")[:3])
    return replace(STACK, cann=VERSIONS[version], torch=f"{torch}+cpu", torch_npu=version)


@cache
def table(stack: Stack = NPU) -> Expectations:
    return load([folder("baselines") / NAME], stack)


def waived(case: Case, entry: Expectation) -> ResultRecord:
    found = OUTCOMES[entry.outcome](reason=f"{entry.reason} {entry.says}".strip())
    fallbacks = ("aten::made_up",) if entry.outcome == "fallback" else ()
    return replace(
        passed(case), outcome=entry.waived(found, entry.reason), waiver=entry.waiver(found), fallbacks=fallbacks
    )


@cache
def faultless(stack: Stack = NPU) -> Mapping[str, ResultRecord]:
    """Return the records of a run on a device without a fault: what is known of torch_npu 2.13 deviates, no more."""
    derived = {each.cause: each for each in table(stack).entries if each.derived}
    lacking = {case_id: derived[cause] for cause, ids in LACKING.items() for case_id in ids}
    records = {}
    for case_id, case in FROZEN.items():
        entry = table(stack).find(case_id) or lacking.get(case_id)
        is_waived = entry is not None and entry.outcome != "disputed"
        records[case_id] = waived(case, entry) if entry and is_waived else passed(case)
    return records


def reasons(
    tier: str, change: Callable[[dict[str, ResultRecord]], None] = lambda _: None, stack: Stack = NPU
) -> set[str]:
    records, release = dict(faultless(stack)), installed()
    change(records)
    header = Header(
        run_id="run",
        started=STARTED,
        stack=stack,
        level="standard",
        selection=Selection("full"),
        chain="sha256",
        manifest=tuple(FROZEN.values()),
        options=OPTIONS,
        doctor=doctor_of(stack),
        used=release.hashes(),
    )
    run = Run(header=header, records=tuple(records.values()), events=SELF_TEST)
    footer = summarise(run).footer("2026-03-01T12:00:00+00:00")
    summary = summarise(replace(run, footer=footer))
    return {each.id for each in refusals(Candidate(summary=summary, tier=TIERS[tier], release=release, on=DAY))}


def case_of(tier: str) -> str:
    known = faultless()
    return next(name for name in FROZEN if name.startswith(OF_TIER[tier]) and known[name].outcome.name == "passed")


@pytest.mark.parametrize("tier", TIERS)
def test_a_faultless_device_earns_the_tier(tier: str) -> None:
    assert reasons(tier) == set()


@pytest.mark.parametrize("version", [each for each in VERSIONS if each != NPU.torch_npu])
def test_with_another_torch_npu_a_faultless_device_earns_all_tiers_and_a_defect_loses_them(version: str) -> None:
    name = case_of("operators")

    def change(records: dict[str, ResultRecord]) -> None:
        records[name] = replace(records[name], outcome=OUTCOMES["failed"](reason="made up"))

    highest = list(TIERS)[-1]  # which includes the others
    assert reasons(highest, stack=npu(version)) == ({"versions"} if version in UNPAIRED else set())
    assert "failures" in reasons(highest, change, npu(version))


def test_every_version_that_is_known_to_run_is_asked() -> None:
    text = (Path(__file__).parents[3] / "docs" / "evaluation" / "versions.md").read_text(encoding="utf-8")
    known = re.findall(r"^\| (\d[\w.]+) \| [\w.+]+ \| [\w.]+ \|", text, re.MULTILINE)
    assert set(VERSIONS) == {each for each in known if tuple(map(int, each.split(".")[:2])) >= (2, 5)}


DEFECTS = ["failed", "errored", "flaky", "unsupported", "not-run", "not-emulated"]


@pytest.mark.parametrize(
    ("tier", "outcome"), [("operators", each) for each in DEFECTS] + [(each, "failed") for each in TIERS]
)
def test_one_defect_loses_the_tier(tier: str, outcome: str) -> None:
    name = case_of(tier)

    def change(records: dict[str, ResultRecord]) -> None:
        if outcome == "not-run":
            del records[name]
        else:
            records[name] = replace(records[name], outcome=OUTCOMES[outcome](reason="made up"))

    assert reasons(tier, change)


def test_nobody_calls_a_defect_lacking_by_design() -> None:
    name = case_of("operators")
    forged = {
        "cause": "no-kernel",
        "kind": "limit",
        "outcome": "failed",
        "reason": "x",
        "issue": "x",
        "expires": "2027-01-01",
    }

    def change(records: dict[str, ResultRecord]) -> None:
        records[name] = replace(records[name], outcome=Waived(reason="x"), waiver=forged)

    assert reasons("operators", change) == {"limits", "known-deviations"}


def test_too_many_waived_defects_lose_the_tier() -> None:
    def change(records: dict[str, ResultRecord]) -> None:
        for name in [each for each in FROZEN if each.startswith("fused/")][:100]:
            waiver = {"cause": "mine", "kind": "defect", "reason": "x", "issue": "x", "expires": "2027-01-01"}
            records[name] = replace(records[name], outcome=Waived(reason="x"), waiver=waiver)

    assert reasons("operators", change) == {"waivers", "known-deviations"}


def test_what_is_lacking_is_stated_by_number_and_by_name() -> None:
    header = Header(
        run_id="run",
        started=STARTED,
        stack=NPU,
        level="standard",
        selection=Selection("full"),
        chain="sha256",
        manifest=tuple(FROZEN.values()),
    )
    summary = summarise(Run(header=header, records=tuple(faultless().values())))
    said = limits(Candidate(summary=summary, tier=TIERS["operators"], release=installed(), on=DAY))
    by_cause = {each["cause"]: each["cases"] for each in said}
    assert len(by_cause["no-kernel"]) == len(set(LACKING["no-kernel"]) & FROZEN.keys())
    assert "ops/digamma/forward/float32" in by_cause["no-kernel"]
