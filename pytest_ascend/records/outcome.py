"""The outcomes of a case. Each is a type, so that none can be misspelt or confused with another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

#: Each outcome by its name.
OUTCOMES: dict[str, type[Outcome]] = {}


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """One final state of a case.

    ``reason`` says why in one sentence; it is empty only for a pass. ``detail`` may have many lines.
    """

    name: ClassVar[str]
    #: Whether the case counts as conformant with this outcome.
    conforms: ClassVar[bool]

    reason: str = ""
    detail: str = ""

    def __init_subclass__(cls, *, name: str, conforms: bool = False) -> None:
        cls.name, cls.conforms = name, conforms
        OUTCOMES[name] = cls


class Passed(Outcome, name="passed", conforms=True):
    """Ran on the device, was compared, and agrees."""


class Failed(Outcome, name="failed"):
    """Ran on the device, and the result is not what PyTorch promises."""


class Unsupported(Outcome, name="unsupported"):
    """The device reports that it does not support this."""


class Fallback(Outcome, name="fallback"):
    """The results are correct, but the CPU computed them: never a pass. ``reason`` names the operators."""


class Waived(Outcome, name="waived", conforms=True):
    """Executed and deviating, for a known reason with an owner and an expiry date."""


class Disputed(Outcome, name="disputed", conforms=True):
    """Executed and deviating; it is not known yet whether the device or the case is wrong."""


class NotEmulated(Outcome, name="not-emulated"):
    """The emulated device lacks an operator. Says nothing about any NPU; only the emulated device has it."""


class NotJudged(Outcome, name="not-judged"):
    """A user's own test, decided by pytest: skipped, expected to fail, or passed by its own assertions."""


class Flaky(Outcome, name="flaky"):
    """Gave different results when it was repeated; ``reason`` names both."""


class Errored(Outcome, name="errored"):
    """No verdict: a crash, a hang, no memory, a lost device, a damaged golden, a test that compared nothing."""


class NotRun(Outcome, name="not-run"):
    """Should have run and did not."""
