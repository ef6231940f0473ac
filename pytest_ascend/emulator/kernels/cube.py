"""The precision of matrix products and convolutions, which callers choose with ``cubeMathType``."""

from __future__ import annotations

import functools
from typing import Any

import torch

T = torch.Tensor

#: cubeMathType, as CANN numbers it. Where a lower precision is merely allowed (1) it is not used here, so that float32
#: stays CPU's; torch_npu asks for 0 (keep) or 1.
USE_FP16, USE_HF32 = 2, 3


@functools.cache
def slow_dtypes() -> frozenset[torch.dtype]:
    """Return the dtypes that this CPU multiplies element by element, some ten times slower than float32."""
    questions = {torch.float16: "_is_mkldnn_fp16_supported", torch.bfloat16: "_is_mkldnn_bf16_supported"}
    fast = {dtype: getattr(torch.ops.mkldnn, name, None) for dtype, name in questions.items()}  # torch 2.1 has one
    return frozenset(dtype for dtype, is_fast in fast.items() if is_fast is None or not is_fast())


def widened(*operands: Any) -> tuple[Any, ...]:
    """Return operands in float32 where the CPU is slow in their dtype; who writes the result rounds it, once.

    That is also what a cube unit does: it takes half precision and adds up in float32.
    """
    return tuple(each.float() if each is not None and each.dtype in slow_dtypes() else each for each in operands)


def narrowed(cube_math_type: int, *operands: T) -> tuple[T, ...]:
    """Return the operands as the cube unit would read them: values are rounded, dtypes stay."""
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
