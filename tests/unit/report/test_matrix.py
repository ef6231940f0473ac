"""Many runs on one page."""

import json
from dataclasses import replace

import pytest
from click.testing import CliRunner

from pytest_ascend.report.commands import report
from pytest_ascend.report.matrix import natural, render_matrix
from pytest_ascend.report.outline import outline

from . import synthetic
from .test_html import Reader

CASES = [*synthetic.op_cases(40), *synthetic.other_cases()]


def written(path, outcomes=("passed",), *, cases=CASES, **stack):
    stack = replace(synthetic.HARDWARE, **stack)
    return synthetic.write_log(path / "run.jsonl", cases, outcomes=outcomes, stack=stack)


@pytest.fixture
def runs(tmp_path):
    return [
        written(tmp_path / "late", cann="8.10.0"),
        written(tmp_path / "early", ["passed"] * 6 + ["failed"], cann="8.5.0"),
        written(tmp_path / "less", cases=CASES[:3], cann="8.10.0", chip="Ascend310P3"),
        written(tmp_path / "emulated", emulated=True, cann="9.0.0"),
    ]


def page(paths):
    return Reader(render_matrix(outline(path) for path in paths))


def data(found):
    return json.loads(found.texts("script")[0])


def test_runs_are_sorted_by_chip_and_by_version_as_people_sort(runs):
    names = [run["name"] for run in data(page(runs))["runs"]]
    assert [name.split(" · ")[:2] for name in names] == [
        ["Ascend310P3", "CANN 8.10.0"],
        ["Ascend910B1", "CANN 8.5.0"],
        ["Ascend910B1", "CANN 8.10.0"],
        ["Ascend910B1", "CANN 9.0.0"],
    ]


def test_versions_are_compared_by_their_numbers():
    ordered = ["7.0.0", "8.0.RC1", "8.0.RC2", "8.0.0", "8.5.0", "8.10.0"]
    shuffled = [ordered[index] for index in (3, 5, 0, 4, 2, 1)]
    assert sorted(shuffled, key=natural) == ordered


def test_a_run_without_an_npu_never_counts_as_conforming(runs):
    found = page(runs)
    assert "2 of 4 runs conform." in found.text
    assert "emulated device" in found.text


def test_a_cell_has_the_tally_of_its_subject_the_worst_first(runs):
    found = data(page(runs))
    [relu] = [line for line in found["lines"] if line[2] == "relu"]
    tallies = [found["tallies"][number] if number >= 0 else None for number in relu[3]]
    assert tallies[1][0][0] == "failed"
    assert tallies[2] == [["passed", sum(count for _, count in tallies[1])]]
    [gelu] = [line for line in found["lines"] if line[2] == "gelu"]
    assert gelu[3][0] == -1


def test_speed_is_drawn_where_two_runs_of_one_chip_have_it_and_none_is_emulated(runs):
    found = page(runs)
    titles = [text for text in found.texts("figcaption") if "latency over 2 combinations" in text]
    assert len(titles) == 3


def test_hostile_text_adds_no_element(tmp_path):
    hostile = "</script><img src=x onerror=alert(1)>"
    path = written(tmp_path, cases=synthetic.hostile_cases(), chip=hostile, cann=hostile)
    found = page([path])
    assert found.open == []
    assert not found.all("img")
    assert len(found.all("script")) == 3


def test_the_command_writes_the_page_and_names_it(runs, tmp_path):
    target = tmp_path / "all.html"
    arguments = ["matrix", *map(str, runs[:2]), "-o", str(target)]
    result = CliRunner().invoke(report, arguments, catch_exceptions=False)
    assert (result.exit_code, result.output) == (0, f"2 runs: {target}\n")
    assert Reader(target.read_text()).open == []
