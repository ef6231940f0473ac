"""Operators of frameworks' libraries that have a public contract, each with its arguments and its definition.

Sources: vllm-project/vllm-ascend, csrc/torch_binding.cpp and tests/e2e/nightly/single_node/ops at 182b75ea84ff
(2026-08-22); removed operators are from the last revision with them (rotary_embedding: 6c49f95da2, 2026-02-07;
weak_ref_tensor: f335d75d85, 2026-04-27; get_masked_input_and_mask: b266da5d6c, 2026-07-16).
sgl-project/sgl-kernel-npu, csrc/pytorch_extensions.cpp and tests/python/sgl_kernel_npu at f425bdf1e191 (2026-08-21).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from pytest_ascend.operators import InputFactory, Operator, Sample, call
from pytest_ascend.operators.operator import HALVES
from pytest_ascend.precision.kernel_fallbacks import rms_norm

from .entry import in_family, on_copies, ties_forgiven
from .families import normalization, routing, serving

T = torch.Tensor
Through = Callable[..., Any]


def _called(name: str, arguments: str, through: Through | None, *args: Any, **kwargs: Any) -> Any:
    """Call ``torch.ops.NAMESPACE.NAME``. Raises NotImplementedError if its arguments do not begin with these."""
    namespace, _, own = name.partition(".")
    apply = getattr(getattr(torch.ops, namespace), own)
    has, wanted = [each.name for each in apply.default._schema.arguments], arguments.split()  # noqa: SLF001
    if has[: len(wanted)] != wanted:
        raise NotImplementedError(f"{name} takes ({', '.join(has)}); its definition is of ({', '.join(wanted)}, ...)")
    return through(apply, *args, **kwargs) if through else apply(*args, **kwargs)


def _of(name: str, arguments: str, definition: Through, inputs: Any, through: Any = None, **how: Any) -> Operator:
    usual = {"grad": False, "nonfinite": False, "layouts": False, "in_place": False, "dtypes": HALVES}
    function = partial(_called, name, arguments, through)
    return Operator(name=name, function=function, definition=definition, inputs=inputs, **{**usual, **how})


def _as(own: str, name: str, arguments: str, reorder: Through | None = None) -> Operator:
    """Return an operator that torch_npu has as ``own``; ``reorder`` takes the operator and torch_npu's arguments."""
    found: Operator = next(each for family in (normalization, serving) for each in family.OPERATORS if each.name == own)

    def through(of: partial[Any], apply: Any, *args: Any, **kwargs: Any) -> Any:
        ordered = partial(reorder, apply) if reorder else apply
        return of.args[1](ordered, *args, **kwargs) if of.args[1] else ordered(*args, **kwargs)

    def renamed(of: Any) -> Any:  # the innermost call, below the handling of ties
        if isinstance(of.args[0], partial):
            return partial(of.func, renamed(of.args[0]), *of.args[1:])
        return partial(_called, name, arguments, partial(through, of))

    made: Operator = replace(found, name=name, function=renamed(found.function), layouts=False, sweep=False)
    return made


# --- adapters (LoRA): each row with the matrix of its request; a negative index is a request without one ---


def _adapted(x: T, weight: T, indices: T) -> T:
    return torch.einsum("bi,boi->bo", x, weight[indices.clamp(min=0)]) * (indices >= 0)[:, None]


def _shrunk(x: T, weight: T, indices: T, y: T, scale: float) -> tuple[T, T]:
    return (y + scale * _adapted(x, weight, indices),) * 2


def _expanded(x: T, weight: T, indices: T, y: T, start: int, count: int) -> tuple[T, T]:
    y = y.clone()
    y[:, start : start + count] += _adapted(x, weight, indices).to(y.dtype)
    return y, y


def _by_request(definition: Through, x: T, weight: T, indices: T, lengths: T, *rest: Any) -> Any:
    return definition(x, weight, indices.repeat_interleave(lengths), *rest)


def _call_adapter(apply: Any, x: T, weight: T, *given: Any) -> tuple[T, T]:
    """Return the results of the rows in the given order, and in reverse order, restored."""
    tensors, rest = [each for each in given if isinstance(each, T)], [each for each in given if not isinstance(each, T)]
    *requests, y = tensors
    once, again = y.clone(), y.flip(0)
    apply(x, weight, *requests, once, *rest)
    apply(x.flip(0), weight, *(each.flip(0) for each in requests), again, *rest)
    return once, again.flip(0)


def _adapter_inputs(shrinks: bool, by_request: bool, make: InputFactory) -> Iterator[Sample]:
    hidden, rank, rows = 128, 16, 9
    indices, lengths = torch.tensor([1, -1, 3]), torch.tensor([4, 2, 3])
    requests = (indices, lengths) if by_request else (indices.repeat(3),)
    if shrinks:
        given = make.normal(rows, hidden), make.normal(4, rank, hidden)
        yield call(*given, *requests, make.normal(rows, rank, dtype=torch.float32), 0.5)
        return
    x, weight = make.normal(rows, rank, dtype=torch.float32), make.normal(4, hidden, rank)
    for start in (0, hidden):
        yield call(x, weight, *requests, make.normal(rows, 3 * hidden), start, hidden)


def _adapters(namespace: str) -> Iterator[Operator]:
    for by_request, requests in ((False, "indices"), (True, "lora_indices seq_len")):
        for shrinks, rest in ((True, "scale"), (False, "slice_offset slice_size")):
            name = f"{namespace}.{'s' if by_request else 'b'}gmv_{'shrink' if shrinks else 'expand'}"
            rows = _shrunk if shrinks else _expanded
            definition = partial(_by_request, rows) if by_request else rows
            yield _of(
                name, f"x weight {requests} y {rest}", definition, partial(_adapter_inputs, shrinks, by_request),
                _call_adapter, outputs=("float32" if shrinks else "",) * 2, terms=128 if shrinks else 16,
            )  # fmt: skip


# --- definitions of the rest ---


def _multiplied(apply: Any, a: T, b: T) -> T:
    out = torch.empty(*a.shape[:-1], b.shape[-1], dtype=a.dtype, device=a.device)
    apply(a, b, out)
    return out


def _swapped(x: T, y: T, pairs: list[list[int]]) -> tuple[T]:
    y = y.clone()
    for source, target in pairs:
        y[target] = x[source]
    return (y,)


def _regrouped(key: T, value: T, blocks: T, parts: int) -> tuple[T, ...]:
    """Rearrange consecutive writes of ``parts`` ranks into a block to rows of all heads."""
    found = key.clone(), value.clone()
    for cache in found:
        for block in blocks.tolist():
            rows = cache[block].clone().view(parts, cache.shape[1], -1).transpose(0, 1)
            cache[block] = rows.reshape(cache.shape[1:])
    return found


def _stored(apply: Any, key: T, cache: T, slots: T) -> T:
    cache, size = cache.clone(), cache.shape[1]
    groups = [torch.empty(len(slots), dtype=torch.int32, device=slots.device) for _ in range(3)]
    torch.ops._C_ascend.store_kv_block_metadata(slots, *groups, size)  # noqa: SLF001
    apply(key, cache, *groups, size)
    return cache


def _in_vocabulary(x: T, start: int, end: int, padding: int, added: int, added_end: int) -> tuple[T, T]:
    own, more = (x >= start) & (x < end), (x >= added) & (x < added_end)
    moved = torch.where(own, x - start, x - (added - (end - start) - padding))
    return moved.where(own | more, 0), ~(own | more)


def _masked(logits: T, bits: T) -> T:
    places = torch.arange(logits.shape[1])
    return logits.masked_fill(bits[:, places // 32] >> (places % 32) & 1 == 0, -torch.inf)


def _gating_inputs(make: InputFactory) -> Iterator[Sample]:
    for kind, k_group, groups, mode in ((0, 1, 1, 0), (1, 1, 1, 0), (1, 2, 8, 0), (1, 2, 8, 1)):
        bias = make.uniform(64, grad=False) if groups > 1 else None
        yield call(routing.separate(make, 9, 64), 4, k_group, groups, mode, 1, kind, False, 2.5, 1e-20, bias)


def _same_memory(apply: Any, x: T) -> tuple[T, T]:
    made = apply(x)
    return made, torch.tensor(made.data_ptr() == x.data_ptr(), device=x.device)


def _with_bias(x1: T, x2: T, gamma: T, beta: T) -> tuple[T, T, T]:
    y, rstd, x = normalization.add_rms_norm(x1, x2, gamma)
    return y + beta, rstd, x


_BMM = "batch_matmul_transpose"
_INDEXER = "query key weights"
OPERATORS = in_family(
    "library",
    *_adapters("_C_ascend"),
    *_adapters("npu"),
    *(_of(f"{space}.{_BMM}", "tensor_a tensor_b tensor_c", lambda a, b: torch.einsum("bmk,mkn->bmn", a, b), lambda d: [
        call(d.normal(b, m, k), d.normal(m, k, n)) for b, m, k, n in ((2, 3, 4, 5), (10, 4, 128, 32))], _multiplied,
        terms=128) for space in ("_C_ascend", "npu")),
    _of("npu.apply_token_bitmask", "logits bitmask indices", _masked, lambda d: [call(
        d.normal(5, 100), d.integers(5, 4, low=-2**31, high=2**31).int())],
        lambda apply, x, bits: apply(x.clone(), bits), exact=True),
    _as("npu_lightning_indexer", "npu.lightning_indexer", _INDEXER, lambda apply, *x, **how: (apply(*x, **how),)),
    _as("npu_lightning_indexer", "_C_ascend.npu_lightning_indexer", _INDEXER),
    _as("npu_sparse_flash_attention", "_C_ascend.npu_sparse_flash_attention", "query key value sparse_indices"),
    _as("npu_recurrent_gated_delta_rule", "_C_ascend.npu_recurrent_gated_delta_rule", "query key value state beta"),
    _as("npu_gemma_rms_norm", "_C_ascend.npu_gemma_rms_norm", "x gamma epsilon"),
    _as("npu_grouped_matmul_swiglu_quant", "_C_ascend.grouped_matmul_swiglu_quant_weight_nz",
        "x weight weight_scale x_scale group_list",
        lambda apply, x, weight, ends, scale, rows: apply(x, weight, scale, rows, ends)),
    _of("_C_ascend.swap_blocks", "x y z", _swapped, lambda d: [call(
        d.normal(6, 8, 2, 16), d.normal(5, 8, 2, 16), [[0, 4], [5, 0], [3, 3]])],
        lambda apply, *given: on_copies(1)(lambda x, y, pairs: apply(x, y, torch.tensor(pairs)), *given), exact=True),
    _of("_C_ascend.transpose_kv_cache_by_block", "kCache vCache blockIDs blockSize headNum headDim splitNum layerNum",
        _regrouped, lambda d: [call(d.normal(6, 128, 4, 128), d.normal(6, 128, 4, 128), torch.tensor([4, 0, 3]), parts)
                               for parts in (2, 4)], lambda apply, *given: on_copies(0, 1)(
            lambda k, v, blocks, parts: apply([k], [v], blocks, *k.shape[1:], parts, 1), *given), exact=True),
    _of("_C_ascend.store_kv_block", "", lambda key, cache, slots: serving.written(
        key[:, None], key[:, None], cache, cache, slots)[0], lambda d: [call(
            d.integers(9, 32, high=128, dtype=torch.int8), d.integers(40, 1, 1, 32, high=128, dtype=torch.int8),
            torch.arange(2, 11, dtype=torch.int32))], _stored, exact=True, dtypes=("int8",)),
    _of("_C_ascend.weak_ref_tensor", "input", lambda x: (x.clone(), torch.tensor(True)),
        lambda d: [call(d.normal(5, 7))], _same_memory, outputs=("", "bool"), exact=True),
    _of("_C_ascend.get_masked_input_and_mask", "input org_vocab_start_index", _in_vocabulary, lambda d: [call(
        d.integers(3, 67, high=1000, dtype=torch.int32), 100, 200, padding, 300, 400) for padding in (0, 28)],
        dtypes=("int32",), exact=True),
    _of("_C_ascend.rotary_embedding", "positions query key head_size cos_sin_cache is_neox",
        lambda places, q, k, cache, size: serving.mrope(places, q, k, cache, size, [0, 0, 0], "half"), lambda d: [call(
            d.integers(5, high=40), d.normal(5, 256), d.normal(5, 128), d.uniform(40, 64), 64)],
        lambda apply, places, q, k, cache, size: apply(places, q.clone(), k.clone(), size, cache, True)),
    _of("_C_ascend.npu_add_rms_norm_bias", "x1 x2 gamma beta epsilon", _with_bias, normalization.rows(
        2, "scale", "shift"), outputs=("", "float32", ""), terms=normalization.TERMS, dtypes=("float32", *HALVES)),
    _of("_C_ascend.moe_gating_top_k", "x k k_group group_count group_select_mode renorm norm_type", routing.gating,
        _gating_inputs, lambda apply, *given: apply(*given)[:2], outputs=("", "int32"), dtypes=("float32",), terms=64),
    ties_forgiven(_of("_C_ascend.npu_rms_norm_dynamic_quant", "x gamma smooth_scale beta epsilon",
        lambda x, gamma: serving.by_row(rms_norm(x, gamma)[0]), lambda d: [call(
            d.normal(9, 128), d.uniform(128, low=0.5, high=1.5))], outputs=("int8", "float32"), terms=128), 0.02),
)  # fmt: skip
