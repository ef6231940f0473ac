"""How far a run is."""

from pytest_ascend.plugin.progress import Progress
from tests.unit.runlog import synthetic

CASES = synthetic.op_cases(4)


def after(*outcomes, now=10.0):
    progress = Progress({case.id: 1.0 for case in CASES}, 0.0)
    for case, outcome in zip(CASES, outcomes, strict=False):
        progress.take(synthetic.record(case, outcome, synthetic.Random(1)))
    return progress.line(now)


def test_what_is_left_follows_from_what_was_done():
    assert after("passed").startswith("1 of 4 cases, about 30.0 s left")


def test_deviations_are_counted_and_the_worst_that_passes_is_named():
    line = after("passed", "failed", "errored")
    assert "1 failed, 1 errored" in line
    assert line.endswith(f"of its limit: {CASES[0].id}")


def test_a_finished_run_has_nothing_left():
    assert "left" not in after(*["passed"] * 4)


def test_long_cases_weigh_more():
    progress = Progress({CASES[0].id: 1.0, CASES[1].id: 9.0}, 0.0)
    progress.take(synthetic.record(CASES[0], "passed", synthetic.Random(1)))
    assert "about 1 min 30 s left" in progress.line(10.0)
