"""What a chip can do at best, by the publications of its maker: dense matrix products, and its memory.

A chip that is not in the table gets no share: a figure without a source would be worse than none.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

#: Dtypes that the matrix units of these chips multiply at full speed.
HALVES = ("float16", "bfloat16", "autocast-float16", "autocast-bfloat16")


@dataclass(frozen=True, slots=True)
class Peak:
    """A chip by a pattern of its name; ``flop_per_s`` in half precision, without sparsity."""

    pattern: str
    flop_per_s: float
    bytes_per_s: float
    source: str


PEAKS = (
    Peak(r"Ascend910(A|Pro.*)?", 256e12, 1.2e12, "Huawei at Hot Chips 31 (2019): DaVinci, Ascend 910"),
    Peak(r"Ascend310P.*", 70e12, 204.8e9, "Huawei, data sheet of the Atlas 300I Pro"),
    Peak(r".*V100.*", 125e12, 900e9, "NVIDIA, data sheet of the Tesla V100 (SXM2)"),
    Peak(r".*A100.*80GB.*", 312e12, 2039e9, "NVIDIA, data sheet of the A100 80GB (SXM)"),
    Peak(r".*H100.*", 989e12, 3350e9, "NVIDIA, data sheet of the H100 (SXM)"),
    Peak(r".*H200.*", 989e12, 4800e9, "NVIDIA, data sheet of the H200 (SXM)"),
)


def peak_of(chip: str) -> Peak | None:
    """Give the row of a chip by the name that its driver gives it, None for one that is not known."""
    return next((peak for peak in PEAKS if re.fullmatch(peak.pattern, chip)), None)


def shares_of_peak(chip: str, dtype: str, flop_per_s: float, bytes_per_s: float) -> dict[str, float]:
    """Give the shares of a chip's best that were reached, by name; none where they are not known."""
    peak = peak_of(chip)
    if peak is None:
        return {}
    compute = {"share_of_peak_compute": flop_per_s / peak.flop_per_s} if dtype in HALVES else {}
    return {**compute, "share_of_peak_bandwidth": bytes_per_s / peak.bytes_per_s}
