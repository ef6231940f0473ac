"""Each suite beyond stored samples says of each kind of fault that something is wrong, and where; else nothing."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.forks import records
from tests.meta.spoiled import SPOILED

#: A case that has to fail, a part of what it says, and the fault behind it.
CAUGHT: Mapping[str, tuple[str, str]] = {
    "fused/npu_swiglu/forward/float32": ("npu_swiglu", "aclnnSwiGlu"),
    "fused/npu_swiglu/backward/bfloat16": ("npu_swiglu", "aclnnSwiGluGrad"),
    "fused/npu_rms_norm/forward/float16": ("npu_rms_norm", "aclnnRmsNorm"),
    "fused/npu_geglu/forward/float32": ("npu_geglu", "aclnnGeGluV3"),
    "fused/npu_fusion_attention/forward/float16": ("atten_mask", "aclnnFlashAttentionScore"),
    "fused/npu_fast_gelu/layout/float32": ("stepped", "aclnnFastGelu"),
    "random/rand/distribution/float32": ("block 1 of 4096 elements repeats block 0", "aclnnInplaceUniform"),
    "random/normal_/distribution/float32": ("3 elements cannot be drawn", "aclnnInplaceNormal"),
    "random/bernoulli_/distribution/float32": ("not the distribution", "aclnnInplaceBernoulli"),
    "random/multinomial/seed/float32": ("two calls", "aclnnMultinomial"),
    "random/randperm/seed/int64": ("another seed", "aclnnRandperm"),
    "random/randint.low/distribution/int64": ("not the distribution", "aclnnInplaceRandom"),
    "random/gradients/battery": ("its gradient has other factors", "aclnnDropoutDoMask"),
    "random/scaled_dot_product_attention/backward/float32": ("gradient of the value", "aclnnFlashAttentionScoreGrad"),
    "runtime/gather/refusals": ("nothing is raised", "aclnnGather"),
    "stability/softmax/determinism/float32": ("called again", "aclnnSoftmax"),
    "stability/sum/stale-memory/float32": ("in memory full of", "aclnnReduceSum"),
    "stability/exp/batch-invariance/float32": ("the first row", "aclnnExp"),
    "numerics/mm/matmul-hf32/float32": ("mm in matmul-hf32", "aclnnMm"),
    "numerics/overflow/inf-nan/float16": ("mode of infinities", "aclnnSqrt"),
    "fusion/linear-relu.npu_fused_matmul/precision/float32": ("npu_fused_matmul", "aclnnFusedMatmul"),
    "adaptation/augmentation/hue": ("hue", "aclnnMinimum"),
}
#: The test of a case, where it is not called as the property.
TEST = {
    "fused": "fused",
    "errors": "refused",
    "runtime": "runtime",
    "numerics": "mode",
    "numerics/overflow": "inf_nan",
    "adaptation": "augmentation",
}


def node(case: str) -> str:
    suite, subject, property_ = case.split("/")[:3]
    name = TEST.get(f"{suite}/{subject}") or TEST.get(suite, property_.replace("-", "_"))
    return f"{suite}/test_{suite}.py::test_{name}[{case}]"


def run(report: Path, *options: str) -> dict[str, Any]:
    """Run these cases on the emulated device; give the record of each."""
    return records(report, [*map(node, CAUGHT)], "--ascend-level=full", *options)


def test_every_fault_has_its_case() -> None:
    assert {fault for _, fault in CAUGHT.values()} == SPOILED.keys()


def test_without_a_fault_all_is_well(tmp_path: Path) -> None:
    found = run(tmp_path / "report")
    assert {case: found[case]["reason"] for case in CAUGHT if found[case]["outcome"] != "passed"} == {}


@pytest.mark.drawn(4, "long")
def test_each_fault_is_caught_where_it_is(tmp_path: Path) -> None:
    found = run(tmp_path / "report", "--ascend-emulate=fault=tests.meta.spoiled:SPOILED")
    missed = [f"{case}: {said}" for case, (words, _) in CAUGHT.items() if (said := complaint(found[case], words))]
    assert not missed, "\n".join(missed)


def complaint(record: Mapping[str, Any], words: str) -> str:
    """Say what is wrong with how a fault was reported; "" where its case failed with these words."""
    is_right = record["outcome"] == "failed" and words in record["reason"] + record["detail"]
    return "" if is_right else f"{record['outcome']}: {record['reason']}"
