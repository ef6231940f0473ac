"""Pooling: the largest or the mean of each window."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from pytest_ascend.emulator.registry import Family, aten

family = Family("pooling", wide=True)
op = family.op
nn = torch.nn.functional
T = torch.Tensor
L = list[int]

_WINDOW = "IntArray kernel, IntArray stride, IntArray padding"
_MAX_WINDOW = f"{_WINDOW}, IntArray dilation, bool ceilMode"
_AVG_WINDOW = f"{_WINDOW}, bool ceilMode, bool countIncludePad, int64 divisor"

for _d in ("2d", "3d"):
    op(
        f"aclnnAdaptiveAvgPool{_d}(Tensor self, IntArray outputSize, out Tensor out)",
        getattr(nn, f"adaptive_avg_pool{_d}"),
    )
    op(
        f"aclnnAdaptiveAvgPool{_d}Backward(Tensor gradOutput, Tensor self, out Tensor out)",
        getattr(aten, f"_adaptive_avg_pool{_d}_backward").default,
    )
    op(
        f"aclnnAdaptiveMaxPool{_d}(Tensor self, IntArray outputSize, out Tensor output, out Tensor indices)",
        getattr(aten, f"adaptive_max_pool{_d}").default,
    )


def _adaptive_max_backward(name: str) -> Any:
    backward = getattr(aten, name).default
    return lambda grad, x, indices: backward(grad, x, indices.long())


def _max_pool(name: str) -> Any:
    """Make a body that returns the maximum of each window and its index; no stride means the window's size."""
    forward = getattr(aten, name).default
    return lambda x, kernel, stride, *rest: forward(x, kernel, stride or kernel, *rest)


def _max_pool_backward(name: str) -> Any:
    backward = getattr(aten, name).default

    def body(grad: T, x: T, indices: T, kernel: L, stride: L | None, padding: L, dilation: L, ceil: bool) -> Any:
        return backward(grad, x, kernel, stride or kernel, padding, dilation, ceil, indices.long())

    return body


for _d, _name in (("2d", "MaxPool2dWithIndices"), ("3d", "MaxPool3dWithArgmax")):
    op(
        f"aclnnAdaptiveMaxPool{_d}Backward(Tensor gradOutput, Tensor self, Tensor indices, out Tensor gradInput)",
        _adaptive_max_backward(f"adaptive_max_pool{_d}_backward"),
    )
    op(
        f"aclnn{_name}(Tensor self, {_MAX_WINDOW}, out Tensor out, out Tensor indices)",
        _max_pool(f"max_pool{_d}_with_indices"),
    )
    op(
        f"aclnn{_name}Backward(Tensor gradOutput, Tensor self, Tensor indices, {_MAX_WINDOW}, out Tensor gradInput)",
        _max_pool_backward(f"max_pool{_d}_with_indices_backward"),
    )


# The mask is internal to CANN, and only the backward reads it. It stays empty here: the backward computes the indices
# again. It has 2 bytes per element of a window, too few for an index if a window has one element.
@family.kernel(f"aclnnMaxPool2dWithMask(Tensor self, {_MAX_WINDOW}, out Tensor out, out Tensor mask)")
def max_pool2d_with_mask(x: T, kernel: L, stride: L | None, *rest: Any) -> tuple[T, None]:
    return _max_pool2d(x, kernel, stride, *rest)[0], None


@family.kernel(
    f"aclnnMaxPool2dWithMaskBackward(Tensor gradOutput, Tensor self, Tensor mask, {_MAX_WINDOW}, out Tensor gradInput)"
)
def max_pool2d_with_mask_backward(grad: T, x: T, _: T, *window: Any) -> T:
    return _max_pool2d_backward(grad, x, _max_pool2d(x, *window)[1], *window)  # type: ignore[no-any-return]


_max_pool2d = _max_pool("max_pool2d_with_indices")
_max_pool2d_backward = _max_pool_backward("max_pool2d_with_indices_backward")


def _avg_pool(name: str) -> Any:
    forward = getattr(aten, name).default

    def body(x: T, kernel: L, stride: L | None, padding: L, ceil: bool, count: bool, divisor: int, *_cube: int) -> Any:
        return forward(x, kernel, stride or kernel, padding, ceil, count, divisor or None)

    return body


def _avg_pool_backward(name: str) -> Any:
    backward = getattr(aten, name).default

    def body(
        grad: T, x: T, kernel: L, stride: L | None, padding: L, ceil: bool, count: bool, divisor: int, *_cube: int
    ) -> Any:
        return backward(grad, x, kernel, stride or kernel, padding, ceil, count, divisor or None)

    return body


for _d, _cube in (("2d", ", int8 cube"), ("3d", "")):
    op(f"aclnnAvgPool{_d}(Tensor self, {_AVG_WINDOW}{_cube}, out Tensor out)", _avg_pool(f"avg_pool{_d}"))
    op(
        f"aclnnAvgPool{_d}Backward(Tensor gradOutput, Tensor self, {_AVG_WINDOW}{_cube}, out Tensor gradInput)",
        _avg_pool_backward(f"avg_pool{_d}_backward"),
    )


# --- by name, as torch_npu calls them on chips before the 910B: paddings are before and after on each axis ---


def _window_3d(ksize: L, strides: L, pads: L) -> tuple[L, L, L]:
    return ksize[-3:], strides[-3:], pads[::2]


def _largest_3d(x: T, dilation: L, **window: Any) -> tuple[T, T]:
    """Return maxima and their indices; torch_npu pads the far end if sizes are rounded up."""
    ceil = window["pads"][::2] != window["pads"][1::2]
    found: tuple[T, T] = aten.max_pool3d_with_indices(x, *_window_3d(**window), dilation[-3:], ceil)
    return found


@family.kernel_named("MaxPoolGradWithArgmaxV1")
def max_pool2d_backward(x: T, grad: T, argmax: T, *, ksize: L, strides: L, **_: Any) -> T:  # noqa: ARG001
    """Differentiate pooling over windows side by side, whose places follow from ``x``: torch_npu before 2.5."""
    with torch.inference_mode(False), torch.enable_grad():
        leaf = x.float().clone().requires_grad_()
        pooled = torch.nn.functional.max_pool2d(leaf, ksize[1:3], strides[1:3])
        return torch.autograd.grad(pooled, leaf, grad.float().clone())[0]


@family.kernel_named("MaxPool3D")
def max_pool3d(x: T, *, dilation: L, padding: str, ceil_mode: int, data_format: str, **window: Any) -> T:  # noqa: ARG001
    return _largest_3d(x, dilation, **window)[0]


@family.kernel_named("MaxPool3DGrad")
def max_pool3d_grad(x: T, _: T, grad: T, *, padding: str, data_format: str, **window: Any) -> T:  # noqa: ARG001
    """Return the gradient of the maxima of windows without gaps: torch_npu does not pass the dilation on."""
    indices = _largest_3d(x, [1, 1, 1], **window)[1]
    depth, height, width = grad.shape[-3:]
    indices, grad = indices[..., :depth, :height, :width].flatten(2), grad.float().flatten(2)
    return torch.zeros(x.shape).flatten(2).scatter_add_(2, indices, grad).view(x.shape)


@family.kernel_named("AvgPool3D")
def avg_pool3d(x: T, *, data_format: str, divisor_override: int | None = None, **window: Any) -> T:  # noqa: ARG001
    ceil, count = window.pop("ceil_mode"), window.pop("count_include_pad")
    made: T = aten.avg_pool3d(
        x.float() if x.is_floating_point() else x, *_window_3d(**window), ceil, count, divisor_override
    )
    return made


@family.kernel_named("AvgPool3DGrad")
def avg_pool3d_grad(shape: T, grad: T, *, data_format: str, divisor_override: int | None = None, **window: Any) -> T:  # noqa: ARG001
    window["pads"] = window["pads"][4:] + window["pads"][:4]  # torch_npu passes those of height and width first
    ceil, count = window.pop("ceil_mode"), window.pop("count_include_pad")
    x = torch.empty(shape.tolist())
    made: T = aten.avg_pool3d_backward(grad.float(), x, *_window_3d(**window), ceil, count, divisor_override)
    return made


op(
    "aclnnMaxUnpool2d(Tensor self, Tensor indices, IntArray outputSize, out Tensor out)",
    lambda x, indices, size: aten.max_unpool2d(x, indices.long(), size),
)


@family.kernel(
    "aclnnMaxUnpool3d(Tensor self, Tensor indices, IntArray outputSize, IntArray stride, IntArray padding,"
    " inout Tensor out)"
)
def max_unpool3d(x: T, indices: T, size: L, stride: L, padding: L, out: T) -> None:
    out.copy_(aten.max_unpool3d(x, indices.long(), size, stride, padding))


_AXES = {1: ("L",), 2: ("H", "W"), 3: ("D", "H", "W")}


def _scales(dimensions: int, kind: str = "double") -> str:
    return ", ".join(f"{kind} scales{axis}" for axis in _AXES[dimensions])


def _resized(name: str, leading: int) -> Callable[..., T]:
    """Make a body of a function whose last arguments are scales, after ``leading`` other ones."""
    function = getattr(aten, name).default
    is_backward = name.endswith("_backward")

    def body(*arguments: Any) -> T:
        outer, axes = arguments[1], len(arguments) - leading
        inner = arguments[2] if is_backward else arguments[0].shape
        sizes = zip(arguments[leading:], inner[-axes:], outer[-axes:], strict=True) if axes else ()
        scales = [scale if _gives(scale, before, after) else None for scale, before, after in sizes]
        return function(*arguments[:leading], *scales)  # type: ignore[no-any-return]

    return body


def _gives(scale: float, before: int, after: int) -> bool:
    """Whether a scale is given: if a caller gives sizes only, torch_npu passes 0, and before 2.6 passed 1."""
    return scale > 0 and (scale != 1 or before == after)


#: CANN's name, torch's, number of dimensions, whether corners may be aligned.
_KINDS = (
    ("Nearest1d", "upsample_nearest1d", 1, False),
    ("Nearest2d", "upsample_nearest2d", 2, False),
    ("Nearest3d", "upsample_nearest3d", 3, False),
    ("NearestExact1d", "_upsample_nearest_exact1d", 1, False),
    ("NearestExact2d", "_upsample_nearest_exact2d", 2, False),
    ("NearestExact3d", "_upsample_nearest_exact3d", 3, False),
    ("Linear1d", "upsample_linear1d", 1, True),
    ("Bilinear2d", "upsample_bilinear2d", 2, True),
    ("Bilinear2dAA", "_upsample_bilinear2d_aa", 2, True),
    ("Bicubic2d", "upsample_bicubic2d", 2, True),
    ("Bicubic2dAA", "_upsample_bicubic2d_aa", 2, True),
    ("Trilinear3d", "upsample_trilinear3d", 3, True),
)

#: These are called without scales, or with narrower ones.
_FORWARD_SCALES = {"Nearest1d": "", "Nearest2d": ""}
_BACKWARD_NAMES = {"Bicubic2dAA": "Bicubic2dAAGrad"}

for _cann, _torch, _dimensions, _corners in _KINDS:
    _align = ", bool alignCorners" if _corners else ""
    _given = _FORWARD_SCALES.get(_cann, f", {_scales(_dimensions)}")
    op(
        f"aclnnUpsample{_cann}(Tensor self, IntArray outputSize{_align}{_given}, out Tensor out)",
        _resized(_torch, 2 + _corners),
    )
    op(
        f"aclnnUpsample{_BACKWARD_NAMES.get(_cann, _cann + 'Backward')}(Tensor grad, IntArray outputSize,"
        f" IntArray inputSize{_align}, {_scales(_dimensions)}, out Tensor gradInput)",
        _resized(f"{_torch}_backward", 3 + _corners),
    )

for _dimensions in (1, 2):
    op(
        f"aclnnUpsampleNearest{_dimensions}dV2(Tensor self, IntArray outputSize, {_scales(_dimensions, 'float')},"
        " out Tensor out)",
        _resized(f"upsample_nearest{_dimensions}d", 2),
    )

op(
    "aclnnUpsampleBilinear2dBackwardV2(Tensor grad, IntArray outputSize, IntArray inputSize, bool alignCorners,"
    f" {_scales(2)}, out Tensor gradInput)",
    _resized("upsample_bilinear2d_backward", 4),
)

_SAMPLING = "int64 interpolationMode, int64 paddingMode, bool alignCorners"
for _dimensions in (2, 3):
    op(
        f"aclnnGridSampler{_dimensions}D(Tensor input, Tensor grid, {_SAMPLING}, out Tensor out)",
        getattr(aten, f"grid_sampler_{_dimensions}d").default,
    )
    op(
        f"aclnnGridSampler{_dimensions}DBackward(Tensor gradOutput, Tensor input, Tensor grid, {_SAMPLING},"
        " BoolArray outputMask, out Tensor inputGrad, out Tensor gridGrad)",
        getattr(aten, f"grid_sampler_{_dimensions}d_backward").default,
    )

op("aclnnAffineGrid(Tensor theta, IntArray size, bool alignCorners, out Tensor out)", torch.affine_grid_generator)
