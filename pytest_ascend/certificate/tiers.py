"""What can be certified, as data: each tier with what it asks for. A tier includes the ones before it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, kw_only=True, slots=True)
class Tier:
    """One tier.

    All suites must have run at ``level`` or above, except those of higher tiers (``without``): a suite that is new
    belongs to the first tier. ``quiet``: nobody else may have used the device.
    """

    name: str
    means: str
    without: tuple[str, ...] = ()
    level: str = "standard"
    quiet: bool = False

    def covers(self, suite: str) -> bool:
        """Whether the tier says anything of a suite."""
        return suite not in self.without


TIERS: Mapping[str, Tier] = {
    tier.name: tier
    for tier in (
        Tier(
            name="operators",
            means="whatever torch_npu of this version has of the operators computes what PyTorch promises, in every "
            "dtype and property that the suites ask for; what it does not have by design is listed by number and name",
            without=("models", "benchmarks", "distributed"),
        ),
        Tier(
            name="models",
            means="models give the results of PyTorch, in inference and in training, within what float64 allows",
            without=("benchmarks", "distributed"),
        ),
        Tier(
            name="performance",
            means="the benchmarks ran to their end on a device that nobody else used, with the figures that are stated",
            without=("distributed",),
            quiet=True,
        ),
        Tier(
            name="distributed",
            means="collectives and parallel training on several cards give what one process gives",
            quiet=True,
        ),
    )
}


class Allowance(NamedTuple):
    """The largest shares of a suite's cases that the CPU may compute, that may be waived as defects, and as limits.

    A limit is what torch_npu of the version lacks by design: no kernel, a dtype refused, documented. A defect is wrong.
    """

    fallbacks: float
    waived: float
    limits: float


#: One case in a hundred may be left to the CPU, with right numbers: programs run, slower. Waivers of defects are public
#: and have a last day; a twentieth of a suite at most. By design torch_npu 2.13 lacks 6 % of the cases of operators at
#: level standard and 16 % at full; what lacks a quarter is no PyTorch.
USUAL = Allowance(fallbacks=0.01, waived=0.05, limits=0.25)
#: Where the CPU computes a part of a model or a benchmark, its speed is not the NPU's. Of refusals a tenth may raise
#: another exception than PyTorch's: no number is wrong for that.
ALLOWED: Mapping[str, Allowance] = {
    "environment": Allowance(fallbacks=0.0, waived=0.0, limits=0.0),
    "errors": Allowance(fallbacks=0.01, waived=0.1, limits=0.25),
    "models": Allowance(fallbacks=0.0, waived=0.05, limits=0.0),
    "benchmarks": Allowance(fallbacks=0.0, waived=0.0, limits=0.0),
}

#: Parts of a stack without which nobody would know what was certified.
NEEDED = ("chip", "driver", "cann", "torch", "torch_npu", "torch_npu_commit", "python")

#: How long a certificate holds, from the end of its run.
MONTHS = 12
#: And how many newer releases of CANN end it before.
NEWER_CANN = 4


def included(tier: Tier) -> tuple[Tier, ...]:
    """Return the tiers that a tier includes, itself last."""
    names = list(TIERS)
    return tuple(TIERS[name] for name in names[: names.index(tier.name) + 1])
