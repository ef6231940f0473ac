"""``--ascend-shard``: every case in one of the parts, and the parts together are the run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_ascend.runlog.writing import read
from pytest_ascend.verdict.merge import merge
from tests.integration.conftest import Run

Lines = Callable[..., list[dict[str, Any]]]


def test_the_shards_of_a_run_make_the_run(
    ascend: Run, three_cases: Path, pytester: pytest.Pytester, lines: Lines
) -> None:
    for index in (1, 2):
        ascend(f"--ascend-shard={index}/2", f"--ascend-report=part-{index}")
    parts = [{line["node_id"] for line in lines("record", f"part-{index}")} for index in (1, 2)]
    assert all(parts)
    assert len(parts[0] | parts[1]) == len(parts[0]) + len(parts[1]) == 3
    found = merge([read(pytester.path / f"part-{index}" / "run.jsonl") for index in (1, 2)], pytester.path / "whole")
    assert {name: count for name, count in found.counts.items() if count} == {"failed": 1, "errored": 1, "passed": 1}
    assert read(pytester.path / "whole").header.selection.reason == "tests of one's own: ."


def test_a_shard_says_that_it_is_one(ascend: Run, three_cases: Path, lines: Lines) -> None:
    ascend("--ascend-shard=1/2", "-k", "passes or fails")
    [header] = lines("header")
    assert header["selection"]["reason"].startswith("shard 1/2; -k passes or fails")
    assert header["shard"]["cases"] == 2


def test_shards_and_xdist_go_together(ascend_apart: Run, three_cases: Path, lines: Lines) -> None:
    names = []
    for index in (1, 2):
        ascend_apart("--ascend-device=cpu", f"--ascend-shard={index}/2", f"--ascend-report=part-{index}", "-n1")
        names += [line["node_id"] for line in lines("record", f"part-{index}")]
    assert len(names) == len(set(names)) == 3


def test_a_part_that_is_none_is_one_clear_message(ascend: Run, three_cases: Path) -> None:
    result = ascend("--ascend-shard=3/2")
    assert result.ret == 4
    result.stderr.fnmatch_lines(["ERROR: --ascend-shard=3/2: not a part of a whole*", "*hint:*"])
