"""What each bundled suite says of itself: its title, place and layout on the page, and the certificate's tier."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import msgspec

from pytest_ascend.system.bundled import folder


class WaiverLimits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The largest shares of a suite's cases that the CPU may compute, that may be waived as defects, and as limits.

    A limit is what torch_npu of the version lacks by design: no kernel, a dtype refused, documented. A defect is wrong.
    One case in a hundred may be left to the CPU, with right numbers: programs run, slower. Waivers of defects are
    public and have a last day; a twentieth of a suite at most. By design torch_npu 2.13 lacks 6 % of the cases of
    operators at level standard and 16 % at full; what lacks a quarter is no PyTorch.
    """

    fallbacks: float = 0.01
    waived: float = 0.05
    limits: float = 0.25


class Suite(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The file ``suites/NAME/suite.json``.

    ``title`` by language; ``order`` on the page, small numbers first; ``grid``: many cases of a kind, laid out as
    subjects by dtype, not as a list; ``tier``: the first tier of the certificate that asks for it, the lowest where
    nothing is said; ``compares``: a pass rests on a comparison; ``needs_npu``: no other device has what it tests;
    ``computed_once``: cases look at what one of them computed.
    """

    title: Mapping[str, str]
    order: int = 1000
    grid: bool = False
    tier: str = "operators"
    compares: bool = True
    needs_npu: bool = False
    computed_once: bool = False
    allowed: WaiverLimits = WaiverLimits()


@cache
def suites() -> Mapping[str, Suite]:
    """Return the bundled suites by name, in the order of the page."""
    files = folder("suites").glob("*/suite.json")
    found = {path.parent.name: msgspec.json.decode(path.read_bytes(), type=Suite) for path in files}
    return dict(sorted(found.items(), key=lambda item: (item[1].order, item[0])))


def describe(name: str) -> Suite:
    """Return what a suite says of itself; for one that is not bundled, a description with its name as the title."""
    return suites().get(name) or Suite(title={"en": name})
