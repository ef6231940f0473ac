"""What overflows, or is no number: by IEEE 754, and in the mode of old chips that knows neither."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

T = torch.Tensor


def _ends(dtype: torch.dtype) -> T:
    """Return the largest numbers, numbers near to them, and usual ones."""
    largest = torch.finfo(dtype).max
    return torch.tensor([largest, -largest, 0.75 * largest, -0.75 * largest, 0.0, -1.0, 2.0, -3.0]).to(dtype)


#: Computations of one tensor, on whatever device it is on.
OVERFLOWS: Mapping[str, Callable[[T], T]] = {
    "product": lambda x: x * 2,
    "sum": lambda x: x + x,
    "difference": lambda x: -x - x,
    "quotient": lambda x: x / 0.25,
    "exponential": lambda x: torch.exp(x.clamp(-120, 120)),
    "root": torch.sqrt,
    "logarithm": lambda x: torch.log(x.clamp(max=1)),
}


def inputs(dtype: torch.dtype) -> T:
    """Return what each computation is given."""
    return _ends(dtype)


def saturated(x: T, dtype: torch.dtype) -> T:
    """Return a result as a chip has it that knows no infinities: the largest numbers, and zero in place of NaN."""
    largest = torch.finfo(dtype).max
    return x.nan_to_num(0.0, largest, -largest).clamp(-largest, largest)
