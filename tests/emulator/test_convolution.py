"""Convolutions give the same bits on the emulated device as on the CPU, where HF32 is off."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from .both import FLOATS, assert_rounded_once, assert_same, floats

pytestmark = pytest.mark.usefixtures("full_float32")

Shapes = tuple[tuple[int, ...], ...]

CASES: dict[str, tuple[Callable[..., Any], Shapes, dict[str, Any]]] = {
    "1d, dilated": (F.conv1d, ((2, 3, 9), (4, 3, 3), (4,)), {"padding": 1, "dilation": 2}),
    "1d, windows of padding alone": (F.conv1d, ((2, 4, 1), (5, 4, 3), (5,)), {"stride": 3, "padding": 1}),
    "1d, pointwise over padding": (F.conv1d, ((2, 16, 1), (5, 16, 1), (5,)), {"stride": 3, "padding": 2}),
    "2d, strided": (F.conv2d, ((2, 3, 9, 9), (4, 3, 3, 3), (4,)), {"padding": 1, "stride": 2}),
    "2d, pointwise": (F.conv2d, ((2, 3, 9, 9), (4, 3, 1, 1)), {}),
    "2d, depthwise": (F.conv2d, ((2, 4, 9, 9), (4, 1, 3, 3)), {"padding": 1, "groups": 4}),
    "2d, same": (F.conv2d, ((2, 3, 9, 9), (4, 3, 3, 5)), {"padding": "same"}),
    "2d, one image": (F.conv2d, ((3, 9, 9), (4, 3, 3, 3), (4,)), {}),
    "3d": (F.conv3d, ((2, 3, 5, 5, 5), (4, 3, 3, 3, 3), (4,)), {}),
    "1d, transposed": (F.conv_transpose1d, ((2, 4, 5), (4, 3, 3), (3,)), {}),
    "2d, transposed": (F.conv_transpose2d, ((2, 4, 5, 5), (4, 3, 3, 3), (3,)), {"stride": 2, "output_padding": 1}),
    "3d, transposed": (F.conv_transpose3d, ((2, 4, 3, 3, 3), (4, 3, 3, 3, 3), (3,)), {}),
    "unfold": (F.unfold, ((2, 3, 6, 6),), {"kernel_size": 3, "padding": 1}),
    "fold": (F.fold, ((2, 12, 4),), {"output_size": (4, 4), "kernel_size": 2, "stride": 2}),
    "channel shuffle": (F.channel_shuffle, ((2, 6, 4, 4),), {"groups": 3}),
}


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", CASES)
def test_convolution_and_its_gradients(name: str, dtype: torch.dtype) -> None:
    function, shapes, options = CASES[name]
    inputs = [floats(*shape, dtype=dtype, seed=seed) for seed, shape in enumerate(shapes)]
    compare = assert_rounded_once if name[1] == "d" else assert_same
    compare(functools.partial(function, **options), *inputs, backward=True)


def test_strided_images() -> None:
    assert_same(F.conv2d, floats(2, 3, 9, 9), floats(4, 3, 3, 3, seed=1), strided=True)


@pytest.mark.parametrize("frozen", [0, 1, 2], ids=["input", "weight", "bias"])
def test_gradients_that_nobody_asked_for(frozen: int) -> None:
    def convolve(*tensors: torch.Tensor) -> torch.Tensor:
        return F.conv2d(*(each.detach() if i == frozen else each for i, each in enumerate(tensors)))

    def run(*tensors: torch.Tensor) -> list[torch.Tensor]:
        leaves = [each.detach().clone().requires_grad_() for each in tensors]
        convolve(*leaves).sum().backward()
        return [each.grad for each in leaves if each.grad is not None]

    assert_same(run, floats(2, 3, 6, 6), floats(4, 3, 3, 3, seed=1), floats(4, seed=2))


def test_hf32_is_on_until_it_is_switched_off() -> None:
    x, weight = floats(4, 16, 12, 12), floats(8, 16, 3, 3, seed=1)
    exact = F.conv2d(x.double(), weight.double())
    torch.npu.conv.allow_hf32 = True  # torch_npu's own default
    error = (F.conv2d(x.npu(), weight.npu()).cpu() - exact).norm() / exact.norm()
    assert 2**-14 < error < 2**-11
