"""Cases of a certified run, executed again: on the emulated device, where nobody has an NPU."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from pytest_ascend.certificate.rerun import rerun
from pytest_ascend.errors import UsageError
from pytest_ascend.runlog.writing import read
from pytest_ascend.verdict.summary import summarise
from tests import forks
from tests.unit.certificate.genuine import chained

CHALLENGE = 20261122
CASES = ("leaky_relu/sweep/float32", "argsort/sweep/float32", "leaky_relu/forward/float32")


@pytest.fixture(scope="module")
def genuine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the log of a run with a challenge."""
    scratch = tmp_path_factory.mktemp("run")
    ids = [f"ops/test_ops.py::test_{case.split('/')[1]}[ops/{case}]" for case in CASES]
    forks.records(scratch / "report", ids, f"--ascend-certify=challenge={CHALLENGE}")
    return scratch / "report" / "run.jsonl"


def altered(path: Path, change: Callable[[dict[str, dict[str, Any]]], object]) -> list[str]:
    """Return what a re-execution has against a log whose records were changed, and that is chained anew."""
    lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    change({line["case"]["id"]: line for line in lines if line["type"] == "record"})
    forged = path.with_name("forged.jsonl")
    forged.write_bytes(chained(lines))
    found = rerun(summarise(read(forged)), 3, device="emulated", chance=Random(1))  # noqa: S311
    assert (found.executed, found.of, found.stack.emulated) == (3, 3, True)
    return list(found.disagreements)


def other_bits(records: dict[str, dict[str, Any]]) -> None:
    """Change the digest of an output that every right device has, and of one that is judged."""
    exact = next(each for each in records["ops/argsort/sweep/float32"]["digests"].values() if each["exact"])
    exact["outputs"] = "0" * 32


def as_if_failed(records: dict[str, dict[str, Any]]) -> None:
    records["ops/leaky_relu/forward/float32"].update(outcome="failed", reason="differs")


@pytest.mark.drawn(4, "long")
def test_what_was_done_is_found_and_what_was_altered_is_named(genuine: Path) -> None:
    assert altered(genuine, lambda records: None) == []

    def change(records: dict[str, dict[str, Any]]) -> None:
        other_bits(records)
        as_if_failed(records)

    said = altered(genuine, change)
    assert len(said) == 2
    assert any("argsort" in each and "has other bits than every right device gives" in each for each in said)
    assert any(each == "ops/leaky_relu/forward/float32: says failed, and is passed here" for each in said)


def test_another_challenge_gives_other_inputs(genuine: Path) -> None:
    record = next(each for each in read(genuine).records if each.case.property == "sweep")
    assert record.digests
    assert all(f"challenge {CHALLENGE}" in name for name in record.digests)
    assert len({each.inputs for each in record.digests.values()}) > len(record.digests) / 2


def test_a_log_whose_tests_this_release_does_not_have_cannot_be_executed(genuine: Path) -> None:
    lines = [json.loads(line) for line in genuine.read_bytes().splitlines()]
    for line in lines:
        if line["type"] == "record":
            line["node_id"] = "suites/ops/../../etc/test_x.py::test_x[a]"
    forged = genuine.with_name("forged.jsonl")
    forged.write_bytes(chained(lines))
    with pytest.raises(UsageError, match="no case of the run can be executed again"):
        rerun(summarise(read(forged)), 3, device="emulated")
