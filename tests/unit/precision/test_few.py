"""Small tensors beside reference runs are judged at a first look as they are by the whole error model."""

import random

import numpy as np
import pytest
import torch

from pytest_ascend.precision import Samples, compare
from pytest_ascend.precision.floating import judge_floating
from pytest_ascend.precision.formats import FORMATS
from pytest_ascend.precision.model import ErrorModel, cancelled, joined, limits_of_few, octaves
from pytest_ascend.precision.request import Request
from pytest_ascend.precision.spread import Entries
from pytest_ascend.precision.standards import standard_of


def values(numbers, generator):
    """Return expected values: of one size or many, some zero, some far below the rest, some equal."""
    size = numbers.choice([numbers.randint(1, 31), numbers.randint(32, 80), numbers.randint(81, 600)])
    wide = torch.randn(size, generator=generator, dtype=torch.float64) * numbers.choice([0, 1, 3])
    found = torch.randn(size, generator=generator, dtype=torch.float64) * 10 ** numbers.uniform(-3, 3) * wide.exp()
    kind = numbers.randrange(5)
    if kind == 0:
        found[torch.rand(size, generator=generator) < 0.3] = 0
    if kind == 1:
        found[size // 2 :] *= 10 ** numbers.uniform(-14, -1)
    if kind == 2:
        found = found[torch.randint(0, numbers.randint(1, 40), (size,), generator=generator) % size]
    return found


def drawn(seed):
    """Return a device's result, what is expected, reference runs, and how to judge: errors are of all sizes."""
    numbers, generator = random.Random(seed), torch.Generator().manual_seed(seed)  # noqa: S311
    expected = values(numbers, generator)
    dtype = numbers.choice([torch.float32, torch.bfloat16, torch.float16])
    size = torch.finfo(dtype).eps * 10 ** numbers.uniform(-1.5, 2)
    scale = size * (expected.abs() if numbers.random() < 0.3 else expected.abs().max())
    if seed % 7 == 0:
        expected *= 1e-14  # what is left of larger numbers

    def off(times):
        return (expected + scale * times * torch.randn(expected.shape, generator=generator)).to(dtype)

    reference_runs = [off(1) for _ in range(numbers.randint(1, 3))]
    request = Request(
        standard=standard_of(None),
        accumulation=numbers.choice([None, None, 1, 64]),
        branching=seed % 4 == 0,
        sampled=seed % 3 > 0,
    )
    return off(10 ** numbers.uniform(-0.7, 0.8)), expected if seed % 6 else expected.to(dtype), reference_runs, request


def test_the_first_look_says_what_the_whole_model_says(monkeypatch):
    cases = [drawn(seed) for seed in range(400)]
    quick = [judge_floating("it", *case).agrees for case in cases]
    monkeypatch.setattr("pytest_ascend.precision.floating.quick_measure_few", lambda *_: None)
    slow = [judge_floating("it", *case).agrees for case in cases]
    assert quick == slow
    assert {True, False} == set(slow)


@pytest.mark.parametrize("size", [1, 10, 31, 32, 100, 1000])
def test_what_agrees_computes_its_figures_when_they_are_read(size, monkeypatch):
    torch.manual_seed(size)
    expected = torch.randn(size, dtype=torch.float64)
    reference_runs = Samples((expected * (1 + 1e-6 * torch.randn(size))).float() for _ in range(2))
    monkeypatch.setattr("pytest_ascend.precision.floating.measure", lambda *_: pytest.fail("every figure is computed"))
    assert compare((expected * (1 + 1e-6 * torch.randn(size))).float(), expected, reference_runs=reference_runs).agrees


@pytest.mark.parametrize("size", [512, 1024, 4096])
def test_a_block_that_is_noisier_than_any_reference_run_is_seen(size):
    numbers = torch.Generator().manual_seed(0)
    expected = 1 + torch.rand(size, generator=numbers, dtype=torch.float64)

    def noisy(ulps):
        return (expected + ulps * 2.0**-23 * torch.randn(size, generator=numbers)).float()

    reference_runs = Samples(noisy(8) for _ in range(3))
    actual = noisy(8)
    assert compare(actual, expected, reference_runs=reference_runs).agrees
    actual[256:512] = noisy(40)[256:512]
    verdict = compare(actual, expected, reference_runs=reference_runs)
    assert (verdict.agrees, verdict.limit.name) == (False, "root mean square error of one block")


@pytest.mark.parametrize("size", [1000, 1024, 1025])
def test_many_different_values_do_not_all_fall_on_one_side(size):
    def above(expected):
        return torch.nextafter(expected.float(), torch.full((size,), 9.0))

    one, many = torch.full((size,), 1.37, dtype=torch.float64), torch.linspace(1, 1.9, size, dtype=torch.float64)
    assert compare(above(one), one).agrees
    assert not compare(above(many), many).agrees


def test_octaves_that_hold_but_the_noise_of_zero_are_one():
    """Values from 2**-60 to 2**-40; up to 2**-50 their errors are of 2**-30, as what is left of larger numbers."""
    exponents = np.repeat(np.arange(-60, -40), 4)
    errors = np.where(exponents <= -50, 2.0**-30, 2.0**-70)
    ulps = errors / 2.0 ** (exponents - 23)
    entries = Entries(exponents, ulps, ulps, np.ones(80, np.int64))
    reference_runs = octaves(entries, FORMATS[torch.float32], -60, 20)
    assert cancelled(reference_runs) == 10
    merged = octaves(entries, FORMATS[torch.float32], -50, 10)
    assert merged.count.tolist() == [44] + [4] * 9
    assert merged.error_max[0] == 2.0**-30
    assert merged.error_square[0] == pytest.approx(44 * 2.0**-60)
    exact = octaves(Entries(exponents, 0 * ulps, 0 * ulps, np.ones(80, np.int64)), FORMATS[torch.float32], -60, 20)
    assert cancelled(exact) == 0


def test_the_limits_of_a_few_elements_are_those_of_the_whole_model(monkeypatch):
    seen = []

    def noted(*arguments):
        seen.append(arguments)
        return limits_of_few(*arguments)

    monkeypatch.setattr("pytest_ascend.precision.judge.limits_of_few", noted)
    for seed in range(160):
        judge_floating("it", *drawn(seed))
    compared = []
    for found, shown, setting, use in seen:
        exponents = np.frexp(found.magnitude)[1] - 1
        lowest, length = int(exponents.min()), int(np.ptp(exponents)) + 1
        ones = np.ones(exponents.size, np.int64)
        runs = [octaves(Entries(exponents, each, each, ones), setting.format, lowest, length) for each in shown]
        if cancelled(joined(runs)) and setting.accumulation != 1:
            continue
        model = ErrorModel(joined(runs), setting, np.arange(lowest, lowest + length), use, runs)
        limits = model.limits(found.error.size).of(found.expected)
        np.testing.assert_allclose(limits_of_few(found, shown, setting, use), limits, rtol=1e-9)
        compared.append((setting.sampled, setting.accumulation, setting.branching))
    assert {each[0] for each in compared} == {each[2] for each in compared} == {True, False}
    assert {each[1] for each in compared} == {None, 1, 64}
