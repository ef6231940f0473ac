"""The outcomes of a case. Each is a type, so that none can be misspelt or confused with another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """One terminal state of a case.

    ``reason`` says why in one sentence; it is empty only for a pass. ``detail`` may hold many lines.
    """

    name: ClassVar[str]
    #: Whether the case counts as conformant with this outcome.
    conforms: ClassVar[bool] = False

    reason: str = ""
    detail: str = ""


class Passed(Outcome):
    """Ran on the device, was compared, and agrees."""

    name = "passed"
    conforms = True


class Failed(Outcome):
    """Ran on the device, and the result is not what PyTorch promises."""

    name = "failed"


class Unsupported(Outcome):
    """The device reports that it does not support this."""

    name = "unsupported"


class Fallback(Outcome):
    """The numbers are right, but the CPU computed them: never a pass. ``reason`` names the operators."""

    name = "fallback"


class Waived(Outcome):
    """Executed and deviating, for a known reason with an owner and an expiry date."""

    name = "waived"
    conforms = True


class Disputed(Outcome):
    """Executed and deviating; it is not known yet whether the device or the case is wrong."""

    name = "disputed"
    conforms = True


class NotEmulated(Outcome):
    """The emulated device lacks an operator. Says nothing about any NPU; only the emulated device has it."""

    name = "not-emulated"


class NotJudged(Outcome):
    """A test of the user's that pytest decides: skipped, expected to fail, or passed by its own assertions."""

    name = "not-judged"


class Flaky(Outcome):
    """Gave different results when it ran again. ``reason`` has both."""

    name = "flaky"


class Errored(Outcome):
    """No verdict: a crash, a hang, no memory, a lost device, a damaged golden, a test that compared nothing."""

    name = "errored"


class NotRun(Outcome):
    """Should have run and did not."""

    name = "not-run"


OUTCOMES: dict[str, type[Outcome]] = {
    kind.name: kind
    for kind in (
        *(Passed, Failed, Unsupported, Fallback, Waived, Disputed, NotEmulated, NotJudged, Flaky, Errored, NotRun),
    )
}
