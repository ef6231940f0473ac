"""Beside pytest-benchmark, pytest-html and JUnit's XML."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from tests.integration.conftest import Run


def test_what_pytest_benchmark_measures_is_kept_with_the_case(
    ascend: Run, pytester: pytest.Pytester, lines: Callable[..., list[dict[str, Any]]]
) -> None:
    pytester.makepyfile("def test_x(npu_device, benchmark):\n    benchmark(sum, [1, 2])\n")
    assert ascend("--benchmark-max-time=0.001").ret == 0
    measured = lines("record")[0]["measurements"]
    assert measured["latency_median_us"] > 0
    assert measured["rounds"] >= 1


def test_a_benchmark_that_is_turned_off_measured_nothing(
    ascend: Run, pytester: pytest.Pytester, lines: Callable[..., list[dict[str, Any]]]
) -> None:
    pytester.makepyfile("def test_x(npu_device, benchmark):\n    benchmark(sum, [1, 2])\n")
    assert ascend("--benchmark-disable").ret == 0
    (record,) = lines("record")
    assert (record["outcome"], record.get("measurements", {})) == ("not-judged", {})


def test_their_reports_are_written_beside_ours(ascend: Run, three_cases: Path, pytester: pytest.Pytester) -> None:
    ascend("--html=theirs.html", "--self-contained-html", "--junitxml=theirs.xml")
    assert "test_fails" in (pytester.path / "theirs.html").read_text(encoding="utf-8")
    assert "test_raises" in (pytester.path / "theirs.xml").read_text(encoding="utf-8")
    assert (pytester.path / "ascend-report/conformance.html").exists()


HOSTILE = """
    import pytest, torch

    @pytest.mark.parametrize("x", ["<script>harm()</script>", "a\\x1bb", "'\\"<b>"])
    def test_x(npu_device, precision_compare, ascend_measure, x):
        ascend_measure("latency_us", 12.5)
        precision_compare(torch.ones(3).to(npu_device).cpu(), torch.ones(3, dtype=torch.float64) + ("b" in x[:5]))
    """


def test_junits_xml_has_outcome_and_figures_as_properties(ascend: Run, pytester: pytest.Pytester) -> None:
    pytester.makepyfile(HOSTILE)
    ascend("--junitxml=theirs.xml")
    root = ET.parse(pytester.path / "theirs.xml").getroot()  # noqa: S314 - made here
    found = [{each.get("name"): each.get("value") for each in case.iter("property")} for case in root.iter("testcase")]
    assert [each["ascend_outcome"] for each in found] == ["passed", "failed", "failed"]
    assert found[0]["ascend_limit_used"] == "0"
    assert found[0]["ascend_latency_us"] == "12.5"
    assert found[0]["ascend_standard"].startswith("error-model@")
    assert set(found[0]) == {
        "ascend_case", "ascend_outcome", "ascend_limit_used", "ascend_standard", "ascend_latency_us",
    }  # fmt: skip


def test_pytest_html_has_our_columns_and_shows_hostile_names_as_text(ascend: Run, pytester: pytest.Pytester) -> None:
    pytester.makepyfile(HOSTILE)
    ascend("--html=theirs.html", "--self-contained-html")
    text = (pytester.path / "theirs.html").read_text(encoding="utf-8")
    blob = re.search(r'data-jsonblob="([^"]*)"', text)
    assert blob
    rows = [row for tests in json.loads(unescape(blob[1]))["tests"].values() for row in tests]
    cells = [row["resultsTableRow"] for row in rows]
    assert [row[3] for row in cells] == ["<td>passed</td>", "<td>failed</td>", "<td>failed</td>"]
    assert cells[0][4:6] == ["<td>0 %</td>", "<td>error-model@1</td>"]
    assert not [cell for row in cells for cell in row if re.search("<(?!/?(td|a)[ >])", cell)]
    assert [[extra["name"] for extra in row["extras"]] for row in rows] == [[], ["ascend"], ["ascend"]]


def test_tests_of_ones_own_keep_their_dots_in_a_log(
    ascend: Run, three_cases: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pytest_ascend.plugin.progress.LOG_EVERY_S", 0.0)
    for options in ((), ("-q",)):
        shown = ascend(*options).stdout
        shown.fnmatch_lines(["*.FE *100%?"])
        shown.no_fnmatch_line("*of 3 cases,*")


@pytest.mark.drawn(4, "long")
def test_progress_of_bundled_suites_is_said_now_and_then_in_a_log_and_never_where_quiet_is_wanted(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pytest_ascend.plugin.progress.LOG_EVERY_S", 0.0)
    suite = (
        "--ascend",
        "--ascend-device=cpu",
        "--ascend-suite=environment",
        "--ascend-level=smoke",
        "-k",
        "float32",
    )
    pytester.runpytest(*suite).stdout.fnmatch_lines(["ascend: * of * cases, worst * of its limit: environment/*"])
    pytester.runpytest(*suite, "-q").stdout.no_fnmatch_line("ascend: * of * cases*")
