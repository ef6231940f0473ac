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
from pytest_ascend.records.outcome import Errored, Failed, Fallback, NotEmulated, Outcome, Passed
from pytest_ascend.records.stack import Stack
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
        path.write_text(json.dumps({"schema": schema, "expectations": list(entries)}))
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
