"""The cases of the fusion suite: each fused form, by property."""

from __future__ import annotations

from pytest_ascend.records.case import Case

#: Fused forms by name: the pattern, a dot, and how it is fused.
FORMS = (
    "conv-bn.folded",
    "conv-bn-relu.folded",
    "linear-relu.in-place",
    "linear-relu.npu_fused_matmul",
    "layer-norm-gelu.in-place",
    "layer-norm-gelu.npu_layer_norm_eval",
    "attention.scaled_dot_product_attention",
    "attention.npu_fusion_attention",
)

#: Forms that need an operator which not every chip has.
OF_SOME_CHIPS = {"linear-relu.npu_fused_matmul"}


#: Level of each property.
PROPERTIES = {"precision": "standard", "time": "full", "memory": "full"}

CASES = tuple(
    Case(
        suite="fusion",
        subject=name,
        property=property_,
        dtype="float32",
        family=name.partition(".")[0],
        level="full" if name in OF_SOME_CHIPS else level,
    )
    for property_, level in PROPERTIES.items()
    for name in FORMS
)
