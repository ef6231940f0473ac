"""Activations that only NPUs have in one operator.

PyTorch has no function of its own to agree with: all are computed in float32 and rounded once.
"""

from __future__ import annotations

import torch
from torch.nn import functional

from pytest_ascend.emulator.registry import Family, aten

T = torch.Tensor

family = Family("gated")

#: How CANN counts the ways to compute GELU.
APPROXIMATE = ("none", "tanh")


@family.kernel("aclnnFastGelu(Tensor self, out Tensor out)")
def fast_gelu(self: T) -> T:
    x = self.float()
    return x * torch.sigmoid(1.702 * x)


family.named("FastGelu", fast_gelu)


@family.kernel("aclnnFastGeluBackward(Tensor grad, Tensor self, out Tensor gradInput)")
def fast_gelu_backward(grad: T, self: T) -> T:
    x = self.float()
    share = torch.sigmoid(1.702 * x)
    return grad.float() * (share + 1.702 * x * share * (1 - share))


@family.kernel("aclnnSwiGlu(Tensor x, int64 dim, out Tensor out)")
def swiglu(x: T, dim: int) -> T:
    gate, value = x.float().chunk(2, dim)
    return functional.silu(gate) * value


@family.kernel("aclnnSwiGluGrad(Tensor grad, Tensor x, int64 dim, out Tensor out)")
def swiglu_grad(grad: T, x: T, dim: int) -> T:
    grad = grad.float()
    gate, value = x.float().chunk(2, dim)
    return torch.cat([aten.silu_backward(grad * value, gate), grad * functional.silu(gate)], dim)


@family.kernel(
    "aclnnClippedSwiglu(Tensor x, Tensor groupIndex, int64 dim, double alpha, double limit, double bias, "
    "bool interleaved, out Tensor out)"
)
def clipped_swiglu(x: T, _: T | None, dim: int, alpha: float, limit: float, bias: float, interleaved: bool) -> T:
    """Return all rows; those beyond the sum of the group index are nobody's."""
    x = x.float()
    gate, value = aten.unflatten(x, dim, (-1, 2)).unbind(dim % x.ndim + 1) if interleaved else x.chunk(2, dim)
    gate, value = gate.clamp(max=limit), value.clamp(-limit, limit)
    return gate * torch.sigmoid(alpha * gate) * (value + bias)


@family.kernel("aclnnGeluMul(Tensor input, text approximate, out Tensor out)")
def gelu_mul(x: T, approximate: str | None) -> T:
    gate, value = x.float().chunk(2, -1)
    return functional.gelu(gate, approximate=approximate or "none") * value


_GEGLU = "int64 dim, int64 approximate, bool activateLeft"


@family.kernel(f"aclnnGeGluV3(Tensor self, {_GEGLU}, out Tensor out, out Tensor outGelu)")
def geglu(x: T, dim: int, approximate: int, activate_left: bool) -> tuple[T, T]:
    gate, value = x.float().chunk(2, dim)[:: 1 if activate_left else -1]
    gelu = functional.gelu(gate, approximate=APPROXIMATE[approximate])
    return gelu * value, gelu


@family.kernel(f"aclnnGeGluV3Backward(Tensor grad, Tensor self, Tensor gelu, {_GEGLU}, out Tensor gradInput)")
def geglu_backward(grad: T, x: T, gelu: T, dim: int, approximate: int, activate_left: bool) -> T:
    grad, order = grad.float(), 1 if activate_left else -1
    gate, value = x.float().chunk(2, dim)[::order]
    of_gate = aten.gelu_backward(grad * value, gate, approximate=APPROXIMATE[approximate])
    return torch.cat([of_gate, grad * gelu.float()][::order], dim)
