"""Under pytest-xdist: one log, whoever ran what, and a worker that dies is an error of its case."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import Run

pytest.importorskip("xdist")

Lines = Callable[..., list[dict[str, Any]]]


@pytest.mark.drawn(4, "long")
def test_the_records_of_all_workers_are_in_one_log(ascend: Run, three_cases: Path, lines: Lines) -> None:
    result = ascend("-n2")
    assert result.ret == 1
    outcomes = {line["node_id"].split("::")[1]: line["outcome"] for line in lines("record")}
    assert outcomes == {"test_passes": "passed", "test_fails": "failed", "test_raises": "errored"}
    assert len(lines("header")[0]["manifest"]) == 3
    assert len(lines("footer")) == 1
    (self_test,) = (line for line in lines("event") if line["kind"] == "self-test")
    assert self_test["planted"] == self_test["detected"] > 10


def test_a_worker_that_dies_is_an_error_of_its_case(ascend: Run, pytester: pytest.Pytester, lines: Lines) -> None:
    pytester.makepyfile(
        """
        import os

        def test_dies(npu_device):
            os._exit(139)

        def test_lives(npu_device, ascend_measure):
            ascend_measure("latency_us", 1)
        """
    )
    result = ascend("-n1")
    assert result.ret == 1
    records = {line["node_id"].split("::")[1]: line for line in lines("record")}
    assert records["test_dies"]["outcome"] == "errored"
    assert "crashed" in records["test_dies"]["detail"]
    assert records["test_lives"]["outcome"] == "passed"


def test_a_keyword_makes_a_subset(ascend: Run, three_cases: Path, lines: Lines) -> None:
    ascend("-n1", "-k", "passes")
    header = lines("header")[0]
    assert header["selection"]["kind"] == "subset"
    assert "-k passes" in header["selection"]["reason"]
    assert len(header["manifest"]) == 1


@pytest.mark.drawn(4, "long")
def test_a_run_is_resumed_without_running_again_what_it_proved(
    ascend: Run, pytester: pytest.Pytester, lines: Lines
) -> None:
    pytester.makepyfile(
        """
        import pathlib
        import pytest

        @pytest.mark.parametrize("i", range(6))
        def test_case(npu_device, ascend_measure, i):
            pathlib.Path("ran").open("a", encoding="utf-8").write(f"{i} ")
            ascend_measure("latency_us", 1)
        """
    )
    assert ascend("-n2").ret == 0
    log = pytester.path / "ascend-report" / "run.jsonl"
    written = log.read_text(encoding="utf-8").splitlines(keepends=True)
    kept = [line for line in written if '"type":"footer"' not in line]
    log.write_text("".join(kept[:-2]) + kept[-1][:40], encoding="utf-8")
    assert ascend("-n2", "--ascend-resume").ret == 0
    assert len(lines("record")) == 6
    again = sorted((pytester.path / "ran").read_text(encoding="utf-8").split())
    assert len(again) == 8
    assert set(again) == set("012345")
