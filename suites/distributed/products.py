"""Operators that combine products and collectives, against their definition; every rank's inputs come from seeds."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from pytest_ascend.distributed.ranks import Place

T = torch.Tensor
#: A result in float64, and its allowed error.
Expected = tuple[T, T]

ROWS, INNER, COLUMNS = 48, 32, 24
#: Experts per rank, experts per token, and tokens.
EXPERTS, CHOSEN, TOKENS = 2, 2, 6
#: Operators that multiply the rows of each expert.
EXPERT = ("npu_alltoallv_gmm", "npu_gmm_alltoallv")
#: Operators that exchange the first factor, and also return the exchanged factor.
EXCHANGED = ("npu_all_gather_base_mm", "npu_all_to_all_matmul")
NORMALIZED = "npu_moe_distribute_combine_add_rms_norm"
#: Operators that send tokens to their experts, and those that send them back.
BACK = {f"npu_moe_distribute_dispatch{each}": f"npu_moe_distribute_combine{each}" for each in ("", "_v2")}
BACK[NORMALIZED] = NORMALIZED
#: Kind of int8 weights -> number of row groups with their own scale and offset.
WEIGHTS = {"int8-weight": 1, "int8-weight-groups": 4}


def made(rank: int, name: str, dtype: str, *shape: int) -> T:
    generator = torch.Generator().manual_seed(1000 * rank + sum(map(ord, name)))
    return torch.randn(shape, generator=generator).to(getattr(torch, dtype))


def counts(source: int, target: int, count: int) -> list[int]:
    return [(3 * source + 2 * target + expert) % 4 + count % 2 for expert in range(EXPERTS)]


def chosen(rank: int, count: int) -> T:
    generator = torch.Generator().manual_seed(77 + rank)
    return torch.stack([torch.randperm(EXPERTS * count, generator=generator)[:CHOSEN] for _ in range(TOKENS)]).int()


def _operator(name: str) -> Callable[..., Any]:
    import torch_npu

    if found := getattr(torch_npu, name, None):
        return found  # type: ignore[no-any-return]
    raise NotImplementedError(f"torch_npu {torch_npu.__version__} has no {name}")


def _inner(how: str, count: int) -> int:
    """Return the length of a sum; row groups have at least 32 rows."""
    if how == "npu_all_to_all_matmul":
        return INNER * count
    return 32 * WEIGHTS[how.partition(".")[2]] if how.partition(".")[2] in WEIGHTS else INNER


def run(place: Place, how: str, dtype: str) -> dict[str, Any]:
    backend: Any = dist.distributed_c10d._get_default_group()._get_backend(place.device)  # noqa: SLF001  (no other)
    base, _, kind = how.partition(".")
    call = _operator("npu_moe_distribute_dispatch_v2" if how == NORMALIZED else base)
    name, rank, count = backend.get_hccl_comm_name(place.rank), place.rank, place.count

    def of(key: str, *shape: int) -> T:
        return made(rank, key, dtype, *shape).to(place.device)

    if kind:
        given = {each: x.to(place.device) for each, x in quantized(how, dtype, rank, count).items()}
        groups = WEIGHTS.get(kind, 1)
        more = {"antiquant_group_size": _inner(how, count) // groups} if groups > 1 else {}
        return {"product": call(given.pop("x1"), given.pop("x2"), name, **given, **more)}
    if how in EXPERT:
        send = [n for other in range(count) for n in counts(rank, other, count)]
        receive = [n for other in range(count) for n in counts(other, rank, count)]
        if how == "npu_gmm_alltoallv":
            send, receive = receive, send
        rows, weight = of("rows", sum(send), INNER), of("weight", EXPERTS, INNER, COLUMNS)
        return {"product": call(rows, weight, name, count, send, receive)[0]}
    if how in BACK:
        return _to_and_fro(place, call, name, how, dtype)
    x1, x2 = of("x1", ROWS, INNER), of("x2", _inner(how, count), COLUMNS * count)
    found = call(x1, x2, name, *([] if how == "npu_mm_all_reduce_base" else [count]))
    if how in EXCHANGED:
        return dict(zip(("product", "factor"), found, strict=False))
    return {"product": found[0] if isinstance(found, tuple) else found}


def quantized(how: str, dtype: str, rank: int, count: int) -> dict[str, T]:
    """Return a rank's inputs for an int8 product, by name; for float16 the scale is in the lower half of an int64."""
    kind, columns, of = how.partition(".")[2], COLUMNS * count, getattr(torch, dtype)
    scale, inner = _scale(rank, columns), _inner(how, count)
    found = {"x1": _int8(rank, "x1", ROWS, inner), "x2": _int8(rank, "x2", inner, columns)}
    if kind in WEIGHTS:
        groups = WEIGHTS[kind]
        sizes = (groups, columns) if groups > 1 else (columns,)
        return found | {
            "x1": made(rank, "x1", dtype, ROWS, inner),
            "antiquant_scale": (scale * torch.arange(1, groups + 1).unsqueeze(1)).view(sizes).to(of),
            "antiquant_offset": 20 * made(rank, "offset", dtype, *sizes),
        }
    if kind in ("int8-token", "int8-way"):
        wide = scale if of is torch.bfloat16 else scale.float()
        found |= {"dequant_scale": wide, "pertoken_scale": made(rank, "token scale", "float32", ROWS).abs()}
        if kind == "int8-way":  # with scales for quantization in transit between ranks
            found["comm_quant_scale_1"], found["comm_quant_scale_2"] = _on_the_way(dtype, count)
        return found
    return found | {"dequant_scale": scale if of is torch.bfloat16 else scale.float().view(torch.int32).long()}


@functools.lru_cache(maxsize=2)
def _on_the_way(dtype: str, count: int) -> tuple[T, T]:
    """Return one scale per column for the parts sent, and one for the sums, so that int8 holds the largest."""
    parts = torch.stack(_parts("npu_mm_all_reduce_base.int8-token", dtype, count)[0])
    largest = (parts.abs().amax((0, 1)), parts.sum(0).abs().amax(0))
    return tuple((each / 120).to(getattr(torch, dtype)) for each in largest)  # type: ignore[return-value]


def _scale(rank: int, columns: int) -> T:
    return (made(rank, "scale", "float32", columns).abs() / 100).bfloat16()  # products stay below float16's largest


def _int8(rank: int, name: str, *shape: int) -> T:
    return (40 * made(rank, name, "float32", *shape)).round().clamp(-128, 127).to(torch.int8)


def _parts(how: str, dtype: str, count: int) -> tuple[list[T], list[T]]:
    parts, sizes = [], []
    for rank in range(count):
        given = quantized(how, dtype, rank, count)
        x1, x2 = given["x1"].double(), given["x2"].double()
        scale = given.get("antiquant_scale", _scale(rank, COLUMNS * count)).double()
        token = given["pertoken_scale"].double().unsqueeze(1) if "pertoken_scale" in given else torch.ones(1).double()
        offset = given.get("antiquant_offset", torch.zeros(1)).double()
        if scale.ndim > 1:
            scale, offset = (each.repeat_interleave(len(x2) // len(each), 0) for each in (scale, offset))
        parts.append(x1 @ ((x2 + offset) * scale) * token)
        sizes.append(x1.abs() @ ((x2.abs() + offset.abs()) * scale) * token)
    return parts, sizes


@functools.lru_cache(maxsize=2)
def _expected_of_quantized(how: str, dtype: str, count: int) -> Expected:
    parts, sizes = _parts(how, dtype, count)
    exact, allowed = _limit(parts, sizes, dtype, _inner(how, count))
    if how.endswith("int8-way"):  # each part, and their sum, is rounded to int8
        there, back = _on_the_way(dtype, count)
        return exact, allowed + (count * there.double() + back.double()) / 2
    # Weights scaled before the product may be rounded twice: with the offset, and on scaling.
    twice = 2.02 * torch.finfo(getattr(torch, dtype)).eps / 2 * sum(sizes[1:], sizes[0])
    return exact, allowed + twice if how.partition(".")[2] in WEIGHTS else allowed


def _to_and_fro(place: Place, call: Callable[..., Any], name: str, how: str, dtype: str) -> dict[str, Any]:
    count, ids = place.count, chosen(place.rank, place.count).to(place.device)
    x = made(place.rank, "tokens", dtype, TOKENS, INNER).to(place.device)
    scales = made(place.rank, "scales", "float32", TOKENS, CHOSEN).abs().to(place.device)
    places: dict[str, Any] = {"group_ep": name, "ep_world_size": count, "ep_rank_id": place.rank}
    places |= {"moe_expert_num": EXPERTS * count, "shared_expert_rank_num": 0, "global_bs": TOKENS * count}
    rows, _, index, tokens, received, received_tp, spread = call(x, ids, expert_scales=scales, **places)
    parts = tokens.tolist()
    factors = torch.repeat_interleave(torch.arange(EXPERTS) + EXPERTS * place.rank + 1, torch.tensor(parts))
    rows[: sum(parts)] *= factors.to(rows.device, rows.dtype).unsqueeze(1)
    more = {"tp_send_counts": received_tp, "expand_scales": spread}
    if how == NORMALIZED:
        more |= {name: each.to(place.device) for name, each in _normalizing(place.rank, dtype).items()}
    made_of = _operator(BACK[how])(rows, ids, index, received, scales, **more, **places)
    both = torch.cat([made_of[0], made_of[2]], 2).squeeze(1) if how == NORMALIZED else made_of
    return {"product": both, "tokens": tokens}


def _normalizing(rank: int, dtype: str) -> dict[str, T]:
    return {"residual_x": made(rank, "residual", dtype, TOKENS, 1, INNER), "gamma": made(rank, "gamma", dtype, INNER)}


def _normalized(sums: Expected, rank: int, dtype: str) -> Expected:
    given, unit = _normalizing(rank, dtype), torch.finfo(getattr(torch, dtype)).eps / 2
    gamma, residual = given["gamma"].double(), given["residual_x"].double().squeeze(1)
    x = sums[0] + residual
    off = sums[1] + 1.01 * unit * (sums[1] + x.abs())
    root = (x.square().mean(1, keepdim=True) + 1e-6).sqrt()
    y = x / root * gamma
    root_off = (x.abs() * off + off.square()).mean(1, keepdim=True) / root.square()
    y_off = gamma.abs() * off / root + y.abs() * (1.01 * root_off + 2.02 * unit)
    return torch.cat([y, x], 1), torch.cat([y_off, off], 1)


def _limit(parts: list[T], sizes: list[T], dtype: str, inner: int) -> Expected:
    """Return the sum of parts, and the allowed error from rounding the products, each part and each sum."""
    unit, size = torch.finfo(getattr(torch, dtype)).eps / 2, sum(sizes[1:], sizes[0])
    return sum(parts[1:], parts[0]), 1.01 * (len(parts) + 1) * unit * size + inner * 2.0**-24 * size


def factor(how: str, dtype: str, rank: int, count: int) -> T:
    """Return the first factor of a rank's product, parts of which come from other ranks."""
    sent = [made(each, "x1", dtype, ROWS, INNER) for each in range(count)]
    if how == "npu_all_gather_base_mm":
        return torch.cat(sent)
    return torch.cat([each.chunk(count)[rank] for each in sent], 1) if how == "npu_all_to_all_matmul" else sent[rank]


@functools.lru_cache(maxsize=2)
def _products(how: str, dtype: str, count: int) -> list[Expected]:
    results = []
    for rank in range(count):
        x1 = factor(how, dtype, rank, count).double()
        x2 = made(rank, "x2", dtype, _inner(how, count), COLUMNS * count).double()
        results.append((x1 @ x2, x1.abs() @ x2.abs()))
    return results


def expected(how: str, dtype: str, rank: int, count: int) -> Expected:
    if "." in how:
        return _expected_of_quantized(how, dtype, count)
    if how in EXPERT:
        return _expected_of_experts(how, dtype, rank, count)
    if how in BACK:
        x, ids = made(rank, "tokens", dtype, TOKENS, INNER).double(), chosen(rank, count)
        scales = made(rank, "scales", "float32", TOKENS, CHOSEN).abs().double() * (ids + 1)
        exact, size = x * scales.sum(1, keepdim=True), x.abs() * scales.sum(1, keepdim=True)
        results = _limit([exact], [size], dtype, CHOSEN)
        return _normalized(results, rank, dtype) if how == NORMALIZED else results
    both = [list(each) for each in zip(*_products(how, dtype, count), strict=True)]
    if how == "npu_mm_reduce_scatter_base":
        both = [[each.chunk(count)[rank] for each in some] for some in both]
    elif how == "npu_matmul_all_to_all":
        both = [[torch.cat([each.chunk(count, 1)[rank] for each in some])] for some in both]
    elif how != "npu_mm_all_reduce_base":
        both = [[some[rank]] for some in both]
    return _limit(both[0], both[1], dtype, _inner(how, count))


def _expected_of_experts(how: str, dtype: str, rank: int, count: int) -> Expected:
    forth, pieces = how == "npu_alltoallv_gmm", []
    to_here = [(s, rank, e) for e in range(EXPERTS) for s in range(count)]
    from_here = [(rank, t, e) for t in range(count) for e in range(EXPERTS)]
    for source, target, expert in to_here if forth else from_here:
        order = [(source, t, e) for t in range(count) for e in range(EXPERTS)]
        if not forth:
            order = [(s, target, e) for e in range(EXPERTS) for s in range(count)]
        sizes = [counts(s, t, count)[e] for s, t, e in order]
        blocks = torch.split(made(source if forth else target, "rows", dtype, sum(sizes), INNER), sizes)
        rows = blocks[order.index((source, target, expert))].double()
        weight = made(target, "weight", dtype, EXPERTS, INNER, COLUMNS)[expert].double()
        pieces.append((rows @ weight, rows.abs() @ weight.abs()))
    exact, size = (torch.cat(each) for each in zip(*pieces, strict=True))
    return _limit([exact], [size], dtype, INNER)
