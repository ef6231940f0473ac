"""float16 and bfloat16 where torch has no CPU kernel for them: computed in float32 and rounded once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

NARROW = (torch.float16, torch.bfloat16)


def widened(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function with its narrow operands in float32; who writes its results rounds them."""
    return lambda *arguments: function(*map(_wide, arguments))


def _wide(argument: Any) -> Any:
    return argument.float() if isinstance(argument, torch.Tensor) and argument.dtype in NARROW else argument
