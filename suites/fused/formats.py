"""Formats of eight and four bits by their specification: every code's number, and the code nearest to a number.

Sources: OCP 8-bit Floating Point Specification, revision 1.0 (E4M3, E5M2); OCP Microscaling Formats, version 1.0 (E2M1,
E8M0, and blocks of 32 numbers with a scale).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch

T = torch.Tensor

#: The code of E8M0 that is no number, and its bias.
NO_SCALE, BIAS = 255, 127


@dataclass(frozen=True)
class Format:
    """Numbers with a sign, and bits of exponent and mantissa; E5M2 alone has infinities.

    ``specials`` counts the codes beyond the largest number, of either sign.
    """

    exponent: int
    mantissa: int
    specials: int

    @cached_property
    def magnitudes(self) -> T:
        """The numbers of the codes without a sign, from 0 on, in float64; each is larger than the one before."""
        codes = torch.arange(2 ** (self.exponent + self.mantissa) - self.specials)
        field, digits = codes >> self.mantissa, (codes & (2**self.mantissa - 1)) / 2**self.mantissa
        bias = 2 ** (self.exponent - 1) - 1
        return torch.where(field == 0, digits * 2.0 ** (1 - bias), (1 + digits) * torch.exp2((field - bias).double()))

    @property
    def largest(self) -> float:
        """The largest number."""
        return float(self.magnitudes[-1])

    @cached_property
    def numbers(self) -> T:
        """The number of each code in float64; infinities and NaN behind the largest."""
        inf, nan = [float("inf")] * (self.specials > 1), [float("nan")] * (self.specials - (self.specials > 1))
        half = torch.cat((self.magnitudes, torch.tensor([*inf, *nan], dtype=torch.float64)))
        return torch.cat((half, -half))

    def nearest(self, x: T) -> T:
        """Return the codes (uint8) of the nearest numbers, of two as near the even one; the largest for what is beyond.

        NaN has the code of a positive one, or of 0 where the format has none.
        """
        middles = (self.magnitudes[1:] + self.magnitudes[:-1]) / 2
        size = x.double().abs()
        code = torch.bucketize(size, middles)
        code = code + (code < len(middles)) * (size == middles[code.clamp(max=len(middles) - 1)]) * (code % 2)
        sign = torch.signbit(x).long() << (self.exponent + self.mantissa)
        none = 2 ** (self.exponent + self.mantissa) - 1 if self.specials else 0
        return torch.where(x.isnan(), none, code | sign).to(torch.uint8)

    def hard(self) -> T:
        """Return every number, what is halfway and a quarter of the way to the next one, and some that are beyond."""
        some, step = self.magnitudes[:-1], self.magnitudes.diff()
        beyond = self.largest * torch.tensor([1.0, 1.01, 1.05], dtype=torch.float64)
        up = torch.cat((some, some + step / 4, some + step / 2, some + step * 3 / 4, beyond))
        return torch.cat((up, -up))


E4M3, E5M2, E2M1 = Format(4, 3, 1), Format(5, 2, 4), Format(2, 1, 0)


def scales(codes: T) -> T:
    """Return the numbers of E8M0: powers of two, or NaN."""
    return torch.exp2(codes.double() - BIAS).masked_fill(codes == NO_SCALE, float("nan"))


def packed(codes: T) -> T:
    """Put two codes of four bits into a byte, the first one lower."""
    return codes[..., ::2] | codes[..., 1::2] << 4


def unpacked(x: T) -> T:
    """Return the codes of four bits, two of each byte."""
    return torch.stack((x & 15, x >> 4), -1).flatten(-2)
