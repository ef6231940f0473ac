"""Known deviations: read, chosen by combination, and turned into outcomes."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from pytest_ascend.coverage.expectations import NAME, Expectations, load
from pytest_ascend.coverage.manifest import load as load_manifest
from pytest_ascend.errors import UsageError
from pytest_ascend.records.case import Stack
from pytest_ascend.records.outcome import Errored, Failed, Fallback, NotEmulated, Outcome, Passed, Unsupported
from pytest_ascend.system.bundled import folder

STACK = Stack(device="npu", emulated=False, chip="Ascend910B1", cann="8.0.RC3", torch_npu="2.5.1.post1")
ENTRY = {
    "cases": "ops/gelu/*/float16",
    "outcome": "failed",
    "reason": "tanh is ignored",
    "source": "issue 1",
    "expires": "2030-01-31",
}
BEFORE, AFTER = date(2030, 1, 31), date(2030, 2, 1)

Write = Callable[..., Path]


@pytest.fixture
def written(tmp_path: Path) -> Write:
    def write(*entries: Any, schema: int = 1) -> Path:
        path = tmp_path / "mine.json"
        path.write_text(json.dumps({"schema": schema, "expectations": list(entries)}), encoding="utf-8")
        return path

    return write


def one(written: Write, **changes: Any) -> Expectations:
    return load([written({**ENTRY, **changes})], STACK)


def judged(written: Write, found: Outcome, today: date = BEFORE) -> Outcome:
    expectation = one(written).find("ops/gelu/forward/float16")
    assert expectation is not None
    return expectation.judge(found, today)


def test_what_was_expected_is_waived_with_its_reason(written: Write) -> None:
    outcome = judged(written, Failed(reason="off by 1", detail="many lines"))
    assert outcome.name == "waived"
    assert "tanh is ignored" in outcome.reason
    assert "off by 1" in outcome.detail
    assert "many lines" in outcome.detail


def test_what_no_longer_happens_fails(written: Write) -> None:
    outcome = judged(written, Passed())
    assert outcome.name == "failed"
    assert "remove the expectation" in outcome.reason


def test_a_case_that_explores_has_the_deviations_of_its_sweep_and_may_pass(written: Write) -> None:
    """What it asks is left to chance."""
    expectations = one(written, cases="ops/gelu/sweep*/float16")
    known = expectations.known("ops/gelu/explore/float16")
    assert known is not None
    assert known.judge(Failed(reason="off by 1"), (), BEFORE)[0].name == "waived"
    assert known.judge(Passed(), (), BEFORE) == (Passed(), {})
    assert expectations.known("ops/gelu/forward/float16") is None
    frozen = expectations.known("ops/gelu/sweep/float16")
    assert frozen is not None
    assert frozen.judge(Passed(), (), BEFORE)[0].name == "failed"


def test_another_deviation_than_expected_is_not_waived(written: Write) -> None:
    outcome = judged(written, Fallback(reason="computed on the CPU: aten::gelu"))
    assert outcome.name == "fallback"
    assert "expected was failed" in outcome.reason


def test_an_expectation_ends_with_its_day(written: Write) -> None:
    outcome = judged(written, Failed(reason="off by 1"), AFTER)
    assert outcome.name == "failed"
    assert "expected until 2030-01-31, which is over" in outcome.reason


@pytest.mark.parametrize("found", [NotEmulated(reason="x"), Errored(reason="a crash")])
def test_what_says_nothing_stays_as_it_is(written: Write, found: Outcome) -> None:
    assert judged(written, found) == found


def test_an_error_is_expected_by_what_it_says(written: Write) -> None:
    expectation = one(written, outcome="errored", says="nbytes").find("ops/gelu/forward/float16")
    assert expectation is not None
    known = Errored(reason="bug: RuntimeError", detail="RuntimeError: the storage nbytes cannot be divided")
    other = Errored(reason="the process died while it ran this case")
    assert expectation.judge(known, BEFORE).name == "waived"
    assert expectation.judge(other, BEFORE) == other


@pytest.mark.parametrize(
    "changes",
    [{"chip": "Ascend310*"}, {"torch_npu": ">=2.6"}, {"cann": "<8.0.RC3"}, {"emulated": True}, {"torch": ">=2.1"}],
)
def test_it_is_about_its_own_combination_only(written: Write, changes: dict[str, Any]) -> None:
    assert one(written, **changes).find("ops/gelu/forward/float16") is None


@pytest.mark.parametrize("changes", [{"chip": "Ascend910B?"}, {"torch_npu": ">=2.5,<2.6"}, {"cann": ">=8.0.RC2"}])
def test_versions_are_ordered_as_versions(written: Write, changes: dict[str, Any]) -> None:
    assert one(written, **changes).find("ops/gelu/forward/float16")


def test_the_last_one_counts(written: Write) -> None:
    found = load([written(ENTRY, {**ENTRY, "cases": "ops/gelu/*", "reason": "newer"})], STACK)
    expectation = found.find("ops/gelu/forward/float16")
    assert expectation is not None
    assert expectation.reason == "newer"


def test_one_that_matches_nothing_is_refused(written: Write) -> None:
    found = one(written)
    found.refuse_unmatched(["ops/gelu/forward/float16"])
    with pytest.raises(UsageError, match="matches no case"):
        found.refuse_unmatched(["ops/gelu/forward/float32"])


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({**ENTRY, "outcome": "not-run"}, "outcome is 'not-run'"),
        ({**ENTRY, "outcome": "errored"}, "there is no says"),
        ({**ENTRY, "expires": "soon"}, "expires is 'soon'"),
        ({**ENTRY, "source": " "}, "no source"),
        ({**ENTRY, "torch_npu": "new"}, "range of versions"),
        ({**ENTRY, "chp": "x"}, "unknown key: 'chp'"),
        ({**ENTRY, "emulated": "yes"}, "emulated"),
        ("gelu", "no object"),
    ],
)
def test_a_malformed_file_is_refused(written: Write, entry: Any, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        load([written(entry)], STACK)


def test_an_unknown_schema_is_refused(written: Write) -> None:
    with pytest.raises(UsageError, match="expected"):
        load([written(schema=2)], STACK)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        load([tmp_path / "none.json"], STACK)


def test_the_bundled_ones_are_about_cases_of_the_manifest() -> None:
    stack = Stack(device="npu", emulated=True, chip="Ascend910B1", torch_npu="2.13.0")
    found = load([folder("baselines") / NAME], stack)
    assert found.entries
    found.refuse_unmatched(case.id for case in load_manifest(folder("suites")))


# --- the table of causes ---

CAUSE = {
    "cause": "gelu-tanh",
    "outcome": "failed",
    "reason": "tanh is ignored",
    "cases": ["ops/gelu/*/float16", "ops/gelu/out/float32"],
    "source": "seen on the emulated device",
    "expires": "2030-01-31",
    "confirmed": False,
}


def table(tmp_path: Path, *causes: Any) -> Path:
    path = tmp_path / "causes.json"
    path.write_text(json.dumps({"schema": 2, "causes": causes}), encoding="utf-8")
    return path


def test_a_cause_is_about_all_its_patterns_and_is_named_in_the_waiver(tmp_path: Path) -> None:
    found = load([table(tmp_path, CAUSE)], STACK)
    for case_id in ("ops/gelu/forward/float16", "ops/gelu/out/float32"):
        known = found.known(case_id)
        assert known
        outcome, waiver = known.judge(Failed(reason="off by 1"), (), BEFORE)
        assert outcome.name == "waived"
        assert (waiver["cause"], waiver["kind"], waiver["outcome"]) == ("gelu-tanh", "defect", "failed")
    assert found.known("ops/gelu/forward/float32") is None


def test_what_was_seen_on_the_emulated_device_only_may_pass_and_is_noted(tmp_path: Path) -> None:
    [entry] = load([table(tmp_path, CAUSE)], STACK).entries
    outcome = entry.judge(Passed(), BEFORE)
    assert outcome.name == "passed"
    assert "better than expected" in outcome.reason
    assert "remove it from the cause gelu-tanh" in outcome.reason
    confirmed = load([table(tmp_path, {**CAUSE, "confirmed": True})], STACK).entries[0]
    assert confirmed.judge(Passed(), BEFORE).name == "failed"


def test_an_optional_deviation_may_pass(tmp_path: Path) -> None:
    [entry] = load([table(tmp_path, {**CAUSE, "confirmed": True, "optional": True})], STACK).entries
    assert entry.judge(Passed(), BEFORE) == Passed()
    assert entry.judge(Failed(reason="off by 1"), BEFORE).name == "waived"


@pytest.mark.parametrize(("outcome", "kind"), [("fallback", "limit"), ("unsupported", "limit"), ("failed", "defect")])
def test_what_torch_npu_refuses_is_a_limit_and_what_is_wrong_a_defect(tmp_path: Path, outcome: str, kind: str) -> None:
    [entry] = load([table(tmp_path, {**CAUSE, "outcome": outcome})], STACK).entries
    assert entry.kind == kind
    [documented] = load([table(tmp_path, {**CAUSE, "outcome": outcome, "by_design": True})], STACK).entries
    assert documented.kind == "limit"


@pytest.mark.parametrize(
    "found", [Failed(reason="wrong"), Errored(reason="a crash"), Passed(), Unsupported(reason="x")]
)
def test_a_disputed_case_is_disputed_while_it_deviates_until_the_dispute_is_to_be_decided(
    tmp_path: Path, found: Outcome
) -> None:
    [entry] = load([table(tmp_path, {**CAUSE, "outcome": "disputed"})], STACK).entries
    deviates = found.name in ("failed", "unsupported")
    assert entry.judge(found, BEFORE).name == ("disputed" if deviates else found.name)
    assert entry.judge(found, AFTER).name == found.name
    assert ("which is over" in entry.judge(found, AFTER).reason) == deviates


@pytest.mark.parametrize(
    ("changes", "applies"),
    [({"chips": ["Ascend310*"]}, False), ({"devices": ["emulated"]}, False), ({"devices": ["npu"]}, True)],
)
def test_a_cause_is_about_chips_and_devices(tmp_path: Path, changes: dict[str, Any], applies: bool) -> None:
    assert bool(load([table(tmp_path, {**CAUSE, **changes})], STACK).entries) == applies


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"cases": []}, "cases is empty"),
        ({"cases": "ops/*"}, "expected a list"),
        ({"devices": ["tpu"]}, "devices has 'tpu'"),
        ({"derived": "guess"}, "derived is 'guess'"),
        ({"derived": "message"}, "there is no says"),
        ({"confirmed": "yes"}, "expected true or false"),
        ({"cause": ""}, "has no cause"),
    ],
)
def test_a_malformed_cause_is_refused(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        load([table(tmp_path, {**CAUSE, **changes})], STACK)


# --- what is derived when the tests run ---

DERIVED = {**CAUSE, "cause": "no-kernel", "outcome": "fallback", "cases": ["ops/*"], "derived": "dispatcher"}


def derived(tmp_path: Path, found: Outcome, *fallbacks: str, day: date = BEFORE, **changes: Any) -> Outcome:
    known = load([table(tmp_path, {**DERIVED, **changes})], STACK).known("ops/x/forward/float32")
    assert known
    return known.judge(found, fallbacks, day)[0]


def test_an_operator_without_a_kernel_is_waived(tmp_path: Path) -> None:
    found = Fallback(reason="computed on the CPU: aten::lcm")
    waived = derived(tmp_path, found, "aten::lcm")
    assert waived.name == "waived"
    assert "aten::lcm" in waived.reason
    assert derived(tmp_path, found) == found
    assert derived(tmp_path, found, "aten::lcm", day=AFTER) == found
    assert derived(tmp_path, Failed(reason="wrong"), "aten::lcm").name == "failed"
    assert derived(tmp_path, Passed(), "aten::lcm") == Passed()


@pytest.mark.parametrize(
    ("operator", "dtype", "expected"),
    [("aclnnMm", "DOUBLE", "waived"), ("aclnnMm", "FLOAT", "unsupported"), ("aclnnAdd", "DOUBLE", "unsupported")],
)
def test_a_dtype_that_cann_refuses_is_waived_where_its_list_has_not_got_it(
    tmp_path: Path, operator: str, dtype: str, expected: str
) -> None:
    said = (
        f"call {operator} failed, error code is 161002\nTensor self not implemented for DT_{dtype}, should be in dtype"
    )
    found = Unsupported(reason="refused", detail=f"{said} support list [DT_FLOAT16,].")
    assert derived(tmp_path, found, outcome="unsupported", derived="dtypes").name == expected
    assert derived(tmp_path, Unsupported(reason="no"), outcome="unsupported", derived="dtypes").name == "unsupported"


def test_a_refused_dtype_says_where_a_real_card_was_seen_to_refuse_it(tmp_path: Path) -> None:
    said = "call aclnnSort failed\nTensor self not implemented for DT_DOUBLE, should be in dtype support list"
    known = load([table(tmp_path, {**DERIVED, "outcome": "unsupported", "derived": "dtypes"})], STACK)
    reasons = {}
    for case_id in ("ops/sort/forward/float64", "ops/x/forward/float64", "ops/sort/forward/float32"):
        judge = known.known(case_id)
        assert judge
        reasons[case_id] = judge.judge(Unsupported(reason="refused", detail=said), (), BEFORE)[0].reason
    assert [("an Atlas A3" in each) for each in reasons.values()] == [True, False, False]


def test_what_an_outcome_says_of_itself_makes_it_a_known_one(tmp_path: Path) -> None:
    how = {"outcome": "unsupported", "derived": "message", "says": "only aclnn"}
    said = Unsupported(reason="refused", detail="supports only aclnn operators")
    assert derived(tmp_path, said, **how).name == "waived"
    assert derived(tmp_path, Unsupported(reason="refused"), **how).name == "unsupported"
    assert derived(tmp_path, Failed(reason="only aclnn"), **how).name == "failed"
    assert derived(tmp_path, Passed(), **how) == Passed()


def test_the_bundled_table_has_a_cause_once_and_nothing_that_is_derived_is_written_down() -> None:
    stack = Stack(device="npu", emulated=True, chip="Ascend910B1", torch_npu="2.13.0", torch="2.13.0")
    entries = load([folder("baselines") / NAME], stack).entries
    causes = [each.cause for each in entries]
    assert len(causes) == len(set(causes))
    assert {each.derived for each in entries} == {"", "dispatcher", "dtypes", "message", "numbers"}
    assert not [each.cause for each in entries if each.outcome == "fallback" and not each.derived]
    assert not [each.cause for each in entries if "2.13" in str(each.versions.get("torch_npu", ""))]


# --- what chips do otherwise, by design ---

OLD, NEW = "Ascend310P3", "Ascend910B1"
SATURATION, HALF_PRODUCTS = "saturation in place of Inf and NaN", "products of float32 in half precision"


def on(chip: str, *deviations: str, case: str = "ops/exp/special/float16") -> Outcome:
    """Return what the bundled table makes of a case that fails in these ways alone, on a chip."""
    stack = Stack(device="npu", emulated=False, chip=chip, cann="8.3.RC1", torch_npu="2.7.1")
    known = load([folder("baselines") / NAME], stack).known(case)
    assert known
    found = Failed(reason="3 of 5 elements differ", detail=f"as expected of a chip with {', '.join(deviations)}")
    return known.judge(found, (), date(2026, 12, 1), frozenset(deviations))[0]


def test_what_a_chip_does_by_design_is_waived_on_that_chip_alone() -> None:
    assert on(OLD, SATURATION).name == "waived"
    assert on("Ascend910A", SATURATION).name == "waived"
    assert on(NEW, SATURATION).name == "failed"
    assert on("Ascend950PR", "subnormal numbers flushed to zero").name == "waived"
    assert on(OLD, "subnormal numbers flushed to zero").name == "failed"


def test_several_are_waived_together_and_none_with_one_that_is_not_the_chips() -> None:
    product = "ops/mm/forward/float32"
    assert on(OLD, SATURATION, HALF_PRODUCTS, case=product).name == "waived"
    assert on(OLD, SATURATION, "subnormal numbers flushed to zero", case=product).name == "failed"
    assert on(OLD, case=product).name == "failed"


def test_a_dtype_that_a_chip_has_not_is_waived_there() -> None:
    said = "aclnnExp: Tensor self not implemented for DT_BFLOAT16, should be in dtype support list [DT_FLOAT,]."
    for chip, outcome in ((OLD, "waived"), (NEW, "unsupported")):
        stack = Stack(device="npu", emulated=False, chip=chip, cann="8.3.RC1", torch_npu="2.7.1")
        known = load([folder("baselines") / NAME], stack).known("fused/npu_x/forward/bfloat16")
        assert known
        product = "The soc version does not support bf16 / fp32 for calculations, please change the setting"
        for detail in (said, product):
            assert known.judge(Unsupported(reason="refused", detail=detail), (), date(2026, 12, 1))[0].name == outcome
