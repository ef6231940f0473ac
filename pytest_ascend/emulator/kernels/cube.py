"""The precision of matrix products and convolutions, which callers choose with ``cubeMathType``."""

from __future__ import annotations

import torch

T = torch.Tensor

#: cubeMathType, as CANN numbers it. Where a lower precision is merely allowed (1) it is not used here, so that float32
#: stays CPU's; torch_npu asks for 0 (keep) or 1.
USE_FP16, USE_HF32 = 2, 3


def narrowed(cube_math_type: int, *operands: T) -> tuple[T, ...]:
    """Give the operands as the cube unit would read them: values are rounded, dtypes stay."""
    if cube_math_type == USE_FP16:
        return tuple(each.half().to(each.dtype) if each.is_floating_point() else each for each in operands)
    if cube_math_type == USE_HF32:
        return tuple(_to_hf32(each) if each.dtype == torch.float32 else each for each in operands)
    return operands


def _to_hf32(tensor: T) -> T:
    """Round float32 to HF32, which keeps 11 bits of the fraction; ties, on which public sources differ, go to even."""
    bits = tensor.contiguous().view(torch.int32)
    rounded = (bits >> 12).bitwise_and_(1).add_(bits).add_(0x7FF).bitwise_and_(~0xFFF).view(torch.float32)
    return torch.where(tensor.isnan(), tensor, rounded)
