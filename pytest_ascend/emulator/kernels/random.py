"""Random numbers. The same seed and offset give the same numbers, which are neither an NPU's nor the CPU's own."""

from __future__ import annotations

import math
from typing import Any

import torch

from pytest_ascend.emulator.registry import Family, aten
from pytest_ascend.emulator.signature import parse

family = Family("random")
op = family.op
T = torch.Tensor
L = list[int]

_64_BITS = 0xFFFF_FFFF_FFFF_FFFF
_SEED = "uint64 seed, uint64 offset"


def generator(seed: int, offset: int) -> torch.Generator:
    """Return a generator for one call: torch_npu advances the offset from call to call.

    The CPU's generator uses 32 bits of a seed, so that all bits are mixed first (the finalizer of SplitMix64).
    """
    mixed = (seed + 0x9E37_79B9_7F4A_7C15 * (offset + 1)) & _64_BITS
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58_476D_1CE4_E5B9) & _64_BITS
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D0_49BB_1331_11EB) & _64_BITS
    return torch.Generator().manual_seed(mixed ^ (mixed >> 31))


@family.kernel(f"aclnnInplaceUniform(inout Tensor self, double low, double high, {_SEED})")
def uniform_(x: T, low: float, high: float, seed: int, offset: int) -> None:
    x.uniform_(low, high, generator=generator(seed, offset))


@family.kernel(f"aclnnInplaceNormal(inout Tensor self, float mean, float std, {_SEED})")
def normal_(x: T, mean: float, std: float, seed: int, offset: int) -> None:
    if x.is_complex() or x.dtype in {torch.float32, torch.float64}:
        x.normal_(mean, std, generator=generator(seed, offset))
    else:  # half precision is rounded once; CANN takes integers too, and truncates fractions
        x.copy_(torch.empty(x.shape).normal_(mean, std, generator=generator(seed, offset)))


@family.kernel(f"aclnnInplaceRandom(inout Tensor self, int64 low, int64 high, {_SEED})")
def random_(x: T, low: int, high: int, seed: int, offset: int) -> None:
    x.random_(low, high, generator=generator(seed, offset))


@family.kernel(f"aclnnInplaceRandomWithoutFromTo(inout Tensor self, {_SEED})")
def random_whole_(x: T, seed: int, offset: int) -> None:
    x.random_(generator=generator(seed, offset))


@family.kernel(f"aclnnInplaceBernoulli(inout Tensor self, Scalar probability, {_SEED})")
@family.kernel(f"aclnnInplaceBernoulliTensor(inout Tensor self, Tensor probability, {_SEED})")
def bernoulli_(x: T, probability: Any, seed: int, offset: int) -> None:
    x.bernoulli_(probability, generator=generator(seed, offset))


@family.kernel(f"aclnnMultinomial(Tensor self, int64 count, bool replacement, {_SEED}, out Tensor out)")
def multinomial(x: T, count: int, replacement: bool, seed: int, offset: int) -> T:
    return torch.multinomial(x, count, replacement, generator=generator(seed, offset))


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


@family.kernel_named("StatelessRandomNormalV2")
def normal_stateless(shape: T, key: T, counter: T, _: T, *, dtype: torch.dtype) -> T:
    made = torch.empty(shape.tolist()).normal_(generator=generator(int(key[0]), int(counter[-1])))
    return made.to(dtype)


@family.kernel_named("RandomChoiceWithMask")
def random_choice(x: T, *, count: int, seed: int, seed2: int) -> tuple[T, T]:
    """Return places of some of the true elements, in order and padded with 0, and which of them are no padding."""
    places = x.nonzero()
    chosen = torch.randperm(len(places), generator=generator(seed, seed2))[:count].sort().values
    found = torch.zeros(count, x.dim(), dtype=torch.int64)
    found[: len(chosen)] = places[chosen]
    return found, torch.arange(count) < len(chosen)


_RRELU = f"Scalar lower, Scalar upper, bool training, {_SEED}"


@family.kernel(f"aclnnRReluWithNoise(Tensor self, inout Tensor noise, {_RRELU}, out Tensor out)")
def rrelu_with_noise(x: T, noise: T, low: float, high: float, training: bool, seed: int, offset: int) -> T:
    drawn = torch.empty(noise.shape)  # in float32, as the CPU has no kernel for float16
    result: T = aten.rrelu_with_noise(x.float(), drawn, low, high, training, generator(seed, offset))
    if training:
        noise.copy_(drawn)
    return result


@family.kernel(f"aclnnInplaceRReluWithNoise(inout Tensor self, inout Tensor noise, {_RRELU})")
def rrelu_with_noise_(x: T, noise: T, low: float, high: float, training: bool, seed: int, offset: int) -> None:
    x.copy_(rrelu_with_noise(x, noise, low, high, training, seed, offset))


# --- dropout: a mask with one bit per element, least significant first, in whole bytes of uint8 ---

#: Byte -> its eight bits.
_BITS = (torch.arange(256, dtype=torch.uint8)[:, None] >> torch.arange(8, dtype=torch.uint8)) & 1
_WEIGHTS = 2 ** torch.arange(8, dtype=torch.uint8)


def drop_mask(probability: float, bytes_: int, seed: int, offset: int) -> T:
    """Return a mask of so many bytes, in which each element is dropped with a probability."""
    keep = torch.empty(bytes_, 8, dtype=torch.uint8).bernoulli_(1 - probability, generator=generator(seed, offset))
    return (keep * _WEIGHTS).sum(1, dtype=torch.uint8)


@family.kernel(f"aclnnDropoutGenMask(IntArray shape, double probability, {_SEED}, inout Tensor out)")
def dropout_gen_mask(_: list[int], probability: float, seed: int, offset: int, out: T) -> None:
    out.copy_(drop_mask(probability, out.numel(), seed, offset))


@family.kernel(f"aclnnDropoutGenMaskV2(IntArray shape, double probability, {_SEED}, dtype dtype, inout Tensor out)")
def dropout_gen_mask_v2(_: list[int], probability: float, seed: int, offset: int, __: torch.dtype, out: T) -> None:
    out.copy_(drop_mask(probability, out.numel(), seed, offset))


@family.kernel_named("DropOutGenMaskV3")
def dropout_gen_mask_by_name(shape: T, keep: T, *, seed: int, seed2: int) -> T:
    """Return one byte per element, 1 if it is kept; the two seeds are one of 128 bits."""
    kept = torch.empty(shape.tolist(), dtype=torch.uint8)
    return kept.bernoulli_(float(keep), generator=generator(seed, seed2))


@family.kernel_named("DropOutDoMaskV3")
def dropout_by_bytes(x: T, kept: T, keep: T) -> T:
    return x.float() * kept / float(keep)


@family.kernel_named("AxpyWithSoftmaxAndDropOutDoMask")
def add_softmax_dropout(x: T, y: T, kept: T, *, alpha: float, input_keep_prob: float, axis: L) -> tuple[T, T]:
    """Return the softmax of x + alpha * y, and what dropout leaves of it; the mask may be longer than needed."""
    softmax = x.float().add(y.float(), alpha=alpha).softmax(axis[0])
    return softmax, dropout_by_bytes(softmax, kept[: x.numel()].view(x.shape), torch.tensor(input_keep_prob))


@family.kernel_named("DropoutWithMulsAndSoftmaxGrad")
def add_softmax_dropout_grad(grad: T, kept: T, softmax: T, *, alpha: float, input_keep_prob: float, axes: L) -> T:
    through = dropout_by_bytes(grad, kept[: grad.numel()].view(grad.shape), torch.tensor(input_keep_prob))
    made: T = aten._softmax_backward_data(through, softmax.float(), axes[0], torch.float32)
    return made.mul_(alpha)


@family.kernel("aclnnDropoutDoMask(Tensor self, Tensor mask, double probability, out Tensor out)")
def dropout_do_mask(x: T, mask: T, probability: float) -> T:
    keep = _BITS[mask.int()].view(-1)[: x.numel()].view(x.shape)
    return x.mul(keep).mul_(0 if probability == 1 else 1 / (1 - probability))


@family.kernel_named("StatelessDropOutGenMask")
def dropout_gen_mask_stateless(shape: T, keep: T, seed: T, _: T, offset: T) -> T:
    """Return one bit per element in whole blocks of 128; the offset has two words, the second is the lower one."""
    blocks = -(-math.prod(shape.tolist()) // 128)
    return drop_mask(1 - float(keep), blocks * 16, int(seed), int(offset[-1]))


family.named("DropOutDoMask", lambda x, mask, keep: dropout_do_mask(x.float(), mask, 1 - float(keep)))


@family.kernel(
    "aclnnDropoutV3(Tensor input, Tensor noiseShape, double probability, uint64 seed, uint64 offset, out Tensor out,"
    " out Tensor mask)"
)
def dropout_v3(x: T, _: T | None, probability: float, seed: int, offset: int) -> tuple[T, T]:
    """Drop, and return what was kept, in whole blocks of 128 bits."""
    mask = drop_mask(probability, -(-x.numel() // 128) * 16, seed, offset)
    return dropout_do_mask(x, mask, probability), mask


@family.kernel("aclnnDropoutV3Grad(Tensor gradY, Tensor mask, double scale, out Tensor gradX)")
def dropout_v3_grad(grad: T, mask: T, scale: float) -> T:
    return grad.mul(_BITS[mask.int()].view(-1)[: grad.numel()].view(grad.shape)).mul_(scale)


@family.kernel("aclnnMaskedScale(Tensor self, Tensor mask, double scale, out Tensor out)")
def masked_scale(x: T, mask: T, scale: float) -> T:
    return x.mul(mask).mul_(scale)


# --- the same with seed and offset as tensors, which a captured graph reads whenever it is executed ---

_STATE = "Tensor seed, Tensor offset, uint64 more"


def _of_state(declaration: str, body: Any) -> None:
    """Declare an operator whose seed and offset are tensors, with a number that is added to the offset."""
    at = [each.name for each in parse(declaration).parameters if each.is_input].index("seed")

    def drawn(*given: Any) -> Any:
        seed, offset, more = given[at : at + 3]
        return body(*given[:at], int(seed), int(offset) + more, *given[at + 3 :])

    op(declaration, drawn)


_of_state(f"aclnnInplaceUniformTensor(inout Tensor self, double low, double high, {_STATE})", uniform_)
_of_state(f"aclnnInplaceNormalTensor(inout Tensor self, float mean, float std, {_STATE})", normal_)
_of_state(f"aclnnInplaceRandomTensor(inout Tensor self, int64 low, int64 high, {_STATE})", random_)
_of_state(f"aclnnInplaceRandomWithoutFromToTensor(inout Tensor self, {_STATE})", random_whole_)
_of_state(f"aclnnMultinomialTensor(Tensor self, int64 count, bool replacement, {_STATE}, out Tensor out)", multinomial)
_of_state(
    f"aclnnStatelessExponentialTensor(inout Tensor self, {_STATE}, double lambd)",
    lambda x, seed, offset, rate: exponential_(x, 0, rate, seed, offset),
)
_of_state(
    f"aclnnDropoutGenMaskV2Tensor(IntArray shape, double probability, {_STATE}, dtype dtype, inout Tensor out)",
    dropout_gen_mask_v2,
)
_of_state(
    f"aclnnDropoutV3Tensor(Tensor input, Tensor noiseShape, double probability, {_STATE}, out Tensor out,"
    " out Tensor mask)",
    dropout_v3,
)
