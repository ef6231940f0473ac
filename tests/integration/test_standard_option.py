"""``--ascend-standard``: the rule by which everything is judged."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import Run


def test_the_standard_is_the_one_of_every_verdict(
    ascend: Run, three_cases: Path, lines: Callable[..., list[dict[str, Any]]]
) -> None:
    ascend("--ascend-standard=torch", "-k", "passes")
    assert lines("record")[0]["verdicts"][0]["standard"].startswith("torch@")
    assert lines("header")[0]["options"]["standard"] == "torch"


def test_a_standard_that_does_not_exist_is_one_message(ascend: Run, three_cases: Path) -> None:
    result = ascend("--ascend-standard=mild")
    assert result.ret == 4
    result.stderr.fnmatch_lines(["ERROR: there is no standard 'mild'", "*hint: choose one of*"])


MARKED = """
import pytest, torch

ONE = torch.ones(3, dtype=torch.float64)

@pytest.mark.ascend_standard("mixed@current")
def test_marked(precision_compare):
    assert precision_compare(torch.ones(3), ONE).standard == "mixed@current"

@pytest.mark.ascend_standard("mixed")
def test_said(precision_compare):
    assert precision_compare(torch.ones(3), ONE, standard="ulp").standard == "ulp@1"

def test_optional(precision_compare):
    assert precision_compare(torch.ones(3), ONE).standard == "torch@2.13"

@pytest.mark.ascend_standard("torch", limits={"rtol": 0.1}, waiver="a sketch")
def test_waived(precision_compare):
    precision_compare(torch.ones(3) * 1.05, ONE)

@pytest.mark.ascend_standard("torch", limits={"rtol": 0.0, "atol": 0.0})
def test_tighter(precision_compare):
    precision_compare(torch.ones(3) + 1e-6, ONE)

@pytest.mark.ascend_standard("torch", limits={"rtol": 0.1})
def test_looser(precision_compare):
    precision_compare(torch.ones(3), ONE)

@pytest.mark.ascend_standard("mild")
def test_unknown(precision_compare):
    precision_compare(torch.ones(3), ONE)

@pytest.mark.ascend_standard(tolerance=3)
def test_senseless(precision_compare):
    precision_compare(torch.ones(3), ONE)
"""


def test_the_call_comes_before_the_marker_and_the_marker_before_the_option(
    ascend: Run, pytester: pytest.Pytester, lines: Callable[..., list[dict[str, Any]]]
) -> None:
    pytester.makepyfile(MARKED)
    result = ascend("--ascend-standard=torch")
    found = {line["node_id"].split("::test_")[-1]: line for line in lines("record")}
    assert {name: line["outcome"] for name, line in found.items()} == {
        "marked": "passed",
        "said": "passed",
        "optional": "passed",
        "waived": "waived",
        "tighter": "failed",
        "looser": "errored",
        "unknown": "errored",
        "senseless": "errored",
    }
    assert found["waived"]["waiver"] == {"reason": "a sketch"}
    assert "is looser than the 1.3e-06" in found["looser"]["reason"]
    assert "no standard 'mild'" in found["unknown"]["reason"]
    assert "the marker ascend_standard(tolerance=3)" in found["senseless"]["reason"]
    assert result.ret == 1
