"""From evidence to outcome: a pass has to be earned."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from typing import Any

import msgspec
import pytest
import torch

from pytest_ascend.coverage.expectations import Expectation, Known
from pytest_ascend.errors import UsageError
from pytest_ascend.precision import compare
from pytest_ascend.records.case import Case
from pytest_ascend.records.outcome import Unsupported
from pytest_ascend.records.record import ResultRecord
from pytest_ascend.records.verdict import HALVES, SATURATES, Verdict, as_expected_of
from pytest_ascend.run.case_context import OVERFLOWED, REASON_CHARACTERS, CaseContext, watching

AGREES = Verdict(path="output", agrees=True, standard="", headline="agrees").as_whole()
DISAGREES = Verdict(path="output", agrees=False, standard="", headline="output: 3 of 4 differ", message="all lines")


def trial(**known: Any) -> CaseContext:
    return CaseContext(case=Case(suite="ops", subject="relu", property="forward"), node_id="test_x.py::test_y", **known)


def test_a_comparison_that_agrees_is_a_pass() -> None:
    assert trial(verdicts=[AGREES]).outcome().name == "passed"


def test_a_measurement_alone_is_a_pass() -> None:
    assert trial(measurements={"latency_us": 1.0}).outcome().name == "passed"


def test_a_test_that_compared_nothing_is_an_error() -> None:
    assert trial().outcome().name == "errored"
    assert trial(verdicts=[compare([], [])]).outcome().name == "errored"
    assert trial(verdicts=[compare([], []), compare(torch.ones(0), torch.ones(0))]).outcome().name == "passed"
    assert trial(verdicts=[compare({}, {})], is_own=True).outcome().name == "not-judged"


def test_a_disagreement_that_the_test_swallowed_is_a_failure() -> None:
    outcome = trial(verdicts=[AGREES, DISAGREES]).outcome()
    assert (outcome.name, outcome.reason, outcome.detail) == ("failed", "output: 3 of 4 differ", "all lines")


def test_right_numbers_from_the_cpu_are_a_fallback() -> None:
    outcome = trial(verdicts=[AGREES], fallbacks=["aten::lgamma"]).outcome()
    assert outcome.name == "fallback"
    assert "aten::lgamma" in outcome.reason


def test_wrong_numbers_from_the_cpu_are_a_failure() -> None:
    assert trial(verdicts=[DISAGREES], fallbacks=["aten::lgamma"]).outcome().name == "failed"


def test_a_fallback_that_compared_nothing_is_an_error() -> None:
    assert trial(fallbacks=["aten::lgamma"]).outcome().name == "errored"


def test_what_interrupted_the_test_decides() -> None:
    assert trial(verdicts=[AGREES], error_outcome=Unsupported(reason="no")).outcome().name == "unsupported"


@pytest.mark.parametrize("value", [True, "1", None, {"a": 1.0}])
def test_a_measurement_is_one_number(value: Any) -> None:
    with pytest.raises(UsageError, match="latency_us"):
        trial().measure("latency_us", value)


def test_a_measurement_is_taken_once() -> None:
    one = trial()
    one.measure("latency_us", 1)
    with pytest.raises(UsageError, match="twice"):
        one.measure("latency_us", 2)


def test_a_record_survives_the_way_between_processes() -> None:
    record = trial(verdicts=[AGREES], measurements={"latency_us": 1.0}).record()
    assert msgspec.convert(msgspec.to_builtins(record), ResultRecord) == record


def test_a_list_is_kept_as_a_series_beside_the_figure_of_that_name() -> None:
    case = trial()
    case.measure("latency_us", 2)
    case.measure("latency_us", [1, 2.5, 3])
    record = msgspec.convert(msgspec.to_builtins(case.record()), ResultRecord)
    assert (record.measurements, record.series) == ({"latency_us": 2.0}, {"latency_us": [1.0, 2.5, 3.0]})


@pytest.mark.parametrize("value", [[1, "2"], "12", True, None])
def test_what_is_no_number_is_refused(value: Any) -> None:
    with pytest.raises(UsageError, match="give one int or float, or a list"):
        trial().measure("latency_us", value)


def by_design(says: str) -> Known:
    return Known(
        None,
        (
            Expectation(
                cause="design", cases=("*",), outcome="failed", reason="by design", source="data", versions={},
                expires=date(2199, 1, 1), says=says, derived="numbers",
            ),
        ),
    )  # fmt: skip


@pytest.mark.parametrize(("says", "multiplied"), [(HALVES, None), (HALVES, True), (HALVES, False), (SATURATES, False)])
def test_products_of_halves_explain_nothing_where_nothing_was_multiplied(says: str, multiplied: bool | None) -> None:
    wrong = Verdict(
        path="output",
        agrees=False,
        standard="",
        headline="differs",
        message=as_expected_of([says]),
        pattern=as_expected_of([says]),
    )
    outcome = trial(verdicts=[wrong], multiplied=multiplied, known=by_design(says)).outcome()
    assert outcome.name == ("failed" if says == HALVES and multiplied is False else "waived")
    found = trial(verdicts=[wrong], multiplied=multiplied, known=by_design(says))
    found.case = found.case.but(suite="models")  # of which one case computes for the others
    assert found.outcome().name == "waived"


def test_a_failure_says_that_something_overflowed_where_the_npu_remembers_it() -> None:
    assert OVERFLOWED in trial(verdicts=[DISAGREES], overflowed=True).outcome().detail
    assert OVERFLOWED not in trial(verdicts=[DISAGREES]).outcome().detail
    assert trial(verdicts=[AGREES], overflowed=True).outcome().name == "passed"


@pytest.mark.parametrize(
    ("patterns", "explained"),
    [
        ((as_expected_of([HALVES]),), True),
        ((as_expected_of([HALVES]), as_expected_of([SATURATES])), True),  # each by one of them
        ((as_expected_of([HALVES]), "rows are exchanged"), False),
    ],
)
def test_a_case_deviates_by_design_where_all_that_disagrees_is_explained(
    patterns: tuple[str, ...], explained: bool
) -> None:
    leaves = tuple(
        Verdict(path=str(place), agrees=False, standard="", headline="differs", pattern=each, message=patterns[0])
        for place, each in enumerate(patterns)
    )
    whole = replace(leaves[0], pattern="", leaves=(*AGREES.leaves, *leaves))
    known = Known(None, (*by_design(HALVES).derived, *by_design(SATURATES).derived))
    for verdicts in ([AGREES, whole], [*leaves]):
        assert trial(verdicts=verdicts, known=known).outcome().name == ("waived" if explained else "failed")


def test_looser_limits_than_the_standards_are_a_waiver_that_gives_each_reason_once() -> None:
    loose = [replace(AGREES, waiver=why) for why in ("too strict", "", "old chip", "too strict")]
    record = trial(verdicts=loose).record()
    assert record.outcome.name == "waived"
    assert record.outcome.reason == "judged by looser limits than the standard's: too strict; old chip"
    assert record.waiver == {"reason": "too strict; old chip"}
    assert trial(verdicts=[AGREES]).record().waiver == {}


def test_a_program_is_asked_for_where_something_is_wrong_with_what_was_wrong_first() -> None:
    asked: list[Verdict | None] = []

    def reproduce(verdict: Verdict | None) -> str:
        asked.append(verdict)
        return "import torch"

    second = replace(DISAGREES, path="another")
    assert trial(verdicts=[AGREES, DISAGREES, second], reproduce=reproduce).record().snippet == "import torch"
    assert trial(error_outcome=Unsupported(reason="no"), reproduce=reproduce).record().snippet == "import torch"
    assert trial(verdicts=[AGREES], reproduce=reproduce).record().snippet == ""
    assert trial(verdicts=[DISAGREES]).record().snippet == ""
    assert asked == [DISAGREES, None]


def test_why_there_is_no_program_is_one_line_of_a_comment() -> None:
    def reproduce(_: Verdict | None) -> str:
        raise ValueError("a lambda\n" + 300 * "x")

    said = trial(verdicts=[DISAGREES], reproduce=reproduce).record().snippet
    assert said.startswith("# no program: a lambda")
    assert "\n" not in said
    assert len(said) == len("# no program: ") + REASON_CHARACTERS


def test_everything_that_was_gathered_is_in_the_record() -> None:
    codes = {"kind": "hccl", "codes": [{"code": "1", "says": "", "source": ""}]}
    record = trial(verdicts=[AGREES], fallbacks=["aten::lgamma"], duration_s=2.5, diagnosis=codes).record()
    assert (record.node_id, record.fallbacks, record.duration_s, record.diagnosis) == (
        "test_x.py::test_y", ("aten::lgamma",), 2.5, codes,
    )  # fmt: skip


class Fallible:
    """A device whose operators may fall back, as the watch of this test says; it raises when it is waited for."""

    kind, falls_back = "cpu", True

    def overflowed(self) -> bool:
        raise RuntimeError("a dead device")

    def synchronize(self) -> None:
        raise RuntimeError("507015")


@pytest.mark.parametrize("timed", [True, False])
def test_a_case_that_is_not_timed_is_watched_and_its_device_raises_within_it(
    timed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pytest_ascend.device.dispatcher.kind", lambda name: "fallback" if "mul" in name else "")
    monkeypatch.setattr(Fallible, "overflowed", lambda self: False)
    case = trial()
    x = torch.ones(2, 2)
    with pytest.raises(RuntimeError, match="507015"), watching(case, Fallible(), timed=timed):  # type: ignore[arg-type]
        torch.mm(x * x, x)
    assert (case.fallbacks, case.multiplied) == (([], None) if timed else (["aten::mul.Tensor"], True))


def test_a_dead_device_is_what_the_test_raised_first() -> None:
    device = Fallible()
    device.overflowed = iter((False,)).__next__  # type: ignore[method-assign]
    with pytest.raises(KeyError, match="first"), watching(trial(), device, timed=True):  # type: ignore[arg-type]  # noqa: PT012
        device.overflowed = Fallible().overflowed  # type: ignore[method-assign]
        raise KeyError("first")


class Remembering:
    """A device that has a status of overflow."""

    kind, falls_back = "npu", False

    def __init__(self) -> None:
        self.status = True

    def overflowed(self) -> bool:
        was, self.status = self.status, False
        return was

    def synchronize(self) -> None:
        pass


@pytest.mark.parametrize("overflows", [True, False])
def test_a_case_begins_without_the_overflow_of_an_earlier_one_and_leaves_none(overflows: bool) -> None:
    device, case = Remembering(), trial()
    with watching(case, device, timed=False):  # type: ignore[arg-type]
        assert not device.status
        device.status = overflows
    assert (case.overflowed, device.status) == (overflows, False)


def test_other_formulas_may_explain_wrong_numbers_and_nothing_else() -> None:
    numbers = compare(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 3.0]).double())
    said = compare("takes 4 times as long", "", standard="binary")
    for verdict, may_be in ((numbers, True), (said, False), (compare(torch.ones(2), torch.ones(3)), False)):
        context = trial()
        context.note(verdict)
        assert context.is_wrong()
        assert context.has_wrong_numbers() is may_be
