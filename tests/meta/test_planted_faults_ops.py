"""The suites of operators say of each built-in fault that something is wrong, and where; without any they say nothing.

Faults in different operators are planted together, in forks of one process; a few of them in a run of pytest as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from pytest_ascend.emulator.faults import FAULTS, RUNTIME_FAULTS
from tests.forks import records
from tests.meta.planted import complaints

PAGED = "fused/npu_fused_infer_attention_score.paged/forward/float16"
#: Fault -> a case that has to fail with it, and a part of the message.
CAUGHT: Mapping[str, tuple[str, str]] = {
    "gelu-by-sigmoid": ("gelu/forward/float32", "error of one element"),
    "exp-by-polynomial": ("exp/forward/float32", "error of one element"),
    "mm-rounds-to-hf32": ("mm/forward/float32", "error of one element"),
    "bmm-in-half": ("bmm/forward/float32", "error of one element"),
    "cast-cuts-bits": ("to/forward/float32", "not bitwise equal"),
    "round-halves-away": ("round/special/float32", "error"),
    "sum-in-half": ("sum/forward/float16", "4099"),
    "matmul-sums-in-half": ("mm/forward/bfloat16", "4097"),
    "maximum-drops-nan": ("maximum/special/bfloat16", "where NaN is expected"),
    "amax-drops-nan": ("amax/special/float32", "where NaN is expected"),
    "clamp-drops-nan": ("clamp/special/float16", "where NaN is expected"),
    "sort-drops-nan": ("sort/special/float32", "-Inf where"),
    "exp2-saturates": ("exp2/special/float32", "is expected"),
    "reciprocal-saturates": ("reciprocal/special/float32", "is expected"),
    "mul-flushes-denormals": ("mul/special/float32", "error of one element"),
    "neg-loses-zero-sign": ("neg/special/float32", "is negative"),
    "tanh-ignores-strides": ("tanh/layout/float32", "stepped"),
    "sigmoid-ignores-offset": ("sigmoid/layout/float32", "sigmoid["),
    "sub-ignores-stride-0": ("sub/layout/float32", "expanded"),
    "mm-ignores-transposition": ("mm/layout/float32", "mm["),
    "erf-leaves-tail": ("erf/forward/float32", "error of one element"),
    "leaky_relu-ignores-slope": ("leaky_relu/forward/float32", "negative_slope=0.25"),
    "sort-ignores-descending": ("sort/forward/int64", "descending=True"),
    "div-floor-truncates": ("div.rounding_mode/forward/float32", "rounding_mode=floor"),
    "var-ignores-correction": ("var/forward/float32", "correction=0"),
    "addcmul-ignores-value": ("addcmul/forward/float32", "value=0.5"),
    "tanh-gradient-unsquared": ("tanh/backward/float32", "tanh"),
    "silu-gradient-halved": ("silu/backward/float32", "silu"),
    "add-forgets-views": ("add/in-place/float32", "stepped"),
    "mul-in-place-twice": ("mul/in-place/float32", "mul"),
    "cumsum-in-32-bits": ("cumsum/forward/int64", "cumsum"),
    "eq-in-float32": ("eq/shapes/float32", "6 int64, 6 int64"),
    "bitwise_or-in-32-bits": ("bitwise_or/forward/int64", "bitwise_or"),
    "logits-in-bfloat16": ("mm/forward/float32", "mm"),
    "attention-reads-first-page": (PAGED, "page"),
    "attention-reads-padding": (PAGED, "page"),
    "causal-mask-off-by-one": (PAGED, "packed"),
    "mask-ignored-beyond-512": (PAGED, "mask"),
    "mask-all-beyond-512": (PAGED, "mask"),
    "mask-inverted-beyond-512": (PAGED, "mask"),
    "mask-repeated-beyond-512": (PAGED, "mask"),
    "cache-slot-off-by-one": ("fused/npu_scatter_pa_kv_cache/forward/float16", ""),
    "mrope-takes-neighbours": ("fused/npu_mrope/forward/float16", ""),
    "int4-nibbles-swapped": ("fused/npu_convert_weight_to_int4pack/forward/float16", ""),
    "scale-of-next-group": ("fused/npu_weight_quant_batchmatmul/forward/float16", "group"),
    "weights-of-next-expert": ("fused/npu_grouped_matmul.quantized/forward/int8", ""),
    "quantize-rounds-half-away": ("fused/npu_quantize/forward/float32", ""),
    "quantize-wraps-around": ("fused/npu_quantize/forward/float32", ""),
    "gating-takes-last-of-equals": ("fused/npu_moe_gating_top_k_softmax/forward/float32", ""),
    "last-expert-dropped": ("fused/npu_moe_init_routing_v2/forward/float16", ""),
    "prolog-writes-slot-before": ("fused/npu_mla_prolog_v3/forward/bfloat16", ""),
    "indexer-takes-scale-of-next-key": ("fused/npu_quant_lightning_indexer/forward/int8", ""),
    "mx-scale-of-next-block": ("fused/npu_quant_matmul.mx/forward/uint8", ""),
    "mx-rounds-half-away": ("fused/npu_dynamic_mx_quant/forward/float16", "every number"),
    "mx-nibbles-swapped": ("fused/npu_dynamic_mx_quant/forward/bfloat16", "float4"),
    "float8-saturates-nan": ("fused/npu_dtype_cast.to/forward/float32", "NaN"),
}
#: Fault -> the relation of the same operator in another way that it breaks.
RELATIONS: Mapping[str, str] = {
    "attention-reads-first-page": "fused/npu_fused_infer_attention_score.decoding/forward/float16",
    "causal-mask-off-by-one": "fused/npu_fused_infer_attention_score.chunks/forward/float16",
    "cache-slot-off-by-one": "fused/npu_scatter_pa_kv_cache.permuted/forward/float16",
    "weights-of-next-expert": "fused/npu_grouped_matmul.permuted/forward/float16",
    "last-expert-dropped": "fused/npu_moe_init_routing_v2.permuted/forward/float16",
}
#: Faults of operators that an Ascend 950 alone has.
ON_950 = {fault for fault in CAUGHT if fault.startswith(("mx-", "float8-"))}
#: What disagrees with PyTorch without a fault too, and is known to: CANN's GELU is the tanh formula.
KNOWN = {"ops/gelu/forward/float32"}
TEST = {"in-place": "in_place"}


def together(faults: Sequence[str]) -> Iterator[list[str]]:
    """Put faults that have neither an operator nor a case's operator in common into as few groups as that takes."""
    left = list(faults)
    while left:
        group: list[str] = []
        for fault in left:
            if not any(kernels(fault) & kernels(other) for other in group):
                group.append(fault)
        yield group
        left = [fault for fault in left if fault not in group]


def kernels(fault: str) -> set[str]:
    return {*FAULTS[fault], subject(CAUGHT[fault][0])}


def subject(case: str) -> str:
    return case.removeprefix("fused/").partition("/")[0]


def node(case: str) -> str:
    if case.startswith("fused/"):
        return f"fused/test_fused.py::test_fused[{case}]"
    kind = case.split("/")[1]
    return f"ops/test_ops.py::test_{TEST.get(kind, kind)}[ops/{case}]"


def full(case: str) -> str:
    return case if case.startswith("fused/") else f"ops/{case}"


def test_every_built_in_fault_has_its_case() -> None:
    of_graphs = {fault for fault in FAULTS if fault.startswith("graph-")}  # of which operators know nothing
    assert CAUGHT.keys() == FAULTS.keys() - of_graphs - RUNTIME_FAULTS.keys()


@pytest.mark.parametrize("chip", ["", "950"])
def test_faults_are_caught_where_they_are(chip: str, tmp_path: Path) -> None:
    faults = ON_950 if chip else CAUGHT.keys() - ON_950
    groups = [[], *together(sorted(faults))]
    cases = [
        list(dict.fromkeys(case for fault in group or sorted(faults) for case in asked(fault))) for group in groups
    ]
    jobs = [{"faults": group, "cases": given} for group, given in zip(groups, cases, strict=True)]
    right, *wrong = complaints(jobs, tmp_path, chip)
    assert {case for case, said in right.items() if said} <= KNOWN, right
    missed = [
        f"{fault}: {case}: {said[case]}"
        for group, said in zip(groups[1:], wrong, strict=True)
        for fault in group
        for case in asked(fault)
        if not is_named(
            (case.removeprefix("ops/"), CAUGHT[fault][1] if case not in RELATIONS.values() else ""), said[case]
        )
    ]
    assert not missed, "\n".join(missed)


def asked(fault: str) -> list[str]:
    """Return the cases that have to fail with a fault."""
    return [full(CAUGHT[fault][0]), *([RELATIONS[fault]] if fault in RELATIONS else [])]


def is_named(caught: tuple[str, str], said: str) -> bool:
    """Whether what is said names the operator first, and the words."""
    case, words = caught
    return said.startswith(subject(case)) and words in said


@pytest.mark.drawn(4, "long")
def test_a_run_of_pytest_reports_them(tmp_path: Path) -> None:
    faults = ["gelu-by-sigmoid", "exp-by-polynomial", "attention-reads-first-page"]
    cases = {full(CAUGHT[fault][0]): fault for fault in faults}
    nodes = [node(CAUGHT[fault][0]) for fault in (*faults, "mm-rounds-to-hf32")]
    found = records(tmp_path / "report", nodes, *(f"--ascend-emulate=fault={fault}" for fault in faults))
    for case, fault in cases.items():
        assert found[case]["outcome"] == "failed"
        assert is_named(CAUGHT[fault], found[case]["reason"] + found[case]["detail"])
    assert found["ops/mm/forward/float32"]["outcome"] == "passed"


def test_sums_in_half_precision_are_seen_at_smoke(tmp_path: Path) -> None:
    cases = [f"ops/{name}/exact/{dtype}" for name in ("mm", "sum") for dtype in ("bfloat16", "float16", "float32")]
    jobs = [{"faults": each, "cases": cases, "level": "smoke"} for each in ([], ["sum-in-half", "matmul-sums-in-half"])]
    right, wrong = complaints(jobs, tmp_path)
    assert not any(right.values())
    assert {case for case, said in wrong.items() if said} == {each for each in cases if not each.endswith("float32")}
