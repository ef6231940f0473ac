"""The cases of the adaptation suite: image pipelines, CUDA programs, rewritten and exported models."""

from __future__ import annotations

from pytest_ascend.records.case import Case

from .pipeline import AUGMENT, WORKERS
from .rewritten import SLIPS

#: Models with an equivalent rewritten form, and the level of their case.
REWRITTEN = {"small-vit": "standard", "vit_b_16": "full"}

_REWRITTEN = ("float32", "rewritten-model")
#: Subject, property, dtype, family, level. Models are exported to ONNX and to CANN's offline format.
_ROWS = (
    *(("augmentation", name, "", "augmentation", "standard") for name in AUGMENT),
    *(("input-pipeline", name, "", "input-pipeline", "standard") for name in WORKERS),
    *((f"rewritten-{of}", "separate-projections", *_REWRITTEN, each) for of, each in REWRITTEN.items()),
    *(("rewritten-small-vit", name, *_REWRITTEN, "standard") for name in SLIPS),
    *((name, form, "float32", "export", "full") for form in ("onnx", "offline") for name in ("resnet50", "vit_b_16")),
    ("automatic-migration", "curve", "float32", "migration", "standard"),
)
CASES = tuple(
    Case(suite="adaptation", subject=subject, property=property_, dtype=dtype, family=family, level=level)
    for subject, property_, dtype, family, level in _ROWS
)
