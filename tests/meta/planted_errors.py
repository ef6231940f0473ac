"""Planted faults: what is made of a correct float32 or 16-bit result, at what size, and whether it must be seen.

Each fault takes the reference run and the float64 reference, and a size; sizes go from large to small, so that the
smallest one that a judge still rejects tells how much it sees.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor
from torch.nn import functional

Change: TypeAlias = Callable[[Tensor, Tensor, float], Tensor]

SIZES = (1e3, 1e2, 10.0, 1.0, 0.1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7)


@dataclass(frozen=True, slots=True)
class Fault:
    """A kind of error. ``sizes`` are tried from the largest on; all down to ``visible`` have to be rejected."""

    name: str
    base: str
    change: Change
    sizes: tuple[float, ...]
    visible: float


@dataclass(frozen=True, slots=True)
class Base:
    """A result without fault: what was expected, and two correct implementations' results."""

    expected: Tensor
    reference_runs: Tensor
    other: Tensor
    accumulation: int


def bases() -> dict[str, Base]:
    """Results to spoil: a product, functions of one element, a gradient, in long and short formats."""
    torch.manual_seed(0)
    a, b = torch.randn(200, 300), torch.randn(300, 500) / 300**0.5
    x = torch.randn(100_000) * 2
    reversed_product = a.flip(1) @ b.flip(0)
    tiny = 1e-8 * (a @ b)
    found = {
        "product": Base(a.double() @ b.double(), a @ b, reversed_product, 300),
        "gelu": Base(functional.gelu(x.double()), functional.gelu(x), functional.gelu(x.double()).float(), 1),
        "sum": Base(x.double() + 0.1, x + 0.1, (x.double() + 0.1).float(), 1),
        "gradient": Base(1e-8 * (a.double() @ b.double()), tiny, 1e-8 * reversed_product, 300),
    }
    for dtype in (torch.float16, torch.bfloat16):
        low, right = a.to(dtype), b.to(dtype)
        exact = low.double() @ right.double()
        name = f"product {str(dtype)[6:]}"
        found[name] = Base(exact, low @ right, (low.flip(1).float() @ right.flip(0).float()).to(dtype), 300)
    found["row"] = Base(found["product"].expected[0, :10], (a @ b)[0, :10], reversed_product[0, :10], 300)
    return found


def _at(places: Callable[[int], slice | Tensor], how: Change) -> Change:
    """Change only some elements, by their places in row-major order."""

    def change(result: Tensor, expected: Tensor, size: float) -> Tensor:
        spoilt = result.clone().reshape(-1)
        chosen = places(spoilt.numel())
        spoilt[chosen] = how(result.reshape(-1)[chosen], expected.reshape(-1)[chosen], size)
        return spoilt.reshape(result.shape)

    return change


def _scaled(result: Tensor, _: Tensor, size: float) -> Tensor:
    return (result.double() * (1 + size)).to(result.dtype)


def _moved(result: Tensor, _: Tensor, size: float) -> Tensor:
    return (result.double() + size).to(result.dtype)


def _noisy(result: Tensor, _: Tensor, size: float) -> Tensor:
    noise = torch.randn(result.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return (result.double() * (1 + size * noise)).to(result.dtype)


def _zeroed(result: Tensor, _: Tensor, __: float) -> Tensor:
    return torch.zeros_like(result)


def _stronger(result: Tensor, expected: Tensor, size: float) -> Tensor:
    """The errors of reference runs, ``size`` times as large."""
    return (expected + size * (result.double() - expected)).to(result.dtype)


def _ulps(result: Tensor, _: Tensor, size: float) -> Tensor:
    """Some whole units in the last place away from zero."""
    word = torch.int32 if result.dtype == torch.float32 else torch.int16
    return (result.view(word) + int(size)).view(result.dtype)


def _biased(result: Tensor, expected: Tensor, size: float) -> Tensor:
    """A share of the ulp added before rounding: size 0.5 rounds away from zero."""
    eps = torch.finfo(result.dtype).eps
    ulp = torch.ldexp(torch.ones_like(expected), torch.frexp(expected).exponent - 1) * eps
    return (expected + size * ulp * expected.sign()).to(result.dtype)


def _cut(result: Tensor, expected: Tensor, _: float) -> Tensor:
    """Rounded towards zero."""
    nearest = expected.to(result.dtype)
    down = torch.nextafter(nearest, torch.zeros((), dtype=result.dtype))
    return torch.where(nearest.double().abs() > expected.abs(), down, nearest)


def _bits(result: Tensor, _: Tensor, size: float) -> Tensor:
    """Only so many bits of the significand, the hidden one aside."""
    drop = 23 - int(size)
    half = 1 << (drop - 1)
    return ((result.view(torch.int32) + half) >> drop << drop).view(torch.float32)


def _through(dtype: torch.dtype) -> Change:
    return lambda result, _, __: result.to(dtype).to(result.dtype)


def _half_sums(result: Tensor, _: Tensor, __: float) -> Tensor:
    """A product accumulated in the short format, 16 terms at a time."""
    torch.manual_seed(0)
    a, b = torch.randn(200, 300).to(result.dtype), (torch.randn(300, 500) / 300**0.5).to(result.dtype)
    total = torch.zeros_like(result)
    for start in range(0, 300, 16):
        total = total + (a[:, start : start + 16].float() @ b[start : start + 16].float()).to(result.dtype)
    return total


def _tanh_gelu(_result: Tensor, _: Tensor, __: float) -> Tensor:
    torch.manual_seed(0)
    torch.randn(200, 300), torch.randn(300, 500)
    return functional.gelu(torch.randn(100_000) * 2, approximate="tanh")


def _with(value: float) -> Change:
    return lambda result, _, __: torch.full_like(result, value)


def _swapped(result: Tensor, _: Tensor, __: float) -> Tensor:
    return result.flip(0)


ONE = lambda count: slice(count // 3, count // 3 + 1)  # noqa: E731
TAIL = lambda count: slice(count - 77, count)  # noqa: E731
BLOCK = lambda _: slice(4096, 4352)  # noqa: E731
EVERY = lambda count: torch.arange(0, count, 256)  # noqa: E731
SHARE = lambda count: torch.arange(0, count, 111)  # noqa: E731
ALL = lambda count: slice(0, count)  # noqa: E731
ONCE = (1.0,)

FAULTS: tuple[Fault, ...] = (
    *(
        Fault(f"{title} off by a share", base, _at(places, _scaled), SIZES, visible)
        for base, visible in (("product", 1e-3), ("sum", 1e-6), ("gradient", 1e-3))
        for title, places in (
            ("one element", ONE),
            ("the tail", TAIL),
            ("a block", BLOCK),
            ("every 256th element", EVERY),
            ("0.9 % of the elements", SHARE),
            ("all elements", ALL),
        )
    ),
    *(
        Fault("one element off by an amount", base, _at(ONE, _moved), SIZES, visible)
        for base, visible in (("product", 1e-4), ("sum", 1e-5), ("gradient", 1e-5), ("product bfloat16", 1.0))
    ),
    *(
        Fault("all elements noisy by a share", base, _noisy, SIZES, visible)
        for base, visible in (
            ("product", 1e-4),
            ("sum", 1e-6),
            ("gradient", 1e-4),
            ("product bfloat16", 1e-2),
            ("product float16", 1e-3),
        )
    ),
    *(
        Fault(f"{title} returned as zeros", base, _at(places, _zeroed), ONCE, 1.0)
        for base in ("product", "gradient", "sum")
        for title, places in (("one element", ONE), ("the tail", TAIL), ("all elements", ALL))
    ),
    *(
        Fault("errors of reference runs, so many times as large", base, _stronger, (16.0, 8.0, 4.0), 4.0)
        for base in ("sum", "gelu", "product bfloat16", "product float16")
    ),
    Fault("errors of reference runs, so many times as large", "product", _stronger, (64.0, 32.0, 16.0, 8.0, 4.0), 64.0),
    *(
        Fault("one element off by whole ulps", base, _at(ONE, _ulps), (16.0, 8.0, 4.0, 3.0, 2.0, 1.0), 3.0)
        for base in ("sum", "product bfloat16", "product float16")
    ),
    *(
        Fault("all elements biased by a share of an ulp", base, _biased, (1.0, 0.5, 0.3, 0.2, 0.1), 0.3)
        for base in ("sum", "product bfloat16", "product float16")
    ),
    *(Fault("rounded towards zero", base, _cut, ONCE, 1.0) for base in ("sum", "product bfloat16", "product float16")),
    *(
        Fault("only so many bits of the significand", base, _bits, (7.0, 10.0, 11.0, 12.0, 16.0, 20.0), 16.0)
        for base in ("product", "sum", "gradient")
    ),
    *(
        Fault(f"computed in {str(dtype)[6:]}", base, _through(dtype), ONCE, 1.0)
        for dtype in (torch.float16, torch.bfloat16)
        for base in ("product", "sum")
    ),
    *(
        Fault("accumulated in the short format", f"product {dtype}", _half_sums, ONCE, 1.0)
        for dtype in ("float16", "bfloat16")
    ),
    Fault("tanh approximation for the exact function", "gelu", _tanh_gelu, ONCE, 1.0),
    *(
        Fault(f"one {value}", base, _at(ONE, _with(float(value))), ONCE, 1.0)
        for value in ("nan", "inf", "-inf")
        for base in ("product", "product float16")
    ),
    *(
        Fault("rows in the wrong order", base, _swapped, ONCE, 1.0)
        for base in ("product", "gradient", "product bfloat16", "row")
    ),
    *(Fault("one of ten elements off by a share", "row", _at(ONE, _scaled), SIZES, visible) for visible in (1e-3,)),
)


def spoilt(fault: Fault, base: Base) -> Iterator[tuple[float, Tensor]]:
    """Yield each size and what the fault of that size makes of the reference run."""
    for size in fault.sizes:
        yield size, fault.change(base.reference_runs, base.expected, size)


def must_be_seen(fault: Fault, size: float) -> bool:
    """Whether a fault of this size has to be rejected; fewer bits are the larger fault."""
    return size <= fault.visible if "bits" in fault.name else size >= fault.visible
