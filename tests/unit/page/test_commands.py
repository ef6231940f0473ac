"""The command ``pytest-ascend report render``."""

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from pytest_ascend.errors import RunLogError, UsageError
from pytest_ascend.page.commands import report
from tests.unit.runlog import synthetic


def render(*arguments):
    return CliRunner().invoke(report, ["render", *map(str, arguments)], catch_exceptions=False)


@pytest.fixture
def log(tmp_path):
    return synthetic.write_log(tmp_path / "run.jsonl", synthetic.op_cases(3))


def test_a_folder_is_as_good_as_the_log_in_it(log):
    result = render(log.parent)
    assert result.exit_code == 0
    assert (log.parent / "conformance.html").read_text(encoding="utf-8").lstrip().startswith("<!doctype html>")


def test_rendering_again_gives_the_same_bytes(log):
    pages = []
    for _ in range(2):
        render(log)
        pages.append((log.parent / "conformance.html").read_bytes())
    assert pages[0] == pages[1]


def test_the_verdict_is_said_and_the_page_named(log):
    output = render(log).output
    assert "Passes: all 3 cases passed, at level smoke." in output
    assert f"report: {log.parent / 'conformance.html'}" in output


def test_the_page_of_an_earlier_log_does_not_replace_that_of_the_latest(log):
    earlier = log.rename(log.with_name("previous-run.jsonl"))
    render(earlier)
    assert [each.name for each in log.parent.glob("*.html")] == ["previous-run.html"]


def test_the_page_goes_where_it_is_wanted(log, tmp_path):
    render(log, "--output", tmp_path / "new" / "page.html")
    assert (tmp_path / "new" / "page.html").is_file()


def test_the_format_of_a_comparison_is_that_of_its_file(log, tmp_path):
    def diff(name, *more):
        arguments = ["diff", str(log), str(log), "-o", str(tmp_path / name), *more]
        said = CliRunner().invoke(report, arguments, catch_exceptions=False).output.splitlines()
        assert len(said) == 2, "the answer, and what was written"
        assert said[1] == f"3 cases: {tmp_path / name}"
        return (tmp_path / name).read_text(encoding="utf-8")

    assert diff("d.html").lstrip().startswith("<!doctype html>")
    assert json.loads(diff("d.json"))
    assert diff("d.txt") == diff("d")
    assert diff("plain", "--format", "json") == diff("d.json")
    for name, *more in (("d.html", "--format", "terminal"), ("d.pdf",)):
        with pytest.raises(UsageError, match=r"is a name of html|no format has files named"):
            diff(name, *more)


def test_an_incomplete_log_is_rendered_and_said_to_be_incomplete(log):
    log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:3]))
    result = render(log)
    assert result.exit_code == 0
    assert "Not passed: incomplete: 1 of 3 cases did not run and the run was stopped before its end." in result.output


def test_a_damaged_log_is_one_clear_message(log):
    log.write_bytes(log.read_bytes()[:-3])
    with pytest.raises(RunLogError, match="line 5: cut short"):
        render(log)
    assert not list(log.parent.glob("*.html"))


@pytest.mark.parametrize(
    "made",
    ["render RUN", "export RUN --format csv", "diff RUN RUN --format json", "matrix RUN", "render RUN --against RUN"],
)
def test_nothing_is_written_over_a_log_that_it_is_made_from(log, made):
    before = log.read_bytes()
    with pytest.raises(UsageError, match="is the run log itself"):
        CliRunner().invoke(
            report, [*made.replace("RUN", str(log.parent)).split(), "-o", str(log)], catch_exceptions=False
        )
    assert log.read_bytes() == before


def test_a_place_that_cannot_be_written_is_one_clear_message(log):
    with pytest.raises(UsageError, match="cannot write"):
        render(log, "--output", log / "page.html")


def test_every_command_has_its_place_in_the_manual_and_the_manual_names_no_other():
    manual = (Path(__file__).resolve().parents[3] / "docs" / "report.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^    pytest-ascend report (\w+)", manual, re.MULTILINE)) == set(report.commands)
