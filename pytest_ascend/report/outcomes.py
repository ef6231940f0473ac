"""How each outcome is shown and explained to people."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Appearance:
    """The sign of an outcome, which tells it apart without colour, and what it means."""

    symbol: str
    meaning: str


APPEARANCE = {
    "failed": Appearance("✗", "Ran on the device and computed something else than PyTorch promises."),
    "errored": Appearance("!", "No verdict could be had: a crash, a hang, no memory, a bad golden, no comparison."),
    "fallback": Appearance("↩", "The numbers are right, but the CPU computed them. Never a pass."),
    "unsupported": Appearance("∅", "The device says that it cannot do this."),
    "not-run": Appearance("–", "Had to run and did not. Never left out of the count."),
    "not-emulated": Appearance("○", "The emulated device lacks an operator. Says nothing about any NPU."),
    "waived": Appearance("≈", "Executed and deviating, for a reason that somebody owns until a date."),
    "passed": Appearance("✓", "Ran on the device, was compared, and agrees."),
}
