"""What ranks do in a collective, and what has to come out: by definition, from what each of them sent."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist

from pytest_ascend.distributed.rank import Place

T = torch.Tensor

#: Sizes, in elements: none, one, what fills no vector, an ordinary bucket, and more than any buffer in between.
SIZES = {"empty": 0, "one": 1, "few": 17, "many": 1003, "large": 600_011}
OPERATIONS = {"sum": "SUM", "product": "PRODUCT", "max": "MAX", "min": "MIN", "average": "AVG"}


def sent(rank: int, size: int, dtype: str, seed: int = 0) -> T:
    """Return what a rank puts in: small numbers, so that no integer overflows, and no two ranks' alike."""
    generator = torch.Generator().manual_seed(1000 * seed + rank)
    of = getattr(torch, dtype)
    if of is torch.bool:
        return torch.randint(0, 2, (size,), generator=generator).bool()
    if not of.is_floating_point:
        return torch.randint(1 if of is torch.uint8 else -5, 6, (size,), generator=generator).to(of)
    return torch.randn(size, generator=generator).to(of)


def _inputs(place: Place, dtype: str, large: bool) -> dict[str, T]:
    made = {name: sent(place.rank, size, dtype).to(place.device) for name, size in SIZES.items()}
    if not large:
        del made["large"]
    return made


def reduced(place: Place, how: str, dtype: str, large: bool = True) -> dict[str, Any]:
    """Run all_reduce or reduce, in place, on every size."""
    collective, _, operation = how.partition(".")
    op = getattr(dist.ReduceOp, OPERATIONS.get(operation, "SUM"))
    found = _inputs(place, dtype, large)
    works = []
    for each in found.values():
        if collective == "reduce":
            dist.reduce(each, place.count - 1, op)
        elif operation == "async":
            works.append(dist.all_reduce(each, op, async_op=True))
        else:
            dist.all_reduce(each, op)
    for work in works:
        work.wait()
    return found


def coalesced(place: Place, dtype: str) -> dict[str, Any]:
    found = {name: sent(place.rank, size, dtype).to(place.device) for name, size in SIZES.items() if size}
    dist.all_reduce_coalesced(list(found.values()))
    return found


def repeated(place: Place, dtype: str) -> dict[str, Any]:
    """Sum the same thing again and again, with deterministic algorithms asked for."""
    torch.use_deterministic_algorithms(True)
    try:
        found = {}
        for again in range(6):
            found[f"time {again}"] = x = sent(place.rank, SIZES["many"], dtype).to(place.device)
            dist.all_reduce(x)
    finally:
        torch.use_deterministic_algorithms(False)
    return found


def in_subgroups(place: Place, dtype: str) -> dict[str, Any]:
    """Sum within groups of neighbours that overlap, and within all."""
    found, groups = {}, [[first, (first + 1) % place.count] for first in range(place.count)]
    for index, ranks in enumerate(groups if place.count > 2 else groups[:1]):
        group = dist.new_group(sorted(ranks))
        if place.rank in ranks:
            found[f"group {index}"] = x = sent(place.rank, SIZES["many"], dtype).to(place.device)
            dist.all_reduce(x, group=group)
    found["all"] = x = sent(place.rank, SIZES["many"], dtype).to(place.device)
    dist.all_reduce(x)
    return found


def scattered(place: Place, how: str, dtype: str) -> dict[str, Any]:
    """Run reduce_scatter on even shares of every size, or on uneven ones."""
    collective, _, operation = how.partition(".")
    if collective == "reduce_scatter":
        sizes = [3 + each for each in range(place.count)]
        parts = [each.to(place.device) for each in torch.split(sent(place.rank, sum(sizes), dtype), sizes)]
        out = torch.empty(sizes[place.rank], dtype=getattr(torch, dtype), device=place.device)
        dist.reduce_scatter(out, parts)
        return {"uneven": out}
    found = {}
    for name, size in SIZES.items():
        whole = sent(place.rank, size * place.count, dtype).to(place.device)
        found[name] = torch.empty(size, dtype=whole.dtype, device=place.device)
        dist.reduce_scatter_tensor(found[name], whole, getattr(dist.ReduceOp, OPERATIONS[operation]))
    return found


# --- moving data: each takes what a rank has, and returns what it has to have afterwards ---


def _gathered(place: Place, x: T) -> T:
    out = torch.empty(place.count * x.numel(), dtype=x.dtype, device=x.device)
    dist.all_gather_into_tensor(out, x)
    return out


def _gathered_as_list(place: Place, x: T, *, uneven: bool = False) -> T:
    mine = x[: x.numel() - place.rank] if uneven and x.numel() > place.count else x
    sizes = [x.numel() - each if uneven and x.numel() > place.count else x.numel() for each in range(place.count)]
    out = [torch.empty(size, dtype=x.dtype, device=x.device) for size in sizes]
    dist.all_gather(out, mine.contiguous())
    return torch.cat(out)


def _gathered_strided(place: Place, x: T) -> T:
    """Gather into matrices that lie in memory by columns."""
    rows = 17 if x.numel() % 17 == 0 else 1
    out = [torch.empty(x.numel() // rows, rows, dtype=x.dtype, device=x.device).T for _ in range(place.count)]
    dist.all_gather(out, x.view(rows, -1))
    return torch.cat([each.contiguous().view(-1) for each in out])


def _broadcast(place: Place, x: T) -> T:
    out = []
    for root in range(place.count):
        y = x.clone()
        dist.broadcast(y, root)
        out.append(y)
    return torch.cat(out)


def _scatter(place: Place, x: T) -> T:
    root, out = place.count - 1, torch.empty_like(x)
    whole = [x + each if x.dtype is not torch.bool else x ^ bool(each % 2) for each in range(place.count)]
    dist.scatter(out, whole if place.rank == root else None, root)
    return out


def _gather(place: Place, x: T) -> T:
    out = [torch.empty_like(x) for _ in range(place.count)] if place.rank == 0 else None
    dist.gather(x, out, 0)
    return torch.cat(out) if out else x[:0]


def _to_all(place: Place, x: T) -> T:
    whole = torch.cat([x] * place.count)
    out = torch.empty_like(whole)
    dist.all_to_all_single(out, whole)
    return out


def uneven_counts(count: int, size: int) -> list[list[int]]:
    """Return how much each rank (row) sends to each (column)."""
    return [[(3 * a + b) % 5 if size > 5 else int(size > 0) for b in range(count)] for a in range(count)]


def _to_all_uneven(place: Place, x: T) -> T:
    counts = uneven_counts(place.count, x.numel())
    send, receive = counts[place.rank], [row[place.rank] for row in counts]
    whole = torch.cat([x] * place.count)[: sum(send)].contiguous()
    out = torch.empty(sum(receive), dtype=x.dtype, device=x.device)
    dist.all_to_all_single(out, whole, receive, send)
    return out


def _to_all_list(place: Place, x: T) -> T:
    out = [torch.empty_like(x) for _ in range(place.count)]
    dist.all_to_all(out, [x.clone() for _ in range(place.count)])
    return torch.cat(out)


def _ring(place: Place, x: T) -> T:
    after, before, out = (place.rank + 1) % place.count, (place.rank - 1) % place.count, torch.empty_like(x)
    if place.rank % 2 == 0:
        dist.send(x, after)
        dist.recv(out, before)
    else:
        dist.recv(out, before)
        dist.send(x, after)
    return out


def _ring_async(place: Place, x: T) -> T:
    after, before, out = (place.rank + 1) % place.count, (place.rank - 1) % place.count, torch.empty_like(x)
    # In the order in which pairs of ranks meet: torch_npu makes a communicator of each pair, and waits for both.
    calls = [lambda: dist.isend(x, after), lambda: dist.irecv(out, before)]
    for work in [call() for call in (calls if place.rank % 2 == 0 else reversed(calls))]:  # type: ignore[no-untyped-call]
        if work is not None:
            work.wait()
    return out


def _ring_batched(place: Place, x: T) -> T:
    after, before, out = (place.rank + 1) % place.count, (place.rank - 1) % place.count, torch.empty_like(x)
    for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, x, after), dist.P2POp(dist.irecv, out, before)]):
        work.wait()
    return out


MOVES: Mapping[str, Callable[[Place, T], T]] = {
    "all_gather_into_tensor": _gathered,
    "all_gather": _gathered_as_list,
    "all_gather.uneven": lambda place, x: _gathered_as_list(place, x, uneven=True),
    "all_gather.strided": _gathered_strided,
    "broadcast": _broadcast,
    "scatter": _scatter,
    "gather": _gather,
    "all_to_all_single": _to_all,
    "all_to_all_single.uneven": _to_all_uneven,
    "all_to_all": _to_all_list,
    "send_recv.ring": _ring,
    "isend_irecv.ring": _ring_async,
    "batch_isend_irecv": _ring_batched,
}


def moved(place: Place, how: str, dtype: str, large: bool = True) -> dict[str, Any]:
    sizes = {name: size for name, size in SIZES.items() if size and (large or name != "large")}
    return {name: MOVES[how](place, sent(place.rank, size, dtype).to(place.device)) for name, size in sizes.items()}


def objects(place: Place, how: str) -> dict[str, Any]:
    mine = {"rank": place.rank, "text": "x" * (10 + 1000 * place.rank)}
    if how == "all_gather_object":
        found: list[Any] = [None] * place.count
        dist.all_gather_object(found, mine)
        return {"found": found}
    if how == "broadcast_object_list":
        given = [mine]
        dist.broadcast_object_list(given, place.count - 1)
        return {"found": given}
    before = torch.zeros(1, device=place.device)
    dist.barrier()
    return {"found": [float(before)]}


# --- what has to come out, in float64 or integers, from what all ranks sent; and how far off it may be ---


def size_of(name: str) -> int:
    return SIZES.get(name, SIZES["many"])


def expected_reduction(parts: Sequence[T], operation: str) -> tuple[T, T]:
    """Return the result in float64 or int64, and how far a result may be off.

    A sum of n numbers, each step rounded to u, is within (n - 1) u of the sum of their magnitudes, in whatever order
    (N. J. Higham, Accuracy and Stability of Numerical Algorithms, section 4.2); a product within n u of itself; a mean
    is rounded once more. What is smaller than the dtype's least step is within half of that.
    """
    dtype = parts[0].dtype
    wide = torch.stack(list(parts)).to(torch.float64 if dtype.is_floating_point else torch.int64)
    made = {
        "SUM": lambda: wide.sum(0),
        "AVG": lambda: wide.mean(0),
        "PRODUCT": lambda: wide.prod(0),
        "MAX": lambda: wide.amax(0),
        "MIN": lambda: wide.amin(0),
    }[OPERATIONS.get(operation, "SUM")]()
    if not dtype.is_floating_point or operation in ("max", "min"):
        return made, torch.zeros_like(made, dtype=torch.float64)
    info, n = torch.finfo(dtype), len(parts)
    unit = info.eps / 2
    if operation == "product":
        return made, 1.01 * n * unit * made.abs() + n * info.smallest_normal * info.eps
    size = wide.abs().sum(0) / (n if operation == "average" else 1)
    return made, 1.01 * n * unit * size + n * info.smallest_normal * info.eps


def worst(actual: T, expected: T, allowed: T) -> float:
    """Return the largest error, as a share of what is allowed; infinite where any is off that had to be exact."""
    if actual.shape != expected.shape:
        return float("inf")
    if not actual.numel():
        return 0.0
    error = (actual.to(torch.float64) - expected.to(torch.float64)).abs()
    share = torch.where(error == 0, torch.zeros_like(error), error / allowed)
    return float(torch.where(share.isnan(), torch.full_like(share, float("inf")), share).max())


def expected_after(how: str, dtype: str, name: str, rank: int, count: int) -> T:
    """Return what a rank has to have after a movement, bit for bit."""
    size = SIZES[name]
    all_sent = [sent(each, size, dtype) for each in range(count)]
    if how in (
        "all_gather_into_tensor",
        "all_gather",
        "all_gather.strided",
        "broadcast",
        "all_to_all_single",
        "all_to_all",
    ):
        return torch.cat(all_sent)
    if how == "all_gather.uneven":
        cut = [each[: size - index] if size > count else each for index, each in enumerate(all_sent)]
        return torch.cat(cut)
    if how == "gather":
        return torch.cat(all_sent) if rank == 0 else all_sent[0][:0]
    if how == "scatter":
        root = all_sent[count - 1]
        return root ^ bool(rank % 2) if root.dtype is torch.bool else root + rank
    if how == "all_to_all_single.uneven":
        counts, parts = uneven_counts(count, size), []
        for other, each in enumerate(all_sent):
            start = sum(counts[other][:rank])
            parts.append(torch.cat([each] * count)[start : start + counts[other][rank]])
        return torch.cat(parts)
    return all_sent[(rank - 1) % count]  # a ring


def expected_share(operation: str, dtype: str, name: str, rank: int, count: int) -> tuple[T, T]:
    size = SIZES[name]
    parts = [sent(each, size * count, dtype)[rank * size : (rank + 1) * size] for each in range(count)]
    return expected_reduction(parts, operation)
