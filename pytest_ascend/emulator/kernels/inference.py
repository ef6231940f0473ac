"""Attention for inference: for a prompt, for one more token, and both in one operator."""

from __future__ import annotations

import torch

from pytest_ascend.emulator.kernels.attention import Attention, attend, from_bnsd, to_bnsd
from pytest_ascend.emulator.registry import Family

family = Family(
    "inference",
    wide=(
        "FusedInferAttentionScoreV2",
        "FusedInferAttentionScoreV3",
        "IncreFlashAttentionV4",
        "PromptFlashAttentionV3",
    ),
)
T = torch.Tensor
Optional = T | None
L = list[int]

#: sparseMode: the mask is used as it is, or only enables a causal one: left-up or right-down.
_AS_IT_IS, _LEFT_UP, _RIGHT_DOWN = (0, 1), 2, 3

_QUANTIZATION = "Tensor deqScale1, Tensor quantScale1, Tensor deqScale2, Tensor quantScale2, Tensor quantOffset2"


def _left_out(mask: Optional, queries: int, keys: int, mode: int) -> Optional:
    if mask is None:
        return None
    if mode in _AS_IT_IS:
        return mask.bool()
    if mode in (_LEFT_UP, _RIGHT_DOWN):
        later = 0 if mode == _LEFT_UP else keys - queries
        return torch.arange(keys) > torch.arange(queries)[:, None] + later
    raise NotImplementedError(f"sparse mode {mode} is not implemented")


def _beyond(lengths: L | None, keys: int) -> Optional:
    """Return which keys are beyond the end of their sequence, None if none are."""
    if lengths is None or all(length >= keys for length in lengths):
        return None
    return (torch.arange(keys) >= torch.tensor(lengths)[:, None])[:, None, None]


def _both(one: Optional, other: Optional) -> Optional:
    return one if other is None else other if one is None else one | other


def _attend(
    query: T, key: T, value: T, bias: Optional, mask: Optional, lengths: L | None, heads: int, scale: float,
    layout: str, mode: int,
) -> tuple[T, T]:  # fmt: skip
    """Return the result and the logarithms of sums (batch, heads, sequence, 1)."""
    depth = query.shape[-1] // (heads if layout.endswith("H") else 1)
    q, k, v = (to_bnsd(each, layout, depth) for each in (query, key, value))
    left_out = _both(_left_out(mask, q.shape[2], k.shape[2], mode), _beyond(lengths, k.shape[2]))
    out, lse = attend(q, k, v, Attention(scale, mask=left_out, bias=bias))
    return from_bnsd(out, layout), lse.unsqueeze(-1)


@family.kernel_of_some(
    "aclnnPromptFlashAttentionV3(Tensor query, Tensor key, Tensor value, Tensor pseShift, Tensor attenMask,"
    f" IntArray actualSeqLengths, IntArray actualSeqLengthsKv, {_QUANTIZATION}, int64 numHeads, double scale,"
    " int64 preTokens, int64 nextTokens, text layout, int64 numKeyValueHeads, int64 sparseMode, int64 innerPrecise,"
    " out Tensor attentionOut)"
)
def prompt_flash_attention(
    query: T, key: T, value: T, pseShift: Optional, attenMask: Optional, actualSeqLengthsKv: L | None,  # noqa: N803
    numHeads: int, scale: float, layout: str, sparseMode: int,  # noqa: N803
) -> T:  # fmt: skip
    return _attend(
        query, key, value, pseShift, attenMask, actualSeqLengthsKv, numHeads, scale, layout, sparseMode
    )[0]  # fmt: skip


@family.kernel_of_some(
    "aclnnIncreFlashAttentionV4(Tensor query, TensorList key, TensorList value, Tensor pseShift, Tensor attenMask,"
    f" IntArray actualSeqLengths, {_QUANTIZATION}, Tensor antiquantScale, Tensor antiquantOffset, Tensor blocktable,"
    " Tensor kvPaddingSize, int64 numHeads, double scale, text layout, int64 numKeyValueHeads, int64 blockSize,"
    " int64 innerPrecise, out Tensor attentionOut)"
)
def incre_flash_attention(
    query: T, key: list[T], value: list[T], pseShift: Optional, attenMask: Optional,  # noqa: N803
    actualSeqLengths: L | None, numHeads: int, scale: float, layout: str,  # noqa: N803
) -> T:  # fmt: skip
    mask = None if attenMask is None else attenMask.view(attenMask.shape[0], 1, 1, -1)
    return _attend(query, key[0], value[0], pseShift, mask, actualSeqLengths, numHeads, scale, layout, 0)[0]


_INFER = (
    "Tensor query, TensorList key, TensorList value, Tensor pseShift, Tensor attenMask, IntArray actualSeqLengths,"
    f" IntArray actualSeqLengthsKv, {_QUANTIZATION}, Tensor antiquantScale, Tensor antiquantOffset, Tensor blockTable,"
    " Tensor queryPaddingSize, Tensor kvPaddingSize, Tensor keyAntiquantScale, Tensor keyAntiquantOffset,"
    " Tensor valueAntiquantScale, Tensor valueAntiquantOffset, Tensor keySharedPrefix, Tensor valueSharedPrefix,"
    " IntArray actualSharedPrefixLen"
)
_INFER_HOW = (
    "int64 numHeads, double scale, int64 preTokens, int64 nextTokens, text layout, int64 numKeyValueHeads,"
    " int64 sparseMode, int64 innerPrecise, int64 blockSize, int64 antiquantMode, bool softmaxLseFlag,"
    " int64 keyAntiquantMode, int64 valueAntiquantMode"
)
_INFER_OUT = "out Tensor attentionOut, out Tensor softmaxLse"
_ROPE = "Tensor queryRope, Tensor keyRope, Tensor keyRopeAntiquantScale"


def fused_infer_attention_score(
    query: T, key: list[T], value: list[T], pseShift: Optional, attenMask: Optional,  # noqa: N803
    actualSeqLengthsKv: L | None, numHeads: int, scale: float, layout: str, sparseMode: int,  # noqa: N803
    softmaxLseFlag: bool,  # noqa: N803
) -> tuple[T, Optional]:  # fmt: skip
    out, lse = _attend(
        query, key[0], value[0], pseShift, attenMask, actualSeqLengthsKv, numHeads, scale, layout, sparseMode
    )
    return out, lse if softmaxLseFlag else None


_V5 = f", {_ROPE}, Tensor dequantScaleQuery, Tensor learnableSink, IntArray qStartIdx, IntArray kvStartIdx"
for _version, _more, _last in (
    ("V2", "", ""),
    ("V3", f", {_ROPE}", ""),
    ("V5", _V5, ", int64 queryQuantMode, int64 pseType"),
):
    _declaration = f"aclnnFusedInferAttentionScore{_version}({_INFER}{_more}, {_INFER_HOW}{_last}, {_INFER_OUT})"
    family.kernel_of_some(_declaration)(fused_infer_attention_score)


@family.kernel(
    "aclnnRingAttentionUpdateV2(Tensor out1, Tensor max1, Tensor sum1, Tensor out2, Tensor max2, Tensor sum2,"
    " Tensor lengths, text layout, text statisticsLayout, out Tensor attention, out Tensor max, out Tensor sum)"
)
def ring_attention_update(
    out1: T,
    max1: T,
    sum1: T,
    out2: T,
    max2: T,
    sum2: T,
    lengths: Optional,  # noqa: ARG001
    layout: str,
    statistics: str,
) -> tuple[T, T, T]:
    """Merge two parts of attention over different keys, by their softmax statistics.

    Statistics are (..., 8), eight equal copies: (batch, heads, length) for layout SBH, (tokens, heads) for TND, where
    ``lengths`` has no effect.
    """
    if layout == "TND" != statistics:
        raise NotImplementedError(f"statistics in the layout {statistics} for attention in {layout}: not implemented")
    most = torch.maximum(max1.float(), max2.float())
    weights = [total.float() * (each.float() - most).exp() for total, each in ((sum1, max1), (sum2, max2))]
    total = weights[0] + weights[1]
    shares = [(each / total)[..., 0] for each in weights]
    if layout == "SBH":
        shares = [each.permute(2, 0, 1) for each in shares]
    shape = (*shares[0].shape, -1)
    parts = [x.float().view(shape) * share.unsqueeze(-1) for x, share in zip((out1, out2), shares, strict=True)]
    return (parts[0] + parts[1]).view(out1.shape), most, total
