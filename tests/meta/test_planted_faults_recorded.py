"""Recorded operators: of a device with eighteen faults in them all are told, by name, at level standard."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from suites.ops import CASES
from suites.ops.table import is_recorded
from tests.forks import records
from tests.meta.spoiled_recorded import SPOILED

#: The operator of CANN that is wrong, and the case that has to fail.
CAUGHT: Mapping[str, str] = {
    "aclnnLogAddExp2": "ops/logaddexp2/forward/float32",
    "aclnnSinc": "ops/sinc/forward/float32",
    "aclnnCdist": "ops/cdist/forward/float32",
    "aclnnXLogYTensor": "ops/xlogy/special/float32",
    "aclnnLogit": "ops/logit/layout/float32",
    "aclnnTrace": "ops/trace/layout/float32",
    "aclnnGridSampler2D": "ops/grid_sampler_2d/layout/float32",
    "aclnnHistc": "ops/histc/layout/float32",
    "aclnnRenorm": "ops/renorm/forward/float32",
    "aclnnStdMeanCorrection": "ops/std_mean/forward/float32",
    "aclnnLogitGrad": "ops/logit/backward/float32",
    "aclnnAdaptiveAvgPool3dBackward": "ops/adaptive_avg_pool3d/backward/float32",
    "aclnnAddr": "ops/addr/forward/float32",
    "aclnnReflectionPad3d": "ops/pad/forward/float32",
    "aclnnGridSampler3D": "ops/grid_sampler_3d/forward/float32",
    "aclnnGridSampler3DBackward": "ops/grid_sampler_3d/backward/float32",
    "aclnnChannelShuffle": "ops/channel_shuffle/repeat/float32",
    "aclnnLinalgCross": "ops/linalg.cross/repeat/float32",
}


def run(report: Path, *options: str) -> dict[str, Any]:
    """Run these cases on the emulated device, at level standard; give the record of each."""
    nodes = [f"ops/test_ops.py::test_{case.split('/')[2]}[{case}]" for case in CAUGHT.values()]
    return records(report, nodes, *options)


def test_every_fault_is_in_an_operator_that_is_recorded() -> None:
    assert CAUGHT.keys() == SPOILED.keys()
    known = {case.id: case for case in CASES}
    assert all(is_recorded(known[case].subject, known[case].dtype) for case in CAUGHT.values())


def test_without_a_fault_nothing_is_said(tmp_path: Path) -> None:
    found = run(tmp_path / "report")
    assert {case: found[case]["reason"] for case in CAUGHT.values() if found[case]["outcome"] != "passed"} == {}


@pytest.mark.drawn(4, "long")
def test_each_fault_is_caught_by_the_name_of_its_operator(tmp_path: Path) -> None:
    found = run(tmp_path / "report", "--ascend-emulate=fault=tests.meta.spoiled_recorded:SPOILED")
    missed = [f"{fault}: {found[case]['outcome']}" for fault, case in CAUGHT.items() if not named(found[case])]
    assert not missed, "\n".join(missed)


def named(record: Mapping[str, Any]) -> bool:
    """Whether a case failed, and the first word of it is its operator."""
    return bool(record["outcome"] == "failed" and record["reason"].startswith(record["case"]["subject"]))
