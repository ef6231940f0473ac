"""The figures of a comparison, as they stand in records and on pages."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from pytest_ascend.precision.measure import Measurement
from pytest_ascend.precision.spread import Entries
from pytest_ascend.precision.sums import SHARES, Sums

PERCENTILES = (50.0, 99.0, 99.9)
_NAMES = tuple(f"ulp_p{each:g}" for each in PERCENTILES)
_RANKS = np.array(PERCENTILES) / 100
_PLACES = tuple(zip(_NAMES, _RANKS.tolist(), strict=True))
_SHARES = tuple(f"within_{share:g}" for share in SHARES)


class Figures(Mapping[str, float]):
    """Figures that are computed when they are read; those that the judge has found already are ``known``."""

    def __init__(self, known: Mapping[str, float], compute: Callable[[], Mapping[str, float]]) -> None:
        self._known, self._compute = dict(known), compute
        self._all: Mapping[str, float] | None = None

    def __getitem__(self, name: str) -> float:
        """Return one figure."""
        return self._known[name] if name in self._known else self._computed()[name]

    def __iter__(self) -> Iterator[str]:
        """Yield the names of all."""
        return iter(self._computed())

    def __len__(self) -> int:
        """Count them."""
        return len(self._computed())

    def __bool__(self) -> bool:
        """Say that there are some, without computing them."""
        return True

    def __repr__(self) -> str:
        """Show what a dictionary would."""
        return repr(dict(self))

    def _computed(self) -> Mapping[str, float]:
        if self._all is None:
            self._all = {**self._compute(), **self._known}
            self._compute = dict  # what it held is not needed any more
        return self._all


def figures(found: Measurement) -> dict[str, float]:
    """Return every figure by name. Relative errors are Inf where zero was expected and something else came."""
    sums, special = found.actual, found.nonfinite
    count = max(sums.count, 1)
    result = {
        "count": float(sums.count),
        "max_abs": sums.abs_max,
        "mean_abs": sums.abs_sum / count,
        "max_rel": sums.rel_max,
        "mean_rel": sums.rel_sum / count,
        "rmse": math.sqrt(sums.square_sum / count),
        "ulp_max": sums.ulp_max,
        "ulp_mean": sums.ulp_sum / count,
        **percentiles(sums.spread.entries()),
        **{name: within / count for name, within in zip(_SHARES, sums.within, strict=True)},
        "cosine": cosine(sums),
        "bias_ulp": sums.outward_sum / count,
    }
    if special.nan_actual or special.nan_expected or special.inf_actual or special.inf_expected:
        result |= {
            "nan_actual": float(special.nan_actual),
            "nan_expected": float(special.nan_expected),
            "inf_actual": float(special.inf_actual),
            "inf_expected": float(special.inf_expected),
            "nonfinite_mismatches": float(special.mismatches),
        }
    if found.honest:
        result |= {
            "honest_rmse": math.sqrt(max(each.square_sum / max(each.count, 1) for each in found.honest)),
            "honest_ulp_max": max(each.ulp_max for each in found.honest),
        }
    return result


def cosine(sums: Sums) -> float:
    """Cosine of the angle between both; 1 for two zero vectors, 0 for one."""
    norm = math.sqrt(sums.actual_square_sum) * math.sqrt(sums.expected_square_sum)
    if norm == 0:
        return 1.0 if sums.actual_square_sum == sums.expected_square_sum else 0.0
    return max(-1.0, min(1.0, sums.product_sum / norm))


def percentiles(entries: Entries) -> dict[str, float]:
    """Error in ulp that so many per cent of the elements do not exceed, rounded up to a bin of the table."""
    if not entries.counts.size:
        return dict.fromkeys(_NAMES, 0.0)
    if entries.upper is entries.lower:  # element by element
        values = np.sort(entries.upper)
        return {name: float(values[math.ceil(rank * values.size) - 1]) for name, rank in _PLACES}
    order = np.argsort(entries.upper)
    below = np.cumsum(entries.counts[order])
    ranks = np.ceil(_RANKS * below[-1])
    values = entries.upper[order][np.searchsorted(below, ranks)]
    return dict(zip(_NAMES, values.tolist(), strict=True))
