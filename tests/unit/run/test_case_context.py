"""From evidence to outcome: a pass has to be earned."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from pytest_ascend.errors import UsageError
from pytest_ascend.records.case import Case
from pytest_ascend.records.outcome import Unsupported
from pytest_ascend.records.record import ResultRecord
from pytest_ascend.records.verdict import Verdict
from pytest_ascend.run.case_context import CaseContext

AGREES = Verdict(path="output", agrees=True, standard="", headline="agrees")
DISAGREES = Verdict(path="output", agrees=False, standard="", headline="output: 3 of 4 differ", message="all lines")


def trial(**known: Any) -> CaseContext:
    return CaseContext(case=Case(suite="ops", subject="relu", property="forward"), node_id="test_x.py::test_y", **known)


def test_a_comparison_that_agrees_is_a_pass() -> None:
    assert trial(verdicts=[AGREES]).outcome().name == "passed"


def test_a_measurement_alone_is_a_pass() -> None:
    assert trial(measurements={"latency_us": 1.0}).outcome().name == "passed"


def test_a_test_that_compared_nothing_is_an_error() -> None:
    assert trial().outcome().name == "errored"


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
    assert trial(verdicts=[AGREES], interrupted=Unsupported(reason="no")).outcome().name == "unsupported"


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
