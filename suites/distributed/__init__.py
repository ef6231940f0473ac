"""The cases of the distributed suite: collectives, parallel training, data, and failing ranks."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_ascend.records.case import Case
from pytest_ascend.system.bundled import beside

COLLECTIVE, TRAINING, DATA, REFUSAL, FAILURE = "collective", "training", "data", "refusal", "failure"
PRODUCT, SPEED, STEP, CARDS = "product", "speed", "step", "cards"

MOVED = ("float32", "float16", "bfloat16", "int32", "int64", "int8", "uint8", "bool")

_DATA = beside(__file__, "cases.json")
#: Collective -> the dtypes that HCCL's reference lists for it on an Atlas A2.
REDUCTIONS: dict[str, list[str]] = _DATA["reductions"]
MOVEMENTS: list[str] = _DATA["movements"]
#: Collectives also tested asynchronously, within overlapping groups, captured in a graph, and coalesced.
ASYNC = ("all_gather_into_tensor", "all_gather", "broadcast", "scatter", "gather", "all_to_all_single", "all_to_all")
SUBGROUPS = (*ASYNC, "send_recv.ring", "isend_irecv.ring", "batch_isend_irecv")
VARIANTS = (
    *(f"{each}.async" for each in ASYNC),
    *(f"{each}.captured" for each in ("all_gather_into_tensor", "broadcast", "all_to_all_single")),
    *(f"{each}.subgroups" for each in SUBGROUPS),
    "all_gather_into_tensor.coalesced",
)
#: torch_npu's operators that multiply and communicate in one step.
PRODUCTS: list[str] = _DATA["products"]
OBJECTS = ("all_gather_object", "broadcast_object_list", "barrier")

#: Kind of parallel training -> its level.
TRAININGS: dict[str, str] = _DATA["trainings"]
#: Checks of several cards in one process -> their levels.
OF_CARDS: dict[str, str] = _DATA["cards"]
SAMPLERS = ("disjoint-and-complete", "uneven-length", "epochs-differ", "resumed")
REFUSALS: tuple[str, ...] = tuple(_DATA["refusals"])
#: Collectives measured for bandwidth and latency.
SPEEDS: tuple[str, ...] = tuple(_DATA["speeds"])
#: Each variant of a training step adds one optimization. A sharded model is gathered before the step and reduced after
#: it; with layers as the sharded units, one layer's communication overlaps another's computation.
RUNGS = ("plain", "sharded", "amp", "fused", "overlapped")
FAILURES = ("rank-dies", "rank-hangs", "rank-never-joins", "rank-raises")

#: The cases of level smoke.
SMOKE = {("all_reduce.sum", "float32"), ("all_gather_into_tensor", "float32")}


def _case(subject: str, property_: str, dtype: str, level: str) -> Case:
    family = property_ if property_ != COLLECTIVE else subject.partition(".")[0]
    return Case(suite="distributed", subject=subject, property=property_, dtype=dtype, family=family, level=level)


def _cases() -> Iterator[Case]:
    moved = dict.fromkeys(MOVEMENTS, MOVED) | dict.fromkeys(VARIANTS, MOVED[:1])
    for subject, dtypes in (*REDUCTIONS.items(), *moved.items()):
        is_variant = subject.endswith((".async", ".subgroups", ".captured")) and not subject.startswith("all_reduce.")
        for dtype in dtypes:
            is_early = (dtype == "float32" and not is_variant) or subject == "all_reduce.sum"
            level = "smoke" if (subject, dtype) in SMOKE else "standard" if is_early else "full"
            yield _case(subject, COLLECTIVE, dtype, level)
    for subject in PRODUCTS:
        if subject != "npu_moe_distribute_combine_add_rms_norm":  # which CANN has only in bfloat16
            yield _case(subject, PRODUCT, "float16", "full" if "." in subject else "standard")
        yield _case(subject, PRODUCT, "bfloat16", "full")
    of_steps = tuple(f"{of}-{each}" for of in ("decoder", "vision-language") for each in RUNGS)
    for property_, subjects, dtype, level in (
        (COLLECTIVE, OBJECTS, "", "standard"),
        *((CARDS, (subject,), "", level) for subject, level in OF_CARDS.items()),
        *((TRAINING, (subject,), "float32", level) for subject, level in TRAININGS.items()),
        (SPEED, SPEEDS, "float32", "full"),
        (STEP, of_steps, "float32", "full"),
        (DATA, SAMPLERS, "", "standard"),
        (REFUSAL, REFUSALS, "", "full"),
        (FAILURE, FAILURES, "", "full"),
    ):
        for subject in subjects:
            yield _case(subject, property_, dtype, level)


CASES = tuple(_cases())
