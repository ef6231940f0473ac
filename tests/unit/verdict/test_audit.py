"""Nobody is taken at their word: the outcome that a record's own evidence allows."""

from pytest_ascend.records.case import Case
from pytest_ascend.records.outcome import Disputed, NotEmulated, Passed, Waived
from pytest_ascend.records.record import ResultRecord
from pytest_ascend.verdict.summary import verified
from tests.unit.runlog import synthetic


def audit(stack=synthetic.HARDWARE, outcome=None, **fields):
    case = Case(suite="ops", subject="relu", property="forward")
    record = ResultRecord.of(case, "test", outcome or Passed(), **fields)
    return verified(record, stack).outcome


def test_a_pass_that_compared_nothing_is_an_error():
    assert audit().name == "errored"


def test_a_measurement_is_evidence():
    assert audit(measurements={"latency_us": 1.0}).name == "passed"


def test_a_pass_with_a_disagreeing_comparison_is_a_failure():
    relu = Case(suite="ops", subject="relu", property="forward")
    disagrees = synthetic.verdict(relu, agrees=False, random=synthetic.Random(1))
    assert audit(verdicts=(disagrees,)).name == "failed"


def test_a_pass_with_fallbacks_is_a_fallback():
    found = audit(measurements={"latency_us": 1.0}, fallbacks=("aten::relu",))
    assert (found.name, found.reason) == ("fallback", "computed on the CPU: aten::relu")


def test_a_waiver_without_a_reason_is_an_error():
    assert audit(outcome=Waived()).name == "errored"


def test_a_dispute_without_a_reason_is_an_error():
    assert audit(outcome=Disputed()).name == "errored"
    assert audit(outcome=Disputed(reason="the sample is all rounding")).name == "disputed"


def test_the_detail_of_a_contradicted_record_is_kept():
    assert audit(outcome=NotEmulated(reason="x", detail="plog")).detail == "plog"
