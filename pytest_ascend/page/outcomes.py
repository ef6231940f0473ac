"""How each outcome is shown to people; what it means stands in the tables of words."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Appearance:
    """The sign of an outcome, which tells it apart without colour."""

    symbol: str


#: By outcome, in the order of the legend.
APPEARANCE = {
    "failed": Appearance("✗"),
    "errored": Appearance("!"),
    "flaky": Appearance("~"),
    "fallback": Appearance("↩"),
    "unsupported": Appearance("∅"),
    "not-run": Appearance("–"),
    "not-emulated": Appearance("○"),
    "waived": Appearance("≈"),
    "disputed": Appearance("?"),
    "passed": Appearance("✓"),
}
