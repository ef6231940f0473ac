"""Matrix products and convolutions as a cube unit computes them.

It multiplies blocks of the contracted dimension and adds the partial products in float32; half-precision operands are
multiplied exactly, and their sum is rounded once.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from pytest_ascend.emulator.chip.functions import Call
from pytest_ascend.system.dispatching import in_float32

T = torch.Tensor

_BLOCKS = (16, 48, 64, 80, 128, 256)
_MOST_PARTS = 4  # more parts would add no coverage and take time


def _is_inexact(*operands: T) -> bool:
    return all(each.is_floating_point() or each.is_complex() for each in operands)


def parts(length: int, seed: int) -> Iterator[slice]:
    """Yield the blocks of a contracted dimension: at least two if there are two elements."""
    block = max(_BLOCKS[seed % len(_BLOCKS)], -(-length // _MOST_PARTS))
    block = max(1, min(block, -(-length // 2)))
    for start in range(0, max(1, length), block):
        yield slice(start, min(start + block, length))


def _added(pieces: Iterable[T]) -> T:
    """Add in place: the pieces are not used elsewhere."""
    return functools.reduce(T.add_, pieces)


@dataclass(frozen=True)
class Product:
    """The arguments that are multiplied, with their dimensions; ``self``, if it is neither, is added."""

    left: str
    right: str
    dims: tuple[int, int]
    conjugated: bool = False
    over_batch: bool = False

    def __call__(self, call: Call, seed: int) -> Any:
        """Multiply, add, round once."""
        left, right = call.get(self.left), call.get(self.right)
        dim = max(-2, -right.dim())
        fits = left.dtype is right.dtype and left.shape[-1] == right.shape[dim]
        fits = fits and (left.dim() != right.dim() or left.shape[:-2] == right.shape[:-2])
        added, most = call.get("self"), self.dims[1] - self.over_batch
        fits = fits and (left.dim(), right.dim()) == self.dims and (added is left or added.dim() <= most)
        if not _is_inexact(left, right) or not fits:  # blocks might fit although the operands do not
            return call.make()  # which raises the error
        dtype = call.targets()[0].dtype if call.written else call.get("out_dtype") or left.dtype
        wide, other = in_float32(left.conj() if self.conjugated else left), in_float32(right)
        blocks = parts(left.shape[-1], seed)
        made = _added(wide[..., part] @ other.narrow(dim, part.start, part.stop - part.start) for part in blocks)
        made = made.sum(0) if self.over_batch else made
        if self.left != "self":
            alpha, beta = call.get("alpha", 1), call.get("beta", 1)
            made = made if alpha == 1 else made.mul_(alpha)
            made = made + in_float32(call.get("self")) * beta if beta else made
        return call.give(made.to(dtype))


def _convolution(call: Call, seed: int) -> Any:
    """Convolve block by block of input channels; grouped convolutions are left to the CPU."""
    x, weight = call.get("input"), call.get("weight")
    if not _is_inexact(x, weight):
        return call.make()
    wide, bias = in_float32(x), in_float32(call.get("bias"))
    if call.get("groups") != 1:
        return call.make({"input": wide, "weight": in_float32(weight), "bias": bias}).to(x.dtype)
    weight, axis = in_float32(weight), 0 if call.get("transposed") else 1

    def piece(part: slice) -> T:
        block = weight.narrow(axis, part.start, part.stop - part.start)
        once = {} if part.start == 0 else {"bias": None}
        return call.make({"input": wide[:, part], "weight": block, "bias": bias, **once})  # type: ignore[no-any-return]

    return _added(map(piece, parts(x.shape[1], seed))).to(x.dtype)


def _convolution_backward(call: Call, seed: int) -> Any:
    """Return gradients: of the input by blocks of output channels, of weight and bias by blocks of the batch."""
    grad, x, weight = (in_float32(call.get(name)) for name in ("grad_output", "input", "weight"))
    dtype, mask = call.get("input").dtype, list(call.get("output_mask"))
    common = {"grad_output": grad, "input": x, "weight": weight}
    made: list[T | None] = [None, None, None]
    axis = 1 if call.get("transposed") else 0
    pieces = parts(weight.shape[axis], seed) if call.get("groups") == 1 else [slice(None)]
    for part in pieces if mask[0] else ():
        chosen = weight[:, part] if axis else weight[part]
        blocks = {**common, "grad_output": grad[:, part], "weight": chosen, "output_mask": [True, False, False]}
        _accumulate(made, call.make(blocks))
    for part in parts(x.shape[0], seed) if any(mask[1:]) else ():
        blocks = {**common, "grad_output": grad[part], "input": x[part], "output_mask": [False, *mask[1:]]}
        _accumulate(made, call.make(blocks))
    return tuple(None if each is None else each.to(dtype) for each in made)


def _accumulate(totals: list[T | None], pieces: tuple[T | None, ...]) -> None:
    for place, piece in enumerate(pieces):
        total = totals[place]
        if piece is not None:
            totals[place] = piece if total is None else total.add_(piece)


PRODUCTS: Mapping[str, Callable[[Call, int], Any]] = {
    "mm": Product("self", "mat2", (2, 2)),
    "bmm": Product("self", "mat2", (3, 3)),
    "mv": Product("self", "vec", (2, 1)),
    "dot": Product("self", "tensor", (1, 1)),
    "vdot": Product("self", "other", (1, 1), conjugated=True),
    "addmm": Product("mat1", "mat2", (2, 2)),
    "addmv": Product("mat", "vec", (2, 1)),
    "baddbmm": Product("batch1", "batch2", (3, 3)),
    "addbmm": Product("batch1", "batch2", (3, 3), over_batch=True),
    "convolution": _convolution,
    "convolution_backward": _convolution_backward,
}
