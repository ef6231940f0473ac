"""Pooling: the maximum or the mean of each window."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pytest_ascend.emulator.registry import L, T, aten

# --- by name, as torch_npu calls them on chips before the 910B: paddings are before and after on each axis ---


def window_3d(ksize: L, strides: L, pads: L, **_: Any) -> tuple[L, L, L]:
    return ksize[-3:], strides[-3:], pads[::2]


def largest_3d(x: T, dilation: L, **window: Any) -> tuple[T, T]:
    """Return maxima and their indices; torch_npu pads the far end if sizes are rounded up."""
    ceil = window["pads"][::2] != window["pads"][1::2]
    found: tuple[T, T] = aten.max_pool3d_with_indices(x, *window_3d(**window), dilation[-3:], ceil)
    return found


def resized(name: str, leading: int) -> Callable[..., T]:
    """Return a body that calls a function whose last arguments are scales, after ``leading`` other ones."""
    function = getattr(aten, name).default
    is_backward = name.endswith("_backward")

    def body(*arguments: Any) -> T:
        outer, axes = arguments[1], len(arguments) - leading
        inner = arguments[2] if is_backward else arguments[0].shape
        sizes = zip(arguments[leading:], inner[-axes:], outer[-axes:], strict=True) if axes else ()
        # If a caller gives only sizes, torch_npu passes 0, and before 2.6 passed 1.
        scales = [each if each > 0 and (each != 1 or before == after) else None for each, before, after in sizes]
        return function(*arguments[:leading], *scales)  # type: ignore[no-any-return]

    return body
