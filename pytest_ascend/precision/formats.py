"""Number formats: what one unit in the last place is, and where a format ends."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

Array = npt.NDArray[np.floating]


@dataclass(frozen=True, slots=True)
class Format:
    """A binary floating-point format (IEEE 754-2019, section 3.3; OCP 8-bit formats, revision 1.0).

    ``digits`` counts the bits of the significand with the hidden one; ``emin`` and ``emax`` are the exponents of the
    smallest and the largest normal number, ``largest`` that number.
    """

    name: str
    digits: int
    emin: int
    emax: int
    largest: float

    @property
    def roundoff(self) -> float:
        """The largest relative error of one rounding: half a unit in the last place of 1."""
        return 2.0**-self.digits

    @property
    def tiniest(self) -> float:
        """The smallest positive number: the unit in the last place of every subnormal."""
        return 2.0 ** (self.emin - self.digits + 1)

    @property
    def has_short_range(self) -> bool:
        """Whether squares and sums of ordinary numbers overflow: of float16 and 8-bit formats, not of bfloat16."""
        return self.emax < 64

    def ulp(self, values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Return the unit in the last place of this format at each of ``values`` (finite, any shape)."""
        exponents = (values.view(np.int64) >> 52 & 0x7FF) - 1023
        ulps: npt.NDArray[np.float64] = np.ldexp(1.0, np.maximum(exponents, self.emin) - (self.digits - 1))
        return ulps


def _format(dtype: torch.dtype, digits: int, emin: int, emax: int) -> Format:
    return Format(str(dtype).removeprefix("torch."), digits, emin, emax, torch.finfo(dtype).max)


#: Every floating dtype that the judge knows. 8-bit formats exist from torch 2.1 on.
FORMATS: dict[torch.dtype, Format] = {
    torch.float64: _format(torch.float64, 53, -1022, 1023),
    torch.float32: _format(torch.float32, 24, -126, 127),
    torch.float16: _format(torch.float16, 11, -14, 15),
    torch.bfloat16: _format(torch.bfloat16, 8, -126, 127),
    torch.float8_e4m3fn: _format(torch.float8_e4m3fn, 4, -6, 8),
    torch.float8_e5m2: _format(torch.float8_e5m2, 3, -14, 15),
}

#: The real dtype of each complex one.
REAL_PARTS: dict[torch.dtype, torch.dtype] = {
    torch.complex32: torch.float16,
    torch.complex64: torch.float32,
    torch.complex128: torch.float64,
}


def dtype_name(dtype: torch.dtype) -> str:
    """Return torch's name without the prefix: "float16"."""
    return str(dtype).removeprefix("torch.")
