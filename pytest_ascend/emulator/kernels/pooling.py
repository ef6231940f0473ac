"""Pooling: the largest or the mean of each window."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from pytest_ascend.emulator.registry import L, T, aten, gradients

# --- by name, as torch_npu calls them on chips before the 910B: paddings are before and after on each axis ---


def _window_3d(ksize: L, strides: L, pads: L) -> tuple[L, L, L]:
    return ksize[-3:], strides[-3:], pads[::2]


def _largest_3d(x: T, dilation: L, **window: Any) -> tuple[T, T]:
    """Return maxima and their indices; torch_npu pads the far end if sizes are rounded up."""
    ceil = window["pads"][::2] != window["pads"][1::2]
    found: tuple[T, T] = aten.max_pool3d_with_indices(x, *_window_3d(**window), dilation[-3:], ceil)
    return found


def max_pool2d_backward(x: T, grad: T, argmax: T, *, ksize: L, strides: L, **_: Any) -> T:  # noqa: ARG001
    """Differentiate pooling over windows side by side, whose places follow from ``x``: torch_npu before 2.5."""
    return gradients(lambda leaf: torch.nn.functional.max_pool2d(leaf, ksize[1:3], strides[1:3]), [x], grad)[0]


def max_pool3d(x: T, *, dilation: L, padding: str, ceil_mode: int, data_format: str, **window: Any) -> T:  # noqa: ARG001
    return _largest_3d(x, dilation, **window)[0]


def max_pool3d_grad(x: T, _: T, grad: T, *, padding: str, data_format: str, **window: Any) -> T:  # noqa: ARG001
    """Return the gradient of the maxima of windows without gaps: torch_npu does not pass the dilation on."""
    indices = _largest_3d(x, [1, 1, 1], **window)[1]
    depth, height, width = grad.shape[-3:]
    indices, grad = indices[..., :depth, :height, :width].flatten(2), grad.float().flatten(2)
    return torch.zeros(x.shape).flatten(2).scatter_add_(2, indices, grad).view(x.shape)


def avg_pool3d(x: T, *, data_format: str, divisor_override: int | None = None, **window: Any) -> T:  # noqa: ARG001
    ceil, count = window.pop("ceil_mode"), window.pop("count_include_pad")
    made: T = aten.avg_pool3d(
        x.float() if x.is_floating_point() else x, *_window_3d(**window), ceil, count, divisor_override
    )
    return made


def avg_pool3d_grad(shape: T, grad: T, *, data_format: str, divisor_override: int | None = None, **window: Any) -> T:  # noqa: ARG001
    window["pads"] = window["pads"][4:] + window["pads"][:4]  # torch_npu passes those of height and width first
    ceil, count = window.pop("ceil_mode"), window.pop("count_include_pad")
    x = torch.empty(shape.tolist())
    made: T = aten.avg_pool3d_backward(grad.float(), x, *_window_3d(**window), ceil, count, divisor_override)
    return made


def resized(name: str, leading: int) -> Callable[..., T]:
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
