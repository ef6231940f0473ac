"""A run in few lines of Markdown."""

from click.testing import CliRunner

from pytest_ascend.export.markdown import summary_of
from pytest_ascend.page.commands import report
from tests.unit.runlog import synthetic
from tests.unit.verdict.test_diff import CASES, summary


def test_verdict_versions_counts_and_deviations_are_there():
    text = summary_of(summary(["failed", "passed", "errored", "waived"]))
    assert text.startswith("### pytest-ascend: Does not conform\n")
    assert "| CANN | 9.0.0 |" in text
    assert "| passed | 1 |" in text
    assert text.index("| failed | ops/relu/forward/float32 | 1 |") < text.index(
        "| errored | ops/relu/noncontiguous/float32 | 1 |"
    )


def test_what_no_npu_computed_is_said_at_the_head():
    text = summary_of(summary(["passed"] * 4, stack=synthetic.EMULATED))
    assert text.splitlines()[2].startswith("> **Emulated device")


def test_deviations_with_one_cause_are_one_row():
    assert "| failed | ops/relu | 4 | ops/relu/forward/float32 |" in summary_of(summary(["failed"] * 4))


def test_many_causes_are_counted():
    found = summary_of(summary(["failed", "unsupported", "fallback", "errored"]), limit=2)
    assert "and 2 more causes, in the report" in found


def test_nothing_foreign_acts():
    cases = synthetic.hostile_cases()
    text = summary_of(summary(["failed"] * len(cases), cases=cases), limit=100)
    assert not set("<`{}[]") & set(text)
    assert all(character.isprintable() or character == "\n" for character in text)


def test_the_command_prints_it(tmp_path):
    log = synthetic.write_log(tmp_path / "run.jsonl", CASES, stack=synthetic.HARDWARE)
    result = CliRunner().invoke(report, ["summary", str(log)], catch_exceptions=False)
    assert result.output.startswith("### pytest-ascend: Conforms\n")
