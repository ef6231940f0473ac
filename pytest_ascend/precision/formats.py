"""Number formats: their range and their unit in the last place (ulp)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

#: Arrays of floating-point numbers, and of integers, of any width and shape.
Floats: TypeAlias = npt.NDArray[Any]
Ints: TypeAlias = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Format:
    """A binary floating-point format (IEEE 754-2019, section 3.3; OCP 8-bit formats, revision 1.0).

    ``digits`` counts the bits of the significand, including the hidden one; ``emin`` and ``emax`` are the exponents of
    the smallest normal and the largest number, ``largest`` the latter.
    """

    name: str
    digits: int
    emin: int
    emax: int
    largest: float
    #: The smallest positive number: the unit in the last place of every subnormal.
    tiniest: float
    #: Whether squares and sums of ordinary numbers overflow: True for float16 and 8-bit formats, not bfloat16.
    has_short_range: bool

    def ulp(self, values: Floats) -> Floats:
        """Return the unit in the last place of this format at each of ``values`` (finite, not negative, any shape)."""
        return self.ulp_of_octave((values.view(np.int64) >> 52 & 0x7FF) - 1023)

    def ulp_of_octave(self, exponents: Ints) -> Floats:
        """Return the unit in the last place of numbers from 2**exponent to 2**(exponent + 1)."""
        ulps: Floats = np.ldexp(1.0, np.maximum(exponents, self.emin) - (self.digits - 1))
        return ulps


def _format(dtype: torch.dtype, digits: int, emin: int, emax: int) -> Format:
    tiniest, name = 2.0 ** (emin - digits + 1), str(dtype).removeprefix("torch.")
    return Format(name, digits, emin, emax, torch.finfo(dtype).max, tiniest, has_short_range=emax < 64)


#: Every floating-point dtype that the judge supports. 8-bit formats exist from torch 2.1 on.
FORMATS: dict[torch.dtype, Format] = {
    torch.float64: _format(torch.float64, 53, -1022, 1023),
    torch.float32: _format(torch.float32, 24, -126, 127),
    torch.float16: _format(torch.float16, 11, -14, 15),
    torch.bfloat16: _format(torch.bfloat16, 8, -126, 127),
    torch.float8_e4m3fn: _format(torch.float8_e4m3fn, 4, -6, 8),
    torch.float8_e5m2: _format(torch.float8_e5m2, 3, -14, 15),
}

#: The real dtype of each complex one. In torch 2.1, ``dtype.to_real()`` returns a reference without owning it: the
#: dtype is freed eventually, and the process crashes.
REAL_PARTS = {torch.complex32: torch.float16, torch.complex64: torch.float32, torch.complex128: torch.float64}

#: Integer dtypes by size in bytes, to read the bits of a number of that size.
INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def dtype_name(dtype: torch.dtype) -> str:
    """Return torch's name without the prefix, such as "float16"."""
    return str(dtype).removeprefix("torch.")


@dataclass(frozen=True, kw_only=True, slots=True)
class Allowances:
    """The constants of the error model. All but the first three are plain factors; see ``docs/precision.md``.

    ``element_ulps``: error of one element that rounding alone explains, just under four times the half ulp of a correct
    rounding. ``rms_ulps``: the same for the root mean square of many elements (correct rounding 0.29, truncation 0.58).
    ``bias_ulps``: mean signed error that many rounded elements may share (correct rounding: 0; truncation: 0.5).
    """

    element_ulps: float = 1.9
    rms_ulps: float = 0.75
    bias_ulps: float = 0.2
    #: Like ``element_ulps``, for functions that reference runs do not round correctly: exp, tanh, erf.
    approximation_ulps: float = 3.0
    #: Allowed multiple of the largest inner error of a reference run.
    largest: float = 3.5
    #: The same for a reference of :func:`cpu_reference`, which computes more reference runs before rejecting.
    sampled_largest: float = 2.25
    #: The correction for few elements with such a reference; with others it is at least 1.65.
    sampled_few: float = 1.25
    #: The smallest multiple for functions that reference runs do not round correctly.
    sampled_ulps: float = 2.75
    #: Multiple of the RMS error of the reference runs' worst block: one row's normaliser may cause most of it.
    block: float = 4.0
    #: Multiple of the inner errors' root mean square, before the correction for few elements.
    rms: float = 2.2
    #: Correction for few elements: the probability that they understate the errors of reference runs.
    luck: float = 1e-6
    #: Element counts are capped at this, since the errors of one tensor are not independent.
    independent: int = 64
    #: Inner error of a sum of ``n`` terms of size ``s``: this times unit roundoff * sqrt(n) * s.
    sums: float = 4.0
    #: The same for the root mean square.
    sums_rms: float = 0.5
    #: Number of terms in a sum, if not given.
    terms: int = 1024
    #: Number of roundings of 16-bit and shorter formats inside an operator or model, if not given.
    short_roundings: float = 4.0
    #: Error of one element, and root mean square, that a comparison decided otherwise may cause in a gradient, as a
    #: share of the root mean square of the expected values.
    branch_element: float = 0.5
    branch_rms: float = 0.02


ALLOWANCES = Allowances()
