"""``--ascend-expectations``: what is known to deviate is executed, waived, and missed when it is gone."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import Run


@pytest.fixture
def expect(pytester: pytest.Pytester) -> Callable[..., str]:
    """Write a file that expects something of cases of the user's tests, and give the option that names it."""

    def write(cases: str, outcome: str = "failed", expires: str = "2999-01-01") -> str:
        entry = {"cases": cases, "outcome": outcome, "reason": "known", "source": "issue 7", "expires": expires}
        Path(pytester.path, "mine.json").write_text(
            json.dumps({"schema": 1, "expectations": [entry]}), encoding="utf-8"
        )
        return "--ascend-expectations=mine.json"

    return write


def test_a_known_deviation_is_waived_and_logged(
    ascend: Run, three_cases: Path, expect: Callable[..., str], lines: Callable[..., list[dict[str, Any]]]
) -> None:
    ascend(expect("user/*test_fails/*"))
    record = next(each for each in lines("record") if "test_fails" in each["node_id"])
    assert record["outcome"] == "waived"
    assert record["waiver"] == {
        "cause": "known",
        "kind": "defect",
        "outcome": "failed",
        "reason": "known",
        "issue": "issue 7",
        "owner": "",
        "expires": "2999-01-01",
        "confirmed": "on hardware",
    }
    assert lines("header")[0]["options"]["expectations"] == ["user/*test_fails/*: failed until 2999-01-01"]


def test_a_run_with_nothing_but_known_deviations_ends_well(ascend: Run, three_cases: Path, expect: Any) -> None:
    result = ascend(expect("user/*test_fails/*"), "-k", "fails or passes")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["*1 waived*"])


def test_a_deviation_that_is_gone_fails_the_run(ascend: Run, three_cases: Path, expect: Any, outcomes: Any) -> None:
    assert ascend(expect("user/*test_passes/*"), "-k", "passes").ret == 1
    assert outcomes() == {"test_passes": "failed"}


def test_an_expired_one_waives_nothing(ascend: Run, three_cases: Path, expect: Any, outcomes: Any) -> None:
    assert ascend(expect("user/*test_fails/*", expires="2020-01-01"), "-k", "fails").ret == 1
    assert outcomes() == {"test_fails": "failed"}


def test_a_malformed_file_ends_the_run_with_one_message(ascend: Run, three_cases: Path, expect: Any) -> None:
    result = ascend(expect("user/*", outcome="broken"))
    assert result.ret == 4
    result.stderr.fnmatch_lines(["*mine.json*entry 1: outcome is 'broken'*", "*hint:*"])
