"""A log that contradicts itself or the release is refused by name; tools/forger.py plays all forgeries."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_ascend.certificate import consistency, provenance
from pytest_ascend.certificate.requirements import Candidate, refusals
from pytest_ascend.certificate.tiers import TIERS
from pytest_ascend.environment.chips import pinned
from pytest_ascend.run.self_test import CORRECT, PLANTED
from pytest_ascend.runlog.contents import Header
from pytest_ascend.runlog.reading import read
from pytest_ascend.verdict.summary import summarise
from tests.unit.runlog.synthetic import replace

from . import runs
from .forgeries import BEFORE, UNSEEN, parsed, written

FATES = runs.ended(5, "fallback") | runs.ended(7, "waived", waiver=runs.WAIVER)
#: Each check, and a forgery that it finds.
FOUND = {
    "leaves": "a leaf that disagrees",
    "figures": "a limit used 400 times",
    "standard": "another standard",
    "comparison": "one made-up measurement for all verdicts",
    "measurements": "a latency that is not its samples'",
    "words": "a reason in a pass",
    "fallback": "a fallback that disagrees",
    "test": "a test of the issuer's",
    "attempts": "failed, then passed",
    "known-deviations": "370 waivers that the release does not have",
    "invented": "one invented case",
    "self-test": "one of 15 planted errors",
    "chain": "a line that was changed after it was written",
    "clock": "a run resumed over five years",
    "chip": "chip NVIDIA H100",
    "versions": "CANN 99.0.0",
    "machine": "torch_npu 2.1 in what the doctor saw",
    "findings": "this process runs on the emulated CANN",
    "devices": "health Critical",
    "options": "forced precision",
    "one-run": "the header of one shard of five",
}


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return runs.write_log(tmp_path_factory.mktemp("run") / "run.jsonl", FATES).read_bytes()


def refused(path: Path, content: bytes) -> set[str]:
    path.write_bytes(content)
    tier, release = TIERS["performance"], runs.release_for(FATES)
    subject = Candidate(summary=summarise(read(path)), tier=tier, release=release, on=runs.ISSUED)
    return {each.id for each in refusals(subject)}


@pytest.mark.parametrize("check", FOUND)
def test_a_forgery_is_refused_by_name(log: bytes, tmp_path: Path, check: str) -> None:
    forged = parsed(log)
    BEFORE[FOUND[check]](forged)
    assert check in refused(tmp_path / "run.jsonl", written(forged))


def test_the_figures_of_a_cpu_are_not_a_chips(log: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forged = parsed(log)
    BEFORE["an emulated log with a few fields relabelled"](forged)
    monkeypatch.setattr(consistency, "ROUNDED", {f"op{index}" for index in range(120)})
    assert {"cpu", "findings", "machine", "options"} <= refused(tmp_path / "run.jsonl", written(forged))


def test_a_log_that_is_true_is_not_refused(log: bytes, tmp_path: Path) -> None:
    assert refused(tmp_path / "run.jsonl", log) == set()


@pytest.mark.parametrize("chip", ["Ascend910B3", "Ascend910_9392", "Ascend310P3", "Ascend910A", "Ascend950PR"])
@pytest.mark.parametrize("other", ["Ascend910B3", "Ascend310P3"])
def test_numerics_are_those_that_a_run_sets_on_its_chip(tmp_path: Path, chip: str, other: str) -> None:
    def on_chip(header: Header) -> Header:
        stack = replace(header.stack, chip=chip)
        return replace(header, stack=stack, options={**runs.OPTIONS, "numerics": pinned(other)})

    summary = summarise(read(runs.write_log(tmp_path / "run.jsonl", change=on_chip)))
    release = runs.release_for(FATES)
    found = [*provenance.options(Candidate(summary=summary, tier=TIERS["operators"], release=release, on=runs.ISSUED))]
    is_alike = pinned(chip) == pinned(other)
    assert found == (
        [] if is_alike else ["the run was computed with other numerics than this release pins: ACL_PRECISION_MODE"]
    )
    assert is_alike == ((chip in {"Ascend310P3", "Ascend910A"}) == (other == "Ascend310P3"))


def test_every_check_is_seen_at_work() -> None:
    assert {*consistency.CHECKS, *provenance.CHECKS} == {
        *FOUND,
        "cpu",
        "time-stamps",
    }  # which test_timestamp.py sees at work


def test_the_forger_has_more_than_enough_and_few_that_nobody_can_see() -> None:
    assert len(BEFORE) >= 150
    assert len(UNSEEN) <= 10
    text = (Path(__file__).parents[3] / "docs/certification.md").read_text(encoding="utf-8")
    assert not [name for name in UNSEEN if name not in text]


def test_the_self_test_is_the_releases_own() -> None:
    assert (len(PLANTED), len(CORRECT)) == (consistency.PLANTED, consistency.CORRECT)
