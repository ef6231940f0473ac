"""The cases of the adaptation suite: image pipelines, CUDA programs, rewritten and exported models."""

from __future__ import annotations

from pytest_ascend.records.case import Case

AUGMENTATIONS = (
    "horizontal-flip", "vertical-flip", "rotation", "affine", "brightness", "contrast", "saturation", "hue",
    "gaussian-blur", "normalise", "resize", "centre-crop",
)  # fmt: skip

CASES_OF_AUGMENTATION = tuple(
    (name, Case(suite="adaptation", subject="augmentation", property=name, family="augmentation", level="standard"))
    for name in AUGMENTATIONS
)

#: Workers of a DataLoader, by the name of the case.
WORKERS = ("workers-0", "workers-1", "workers-2", "workers-4", "workers-2-persistent", "workers-2-pinned")

CASES_OF_PIPELINE = tuple(
    (
        name,
        Case(suite="adaptation", subject="input-pipeline", property=name, family="input-pipeline", level="standard"),
    )
    for name in WORKERS
)

MIGRATION = Case(
    suite="adaptation",
    subject="automatic-migration",
    property="curve",
    dtype="float32",
    family="migration",
    level="standard",
)


def _rewritten(subject: str, prop: str, level: str) -> Case:
    return Case(
        suite="adaptation", subject=subject, property=prop, dtype="float32", family="rewritten-model", level=level
    )


#: Models whose rewritten form is equivalent.
CASES_OF_REWRITING = tuple(
    (name, _rewritten(f"rewritten-{name}", "separate-projections", level))
    for name, level in (("small-vit", "standard"), ("vit_b_16", "full"))
)
#: Mistakes that change a rewritten model.
CASES_OF_SLIPS = tuple(
    (name, _rewritten("rewritten-small-vit", name, "standard"))
    for name in ("tanh-gelu", "causal-mask", "active-dropout")
)


def _exported(prop: str) -> dict[str, Case]:
    return {
        model: Case(suite="adaptation", subject=model, property=prop, dtype="float32", family="export", level="full")
        for model in ("resnet50", "vit_b_16")
    }


#: Models as ONNX, and as CANN's offline models.
CASES_OF_ONNX, CASES_OF_OFFLINE = _exported("onnx"), _exported("offline")

CASES = (
    *(case for cases in (CASES_OF_AUGMENTATION, CASES_OF_PIPELINE, CASES_OF_REWRITING) for _, case in cases),
    *(case for _, case in CASES_OF_SLIPS),
    *CASES_OF_ONNX.values(),
    *CASES_OF_OFFLINE.values(),
    MIGRATION,
)
