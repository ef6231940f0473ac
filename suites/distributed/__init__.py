"""The cases of the distributed suite: collectives, parallel training, data, and failing ranks."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_ascend.records.case import Case

COLLECTIVE, TRAINING, DATA, REFUSAL, FAILURE = "collective", "training", "data", "refusal", "failure"
PRODUCT, SPEED, STEP = "product", "speed", "step"

FLOATS = ("float32", "float16", "bfloat16")
INTEGERS = ("int32", "int64", "int8")
MOVED = (*FLOATS, *INTEGERS, "uint8", "bool")

#: Collective -> the dtypes that HCCL's reference lists for it on an Atlas A2.
REDUCTIONS = {
    "all_reduce.sum": (*FLOATS, *INTEGERS, "int16", "uint8"),
    "all_reduce.product": ("float32", "float16", *INTEGERS),
    "all_reduce.max": (*FLOATS, *INTEGERS, "int16"),
    "all_reduce.min": (*FLOATS, *INTEGERS, "int16"),
    "all_reduce.average": FLOATS,
    "all_reduce.async": ("float32",),
    "all_reduce.captured": ("float32",),
    "all_reduce.coalesced": ("float32",),
    "all_reduce.subgroups": ("float32", "int32"),
    "all_reduce.deterministic": FLOATS,
    "reduce.sum": (*FLOATS, *INTEGERS),
    "reduce.product": ("float32", "int32"),
    "reduce.max": ("float32", "bfloat16", "int32"),
    "reduce.min": ("float32", "int32"),
    "reduce.average": ("float32",),
    "reduce.async": ("float32",),
    "reduce.subgroups": ("float32",),
    "reduce_scatter_tensor.sum": (*FLOATS, *INTEGERS),
    "reduce_scatter_tensor.product": ("float32", "int32"),
    "reduce_scatter_tensor.max": ("float32", "bfloat16", "int32"),
    "reduce_scatter_tensor.min": ("float32", "int32"),
    "reduce_scatter_tensor.average": FLOATS,
    "reduce_scatter_tensor.async": ("float32",),
    "reduce_scatter_tensor.captured": ("float32",),
    "reduce_scatter_tensor.coalesced": ("float32",),
    "reduce_scatter_tensor.subgroups": ("float32",),
    "reduce_scatter.uneven": ("float32",),
}
MOVEMENTS = (
    "all_gather_into_tensor",
    "all_gather",
    "all_gather.uneven",
    "all_gather.strided",
    "broadcast",
    "scatter",
    "gather",
    "all_to_all_single",
    "all_to_all_single.uneven",
    "all_to_all",
    "send_recv.ring",
    "isend_irecv.ring",
    "batch_isend_irecv",
)
#: Those that are also tested asynchronously, within overlapping groups, captured in a graph, and coalesced.
ASYNC = ("all_gather_into_tensor", "all_gather", "broadcast", "scatter", "gather", "all_to_all_single", "all_to_all")
SUBGROUPS = (*ASYNC, "send_recv.ring", "isend_irecv.ring", "batch_isend_irecv")
VARIANTS = (
    *(f"{each}.async" for each in ASYNC),
    *(f"{each}.captured" for each in ("all_gather_into_tensor", "broadcast", "all_to_all_single")),
    *(f"{each}.subgroups" for each in SUBGROUPS),
    "all_gather_into_tensor.coalesced",
)
#: torch_npu's operators that multiply and communicate in one step.
PRODUCTS = (
    "npu_mm_all_reduce_base",
    "npu_mm_all_reduce_base.int8",
    "npu_mm_all_reduce_base.int8-token",
    "npu_mm_all_reduce_base.int8-way",
    "npu_mm_all_reduce_base.int8-weight",
    "npu_mm_all_reduce_base.int8-weight-groups",
    "npu_mm_reduce_scatter_base",
    "npu_all_gather_base_mm",
    "npu_all_to_all_matmul",
    "npu_matmul_all_to_all",
    "npu_alltoallv_gmm",
    "npu_gmm_alltoallv",
    "npu_moe_distribute_dispatch",
    "npu_moe_distribute_dispatch_v2",
    "npu_moe_distribute_combine_add_rms_norm",
)
#: Those that CANN has in bfloat16 only.
BFLOAT16_ONLY = ("npu_moe_distribute_combine_add_rms_norm",)
OBJECTS = ("all_gather_object", "broadcast_object_list", "barrier")

#: Kind of parallel training -> its level.
TRAININGS = {
    "ddp": "standard",
    "ddp-accumulation": "full",
    "ddp-unused-parameters": "full",
    "ddp-fp16-hook": "full",
    "ddp-clipping": "full",
    "sync-batch-norm": "standard",
    "zero": "full",
    "fsdp1": "full",
    "fsdp2": "standard",
    "fsdp2-clipping": "full",
    "tensor-parallel": "standard",
    "sequence-parallel": "full",
    "pipeline-gpipe": "full",
    "pipeline-1f1b": "full",
    "expert-parallel": "full",
    "dtensor-redistribution": "full",
    "checkpoint": "full",
    "resnet50-ddp": "full",
    "vit_b_16-ddp": "full",
    "decoder-fsdp2": "full",
    "decoder-tensor-parallel": "full",
}
SAMPLERS = ("disjoint-and-complete", "uneven-length", "epochs-differ", "resumed")
REFUSALS = (
    "float64-sum",
    "int16-product",
    "bitwise-operation",
    "other-dtype",
    "other-size",
    "other-operation",
    "other-collective",
    "other-root",
    "no-such-root",
    "same-card-twice",
    "strided",
)
#: Collectives measured for bandwidth and latency, and the optimizations of a training step, one by one.
SPEEDS = (
    "all_reduce",
    "all_gather_into_tensor",
    "reduce_scatter_tensor",
    "all_to_all_single",
    "broadcast",
    "send_recv",
)
RUNGS = ("plain", "sharded", "amp", "fused", "overlapped")
FAILURES = ("rank-dies", "rank-hangs", "rank-never-joins", "rank-raises")

#: The cases of level smoke.
SMOKE = {("all_reduce.sum", "float32"), ("all_gather_into_tensor", "float32")}


def _case(subject: str, property_: str, dtype: str, level: str) -> Case:
    family = property_ if property_ != COLLECTIVE else subject.partition(".")[0]
    return Case(suite="distributed", subject=subject, property=property_, dtype=dtype, family=family, level=level)


def _level(subject: str, dtype: str) -> str:
    if (subject, dtype) in SMOKE:
        return "smoke"
    is_variant = subject.endswith((".async", ".subgroups", ".captured")) and not subject.startswith("all_reduce.")
    is_early = dtype == "float32" and not is_variant
    return "standard" if is_early or subject == "all_reduce.sum" else "full"


def _cases() -> Iterator[Case]:
    for subject, dtypes in (
        *REDUCTIONS.items(),
        *dict.fromkeys(MOVEMENTS, MOVED).items(),
        *dict.fromkeys(VARIANTS, ("float32",)).items(),
    ):
        for dtype in dtypes:
            yield _case(subject, COLLECTIVE, dtype, _level(subject, dtype))
    for subject in PRODUCTS:
        if subject not in BFLOAT16_ONLY:
            yield _case(subject, PRODUCT, "float16", "full" if "." in subject else "standard")
        yield _case(subject, PRODUCT, "bfloat16", "full")
    for subject in OBJECTS:
        yield _case(subject, COLLECTIVE, "", "standard")
    for subject, level in TRAININGS.items():
        yield _case(subject, TRAINING, "float32", level)
    for property_, subjects in ((SPEED, SPEEDS), (STEP, tuple(f"decoder-{each}" for each in RUNGS))):
        for subject in subjects:
            yield _case(subject, property_, "float32", "full")
    for property_, subjects, level in (
        (DATA, SAMPLERS, "standard"),
        (REFUSAL, REFUSALS, "full"),
        (FAILURE, FAILURES, "full"),
    ):
        for subject in subjects:
            yield _case(subject, property_, "", level)


CASES = tuple(_cases())
