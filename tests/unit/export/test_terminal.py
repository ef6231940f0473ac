"""The last lines on the terminal."""

import shlex
from io import StringIO
from pathlib import Path

import click
import pytest
from _pytest._io import TerminalWriter

from pytest_ascend.diagnosis import diagnose
from pytest_ascend.environment.codes import BUG, MEMORY
from pytest_ascend.export.terminal import lines
from pytest_ascend.records.case import Case
from pytest_ascend.records.outcome import Errored, Failed
from pytest_ascend.records.record import ResultRecord
from pytest_ascend.records.verdict import Verdict, Worst
from pytest_ascend.runlog.contents import Run
from pytest_ascend.verdict.summary import summarise
from tests.unit.runlog import synthetic


def closing(outcomes, *, stack=synthetic.HARDWARE, cases=None, **options):
    cases = cases or synthetic.op_cases(len(outcomes))
    records = tuple(synthetic.records(cases, outcomes or ["passed"], synthetic.Random(2)))
    header = synthetic.header(cases, stack=stack)
    return list(lines(summarise(Run(header=header, records=records)), **options))


def test_a_clean_run_says_three_things():
    found = closing(["passed"] * 3, page=Path("ascend-report/conformance.html"))
    assert [line.text for line in found] == [
        "3 passed",
        "Conforms: all 3 cases passed, at level smoke.",
        "report: ascend-report/conformance.html",
    ]
    assert found[1].markup == {"green": True, "bold": True}


def test_deviations_are_named_with_the_worst_first():
    found = closing(["passed", "unsupported", "failed"])
    assert [line.text.split()[0] for line in found[:4:2]] == ["failed", "unsupported"]
    assert found[0].colour == "red"


def test_each_deviation_says_how_to_run_it_again():
    assert closing(["failed"])[1].text.split() == ["again:", "pytest", "--ascend", *_shell_words("failed")]


def _shell_words(outcome):
    case = synthetic.op_cases(1)[0]
    return shlex.quote(synthetic.record(case, outcome, synthetic.Random(2)).node_id).split()


def test_deviations_with_one_cause_are_one_line():
    found = closing(["failed"] * 9)
    assert "9 cases, such as" in found[0].text
    assert [line.text for line in found[2:3]] == ["9 failed"]


def test_only_some_of_many_causes_are_named():
    found = closing(["failed", "unsupported", "fallback", "errored"], limit=2)
    assert found[4].text == "... and 2 more causes with 2 cases, in the report"


def test_the_emulated_device_is_named_loudly_and_is_never_green():
    found = closing(["passed"], stack=synthetic.EMULATED)
    assert next(line.text for line in found if line.bold) == "EMULATED DEVICE: SAYS NOTHING ABOUT ANY NPU."
    assert not any(line.colour == "green" for line in found)


@pytest.mark.parametrize("kind", [MEMORY, BUG])
def test_an_error_that_a_table_knows_says_what_was_found_and_the_remedy(kind):
    case = synthetic.op_cases(1)[0]
    found = diagnose("RuntimeError", "out of memory" if kind == MEMORY else "x", ("module: up",)).to_dict()
    record = ResultRecord.of(case, "test_op.py::test_it", Errored(reason="x", detail="y"), diagnosis=found)
    said = [each.text.strip() for each in lines(summarise(Run(header=synthetic.header([case]), records=(record,))))]
    again = next(place for place, each in enumerate(said) if each.startswith("again: "))
    assert said[1:again] == (["module: up", f"remedy: {found['remedy']}"] if kind == MEMORY else [])


def test_hostile_text_cannot_steer_the_terminal():
    cases = synthetic.hostile_cases()
    for line in closing(["failed"] * len(cases), cases=cases, limit=100):
        assert line.text.isprintable()


def test_a_run_without_cases_says_so():
    assert closing([])[0].text == "no cases"


def test_pytest_and_click_know_every_colour():
    for name in ("failed", "errored", "fallback", "unsupported", "not-emulated", "passed"):
        for line in closing([name], stack=synthetic.EMULATED):
            TerminalWriter(StringIO()).line(line.text, **line.markup)
            click.style(line.text, fg=line.colour or None)


def test_failures_of_a_users_operator_are_one_cause_with_its_worst_element_and_pattern():
    verdict = Verdict(
        path="mine",
        agrees=False,
        standard="error-model@1",
        headline="8 of 1000 elements differ",
        worst=Worst(index=(999,), actual="0", expected="4.653"),
        pattern="the last 8 elements: a tail",
    )
    records = tuple(
        ResultRecord.of(
            Case(suite="user", subject="mine", property=each, dtype="float32"),
            f"test_op.py::test_mine[{each}]",
            Failed(reason="mine: 8 of 1000 elements differ"),
            verdicts=(verdict,),
        )
        for each in ("forward", "layout", "repeat")
    )
    header = synthetic.header([each.case for each in records], stack=synthetic.HARDWARE)
    found = [line.text.strip() for line in lines(summarise(Run(header=header, records=records)))]
    assert found[0].startswith("failed       user/mine: 3 cases, such as user/mine/forward/float32: mine: 8 of 1000")
    assert found[1:3] == ["worst element: [999]  actual 0  expected 4.653", "pattern: the last 8 elements: a tail"]
