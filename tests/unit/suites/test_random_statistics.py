"""The judge of random numbers lets correct ones pass, and sees each way in which they may be wrong."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from suites.random import CASES, statistics
from suites.random.batteries import BATTERIES
from suites.random.drawings import DRAWINGS, Drawing
from suites.random.statistics import BLOCK, CASES_LIMIT, FALSE_ALARM, judge, repeated

COUNT = 16 * BLOCK + 17
#: How many numbers there are is part of the distribution of a permutation.
DRAWN_ON_CPU = [each for each in DRAWINGS if each.name not in ("random_.bool", "randperm")]


def uniform(seed: int) -> torch.Tensor:
    return torch.rand(COUNT, generator=torch.Generator().manual_seed(seed))


def probability(values: torch.Tensor) -> float:
    distribution = statistics.below_one()
    return judge(distribution.cell(values), distribution.probabilities).probability


def test_a_run_accuses_a_correct_generator_once_in_a_million_runs() -> None:
    assert sum(case.property in ("distribution", "battery") for case in CASES) <= CASES_LIMIT
    assert FALSE_ALARM * CASES_LIMIT <= 1e-6


def test_correct_numbers_are_as_improbable_as_they_say() -> None:
    found = [probability(uniform(seed)) for seed in range(40)]
    assert sum(each < 0.1 for each in found) < 12  # 4 are to be expected, at most
    assert min(found) > 1e-4


@pytest.mark.parametrize("drawing", DRAWN_ON_CPU, ids=lambda each: each.name)
def test_what_the_cpu_draws_is_possible_and_probable(drawing: Drawing) -> None:
    torch.manual_seed(1)
    dtype = getattr(torch, drawing.dtypes[0])
    values = drawing.draw(torch.full((COUNT,), -11.0).to(dtype)).flatten()
    assert bool(drawing.distribution.possible(values).all())
    assert judge(drawing.distribution.cell(values), drawing.distribution.probabilities).probability > 1e-6
    assert not repeated(values)


def a_block_twice(x: torch.Tensor) -> torch.Tensor:
    return torch.cat([x[:BLOCK], x[:BLOCK], x[2 * BLOCK :]])


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda x: x * 0.99, id="a share too small"),
        pytest.param(lambda x: x.index_fill(0, torch.arange(3 * BLOCK, 4 * BLOCK), 0.5), id="a block of one number"),
        pytest.param(lambda x: torch.cat([x[: -BLOCK // 4], x[-BLOCK // 4 :] * 0]), id="a tail of zeros"),
        pytest.param(lambda x: torch.cat([x[: COUNT // 2], x[: COUNT // 2 + 1].sort().values]), id="sorted"),
        pytest.param(lambda x: x.view(-1, 1)[: COUNT // 8].expand(-1, 8).flatten(), id="each number eight times"),
        pytest.param(lambda x: x.square(), id="another distribution"),
    ],
)
def test_numbers_that_are_drawn_otherwise_are_seen(spoil: Callable[[torch.Tensor], torch.Tensor]) -> None:
    assert probability(spoil(uniform(3))) < FALSE_ALARM


def test_a_block_that_comes_twice_is_seen() -> None:
    assert "block 1 of 4096 elements repeats block 0" in repeated(a_block_twice(uniform(4)))
    assert not repeated(uniform(4))


def test_what_was_not_written_is_impossible_everywhere() -> None:
    floating = [each for each in DRAWN_ON_CPU if each.dtypes[0] == "float32"]
    assert not [each.name for each in floating if bool(each.distribution.possible(torch.tensor([float("nan")])).any())]


#: A generator that is wrong -> the battery that sees it. Each is given the numbers of a right one.
WRONG_NUMBERS: dict[str, tuple[str, Callable[[torch.Tensor], torch.Tensor]]] = {
    "twelve bits": ("large-uniform", lambda x: (x * 4096).floor() / 4096 + 0.0001),
    "no tail": ("large-normal", lambda x: torch.where(x.abs() > 3.5, x / 2, x)),
    "neighbours depend on each other": ("large-uniform", lambda x: torch.where(x < 0.01, x, x.roll(8) * 0.5 + x * 0.5)),
    "calls share numbers": ("calls-and-seeds", lambda x: x.sort().values),
    "an end is rare": ("large-uniform", lambda x: x.clamp(min=2**-12)),
}


@pytest.mark.parametrize("name", WRONG_NUMBERS)
def test_a_battery_sees_what_a_distribution_does_not_show(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    battery, change = WRONG_NUMBERS[name]
    for function in ("rand", "randn"):
        right = getattr(torch, function)
        monkeypatch.setattr(torch, function, lambda *given, f=right, **named: change(f(*given, **named)))
    torch.manual_seed(3)
    found = list(BATTERIES[battery][1](torch.device("cpu")))
    worst = min((each.probability for each in found if not isinstance(each, str)), default=1.0)
    assert any(isinstance(each, str) for each in found) or worst * len(found) < FALSE_ALARM


def test_a_generator_that_is_ignored_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    right = torch.randperm
    monkeypatch.setattr(torch, "randperm", lambda n, generator=None, **named: right(n, **named))
    said = list(BATTERIES["sure-events"][1](torch.device("cpu")))
    assert [each.partition(" on cpu: ")[0] for each in said] == ["randperm"] * 3
    assert any("two generators of one seed" in each for each in said)
    assert any("from the state of another" in each for each in said)


def test_right_numbers_pass_the_small_batteries() -> None:
    torch.manual_seed(4)
    for name in ("calls-and-seeds", "sure-events", "wide-ranges", "permutations", "classes"):
        found = list(BATTERIES[name][1](torch.device("cpu")))
        assert [each for each in found if isinstance(each, str)] == []
        worst = min((each.probability for each in found if not isinstance(each, str)), default=1.0)
        assert worst * max(len(found), 1) > 1e-6
