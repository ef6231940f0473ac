"""Attention with dropout: which weights were dropped shows in the result, where the values are the unit matrix."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F  # noqa: N812  (as everybody calls it)

from pytest_ascend.run import inputs

T = torch.Tensor

#: The probability that a weight is dropped.
P = 0.2
#: Keys, and elements of a head: the values are a unit matrix. A power of two, so that equal weights are exact.
_KEYS = 64
_HEADS, _QUERIES = 4, 70

#: Drawing -> whether it has a numeric mask. torch_npu computes attention with one by products and a softmax, and
#: without one by a fused operator.
MASKED: Mapping[str, bool] = {"scaled_dot_product_attention": False, "scaled_dot_product_attention.masked": True}


def attend(query: T, key: T, value: T, *, is_masked: bool) -> T:
    """Return attention with dropout; tensors are (batch, heads, rows, ``_KEYS``). The mask, if any, changes nothing."""
    mask = query.new_zeros(query.shape[-2], _KEYS) if is_masked else None
    return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=P)


def kept(x: T, *, is_masked: bool) -> T:
    """Return as many numbers as ``x`` has: 1 for a weight that was kept and scaled, 0 for a dropped one, else -1."""
    rows = -(-x.numel() // _KEYS)
    query = x.new_zeros(1, _HEADS, -(-rows // _HEADS), _KEYS)
    key = x.new_zeros(1, _HEADS, _KEYS, _KEYS)
    found = attend(query, key, _unit(key), is_masked=is_masked).double().flatten()[: x.numel()] * _KEYS
    is_kept = torch.isclose(found, torch.full_like(found, 1 / (1 - P)), rtol=1e-2)
    return torch.where(is_kept, 1.0, torch.where(found == 0, 0.0, -1.0))


def given(dtype: torch.dtype) -> tuple[T, T, T]:
    """Return queries, keys and values on the CPU; no weight is so small that it becomes zero in any dtype."""
    shapes = {"query": (2, _HEADS, _QUERIES, _KEYS), "key": (2, _HEADS, _KEYS, _KEYS)}
    query, key = (inputs.uniform(f"random/attention/{name}", shape) for name, shape in shapes.items())
    return query.to(dtype), key.to(dtype), _unit(key).to(dtype)


def composed(query: T, key: T, value: T, is_kept: T) -> T:
    """Return what attention is where it is known which weights were kept."""
    weights: T = (query @ key.mT * _KEYS**-0.5).softmax(-1) * is_kept
    return weights / (1 - P) @ value


def _unit(key: T) -> T:
    return torch.eye(_KEYS, dtype=key.dtype, device=key.device).expand_as(key).contiguous()
