"""The description of each bundled suite: title, order and layout on the page, and the certificate's tier."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import msgspec

from pytest_ascend.system.bundled import folder

#: The five stages of a migration, in order.
STAGES = ("environment", "code", "precision", "performance", "deployment")


class WaiverLimits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The largest shares of a suite's cases that may be computed by the CPU, waived as defects, and waived as limits.

    A limit is something this version of torch_npu lacks by design: no kernel, a refused dtype, documented. A defect is
    an error. One case in a hundred may be computed correctly by the CPU: programs run, but slower. Waivers of defects
    are public and expire; they may cover at most a twentieth of a suite. By design, torch_npu 2.13 lacks 6 % of the
    cases of operators at level standard and 16 % at full; the limit is a quarter.
    """

    fallbacks: float = 0.01
    waived: float = 0.05
    limits: float = 0.25


class Suite(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The contents of ``suites/NAME/suite.json``.

    ``title`` by language; ``order`` on the page, small numbers first; ``stage`` of a migration, one of STAGES;
    ``grid``: many cases of one kind, laid out as subjects by dtype instead of a list; ``tier``: the first tier of the
    certificate that requires it, by default the lowest; ``compares``: a pass needs a comparison; ``needs_npu``: it
    cannot run on other devices; ``computed_once``: its cases share one computation; ``made_of``: operators that torch
    composes of others, as its dispatcher recorded for a sample's forward and backward pass.
    """

    title: Mapping[str, str]
    order: int = 1000
    stage: str = "precision"
    grid: bool = False
    tier: str = "operators"
    compares: bool = True
    needs_npu: bool = False
    computed_once: bool = False
    made_of: Mapping[str, tuple[str, ...]] = {}
    allowed: WaiverLimits = WaiverLimits()


@cache
def suites() -> Mapping[str, Suite]:
    """Return the bundled suites by name, in the order of the page."""
    files = folder("suites").glob("*/suite.json")
    found = {path.parent.name: msgspec.json.decode(path.read_bytes(), type=Suite) for path in files}
    return dict(sorted(found.items(), key=lambda item: (item[1].order, item[0])))


def describe(name: str) -> Suite:
    """Return the description of a suite; one that is not bundled has its name as title."""
    return suites().get(name) or Suite(title={"en": name})
