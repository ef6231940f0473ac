"""Operators for serving language models: paged caches, rope, quantized norms and gates, sparse attention, the gated
delta rule. Attention itself is in :mod:`inference`, routing in :mod:`routing`."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name

from pytest_ascend.emulator.kernels.activation import HALF, rotary_position_embedding
from pytest_ascend.emulator.kernels.atb import placed, real  # noqa: F401  (a row reads ``real``)
from pytest_ascend.emulator.kernels.inference import alone, attend_alone, gathered
from pytest_ascend.emulator.kernels.linear import over_rows, scaled_product, whole_of
from pytest_ascend.emulator.kernels.normalization import add_rms_norm, rms_normal  # noqa: F401  (a row reads one)
from pytest_ascend.emulator.kernels.quantization import by_row, packed_in_words, to_int8  # noqa: F401  (rows)
from pytest_ascend.emulator.registry import L, Optional, T, gap


def weight_quant_batch_matmul(
    x: T, weight: T, antiquantScale: T, antiquantOffset: Optional, bias: Optional, groupSize: int
) -> T:  # fmt: skip
    """Multiply by a weight in int8, or four bits in words of int32: (weight + offset) * scale, in the dtype of x.

    Source: the golden of ops-nn e5c3fa9327ea; A2 kernels that convert the whole weight first do the same.
    """
    whole = whole_of(weight).float()
    scale = over_rows(antiquantScale, len(whole), groupSize)
    shift = 0 if antiquantOffset is None else over_rows(antiquantOffset, len(whole), groupSize)
    made = x.double() @ ((whole + shift).to(x.dtype) * scale).to(x.dtype).double()
    return made if bias is None else made + bias.double()


# --- paged caches ---


def scatter_pa_kv_cache(
    key: T, keyCache: Optional, slots: T, cacheMode: str | None, value: Optional = None,
    valueCache: Optional = None, strides: L | None = None, offsets: L | None = None,
) -> None:  # fmt: skip
    """Write rows into slots of caches."""
    is_plain = [*(strides or [1]), *(offsets or [0])] in ([1, 0], [1, 1, 0, 0])
    gap(not is_plain, "strides and offsets of rows are not implemented")
    for rows, cache in ((key, keyCache), (value, valueCache)):
        if rows is not None and cache is not None:
            if "NZ" in (cacheMode or "Norm"):  # (blocks, parts, block, 16 or 32)
                parts = rows.reshape(len(rows), -1, cache.shape[-1])
                cache.copy_(placed(parts, cache.transpose(1, 2), slots).transpose(1, 2))
            else:
                cache.copy_(placed(rows, cache, slots))


def gather_pa_kv_cache(
    keyCache: T, valueCache: T, tables: T, seqLens: T, key: T, value: T, seqOffset: Optional,
    cacheMode: str | None, isCumsum: bool,
) -> None:  # fmt: skip
    """Copy the rows of sequences out of pages, one after another; ``seqLens`` are end positions with ``isCumsum``."""
    counts = seqLens.diff().tolist() if isCumsum else seqLens.tolist()
    firsts = [0] * len(counts) if seqOffset is None else seqOffset.tolist()
    in_parts = "NZ" in (cacheMode or "Norm")
    for target, cache in ((key, keyCache), (value, valueCache)):
        pages = cache if in_parts else cache.transpose(1, 2)
        start = 0
        for blocks, count, first in zip(tables, counts, firsts, strict=False):
            rows = gathered(pages, blocks, first + count)[:, first:].transpose(0, 1)
            target[start : start + count] = rows.reshape(-1, *target.shape[1:])
            start += count


def _interleaved_rope(x: T, cos: T, sin: T) -> T:
    """Rotate pairs of neighbours, and store the results as halves."""
    return rotary_position_embedding(torch.cat((x[..., ::2], x[..., 1::2]), -1), cos, sin, HALF)


def kv_rms_norm_rope_cache(
    kv: T, gamma: T, cos: T, sin: T, index: T, kCache: T, ckvCache: T, kRopeScale: Optional,
    cKvScale: Optional, kRopeOffset: Optional, cKvOffset: Optional, epsilon: float,
    cacheMode: str | None, isOutputKv: bool,
) -> tuple[Optional, Optional]:  # fmt: skip
    """Normalize the first part of ``kv`` (batch, 1, length, depth), rotate the rest, and write both into caches."""
    depth, mode = gamma.shape[-1], cacheMode or "Norm"
    normal = rms_normal(kv[..., :depth], gamma, epsilon)
    rotated = _interleaved_rope(kv[..., depth:], cos, sin)
    gap(mode not in ("Norm", "PA", "PA_BNSD"), f"cache_mode {mode} is not implemented")
    for rows, cache, scale, shift in (
        (rotated, kCache, kRopeScale, kRopeOffset),
        (normal, ckvCache, cKvScale, cKvOffset),
    ):
        stored = rows.to(kv.dtype)
        if cache.dtype is torch.int8 and scale is not None:
            stored = to_int8(rows * scale.float() + (0 if shift is None else shift.float()))
        slots, whole = index, cache
        if mode == "Norm":  # positions in the row of each batch
            slots = index.view(len(kv), -1) + torch.arange(len(kv))[:, None] * cache.shape[2]
            whole = cache.view(*cache.shape[:1], cache.shape[2], -1)
        cache.copy_(placed(stored.reshape(-1, stored.shape[-1]), whole, slots).view(cache.shape))
    return (rotated, normal) if isOutputKv else (None, None)


# --- quantized norms and gates ---


def add_rms_norm_quant(
    x1: T, x2: T, gamma: T, scales1: T, scales2: Optional, zeroPoints1: Optional, zeroPoints2: Optional,
    epsilon: float, divMode: bool, beta: Optional = None,
) -> tuple[Optional, ...]:  # fmt: skip
    """Add, normalize, and quantize with given scales, which divide or multiply. V2 also returns the last result."""
    total = x1.float() + x2.float()
    normal = rms_normal(total, gamma, epsilon, beta)

    def quantized(scale: Optional, shift: Optional) -> Optional:
        if scale is None:
            return None
        scaled = normal / scale.float() if divMode else normal * scale.float()
        return to_int8(scaled + (0 if shift is None else shift.float()))

    return quantized(scales1, zeroPoints1), quantized(scales2, zeroPoints2), total, normal


def add_rms_norm_dynamic_quant(
    x1: T, x2: T, gamma: T, smooth1: Optional, smooth2: Optional, beta: Optional, epsilon: float,
    outputMask: list[bool] | None,
) -> tuple[Optional, ...]:  # fmt: skip
    """Add, normalize, and quantize each row by its largest magnitude, after multiplying by smoothing factors."""
    total = x1.float() + x2.float()
    normal = rms_normal(total, gamma, epsilon, beta)
    asked = outputMask or [True, smooth2 is not None]
    (y1, scale1), (y2, scale2) = (
        by_row(normal if smooth is None else normal * smooth.float()) if is_asked else (None, None)
        for smooth, is_asked in zip((smooth1, smooth2), asked, strict=True)
    )
    return y1, y2, total, scale1, scale2


def dequant_swiglu_quant(
    x: T, weightScale: Optional, activationScale: Optional, bias: Optional, quantScale: Optional,
    quantOffset: Optional, groupIndex: Optional, activateLeft: bool, quantMode: str | None,
    swigluMode: int = 0, clampLimit: float = 7.0, gluAlpha: float = 1.702, gluBias: float = 1.0,
) -> tuple[T, Optional]:  # fmt: skip
    """Dequantize by row and by column, gate, and quantize again: by row, or with given scales and offsets.

    Scales of weights and of the result have a row for each group of rows; ``groupIndex`` counts them.
    """
    rows = x.reshape(-1, x.shape[-1])
    counts = torch.tensor([len(rows)]) if groupIndex is None else groupIndex.long()
    group = torch.arange(len(counts)).repeat_interleave(counts)
    used = len(group)

    def of_rows(values: T) -> T:
        wide = values.float()
        return wide[group] if wide.dim() == 2 and len(wide) == len(counts) else wide.view(1, -1)

    made = rows[:used].float()
    if x.dtype is torch.int32:
        made = made if bias is None or bias.is_floating_point() else made + of_rows(bias)
        made = made if weightScale is None else made * of_rows(weightScale)
        made = made if activationScale is None else made * activationScale.float().view(-1, 1)[:used]
        made = made if bias is None or not bias.is_floating_point() else made + of_rows(bias)
    if swigluMode:
        gate, value = made[..., ::2].clamp(max=clampLimit), made[..., 1::2].clamp(-clampLimit, clampLimit)
        gated = gate * torch.sigmoid(gluAlpha * gate) * (value + gluBias)
    else:
        first, second = made.chunk(2, -1)
        gated = F.silu(first) * second if activateLeft else F.silu(second) * first
    shape = (*x.shape[:-1], x.shape[-1] // 2)
    if quantMode == "dynamic":
        whole, steps = by_row(gated if quantScale is None else gated * of_rows(quantScale))
        return _filled(whole, len(rows)).view(shape), _filled(steps, len(rows)).view(shape[:-1])
    gated = gated if quantScale is None else gated / of_rows(quantScale)
    gated = gated if quantOffset is None else gated + of_rows(quantOffset)
    return _filled(gated.round().clamp(-128, 127), len(rows)).view(shape), None


def _filled(x: T, rows: int) -> T:
    """Add rows of zeros, which belong to no group."""
    return torch.cat((x, x.new_zeros(rows - len(x), *x.shape[1:])))


# --- attention over chosen keys ---


def _sequences_of(x: T, layout: str, lengths: Optional) -> list[T]:
    """Return the rows of each sequence, (length, heads, depth); lengths are end positions if sequences are packed."""
    found = alone(x, layout, x.shape[-2], None if lengths is None else lengths.tolist())
    return [each.transpose(0, 1) for each in found]


def _keys_of(x: T, layout: str, table: Optional, lengths: Optional) -> list[T]:
    if table is None or lengths is None:
        return _sequences_of(x, layout, lengths)
    pages = x.transpose(1, 2)
    return [gathered(pages, blocks, n).transpose(0, 1) for blocks, n in zip(table, lengths.tolist(), strict=True)]


_CAUSAL = 3


def lightning_indexer(
    query: T, key: T, weights: T, lengthsQuery: Optional, lengthsKey: Optional, blockTable: Optional,
    layoutQuery: str, layoutKey: str, count: int, sparseMode: int, returnValues: bool = False,
    scaleQuery: Optional = None, scaleKey: Optional = None,
) -> tuple[T, Optional]:  # fmt: skip
    """Choose for each query the keys with the largest sums over heads of weight * relu(query . key); -1 for none.

    Quantized numbers have one positive scale per row of a head.
    """
    key = key if scaleKey is None else key.double() * scaleKey.double().unsqueeze(-1)
    weights = weights if scaleQuery is None else weights.double() * scaleQuery.double()
    indices = torch.full((*query.shape[:-2], 1, count), -1, dtype=torch.int32)
    values = torch.full(indices.shape, float("-inf"))
    targets = [_sequences_of(each, layoutQuery, lengthsQuery) for each in (indices, values)]
    queries, shares = (_sequences_of(each, layoutQuery, lengthsQuery) for each in (query, weights.unsqueeze(-1)))
    keys = _keys_of(key, layoutKey, blockTable, lengthsKey)
    for place, (q, w, k) in enumerate(zip(queries, shares, keys, strict=True)):
        scores = (F.relu(q.double() @ k[:, 0].double().T) * w.double()).sum(1)
        if sparseMode == _CAUSAL:
            later = torch.arange(len(k)) > torch.arange(len(q))[:, None] + len(k) - len(q)
            scores = scores.masked_fill(later, float("-inf"))
        most, order = scores.sort(dim=-1, descending=True, stable=True)
        used = min(count, len(k))
        targets[0][place][:, 0, :used] = order[:, :used].masked_fill(most[:, :used].isneginf(), -1).int()
        targets[1][place][:, 0, :used] = most[:, :used].float()
    return indices, values if returnValues else None


def sparse_flash_attention(
    query: T, key: T, value: Optional, indices: T, blockTable: Optional, lengthsQuery: Optional,
    lengthsKey: Optional, queryRope: Optional, keyRope: Optional, scale: float, blockSize: int,
    layoutQuery: str, layoutKey: str, sparseMode: int, returnLse: bool, sinks: Optional = None,
) -> T:  # fmt: skip
    """Attend with each query over its chosen blocks of keys (-1 is none), up to its own position."""
    gap(returnLse, "statistics of the softmax are not implemented")
    whole = query if queryRope is None else torch.cat((query, queryRope), -1)
    value = key if value is None else value
    made = torch.zeros(*query.shape[:-1], value.shape[-1], dtype=torch.float64)
    queries, chosen, targets = (_sequences_of(each, layoutQuery, lengthsQuery) for each in (whole, indices, made))
    key = key if keyRope is None else torch.cat((key, keyRope), -1)
    keys, values = (_keys_of(each, layoutKey, blockTable, lengthsKey) for each in (key, value))
    for q, of, k, v, out in zip(queries, chosen, keys, values, targets, strict=True):
        for row in range(len(q)):
            last = len(k) - len(q) + row if sparseMode == _CAUSAL else len(k) - 1
            blocks = of[row, 0][of[row, 0] >= 0].long()
            places = (blocks[:, None] * blockSize + torch.arange(blockSize)).flatten()
            places = places[places <= last]
            mine = (q[row, :, None], k[places].transpose(0, 1), v[places].transpose(0, 1))
            out[row] = attend_alone(*mine, scale, sink=sinks)[0][:, 0]
    return made.to(query.dtype)


def _product(x: T, weight: T, rows: Optional, columns: Optional, dtype: torch.dtype) -> T:
    """Multiply, and round once. Int8 weights go with int8 rows, and scales of both."""
    if weight.dtype is torch.int8 and columns is not None:
        return scaled_product(x, weight, None if rows is None else rows.flatten(), columns.flatten()).to(dtype)
    return (x.double() @ weight.double()).to(dtype)


def mla_prolog(
    tokenX: T, weightDq: T, weightUqQr: T, weightUk: T, weightDkvKr: T, gammaCq: T, gammaCkv: T,
    ropeSin: T, ropeCos: T, cacheIndex: T, kvCache: T, krCache: T, scaleX: Optional = None,
    scaleWDq: Optional = None, scaleWUqQr: Optional = None, scaleWDkvKr: Optional = None,
    smoothScalesCq: Optional = None, epsilonCq: float = 1e-5, epsilonCkv: float = 1e-5,
    cacheMode: str | None = None, kvQuantMode: int = 0, qcQrScale: float = 1.0, kcScale: float = 1.0,
) -> tuple[Optional, ...]:  # fmt: skip
    """Compute queries of latent attention from tokens, and write latent keys and their rotated part into caches.

    Intermediate results are rounded as in torch_npu's test of it (op-plugin, test_mla_prolog.py).
    """
    is_other = (cacheMode or "PA_BSND") != "PA_BSND" or kvQuantMode
    gap(is_other, "quantized caches and other layouts than PA_BSND are not implemented")
    half, heads, depth = ropeSin.dtype, weightUk.shape[0], weightUk.shape[1]
    rows = tokenX.reshape(-1, tokenX.shape[-1])
    sin, cos = (each.reshape(len(rows), -1) for each in (ropeSin, ropeCos))
    down = _product(rows, weightDq, scaleX, scaleWDq, half)
    latent = rms_normal(down, gammaCq, epsilonCq) * qcQrScale
    steps = None
    if weightUqQr.dtype is torch.int8:
        latent, steps = by_row(latent if smoothScalesCq is None else latent * smoothScalesCq.float())
    up = _product(latent.to(half), weightUqQr, steps, scaleWUqQr, half)
    plain, turned = torch.split(up.view(len(rows), heads, -1), [depth, up.shape[-1] // heads - depth], -1)
    query = torch.einsum("thd,hdc->thc", plain.double(), weightUk.double())
    query_rope = _interleaved_rope(turned, cos.unsqueeze(1), sin.unsqueeze(1))
    both = _product(rows, weightDkvKr, scaleX, scaleWDkvKr, torch.float32)
    key, key_rope = torch.split(both, [gammaCkv.shape[-1], both.shape[-1] - gammaCkv.shape[-1]], -1)
    stored = rms_normal(key, gammaCkv, epsilonCkv) * kcScale
    for cache, found in ((kvCache, stored), (krCache, _interleaved_rope(key_rope, cos, sin))):
        cache.copy_(placed(found.to(cache.dtype), cache, cacheIndex.flatten()))
    shape = (*tokenX.shape[:-1], heads, -1)
    return query.view(shape), query_rope.view(shape)


def fused_causal_conv1d(
    x: T, weight: T, states: T, starts: Optional, cacheIndices: Optional, accepted: Optional,
    computed: Optional, activation: int, padSlot: int, residual: int, convMode: int,
) -> T:  # fmt: skip
    """Convolve each sequence along its tokens, after the last inputs in its state, and advance the state.

    Source: page and test of torch_npu (op-plugin, npu_fused_causal_conv1d).
    """
    gap(activation or convMode, "activations and other modes are not implemented")
    rows, width = x.reshape(-1, x.shape[-1]), len(weight)
    ends = torch.arange(len(x) + 1) * x.shape[1] if starts is None else starts
    made = torch.ones(rows.shape, dtype=torch.float64)
    for place, (start, end) in enumerate(zip(ends.tolist(), ends[1:].tolist(), strict=False)):
        line = place if cacheIndices is None else int(cacheIndices[place])
        if line == padSlot:
            continue
        offset = states.shape[1] - (width - 1) if accepted is None else int(accepted[place]) - 1
        before = states[line, : offset + width - 1]
        if computed is not None and not computed[place]:
            before, offset = torch.zeros_like(before[: width - 1]), 0
        whole = torch.cat((before, rows[start:end]))
        kept = min(states.shape[1], len(whole))
        states[line, states.shape[1] - kept :] = whole[len(whole) - kept :]
        windows = whole[offset:].double().unfold(0, width, 1)  # (tokens, channels, width)
        made[start:end] = (windows * weight.double().T).sum(-1) + (rows[start:end].double() if residual else 0)
    return made.view(x.shape)


def kv_quant_sparse_flash_attention(
    query: T, key: T, value: T, indices: T, blockTable: Optional, lengthsQuery: Optional,
    lengthsKey: Optional, scale: float, blockSize: int, layoutQuery: str, layoutKey: str, sparseMode: int,
    tileSize: int, ropeDim: int,
) -> T:  # fmt: skip
    """Attend over chosen keys: rows of eight-bit numbers, a rotated part in half precision, and scales by tile."""
    del value  # values are the first part of the keys
    depth = query.shape[-1] - ropeDim
    numbers, rope, scales = (each.contiguous() for each in torch.split(
        key.view(torch.int8), [depth, ropeDim * 2, depth // tileSize * 4], -1))  # fmt: skip
    steps = scales.view(torch.float32).repeat_interleave(tileSize, -1)
    plain = (numbers.view(key.dtype).float() * steps).to(query.dtype)
    return sparse_flash_attention(
        query[..., :depth], plain, None, indices, blockTable, lengthsQuery, lengthsKey, query[..., depth:],
        rope.view(query.dtype), scale, blockSize, layoutQuery, layoutKey, sparseMode, False,
    )  # fmt: skip


def _delta(state: T, q: T, k: T, v: T, decay: T, beta: T) -> tuple[T, T]:
    """Take one step: state (heads, values, keys), others by head. Return the new state, and the result."""
    state = state * decay.reshape(len(state), 1, -1)
    change = (v - (state * k.unsqueeze(1)).sum(-1)) * beta.unsqueeze(-1)
    state = state + change.unsqueeze(-1) * k.unsqueeze(1)
    return state, (state * q.unsqueeze(1)).sum(-1)


def recurrent_gated_delta_rule(
    query: T, key: T, value: T, beta: Optional, states: T, lengths: T, indices: T, g: Optional, gk: Optional,
    accepted: Optional, scale: float,
) -> T:  # fmt: skip
    """Run the rule, storing the state after each token at ``indices``.

    A sequence begins with the state at its first token's index, or at that of its last accepted token.
    """
    repeats = value.shape[1] // query.shape[1]
    q, k = (each.double().repeat_interleave(repeats, 1) for each in (query, key))
    ones = torch.ones(value.shape[:2], dtype=torch.float64)
    decay = ones if g is None else g.double().exp()
    decay = decay if gk is None else decay.unsqueeze(-1) * gk.double().exp()
    steps = q * scale, k, value.double(), decay, ones if beta is None else beta.double()
    made, start = torch.zeros(value.shape, dtype=torch.float64), 0
    for place, count in enumerate(lengths.tolist()):
        if not count:
            continue
        first = start if accepted is None else start + int(accepted[place]) - 1
        state = states[int(indices[first])].double()
        for token in range(start, start + count):
            state, made[token] = _delta(state, *(each[token] for each in steps))
            states[int(indices[token])] = state.to(states.dtype)
        start += count
    return made
