"""A few elements beside honest results are judged at a first look as they are by the whole error model."""

import random

import pytest
import torch

from pytest_ascend.precision import Samples, compare


def drawn(seed):
    """Return a device's result of up to 31 elements, what is expected, and keywords, of all sizes of errors."""
    numbers = random.Random(seed)  # noqa: S311
    generator = torch.Generator().manual_seed(seed)

    def normal(size):
        return torch.randn(size, generator=generator, dtype=torch.float64)

    size, dtype = numbers.randint(1, 31), numbers.choice([torch.float32, torch.bfloat16, torch.float16])
    expected = normal(size) * 10 ** numbers.uniform(-3, 3) * torch.exp(normal(size) * numbers.uniform(0, 3))
    if seed % 5 == 0:
        expected[torch.rand(size, generator=generator) < 0.3] = 0
    scale = (
        torch.finfo(dtype).eps * 10 ** numbers.uniform(-1, 2) * (expected.abs().max() if seed % 2 else expected.abs())
    )
    honest = [(expected + scale * normal(size)).to(dtype) for _ in range(numbers.randint(1, 3))]
    actual = (expected + scale * 10 ** numbers.uniform(-0.3, 1.2) * normal(size)).to(dtype)
    keywords = {"accumulation": numbers.choice([None, 1, 64]), "branching": seed % 4 == 0}
    return actual, expected if seed % 6 else expected.to(dtype), {"honest": Samples(honest), **keywords}


def test_the_first_look_says_what_the_whole_model_says(monkeypatch):
    cases = [drawn(seed) for seed in range(250)]
    quick = [compare(actual, expected, **keywords).agrees for actual, expected, keywords in cases]
    monkeypatch.setattr("pytest_ascend.precision.floating.look_at_few", lambda *_: None)
    slow = [compare(actual, expected, **keywords).agrees for actual, expected, keywords in cases]
    assert quick == slow
    assert {True, False} == set(slow)


@pytest.mark.parametrize("size", [1, 10, 31])
def test_what_agrees_computes_its_figures_when_they_are_read(size, monkeypatch):
    torch.manual_seed(size)
    expected = torch.randn(size, dtype=torch.float64)
    honest = Samples((expected * (1 + 1e-6 * torch.randn(size))).float() for _ in range(2))
    monkeypatch.setattr("pytest_ascend.precision.floating.measure", lambda *_: pytest.fail("every figure is computed"))
    assert compare(expected.float(), expected, honest=honest).agrees
