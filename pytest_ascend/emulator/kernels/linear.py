"""Products of matrices and vectors."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name

from pytest_ascend.emulator.choices import emulated_family
from pytest_ascend.emulator.registry import T, gap
from pytest_ascend.emulator.system import IN_ANY_BATCH, determinism
from pytest_ascend.system.dispatching import slow_dtypes


def product(function: Callable[..., T], self: T, other: T, cube: int, out: T) -> None:
    """Multiply two operands; an output of another dtype (mm.dtype) keeps its full precision."""
    self, other = narrowed(cube, self, other)
    if self.dtype != other.dtype:  # CANN promotes them (aclnnMatmul, aclnnBatchMatMul), and casts the product
        dtype = torch.promote_types(self.dtype, other.dtype)
        out.copy_(function(self.to(dtype), other.to(dtype)))
        return
    if self.dtype != out.dtype:
        self, other = self.to(out.dtype), other.to(out.dtype)
    into(out, function, self, other)


def into(out: T, function: Callable[..., T], *operands: T, **how: Any) -> None:
    """Compute into an output, first in float32 if the CPU is slow in half precision."""
    if determinism() == IN_ANY_BATCH and out.numel() and operands[-2].dim() > 1 and operands[-1].dim() > 1:
        out.copy_(_row_by_row(function, *operands, **how))
        return
    # Operands of different dtypes stay unchanged, and torch rejects them.
    wide = widened(*operands) if len({each.dtype for each in operands}) == 1 else operands
    if wide[-1] is operands[-1]:
        function(*operands, **how, out=out)
    else:
        out.copy_(function(*wide, **how))


def _row_by_row(function: Callable[..., T], *operands: T, **how: Any) -> T:
    """Multiply row by row, so that no row's result depends on another row. An added term may have rows, too."""
    *added, left, right = widened(*operands) if len({each.dtype for each in operands}) == 1 else operands
    rows = left.flatten(0, -2) if right.dim() == 2 else left  # with one matrix, a batch is one product
    count = rows.shape[-2]

    def row(x: T, place: int) -> T:
        return x[..., place : place + 1, :].contiguous() if x.dim() > 1 and x.shape[-2] == count else x

    made = [function(*(row(each, n) for each in added), row(rows, n), right, **how) for n in range(count)]
    found = torch.cat(made, -2)
    return found.view(*left.shape[:-1], -1) if rows is not left else found


def added_product(
    function: Callable[..., T], self: T, left: T, right: T, beta: Any, alpha: Any, cube: int, out: T
) -> None:
    """Compute ``beta * self + alpha * (left @ right)``."""
    left, right = narrowed(cube, left, right)
    if not self.dtype == left.dtype == out.dtype:
        self, left, right = self.to(out.dtype), left.to(out.dtype), right.to(out.dtype)
    into(out, function, self, left, right, beta=beta, alpha=alpha)


def matmul(self: T, mat2: T, cube: int, out: T) -> None:
    """Multiply. A batch times one matrix is one large product if the matrix needs a gradient, as on the CPU.

    Whether it does is unknown here, so grad mode decides.
    """
    self, mat2 = narrowed(cube, self, mat2)
    if self.dtype != mat2.dtype:
        product(torch.matmul, self, mat2, cube, out)
    elif widened(mat2)[0] is not mat2:
        out.copy_(torch.matmul(self.float(), mat2.float()))
    elif not torch.is_grad_enabled() or (self.dim() < 3 and mat2.dim() < 3) or self.dtype != out.dtype:
        product(torch.matmul, self, mat2, cube, out)
    elif mat2.dim() == 2 and out.is_contiguous():
        torch.mm(self.flatten(0, -2), mat2, out=out.flatten(0, -2))
    elif mat2.dim() <= 2:
        out.copy_(_folded(self, mat2))
    elif self.dim() <= 2:
        out.copy_(_folded(mat2.mT, self.t()).mT if self.dim() == 2 else _folded(mat2.mT, self))
    else:
        torch.matmul(self, mat2, out=out)


def _folded(batch: T, other: T) -> T:
    """Multiply all matrices of a batch with one matrix or vector in one product."""
    return (batch.flatten(0, -2) @ other).view(batch.shape[:-1] + other.shape[1:])


def bmm(self: T, mat2: T, **out: T) -> T:
    """Multiply batches; one of them may have a single matrix (CheckShape in aclnnBatchMatMul)."""
    batch = max(self.shape[0], mat2.shape[0]) if 1 in (self.shape[0], mat2.shape[0]) else 0
    if batch > 1:
        self, mat2 = (each.expand(batch, -1, -1) for each in (self, mat2))
    return torch.bmm(self, mat2, **out)


def added_bmm(self: T, left: T, right: T, beta: Any, alpha: Any, cube: int, out: T, *, is_total: bool = False) -> None:
    """Compute ``beta * self + alpha * (left @ right)``, or with the sum of all products, as CANN composes it.

    The product, its sum and ``beta * self`` are rounded before the addition, except bfloat16's ``beta * self`` in the
    total (SelfMulsBetaProcess, ExecBmmOpV2, ReduceSumOp, Axpy in aclnn_addbmm.cpp, aclnn_baddbmm.cpp, ops-nn e5c3fa93).
    """
    total = left.new_empty((max(left.shape[0], right.shape[0]), left.shape[1], right.shape[2]), dtype=out.dtype)
    product(bmm, left, right, cube, total)
    total = total.sum(0) if is_total else total
    if not beta:
        out.copy_(total * alpha)
        return
    scaled = (self.float() if is_total and self.dtype == torch.bfloat16 else self).expand_as(total) * beta
    dtype = torch.promote_types(scaled.dtype, total.dtype)
    out.copy_(torch.add(scaled.to(dtype), total.to(dtype), alpha=alpha))


#: Operators that can follow a product, by CANN's names; "add" and "mul" take a third operand.
_THEN: Mapping[str, Callable[[T, Any], T]] = {
    "": lambda y, _: y,
    "16cast32": lambda y, _: y,
    "add": lambda y, x3: y + x3,
    "mul": lambda y, x3: y * x3,
    "relu": lambda y, _: y.relu(),
    "gelu_erf": lambda y, _: torch.ops.aten.gelu(y),
    "gelu_tanh": lambda y, _: F.gelu(y, approximate="tanh"),
}


#: cubeMathType, by CANN's numbers. If lower precision is merely allowed, chips with float32 do not use it here, so that
#: float32 matches the CPU. Products called by name have no such argument: lower precision is allowed.
ALLOW_LOWER, USE_FP16, USE_HF32 = 1, 2, 3


def widened(*operands: T) -> tuple[T, ...]:
    """Return the operands in float32 if the CPU is slow in their dtype; the caller rounds the result, once.

    A cube unit does the same: it takes half precision and accumulates in float32.
    """
    return tuple(each.float() if each.dtype in slow_dtypes() else each for each in operands)


def narrowed(cube_math_type: int, *operands: T) -> tuple[T, ...]:
    """Return the operands as the cube unit reads them: values are rounded, dtypes stay.

    The cube unit takes no float64, which is multiplied without it (IsMatMulSupportDtype in CANN's aclnn_addmv.cpp).
    """
    kind = emulated_family()
    if cube_math_type == USE_FP16 or (cube_math_type and kind is not None and kind.halves):
        cube = (torch.float16, torch.bfloat16, torch.float32)
        return tuple(each.half().to(each.dtype) if each.dtype in cube else each for each in operands)
    if cube_math_type == USE_HF32:
        return tuple(_to_hf32(each) if each.dtype == torch.float32 else each for each in operands)
    return operands


def _to_hf32(tensor: T) -> T:
    """Round float32 to HF32, with 11 bits of fraction; ties, on which public sources differ, go to even."""
    bits = tensor.contiguous().view(torch.int32)
    rounded = (bits >> 12).bitwise_and_(1).add_(bits).add_(0x7FF).bitwise_and_(~0xFFF).view(torch.float32)
    return rounded if tensor.sum().isfinite() else torch.where(tensor.isnan(), tensor, rounded)  # a sum is quicker


Lists = list[T]
#: groupType: which dimension of the first operand is split among the matrices.
_NOTHING, _ROWS = -1, 0
#: splitItem: these values return one result for all rows.
_ONE_RESULT = (2, 3)


def _matrices(weight: Lists) -> Lists:
    return list(weight[0]) if len(weight) == 1 and weight[0].dim() == 3 else weight


def _row_groups(x: Lists, ends: list[int] | None) -> Lists:
    """Return the rows of each group: the given tensors, or rows split at the ends."""
    if ends is None or len(x) > 1:
        return x
    return [x[0][start:end] for start, end in zip([0, *ends], ends, strict=False)]


def _given(lists: Lists | None) -> Lists | None:
    """Return a list with tensors, or None: torch_npu passes a tensor without elements for an omitted list."""
    return lists if lists and lists[0] is not None and lists[0].numel() else None


def grouped_matmul_v4(*given: Any) -> Lists:
    operands: list[Any] = [*given[:2], *map(_given, given[2:8])]
    x, weight, bias, scale, offset, anti, anti_offset, by_token = operands
    groups, split, kind, counted, activation = given[8], *given[12:16]
    gap(offset or (by_token and not scale) or (anti_offset and not anti), "quantized operands are not implemented")
    gap(kind not in (_NOTHING, _ROWS) or activation, "only groups of rows, without an activation, are implemented")
    ends = None if groups is None else groups.cumsum(0) if counted else groups
    ends = None if ends is None else ends.tolist()
    if anti:
        whole = [(whole_of(w).float(), s, o) for w, s, o in _aligned(_matrices(weight), anti, anti_offset)]
        weight = [
            (w + (0 if o is None else over_rows(o, len(w), len(w) // len(o)))) * over_rows(s, len(w), len(w) // len(s))
            for w, s, o in whole
        ]
    rows = _row_groups(x, ends)
    if not scale:
        biases = list(bias[0]) if bias and len(bias) == 1 and bias[0].dim() > 1 else bias
        made = [each.float() @ matrix.float() for each, matrix in zip(rows, _matrices(weight), strict=True)]
        if biases:
            made = [each + added.float().view(1, -1) for each, added in zip(made, biases, strict=True)]
        return [torch.cat(made)] if split in _ONE_RESULT else made
    tokens = _row_groups(by_token, ends) if by_token else [None] * len(rows)
    parts = zip(rows, _aligned(_matrices(weight), scale, bias), tokens, strict=True)
    made = [scaled_product(part, whole_of(w), t, s, b) for part, (w, s, b), t in parts]
    return [torch.cat(made)] if split in _ONE_RESULT else made


def _aligned(weight: Lists, one: Lists, other: Lists | None) -> list[tuple[T, T, T | None]]:
    """Return each matrix with its own scale and offset or bias, from lists or from one tensor for all."""
    first, second = (
        each if each is None or len(each) > 1 or len(weight) == 1 else list(each[0]) for each in (one, other)
    )
    if len(weight) == 1 and first is not None and first[0].dim() > 1 and first[0].shape[0] == 1:
        first = [first[0][0]]
    return list(zip(weight, first or [], second or [None] * len(weight), strict=True))


def over_rows(values: T, rows: int, group: int) -> T:
    """Return one scale for each row (of inputs) and column of a weight, from scales per tensor, column or group."""
    values = values.float()
    return values.repeat_interleave(group, 0)[:rows] if group and values.dim() == 2 else values


def whole_of(x: T) -> T:
    """Return int8 unchanged; unpack words of int32 into eight four-bit numbers, the first lowest, in dense memory."""
    if x.dtype is not torch.int32:
        return x
    dense = x.dim() - 1 if x.stride(-1) == 1 else x.dim() - 2
    nibbles = (x.movedim(dense, -1).unsqueeze(-1) >> (4 * torch.arange(8, dtype=torch.int32))) & 15
    return ((nibbles ^ 8) - 8).flatten(-2).movedim(-1, dense)


_ACTIVATIONS: Mapping[str, Callable[[T], T]] = {
    "relu": F.relu,
    "gelu": torch.ops.aten.gelu,  # functional.gelu uses another formula while a case is judged again
    "fastgelu": lambda x: x * torch.sigmoid(1.702 * x),
    "silu": F.silu,
}


def ffn(x: T, weight1: T, weight2: T, tokens: list[int] | None, *given: Any) -> T:
    """Compute two layers with an activation between them, by expert; rows are sorted by expert.

    ``tokens`` counts each expert's rows, or gives their end positions.
    """
    *parts, activation, _precise, are_ends = given
    if not tokens:
        return _two_layers(x, weight1, weight2, *parts, activation=activation)
    ends = tokens if are_ends else list(itertools.accumulate(tokens))
    made = x.new_zeros(len(x), weight2.shape[-1], dtype=torch.float32)
    for expert, (start, end) in enumerate(zip([0, *ends], ends, strict=False)):
        mine = [each if each is None else each[expert] for each in parts]
        made[start:end] = _two_layers(x[start:end], weight1[expert], weight2[expert], *mine, activation=activation)
    return made


def _two_layers(x: T, weight1: T, weight2: T, *given: T | None, activation: str) -> T:
    bias1, bias2, scale, offset, deq1, deq2, anti1, anti2, shift1, shift2 = given
    inner = _layer(x, weight1, bias1, deq1, anti1, shift1)
    if deq1 is not None and deq1.dtype is torch.int64:  # scales of the matrix unit, whose result is float16
        inner = inner.half()
    inner = _ACTIVATIONS[activation](inner)
    if scale is not None:
        inner = inner * scale.to(inner.dtype) + (0 if offset is None else offset.to(inner.dtype))
        inner = inner.round().clamp(-128, 127)
    return _layer(inner, weight2, bias2, deq2, anti2, shift2)


def _layer(x: T, weight: T, bias: T | None, deq: T | None, anti: T | None, shift: T | None) -> T:
    """Multiply; integers are summed exactly and scaled by ``deq``; an int8 weight takes the dtype of its scales."""
    if anti is not None:
        weight = (weight.to(anti.dtype) + (0 if shift is None else shift)) * anti
    wide = torch.float32 if deq is None else torch.float64
    made = x.to(wide) @ weight.to(wide)
    if bias is not None:
        made = made + bias
    return made.float() if deq is None else made.float() * scales_of(deq)


def scaled_product(x1: T, x2: T, rows: T | None, columns: T, bias: T | None = None) -> T:
    """Multiply exactly, then scale by row and by column in float32.

    An integer bias is added before the scales, a floating-point bias after them.
    """
    before, after = (bias, None) if bias is not None and not bias.is_floating_point() else (None, bias)
    made = x1.double() @ x2.double() + (0 if before is None else before)
    scaled = made.float() * scales_of(columns) * (1 if rows is None else rows.float().unsqueeze(-1))
    return scaled + (0 if after is None else after.float())


def scales_of(packed: T) -> T:
    """Return scales, which may be float32 bits in the lower half of int64."""
    return packed.contiguous().view(torch.float32)[..., ::2] if packed.dtype is torch.int64 else packed.float()
