"""Random calls of operators, drawn without the suite: torch's own database of samples, in other sizes and numbers.

What they show is what a user could see: whether any legal call of up to 2**20 elements tells a wrong kernel.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch

from pytest_ascend.operators.calling import on_tensors, preserve_layout, tensors
from pytest_ascend.operators.reference import numbers_in_float64
from pytest_ascend.operators.target import placed
from pytest_ascend.precision.nested import widened
from tests.meta.kernel_switch import has_same_bits
from tools.ops.database import database

#: Elements of all tensors of a call.
LARGEST = 1 << 20
DTYPES = (torch.float32, torch.int64, torch.float16, torch.int32, torch.bfloat16, torch.bool)
#: Samples of the database that calls start from, of each operator in a dtype.
_SAMPLES = 24
#: A result is wrong that is off by so many units in the last place, beside so many times what the CPU is off by.
_ULPS, _TIMES = 6.0, 4.0
#: Operators of which PyTorch promises the place of the first of equal elements, or an order of them.
TIES = ("argmax", "argmin", "argsort", "sort", "max", "min", "mode", "unique", "unique_consecutive", "searchsorted")

NPU = torch.device("npu", 0)


@dataclass(frozen=True, slots=True)
class Call:
    """One call: ``leaves`` are the places of tensors that are differentiated by, none where it does not go back."""

    operator: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    goes_back: bool = False

    @property
    def text(self) -> str:
        """What is called, with sizes and strides in place of tensors."""
        name = getattr(self.function, "__name__", self.operator)
        return f"{name}{on_tensors(_described, (self.args, dict(self.kwargs)))}"[:600]

    def on(self, device: torch.device, change: Callable[[torch.Tensor], torch.Tensor] | None = None) -> list[Any]:
        """Call there; return results, or gradients by every floating tensor, on the CPU."""
        given = (self.args, dict(self.kwargs))
        # Other strides on the CPU are other ways to compute; what is changed in place is a copy.
        args, kwargs = (
            on_tensors(change or _copied, given) if device.type == "cpu" else placed(given, preserve_layout, device)
        )
        leaves = [
            each.requires_grad_() for each in tensors((args, kwargs)) if self.goes_back and each.is_floating_point()
        ]
        found = tensors(self.function(*args, **kwargs))
        if self.goes_back:
            attached = [each for each in found if each.requires_grad]
            incoming = [_upstream(each) for each in attached]
            found = list(torch.autograd.grad(attached, leaves, incoming, allow_unused=True))
        return [None if each is None else each.detach().cpu() for each in found]


def _described(tensor: torch.Tensor) -> str:
    numbers = tensor.reshape(-1)[:4].tolist()
    return (
        f"{str(tensor.dtype)[6:]} {tuple(tensor.shape)} by {tensor.stride()} from {tensor.storage_offset()}: {numbers}"
    )


def _copied(tensor: torch.Tensor) -> torch.Tensor:
    return preserve_layout(tensor, torch.device("cpu")).clone()


def _upstream(output: torch.Tensor) -> torch.Tensor:
    """Return numbers that every floating dtype holds, the same for every device."""
    numbers = torch.arange(output.numel()).mul(37).remainder(64).sub(31) / 16
    return numbers.reshape(output.shape).to(output.device, output.dtype)


def samples(name: str, dtype: torch.dtype) -> Iterator[tuple[Any, Any]]:
    """Yield variants of an operator with some of their samples."""
    for info in database()[name]:
        if dtype in info.supported_dtypes("cpu"):
            made = info.sample_inputs("cpu", dtype, requires_grad=False)
            yield from ((info, each) for each in islice(made, _SAMPLES))


class Calls:
    """Random calls of one operator in one dtype: three at a time, of the same sizes."""

    def __init__(self, name: str, dtype: torch.dtype) -> None:
        self.name, self.dtype = name, dtype
        self.samples = [
            each for each in samples(name, dtype) if any(t.numel() for t in tensors((each[1].input, each[1].args)))
        ]

    def as_they_are(self) -> Iterator[Call]:
        """Yield the calls of the database, each back as well."""
        for info, sample in self.samples:
            for goes_back in (False, True) if info.supports_autograd and self.dtype.is_floating_point else (False,):
                yield Call(self.name, info.op, (sample.input, *sample.args), sample.kwargs, goes_back)

    def three(self, chance: random.Random) -> Iterator[Call]:
        """Yield a call, another one of the same sizes where there is one, and the first with other numbers."""
        info, first = chance.choice(self.samples)
        alike = [each for one, each in self.samples if one is info and _shapes(each) == _shapes(first)]
        sizes = _sizes(chance, [each.shape for each in tensors((first.input, first.args, first.kwargs))])
        goes_back = info.supports_autograd and self.dtype.is_floating_point and chance.random() < 0.3
        in_place = info.inplace_variant if not goes_back and chance.random() < 0.15 else None
        for sample in (first, chance.choice(alike), first):
            change = _Change(chance, sizes)
            args, kwargs = on_tensors(change, ((sample.input, *sample.args), dict(sample.kwargs)))
            args = tuple(_with_sizes(each, sizes) for each in args)
            yield Call(self.name, in_place or info.op, args, kwargs, goes_back)


def _shapes(sample: Any) -> list[torch.Size]:
    return [each.shape for each in tensors((sample.input, sample.args, sample.kwargs))]


def _sizes(chance: random.Random, shapes: Sequence[torch.Size]) -> Mapping[int, int]:
    """Draw another size for each, so that all tensors together have at most LARGEST elements."""
    sizes = {size: size for shape in shapes for size in shape if size > 1}
    if chance.random() < 0.15:
        return sizes
    most = 2 ** chance.uniform(4, math.log2(LARGEST))
    for size in sizes:
        if chance.random() < 0.7:
            sizes[size] = chance.choice((0, 1)) if chance.random() < 0.08 else int(2 ** chance.uniform(0, 18))
    while sum(math.prod(sizes.get(size, size) for size in shape) for shape in shapes) > most:
        largest = max(sizes, key=sizes.__getitem__)
        if sizes[largest] < 2:
            break
        sizes[largest] = sizes[largest] * 2 // 3
    return sizes


def _with_sizes(value: Any, sizes: Mapping[int, int]) -> Any:
    """Return a list of sizes with the sizes changed."""
    if isinstance(value, list | tuple) and value and all(type(each) is int and each > 1 for each in value):
        return type(value)(sizes.get(each, each) for each in value)
    return value


class _Change:
    """Draws a tensor of another size, with other numbers, in another layout."""

    def __init__(self, chance: random.Random, sizes: Mapping[int, int]) -> None:
        self.chance, self.sizes = chance, sizes
        self.torch = torch.Generator().manual_seed(chance.randrange(1 << 62))

    def __call__(self, tensor: torch.Tensor) -> torch.Tensor:
        shape = [self.sizes.get(size, size) for size in tensor.shape]
        made = self._numbers(tensor.detach(), shape).to(tensor.dtype)
        return self._placed(made)

    def _picked(self, pool: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
        flat = pool.reshape(-1)
        return (
            flat[torch.randint(max(len(flat), 1), tuple(shape), generator=self.torch)]
            if len(flat)
            else torch.zeros(shape)
        )

    def _numbers(self, tensor: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
        way = self.chance.random()
        if way < 0.35 or tensor.dtype is torch.bool or not tensor.numel():
            return self._picked(tensor, shape)  # as the database has them: indices and domains stay legal
        if tensor.is_complex():
            return torch.randn(shape, dtype=tensor.dtype, generator=self.torch)
        if not tensor.is_floating_point():
            if way < 0.6:
                return torch.randint(max(2, self.chance.choice(shape or [2])), tuple(shape), generator=self.torch)
            bits = torch.rand(shape, generator=self.torch, dtype=torch.float64) * (
                torch.iinfo(tensor.dtype).bits - 1.01
            )
            sign = -1 if tensor.dtype is not torch.uint8 and self.chance.random() < 0.5 else 1
            spread = torch.randint(-2, 3, tuple(shape), generator=self.torch)
            return sign * (2.0**bits).to(torch.int64) + (spread if way < 0.9 else 0)
        scale = 10 ** self.chance.uniform(-2, 3)
        made = torch.randn(shape, generator=self.torch) * scale
        if way > 0.92 and made.numel():
            place = self.chance.randrange(made.numel())
            made.view(-1)[place] = self.chance.choice((float("nan"), float("inf"), float("-inf"), 0.0))
        elif way > 0.84:
            made = made.round()
        elif way > 0.78 and made.dim():
            made = made.sort(-1).values
        return made

    def _placed(self, made: torch.Tensor) -> torch.Tensor:
        way = self.chance.random()
        if not made.dim() or not made.numel() or way < 0.55:
            return made
        if way < 0.7 and made.dim() > 1:
            return made.transpose(-1, 0).contiguous().transpose(-1, 0)
        if way < 0.8:
            return made.repeat_interleave(2, -1)[..., ::2]
        if way < 0.9:
            return torch.cat([made.reshape(-1)[:1].repeat(3), made.reshape(-1)])[3:].view(made.shape)
        return made[:1].expand(made.shape) if made.shape[0] > 1 else made


def is_wrong(call: Call, found: Sequence[Any]) -> bool:
    """Whether nobody could take these for what a call has to give. Raises what the CPU raises of no legal call."""
    usual = call.on(torch.device("cpu"))
    if len(usual) != len(found):
        return True
    pairs = [(a, b) for a, b in zip(found, usual, strict=True) if a is not None and b is not None]
    if all(has_same_bits(a, b) for a, b in pairs):
        return False
    with numbers_in_float64():
        exact = call.on(torch.device("cpu"), widened)
    return any(_is_off(a, b, e) for a, b, e in zip(found, usual, exact, strict=True) if a is not None and b is not None)


def _is_off(found: torch.Tensor, usual: torch.Tensor, exact: torch.Tensor) -> bool:
    if found.shape != usual.shape or found.dtype != usual.dtype:
        return True
    if not usual.is_floating_point():
        return not found.equal(usual)
    if exact.shape != usual.shape or not usual.numel():
        return False
    settled = usual.isnan() == exact.isnan()
    if bool((settled & (found.isnan() != exact.isnan())).any()):
        return True
    both = exact.isfinite() & usual.isfinite() & (exact.abs() <= torch.finfo(usual.dtype).max)
    if bool((both & ~found.isfinite()).any()):
        return True
    error, reference_runs = ((each.double() - exact).abs().where(both, 0) for each in (found, usual))
    least = torch.finfo(usual.dtype).smallest_normal
    allowed = _ULPS * torch.finfo(usual.dtype).eps * exact.abs().clamp(min=least) + _TIMES * reference_runs.amax()
    return bool((both & (error > allowed)).any())
