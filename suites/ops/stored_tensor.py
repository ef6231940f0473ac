"""A tensor of a sample that was recorded: its elements as they are, where Values say how to make them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class StoredTensor:
    """A tensor on the CPU, contiguous, to be given the dtype of the case and a layout.

    ``follows`` is false for a tensor that has a dtype of its own: an index, a mask. ``grad`` tells whether a gradient
    may be asked for. ``stride`` is that of the recorded tensor where it was not contiguous. ``number`` is its own in
    the recording, -1 where it is in none as it is.
    """

    tensor: torch.Tensor
    follows: bool = True
    grad: bool = False
    stride: tuple[int, ...] | None = None
    number: int = -1

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape as torch has it."""
        return tuple(self.tensor.shape)

    @property
    def label(self) -> str:
        """What the name of a sample says of it."""
        shape = "x".join(map(str, self.shape)) or "0-d"
        own = "" if self.follows else f" {str(self.tensor.dtype).removeprefix('torch.')}"
        return shape + own + (" strided" if self.stride else "")

    @property
    def can_repeat(self) -> bool:
        """Whether there are rows of which the first can stand for all."""
        return len(self.shape) > 1 and self.shape[0] > 1

    def make(self, _: str, dtype: torch.dtype) -> torch.Tensor:
        """Return a tensor of its own on the CPU, in the dtype of the case and the layout that was recorded."""
        own = self.tensor.to(dtype) if self.follows else self.tensor
        return laid_out(own, self.stride) if self.stride else own.clone()

    def wants_grad(self, dtype: torch.dtype) -> bool:
        """Whether the input is one to differentiate by, in a case of this dtype."""
        return self.grad and self.follows and (dtype.is_floating_point or dtype.is_complex)

    def with_nonfinite(self) -> StoredTensor:
        """Return the same with NaN first, -Inf last, and Inf in the middle."""
        changed = self.tensor.clone()
        flat = changed.view(-1)
        for place, number in ((0, "nan"), (flat.numel() // 2, "inf"), (-1, "-inf")):
            flat[place] = float(number)
        return replace(self, tensor=changed, number=-1)

    def expanded(self) -> StoredTensor:
        """Return the same with stride 0 along the first dimension."""
        if not self.can_repeat:
            return self
        stride = (0, *self.tensor.stride()[1:])
        return replace(self, tensor=self.tensor[:1].expand(self.shape).contiguous(), stride=stride, number=-1)


def laid_out(tensor: torch.Tensor, stride: tuple[int, ...]) -> torch.Tensor:
    """Return a copy with these strides; along those of 0 all elements have to be the same."""
    span = 1 + sum((size - 1) * step for size, step in zip(tensor.shape, stride, strict=True))
    if not tensor.numel():
        return torch.empty_strided(tensor.shape, stride, dtype=tensor.dtype)
    whole = torch.zeros(span, dtype=tensor.dtype)
    first = tensor
    for dim, step in enumerate(stride):
        first = first.narrow(dim, 0, 1) if step == 0 else first
    whole.as_strided(first.shape, stride).copy_(first)
    return whole.as_strided(tensor.shape, stride)
