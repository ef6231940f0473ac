"""Data sharded between ranks, calls that must be rejected, and failing ranks."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import time
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.utils.data import DistributedSampler

from pytest_ascend.device import Device
from pytest_ascend.distributed.ranks import Place, RankFailed, Ranks
from pytest_ascend.records.case import Case, Measure
from pytest_ascend.run.comparing import refusal

from . import DATA, FAILURE, REFUSAL


def shard(place: Place, length: int, epoch: int, skip: int = 0) -> dict[str, Any]:
    data = torch.utils.data.TensorDataset(torch.arange(length))
    sampler: DistributedSampler[Any] = DistributedSampler(data, place.count, place.rank, shuffle=True, seed=7)
    sampler.set_epoch(epoch)
    batches = torch.utils.data.DataLoader(data, batch_size=3, sampler=sampler)
    parts = [each.to(place.device) for (each,) in itertools.islice(batches, skip, None)]
    return {"indices": torch.cat(parts) if parts else torch.zeros(0, dtype=torch.int64)}


@pytest.mark.ascend_cases("distributed", DATA)
def test_data(case: Case, _ascend_ranks: Ranks, ascend_measure: Measure) -> None:
    count = _ascend_ranks.count
    length = 24 * count + (1 if case.subject == "uneven-length" else 0)

    def indices(epoch: int, skip: int = 0) -> list[list[int]]:
        return [each["indices"].tolist() for each in _ascend_ranks.run(shard, length=length, epoch=epoch, skip=skip)]

    first = indices(0)
    ascend_measure("elements", sum(map(len, first)))
    assert len({len(each) for each in first}) == 1, f"shards have different lengths: {list(map(len, first))}"
    flat = [each for part in first for each in part]
    assert set(flat) == set(range(length)), "elements are missing"
    assert len(flat) - length < count, "more elements are given twice than have to be"
    if case.subject == "epochs-differ":
        assert indices(1) != first, "two epochs have the same order"
    assert indices(0) == first, "the same epoch has another order"
    if case.subject == "resumed":
        assert indices(0, skip=2) == [part[6:] for part in first], "what is resumed does not go on where it was"


# --- calls that must be rejected: an error on every rank, with HCCL's message, and no result ---


def refused(place: Place, how: str) -> dict[str, Any]:
    group, last = dist.new_group(list(range(place.count))), place.rank == place.count - 1
    is_twice = how == "same-card-twice"
    device = torch.device("npu:0") if is_twice else place.device
    with torch.npu.device(device) if is_twice else contextlib.nullcontext():  # type: ignore[attr-defined]
        x = torch.ones(8, device=device)
        error = refusal(lambda: (REFUSED[how](x, group, place.count, last), x.cpu()), device)
    return {"said": str(error or "")}


_OPS = (dist.ReduceOp.SUM, dist.ReduceOp.MAX)
#: Forbidden call -> how to make it, with eight numbers, a group, its size, and whether this is its last rank.
REFUSED: Mapping[str, Callable[[torch.Tensor, Any, int, bool], object]] = {
    "float64-sum": lambda x, group, *_: dist.all_reduce(x.cpu().double().to(x.device), group=group),
    "int16-product": lambda x, group, *_: dist.all_reduce(x.short(), dist.ReduceOp.PRODUCT, group=group),
    "bitwise-operation": lambda x, group, *_: dist.all_reduce(x.int(), dist.ReduceOp.BXOR, group=group),
    "other-dtype": lambda x, group, _, last: dist.all_reduce(x.half() if last else x, group=group),
    "other-size": lambda x, group, _, last: dist.all_reduce(x[:4].clone() if last else x, group=group),
    "other-operation": lambda x, group, _, last: dist.all_reduce(x, _OPS[last], group=group),
    "other-collective": lambda x, group, count, last: (
        dist.all_gather_into_tensor(x.new_empty(8 * count), x, group=group) if last else dist.all_reduce(x, group=group)
    ),
    "other-root": lambda x, group, _, last: dist.broadcast(x, int(last), group=group),
    "no-such-root": lambda x, group, count, _: dist.broadcast(x, count, group=group),
    "same-card-twice": lambda x, group, *_: dist.all_reduce(x, group=group),
    "strided": lambda x, group, *_: dist.all_reduce(x.repeat(8, 1).T[::2], group=group),
}

#: Forbidden call -> parts of messages, one of which must occur.
WORDS = {
    "float64-sum": ("kDouble", "Unsupported data type", "EI0003"),
    "int16-product": ("EI0003", "not support", "error code is 5"),
    "bitwise-operation": ("BXOR",),
    "no-such-root": ("not part of group", "not in group", "Invalid root", "EI0003"),
    "same-card-twice": ("EI0014", "duplicate"),
    "strided": ("contiguous",),
    "": ("EI0005", "inconsistent"),
}


@pytest.mark.ascend_cases("distributed", REFUSAL)
def test_refusal(case: Case, _ascend_ranks: Ranks) -> None:
    answers = [each["said"] for each in _ascend_ranks.run(refused, how=case.subject)]
    words = WORDS.get(case.subject, WORDS[""])
    for rank, message in enumerate(answers):
        assert message, f"rank {rank} was given a result"
        assert any(word in message for word in words), f"rank {rank} says something else: {message}"


# --- a failing rank ends the call, and is named ---


def failing(place: Place, how: str, victim: int) -> dict[str, Any]:
    x = torch.ones(1000, device=place.device)
    dist.all_reduce(x)
    x.cpu()
    group = dist.new_group(list(range(place.count))) if how == "rank-never-joins" else None
    if place.rank == victim:
        if how == "rank-dies":
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "rank-raises":
            raise ValueError("this rank gives up")
        time.sleep(3600)
    dist.all_reduce(x, group=group)
    x.cpu()
    return {}


def working(place: Place) -> dict[str, Any]:
    x = torch.ones(3, device=place.device)
    dist.all_reduce(x)
    return {"sum": x}


#: Seconds for a call in which a rank fails; the others wait for half of them. Emulated cards answer at once.
LIMIT_S = {False: 20.0, True: 12.0}

#: A failure -> the error code by which HCCL reports it to the other ranks.
CODES = {"rank-dies": "EI0002", "rank-hangs": "EI0002", "rank-never-joins": "EI0006"}


@pytest.mark.ascend_cases("distributed", FAILURE)
def test_failure(case: Case, _ascend_ranks: Ranks, ascend_measure: Measure, _ascend_device: Device) -> None:
    count, began = _ascend_ranks.count, time.monotonic()
    with pytest.raises(RankFailed) as caught:
        _ascend_ranks.run(failing, how=case.subject, victim=count - 1, limit_s=LIMIT_S[_ascend_device.emulated])
    ascend_measure("seconds", time.monotonic() - began)
    assert caught.value.rank == count - 1, f"rank {caught.value.rank} is blamed: {caught.value}"
    code = CODES.get(case.subject, "")
    assert code in caught.value.detail, f"the other ranks do not say {code}: {caught.value.detail}"
    assert [each["sum"].tolist() for each in _ascend_ranks.run(working)] == [[float(count)] * 3] * count
