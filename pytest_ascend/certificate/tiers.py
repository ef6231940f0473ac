"""What can be certified, as data: each tier with what it asks for. A tier includes the ones before it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pytest_ascend.verdict.suites import describe


@dataclass(frozen=True, kw_only=True, slots=True)
class Tier:
    """One tier.

    All suites must have run at ``level`` or above, except those of higher tiers: each says which is its first
    (``suites/NAME/suite.json``), and one that says nothing belongs to the lowest. ``quiet``: nobody else may have used
    the device.
    """

    name: str
    means: str
    level: str = "standard"
    quiet: bool = False

    def covers(self, suite: str) -> bool:
        """Whether the tier says anything of a suite."""
        return TIERS[describe(suite).tier] in included(self)


TIERS: Mapping[str, Tier] = {
    tier.name: tier
    for tier in (
        Tier(
            name="operators",
            means="whatever torch_npu of this version has of the operators computes what PyTorch promises, in every "
            "dtype and property that the suites ask for; what it does not have by design is listed by number and name",
        ),
        Tier(
            name="models",
            means="models give the results of PyTorch, in inference and in training, within what float64 allows",
        ),
        Tier(
            name="performance",
            means="the benchmarks ran to their end on a device that nobody else used, with the figures that are stated",
            quiet=True,
        ),
        Tier(
            name="distributed",
            means="collectives and parallel training on several cards give what one process gives",
            quiet=True,
        ),
    )
}

#: Parts of a stack without which nobody would know what was certified.
NEEDED = ("chip", "driver", "cann", "torch", "torch_npu", "torch_npu_commit", "python")

#: How long a certificate is valid, from the end of its run.
MONTHS = 12
#: It ends earlier when this many newer releases of CANN exist.
NEWER_CANN = 4


def included(tier: Tier) -> tuple[Tier, ...]:
    """Return the tiers that a tier includes, itself last."""
    names = list(TIERS)
    return tuple(TIERS[name] for name in names[: names.index(tier.name) + 1])
