"""Attention, and operations on queries and keys before it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

from pytest_ascend.operators import InputFactory, Operator, Sample, call
from pytest_ascend.operators.operator import HALVES
from pytest_ascend.precision.kernel_fallbacks import rotary_mul

from ..entry import fused, in_family, on_copies

T = torch.Tensor

#: Terms in the longest sum: keys, or the depth of a head.
TERMS = 96


def _to_heads(x: T, layout: str, heads: int) -> T:
    """Return (batch, heads, sequence, depth); H is heads and depth in one dimension."""
    x, names = torch.unflatten(x, -1, (heads, -1)) if "H" in layout else x, layout.replace("H", "ND")
    return x.permute([names.index(each) for each in "BNSD"])


def _attention(
    query: T, key: T, value: T, num_heads: int, input_layout: str, scale: float = 1.0, atten_mask: T | None = None,
    pse: T | None = None, sparse_mode: int = 0, num_key_value_heads: int = 0,  # noqa: ARG001 - which the keys tell
    pre_tockens: int = 2048, next_tockens: int = 0,
) -> T:  # fmt: skip
    q = _to_heads(query, input_layout, num_heads)
    kv_heads = key.shape[-1] // q.shape[-1] if input_layout.endswith("H") else num_heads
    k, v = (_to_heads(each, input_layout, kv_heads) for each in (key, value))
    k, v = (each.repeat_interleave(q.shape[1] // each.shape[1], 1) for each in (k, v))
    # The position bias is added before the scores are scaled: see the formula of aclnnFlashAttentionScore.
    scores = q @ k.transpose(-1, -2) * scale + (0 if pse is None else pse * scale)
    if sparse_mode:  # the given mask is compressed; it means "no key after the query", or far from it
        every = torch.ones(q.shape[2], q.shape[2], dtype=torch.bool)
        atten_mask = every.triu(1 + next_tockens) | every.tril(-1 - pre_tockens)
    scores = scores if atten_mask is None else scores.masked_fill(atten_mask, float("-inf"))
    x = (scores.softmax(-1) @ v).permute(["BNSD".index(each) for each in input_layout.replace("H", "ND")])
    return x.flatten(2) if "H" in input_layout else x


def _triple(make: InputFactory, *shape: int, keys: tuple[int, ...] = ()) -> tuple[T, T, T]:
    return make.normal(*shape), make.normal(*(keys or shape)), make.normal(*(keys or shape))


def _fusion_inputs(make: InputFactory) -> Iterator[Sample]:
    yield call(*_triple(make, 2, 4, 32, 16), 4, "BNSD", scale=0.25)
    yield call(*_triple(make, 2, 24, 4, 16), 4, "BSND", scale=0.25)
    yield call(*_triple(make, 2, 33, 64), 4, "BSH", scale=0.25)
    yield call(*_triple(make, 19, 2, 64), 4, "SBH", scale=0.125)
    causal = torch.ones(32, 32, dtype=torch.bool).triu(1)
    yield call(*_triple(make, 1, 2, 32, 16), 2, "BNSD", scale=0.25, atten_mask=causal)
    whole = torch.ones(2048, 2048, dtype=torch.bool).triu(1)
    yield call(*_triple(make, 1, 2, 48, 16), 2, "BNSD", scale=0.25, atten_mask=whole, sparse_mode=2)
    of_band = *_triple(make, 1, 2, 48, 16), 2, "BNSD"
    yield call(*of_band, scale=0.25, atten_mask=whole, sparse_mode=4, pre_tockens=9, next_tockens=2, name="a band")
    yield call(*_triple(make, 1, 2, 32, 16), 2, "BNSD", scale=0.25, pse=make.normal(1, 2, 32, 32, grad=False))
    mask, bias = make.mask(2, 1, 32, 32), make.normal(2, 2, 32, 32, grad=False)
    of_each = *_triple(make, 2, 2, 32, 16), 2, "BNSD"
    yield call(*of_each, scale=0.25, atten_mask=mask, pse=bias, name="a mask and a bias for each")


def _prompt(query: T, key: T, value: T, scale_value: float, **how: Any) -> T:
    return _attention(query, key, value, scale=scale_value, **how)


def _prompt_inputs(make: InputFactory) -> Iterator[Sample]:
    for layout, shape in (("BNSD", (2, 4, 32, 16)), ("BSH", (2, 32, 64))):
        yield call(*_triple(make, *shape), num_heads=4, input_layout=layout, scale_value=0.25)
    causal = torch.ones(1, 1, 32, 32, dtype=torch.bool).triu(1)
    yield call(*_triple(make, 1, 2, 32, 16), num_heads=2, input_layout="BNSD", scale_value=0.25, atten_mask=causal)


def _incremental_inputs(make: InputFactory) -> Iterator[Sample]:
    keys = (2, 4, 48, 16)
    yield call(*_triple(make, 2, 4, 1, 16, keys=keys), num_heads=4, input_layout="BNSD", scale_value=0.25)
    yield call(*_triple(make, 3, 1, 64, keys=(3, 96, 64)), num_heads=4, input_layout="BSH", scale_value=0.25)


def _rotary(x: T, cos: T, sin: T, rotary_mode: str = "half") -> T:
    if rotary_mode == "half":
        return rotary_mul(x, cos, sin)
    return x * cos + torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2) * sin


def _rotary_inputs(make: InputFactory) -> Iterator[Sample]:
    pairs = (((2, 4, 8, 64), (1, 1, 8, 64)), ((2, 8, 4, 64), (1, 8, 1, 64)), ((8, 2, 4, 32), (8, 1, 1, 32)))
    for shape, angles in pairs:
        yield call(make.normal(*shape), make.uniform(*angles), make.uniform(*angles))
    yield call(make.normal(2, 4, 8, 64), make.uniform(1, 1, 8, 64), make.uniform(1, 1, 8, 64), rotary_mode="interleave")


def _both_rotary(query: T, key: T, cos: T, sin: T) -> tuple[T, T]:
    return _rotary(query, cos, sin), _rotary(key, cos, sin)


def _masked_softmax(x: T, mask: T, scale: float = 1.0, fixed_triu_mask: bool = False) -> T:
    left_out = torch.ones(x.shape[-2:], dtype=torch.bool).triu(1) if fixed_triu_mask else mask
    # CANN adds -10000 instead of minus infinity: masked scores have no weight in any dtype.
    return (x * scale).masked_fill(left_out, -10000.0).softmax(-1)


def _masked_inputs(make: InputFactory) -> Iterator[Sample]:
    for batch, heads, rows, scale in ((2, 3, 32, 0.5), (1, 2, 64, 2.0)):
        yield call(make.normal(batch, heads, rows, 64), make.mask(batch, 1, rows, 64), scale, False)


def _token_angles(make: InputFactory) -> Iterator[Sample]:
    query, key = make.normal(2, 3, 4, 128), make.normal(2, 3, 2, 128)
    yield call(query, key, make.uniform(2, 3, 1, 128), make.uniform(2, 3, 1, 128))


def _infer_inputs(make: InputFactory) -> Iterator[Sample]:
    yield call(*_triple(make, 2, 4, 32, 16), num_heads=4, input_layout="BNSD", scale=0.25)
    given = _triple(make, 2, 4, 1, 16, keys=(2, 2, 48, 16))
    yield call(*given, num_heads=4, num_key_value_heads=2, input_layout="BNSD", scale=0.25)


_inference: Callable[..., Operator] = partial(fused, dtypes=HALVES, grad=False, terms=TERMS, nonfinite=False)
_ALL = ("float16", "bfloat16", "float32")

OPERATORS = in_family(
    "attention",
    # CANN's documentation promises nothing for a row with NaN or infinities: here and in _inference.
    fused("npu_fusion_attention", _attention, _fusion_inputs, outputs=("",), dtypes=_ALL, terms=TERMS, nonfinite=False),
    _inference("npu_prompt_flash_attention", _prompt, _prompt_inputs),
    _inference("npu_incre_flash_attention", _prompt, _incremental_inputs),
    _inference("npu_fused_infer_attention_score", _attention, _infer_inputs, outputs=("",)),
    fused("npu_rotary_mul", _rotary, _rotary_inputs),
    fused("npu_apply_rotary_pos_emb", _both_rotary, _token_angles, through=on_copies(0, 1), dtypes=_ALL, grad=False),
    fused("npu_scaled_masked_softmax", _masked_softmax, _masked_inputs, dtypes=_ALL, terms=TERMS),
)
