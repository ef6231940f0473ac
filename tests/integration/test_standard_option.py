"""``--ascend-standard``: the rule by which everything is judged."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

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
