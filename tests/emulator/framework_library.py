"""A library as vllm-ascend's: operators under its namespace, written with torch on the CPU, each of which can be wrong.

Imported as ``vllm_ascend.vllm_ascend_C``; schemas are those of csrc/torch_binding.cpp at 182b75ea84ff.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

LORA = "Tensor(a!) x, Tensor(b!) weight, Tensor(c!) {}, Tensor(d!) y"
SCHEMAS = {
    "bgmv_shrink": f"({LORA.format('indices')}, float scale) -> ()",
    "bgmv_expand": f"({LORA.format('indices')}, int slice_offset, int slice_size) -> Tensor(d!)",
    "sgmv_shrink": f"({LORA.format('lora_indices, Tensor(e!) seq_len')}, float scale) -> ()",
    "sgmv_expand": f"({LORA.format('lora_indices, Tensor(e!) seq_len')}, int slice_offset, int slice_size) -> "
    "Tensor(d!)",
    "batch_matmul_transpose": "(Tensor tensor_a, Tensor tensor_b, Tensor(a!) tensor_c, str? format_mode=None) -> ()",
    "swap_blocks": "(Tensor(a!) x, Tensor(b!) y, Tensor z) -> ()",
    "transpose_kv_cache_by_block": "(Tensor(a!)[] kCache, Tensor(b!)[] vCache, Tensor blockIDs, int blockSize, int "
    "headNum, int headDim, int splitNum, int layerNum) -> ()",
    "store_kv_block_metadata": "(Tensor slots, Tensor(a!) a, Tensor(b!) b, Tensor(c!) c, int size) -> ()",
    "store_kv_block": "(Tensor key, Tensor(a!) cache, Tensor a, Tensor b, Tensor c, int size) -> ()",
    "get_masked_input_and_mask": "(Tensor input, int org_vocab_start_index, int org_vocab_end_index, int "
    "num_org_vocab_padding, int added_vocab_start_index, int added_vocab_end_index) -> (Tensor, Tensor)",
    "rotary_embedding": "(Tensor positions, Tensor query, Tensor key, int head_size, Tensor cos_sin_cache, bool "
    "is_neox) -> (Tensor, Tensor)",
    "npu_add_rms_norm_bias": "(Tensor x1, Tensor x2, Tensor gamma, Tensor? beta=None, float epsilon=1e-6) -> (Tensor, "
    "Tensor, Tensor)",
    "npu_gemma_rms_norm": "(Tensor x, Tensor gamma, float epsilon=1e-6) -> (Tensor, Tensor)",
    "moe_gating_top_k": "(Tensor x, int k, int k_group, int group_count, int group_select_mode, int renorm, int "
    "norm_type, bool out_flag, float routed_scaling_factor, float eps, Tensor? bias_opt=None) -> (Tensor, Tensor, "
    "Tensor)",
    "npu_rms_norm_dynamic_quant": "(Tensor x, Tensor gamma, Tensor? smooth_scale=None, Tensor? beta=None, float "
    "epsilon=1e-6) -> (Tensor, Tensor)",
    "unknown": "(Tensor x) -> Tensor",
}


def bgmv_shrink(x: Tensor, weight: Tensor, indices: Tensor, y: Tensor, scale: float) -> None:
    for row, index in enumerate(indices.tolist()):
        if index >= 0:
            y[row] += scale * (weight[index].float() @ x[row].float())


def bgmv_expand(x: Tensor, weight: Tensor, indices: Tensor, y: Tensor, start: int, count: int) -> Tensor:
    for row, index in enumerate(indices.tolist()):
        if index >= 0:
            part = y[row, start : start + count]
            part.copy_(part.float() + weight[index].float() @ x[row])
    return y


def sgmv_shrink(x: Tensor, weight: Tensor, indices: Tensor, lengths: Tensor, y: Tensor, scale: float) -> None:
    CORRECT["bgmv_shrink"](x, weight, indices.repeat_interleave(lengths), y, scale)


def sgmv_expand(x: Tensor, weight: Tensor, indices: Tensor, lengths: Tensor, y: Tensor, *where: int) -> Tensor:
    made: Tensor = CORRECT["bgmv_expand"](x, weight, indices.repeat_interleave(lengths), y, *where)
    return made


def batch_matmul_transpose(a: Tensor, b: Tensor, c: Tensor, _: Any = None) -> None:
    c.copy_((a.float().transpose(0, 1) @ b.float()).transpose(0, 1))


def swap_blocks(x: Tensor, y: Tensor, z: Tensor) -> None:
    y.index_copy_(0, z[:, 1], x[z[:, 0]])


def transpose_kv_cache_by_block(
    keys: list[Tensor], values: list[Tensor], blocks: Tensor, size: int, *rest: int
) -> None:
    for cache in (*keys, *values):
        parts = cache[blocks].view(len(blocks), rest[2], size, -1)
        cache[blocks] = parts.transpose(1, 2).reshape(len(blocks), size, *rest[:2])


def store_kv_block_metadata(slots: Tensor, first: Tensor, *_: Any) -> None:
    first.copy_(slots)


def store_kv_block(key: Tensor, cache: Tensor, slots: Tensor, *_: Any) -> None:
    cache.view(-1, key.shape[1])[slots.long()] = key


def get_masked_input_and_mask(
    x: Tensor, start: int, end: int, pad: int, added: int, last: int
) -> tuple[Tensor, Tensor]:
    found = [t - start if start <= t < end else t - added + end - start + pad if added <= t < last else -1
             for t in x.flatten().tolist()]  # fmt: skip
    made = torch.tensor(found, dtype=x.dtype).view_as(x)
    return made.clamp(min=0), made < 0


def rotary_embedding(places: Tensor, q: Tensor, k: Tensor, size: int, cache: Tensor, _: bool) -> tuple[Tensor, Tensor]:
    turn = torch.complex(*cache[places].float().chunk(2, -1))[:, None]
    made = []
    for x in (q, k):
        x_ = torch.complex(*x.view(len(x), -1, size).float().chunk(2, -1)) * turn
        made.append(torch.cat((x_.real, x_.imag), -1).to(x.dtype).view_as(x))
    return made[0], made[1]


def npu_gemma_rms_norm(x: Tensor, gamma: Tensor, epsilon: float = 1e-6) -> tuple[Tensor, Tensor]:
    rstd = 1 / (x.float().pow(2).mean(-1, keepdim=True) + epsilon).sqrt()
    return (x.float() * rstd * (1 + gamma.float())).to(x.dtype), rstd


def npu_add_rms_norm_bias(
    x1: Tensor, x2: Tensor, gamma: Tensor, beta: Tensor, epsilon: float = 1e-6
) -> tuple[Tensor, Tensor, Tensor]:
    x = x1.float() + x2.float()
    y, rstd = npu_gemma_rms_norm(x, gamma.float() - 1, epsilon)
    return (y + beta.float()).to(x1.dtype), rstd, x.to(x1.dtype)


def moe_gating_top_k(
    x: Tensor, k: int, k_group: int, groups: int, mode: int, *rest: Any
) -> tuple[Tensor, Tensor, Tensor]:
    _, kind, _, scale, eps, *bias = rest
    scores = x.sigmoid() if kind else x.softmax(-1)
    biased = scores + (bias[0] if bias and bias[0] is not None else 0)
    weights, experts = [], []
    for row, score in zip(biased, scores, strict=True):
        by_group = row.view(groups, -1).sort(descending=True).values[:, : 1 + mode].sum(-1)
        taken = {int(group) for group in by_group.argsort(descending=True)[:k_group]}
        size = len(row) // groups
        best = sorted((e for e in range(len(row)) if e // size in taken), key=lambda e: -float(row[e]))[:k]
        experts.append(best)
        weights.append(score[best] / (score[best].sum() + eps) * scale)
    return torch.stack(weights), torch.tensor(experts, dtype=torch.int32), scores


def npu_rms_norm_dynamic_quant(
    x: Tensor, gamma: Tensor, _: Any = None, __: Any = None, epsilon: float = 1e-6
) -> tuple[Tensor, Tensor]:
    y = npu_gemma_rms_norm(x.float(), gamma.float() - 1, epsilon)[0]
    scale = y.abs().amax(-1) / 127
    return (y / scale[:, None]).round().to(torch.int8), scale


CORRECT: dict[str, Callable[..., Any]] = {name: globals()[name] for name in SCHEMAS if name in globals()}
#: What is used in the place of a correct operator.
WRONG: dict[str, Callable[..., Any]] = {}


def _on_the_host(name: str) -> Callable[..., Any]:
    def body(*given: Any) -> Any:
        tensors = [each for each in tree_leaves(given) if isinstance(each, Tensor)]
        before = [each.cpu() for each in tensors]
        host = tree_map(lambda x: x.cpu().clone() if isinstance(x, Tensor) else x, given)
        made = WRONG.get(name, CORRECT[name])(*host)
        after = [each for each in tree_leaves(host) if isinstance(each, Tensor)]
        for each, old, new in zip(tensors, before, after, strict=True):
            if not torch.equal(old, new):
                each.copy_(new)
        if "-> ()" in SCHEMAS[name]:
            return None
        return tree_map(lambda x: x.to(tensors[0].device) if isinstance(x, Tensor) else x, made)

    return body


LIBRARY = torch.library.Library("_C_ascend", "DEF")
for _name, _schema in SCHEMAS.items():
    LIBRARY.define(_name + _schema)
    if _name in CORRECT:
        LIBRARY.impl(_name, _on_the_host(_name), "PrivateUse1")
