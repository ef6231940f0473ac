"""The ranks' part in a collective, and the expected results, computed from every rank's input."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from pytest_ascend.distributed.ranks import Place

from ..runtime.rows import deterministic
from . import REDUCTIONS

T = torch.Tensor

#: Sizes in elements: none, one, less than a vector, an ordinary bucket, and more than any intermediate buffer.
SIZES = {"empty": 0, "one": 1, "few": 17, "many": 1003, "large": 600_011}
OPERATIONS = {"sum": "SUM", "product": "PRODUCT", "max": "MAX", "min": "MIN", "average": "AVG"}


def sent(rank: int, size: int, dtype: str, operation: str = "") -> T:
    """Return a rank's input: integers whose sum over 16 ranks fits the dtype, and needs more bits than floats have."""
    generator = torch.Generator().manual_seed(rank)
    of = getattr(torch, dtype)
    if of is torch.bool:
        return torch.randint(0, 2, (size,), generator=generator).bool()
    if not of.is_floating_point:
        largest = torch.iinfo(of).max // 17
        drawn = torch.randint(1 if of is torch.uint8 else -largest, largest, (size,), generator=generator)
        return (drawn.sign() if operation == "product" else drawn).to(of)
    return torch.randn(size, generator=generator).to(of)


@dataclass(frozen=True, slots=True)
class Members:
    """A group of ranks: this rank's number, all ranks in the world, and how (``mode``) they call collectives."""

    rank: int
    ranks: Sequence[int]
    device: torch.device
    group: Any = None
    mode: str = ""

    @property
    def count(self) -> int:
        return len(self.ranks)

    def __call__(self, collective: Callable[..., Any], *given: Any) -> None:
        """Run a collective. If asynchronous, do other work before waiting for it; if captured, replay it once."""
        if self.mode == "captured":
            npu: Any = torch.npu  # type: ignore[attr-defined]  # of torch_npu
            graph = npu.NPUGraph()
            dist.all_reduce(torch.zeros(1, device=self.device), group=self.group)  # creates the communicator
            npu.synchronize()
            with npu.graph(graph):
                collective(*given, group=self.group)
            graph.replay()
            npu.synchronize()
            return
        work = collective(*given, group=self.group, async_op=self.mode == "async")
        if self.mode == "async":
            torch.ones(64, 64, device=self.device).matmul(torch.ones(64, 64, device=self.device))
            work.wait()


def members_of(subject: str, count: int) -> dict[str, list[int]]:
    """Return the ranks of each group by name: all, or overlapping pairs of neighbours and then all again."""
    pairs = [sorted([first, (first + 1) % count]) for first in range(count if count > 2 else 1)]
    named = {f"group {index}": ranks for index, ranks in enumerate(pairs)} if subject.endswith(".subgroups") else {}
    return {**named, "all": list(range(count))}


def run(place: Place, how: str, dtype: str) -> dict[str, Any]:
    """Run a collective in each of its groups on every size; return this rank's results, by group and size."""
    collective, _, operation = how.partition(".")
    mode, found = how.rpartition(".")[2], {}
    if mode == "coalesced":
        return _coalesced(place, collective, dtype)
    if mode == "deterministic":
        with deterministic():
            for again in range(6):
                found[f"all, time {again}"] = x = sent(place.rank, SIZES["many"], dtype).to(place.device)
                dist.all_reduce(x)
        return found
    if collective == "reduce_scatter":
        shares = [3 + each for each in range(place.count)]
        parts = [each.to(place.device) for each in torch.split(sent(place.rank, sum(shares), dtype), shares)]
        out = torch.empty(shares[place.rank], dtype=getattr(torch, dtype), device=place.device)
        dist.reduce_scatter(out, parts)
        return {"all, uneven": out}
    members = members_of(how, place.count)
    # Every rank has to create all groups.
    groups = {name: dist.new_group(ranks) if name != "all" else None for name, ranks in members.items()}
    for group, ranks in members.items():
        if place.rank not in ranks:
            continue
        us = Members(ranks.index(place.rank), ranks, place.device, groups[group], mode)
        for name, size in SIZES.items():
            key = f"{group}, {name}"
            if name == "large" and dtype != "float32" and collective != "reduce_scatter_tensor":
                continue
            if how in REDUCTIONS:
                length = size * us.count if collective == "reduce_scatter_tensor" else size
                out = x = sent(place.rank, length, dtype, operation).to(place.device)
                if collective == "reduce_scatter_tensor":
                    out = x.new_empty(size)
                given = {"reduce_scatter_tensor": (out, x), "reduce": (x, ranks[-1])}.get(collective, (x,))
                us(getattr(dist, collective), *given, getattr(dist.ReduceOp, OPERATIONS.get(operation, "SUM")))
                found[key] = out
            elif size:
                found[key] = MOVES[what(how)](us, sent(place.rank, size, dtype).to(place.device))
    return found


def _coalesced(place: Place, collective: str, dtype: str) -> dict[str, Any]:
    from torch.distributed.distributed_c10d import _coalescing_manager

    shared, found = place.count if collective.startswith("reduce_scatter") else 1, {}
    given = {name: sent(place.rank, size * shared, dtype).to(place.device) for name, size in SIZES.items() if size}
    with _coalescing_manager(device=place.device, async_ops=True) as works:
        for name, x in given.items():
            if collective.startswith("all_gather"):
                dist.all_gather_into_tensor(out := x.new_empty(x.numel() * place.count), x)
            elif shared > 1:
                dist.reduce_scatter_tensor(out := x.new_empty(SIZES[name]), x)
            else:
                dist.all_reduce(out := x)
            found[f"all, {name}"] = out
    works.wait()
    return found


# --- moving data: each takes a rank's data, and returns what the rank has afterwards ---


def _gathered(us: Members, x: T) -> T:
    us(dist.all_gather_into_tensor, out := x.new_empty(us.count * x.numel()), x)
    return out


def _gathered_as_list(us: Members, x: T, *, uneven: bool = False) -> T:
    sizes = [x.numel() - (each if uneven and x.numel() > us.count else 0) for each in range(us.count)]
    us(dist.all_gather, out := [x.new_empty(size) for size in sizes], x[: sizes[us.rank]].contiguous())
    return torch.cat(out)


def _gathered_strided(us: Members, x: T) -> T:
    rows = 17 if x.numel() % 17 == 0 else 1
    out = [x.new_empty(x.numel() // rows, rows).T for _ in range(us.count)]  # column-major
    us(dist.all_gather, out, x.view(rows, -1))
    return torch.cat([each.contiguous().view(-1) for each in out])


def _broadcast(us: Members, x: T) -> T:
    out = [x.clone() for _ in us.ranks]
    for root, each in zip(us.ranks, out, strict=True):
        us(dist.broadcast, each, root)
    return torch.cat(out)


def _scatter(us: Members, x: T) -> T:
    root, out = us.count - 1, torch.empty_like(x)
    whole = [x + each if x.dtype is not torch.bool else x ^ bool(each % 2) for each in range(us.count)]
    us(dist.scatter, out, whole if us.rank == root else None, us.ranks[root])
    return out


def _gather(us: Members, x: T) -> T:
    out = [torch.empty_like(x) for _ in range(us.count)] if us.rank == 0 else None
    us(dist.gather, x, out, us.ranks[0])
    return torch.cat(out) if out else x[:0]


def uneven_counts(count: int, size: int) -> list[list[int]]:
    """Return the number of elements that each rank (row) sends to each (column)."""
    return [[(3 * a + b) % 5 if size > 5 else int(size > 0) for b in range(count)] for a in range(count)]


def _to_all(us: Members, x: T, *, uneven: bool = False) -> T:
    whole = torch.cat([x] * us.count)
    out, send, receive = torch.empty_like(whole), None, None
    if uneven:
        counts = uneven_counts(us.count, x.numel())
        send, receive = counts[us.rank], [row[us.rank] for row in counts]
        whole, out = whole[: sum(send)].contiguous(), x.new_empty(sum(receive))
    us(dist.all_to_all_single, out, whole, receive, send)
    return out


def _to_all_list(us: Members, x: T) -> T:
    out = [torch.empty_like(x) for _ in range(us.count)]
    us(dist.all_to_all, out, [x.clone() for _ in range(us.count)])
    return torch.cat(out)


def _ring(us: Members, x: T, way: str) -> T:
    out, blocks = torch.empty_like(x), way == "blocking"
    send: tuple[Any, ...] = (dist.send if blocks else dist.isend, x, us.ranks[(us.rank + 1) % us.count], us.group)
    receive: tuple[Any, ...] = (dist.recv if blocks else dist.irecv, out, us.ranks[us.rank - 1], us.group)
    # In the order in which pairs of ranks meet: torch_npu creates a communicator per pair, and both wait for it.
    pair = (send, receive) if us.rank % 2 == 0 else (receive, send)
    if way == "batched":
        works = dist.batch_isend_irecv([dist.P2POp(*send), dist.P2POp(*receive)])
    else:
        works = [call(*given) for call, *given in pair]
    for work in () if blocks else works:
        work.wait()
    return out


MOVES: Mapping[str, Callable[[Members, T], T]] = {
    "all_gather_into_tensor": _gathered,
    "all_gather": _gathered_as_list,
    "all_gather.uneven": lambda us, x: _gathered_as_list(us, x, uneven=True),
    "all_gather.strided": _gathered_strided,
    "broadcast": _broadcast,
    "scatter": _scatter,
    "gather": _gather,
    "all_to_all_single": _to_all,
    "all_to_all_single.uneven": lambda us, x: _to_all(us, x, uneven=True),
    "all_to_all": _to_all_list,
    "send_recv.ring": lambda us, x: _ring(us, x, "blocking"),
    "isend_irecv.ring": lambda us, x: _ring(us, x, "started"),
    "batch_isend_irecv": lambda us, x: _ring(us, x, "batched"),
}


def what(subject: str) -> str:
    return subject.removesuffix(".subgroups").removesuffix(".async").removesuffix(".captured")


def objects(place: Place, how: str) -> dict[str, Any]:
    mine = {"rank": place.rank, "text": "x" * (10 + 1000 * place.rank)}
    found: list[Any] = [None] * place.count
    if how == "all_gather_object":
        dist.all_gather_object(found, mine)
    elif how == "broadcast_object_list":
        dist.broadcast_object_list(found := [mine], place.count - 1)
    else:  # the last rank arrives late, and no other leaves before
        time.sleep(0.05 * (place.rank == place.count - 1))
        found = [time.monotonic()]
        dist.barrier()
        found.append(time.monotonic())
    return {"found": found}


# --- expected results, in float64 or integers, from all ranks' inputs; and their allowed error ---


#: A rank's input, cached for judges, which must not change it: each of 16 ranks needs the inputs of all ranks.
known = functools.lru_cache(maxsize=16)(sent)


@functools.lru_cache(maxsize=2)
def expected_sum(operation: str, dtype: str, size: int, ranks: tuple[int, ...]) -> tuple[T, T]:
    return expected_reduction([known(each, size, dtype, operation) for each in ranks], operation)


def expected_reduction(parts: Sequence[T], operation: str) -> tuple[T, T]:
    """Return the result in float64 or int64, and its allowed error.

    A sum of n numbers, with each step rounded to u, is within (n - 1) u of the sum of their magnitudes, in any order
    (N. J. Higham, Accuracy and Stability of Numerical Algorithms, section 4.2); a product within n u of itself; a mean
    is rounded once more. Denormal results are within half the dtype's smallest step.
    """
    dtype = parts[0].dtype
    wide = torch.stack(list(parts)).to(torch.float64 if dtype.is_floating_point else torch.int64)
    names = {"average": "mean", "product": "prod", "max": "amax", "min": "amin"}
    made: T = getattr(wide, names.get(operation, "sum"))(0)
    if not dtype.is_floating_point or operation in ("max", "min"):
        return made, torch.zeros_like(made, dtype=torch.float64)
    info, n = torch.finfo(dtype), len(parts)
    size = made.abs() if operation == "product" else wide.abs().sum(0) / (n if operation == "average" else 1)
    return made, 1.01 * n * info.eps / 2 * size + n * info.smallest_normal * info.eps


def worst(actual: T, expected: T, allowed: T) -> float:
    """Return the largest error as a share of the allowed one; infinite if a result that must be exact is not."""
    if actual.shape != expected.shape:
        return float("inf")
    if not actual.numel():
        return 0.0
    if not expected.is_floating_point():
        return 0.0 if torch.equal(actual.to(expected.dtype), expected) else float("inf")
    error = (actual.to(torch.float64) - expected.to(torch.float64)).abs()
    return float(torch.where(error == 0, 0.0, error / allowed).nan_to_num(torch.inf, torch.inf).max())


def expected_after(how: str, dtype: str, size: int, rank: int, ranks: Sequence[int]) -> T:
    """Return a rank's exact result after data moved between ranks."""
    all_sent, count, mine = [known(each, size, dtype) for each in ranks], len(ranks), ranks.index(rank)
    if how == "all_gather.uneven":
        return torch.cat([each[: size - index] if size > count else each for index, each in enumerate(all_sent)])
    if how == "gather":
        return torch.cat(all_sent) if mine == 0 else all_sent[0][:0]
    if how == "scatter":
        root = all_sent[-1]
        return root ^ bool(mine % 2) if root.dtype is torch.bool else root + mine
    if how == "all_to_all_single.uneven":
        pairs = zip(all_sent, uneven_counts(count, size), strict=True)
        return torch.cat([torch.split(torch.cat([x] * count)[: sum(sizes)], sizes)[mine] for x, sizes in pairs])
    is_ring = how.endswith(".ring") or how == "batch_isend_irecv"
    return all_sent[mine - 1] if is_ring else torch.cat(all_sent)
