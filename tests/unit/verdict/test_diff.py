"""Two runs side by side: what is worse, better, new or absent, and what drifts."""

import pytest

from pytest_ascend.runlog.contents import Run, Selection
from pytest_ascend.verdict.diff import KINDS, compare
from pytest_ascend.verdict.summary import summarise
from tests.unit.runlog import synthetic
from tests.unit.runlog.synthetic import replace

CASES = synthetic.op_cases(4)


def summary(outcomes, *, cases=CASES, stack=synthetic.HARDWARE, selection=None, change=lambda record: record):
    records = synthetic.records(cases[: len(outcomes)], outcomes, synthetic.Random(7))
    header = synthetic.header(cases, stack=stack, selection=selection)
    return summarise(Run(header=header, records=tuple(change(record) for record in records)))


def kinds(before, after, **settings):
    diff = compare(before, after, **settings)
    return {kind: [each.id for each in diff.changes[kind]] for kind in KINDS if diff.changes[kind]}


def used(share):
    """Give a change of a record: every comparison used this share of its limit."""

    def change(record):
        verdicts = [replace(each, metrics={**each.metrics, "limit_used": share}) for each in record.verdicts]
        return replace(record, verdicts=tuple(verdicts))

    return change


def measured(series=None, **figures):
    return lambda record: replace(record, measurements=figures, series=series or {})


PASSED = ["passed"] * 4


def test_the_same_run_twice_has_no_changes():
    diff = compare(summary(PASSED), summary(PASSED))
    assert (kinds(summary(PASSED), summary(PASSED)), diff.unchanged, diff.failures(KINDS)) == ({}, 4, [])


@pytest.mark.parametrize("bad", ["failed", "errored", "fallback", "unsupported"])
def test_what_conformed_and_does_not_any_more_is_a_regression(bad):
    one, other = summary(PASSED), summary(["passed", bad, "waived", "passed"])
    assert kinds(one, other) == {"regression": [CASES[1].id], "other": [CASES[2].id]}
    assert kinds(other, one) == {"fix": [CASES[1].id], "other": [CASES[2].id]}


@pytest.mark.parametrize("missing", ["not-run", "not-emulated"])
def test_what_one_run_did_not_execute_is_no_regression_and_leaves_the_answer_open(missing):
    one = summary(PASSED, change=used(0.1), stack=synthetic.EMULATED)
    other = summary(["passed", missing, "passed", "passed"], change=used(0.1), stack=synthetic.EMULATED)
    assert kinds(one, other) == kinds(other, one) == {missing: [CASES[1].id]}
    assert (compare(one, other).answer, compare(other, one).answer) == ("cannot-tell", "yes")
    assert compare(one, other).failures(KINDS[:1]) == []


def test_a_case_without_a_record_was_not_run():
    assert kinds(summary(PASSED), summary(PASSED[:3])) == {"not-run": [CASES[3].id]}


def known(outcome, cause="gelu-tanh"):
    """Have every waived case deviate in this way below the waiver."""

    def change(record):
        is_waived = record.outcome.name == "waived"
        return replace(record, waiver={"cause": cause, "outcome": outcome}) if is_waived else record

    return change


def test_what_the_stack_did_is_compared_below_the_waiver():
    bare, waived = summary(["fallback", *PASSED[:3]]), summary(["waived", *PASSED[:3]], change=known("fallback"))
    assert kinds(bare, waived) == kinds(waived, bare) == {"known": [CASES[0].id]}
    assert (compare(waived, bare).answer, compare(bare, waived).answer) == ("yes", "yes")
    assert kinds(waived, summary(["waived", *PASSED[:3]], change=known("fallback", "other"))) == {
        "known": [CASES[0].id]
    }


@pytest.mark.parametrize(
    ("knows", "expires", "kind"),
    [
        ("ops/*: failed until 2030-01-31", "2030-01-31", "regression"),
        ("ops/*: failed until 2020-01-31", "2020-01-31", "known"),
        ("models/*: failed until 2030-01-31", "2030-01-31", "known"),
    ],
)
def test_a_case_that_is_not_excused_any_more_by_the_same_entry_is_a_regression(knows, expires, kind):
    """It deviates, as before, but otherwise than known: what was known must not hide it."""

    def of(outcome):
        found = summary([outcome, *PASSED[:3]], change=known("failed"))
        [first, *others] = found.run.records
        first = replace(first, waiver={**first.waiver, "expires": expires}) if outcome == "waived" else first
        header = replace(found.run.header, options={**found.run.header.options, "expectations": [knows]})
        return summarise(replace(found.run, header=header, records=(first, *others)))

    assert kinds(of("waived"), of("failed")) == {kind: [CASES[0].id]}


def test_a_waiver_hides_no_regression():
    worse = compare(summary(PASSED), summary(["waived", *PASSED[:3]], change=known("fallback")))
    assert [each.id for each in worse.changes["regression"]] == [CASES[0].id]
    assert worse.answer == "no"
    assert sum(len(each.cases) for each in worse.causes) == 1


def test_errors_that_are_infinite_in_both_runs_do_not_grow():
    one = summary(PASSED, change=used(float("inf")))
    assert kinds(one, one) == {}
    assert (compare(one, one).answer, compare(one, one).unchanged) == ("yes", 4)


def test_one_deviation_in_the_place_of_another_is_neither():
    assert kinds(summary(["failed"] * 4), summary(["failed"] * 3 + ["errored"])) == {"other": [CASES[3].id]}


def test_cases_that_only_one_run_has_are_new_or_vanished():
    less = summary(PASSED, cases=CASES[:3])
    assert kinds(less, summary(PASSED)) == {"new": [CASES[3].id]}
    assert kinds(summary(PASSED), less) == {"vanished": [CASES[3].id]}
    many = synthetic.op_cases(20)
    gone = kinds(summary([], cases=many), summary([], cases=many[:1]))["vanished"]
    assert gone == [each.id for each in many[1:]], "in the order of the earlier run"


def test_a_case_that_vanished_is_blamed_only_where_both_runs_had_to_have_it():
    less = summary(PASSED, cases=CASES[:3])
    assert len(compare(summary(PASSED), less).failures(["vanished"])) == 1
    subset = summary(PASSED, cases=CASES[:3], selection=Selection("subset", "-k relu"))
    assert compare(summary(PASSED), subset).failures(["vanished"]) == []


def test_a_new_case_is_blamed_only_if_it_deviates():
    less = summary(PASSED, cases=CASES[:3])
    assert compare(less, summary(PASSED)).failures(["new"]) == []
    assert len(compare(less, summary([*PASSED[:3], "failed"])).failures(["new"])) == 1


@pytest.mark.parametrize(
    ("before", "after", "drifts"),
    [(0.1, 0.3, True), (0.1, 0.19, False), (0.01, 0.09, False), (0.0, 0.5, True), (0.5, 0.1, False)],
)
def test_an_error_drifts_when_it_doubles_and_is_no_mere_rounding(before, after, drifts):
    found = kinds(summary(PASSED, change=used(before)), summary(PASSED, change=used(after)))
    assert list(found) == (["error-drift"] if drifts else [])


def test_errors_by_different_standards_are_not_compared():
    def other(record):
        return replace(record, verdicts=tuple(replace(each, standard="other@1") for each in used(0.9)(record).verdicts))

    assert kinds(summary(PASSED, change=used(0.1)), summary(PASSED, change=other)) == {}


@pytest.mark.parametrize(
    ("name", "before", "after", "kind"),
    [
        ("latency_us", 100.0, 120.0, "slower"),
        ("latency_us", 120.0, 100.0, "faster"),
        ("load_ms", 100.0, 120.0, "slower"),
        ("start_s", 100.0, 120.0, "slower"),
        ("throughput_per_s", 100.0, 80.0, "slower"),
        ("peak_memory_bytes", 100.0, 150.0, "slower"),
        ("latency_us", 100.0, 105.0, None),
        ("rounds", 10.0, 100.0, None),
        ("latency_us", 0.0, 100.0, None),
        ("latency_us", float("nan"), 100.0, None),
    ],
)
def test_speed_drifts_by_the_unit_in_the_name(name, before, after, kind):
    one, other = (summary(PASSED[:1], cases=CASES[:1], change=measured(**{name: each})) for each in (before, after))
    assert list(kinds(one, other)) == ([kind] if kind else [])


def test_a_difference_within_the_spread_of_the_samples_is_none():
    def at(median, spread):
        samples = [median + spread * step for step in range(-10, 11)]
        return summary(PASSED, change=measured(series={"latency_us": samples}, latency_us=median))

    assert kinds(at(100.0, 5.0), at(112.0, 5.0)) == {}
    assert list(kinds(at(100.0, 0.5), at(112.0, 0.5))) == ["slower"]


def test_times_of_an_emulated_device_are_not_compared():
    one, other = (
        summary(PASSED, stack=synthetic.EMULATED, change=measured(latency_us=each)) for each in (100.0, 900.0)
    )
    assert kinds(one, other) == {}


def test_the_parts_of_the_stack_that_differ_are_named():
    other = replace(synthetic.HARDWARE, cann="9.1.0", vllm_ascend="0.23.0")
    found = compare(summary(PASSED), summary(PASSED, stack=other)).components
    assert found == {"cann": ("9.0.0", "9.1.0"), "vllm_ascend": ("", "0.23.0")}


@pytest.mark.parametrize(
    ("outcome", "answer"), [("passed", "yes"), ("failed", "no"), ("not-run", "yes"), ("not-emulated", "yes")]
)
def test_a_new_case_counts_against_the_later_stack_only_if_it_was_executed_and_deviates(outcome, answer):
    one = summary(PASSED[:3], cases=CASES[:3], stack=synthetic.EMULATED)
    other = summary(["passed", "passed", "passed", outcome], stack=synthetic.EMULATED)
    assert kinds(one, other) == {"new": [CASES[3].id]}
    assert compare(one, other).answer == answer
