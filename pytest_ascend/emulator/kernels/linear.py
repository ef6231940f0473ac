"""Products of matrices and vectors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name

from pytest_ascend.emulator.kernels.cube import narrowed, widened
from pytest_ascend.emulator.registry import Family

family = Family("linear")
op = family.op
T = torch.Tensor


def _product(function: Callable[..., T]) -> Callable[..., None]:
    """Make a body of a product of two operands; an output of another dtype (mm.dtype) gets its full precision."""

    def body(self: T, other: T, cube: int, out: T) -> None:
        self, other = narrowed(cube, self, other)
        if self.dtype != out.dtype:
            self, other = self.to(out.dtype), other.to(out.dtype)
        _into(out, function, self, other)

    return body


def _into(out: T, function: Callable[..., T], *operands: T, **how: Any) -> None:
    """Compute into an output, in float32 first where the CPU is slow in half precision."""
    # Operands of two dtypes are left as they are: torch refuses them, and so does CANN.
    wide = widened(*operands) if len({each.dtype for each in operands}) == 1 else operands
    if wide[-1] is operands[-1]:
        function(*operands, **how, out=out)
    else:
        out.copy_(function(*wide, **how))


def _added_product(function: Callable[..., T]) -> Callable[..., None]:
    """Make a body of ``beta * self + alpha * (left @ right)``."""

    def body(self: T, left: T, right: T, beta: Any, alpha: Any, cube: int, out: T) -> None:
        left, right = narrowed(cube, left, right)
        if not self.dtype == left.dtype == out.dtype:
            self, left, right = self.to(out.dtype), left.to(out.dtype), right.to(out.dtype)
        _into(out, function, self, left, right, beta=beta, alpha=alpha)

    return body


def matmul(self: T, mat2: T, cube: int, out: T) -> None:
    """Multiply. A batch times one matrix is one large product where CPU makes it one: if the matrix needs a gradient.

    What needs a gradient is not known here; that gradients are on stands for it.
    """
    self, mat2 = narrowed(cube, self, mat2)
    if widened(mat2)[0] is not mat2:
        out.copy_(torch.matmul(self.float(), mat2.float()))
    elif not torch.is_grad_enabled() or (self.dim() < 3 and mat2.dim() < 3) or self.dtype != out.dtype:
        _product(torch.matmul)(self, mat2, cube, out=out)
    elif mat2.dim() == 2 and out.is_contiguous():
        torch.mm(self.reshape(-1, self.shape[-1]), mat2, out=out.view(-1, out.shape[-1]))
    elif mat2.dim() <= 2:
        out.copy_(_folded(self, mat2))
    elif self.dim() <= 2:
        out.copy_(_folded(mat2.mT, self.t()).mT if self.dim() == 2 else _folded(mat2.mT, self))
    else:
        torch.matmul(self, mat2, out=out)


def _folded(batch: T, other: T) -> T:
    """Multiply all matrices of a batch with one matrix or vector at once."""
    return (batch.reshape(-1, batch.shape[-1]) @ other).view(batch.shape[:-1] + other.shape[1:])


def addmm(self: T | None, mat1: T, mat2: T, beta: Any, alpha: Any, cube: int, out: T) -> None:
    if self is None:  # npu_linear without a bias
        _mm(mat1, mat2, cube, out=out)
    else:
        _addmm(self, mat1, mat2, beta, alpha, cube, out=out)


def addmv(self: T, mat: T, vec: T, alpha: Any, beta: Any, cube: int, out: T) -> None:
    _addmv(self, mat, vec, beta, alpha, cube, out=out)


def inplace_addmm(self: T, mat1: T, mat2: T, beta: Any, alpha: Any, cube: int) -> None:
    mat1, mat2 = narrowed(cube, mat1, mat2)
    _into(self, torch.addmm, self, mat1, mat2, beta=beta, alpha=alpha)


def _or_one(number: Any) -> Any:
    return 1 if number is None else number


def addr(self: T, vec1: T, vec2: T, beta: Any, alpha: Any, out: T) -> None:
    torch.addr(self, vec1, vec2, beta=_or_one(beta), alpha=_or_one(alpha), out=out)


def inplace_addr(self: T, vec1: T, vec2: T, beta: Any, alpha: Any) -> None:
    self.addr_(vec1, vec2, beta=_or_one(beta), alpha=_or_one(alpha))


_mm, _addmm, _addmv = _product(torch.mm), _added_product(torch.addmm), _added_product(torch.addmv)

op("aclnnMm(Tensor self, Tensor mat2, out Tensor out, int8 cube)", _mm, into=True)
op("aclnnBatchMatMul(Tensor self, Tensor mat2, out Tensor out, int8 cube)", _product(torch.bmm), into=True)
op("aclnnMatmul(Tensor self, Tensor mat2, out Tensor out, int8 cube)", matmul, into=True)
op("aclnnMv(Tensor self, Tensor vec, out Tensor out, int8 cube)", _product(torch.mv), into=True)
op("aclnnDot(Tensor self, Tensor tensor, out Tensor out)", torch.dot)
_ADDED = "Scalar beta, Scalar alpha, out Tensor out, int8 cube"
op(f"aclnnAddmm(Tensor self, Tensor mat1, Tensor mat2, {_ADDED})", addmm, into=True)
op(f"aclnnAddbmm(Tensor self, Tensor batch1, Tensor batch2, {_ADDED})", _added_product(torch.addbmm), into=True)
op(f"aclnnBaddbmm(Tensor self, Tensor batch1, Tensor batch2, {_ADDED})", _added_product(torch.baddbmm), into=True)
op(
    "aclnnAddmv(Tensor self, Tensor m, Tensor v, Scalar alpha, Scalar beta, out Tensor out, int8 cube)",
    addmv,
    into=True,
)
op("aclnnInplaceAddmm(inout Tensor self, Tensor m1, Tensor m2, Scalar beta, Scalar alpha, int8 cube)", inplace_addmm)
op("aclnnAddr(Tensor self, Tensor vec1, Tensor vec2, Scalar beta, Scalar alpha, out Tensor out)", addr, into=True)
op("aclnnInplaceAddr(inout Tensor self, Tensor vec1, Tensor vec2, Scalar beta, Scalar alpha)", inplace_addr)


@family.kernel(
    "aclnnTransposeBatchMatMul(Tensor x1, Tensor x2, Tensor bias, Tensor scale, IntArray permX1, IntArray permX2,"
    " IntArray permY, int8 cube, int64 batchSplitFactor, out Tensor out)"
)
def transpose_batch_mat_mul(
    x1: T,
    x2: T,
    bias: T | None,
    scale: T | None,
    perm1: list[int],
    perm2: list[int],
    perm: list[int],
    cube: int,
    _: int,
) -> T:
    if bias is not None or scale is not None:
        raise NotImplementedError("bias and scale are not implemented for npu_transpose_batchmatmul")
    return torch.bmm(*narrowed(cube, x1.permute(perm1), x2.permute(perm2))).permute(perm)


@family.kernel_named("BatchMatMul")
def batch_mat_mul(left: T, right: T, adj_x1: bool, adj_x2: bool) -> T:
    """Multiply; what is to be transposed comes as it lies in memory."""
    return (left.mT if adj_x1 else left) @ (right.mT if adj_x2 else right)


#: What a product can be given to at once, by the name that CANN has for it; "add" and "mul" take a third operand.
_THEN: Mapping[str, Callable[[T, Any], T]] = {
    "": lambda y, _: y,
    "16cast32": lambda y, _: y,
    "add": lambda y, x3: y + x3,
    "mul": lambda y, x3: y * x3,
    "relu": lambda y, _: y.relu(),
    "gelu_erf": lambda y, _: F.gelu(y),
    "gelu_tanh": lambda y, _: F.gelu(y, approximate="tanh"),
}


@family.kernel(
    "aclnnFusedMatmul(Tensor x1, Tensor x2, Tensor bias, Tensor x3, text fusedOpType, int8 cube, out Tensor y)"
)
def fused_matmul(x1: T, x2: T, bias: T | None, x3: T | None, then: str, cube: int) -> T:
    if then not in _THEN:
        raise NotImplementedError(f"fusing a product with {then!r} is not emulated")
    x1, x2 = widened(*narrowed(cube, x1, x2))
    made = x1 @ x2 if bias is None else torch.addmm(bias.to(x1.dtype), x1, x2)
    return _THEN[then](made, None if x3 is None else x3.to(made.dtype))
