"""Run logs made up for tests: any number of cases, every outcome, and ids that want to do harm."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from itertools import cycle
from pathlib import Path
from random import Random
from typing import Any

import msgspec
from msgspec import structs

from pytest_ascend.records.case import Case, Stack
from pytest_ascend.records.outcome import OUTCOMES, Passed
from pytest_ascend.records.record import ResultRecord
from pytest_ascend.records.verdict import Verdict
from pytest_ascend.runlog.contents import Header, Selection
from pytest_ascend.runlog.writing import RunLog
from pytest_ascend.verdict.summary import summarise

STARTED = "2026-01-02T03:04:05+00:00"
FINISHED = "2026-01-02T03:14:05+00:00"

HOSTILE = (
    "<script>document.title='harmed'</script>",
    "</script><img src=x onerror=document.title='harmed'>",
    "\"'><b onmouseover=document.title='harmed'>",
    "{{ 7 * 7 }}{% raw %}",
    "<!--<script>",
    "nul\x00 bell\x07 escape\x1b[31m delete\x7f next-line\x85",
    "line\nbreak\tand\u2028separator\u2029",
    "right-to-left \u202egnp.tset\u202c",
    "javascript:document.title='harmed'",
    "lone surrogate \ud800",
    "\\u003c/script\\u003e &lt;b&gt; &#60;",
    "算子 ✗ 🤖",
)

EMULATED = Stack(
    device="npu",
    emulated=True,
    chip="Ascend910B1 (emulated)",
    cann="9.0.0 (emulated)",
    torch="2.13.0",
    torch_npu="2.13.0",
    torch_npu_commit="9e73e708a5d8",
    python="3.11.9",
    os="Debian GNU/Linux 12, Linux 6.1, x86_64",
    host="8 cores, 32 GiB",
    pytest_ascend="0.1.0",
)
HARDWARE = Stack(
    device="npu",
    emulated=False,
    chip="Ascend910B1",
    driver="25.5.0",
    firmware="7.8.0.5.216",
    cann="9.0.0",
    torch="2.13.0",
    torch_npu="2.13.0",
    torch_npu_commit="9e73e708a5d8",
    python="3.11.9",
    os="openEuler 22.03, Linux 5.10, aarch64",
    host="192 cores, 1.5 TiB",
    pytest_ascend="0.1.0",
)

FAMILIES = {
    "activation": "relu gelu silu sigmoid tanh softmax log_softmax leaky_relu elu mish hardswish softplus",
    "arithmetic": "add sub mul div pow sqrt rsqrt exp log abs neg remainder floor ceil round reciprocal",
    "comparison": "eq ne lt le gt ge isnan isinf logical_and logical_or where clamp maximum minimum",
    "convolution": "conv1d conv2d conv3d conv_transpose2d",
    "indexing": "gather scatter index_select embedding masked_fill topk sort cat stack narrow flip roll",
    "linear algebra": "matmul bmm addmm linear einsum baddbmm",
    "normalisation": "layer_norm batch_norm group_norm rms_norm",
    "reduction": "sum mean max min argmax argmin amax prod cumsum var std norm all any",
}
DTYPES = ("float32", "float16", "bfloat16", "int64", "int32", "int8", "uint8", "bool")
PROPERTIES = ("forward", "backward", "noncontiguous", "empty")
MODELS = ("resnet50", "vit_b_16")
STANDARD = "error-model@1"


def replace(value: Any, **changes: Any) -> Any:
    """Return any piece of a log with fields changed."""
    if isinstance(value, (Case, ResultRecord)):
        return value.but(**changes)
    return (structs.replace if isinstance(value, msgspec.Struct) else dataclasses.replace)(value, **changes)


def op_cases(count: int) -> list[Case]:
    """Return ``count`` operator cases, with as many made-up operators as that takes."""
    cases = []
    for round_number in range(count):
        for family, names in FAMILIES.items():
            for name in names.split():
                subject = name if not round_number else f"{name}_v{round_number + 1}"
                for case in _cases_of(subject, family):
                    if len(cases) == count:
                        return cases
                    cases.append(case)
    return cases


def _cases_of(subject: str, family: str) -> Iterator[Case]:
    for dtype in DTYPES:
        for name in PROPERTIES:
            if name != "backward" or "float" in dtype:
                yield Case(suite="ops", subject=subject, property=name, dtype=dtype, family=family)


def other_cases() -> list[Case]:
    """Return the cases of the other suites, a user's own test among them."""
    models = [
        Case(suite="models", subject=model, property=name, dtype=dtype, family="vision")
        for model in MODELS
        for name in ("outputs", "loss", "gradients", "training")
        for dtype in ("float32", "autocast-float16")
    ]
    environment = [
        Case(suite="environment", subject=subject, property=name)
        for subject, name in (("device", "found"), ("tensor", "round-trip"), ("matmul", "error-and-time"))
    ]
    benchmarks = [
        Case(suite="benchmarks", subject="resnet50", property=f"inference-batch{size}", dtype="float32")
        for size in (1, 8, 32)
    ]
    user = Case(suite="user", subject="test_my_block", property="precision_compare")
    return [*environment, *models, *benchmarks, user]


def hostile_cases() -> list[Case]:
    """Return cases whose every field wants to break out of the page."""
    return [Case(suite="ops", subject=text, property=text, dtype="float32", family=text) for text in HOSTILE] + [
        Case(suite=text, subject=text, property="forward") for text in HOSTILE
    ]


def verdict(case: Case, *, agrees: bool, random: Random, leaves: int = 0) -> Verdict:
    """Make up one comparison, with the figures that the judge gives."""
    scale = 1e-7 if agrees else 1e-2
    found: dict[str, Any] = {
        "path": "output",
        "agrees": agrees,
        "standard": STANDARD,
        "headline": "agrees" if agrees else f"3 of 4096 elements of {case.subject} are too far from the golden",
        "message": "" if agrees else f"{case.subject}: 3 of 4096 elements differ\n  worst at [1, 17]: off by 0.0123",
        "metrics": {
            "count": 4096.0,
            "max_abs": random.random() * scale,
            "mean_abs": random.random() * scale,
            "max_rel": random.random() * scale * 10,
            "mean_rel": random.random() * scale,
            "rmse": random.random() * scale,
            "ulp_max": random.random() * (4 if agrees else 4e5),
            "ulp_mean": random.random(),
            "ulp_p50": 0.5,
            "ulp_p99": random.random() * 2,
            "ulp_p99.9": random.random() * 3,
            "within_0.001": 1.0,
            "within_0.005": 1.0,
            "within_0.01": 1.0,
            "cosine": 1.0,
            "bias_ulp": random.random() - 0.5,
            "limit_used": random.random() * (0.5 if agrees else 50),
            **({} if agrees else {"mismatches": 3.0, "excess": math.inf}),
        },
        "worst": {"index": [1, random.randrange(64)], "actual": "0.70312", "expected": "0.69081"},
        "limit": None if agrees else {"name": "largest error in ulp", "value": 4.0},
        "pattern": "" if agrees else "every 64th element: the last of each row",
        "waiver": "",
    }
    found["leaves"] = [{**found, "path": f"layer{index}.weight"} for index in range(leaves or 1)]
    return msgspec.convert(found, Verdict)


def record(case: Case, outcome: str, random: Random) -> ResultRecord:
    """Make up what became of one case."""
    agrees = outcome not in ("failed", "waived", "disputed")
    ran = outcome in ("passed", "failed", "fallback", "waived", "disputed")
    leaves = 12 if case.suite == "models" else 0
    reason = "" if outcome == "passed" else REASONS[outcome].format(subject=case.subject)
    return ResultRecord.of(
        case,
        f"suites/{case.suite}/test_{case.suite}.py::test_{case.property}[{case.subject}-{case.dtype}]",
        OUTCOMES[outcome](reason=reason, detail=DETAIL if outcome == "errored" else ""),
        verdicts=(verdict(case, agrees=agrees, random=random, leaves=leaves),) if ran else (),
        measurements=_measurements(case, random),
        fallbacks=(f"aten::{case.subject}",) if outcome == "fallback" else (),
        duration_s=random.random() / 10,
        snippet="" if outcome == "passed" or case.suite != "ops" else f"# {case.id}\n{SNIPPET}",
    )


REASONS = {
    "failed": "3 of 4096 elements are too far from the golden",
    "errored": "RuntimeError: the device was lost (ACL error 507015)",
    "flaky": "passed, and failed before: another answer each time",
    "fallback": "computed on the CPU: aten::{subject}",
    "unsupported": "the device says: no kernel for {subject} with this dtype",
    "not-run": "the worker crashed before this case",
    "not-emulated": "the emulated device lacks aclnn{subject}",
    "not-judged": "skipped: {subject} is not for today",
    "disputed": "the gradient of {subject} is all rounding in this sample",
    "waived": "known deviation of the last bit; issue 12, owner: kernels, until 2026-06-30",
}
SNIPPET = "import torch\n" + "x = torch.tensor([0.5, 0.25, -1.75])  # <not> markup\n" * 60
DETAIL = 'Traceback (most recent call last):\n  File "suites/ops/test_ops.py", line 12\nRuntimeError: <device lost>'


def _measurements(case: Case, random: Random) -> dict[str, float]:
    if case.suite == "benchmarks":
        latency_us = 40_000 * (1 + random.random())
        return {"latency_us": latency_us, "throughput_per_s": 1e6 / latency_us, "peak_memory_bytes": 4.2e9}
    if case.subject == "matmul":
        return {"duration_us": 151.2, "error_max_abs": 2.4e-5}
    return {}


def write_log(
    path: Path,
    cases: Sequence[Case],
    *,
    outcomes: Sequence[str] = ("passed",),
    stack: Stack = EMULATED,
    selection: Selection | None = None,
    recorded: int | None = None,
    finish: bool = True,
) -> Path:
    """Write a log of ``cases``, whose outcomes repeat those given; only the first ``recorded`` get a record."""
    log = RunLog.create(path, header(cases, stack=stack, selection=selection))
    for each in records(cases[:recorded], outcomes, Random(20)):  # noqa: S311 - made-up figures, not secrets
        log.append(each)
    if finish:
        log.finish(summarise(log.contents()).footer(FINISHED))
    log.close()
    return path


def records(cases: Sequence[Case], outcomes: Sequence[str], random: Random) -> Iterator[ResultRecord]:
    """Make up what became of cases, whose outcomes repeat those given."""
    for case, outcome in zip(cases, cycle(outcomes), strict=False):
        yield record(case, outcome, random)


def header(
    cases: Sequence[Case],
    *,
    stack: Stack = EMULATED,
    selection: Selection | None = None,
) -> Header:
    """Make up the first line of a log of cases."""
    return Header(
        run_id="20260102-030405-5f1c",
        started=STARTED,
        stack=stack,
        level="smoke",
        selection=selection or Selection("full"),
        manifest=tuple(cases),
        options={"device": "auto", "baselines": "bundled"},
    )


def passed(case: Case) -> ResultRecord:
    """Make up a correct pass."""
    evidence = verdict(case, agrees=True, random=Random(1))  # noqa: S311 - as above
    return ResultRecord.of(case, f"test::{case.id}", Passed(), verdicts=(evidence,))
