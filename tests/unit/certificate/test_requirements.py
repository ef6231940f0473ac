"""A run that earns a certificate gets it; each way not to earn it is refused, with the reason and no other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_ascend.certificate.judgement import Refused, certify
from pytest_ascend.certificate.tiers import TIERS
from pytest_ascend.environment.npu_smi import ELSEWHERE, OTHERS
from pytest_ascend.runlog.contents import SUBSET, Header, Quarantined, Selection
from tests.unit.runlog.synthetic import replace

from .runs import (
    ISSUED,
    RELEASE,
    SELF_TEST,
    STACK,
    WAIVER,
    cards,
    doctor_of,
    ended,
    finding,
    issue,
    options_of,
    release_for,
    write_log,
)

MODEL, BENCHMARK = 124, 126


def stack(**changes: Any) -> Callable[[Header], Header]:
    return lambda header: replace(header, stack=replace(STACK, **changes))


def header(**changes: Any) -> Callable[[Header], Header]:
    return lambda header: replace(header, **changes)


def options(**changes: Any) -> Callable[[Header], Header]:
    return lambda header: replace(header, options={**header.options, **changes})


def used(**changes: str) -> Callable[[Header], Header]:
    return lambda header: replace(header, used={**header.used, **changes})


def refused(tmp_path: Path, tier: str = "performance", **how: Any) -> list[str]:
    """Return the ids of the reasons for which a run is refused."""
    fates = how.pop("fates", {})
    log = write_log(tmp_path / "run.jsonl", fates, **how)
    try:
        certify(**issue(log, tmp_path / "certificate", tier), release=release_for(fates), on=ISSUED)
    except Refused as error:
        assert not (tmp_path / "certificate").exists()
        return [each.id for each in error.refusals]
    return []


@pytest.mark.parametrize("tier", TIERS)
def test_a_run_that_conforms_is_certified(tmp_path: Path, tier: str) -> None:
    assert refused(tmp_path, tier) == []
    assert (tmp_path / "certificate" / "certificate.json").exists()


@pytest.mark.parametrize(
    ("how", "reasons"),
    [
        ({"change": stack(emulated=True)}, ["device"]),
        ({"change": stack(device="cuda")}, ["device"]),
        ({"change": header(selection=Selection(SUBSET, "-k relu"))}, ["subset"]),
        ({"level": "smoke"}, ["subset"]),
        ({"skipped": 2}, ["missing"]),
        ({"change": lambda header: replace(header, manifest=header.manifest[:-1])}, ["missing"]),
        ({"finish": False}, ["incomplete"]),
        ({"fates": ended(5, "failed")}, ["failures"]),
        ({"fates": ended(5, "errored")}, ["failures"]),
        ({"fates": ended(5, "unsupported")}, ["failures"]),
        ({"fates": ended(5, "failed") | ended(6, "errored")}, ["failures", "failures"]),
        ({"fates": ended(5, "fallback") | ended(6, "fallback")}, ["fallbacks"]),
        ({"fates": ended(MODEL, "fallback")}, ["fallbacks"]),
        ({"fates": ended(MODEL, "waived", waiver=WAIVER)}, ["waivers"]),
        ({"fates": ended(5, "waived", waiver={**WAIVER, "expires": "2026-09-01"})}, ["waivers"]),
        ({"fates": ended(5, "disputed", waiver=WAIVER)}, []),
        ({"fates": ended(5, "disputed", waiver={**WAIVER, "expires": "2026-09-01"})}, ["waivers"]),
        ({"fates": ended(5, "waived", waiver={**WAIVER, "expires": "some day"})}, ["waivers", "known-deviations"]),
        ({"fates": ended(5, "waived", waiver={"reason": "because"})}, ["waivers", "known-deviations"]),
        ({"fates": {k: v for i in range(1, 9) for k, v in ended(i, "waived", waiver=WAIVER).items()}}, ["waivers"]),
        ({"fates": ended(5, "waived", waiver=WAIVER | {"kind": "limit"})}, ["known-deviations"]),
        ({"change": used(goldens="0" * 64)}, ["release"]),
        ({"change": used(manifest="0" * 64)}, ["release"]),
        ({"change": used(expectations="0" * 64)}, ["release"]),
        ({"change": used(rules="0" * 64)}, ["release"]),
        ({"change": header(used={})}, ["release"]),
        ({"change": stack(pytest_ascend="0.0.1")}, ["release"]),
        ({"change": options(faults=["wrong:LEAKY"])}, ["tampered"]),
        ({"change": options(standard="loose")}, ["tampered"]),
        ({"change": header(doctor={})}, ["unhealthy"]),
        ({"change": header(doctor={**finding("cann.several"), "devices": []})}, ["unhealthy"]),
        ({"change": header(doctor=finding("health.bad"))}, ["unhealthy"]),
        ({"change": header(doctor=finding("combination.incompatible"))}, ["unhealthy"]),
        ({"change": header(doctor=finding("settings.numbers"))}, ["unhealthy"]),
        ({"change": header(doctor=finding("cann.mixed"))}, ["mixed"]),
        ({"change": header(doctor=finding("version.disagreement"))}, ["mixed"]),
        ({"change": stack(driver="", cann="")}, ["mixed", "machine", "machine"]),
        ({"change": stack(torch_npu_commit="")}, ["mixed", "machine"]),
        ({"change": header(doctor=finding("devices.occupied"))}, ["disturbed"]),
        ({"events": (*SELF_TEST, cards(in_use="61258 MB used"))}, ["disturbed"]),
        ({"fates": ended(BENCHMARK, "passed", measurements={"latency_us": 9.0, ELSEWHERE: 31.0 * 2**30})},
         ["disturbed"]),
        ({"fates": ended(BENCHMARK, "passed", measurements={"latency_us": 9.0, OTHERS: 1.0 * 2**30})}, ["disturbed"]),
        ({"events": ()}, ["blind"]),
        ({"events": (replace(SELF_TEST[0], detected=14),)}, ["blind"]),
        ({"events": (replace(SELF_TEST[0], planted=0, detected=0),)}, ["blind"]),
        ({"events": (replace(SELF_TEST[0], missed=("all is zero",)),)}, ["incomplete", "incomplete", "blind"]),
        ({"events": (*SELF_TEST, Quarantined(card="npu:0", reason="wrong sums"))}, ["blind"]),
        ({"fates": ended(BENCHMARK, "passed", measurements={})}, ["disturbed"]),
        ({"fates": ended(BENCHMARK, "passed", measurements={"us": float("nan")})}, ["disturbed", "records"]),
        ({"fates": ended(BENCHMARK, "passed", measurements={"us": float("nan"), "b": 1.0})},
         ["disturbed", "records"]),
    ],
)  # fmt: skip
def test_a_run_that_does_not_earn_it_is_refused(tmp_path: Path, how: dict[str, Any], reasons: list[str]) -> None:
    assert refused(tmp_path, **how) == reasons


@pytest.mark.parametrize(
    ("how", "tier"),
    [
        ({"fates": ended(5, "fallback")}, "performance"),
        ({"fates": ended(5, "waived", waiver=WAIVER)}, "performance"),
        ({"fates": ended(MODEL, "failed")}, "operators"),
        ({"fates": ended(BENCHMARK, "errored")}, "models"),
        ({"change": header(doctor=finding("devices.occupied"))}, "models"),
        ({"change": header(doctor=finding("cann.several"))}, "performance"),
        (
            {"fates": ended(BENCHMARK, "passed", measurements={"latency_us": 9.0, ELSEWHERE: 3.5 * 2**30})},
            "performance",
        ),
        (
            {"events": (*SELF_TEST, cards()), "change": header(doctor=finding("devices.occupied", card=5))},
            "performance",
        ),
        ({"events": (*SELF_TEST, cards()), "change": header(doctor=finding("health.bad", card=5))}, "performance"),
        ({"events": (*SELF_TEST, cards()), "change": header(doctor=finding("health.bad", card=-1))}, "performance"),
        ({"level": "full"}, "performance"),
    ],
)
def test_what_a_tier_allows_is_allowed(tmp_path: Path, how: dict[str, Any], tier: str) -> None:
    assert refused(tmp_path, tier, **how) == []


def test_all_reasons_are_given_at_once(tmp_path: Path) -> None:
    log = write_log(tmp_path / "run.jsonl", ended(5, "failed"), change=stack(emulated=True), skipped=1)
    with pytest.raises(Refused) as raised:
        certify(**issue(log, tmp_path / "certificate", "performance"), release=RELEASE, on=ISSUED)
    said = str(raised.value)
    assert "emulated device" in said
    assert "1 case failed: ops/op4/forward/float32" in said
    assert "did not run" in said
    assert raised.value.exit_code == 1


@pytest.mark.parametrize(
    ("chip", "devices"),
    [
        ("Ascend950PR", [{"npu": each, "chip": -1, "bus": "", "name": "Ascend950PR"} for each in range(8)]),
        ("Ascend310P3", [{"npu": 1, "chip": each, "bus": "0000:01:00.0", "name": "310P3"} for each in (0, 1)]),
    ],
)
def test_servers_without_addresses_and_cards_with_two_chips_are_certified(
    tmp_path: Path, chip: str, devices: list[dict[str, Any]]
) -> None:
    """A 950 shows no Bus-Id; both chips of an Atlas 300I Duo have one, and 44,280 MB."""

    def change(header: Header) -> Header:
        made = replace(header.stack, chip=chip)
        seen = [{**each, "health": "OK", "memory_total_mb": 44280} for each in devices]
        return replace(
            header, stack=made, doctor={**doctor_of(made), "devices": seen}, options=options_of(chip, "standard")
        )

    events = (*SELF_TEST, cards(npu=devices[-1]["npu"], chip=devices[-1]["chip"], bus=devices[-1]["bus"]))
    assert refused(tmp_path, change=change, events=events) == []
    other = (*SELF_TEST, cards(npu=9, chip=0))
    assert refused(tmp_path / "other", change=change, events=other) == ["devices"]
