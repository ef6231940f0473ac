"""The table of variants covers what it says, and one float64 result is right for all dtypes of a variant."""

from __future__ import annotations

from dataclasses import asdict
from itertools import combinations, product

import pytest
import torch

from pytest_ascend.operators.calling import channels_last
from pytest_ascend.precision import kernel_fallbacks
from suites.models.computation import images
from suites.models.passing import short
from suites.models.variants import ROWS, VARIANTS

MODES = {"float32", "bfloat16", "float16", "autocast-bfloat16", "autocast-float16"}
VALUES = (MODES, {1, 3, 8}, {False, True}, {False, True})


def test_all_pairs_occur_of_resnet50() -> None:
    for one, other in combinations(range(4), 2):
        assert {(row[one], row[other]) for row in ROWS["resnet50"]} == set(product(VALUES[one], VALUES[other]))


def test_each_value_occurs_of_vit_but_that_its_largest_batch_is_four() -> None:
    for place, values in enumerate(VALUES):
        assert {row[place] for row in ROWS["vit_b_16"]} == {4 if each == 8 else each for each in values}


def test_cases_are_distinct_and_at_level_full() -> None:
    cases = [variant.case("forward") for variant in VARIANTS]
    assert len({case.id for case in cases}) == len(cases) == len({str(asdict(variant)) for variant in VARIANTS})
    assert {case.level for case in cases} == {"full"}


def test_short_numbers_are_the_same_in_every_dtype() -> None:
    tensor = short(torch.cat([images(1).flatten(), torch.logspace(-12, 3, 999)]))
    assert tensor.equal(tensor.half().float())
    assert tensor.equal(tensor.bfloat16().float())
    assert (tensor != 0).float().mean() > 0.99


def test_strided_tensors_hold_the_same_with_channels_innermost() -> None:
    tensor = torch.randn(2, 3, 4, 5)
    assert channels_last(tensor, tensor.device).equal(tensor)
    assert channels_last(tensor, tensor.device).stride() == tensor.to(memory_format=torch.channels_last).stride()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_products_of_a_slow_dtype_are_those_of_float32_rounded_once(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel_fallbacks, "slow_dtypes", lambda: {dtype})
    left, right = torch.randn(64, 64).to(dtype).requires_grad_(), torch.randn(64, 64).to(dtype)
    x, weight = torch.randn(2, 4, 8, 8).to(dtype), torch.randn(4, 4, 3, 3).to(dtype)
    with kernel_fallbacks.products_in_float32():
        product, convolved = left @ right, torch.conv2d(x, weight)
        product.sum().backward()  # type: ignore[no-untyped-call]
    assert product.equal((left.float() @ right.float()).to(dtype))
    assert convolved.equal(torch.conv2d(x.float(), weight.float()).to(dtype))
    assert left.grad is not None
    assert left.grad.equal((torch.ones(64, 64) @ right.float().t()).to(dtype))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_convolutions_of_16_bits_are_those_of_float32_though_the_cpu_is_quick(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel_fallbacks, "slow_dtypes", set)
    # a window of padding alone, with which oneDNN's kernels for CPUs with AMX end the process
    x, weight = torch.randn(2, 16, 1).to(dtype), torch.randn(5, 16, 1).to(dtype).requires_grad_()
    with kernel_fallbacks.products_in_float32():
        convolved = torch.conv1d(x, weight, stride=3, padding=2)
        convolved.sum().backward()  # type: ignore[no-untyped-call]
    assert convolved.equal(torch.conv1d(x.float(), weight.detach().float(), stride=3, padding=2).to(dtype))
    assert weight.grad is not None
    assert weight.grad.isfinite().all()
