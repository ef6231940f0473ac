"""Eight-bit and four-bit numbers: casts over every code, block scales (MX), and products.

Sources of the formats: OCP 8-bit Floating Point Specification, revision 1.0 (E4M3, E5M2); OCP Microscaling Formats,
version 1.0 (E2M1, E8M0, and blocks of 32 numbers with a scale).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812  (as everybody calls it)

from pytest_ascend.operators import InputFactory, Operator, Sample, call
from pytest_ascend.operators.operator import HALVES

from ..entry import given_as_made, in_family, only_on_950, ties_forgiven
from .serving import added_norm

T = torch.Tensor

#: The NaN code of E8M0, and its bias.
NO_SCALE, BIAS = 255, 127


@dataclass(frozen=True)
class Format:
    """A signed format; ``specials`` are codes beyond the largest, of either sign. Only E5M2 has infinities."""

    exponent: int
    mantissa: int
    specials: int

    @cached_property
    def magnitudes(self) -> T:
        """Return the numbers of the codes without a sign, from 0 on, in float64, in increasing order."""
        codes = torch.arange(2 ** (self.exponent + self.mantissa) - self.specials)
        field, digits = codes >> self.mantissa, (codes & (2**self.mantissa - 1)) / 2**self.mantissa
        bias = 2 ** (self.exponent - 1) - 1
        return torch.where(field == 0, digits * 2.0 ** (1 - bias), (1 + digits) * torch.exp2((field - bias).double()))

    @property
    def largest(self) -> float:
        return float(self.magnitudes[-1])

    @cached_property
    def numbers(self) -> T:
        """Return the number of each code in float64; infinities and NaN come after the largest."""
        inf, nan = [float("inf")] * (self.specials > 1), [float("nan")] * (self.specials - (self.specials > 1))
        half = torch.cat((self.magnitudes, torch.tensor([*inf, *nan], dtype=torch.float64)))
        return torch.cat((half, -half))

    def nearest(self, x: T) -> T:
        """Return the codes of the nearest numbers, ties to even; the largest if out of range; +NaN or 0 for NaN."""
        middles = (self.magnitudes[1:] + self.magnitudes[:-1]) / 2
        size = x.double().abs().contiguous()  # bucketize warns about other strides
        code = torch.bucketize(size, middles)
        code = code + (code < len(middles)) * (size == middles[code.clamp(max=len(middles) - 1)]) * (code % 2)
        sign = torch.signbit(x).long() << (self.exponent + self.mantissa)
        none = 2 ** (self.exponent + self.mantissa) - 1 if self.specials else 0
        return torch.where(x.isnan(), none, code | sign).to(torch.uint8)

    def hard(self) -> T:
        """Return every number, the values halfway and a quarter of the way to the next one, and some out of range."""
        some, step = self.magnitudes[:-1], self.magnitudes.diff()
        beyond = self.largest * torch.tensor([1.0, 1.01, 1.05], dtype=torch.float64)
        up = torch.cat((some, some + step / 4, some + step / 2, some + step * 3 / 4, beyond))
        return torch.cat((up, -up))


E4M3, E5M2, E2M1 = Format(4, 3, 1), Format(5, 2, 4), Format(2, 1, 0)


def scales(codes: T) -> T:
    """Return the numbers of E8M0: powers of two, or NaN."""
    return torch.exp2(codes.double() - BIAS).masked_fill(codes == NO_SCALE, float("nan"))


def packed(codes: T) -> T:
    """Pack two four-bit codes into a byte, the first one lower."""
    return codes[..., ::2] | codes[..., 1::2] << 4


def unpacked(x: T) -> T:
    return torch.stack((x & 15, x >> 4), -1).flatten(-2)


#: torch_npu's name of each format, and the dtype of its numbers. Two four-bit numbers are in a byte.
_FORMATS: Mapping[str, Format] = {"float8_e4m3fn": E4M3, "float8_e5m2": E5M2, "float4_e2m1fn_x2": E2M1}
_FOUR = "float4_e2m1fn_x2"
#: ACL's number of int8, which torch_npu takes here.
_INT8 = 1


def _dtype(name: str) -> Any:
    import torch_npu

    return getattr(torch_npu, name)


# --- casts ---


def _cast(x: T, name: str) -> T:
    codes = _FORMATS[name].nearest(x)
    return packed(codes) if name == _FOUR else codes


def _call_cast(apply: Any, x: T, name: str) -> Any:
    """Cast, and return the codes. Values out of range may be an infinity or NaN: OCP has both conversions."""
    only_on_950(f"npu_dtype_cast to {name}")
    made = apply(x, _dtype(name)).view(torch.uint8)
    kind, beyond = _FORMATS[name], x.cpu().double().abs() > _FORMATS[name].largest
    if name == _FOUR:
        return made
    found = made.cpu()
    no_number = ~kind.numbers[found.long()].isfinite() & beyond & x.cpu().isfinite()
    return torch.where(no_number, kind.nearest(x.cpu()), found).to(made.device)


def _cast_inputs(make: InputFactory) -> Iterator[Sample]:
    for name, kind in _FORMATS.items():
        yield call(make.given(kind.hard().tolist()), name, name=name)
    for name in ("float8_e4m3fn", "float8_e5m2"):
        yield call(make.given([float("nan"), 0.0, -0.0, 2.0**-20, -(2.0**-20)]), name, name=f"{name}, NaN and zeros")


def _numbers(codes: T, name: str) -> T:
    return _FORMATS[name].numbers[(unpacked(codes) if name == _FOUR else codes).long()]


def _call_numbers(apply: Any, codes: T, name: str) -> Any:
    only_on_950(f"npu_dtype_cast of {name}")
    if name == _FOUR:
        return apply(codes, torch.float32, input_dtype=_dtype(name))
    return apply(codes.view(getattr(torch, name)), torch.float32)


# --- blocks with a scale ---


def _blocks(x: T, name: str, axis: int) -> tuple[T, T]:
    """Quantize by MX's rule: the scale has the exponent of the block's largest number less that of the format's."""
    kind, moved = _FORMATS[name], x.double().movedim(axis, -1)
    count = -(-moved.shape[-1] // 32)
    wide = torch.unflatten(F.pad(moved, (0, 32 * count - moved.shape[-1])), -1, (count, 32))
    shared = wide.abs().amax(-1).log2().floor() - torch.tensor(kind.largest).log2().floor()
    code = shared.clamp(min=-BIAS) + BIAS
    codes = kind.nearest(wide / scales(code).unsqueeze(-1)).flatten(-2)[..., : moved.shape[-1]].movedim(-1, axis)
    pairs = torch.unflatten(F.pad(code, (0, count % 2)), -1, (-1, 2)).movedim(-2, axis if axis >= 0 else axis - 1)
    return (packed(codes) if name == _FOUR else codes), pairs.to(torch.uint8)


def _blocks_inputs(make: InputFactory) -> Iterator[Sample]:
    for name, kind in _FORMATS.items():
        hard = kind.hard()
        hard = hard[hard.abs() < 2 * 2.0 ** int(torch.tensor(kind.largest).log2())]
        rows = F.pad(hard, (0, -len(hard) % 31)).view(-1, 31)  # and one whose exponent is the largest
        rows = F.pad(rows, (0, 1), value=2.0 ** int(torch.tensor(kind.largest).log2()))
        yield call(make.given(rows.flatten().view(1, -1).tolist()), name, -1, name=f"{name}, every number")
        x = make.normal(4, 96) * 2.0 ** make.integers(4, 1, low=-6, high=6)
        yield call(x.to(make.dtype), name, -1, name=name)
    x = make.normal(96, 8)
    x[:32, 2] = 0
    yield call(x, "float8_e4m3fn", 0, name="along rows")


def _of_blocks(codes: T, scale: T, name: str) -> T:
    return _numbers(codes, name) * _factors(scale, -1)


def _factors(scale: T, axis: int) -> T:
    """Return a factor for each number along an axis, which has half as many scales as blocks: they are in pairs."""
    return scales(scale).movedim(axis - 1, -2).flatten(-2).repeat_interleave(32, -1).movedim(-1, axis)


def _some_codes(make: InputFactory, kind: Format, *shape: int) -> T:
    half = len(kind.magnitudes)
    codes = make.integers(*shape, high=2 * half)
    return torch.where(codes < half, codes, codes - half + len(kind.numbers) // 2).to(torch.uint8)


def _some_scales(make: InputFactory, *shape: int) -> T:
    return make.integers(*shape, low=BIAS - 4, high=BIAS + 5, dtype=torch.uint8)


def _call_norm_blocks(apply: Any, x1: T, x2: T, gamma: T) -> Any:
    """Dequantize. Numbers within half a step of the device's are made exact: only the norm is judged."""
    y, x, scale, _ = apply(x1, x2, gamma, epsilon=1e-6, dst_type=_dtype("float8_e5m2"))
    exact = added_norm(*(each.cpu().double() for each in (x1, x2, gamma)))[1]
    found = _of_blocks(y.view(torch.uint8).cpu(), scale.view(torch.uint8).cpu(), "float8_e5m2")[..., : x.shape[-1]]
    is_near = (found - exact).abs() <= exact.abs() * (0.125 + 2.0**-6) + 2.0**-8
    return x, torch.where(is_near, exact, found).to(x.dtype).to(x.device)


def _by_tile(x: T, height: int, width: int) -> tuple[T, T]:
    """Return numbers in units of their block's scale, before rounding, and the scales."""
    wide = F.pad(x, (0, -x.shape[-1] % width, 0, -x.shape[-2] % height))
    made = torch.unflatten(torch.unflatten(wide, -1, (-1, width)), -3, (-1, height)).abs().amax((-3, -1)) / 127
    factors = made.repeat_interleave(height, -2).repeat_interleave(width, -1)
    return (x / factors[..., : x.shape[-2], : x.shape[-1]]), made


# --- products ---


def _product(x1: T, x2: T, rows: T, columns: T, name: str) -> T:
    a, b = _numbers(x1, name), _numbers(x2.mT, name).mT if name == _FOUR else _numbers(x2, name)
    return (a * _factors(rows, -1)) @ (b * _factors(columns, -2))


def _call_product(apply: Any, x1: T, x2: T, rows: T, columns: T, name: str) -> Any:
    only_on_950("npu_quant_matmul of MX")
    how = {"pertoken_scale": rows, "output_dtype": torch.bfloat16, "group_sizes": [1, 1, 32]}
    how |= {f"{each}_dtype": _dtype("float8_e8m0fnu") for each in ("scale", "pertoken_scale")}
    if name == _FOUR:
        return apply(x1, x2, columns, x1_dtype=_dtype(name), x2_dtype=_dtype(name), **how)
    return apply(x1.view(getattr(torch, name)), x2.view(getattr(torch, name)), columns, **how)


def _product_inputs(make: InputFactory) -> Iterator[Sample]:
    for name, kind in _FORMATS.items():
        rows, columns = _some_scales(make, 5, 2, 2), _some_scales(make, 2, 64, 2)
        if name == _FOUR:  # a weight is passed transposed: its rows are packed
            x1, x2 = (packed(_some_codes(make, kind, n, 128)) for n in (5, 64))
            x2, columns = x2.T, _some_scales(make, 64, 2, 2).transpose(0, 1)
        else:
            x1, x2 = _some_codes(make, kind, 5, 128), _some_codes(make, kind, 128, 64)
        yield call(x1, x2, rows, columns, name, name=name)


def _turned(x1: T, x2: T, rows: T, columns: T) -> T:
    a, b = _numbers(x1, "float8_e4m3fn").transpose(0, 1), _numbers(x2, "float8_e4m3fn")
    if rows.dtype is torch.uint8:
        made = (a * _factors(rows, -1).transpose(0, 1)) @ (b * _factors(columns, -2))
    else:
        made = (a @ b) * columns * rows[:, None]
    return made.transpose(0, 1)


def _call_turned(apply: Any, x1: T, x2: T, rows: T, columns: T) -> Any:
    how = {"dtype": torch.bfloat16, "perm_x1": [1, 0, 2], "perm_x2": [0, 1, 2], "perm_y": [1, 0, 2]}
    if rows.dtype is torch.uint8:
        rows, columns = rows.view(torch.float8_e8m0fnu), columns.view(torch.float8_e8m0fnu)
        how["group_sizes"] = [0, 0, 32]
    return apply(x1.view(torch.float8_e4m3fn), x2.view(torch.float8_e4m3fn), x1_scale=rows, x2_scale=columns, **how)


def _turned_inputs(make: InputFactory) -> Iterator[Sample]:
    x1, x2 = _some_codes(make, E4M3, 6, 3, 512), _some_codes(make, E4M3, 3, 512, 128)
    some = [make.uniform(n, low=0.1, high=1.0, dtype=torch.float32) for n in (6, 128)]
    yield call(x1, x2, *some, name="by row and column")
    yield call(x1, x2, _some_scales(make, 6, 3, 8, 2), _some_scales(make, 3, 8, 128, 2), name="MX")


_bytes: Callable[..., Operator] = partial(given_as_made, exact=True)

OPERATORS = in_family(
    "short formats",
    _bytes("npu_dtype_cast", _cast, _cast_inputs, part="to", through=_call_cast, outputs=("uint8",),
           dtypes=("float32", *HALVES)),
    _bytes("npu_dtype_cast", _numbers, lambda _: [call(torch.arange(256).to(torch.uint8).view(8, 32), name, name=name)
                                                  for name in _FORMATS],
           part="from", through=_call_numbers, outputs=("float32",), dtypes=("uint8",)),
    _bytes("npu_dynamic_mx_quant", _blocks, _blocks_inputs, through=lambda apply, x, name, axis: [
        each.view(torch.uint8) for each in apply(x, axis=axis, dst_type=_dtype(name))], outputs=("uint8", "uint8"),
        dtypes=HALVES),
    _bytes("npu_anti_mx_quant", _of_blocks, lambda d: [
        call(_some_codes(d, _FORMATS[name], 3, 128), _some_scales(d, 3, 2, 2), name)
        for name in ("float8_e4m3fn", "float8_e5m2")],
        through=lambda apply, codes, scale, name: apply(
            codes.view(getattr(torch, name)), scale.view(torch.float8_e8m0fnu), dst_type=torch.float32,
            src_type=_dtype(name)), outputs=("float32",), dtypes=("uint8",)),
    given_as_made("npu_add_rms_norm_dynamic_mx_quant", added_norm, lambda d: [call(
        d.normal(5, 128), d.normal(5, 128), d.uniform(128, low=0.5, high=1.5))],
        through=_call_norm_blocks, dtypes=HALVES, terms=128),
    ties_forgiven(given_as_made("npu_dynamic_block_quant", _by_tile, lambda d: [
        call(d.normal(*shape), 1, 128) for shape in ((3, 300), (2, 3, 256))],
        through=lambda apply, x, height, width: apply(x, dst_type=_INT8, row_block_size=height, col_block_size=width),
        outputs=("int8", "float32"), dtypes=HALVES)),
    given_as_made("npu_quant_matmul", _product, _product_inputs, part="mx", through=_call_product,
                  outputs=("bfloat16",), dtypes=("uint8",)),
    given_as_made("npu_transpose_quant_batchmatmul", _turned, _turned_inputs, through=_call_turned,
                  outputs=("bfloat16",), dtypes=("uint8",)),
)  # fmt: skip
