"""Collectives against their definition, from what each rank sends."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

from pytest_ascend.device import Device
from pytest_ascend.distributed.ranks import Answer, Ranks
from pytest_ascend.performance.timing import shares_the_host
from pytest_ascend.records.case import Case, Measure
from pytest_ascend.run.comparing import PrecisionCompare

from . import COLLECTIVE, OBJECTS, PRODUCT, REDUCTIONS, SPEED, collectives, products, speed


@pytest.mark.ascend_cases("distributed", COLLECTIVE)
def test_collective(
    case: Case, _ascend_ranks: tuple[Ranks, int], precision_compare: PrecisionCompare, ascend_measure: Measure
) -> None:
    ranks, count = _ascend_ranks
    ascend_measure("ranks", count)
    if case.subject in OBJECTS:
        found = [each["found"] for each in ranks.run(count, collectives.objects, how=case.subject)]
        made = [{"rank": rank, "text": "x" * (10 + 1000 * rank)} for rank in range(count)]
        wanted = {"all_gather_object": made, "broadcast_object_list": made[-1:]}.get(case.subject, [0.0])
        assert found == [wanted] * count, f"{case.subject}: ranks have {found}"
    elif case.subject not in REDUCTIONS:
        _moved(case, ranks, count, precision_compare)
    else:
        collective, _, operation = case.subject.partition(".")
        if operation == "coalesced":
            answers = ranks.run(count, collectives.coalesced, how=case.subject, dtype=case.dtype)
        elif operation == "deterministic":
            answers = ranks.run(count, collectives.repeated, dtype=case.dtype)
        elif collective.startswith("reduce_scatter"):
            answers = ranks.run(count, collectives.scattered, how=case.subject, dtype=case.dtype)
        else:
            large = case.dtype == "float32"
            answers = ranks.run(count, collectives.reduced, how=case.subject, dtype=case.dtype, large=large)
        shares = [_share(case, answers, rank, name) for name, rank in _results(answers)]
        ascend_measure("error_over_allowed", max(share for share, _ in shares))
        share, where = max(shares)
        assert share <= 1, f"{case.subject} is off by {share:.3g} times what rounding allows: {where}"
        if collective == "all_reduce":
            _same_bits(case, answers)


@pytest.mark.ascend_cases("distributed", PRODUCT)
def test_product(case: Case, _ascend_ranks: tuple[Ranks, int], ascend_measure: Measure) -> None:
    ranks, count = _ascend_ranks
    ascend_measure("ranks", count)
    answers = ranks.run(count, products.run, how=case.subject, dtype=case.dtype)
    wanted = (products.expected(case.subject, case.dtype, rank, count) for rank in range(count))
    shares = [collectives.worst(each["product"], *of) for each, of in zip(answers, wanted, strict=True)]
    ascend_measure("error_over_allowed", max(shares))
    rank = shares.index(max(shares))
    assert max(shares) <= 1, f"{case.subject} is off by {max(shares):.3g} times what rounding allows on rank {rank}"


@pytest.mark.ascend_cases("distributed", SPEED)
def test_speed(case: Case, _ascend_ranks: tuple[Ranks, int], _ascend_device: Device, ascend_measure: Measure) -> None:
    ranks, count = _ascend_ranks
    ascend_measure("ranks", count)
    sizes = speed.HOST_BYTES if shares_the_host(_ascend_device) else speed.HARDWARE_BYTES
    answers = ranks.run(count, speed.collective, how=case.subject, sizes=sizes)
    for name, value in speed.figures_of_collective(case.subject, sizes, [each["seconds"] for each in answers]):
        ascend_measure(name, value)


def _moved(case: Case, ranks: Ranks, count: int, compare: PrecisionCompare) -> None:
    large, how = case.dtype == "float32", collectives.what(case.subject)
    if how.endswith(".coalesced"):
        answers = ranks.run(count, collectives.coalesced, how=case.subject, dtype=case.dtype)
        how = how.removesuffix(".coalesced")
    else:
        answers = ranks.run(count, collectives.moved, how=case.subject, dtype=case.dtype, large=large)
    actual, wanted = {}, {}
    for name, rank in _results(answers):
        size, members = _part(case, name, count)
        actual[f"rank {rank}, {name}"] = answers[rank].tensors[name]
        wanted[f"rank {rank}, {name}"] = collectives.expected_after(how, case.dtype, size, rank, members)
    compare(actual, wanted, standard="binary", name=f"{case.subject} on {count} ranks:")


def _results(answers: Sequence[Answer]) -> list[tuple[str, int]]:
    """Return each result's name and rank, rank by rank, since inputs are cached."""
    names = dict.fromkeys(name for each in answers for name in each.tensors)
    return [(name, rank) for name in names for rank, each in enumerate(answers) if name in each.tensors]


def _part(case: Case, name: str, count: int) -> tuple[int, list[int]]:
    """Return the size of a named result, and its ranks."""
    group, _, size = name.partition(", ")
    return collectives.SIZES.get(size, collectives.SIZES["many"]), collectives.members_of(case.subject, count)[group]


def _share(case: Case, answers: Sequence[Answer], rank: int, name: str) -> tuple[float, str]:
    collective, _, operation = case.subject.partition(".")
    count, actual, where = len(answers), answers[rank].tensors[name], f"rank {rank} of {len(answers)}, {name}"
    size, members = _part(case, name, count)
    if collective == "reduce" and rank != members[-1]:
        return 0.0, where  # the other ranks' results are unspecified
    if collective == "reduce_scatter":
        shares = [3 + each for each in range(count)]
        parts = [torch.split(collectives.sent(each, sum(shares), case.dtype), shares)[rank] for each in members]
        wanted, allowed = collectives.expected_reduction(parts, "sum")
    elif collective == "reduce_scatter_tensor":
        wanted, allowed = collectives.expected_share(operation, case.dtype, size, rank, members)
    else:
        wanted, allowed = collectives.expected_sum(operation, case.dtype, size, tuple(members))
    return collectives.worst(actual, wanted, allowed), where


def _same_bits(case: Case, answers: Sequence[Answer]) -> None:
    """Every rank of a group gets the same bits, and with deterministic algorithms on every call."""
    for name in {name: None for each in answers for name in each.tensors}:
        first, *others = _part(case, name, len(answers))[1]
        for rank in others:
            same = torch.equal(answers[rank].tensors[name], answers[first].tensors[name])
            assert same, f"rank {rank} has other bits than rank {first}: {name}"
    if case.subject == "all_reduce.deterministic":
        times = list(answers[0].tensors.values())
        assert all(torch.equal(each, times[0]) for each in times), "the same sum has other bits"
