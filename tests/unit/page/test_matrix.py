"""Many runs on one page."""

import json

import pytest
from click.testing import CliRunner

from pytest_ascend.page.commands import report
from pytest_ascend.page.matrix import natural, render_matrix, scan
from pytest_ascend.records.case import Case
from tests.unit.runlog import synthetic
from tests.unit.runlog.synthetic import replace

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
    return Reader(render_matrix(scan(path) for path in paths))


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
    assert found.texts("h1") == ["2 of 4 runs conform"]
    assert "Conforming: Ascend310P3 · CANN 8.10.0" in found.text
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


def test_the_history_of_a_figure_names_its_combinations_and_keeps_hosts_apart(tmp_path):
    paths = [
        written(tmp_path / f"{index}", cann=cann, host=host)
        for index, (cann, host) in enumerate([("8.1.0", "a"), ("8.2.0", "a"), ("8.3.0", "b")])
    ]
    histories = [json.loads(dict(each)["data-numbers"]) for each in page(paths).all("details")]
    found = [each for each in histories if each["columns"] == ["combination", "latency_us"]]
    assert len(found) == 3
    for each in found:
        names = [name for name, _ in each["rows"]]
        assert [name.split(" · ")[1] for name in names] == ["CANN 8.1.0", "CANN 8.2.0"]


def test_the_figures_that_say_most_come_first(tmp_path, monkeypatch):
    monkeypatch.setattr(synthetic, "_measurements", lambda *_: {"first_call_us": 1.0, "latency_p50_us": 2.0})
    cases = [Case(suite="benchmarks", subject=name, property="latency") for name in ("a", "b")]
    paths = [written(tmp_path / cann, cases=cases, cann=cann) for cann in ("8.1.0", "8.2.0")]
    histories = [json.loads(dict(each)["data-numbers"])["columns"][1] for each in page(paths).all("details")]
    assert histories == ["latency_p50_us"] * 2 + ["first_call_us"] * 2


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
    assert Reader(target.read_text(encoding="utf-8")).open == []


def test_a_run_has_its_share_and_a_link_to_its_page(runs, tmp_path):
    (tmp_path / "early" / "conformance.html").write_text("page", encoding="utf-8")
    found = Reader(render_matrix((scan(path) for path in runs), into=tmp_path))
    assert [dict(each)["href"] for each in found.all("a") if dict(each).get("href", "").startswith("./")] == [
        "./early/conformance.html"
    ]
    shares = [text for text in found.texts("td") if text.endswith(" %")]
    assert shares[0] == shares[2] == "100.0 %"
    assert 50 < float(shares[1].removesuffix(" %")) < 100


def test_a_share_is_whole_only_where_all_passed(tmp_path):
    cases = synthetic.op_cases(2001)
    path = written(tmp_path, ["passed"] * 2000 + ["failed"], cases=cases)
    assert "99.9 %" in page([path]).texts("td")
