"""The cases of the benchmark suite."""

from __future__ import annotations

from pytest_ascend.records.case import Case

from .host_work import COPIES, OPTIMIZERS
from .models import MODES, WORKS
from .operators import ROWS

MODELS = ("resnet50", "vit_b_16")

#: Measured from level standard on, so that every run shows the device's speed: launching, both models in inference and
#: training, copies in both directions, a product, attention.
EARLY = {
    f"benchmarks/{name}/float32"
    for name in (
        "add-4x4/launch",
        "resnet50/inference",
        "resnet50/training-step",
        "vit_b_16/inference",
        "vit_b_16/training-step",
        "to-device-16MiB-pinned/copy",
        "from-device-16MiB-pinned/copy",
        "bmm-scores/latency",
        "attention-vit/latency",
    )
}


def _case(subject: str, prop: str, dtype: str, family: str) -> Case:
    case = Case(suite="benchmarks", subject=subject, property=prop, dtype=dtype, family=family, level="full")
    return case.but(level="standard") if case.id in EARLY else case


OPERATORS = {_case(row.name, "latency", "float32", row.family): row for row in ROWS}
LAUNCH = _case("add-4x4", "launch", "float32", "launch")
MODEL_RUNS = {
    _case(model, work, dtype, "models"): (model, work, dtype) for model in MODELS for work in WORKS for dtype in MODES
}
SWEEPS = {_case(model, "batch-sizes", "float32", "models"): model for model in MODELS}
MEMORY = {_case(model, "memory", "float32", "models"): model for model in MODELS}
COMPILED = {_case(model, "compiled", "float32", "models"): model for model in MODELS}
CAPTURED = {_case(model, "captured", "float32", "models"): model for model in MODELS}
COPY_RUNS = {_case(row.name, "copy", "float32", "copies"): row for row in COPIES}
OPTIMIZER_RUNS = {_case(row.name, "step", "float32", "optimizers"): row for row in OPTIMIZERS}
PIPELINE = _case("data-loader", "settings", "float32", "input")
AUGMENTATION = _case("augmentation", "latency", "float32", "input")

CASES: tuple[Case, ...] = (
    *OPERATORS,
    LAUNCH,
    *MODEL_RUNS,
    *SWEEPS,
    *MEMORY,
    *COMPILED,
    *CAPTURED,
    *COPY_RUNS,
    *OPTIMIZER_RUNS,
    PIPELINE,
    AUGMENTATION,
)
