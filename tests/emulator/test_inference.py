"""Kernels of attention by themselves: masks, dropout and packed sequences, against softmax written out in float64."""

from __future__ import annotations

import functools
import math
from typing import Any

import pytest
import torch

from pytest_ascend.emulator.kernels import attention, inference

from .kernel import T, called, close, floats, gradients

SCALE = 0.3
QUERIES, KEYS = 4, 6
PASSED = torch.zeros(2048, 2048, dtype=torch.bool)  # what stands for a mask that the operator makes


def drawn(*lengths: int, batch: int = 2, heads: int = 3, seed: int = 0) -> list[T]:
    """Return queries, keys and values (batch, heads, length, depth)."""
    return [floats(batch, heads, length, 8, seed=seed + place) for place, length in enumerate(lengths)]


def defined(
    q: T, k: T, v: T, left_out: T | None = None, bias: T | None = None, kept: T | None = None, *, inside: bool = False
) -> T:
    """Attend; ``kept`` multiplies the weights. ``inside``: the bias is added before the scores are scaled."""
    k, v = (each.repeat_interleave(q.shape[1] // each.shape[1], 1) for each in (k, v))
    scores = q @ k.mT * SCALE + (0 if bias is None else bias.to(q.dtype) * (SCALE if inside else 1))
    if left_out is not None:
        scores = scores.masked_fill(left_out, -math.inf)
    weights = scores.softmax(-1).nan_to_num(0.0)
    return (weights if kept is None else weights * kept.to(q.dtype)) @ v


def flash(q: T, k: T, v: T, **named: Any) -> Any:
    how = {"scale": SCALE, "keepProb": 1.0, "headNum": q.shape[1], "layout": "BNSD"} | named
    return called("FlashAttentionScore", q, k, v, **how)


def distances(queries: int, keys: int) -> T:
    """Return how many keys each score is ahead of the query that it belongs to, where both end together."""
    return torch.arange(keys) - torch.arange(queries)[:, None] - (keys - queries)


MASK = torch.arange(QUERIES * KEYS).view(QUERIES, KEYS) % 3 == 1
D = distances(QUERIES, KEYS)
#: Name -> arguments, and which scores count for nothing.
MASKS: dict[str, tuple[dict[str, Any], T | None]] = {
    "none": ({}, None),
    "given": ({"attenMask": MASK}, MASK),
    "given as bytes": ({"attenMask": MASK.to(torch.uint8), "sparseMode": 1}, MASK),
    "left-up": ({"attenMask": PASSED, "sparseMode": 2}, torch.ones(QUERIES, KEYS, dtype=torch.bool).triu(1)),
    "right-down": ({"attenMask": PASSED, "sparseMode": 3}, D > 0),
    "band": ({"attenMask": PASSED, "sparseMode": 4, "preTokens": 2, "nextTokens": 1}, (D > 1) | (D < -2)),
    "a mode without a mask": ({"sparseMode": 3}, None),
}


@pytest.mark.parametrize("shared", [False, True], ids=["own keys", "shared keys"])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("name", MASKS)
def test_masks_and_their_gradients(name: str, biased: bool, shared: bool) -> None:
    named, left_out = MASKS[name]
    q, k, v = drawn(QUERIES, KEYS, KEYS)
    if shared:
        q = floats(2, 6, QUERIES, 8)
    bias = floats(2, q.shape[1], QUERIES, KEYS, seed=7) if biased else None
    named = named | ({"pseShift": bias} if biased else {})
    most, total, nothing, out = flash(q, k, v, **named)
    wanted = defined(q, k, v, left_out, bias, inside=True)
    close(out, wanted)
    assert nothing is None
    assert most.shape == total.shape == (*q.shape[:3], 8)
    wide = [each.repeat_interleave(q.shape[1] // 3, 1) for each in (k, v)]
    scores = (q @ wide[0].mT + (0 if bias is None else bias)) * SCALE
    scores = scores if left_out is None else scores.masked_fill(left_out, -math.inf)
    shares = (scores - most[..., :1]).exp() / total[..., :1]
    close(shares.nan_to_num(0.0), scores.softmax(-1).nan_to_num(0.0))
    dy = floats(*out.shape, seed=9)
    given = {"softmaxMax": most, "softmaxSum": total, "attentionIn": out, **named}
    how = {"scale": SCALE, "keepProb": 1.0, "headNum": q.shape[1], "layout": "BNSD"}
    dq, dk, dv, dbias = called("FlashAttentionScoreGrad", q, k, v, dy, **given, **how)
    leaves = [q, k, v, *([bias] if bias is not None else [])]
    close(
        [each for each in (dq, dk, dv, dbias) if each is not None],
        list(gradients(lambda q, k, v, *rest: defined(q, k, v, left_out, *rest, inside=True), dy, *leaves)),
    )
    assert (dbias is None) is not biased


@pytest.mark.parametrize("pse_type", [0, 1])
def test_the_second_version_says_whether_the_bias_is_scaled(pse_type: int) -> None:
    q, k, v = drawn(QUERIES, KEYS, KEYS)
    bias = floats(2, 3, QUERIES, KEYS, seed=7)
    how = {"scale": SCALE, "keepProb": 1.0, "headNum": 3, "layout": "BNSD", "pseShift": bias, "pseType": pse_type}
    most, total, _, out = called("FlashAttentionScoreV2", q, k, v, **how)
    close(out, defined(q, k, v, bias=bias, inside=pse_type == 1))
    dy = floats(*out.shape, seed=9)
    kept = {"softmaxMax": most, "softmaxSum": total, "attentionIn": out}
    found = called("FlashAttentionScoreGradV2", q, k, v, dy, **kept, **how)
    close(
        list(found),
        list(gradients(lambda q, k, v, bias: defined(q, k, v, bias=bias, inside=pse_type == 1), dy, q, k, v, bias)),
    )


@pytest.mark.parametrize("mode", [5, 6])
def test_prefixes_are_seen_by_all(mode: int) -> None:
    q, k, v = drawn(QUERIES, KEYS, KEYS)
    prefix = [5, 0]
    out = flash(q, k, v, attenMask=PASSED, sparseMode=mode, prefix=prefix)[-1]
    left_out = (D > 0) & (torch.arange(KEYS) >= torch.tensor(prefix)[:, None, None, None])
    close(out, defined(q, k, v, left_out))


def test_modes_that_are_not_emulated_are_refused() -> None:
    q, k, v = drawn(QUERIES, KEYS, KEYS)
    with pytest.raises(NotImplementedError, match="sparse mode 9"):
        flash(q, k, v, attenMask=PASSED, sparseMode=9)
    with pytest.raises(NotImplementedError, match="sparse mode 9"):
        called("PromptFlashAttentionV3", q, k, v, attenMask=PASSED, sparseMode=9, numHeads=3, layout="BNSD")


def packed(kept: T) -> T:
    """Pack bits, the first of eight lowest."""
    flat = torch.nn.functional.pad(kept.flatten().to(torch.uint8), (0, -kept.numel() % 8)).view(-1, 8)
    return (flat << torch.arange(8, dtype=torch.uint8)).sum(1, dtype=torch.uint8)


@pytest.mark.parametrize("biased", [False, True])
def test_dropout_by_bits_and_its_gradients(biased: bool) -> None:
    q, k, v = drawn(QUERIES, KEYS, KEYS)
    kept = floats(2, 3, QUERIES, KEYS, seed=5) > 0
    bias = floats(2, 3, QUERIES, KEYS, seed=7) if biased else None
    named = {"dropMask": packed(kept), "keepProb": 0.5, "pseShift": bias}
    most, total, _, out = flash(q, k, v, **named)
    close(out, defined(q, k, v, bias=bias, kept=kept / 0.5, inside=True))
    close(flash(q, k, v, **named | {"keepProb": 1.0})[-1], defined(q, k, v, bias=bias, inside=True))
    dy = floats(*out.shape, seed=9)
    how = {"scale": SCALE, "headNum": 3, "layout": "BNSD", "softmaxMax": most, "softmaxSum": total, "attentionIn": out}
    found = called("FlashAttentionScoreGrad", q, k, v, dy, **named, **how)
    leaves = [q, k, v, *([bias] if bias is not None else [])]
    wanted = gradients(lambda q, k, v, *rest: defined(q, k, v, None, *rest, kept=kept / 0.5, inside=True), dy, *leaves)
    close([each for each in found if each is not None], list(wanted))


ORDERS = {"BNSD": (0, 1, 2, 3), "BSND": (0, 2, 1, 3), "BSH": (0, 2, 1, 3), "SBH": (2, 0, 1, 3)}


def laid_out(x: T, layout: str) -> T:
    moved = x.permute(ORDERS[layout])
    return moved.flatten(2) if layout.endswith("H") else moved


@pytest.mark.parametrize("layout", ORDERS)
def test_newer_versions_take_the_same_layouts(layout: str) -> None:
    q, k, v = drawn(QUERIES, KEYS, KEYS)
    dy = floats(*q.shape, seed=9)
    named = {"scale": SCALE, "keepProb": 1.0, "headNum": 3, "layout": layout, "attenMask": MASK}
    most, total, _, out = called("FlashAttentionScoreV4", *(laid_out(each, layout) for each in (q, k, v)), **named)
    close(out, laid_out(defined(q, k, v, MASK), layout))
    found = called(
        "FlashAttentionScoreGradV4", *(laid_out(each, layout) for each in (q, k, v, dy)), softmaxMax=most,
        softmaxSum=total, attentionIn=out, **named,
    )  # fmt: skip
    wanted = gradients(lambda *given: defined(*given, MASK), dy, q, k, v)
    close(found, (*(laid_out(each, layout) for each in wanted), None, None, None))
    with pytest.raises(NotImplementedError, match="queryRope"):
        called("FlashAttentionScoreV4", q, k, v, queryRope=q, **named)


@pytest.mark.parametrize("dropped", [False, True])
@pytest.mark.parametrize("name", ["none", "given", "left-up", "right-down", "band"])
def test_packed_sequences_attend_to_themselves(name: str, dropped: bool) -> None:
    """Of 4 queries and 6 keys, then of 2 and 3; the bits of dropout follow one another."""
    named, _ = MASKS[name]
    sizes, heads = ((4, 6), (2, 3)), 3
    q, k, v = (floats(count, heads, 8, seed=place) for place, count in enumerate((6, 9, 9)))
    kept = [floats(1, heads, *size, seed=5 + place) > 0 for place, size in enumerate(sizes)]
    bits = torch.cat([each.flatten() for each in kept])
    named = named | ({"dropMask": packed(bits), "keepProb": 0.5} if dropped else {"keepProb": 1.0})
    ends = {"actualSeqQLen": [4, 6], "actualSeqKvLen": [6, 9]}
    how = {"scale": SCALE, "headNum": heads, "layout": "TND", **ends, **named}

    def whole(q: T, k: T, v: T) -> T:
        parts = []
        for place, (queries, keys) in enumerate(sizes):
            mine, its = slice(4 * place, 4 * place + queries), slice(6 * place, 6 * place + keys)
            masks = {
                "none": None,
                "given": MASK[:queries, :keys],
                "left-up": torch.ones(queries, keys, dtype=torch.bool).triu(1),
                "right-down": distances(queries, keys) > 0,
                "band": (distances(queries, keys) > 1) | (distances(queries, keys) < -2),
            }
            part = [each.transpose(0, 1)[None] for each in (q[mine], k[its], v[its])]
            made = defined(*part, masks[name], kept=kept[place] / 0.5 if dropped else None)
            parts.append(made[0].transpose(0, 1))
        return torch.cat(parts)

    most, total, _, out = called("FlashAttentionVarLenScore", q, k, v, **how)
    close(out, whole(q, k, v))
    assert most.shape == (6, heads, 8)
    dy = floats(6, heads, 8, seed=9)
    kept_ = {"softmaxMax": most, "softmaxSum": total, "attentionIn": out}
    found = called("FlashAttentionUnpaddingScoreGrad", q, k, v, dy, **kept_, **how)
    close(found, (*gradients(whole, dy, q, k, v), None))
    with pytest.raises(NotImplementedError, match="position bias"):
        called("FlashAttentionVarLenScore", q, k, v, pseShift=dy, **how)


def test_scores_that_are_all_left_out_give_zero() -> None:
    q, k, v = drawn(2, 3, 3)
    left_out = torch.tensor([[True, True, True], [False, True, False]])
    out = flash(q, k, v, attenMask=left_out)[-1]
    close(out.nan_to_num(0.0), defined(q, k, v, left_out))


def test_half_precision_and_strides_make_no_difference() -> None:
    q, k, v = drawn(QUERIES, KEYS, KEYS)
    strided = [torch.stack([each, each], -1)[..., 0] for each in (q, k, v)]
    close(flash(*strided)[-1], defined(q, k, v))
    half = [each.half() for each in (q, k, v)]
    out = flash(*half, dropMask=packed(torch.ones(2, 3, QUERIES, KEYS)), keepProb=0.999)[-1]
    close(out.float(), defined(*(each.float() for each in half)) / 0.999, rtol=2e-3, atol=2e-3)
    values = floats(2, 3, KEYS, 5, seed=3)  # of another depth than keys
    close(flash(q, k, values)[-1], defined(q, k, values))


# --- for inference ---


@pytest.mark.parametrize("lengths", [None, [6, 6], [6, 2], [9, 7]])
@pytest.mark.parametrize("name", ["none", "given", "given as bytes", "left-up", "right-down"])
def test_prompts_attend_within_their_lengths(name: str, lengths: list[int] | None) -> None:
    named, left_out = MASKS[name]
    q, k, v = drawn(QUERIES, KEYS, KEYS)
    beyond = torch.arange(KEYS) >= torch.tensor(lengths or [KEYS] * 2)[:, None, None, None]
    if name == "right-down":  # both end where the sequence does
        left_out = torch.stack([D + max(0, KEYS - n) > 0 for n in lengths or [KEYS] * 2])[:, None]
    wanted = defined(q, k, v, beyond if left_out is None else beyond | left_out)
    how = {"numHeads": 3, "scale": SCALE, "actualSeqLengthsKv": lengths, **named}
    for layout in ("BNSD", "BSND", "BSH"):
        given = [laid_out(each, layout) for each in (q, k, v)]
        close(called("PromptFlashAttentionV3", *given, layout=layout, **how), laid_out(wanted, layout))
        for version in ("V2", "V3", "V4", "V5"):
            for asked in (False, True):
                out, lse = called(
                    f"FusedInferAttentionScore{version}", given[0], [given[1]], [given[2]], layout=layout,
                    softmaxLseFlag=asked, **how,
                )  # fmt: skip
                close(out, laid_out(wanted, layout))
                assert (lse is not None) is asked
    scores = (q @ k.mT * SCALE).masked_fill(beyond if left_out is None else beyond | left_out, -math.inf)
    sums = scores.logsumexp(-1, keepdim=True)
    close(lse, sums.masked_fill(sums.isneginf(), math.inf))


@pytest.mark.parametrize("lengths", [None, [6, 2]])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("biased", [False, True])
def test_one_more_token_attends_to_all_before_it(biased: bool, masked: bool, lengths: list[int] | None) -> None:
    q, k, v = drawn(1, KEYS, KEYS)
    mask = torch.arange(2 * KEYS).view(2, KEYS) % 3 == 1 if masked else None
    bias = floats(2, 3, 1, KEYS, seed=7) if biased else None
    left_out = torch.arange(KEYS) >= torch.tensor(lengths or [KEYS] * 2)[:, None, None, None]
    left_out = left_out if mask is None else left_out | mask[:, None, None]
    how = {"numHeads": 3, "scale": SCALE, "actualSeqLengths": lengths, "attenMask": mask, "pseShift": bias}
    found = called("IncreFlashAttentionV4", q, [k], [v], layout="BNSD", **how)
    close(found, defined(q, k, v, left_out, bias))


def test_pages_packing_and_padding_change_no_bit() -> None:
    q, k, v = (floats(2, 3, n, 8, seed=n).half() for n in (QUERIES, 7, 7))
    lengths = [5, 7]
    attend = functools.partial(inference.fused_infer_attention_score, numHeads=3, scale=SCALE)
    how: dict[str, Any] = {"attenMask": PASSED, "sparseMode": 3, "softmaxLseFlag": True}
    alone = [
        attend(q[i : i + 1], [k[i : i + 1, :, :n]], [v[i : i + 1, :, :n]], layout="BNSD", **how)
        for i, n in enumerate(lengths)
    ]
    pages = [torch.full((5, 3, 4, 8), math.nan, dtype=torch.half) for _ in "kv"]
    table = torch.tensor([[3, 0], [1, 4]], dtype=torch.int32)
    for cache, rows in zip(pages, (k, v), strict=True):
        for place, blocks in enumerate(table.tolist()):
            for start, block in zip((0, 4), blocks, strict=True):
                part = rows[place, :, start : lengths[place]][:, :4]
                cache[block, :, : part.shape[1]] = part
    padding = torch.tensor([2, 0])
    left = [torch.stack((each[0].roll(0, 1), each[1])) for each in (k, v)]
    packed_q = q.transpose(1, 2).flatten(0, 1)
    packed_kv = [torch.cat([x[i, :, :n].transpose(0, 1) for i, n in enumerate(lengths)]) for x in (k, v)]
    variants = {
        "pages": attend(q, pages[:1], pages[1:], layout="BNSD", actualSeqLengthsKv=lengths, blockTable=table, **how),
        "padding": attend(
            q, [left[0]], [left[1]], layout="BNSD", actualSeqLengthsKv=lengths, kvPaddingSize=padding, **how
        ),
        "lists": attend(q, list(k.split(1)), list(v.split(1)), layout="BNSD", actualSeqLengthsKv=lengths, **how),
    }
    for name, (out, lse) in variants.items():
        for place, (mine, its) in enumerate(alone):
            assert torch.equal(out[place : place + 1], mine), name
            assert torch.equal(lse[place : place + 1], its), name
    out, lse = attend(
        packed_q, packed_kv[:1], packed_kv[1:], layout="TND", actualSeqLengths=[4, 8], actualSeqLengthsKv=[5, 12], **how
    )
    assert torch.equal(out, torch.cat([mine[0].transpose(0, 1) for mine, _ in alone]))
    assert lse.shape == (8, 3, 1)
    # Token by token is the whole prompt: the last queries see as many keys as they may.
    for row in range(QUERIES):
        keys = 5 - (QUERIES - 1 - row)
        single, _ = attend(q[:1, :, row : row + 1], [k[:1, :, :keys]], [v[:1, :, :keys]], layout="BNSD")
        assert torch.equal(single[:, :, 0], alone[0][0][:, :, row])


@pytest.mark.parametrize(
    ("layout", "statistics", "fits"), [("SBH", "", True), ("TND", "TND", True), ("TND", "SBH", False)]
)
def test_statistics_of_packed_attention_have_its_layout(layout: str, statistics: str, fits: bool) -> None:
    x, stats = torch.ones(4, 2, 3), torch.ones(4, 2, 8)
    if layout == "SBH":
        x, stats = torch.ones(4, 2, 6), torch.ones(2, 3, 4, 8)
    given = (x, stats, stats, x * 3, stats, stats, None, layout, statistics)
    if fits:
        out, most, total = called("RingAttentionUpdateV2", *given)
        close((out, most, total), (x * 2, stats, stats * 2))
    else:
        with pytest.raises(NotImplementedError, match="in the layout SBH for attention in TND"):
            called("RingAttentionUpdateV2", *given)


def test_torch_without_a_fused_kernel_computes_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    q, k, v = drawn(QUERIES, KEYS, KEYS)
    wanted = [flash(q, k, v, **named)[-1] for named, _ in MASKS.values()]
    monkeypatch.setattr(attention, "_HAS_FUSED", False)
    close([flash(q, k, v, **named)[-1] for named, _ in MASKS.values()], wanted)


@pytest.mark.parametrize("empty", [0, 1, 2])
def test_fused_kernels_are_not_asked_about_nothing(empty: int) -> None:
    shapes = [[1, 2, 3, 4] for _ in range(3)]
    given = [torch.ones(each) for each in shapes]
    assert attention._is_for_fused(*given) is attention._HAS_FUSED
    given[empty] = given[empty][:, :, :0]
    assert not attention._is_for_fused(*given)
    assert not attention._is_for_fused(*([torch.ones(1)] * 3), keep=torch.ones(1))
