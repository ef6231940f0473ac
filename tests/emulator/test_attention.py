"""Attention gives the same bits on the emulated device as on the CPU where torch has a fused kernel for it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
import torch_npu
from torch import nn

from pytest_ascend.emulator.kernels import attention

from .both import FLOATS, assert_same, floats, operators

Tensor = torch.Tensor

MASKS = {
    "none": {},
    "causal": {"is_causal": True},
    "scaled": {"scale": 0.3},
    "matrix": {"attn_mask": torch.ones(5, 6, dtype=torch.bool).tril()},
    "batch": {"attn_mask": (torch.arange(60).view(2, 1, 5, 6) % 7 != 3)},
}


def _heads(dtype: torch.dtype) -> list[Tensor]:
    return [floats(2, 3, length, 8, dtype=dtype, seed=length + i) for i, length in enumerate((5, 6, 6))]


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("mask", MASKS)
def test_scaled_dot_product_attention_and_its_gradients(mask: str, dtype: torch.dtype) -> None:
    assert_same(F.scaled_dot_product_attention, *_heads(dtype), backward=True, **MASKS[mask])


def test_grouped_attention_over_no_keys_goes_back() -> None:
    heads = [each.npu().requires_grad_() for each in (floats(2, 6, 9, 8), floats(2, 1, 0, 8), floats(2, 1, 0, 8))]
    found = F.scaled_dot_product_attention(*heads, enable_gqa=True)
    gradients = torch.autograd.grad(found.sum(), heads)
    assert [each.shape for each in gradients] == [each.shape for each in heads]
    assert not any(each.cpu().count_nonzero() for each in (found, *gradients))


def test_step_by_step_attention_is_as_precise_for_large_scores() -> None:
    scores, v = 30000 + torch.arange(6.0), floats(1, 1, 6, 8)
    q, k = torch.ones(1, 1, 1, 1), scores.view(1, 1, 6, 1)  # so that the scores themselves are exact
    expected = scores.double().softmax(0) @ v[0, 0].double()
    found = attention.attend(q, k, v, 1.0, keep=torch.ones(1, 1, 1, 6))[0]  # as with dropout: not by a fused kernel
    torch.testing.assert_close(found[0, 0, 0].double(), expected, rtol=1e-5, atol=1e-6)


def test_a_row_that_is_masked_out_attends_to_nothing() -> None:
    q, k, v = _heads(torch.float32)
    mask = torch.zeros(2, 3, 5, 6, dtype=torch.bool)
    mask[:, :, 1] = True
    found = attention.attend(q, k, v, 0.3, mask=mask, keep=torch.ones(mask.shape))[0]
    expected = F.scaled_dot_product_attention(q, k, v, scale=0.3)
    expected[:, :, 1] = 0
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("need_weights", [False, True])
def test_multihead_attention(need_weights: bool, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    module = nn.MultiheadAttention(8, 2, batch_first=True, dtype=dtype)

    def attend(x: Tensor) -> Any:
        return module.to(x.device, x.dtype)(x, x, x, need_weights=need_weights)[0]

    assert_same(attend, floats(2, 5, 8, dtype=dtype), backward=True)


def test_it_is_one_operator_each_way() -> None:
    q, k, v = (each.npu().requires_grad_() for each in _heads(torch.float32))
    called = operators(lambda: F.scaled_dot_product_attention(q, k, v).sum().backward())
    assert {"aclnnFlashAttentionScore", "aclnnFlashAttentionScoreGrad"} <= called


def test_dropout_scales_what_it_keeps_and_its_gradients_agree() -> None:
    q, k, v = (each.npu().requires_grad_() for each in _heads(torch.float32))
    identity = torch.eye(6).expand(2, 3, 6, 6).npu().requires_grad_()
    torch.manual_seed(1)
    weights = F.scaled_dot_product_attention(q, k, identity, dropout_p=0.5)
    correct = F.scaled_dot_product_attention(q.detach(), k.detach(), identity.detach())
    kept = weights.detach() != 0
    torch.testing.assert_close(weights.detach()[kept], 2 * correct[kept])
    assert 0.3 < kept.float().mean().item() < 0.7
    torch.manual_seed(1)
    out = F.scaled_dot_product_attention(q, k, v, dropout_p=0.5)
    _assert_gradients(out, (q, k, v), kept)


def _assert_gradients(out: Tensor, leaves: tuple[Tensor, ...], kept: Tensor) -> None:
    q, k, v = (each.detach().cpu().double().requires_grad_() for each in leaves)
    weights = (q @ k.mT * q.shape[-1] ** -0.5).softmax(-1) * kept.cpu() * 2
    expected = weights @ v
    torch.testing.assert_close(out.detach().cpu(), expected.detach().float())
    expected.sum().backward()
    out.sum().backward()
    for actual, reference in zip(leaves, (q, k, v), strict=True):
        assert actual.grad is not None
        assert reference.grad is not None
        torch.testing.assert_close(actual.grad.cpu(), reference.grad.float())


def _fused(heads: list[Tensor], layout: str, **options: Any) -> Tensor:
    """Call NPU's own function in a layout; gives (batch, heads, sequence, depth)."""
    orders = {"BNSD": (0, 1, 2, 3), "BSND": (0, 2, 1, 3), "BSH": (0, 2, 1, 3), "SBH": (2, 0, 1, 3)}
    order = orders[layout]
    moved = [each.permute(order) for each in heads]
    moved = [each.flatten(2) if layout.endswith("H") else each for each in moved]
    out = torch_npu.npu_fusion_attention(*moved, heads[0].shape[1], layout, scale=0.3, **options)[0]
    if layout.endswith("H"):
        out = out.unflatten(2, (heads[0].shape[1], -1))
    return out.permute([order.index(axis) for axis in range(4)])


@pytest.mark.parametrize("layout", ["BNSD", "BSND", "BSH", "SBH"])
def test_layouts_of_npu_fusion_attention(layout: str) -> None:
    def attend(*heads: Tensor) -> Tensor:
        if heads[0].device.type == "npu":
            return _fused(list(heads), layout)
        return F.scaled_dot_product_attention(*heads, scale=0.3)

    assert_same(attend, *_heads(torch.float32), backward=True)


BANDS = {
    "right down": (3, 0, 0, torch.ones(5, 6, dtype=torch.bool).triu(2)),
    "band": (4, 2, 1, torch.ones(5, 6, dtype=torch.bool).triu(3) | torch.ones(5, 6, dtype=torch.bool).tril(-2)),
}


@pytest.mark.parametrize("band", BANDS)
def test_masks_that_are_made_by_the_operator(band: str) -> None:
    mode, before, after, left_out = BANDS[band]
    compressed = torch.ones(2048, 2048, dtype=torch.bool).triu(1)

    def attend(*heads: Tensor) -> Tensor:
        if heads[0].device.type == "npu":
            tokens = {"sparse_mode": mode, "pre_tockens": before, "next_tockens": after}
            return _fused(list(heads), "BNSD", atten_mask=compressed.npu(), **tokens)
        return F.scaled_dot_product_attention(*heads, attn_mask=~left_out, scale=0.3)

    assert_same(attend, *_heads(torch.float32), backward=True)


def test_position_bias_and_its_gradient() -> None:
    q, k, v = _heads(torch.float32)
    bias = floats(2, 3, 5, 6, seed=7)
    actual = [each.npu().requires_grad_() for each in (q, k, v, bias)]
    expected = [each.double().requires_grad_() for each in (q, k, v, bias)]
    out = _fused(actual[:3], "BNSD", pse=actual[3])
    # CANN scales the scores with the bias in them.
    reference = F.scaled_dot_product_attention(*expected[:3], attn_mask=expected[3] * 0.3, scale=0.3)
    torch.testing.assert_close(out.cpu(), reference.float())
    out.sum().backward()
    reference.sum().backward()
    for mine, other in zip(actual[:3], expected[:3], strict=True):
        assert mine.grad is not None
        assert other.grad is not None
        torch.testing.assert_close(mine.grad.cpu(), other.grad.float())


def test_the_second_version_computes_the_same() -> None:
    q, k, v = _heads(torch.float32)
    left_out = torch.ones(5, 6, dtype=torch.bool).triu(2)
    results = []
    for function in (torch_npu.npu_fusion_attention, torch_npu.npu_fusion_attention_v2):
        leaves = [each.npu().requires_grad_() for each in (q, k, v)]
        out = function(*leaves, 3, "BNSD", scale=0.3, atten_mask=left_out.npu())[0]
        out.square().sum().backward()
        results.append([out.detach().cpu(), *(each.grad.cpu() for each in leaves if each.grad is not None)])
    assert len(results[0]) == 4
    assert all(one.equal(other) for one, other in zip(*results, strict=True))


def test_shared_keys_and_values() -> None:
    q, k, v = floats(2, 4, 5, 8), floats(2, 2, 6, 8, seed=1), floats(2, 2, 6, 8, seed=2)

    def attend(*heads: Tensor) -> Tensor:
        if heads[0].device.type == "npu":
            return _fused(list(heads), "BNSD")
        return F.scaled_dot_product_attention(*heads, scale=0.3, enable_gqa=True)

    assert_same(attend, q, k, v)


def test_packed_sequences() -> None:
    ends = [3, 8]
    q, k, v = (floats(8, 2, 4, seed=seed).npu().requires_grad_() for seed in range(3))
    out = torch_npu.npu_fusion_attention(q, k, v, 2, "TND", scale=0.3, actual_seq_qlen=ends, actual_seq_kvlen=ends)[0]
    out.sum().backward()
    cpu = [each.detach().cpu().requires_grad_() for each in (q, k, v)]
    for start, end in ((0, 3), (3, 8)):
        part = [each[start:end].transpose(0, 1)[None] for each in cpu]
        expected = F.scaled_dot_product_attention(*part, scale=0.3)[0].transpose(0, 1)
        assert torch.equal(out[start:end].cpu(), expected)
        expected.sum().backward()
    for actual, reference in zip((q, k, v), cpu, strict=True):
        assert actual.grad is not None
        assert reference.grad is not None
        assert torch.equal(actual.grad.cpu(), reference.grad)
