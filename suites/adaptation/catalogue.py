"""The cases of the adaptation suite: augmentation on the device, and a CUDA program under automatic migration."""

from __future__ import annotations

from pytest_ascend.records.case import Case

AUGMENTATIONS = (
    "horizontal-flip", "vertical-flip", "rotation", "affine", "brightness", "contrast", "saturation", "gaussian-blur",
    "normalise", "resize", "centre-crop",
)  # fmt: skip

CASES_OF_AUGMENTATION = tuple(
    (name, Case(suite="adaptation", subject="augmentation", property=name, family="augmentation", level="standard"))
    for name in AUGMENTATIONS
)

MIGRATION = Case(
    suite="adaptation",
    subject="automatic-migration",
    property="curve",
    dtype="float32",
    family="migration",
    level="standard",
)

CASES = (*(case for _, case in CASES_OF_AUGMENTATION), MIGRATION)
