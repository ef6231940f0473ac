"""The judge of a whole run: a closed world in which nothing is taken at its word."""

import pytest

from pytest_ascend.records.case import OWN_MODEL
from pytest_ascend.records.outcome import OUTCOMES
from pytest_ascend.runlog.contents import FooterVerdict, Run, Selection
from pytest_ascend.verdict import summary as summaries
from pytest_ascend.verdict.summary import exit_code, summarise
from tests.unit.runlog import synthetic
from tests.unit.runlog.synthetic import replace

SUBSET = Selection("subset", "-k relu")


def run(*outcomes, stack=synthetic.HARDWARE, selection=None, cases=None, **fields):
    """Make a run of ``cases`` cases, of which the first have ``outcomes``."""
    manifest = synthetic.op_cases(cases or len(outcomes))
    records = tuple(synthetic.records(manifest[: len(outcomes)], outcomes, synthetic.Random(3)))
    header = synthetic.header(manifest, stack=stack, selection=selection)
    return Run(header=header, records=records, **fields)


def judged(*outcomes, **fields):
    found = summarise(run(*outcomes, **fields))
    return found.verdict.kind, found.verdict.conforms, exit_code(found)


def sentence(*outcomes, **fields):
    return summarise(run(*outcomes, **fields)).verdict.sentence


def test_every_outcome_has_its_place():
    assert set(summaries.ORDER) == set(OUTCOMES)


def test_all_passed_conforms():
    assert judged("passed", "passed") == ("conforms", True, 0)
    assert sentence("passed", "passed") == "Conforms: all 2 cases passed, at level smoke."


def test_waived_cases_conform_and_are_counted_in_the_sentence():
    assert judged("passed", "waived") == ("conforms", True, 0)
    assert sentence("passed", "waived") == "Conforms: 1 of 2 cases passed, 1 is waived, at level smoke."


def test_disputed_cases_conform_and_are_counted_in_the_sentence():
    assert judged("passed", "disputed") == ("conforms", True, 0)
    assert sentence("passed", "disputed") == "Conforms: 1 of 2 cases passed, 1 is disputed, at level smoke."


@pytest.mark.parametrize("bad", ["failed", "errored", "fallback", "unsupported"])
@pytest.mark.parametrize("stack", [synthetic.HARDWARE, synthetic.EMULATED], ids=["npu", "emulated"])
def test_one_deviation_is_enough(bad, stack):
    assert judged("passed", bad, stack=stack) == ("does-not-conform", False, 1)
    assert f"1 {bad} of 2 cases" in sentence("passed", bad, stack=stack)


def test_what_is_not_emulated_does_not_break_the_emulated_device():
    assert judged("passed", "not-emulated", stack=synthetic.EMULATED) == ("conforms", True, 0)


def test_what_is_not_emulated_is_an_error_on_an_npu():
    assert judged("passed", "not-emulated") == ("does-not-conform", False, 1)


@pytest.mark.parametrize("outcomes", [["passed"], ["failed"], ["not-emulated"], []])
@pytest.mark.parametrize("selection", [None, SUBSET])
def test_the_emulated_device_never_speaks_for_an_npu(outcomes, selection):
    said = sentence(*outcomes, stack=synthetic.EMULATED, selection=selection, cases=1)
    assert said.startswith("Emulated device: says nothing about any NPU.")
    assert "onforms" not in said


def test_another_device_never_speaks_for_an_npu():
    cpu = replace(synthetic.HARDWARE, device="cpu")
    assert sentence("passed", stack=cpu).startswith("Device cpu: says nothing about any NPU. Passes")


def test_a_case_without_a_record_is_not_run_and_the_run_incomplete():
    found = summarise(run("passed", cases=3))
    assert found.counts["not-run"] == 2
    assert [result.outcome.name for result in found.results] == ["passed", "not-run", "not-run"]
    assert judged("passed", cases=3) == ("incomplete", False, 1)
    assert sentence("passed", cases=3) == "Not conformant: incomplete: 2 of 3 cases did not run."


def test_a_case_recorded_as_not_run_makes_the_run_incomplete():
    assert judged("passed", "not-run") == ("incomplete", False, 1)


def test_a_run_without_its_end_is_incomplete_even_with_all_records():
    assert judged("passed", ended=False) == ("incomplete", False, 1)
    assert "the run was stopped before its end" in sentence("passed", ended=False)


def test_a_deviation_in_an_incomplete_run_says_both():
    assert judged("failed", cases=3) == ("does-not-conform", False, 1)
    assert sentence("failed", cases=3) == "Does not conform: 1 failed of 3 cases. Incomplete: 2 of 3 cases did not run."


@pytest.mark.parametrize("outcomes", [[], ["not-run"], ["not-emulated"]])
@pytest.mark.parametrize("selection", [None, SUBSET])
def test_nothing_executed_is_never_a_success(outcomes, selection):
    found = summarise(run(*outcomes, cases=2, stack=synthetic.EMULATED, selection=selection))
    assert (found.verdict.conforms, exit_code(found)) == (False, 5)
    assert "was executed" in found.verdict.sentence


def test_a_manifest_without_cases_is_never_a_success():
    assert judged(cases=0) == ("incomplete", False, 5)


def test_a_faultless_subset_is_a_subset_and_says_so():
    assert judged("passed", selection=SUBSET) == ("subset", False, 0)
    assert sentence("passed", selection=SUBSET) == "Selected cases passed: the only case passed (selected: -k relu)."


def test_a_model_is_named_by_the_heading_and_no_second_time():
    chosen = run("passed", selection=Selection("subset", f"{OWN_MODEL}; -k relu"))
    assert OWN_MODEL in summarise(chosen).verdict.sentence
    header = replace(chosen.header, options={"model": "my_model:make"})
    said = summarise(replace(chosen, header=header)).verdict.sentence
    assert said == "my_model:make: passed: the only case passed (selected: -k relu)."


@pytest.mark.parametrize(("outcome", "said"), [("passed", "passed"), ("failed", "failed"), ("not-run", "failed")])
def test_a_model_of_the_users_is_named_with_what_became_of_it(outcome, said):
    given = run(outcome, selection=SUBSET)
    given = replace(given, header=replace(given.header, options={"model": "my.models:vit"}))
    assert str(summarise(given).verdict.opening) == f"my.models:vit: {said}"


@pytest.mark.parametrize("outcomes", [["failed", "passed"], ["passed"]], ids=["deviating", "incomplete"])
def test_a_subset_with_a_fault_is_a_failure(outcomes):
    assert judged(*outcomes, selection=SUBSET, cases=2) == ("subset", False, 1)


def with_footer(given, **changes):
    fields = summarise(given).footer(synthetic.FINISHED)
    return replace(given, footer=replace(fields, **changes))


def test_a_footer_that_agrees_changes_nothing():
    given = run("passed", "waived")
    assert summarise(with_footer(given)).verdict == summarise(given).verdict


@pytest.mark.parametrize(
    "changes",
    [{"counts": {"passed": 2}}, {"verdict": FooterVerdict("conforms", True, "Conforms.")}],
    ids=["counts", "verdict"],
)
def test_a_footer_that_claims_more_than_the_records_is_contradicted(changes):
    found = summarise(with_footer(run("passed", "failed"), **changes))
    assert found.verdict.conforms is False
    assert "ooter" in found.contradictions[0]
    assert "the footer contradicts the records" in found.verdict.sentence


def test_a_footer_that_claims_less_than_the_records_is_contradicted_too():
    found = summarise(with_footer(run("passed"), counts={"failed": 1}))
    assert (found.verdict.kind, exit_code(found)) == ("incomplete", 1)


def test_the_line_of_the_log_is_known_for_each_record():
    found = summarise(replace(run("passed", "failed", cases=3), lines=(2, 5)))
    assert list(found.lines.values()) == [2, 5]
