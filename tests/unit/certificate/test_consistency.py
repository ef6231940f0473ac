"""A log that contradicts itself or the release is refused by name; the evaluation ``forger`` plays all forgeries."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_ascend.certificate import consistency, provenance
from pytest_ascend.certificate.requirements import Candidate, refusals
from pytest_ascend.certificate.tiers import TIERS
from pytest_ascend.environment.chips import pinned
from pytest_ascend.errors import RunLogError
from pytest_ascend.run.self_test import CORRECT, PLANTED
from pytest_ascend.runlog.contents import Header
from pytest_ascend.runlog.reading import read
from pytest_ascend.verdict.summary import summarise
from tests.unit.runlog.synthetic import replace

from . import runs
from .forgeries import BEFORE, UNSEEN, of, parsed, written

FATES = runs.ended(5, "fallback") | runs.ended(7, "waived", waiver=runs.WAIVER)
#: Each check, a forgery that it finds, and what it says of it.
FOUND = {
    "leaves": ("a leaf that disagrees", "ops/op1/forward/float32: output agrees, and its parts do not say so"),
    "figures": (
        "a limit used 400 times",
        "ops/op1/forward/float32: output agrees, and used 400 of its limit; so do 3 more",
    ),
    "standard": ("another standard", "ops/op1/forward/float32: output is judged by torch@1; so do 1 more"),
    "comparison": ("one made-up measurement for all verdicts", "ops/op1/forward/float32: passed without a comparison"),
    "measurements": ("a latency that is not its samples'", "latency_p50_us is 1, and the median of its samples 1000"),
    "words": ("a reason in a pass", "ops/op1/forward/float32: passed, with a reason"),
    "fallback": (
        "a fallback that disagrees",
        "ops/op1/forward/float32: computed by the CPU, and a comparison disagrees",
    ),
    "test": ("a test of the issuer's", "run by tests/mine.py::test, which is no test of its suite"),
    "attempts": (
        "failed, then passed",
        "1 case whose outcome does not follow from the attempts: ops/op1/forward/float32",
    ),
    "known-deviations": (
        "370 waivers that the release does not have",
        "125 cases waived, for which this release knows no such cause: environment/device/found, ",
    ),
    "invented": ("one invented case", "1 case that this release does not have: ops/new0/forward/float32"),
    "self-test": ("one of 15 planted errors", "1 planted errors and 5 correct results; this release has 15 and 5"),
    "chain": ("a line that was changed after it was written", "Line 2 does not continue the chain of hashes"),
    "clock": ("a run resumed over five years", "the run took 1,826 days; 14 at most are one run"),
    "chip": ("chip NVIDIA H100", "'NVIDIA H100' is no NPU that this release knows"),
    "versions": ("CANN 99.0.0", "this release knows no CANN 99.0.0"),
    "machine": ("torch_npu 2.1 in what the doctor saw", "the stack says torch_npu 2.9.0, and the doctor saw 2.1.0"),
    "findings": (
        "this process runs on the emulated CANN",
        "the run was on the emulated CANN: this process runs on the emulated CANN",
    ),
    "devices": ("health Critical", "the health of device 0 was Critical"),
    "options": ("forced precision", "computed with other numerics than this release pins: ACL_PRECISION_MODE"),
    "one-run": ("the header of one shard of five", "the log is part 1 of 5 of a run"),
}


#: The checks that refuse, in their order -> the forgeries that they refuse.
REFUSED = {
    "attempts": (
        "failed, then passed",
        "errored, then passed",
        "passed, failed, passed",
        "failed, then passed, in every record",
        "a failure in every attempt",
        "a crash in every attempt",
        "an end that there is not",
        "an attempt that no record has",
        "a crash that no record has",
    ),
    "blind": (
        "14 of 15 planted errors seen",
        "no planted errors",
        "a card that was taken out",
    ),
    "chain": (
        "a line that was changed after it was written",
        "a line of another run",
        "two lines that changed places",
        "no chain",
    ),
    "chip": ("chip NVIDIA H100, and so npu-smi",),
    "chip devices": ("chip NVIDIA H100",),
    "clock": (
        "finished before it started",
        "finished years ahead",
        "a run in years to come",
        "issued before the run",
        "a run of five years",
        "a run resumed over five years",
        "continued after its end",
        "continued before its start",
        "continued with more records than there are",
        "continued backwards",
        "a case that took longer than the run",
        "a run that was faster than its cases",
        "shards of two years",
    ),
    "comparison": (
        "one made-up measurement for all verdicts",
        "made-up measurements in every record",
    ),
    "device": (
        "the device cuda",
        "an emulated stack",
    ),
    "devices": (
        "an attempt on a device that is not there",
        "Ascend310 in what npu-smi saw",
        "health Critical",
        "health Warning",
        "a device of 8 GB",
        "a device of 900 GB",
        "one device twice",
    ),
    "devices options": ("another chip in the stack",),
    "disturbed": ("no figure of a benchmark",),
    "disturbed measurements": ("a latency that is no number",),
    "failures": (
        "a failure",
        "an error",
        "a flaky case",
        "an unsupported case",
    ),
    "fallbacks": ("two fallbacks",),
    "fallbacks fallback": ("a fallback of nothing",),
    "fallbacks figures fallback": ("a fallback that disagrees",),
    "figures": (
        "a limit used 1.5 times",
        "a limit used 1.0001 times",
        "a limit used 400 times",
        "a limit of which nan was used",
        "15 of 20 elements differ",
        "15 mismatches",
        "a message in a pass",
        "a pattern in a pass",
        "a larger error than the limit",
        "a limit of 1e9",
        "a share of the limit that the error does not give",
        "no share of the limit",
        "percentiles that do not ascend",
        "a percentile above the maximum",
        "shares that do not ascend",
        "a negative error",
        "half an element",
    ),
    "findings": (
        "this process runs on the emulated CANN",
        "no sign of Ascend",
        "an error as a note",
        "a finding of the issuer's",
        "a disagreement that the doctor did not find",
    ),
    "incomplete": (
        "a footer that counts otherwise",
        "a footer that says otherwise",
        "no footer",
    ),
    "incomplete blind": ("a planted error missed",),
    "incomplete failures": (
        "no verdicts",
        "a case that is not emulated",
    ),
    "incomplete failures leaves figures": ("a verdict that disagrees in a pass",),
    "incomplete fallbacks": ("an operator that the CPU computed in a pass",),
    "incomplete missing": ("a record less",),
    "invented": (
        "one invented case",
        "a case of another level",
        "a case of another family",
    ),
    "known-deviations": (
        "a disputed case of the issuer's",
        "another reason for a waiver",
        "a longer waiver",
        "a crash under a waiver for a failure",
        "a pass where the release expects a failure",
    ),
    "leaves": (
        "another figure in the leaf",
        "figures without a leaf",
    ),
    "leaves figures": (
        "a leaf that disagrees",
        "a leaf that disagrees, with words",
        "another figure in the verdict",
    ),
    "limits known-deviations": ("a limit of design in place of a defect",),
    "machine": (
        "torch_npu 2.1 in what the doctor saw",
        "another driver in the stack",
        "another firmware in the stack",
        "another commit in the stack",
        "another Python in the stack",
        "a version that its evidence does not give",
        "another architecture",
        "no components",
        "the doctor of another machine",
    ),
    "measurements": ("a latency that is not its samples'",),
    "missing": (
        "a case that was not run",
        "a case less",
    ),
    "missing fallbacks": ("half of the cases",),
    "mixed": ("no driver",),
    "mixed devices": ("no chip",),
    "one-run": (
        "the header of one shard of five",
        "shards of two machines",
    ),
    "options": (
        "asked for on the emulated device",
        "asked for on the CPU",
        "the numerics of the emulated device",
        "an emulator among the options",
        "the memory of the emulated device",
        "forced precision",
        "HF32 in convolutions",
        "no numerics",
    ),
    "release": (
        "another manifest",
        "other goldens",
        "other known deviations",
        "other judges",
        "nothing that it was judged by",
        "another release",
    ),
    "self-test": (
        "one of 15 planted errors",
        "no right result tried",
    ),
    "standard": (
        "another standard",
        "another standard in a leaf",
        "a standard of the issuer's",
        "a later version of the standard",
        "a waiver of the limit",
    ),
    "subset": (
        "a subset",
        "level smoke",
    ),
    "tampered": (
        "a planted fault",
        "another standard asked for",
    ),
    "test": (
        "a test of another suite",
        "a test of the issuer's",
        "a test of the issuer's in every record",
        "two records that changed places",
    ),
    "unhealthy": (
        "no doctor",
        "no devices",
    ),
    "unhealthy findings": (
        "an error that the doctor found",
        "a setting that changes numbers",
    ),
    "unhealthy machine findings options": ("an emulated log with a few fields relabelled",),
    "versions": (
        "CANN 99.0.0",
        "a CANN that does not belong to torch_npu",
        "a torch_npu that was never published",
        "a torch that torch_npu is not for",
    ),
    "versions machine": (
        "CANN 99.0.0 in the stack alone",
        "torch_npu 2.1 in the stack",
    ),
    "waivers known-deviations": (
        "a waiver of the issuer's",
        "370 waivers that the release does not have",
        "a waiver until 2099",
        "a waiver that is over",
        "a waiver without an issue",
    ),
    "words": (
        "a reason in a pass",
        "a detail in a pass",
        "a waiver in a pass",
        "a diagnosis in a pass",
        "a program that shows what is wrong with a pass",
    ),
}
#: What takes seconds, and what is no log at all.
ELSEWHERE = {"20,000 invented cases", "a time without an offset"}


BY_NAME = {name: checks.split() for checks, names in REFUSED.items() for name in names}


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return runs.write_log(tmp_path_factory.mktemp("run") / "run.jsonl", FATES).read_bytes()


def refused(path: Path, content: bytes) -> dict[str, str]:
    path.write_bytes(content)
    tier, release = TIERS["performance"], runs.release_for(FATES)
    subject = Candidate(summary=summarise(read(path)), tier=tier, release=release, on=runs.ISSUED)
    found: dict[str, str] = {}
    for each in refusals(subject):
        found[each.id] = f"{found.get(each.id, '')}{each.says}\n"
    return found


@pytest.mark.parametrize("name", BY_NAME)
def test_a_forgery_is_refused_by_what_it_contradicts_and_by_nothing_else(log: bytes, tmp_path: Path, name: str) -> None:
    forged = parsed(log)
    BEFORE[name](forged)
    found = refused(tmp_path / "run.jsonl", written(forged))
    assert list(found) == BY_NAME[name]
    for check, (forgery, says) in FOUND.items():
        assert forgery != name or says in found[check]


def test_no_forgery_is_left_out() -> None:
    assert BEFORE.keys() - UNSEEN.keys() == BY_NAME.keys() | ELSEWHERE


def test_a_time_without_an_offset_is_no_log(log: bytes, tmp_path: Path) -> None:
    forged = parsed(log)
    BEFORE["a time without an offset"](forged)
    with pytest.raises(RunLogError, match="with its offset"):
        refused(tmp_path / "run.jsonl", written(forged))


def test_the_figures_of_a_cpu_are_not_a_chips(log: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forged = parsed(log)
    BEFORE["an emulated log with a few fields relabelled"](forged)
    monkeypatch.setattr(consistency, "ROUNDED", {f"op{index}" for index in range(120)})
    assert {"cpu", "findings", "machine", "options"} <= refused(tmp_path / "run.jsonl", written(forged)).keys()


def test_a_log_that_is_true_is_not_refused(log: bytes, tmp_path: Path) -> None:
    assert refused(tmp_path / "run.jsonl", log) == {}


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


def test_a_comparison_that_disagrees_is_named_so(log: bytes, tmp_path: Path) -> None:
    said = refused(tmp_path / "run.jsonl", log.replace(b'"agrees":true', b'"agrees":false', 1))["figures"]
    assert ": output disagrees, and says 'agrees" in said


@pytest.mark.parametrize("name", pinned("Ascend910B3"))
def test_the_setting_that_is_another_is_named(log: bytes, tmp_path: Path, name: str) -> None:
    forged = parsed(log)
    forged["header"]["options"]["numerics"][name] = "other"
    assert refused(tmp_path / "run.jsonl", written(forged))["options"].endswith(f"pins: {name}\n")


@pytest.mark.parametrize("snippet", ["", "print(1)"])
def test_a_pass_may_say_that_it_is_better_than_the_reference_and_nothing_else(
    log: bytes, tmp_path: Path, snippet: str
) -> None:
    said = parsed(log)
    of(said).update(reason=f"{consistency.BETTER} ...", snippet=snippet)
    assert refused(tmp_path / "run.jsonl", written(said)).get("words", "").endswith("passed, with a snippet\n") is bool(
        snippet
    )


@given(st.integers(0, 10**12), st.floats(0.001, 0.999))
def test_elements_are_counted_in_whole_numbers(count: int, part: float) -> None:
    assert not [*consistency._impossible({"count": float(count)}, None)]
    assert [*consistency._impossible({"count": count % 10**6 + part}, None)] == [
        f"it has {count % 10**6 + part:g} elements"
    ]


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
