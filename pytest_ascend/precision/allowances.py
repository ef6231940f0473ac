"""The constants of the error model, and what it is told of a result besides its values."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_ascend.precision.formats import Format


@dataclass(frozen=True, kw_only=True, slots=True)
class Allowances:
    """The constants of the error model. All but the first three are plain factors; see ``docs/precision.md``.

    ``element_ulps``: error of one element that rounding alone explains: just under four times the half ulp of an exact
    rounding. ``rms_ulps``: the same for the root mean square of many elements (exact rounding 0.29, truncation 0.58).
    ``bias_ulps``: mean signed error that many rounded elements may share (exact rounding: 0; truncation: 0.5).
    """

    element_ulps: float = 1.9
    rms_ulps: float = 0.75
    bias_ulps: float = 0.2
    #: The same as ``element_ulps`` for functions that honest results do not round exactly: exp, tanh, erf.
    approximation_ulps: float = 3.0
    #: Times the largest inner error that an honest result shows.
    largest: float = 3.5
    #: Times the root mean square error of the worst honest block: one row's normaliser may be most of a block's error.
    block: float = 4.0
    #: Times the root mean square of the inner errors, before the correction for few elements.
    rms: float = 2.2
    #: Chance that so few elements understate the honest errors, for the correction for few elements.
    luck: float = 1e-6
    #: More elements than this count as no more than this, since errors of one tensor are not independent.
    independent: int = 64
    #: Inner error of one sum of ``n`` terms of size ``s``: this, times unit roundoff, times sqrt(n), times s.
    sums: float = 4.0
    #: The same as root mean square.
    sums_rms: float = 0.5
    #: Terms in a sum, where nobody says how many.
    terms: int = 1024
    #: Roundings of 16-bit and shorter formats inside an operator or model, where nobody says.
    short_roundings: float = 4.0
    #: Error of one element, and root mean square, that a comparison which falls the other way may cause in a gradient,
    #: as a share of the root mean square of the expected values.
    branch_element: float = 0.5
    branch_rms: float = 0.02


ALLOWANCES = Allowances()


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """What is known of a result besides its values.

    ``accumulation`` is the number of terms in each sum (None: not known); ``scale`` the size of those terms' sum of
    magnitudes (None: taken from the expected values); ``finer`` whether the expected values are of a finer format than
    the judged one; ``distinct`` how many different expected values a sample holds; ``approximated`` whether honest
    results have errors that no exact rounding has; ``branching`` whether a comparison between nearly equal values (in a
    ReLU, in max pooling) may have fallen the other way before a gradient was taken.
    """

    format: Format
    root_mean_square: float
    accumulation: int | None = None
    scale: float | None = None
    finer: bool = True
    distinct: int = 1024
    approximated: bool = False
    branching: bool = False
