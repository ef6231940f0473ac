"""Which share of what a chip can do at best was reached, where its maker published that."""

from __future__ import annotations

from pytest_ascend.environment.chips import chip_of

#: Dtypes that the matrix units of these chips multiply at full speed.
HALVES = ("float16", "bfloat16", "autocast-float16", "autocast-bfloat16")


def shares_of_peak(driver_name: str, dtype: str, flop_per_s: float, bytes_per_s: float) -> dict[str, float]:
    """Return the shares of a chip's best that were reached, by name; none where they are not known."""
    chip = chip_of(driver_name)
    if chip is None:
        return {}
    in_halves = chip.half_flop_per_s and dtype in HALVES
    compute = {"share_of_peak_compute": flop_per_s / chip.half_flop_per_s} if in_halves else {}
    memory = {"share_of_peak_bandwidth": bytes_per_s / chip.bytes_per_s} if chip.bytes_per_s else {}
    return {**compute, **memory}
