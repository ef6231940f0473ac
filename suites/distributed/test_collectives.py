"""Collectives against their definition, computed from every rank's input."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

from pytest_ascend.device import Device
from pytest_ascend.distributed.ranks import Answer, Ranks
from pytest_ascend.performance.timing import shares_the_host
from pytest_ascend.records.case import Case, Measure
from pytest_ascend.run.comparing import PrecisionCompare

from . import CARDS, COLLECTIVE, OBJECTS, PRODUCT, REDUCTIONS, SPEED, cards, collectives, products, speed


@pytest.mark.ascend_cases("distributed", COLLECTIVE)
def test_collective(
    case: Case, _ascend_ranks: Ranks, precision_compare: PrecisionCompare, ascend_measure: Measure
) -> None:
    count = _ascend_ranks.count
    if case.subject in OBJECTS:
        found = [each["found"] for each in _ascend_ranks.run(collectives.objects, how=case.subject)]
        if case.subject == "barrier":
            came, left = zip(*found, strict=True)
            early = [rank for rank in range(count) if left[rank] < max(came)]
            assert not early, f"ranks {early} of {count} leave the barrier before the last one has come"
            return
        made = [{"rank": rank, "text": "x" * (10 + 1000 * rank)} for rank in range(count)]
        wanted = made if case.subject == "all_gather_object" else made[-1:]
        assert found == [wanted] * count, f"{case.subject}: ranks have {found}"
        return
    answers = _ascend_ranks.run(collectives.run, how=case.subject, dtype=case.dtype)
    # Size by size, and rank by rank, since inputs are cached.
    names = dict.fromkeys(name for each in answers for name in each.tensors)
    results = [(name, rank) for name in names for rank, each in enumerate(answers) if name in each.tensors]
    if case.subject in REDUCTIONS:
        share, where = max(_share(case, answers, rank, name) for name, rank in results)
        ascend_measure("error_over_allowed", share)
        assert share <= 1, f"{case.subject} is off by {share:.3g} times what rounding allows: {where}"
        for name in names if case.family == "all_reduce" else ():
            first, *others = _part(case, name, count)[1]
            for rank in others:
                same = torch.equal(answers[rank].tensors[name], answers[first].tensors[name])
                assert same, f"rank {rank} has other bits than rank {first}: {name}"
        if case.subject == "all_reduce.deterministic":
            times = list(answers[0].tensors.values())
            assert all(torch.equal(each, times[0]) for each in times), "the same sum has other bits"
        return
    how, actual, moved = collectives.what(case.subject).removesuffix(".coalesced"), {}, {}
    for name, rank in results:
        size, members = _part(case, name, count)
        actual[f"rank {rank}, {name}"] = answers[rank].tensors[name]
        moved[f"rank {rank}, {name}"] = collectives.expected_after(how, case.dtype, size, rank, members)
    precision_compare(actual, moved, standard="binary", name=f"{case.subject} on {count} ranks:")


@pytest.mark.ascend_cases("distributed", CARDS)
def test_cards(case: Case, _ascend_ranks: Ranks) -> None:
    said = _ascend_ranks.run(cards.run, check=case.subject)[0]["said"]
    assert not said, said


@pytest.mark.ascend_cases("distributed", PRODUCT)
def test_product(case: Case, _ascend_ranks: Ranks, ascend_measure: Measure) -> None:
    count, answers = _ascend_ranks.count, _ascend_ranks.run(products.run, how=case.subject, dtype=case.dtype)
    wanted = (products.expected(case.subject, case.dtype, rank, count) for rank in range(count))
    shares = [collectives.worst(each["product"], *of) for each, of in zip(answers, wanted, strict=True)]
    ascend_measure("error_over_allowed", max(shares))
    rank = shares.index(max(shares))
    assert max(shares) <= 1, f"{case.subject} is off by {max(shares):.3g} times what rounding allows on rank {rank}"
    for rank, each in enumerate(answers if case.subject in products.EXCHANGED else ()):
        sent = products.factor(case.subject, case.dtype, rank, count)
        is_same = torch.equal(each["factor"], sent)
        assert is_same, f"{case.subject} returns another factor on rank {rank} than what the ranks sent"


@pytest.mark.ascend_cases("distributed", SPEED)
def test_speed(case: Case, _ascend_ranks: Ranks, _ascend_device: Device, ascend_measure: Measure) -> None:
    sizes = speed.HOST_BYTES if shares_the_host(_ascend_device) else speed.HARDWARE_BYTES
    answers = _ascend_ranks.run(speed.collective, how=case.subject, sizes=sizes)
    for name, value in speed.figures_of_collective(case.subject, sizes, [each["seconds"] for each in answers]):
        ascend_measure(name, value)


def _part(case: Case, name: str, count: int) -> tuple[int, list[int]]:
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
        mine, whole = members.index(rank), size * len(members)
        every = [collectives.known(each, whole, case.dtype, operation) for each in members]
        parts = [each[mine * size : (mine + 1) * size] for each in every]
        wanted, allowed = collectives.expected_reduction(parts, operation)
    else:
        wanted, allowed = collectives.expected_sum(operation, case.dtype, size, tuple(members))
    return collectives.worst(actual, wanted, allowed), where
