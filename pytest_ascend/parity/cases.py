"""The cases of a user's model: what is looked at, in which dtype. Names alone, so that collecting loads no torch."""

from __future__ import annotations

from pytest_ascend.records.case import Case

#: Property and dtype of each case, and the lowest level at which it runs.
PROPERTIES = (
    ("forward", "float32", "smoke"),
    ("forward", "bfloat16", "standard"),
    ("forward", "float16", "standard"),
    ("autocast-forward", "bfloat16", "standard"),
    ("autocast-forward", "float16", "full"),
    ("layers", "float32", "standard"),
    ("gradients", "float32", "standard"),
    ("training", "float32", "standard"),
    ("autocast-training", "bfloat16", "standard"),
    ("memory", "float32", "standard"),
)


def cases(name: str) -> tuple[Case, ...]:
    """Return the cases of the model that users know by ``name``."""
    return tuple(
        Case(suite="user", subject=name, property=what, dtype=dtype, family="models", level=level)
        for what, dtype, level in PROPERTIES
    )
