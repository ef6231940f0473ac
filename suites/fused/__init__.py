"""The tested operators of torch_npu's own, and their cases."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import replace

from pytest_ascend.operators import Operator, cases_of
from pytest_ascend.operators.operator import usual_level
from pytest_ascend.records.case import Case

from .families import attention, latent, linear, movement, normalization, relations, routing, serving, short, training

#: Operators without generated calls, with the reason.
NOT_SWEPT: Mapping[str, str] = {
    name: why
    for why, names in {
        "its sizes go with each other, or with numbers among its arguments": (
            *("npu_fusion_attention", "npu_grouped_matmul", "npu_moe_token_unpermute", "npu_slice", "npu_quantize"),
            *("npu_rms_norm_quant", "npu_moe_init_routing", "npu_moe_finalize_routing", "npu_masked_fill_range"),
        ),
        "its scales have sizes of their own": ("npu_dynamic_quant", "npu_anti_quant"),
        "of equal elements any may be chosen": (
            *("npu_moe_gating_top_k", "npu_moe_gating_top_k_softmax", "npu_top_k_top_p"),
        ),
        "its sizes go with numbers among its arguments": [
            each.name for family in (serving, short, latent, relations) for each in family.OPERATORS
        ],
        "its results are known to deviate": ("npu_iou", "npu_ptiou", "npu_reshape"),
    }.items()
    for name in names
}

#: Which generated calls an operator takes, if it does not take all that its definition does.
_TAKES: Mapping[str, Callable[..., bool]] = {
    **dict.fromkeys(
        ("npu_group_norm_silu", "npu_group_norm_swish", "npu_moe_token_permute", "npu_conv2d"),
        lambda x, *_, **__: x.numel() > 0,
    ),
    **dict.fromkeys(
        ("npu_swiglu", "npu_geglu", "npu_gelu_mul", "npu_clipped_swiglu", "npu_rotary_mul"),
        lambda x, *_, dim=-1, **__: x.shape[dim] % 2 == 0,
    ),
    # Whether there are few enough sequences to attend to one after the other, as the emulated device does.
    "npu_incre_flash_attention": lambda query, *_, **__: len(query) <= 2**4,
    # Whether the spread of a row exceeds the distance between two adjacent numbers.
    **dict.fromkeys(("npu_add_layer_norm", "npu_deep_norm"), lambda x, *_, **__: x.shape[-1] > 2),
}

OPERATORS: tuple[Operator, ...] = tuple(
    replace(operator, sweep=_TAKES.get(operator.name, operator.name not in NOT_SWEPT))
    for family in (normalization, attention, linear, routing, training, movement, serving, short, latent, relations)
    for operator in family.OPERATORS
)

#: Expensive operators, which run only once at level standard. CANN fixes the sizes of latent attention (7,168 numbers
#: in a token: its third version at standard); relations call an operator several times.
_COSTLY = frozenset({"npu_mla_prolog_v3", *(each.name for each in relations.OPERATORS)})
_AT_FULL = ("npu_mla_prolog", "npu_mla_prolog_v2")


def _level(operator: Operator, property_: str, dtype: str) -> str:
    """Return the lowest level of a property: definitions take long, so only one dtype is swept at standard."""
    if operator.name in _COSTLY:
        return "standard" if property_ == "forward" else "full"
    is_other = property_ == "sweep" and dtype != operator.dtypes[0]
    return "full" if is_other or operator.name in _AT_FULL else usual_level(operator, property_, dtype)


@functools.cache
def __getattr__(name: str) -> tuple[Case, ...]:
    """Build ``CASES`` on access: it needs samples, and a run takes its cases from the manifest."""
    if name != "CASES":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # Many generated calls of level full run only in the first dtype of an operator.
    return tuple(
        case
        for operator in OPERATORS
        for case in cases_of(operator, suite="fused", level=_level)
        if case.property != "sweep-more" or case.dtype == operator.dtypes[0]
    )
