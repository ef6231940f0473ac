"""Parts of the judge that larger tests pass through without looking: each against its definition."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from pytest_ascend.precision.compare import compare
from pytest_ascend.precision.error_model import inner_by_model
from pytest_ascend.precision.formats import ALLOWANCES, FORMATS
from pytest_ascend.precision.kernel_fallbacks import rms_norm, rotary_mul, swiglu
from pytest_ascend.precision.layers import relative_error
from pytest_ascend.precision.orders import other_order
from pytest_ascend.precision.settings import Request, Setting, standard_of
from pytest_ascend.system.errors import UsageError

T = torch.Tensor


def drawn(*shape: int, seed: int = 0) -> T:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("terms", [1, 64, 1000])
@pytest.mark.parametrize("exponent", [-20, 0, 5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_sums_may_err_by_their_length_and_the_larger_of_their_scale_and_value(
    terms: int, exponent: int, dtype: torch.dtype
) -> None:
    usual = 3.0
    for finer, times in ((True, 1), (False, 2)):
        request = Request(standard=standard_of(None), accumulation=terms)
        setting = Setting(format=FORMATS[dtype], root_mean_square=usual, request=request, finer=finer)
        found = inner_by_model(setting, np.array([exponent]), ALLOWANCES, 4.0)
        # Of numbers from 2**exponent on, the largest is just below 2**(exponent + 1); sums are kept in 24 bits.
        assert found == pytest.approx(times * 4.0 * math.sqrt(terms) * 2.0**-24 * max(usual, 2.0 ** (exponent + 1)))


def test_a_rotation_in_the_place_of_an_npus_is_one() -> None:
    x, angles = drawn(3, 5, 8), drawn(5, 4, seed=1)
    turned = torch.view_as_complex(torch.stack(x.chunk(2, -1), -1)) * torch.polar(torch.ones_like(angles), angles)
    cos, sin = (torch.cat([each, each], -1) for each in (angles.cos(), angles.sin()))
    torch.testing.assert_close(rotary_mul(x, cos, sin), torch.cat([turned.real, turned.imag], -1))


def test_norms_and_gates_in_the_place_of_an_npus_are_those_of_their_definition() -> None:
    x, gamma = drawn(3, 6), drawn(6, seed=1)
    found, over = rms_norm(x, gamma, 1e-3)
    for row, mine, inverse in zip(x, found, over, strict=True):
        root = math.sqrt(sum(float(each) ** 2 for each in row) / 6 + 1e-3)
        assert float(inverse) == pytest.approx(1 / root)
        torch.testing.assert_close(mine, row * gamma / root)
    torch.testing.assert_close(swiglu(x), x[:, :3] / (1 + (-x[:, :3]).exp()) * x[:, 3:])
    torch.testing.assert_close(swiglu(x.t(), 0), swiglu(x).t())


CONVOLUTIONS = {
    "plain": lambda x, w: F.conv2d(x, w, padding=1),
    "stepped": lambda x, w: F.conv2d(x, w, stride=2),
    "transposed": lambda x, w: F.conv_transpose2d(x, w.transpose(0, 1)),
    "in groups": lambda x, w: F.conv2d(x, w[:, :2], groups=2),
    "transposed, in groups": lambda x, w: F.conv_transpose2d(x, w.transpose(0, 1)[:, :2], groups=2),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_sums_in_another_order_are_the_same_sums(name: str) -> None:
    def of(dtype: torch.dtype) -> list[T]:
        given = [drawn(2, 4, 7, 9).to(dtype).requires_grad_(), drawn(6, 4, 3, 3, seed=1).to(dtype).requires_grad_()]
        CONVOLUTIONS[name](*given).pow(2).sum().backward()
        return [CONVOLUTIONS[name](*given).detach(), *(each.grad for each in given)]

    right = of(torch.float64)
    with other_order():
        for mine, wanted in zip(of(torch.float64), right, strict=True):
            torch.testing.assert_close(mine, wanted, rtol=1e-12, atol=1e-12)


def test_the_relative_error_of_a_layer_is_over_all_its_tensors() -> None:
    expected = [torch.tensor([3.0, 0.0]), torch.tensor([4.0]), torch.tensor([7])]
    actual = [torch.tensor([3.0, 0.5]), torch.tensor([4.0]), torch.tensor([9])]
    assert relative_error(actual, expected) == pytest.approx(0.1)
    assert relative_error(expected, expected) == 0


class Kept:
    """An object with some attributes, as a cache."""

    def __init__(self, **parts: object) -> None:
        vars(self).update(parts)


def test_layers_of_a_cache_that_have_no_tensors_are_no_parts_to_compare() -> None:
    row = torch.randn(4, generator=torch.Generator().manual_seed(0))
    expected = Kept(layers=[Kept(size=2), Kept(row=row.double())])
    assert compare(Kept(layers=[Kept(size=2), Kept(row=row)]), expected).agrees
    assert not compare(Kept(layers=[Kept(size=2), Kept(row=row + 1)]), expected).agrees
    assert not compare(Kept(layers=[Kept(row=row), Kept(row=row)]), expected).agrees
    with pytest.raises(UsageError, match="holds no numbers"):
        compare(Kept(size=2), Kept(size=2))
