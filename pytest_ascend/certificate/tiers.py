"""The tiers of certificates as data, with their requirements. A tier includes the previous ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pytest_ascend.system.bundled import table
from pytest_ascend.system.suites import describe


@dataclass(frozen=True, kw_only=True, slots=True)
class Tier:
    """One tier.

    All suites must have run at ``level`` or above, except those of higher tiers: each names its first tier
    (``suites/NAME/suite.json``), by default the lowest. ``quiet``: no other process may have used the device.
    ``sample``: the run was on the emulated device, and certifies nothing.
    """

    name: str
    means: str
    level: str = "standard"
    quiet: bool = False
    sample: bool = False

    def covers(self, suite: str) -> bool:
        """Return whether the tier includes a suite."""
        return self.sample or TIERS[describe(suite).tier] in included(self)


#: The tiers and the sample, by name.
ALL: Mapping[str, Tier] = {each["name"]: Tier(**each) for each in table("certificate/tiers.json")}
TIERS: Mapping[str, Tier] = {name: each for name, each in ALL.items() if not each.sample}
#: For trying out how a certificate is created, checked, re-executed and revoked.
SAMPLE = ALL["sample"]
#: Parts of a stack that must be known.
NEEDED = ("chip", "driver", "cann", "torch", "torch_npu", "torch_npu_commit", "python")
#: The support window: release of the suite -> the last day on which a registry accepts its certificates, "" for the
#: newest. An older release is accepted for six months after the next one.
ACCEPTED: Mapping[str, str] = {"0.1.0": ""}
#: Months of validity, from the end of the run.
MONTHS = 12
#: Validity ends earlier when this many newer releases of CANN exist.
NEWER_CANN = 4


def included(tier: Tier) -> tuple[Tier, ...]:
    """Return the tiers that a tier includes, itself last."""
    tiers = list(TIERS.values())
    return (tier,) if tier.sample else tuple(tiers[: tiers.index(tier) + 1])
