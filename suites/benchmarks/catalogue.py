"""The cases of the benchmark suite."""

from __future__ import annotations

from pytest_ascend.records.case import Case

RESNET50_INFERENCE = Case(
    suite="benchmarks", subject="resnet50", property="inference", dtype="float32", family="inference", level="standard"
)

CASES: tuple[Case, ...] = (RESNET50_INFERENCE,)
