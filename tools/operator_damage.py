"""What damage is made of: what can be done to one tensor, and what an operator was seen with by honest cases."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch

T: TypeAlias = torch.Tensor
#: Takes all arguments of an operator, and gives those that it is to work with.
OnTheWayIn: TypeAlias = Callable[[Sequence[Any]], Sequence[Any]]
#: Takes the arguments and the results, and gives the results that are to be believed; those may be changed in place.
OnTheWayOut: TypeAlias = Callable[[Sequence[Any], list[T]], list[T]]


@dataclass(frozen=True, slots=True)
class Seen:
    """What an operator was called with by honest cases: from this a damage draws where it hits."""

    dtypes: set[torch.dtype] = field(default_factory=set)
    dims: set[int] = field(default_factory=set)
    arguments: set[int] = field(default_factory=set)

    def note(self, arguments: Sequence[Any]) -> None:
        """Remember a call."""
        for place, each in enumerate(arguments):
            if isinstance(each, T):
                self.dtypes.add(each.dtype)
                self.dims.add(each.dim())
            elif each is not None:
                self.arguments.add(place)


# --- what is done to one tensor ---


def has_same_bits(one: T, other: T) -> bool:
    """Whether two tensors are the same in every bit; all NaN are one."""
    if one.shape != other.shape or one.dtype != other.dtype or not one.numel():
        return one.shape == other.shape and one.dtype == other.dtype
    if not other.isnan().any():
        return one.reshape(-1).contiguous().view(torch.uint8).equal(other.reshape(-1).contiguous().view(torch.uint8))
    return one.isnan().equal(other.isnan()) and one.nan_to_num(nan=0.0).equal(other.nan_to_num(nan=0.0))


def _dense(x: T) -> T:
    return torch.as_strided(x, x.shape, torch.empty(x.shape, device="meta").stride(), x.storage_offset())


def _densely_where(is_hit: Callable[[T], bool]) -> Callable[[T], T]:
    return lambda x: _dense(x) if x.numel() and not x.is_contiguous() and is_hit(x) else x


def _is_transposed(x: T) -> bool:
    return x.dim() >= 2 and x.stride(-1) != 1 and 0 not in x.stride()


def _from_line_start(x: T) -> T:
    offset = x.storage_offset()
    return torch.as_strided(x, x.shape, x.stride(), offset - offset % max(1, 32 // x.itemsize))


def _floats(change: Callable[[T], T]) -> Callable[[T], T]:
    return lambda x: change(x) if x.is_floating_point() else x


def _flushed(x: T) -> T:
    return torch.where(x.abs() < torch.finfo(x.dtype).smallest_normal, torch.zeros_like(x), x)


def _hf32(x: T) -> T:
    return ((x.contiguous().view(torch.int32) + 0x800) & ~0xFFF).view(x.dtype) if x.dtype is torch.float32 else x


def _through(dtype: torch.dtype, *only: torch.dtype) -> Callable[[T], T]:
    return lambda x: x.to(dtype).to(x.dtype) if x.dtype in only else x


_WHOLE = (torch.int64, torch.int32)
#: What is done to each tensor by itself.
TO_TENSORS: Mapping[str, Callable[[T], T]] = {
    "NaN taken for the lowest": _floats(lambda x: torch.where(x.isnan(), torch.full_like(x, float("-inf")), x)),
    "infinities saturated": _floats(lambda x: x.clamp(-torch.finfo(x.dtype).max, torch.finfo(x.dtype).max)),
    "denormals flushed": _floats(_flushed),
    "sign of zero lost": _floats(lambda x: x + 0),
    "integers as float32": _through(torch.float32, *_WHOLE),
    "integers in 32 bits": _through(torch.int32, torch.int64),
    "float32 as float16": _through(torch.float16, torch.float32),
}
TO_INPUTS: Mapping[str, Callable[[T], T]] = {
    "strides ignored": _densely_where(lambda _: True),
    "transposition ignored": _densely_where(_is_transposed),
    "stride 0 ignored": _densely_where(lambda x: 0 in x.stride()),
    "steps ignored": _densely_where(lambda x: x.dim() > 0 and x.stride(-1) > 1 and not _is_transposed(x)),
    "offset ignored": _from_line_start,
    "float32 as HF32": _hf32,
}
