"""Sampling at other places: up and down to a size, and along a grid."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from pytest_ascend.emulator.kernels.widening import widened
from pytest_ascend.emulator.registry import Family, aten

family = Family("upsample")
op = family.op
T = torch.Tensor

_AXES = {1: ("L",), 2: ("H", "W"), 3: ("D", "H", "W")}


def _scales(dimensions: int, kind: str = "double") -> str:
    return ", ".join(f"{kind} scales{axis}" for axis in _AXES[dimensions])


def _resized(name: str, leading: int) -> Callable[..., T]:
    """Make a body of a function that ends in scales; ``leading`` arguments come before."""
    function = getattr(aten, name).default
    is_backward = name.endswith("_backward")
    if "_aa" in name or is_backward:  # sums, which CANN keeps in float32
        function = widened(function)

    def body(*arguments: Any) -> T:
        outer, axes = arguments[1], len(arguments) - leading
        inner = arguments[2] if is_backward else arguments[0].shape
        sizes = zip(arguments[leading:], inner[-axes:], outer[-axes:], strict=True) if axes else ()
        scales = [scale if _gives(scale, before, after) else None for scale, before, after in sizes]
        return function(*arguments[:leading], *scales)  # type: ignore[no-any-return]

    return body


def _gives(scale: float, before: int, after: int) -> bool:
    """Whether a scale is one: where a caller names sizes only, torch_npu gives 0, and before 2.6 gave 1."""
    return scale > 0 and (scale != 1 or before == after)


#: CANN's name, torch's, dimensions, whether corners may be aligned.
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

#: These arrive without scales, or with narrow ones.
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
        widened(getattr(aten, f"grid_sampler_{_dimensions}d").default),
    )
    op(
        f"aclnnGridSampler{_dimensions}DBackward(Tensor gradOutput, Tensor input, Tensor grid, {_SAMPLING},"
        " BoolArray outputMask, out Tensor inputGrad, out Tensor gridGrad)",
        widened(getattr(aten, f"grid_sampler_{_dimensions}d_backward").default),
    )

op("aclnnAffineGrid(Tensor theta, IntArray size, bool alignCorners, out Tensor out)", torch.affine_grid_generator)
