"""The cases of the benchmark suite."""

from __future__ import annotations

from pytest_ascend.records.case import Case

from .operators import FAMILIES
from .work import COPIES, OPTIMIZERS, WORKS

MODELS, MODES = ("resnet50", "vit_b_16"), ("float32", "bfloat16", "autocast-bfloat16")

#: Measured from level standard on, so that every run shows the device's speed: launch, both models in inference and
#: training, copies in both directions, a product, attention.
EARLY = {
    *(("add-4x4", "launch"), ("bmm-scores", "latency"), ("attention-vit", "latency")),
    *((f"{way}-device-16MiB-pinned", "copy") for way in ("to", "from")),
    *((model, work) for model in MODELS for work in WORKS),
}


def _case(subject: str, prop: str, family: str, dtype: str = "float32") -> Case:
    level = "standard" if (subject, prop) in EARLY and dtype == "float32" else "full"
    return Case(suite="benchmarks", subject=subject, property=prop, dtype=dtype, family=family, level=level)


LAUNCH = _case("add-4x4", "launch", "launch")
PIPELINE = _case("data-loader", "settings", "input")
AUGMENTATION = "augmentation"

CASES: tuple[Case, ...] = (
    *(_case(name, "latency", family) for name, family in FAMILIES.items()),
    LAUNCH,
    *(_case(model, work, "models", mode) for model in MODELS for work in WORKS for mode in MODES),
    *(_case(model, each, "models") for each in ("batch-sizes", "memory", "compiled", "captured") for model in MODELS),
    *(_case(name, "copy", "copies") for name in COPIES),
    *(_case(name, "step", "optimizers") for name in OPTIMIZERS),
    PIPELINE,
    _case(AUGMENTATION, "latency", "input"),
)
