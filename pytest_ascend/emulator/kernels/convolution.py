"""Convolutions, and the columns that they can be written with."""

from __future__ import annotations

import torch

from pytest_ascend.emulator.kernels.cube import narrowed
from pytest_ascend.emulator.registry import Family

family = Family("convolution")
op = family.op
aten = torch.ops.aten
T = torch.Tensor
L = list[int]

_GEOMETRY = (
    "IntArray stride, IntArray padding, IntArray dilation, bool transposed, IntArray outputPadding, int64 groups"
)


@family.kernel(f"aclnnConvolution(Tensor input, Tensor weight, Tensor bias, {_GEOMETRY}, out Tensor output, int8 cube)")
def convolution(
    x: T,
    weight: T,
    bias: T | None,
    stride: L,
    padding: L,
    dilation: L,
    transposed: bool,
    out_pad: L,
    groups: int,
    cube: int,
) -> T:
    x, weight = narrowed(cube, x, weight)
    return torch.convolution(x, weight, bias, stride, padding, dilation, transposed, out_pad, groups)


@family.kernel(
    f"aclnnConvolutionBackward(Tensor gradOutput, Tensor input, Tensor weight, IntArray biasSizes, {_GEOMETRY},"
    " BoolArray outputMask, int8 cube, out Tensor gradInput, out Tensor gradWeight, out Tensor gradBias)"
)
def convolution_backward(
    grad: T,
    x: T,
    weight: T,
    bias_sizes: L | None,
    stride: L,
    padding: L,
    dilation: L,
    transposed: bool,
    out_pad: L,
    groups: int,
    mask: list[bool],
    cube: int,
) -> tuple[T | None, T | None, T | None]:
    grad, x, weight = narrowed(cube, grad, x, weight)
    geometry = (stride, padding, dilation, transposed, out_pad, groups)
    return aten.convolution_backward(grad, x, weight, bias_sizes, *geometry, mask)  # type: ignore[no-any-return]


@family.kernel(
    "aclnnConvDepthwise2d(Tensor self, Tensor weight, IntArray kernelSize, Tensor bias, IntArray stride,"
    " IntArray padding, IntArray dilation, out Tensor out, int8 cube)"
)
def conv_depthwise2d(x: T, weight: T, _: L, bias: T | None, stride: L, padding: L, dilation: L, cube: int) -> T:
    x, weight = narrowed(cube, x, weight)
    return torch.conv2d(x, weight, bias, stride, padding, dilation, groups=x.shape[1])


@family.kernel("aclnnConvTbc(Tensor self, Tensor weight, Tensor bias, int64 pad, out Tensor output, int8 cube)")
def conv_tbc(x: T, weight: T, bias: T, pad: int, cube: int) -> T:
    x, weight = narrowed(cube, x, weight)
    return torch.conv_tbc(x, weight, bias, pad)


@family.kernel(
    "aclnnConvTbcBackward(Tensor self, Tensor input, Tensor weight, Tensor bias, int64 pad, int8 cube,"
    " out Tensor gradInput, out Tensor gradWeight, out Tensor gradBias)"
)
def conv_tbc_backward(grad: T, x: T, weight: T, bias: T, pad: int, cube: int) -> tuple[T, T, T]:
    return aten.conv_tbc_backward(*narrowed(cube, grad, x, weight), bias, pad)  # type: ignore[no-any-return]


op(
    "aclnnIm2col(Tensor self, IntArray kernel, IntArray dilation, IntArray padding, IntArray stride, out Tensor out)",
    aten.im2col.default,
)
op(
    "aclnnIm2colBackward(Tensor gradOutput, IntArray inputSize, IntArray kernel, IntArray dilation, IntArray padding,"
    " IntArray stride, out Tensor out)",
    aten.col2im.default,
)
op("aclnnChannelShuffle(Tensor self, int64 groups, out Tensor out)", torch.channel_shuffle)
