"""Random numbers. The same seed and offset give the same numbers, which are neither an NPU's nor CPU's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from pytest_ascend.emulator.registry import Family

family = Family("random")
op = family.op
aten = torch.ops.aten
T = torch.Tensor

_64_BITS = 0xFFFF_FFFF_FFFF_FFFF
_SEED = "uint64 seed, uint64 offset"


def generator(seed: int, offset: int) -> torch.Generator:
    """Give a generator for one call: torch_npu advances the offset from call to call.

    CPU's generator takes 32 bits of a seed, so that all bits are mixed first (the finalizer of SplitMix64).
    """
    mixed = (seed + 0x9E37_79B9_7F4A_7C15 * (offset + 1)) & _64_BITS
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58_476D_1CE4_E5B9) & _64_BITS
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D0_49BB_1331_11EB) & _64_BITS
    return torch.Generator().manual_seed(mixed ^ (mixed >> 31))


def _drawn(declaration: str, body: Callable[..., Any]) -> None:
    """Declare an operator that draws from a seed and an offset, and the one that takes both from device memory.

    The declaration has the place of them in braces; ``body`` takes the other inputs, then the generator.
    """
    name, rest = declaration.split("(", 1)
    op(declaration.format(_SEED), lambda *inputs: body(*inputs[:-2], generator(*inputs[-2:])))
    in_memory = f"{name}Tensor({rest}".format("Tensor seed, Tensor offset, uint64 step")
    op(in_memory, lambda *inputs: body(*inputs[:-3], generator(inputs[-3].item(), inputs[-2].item() + inputs[-1])))


_drawn(
    "aclnnInplaceUniform(inout Tensor self, double low, double high, {})",
    lambda x, low, high, drawn: x.uniform_(low, high, generator=drawn),
)
_drawn(
    "aclnnInplaceNormal(inout Tensor self, float mean, float std, {})",
    lambda x, mean, std, drawn: x.normal_(mean, std, generator=drawn),
)
_drawn(
    "aclnnInplaceRandom(inout Tensor self, int64 low, int64 high, {})",
    lambda x, low, high, drawn: x.random_(low, high, generator=drawn),
)
_drawn("aclnnInplaceRandomWithoutFromTo(inout Tensor self, {})", lambda x, drawn: x.random_(generator=drawn))
_drawn(
    "aclnnMultinomial(Tensor self, int64 count, bool replacement, {}, out Tensor out)",
    lambda x, count, replacement, drawn: torch.multinomial(x, count, replacement, generator=drawn),
)


@family.kernel(f"aclnnInplaceBernoulli(inout Tensor self, Scalar probability, {_SEED})")
@family.kernel(f"aclnnInplaceBernoulliTensor(inout Tensor self, Tensor probability, {_SEED})")
def bernoulli_(x: T, probability: Any, seed: int, offset: int) -> None:
    x.bernoulli_(probability, generator=generator(seed, offset))


@family.kernel(f"aclnnRandperm(int64 n, {_SEED}, out Tensor out)")
def randperm(n: int, seed: int, offset: int) -> T:
    return torch.randperm(n, generator=generator(seed, offset))


for _name, _mean, _std in (
    ("FloatFloat", "float", "float"),
    ("FloatTensor", "float", "Tensor"),
    ("TensorFloat", "Tensor", "float"),
    ("TensorTensor", "Tensor", "Tensor"),
):

    @family.kernel(f"aclnnNormal{_name}({_mean} mean, {_std} std, {_SEED}, inout Tensor out)")
    def normal(mean: Any, std: Any, seed: int, offset: int, out: T) -> None:
        out.normal_(generator=generator(seed, offset)).mul_(std).add_(mean)


@family.kernel(f"aclnnSimThreadExponential(inout Tensor self, int64 count, double lambd, {_SEED})")
def exponential_(x: T, _: int, rate: float, seed: int, offset: int) -> None:
    x.exponential_(rate, generator=generator(seed, offset))


@family.kernel(
    "aclnnStatelessExponentialTensor(inout Tensor self, Tensor seed, Tensor offset, int64 step, double lambd)"
)
def exponential_in_graph_(x: T, seed: T, offset: T, step: int, rate: float) -> None:
    x.exponential_(rate, generator=generator(int(seed), int(offset) + step))


_RRELU = f"Scalar lower, Scalar upper, bool training, {_SEED}"


@family.kernel(f"aclnnRReluWithNoise(Tensor self, inout Tensor noise, {_RRELU}, out Tensor out)")
def rrelu_with_noise(x: T, noise: T, low: float, high: float, training: bool, seed: int, offset: int) -> T:
    drawn = torch.empty(noise.shape)  # in float32, as CPU has no kernel for float16
    result: T = aten.rrelu_with_noise(x.float(), drawn, low, high, training, generator(seed, offset))
    if training:
        noise.copy_(drawn)
    return result


@family.kernel(f"aclnnInplaceRReluWithNoise(inout Tensor self, inout Tensor noise, {_RRELU})")
def rrelu_with_noise_(x: T, noise: T, low: float, high: float, training: bool, seed: int, offset: int) -> None:
    x.copy_(rrelu_with_noise(x, noise, low, high, training, seed, offset))


# --- dropout: a mask of one bit an element, least significant first, in whole bytes of uint8 ---

#: Byte -> its eight bits.
_BITS = (torch.arange(256, dtype=torch.uint8)[:, None] >> torch.arange(8, dtype=torch.uint8)) & 1
_WEIGHTS = 2 ** torch.arange(8, dtype=torch.uint8)


def _mask(probability: float, bytes_: int, seed: int, offset: int) -> T:
    keep = torch.empty(bytes_, 8, dtype=torch.uint8).bernoulli_(1 - probability, generator=generator(seed, offset))
    return (keep * _WEIGHTS).sum(1, dtype=torch.uint8)


@family.kernel(f"aclnnDropoutGenMask(IntArray shape, double probability, {_SEED}, inout Tensor out)")
def dropout_gen_mask(_: list[int], probability: float, seed: int, offset: int, out: T) -> None:
    out.copy_(_mask(probability, out.numel(), seed, offset))


@family.kernel(f"aclnnDropoutGenMaskV2(IntArray shape, double probability, {_SEED}, dtype dtype, inout Tensor out)")
def dropout_gen_mask_v2(_: list[int], probability: float, seed: int, offset: int, __: torch.dtype, out: T) -> None:
    out.copy_(_mask(probability, out.numel(), seed, offset))


@family.kernel("aclnnDropoutDoMask(Tensor self, Tensor mask, double probability, out Tensor out)")
def dropout_do_mask(x: T, mask: T, probability: float) -> T:
    keep = _BITS[mask.int()].view(-1)[: x.numel()].view(x.shape)
    return x.mul(keep).mul_(0 if probability == 1 else 1 / (1 - probability))


@family.kernel("aclnnMaskedScale(Tensor self, Tensor mask, double scale, out Tensor out)")
def masked_scale(x: T, mask: T, scale: float) -> T:
    return x.mul(mask).mul_(scale)
