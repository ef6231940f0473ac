"""How an attempt at a case ended, and what follows: another attempt, or a decision."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any


class End(str, Enum):
    """How one attempt ended. Only an answer from a healthy device counts as the result of the case."""

    ANSWERED = "answered"
    CRASHED = "crashed"
    HUNG = "hung"
    #: The process was killed from outside: by the kernel (out of memory), or by a person.
    KILLED = "killed"
    #: The device failed the health check afterwards.
    UNPROVEN = "unproven"


class Decision(str, Enum):
    """What to do after an attempt."""

    ACCEPT = "accept"
    FLAKY = "flaky"
    #: The case is to blame: it crashed the process or the device twice.
    BLAME = "blame"
    #: Infrastructure failure: nothing is known about the case.
    LOST = "lost"
    AGAIN = "again"
    #: Again, in a process of its own, with blocking launches.
    ALONE = "alone"


#: Results that are repeated; a different second answer makes the case flaky.
DOUBTFUL = ("failed", "errored")


@dataclass(frozen=True, kw_only=True, slots=True)
class Attempt:
    """One attempt: its card, how it ended, its answer ("" for none), and further details.

    ``payloads`` are the reports that belong to an answer, for the caller.
    """

    card: str
    end: End
    answer: str = ""
    reason: str = ""
    detail: str = ""
    alone: bool = False
    payloads: tuple[dict[str, Any], ...] = field(default=(), repr=False)

    @property
    def result(self) -> str:
        """Return the value by which attempts are compared: the answer, or how the process ended."""
        return self.answer if self.end is End.ANSWERED else self.end.value

    @property
    def counts(self) -> bool:
        """Return whether this attempt says something about the case."""
        return self.end in {End.ANSWERED, End.CRASHED, End.HUNG}


def decide(attempts: Sequence[Attempt], *, faulty: frozenset[str] = frozenset(), is_case: bool = True) -> Decision:
    """Return what follows the last attempt. Attempts on ``faulty`` cards say nothing about the case.

    An ordinary test (``is_case`` false) is not repeated once it gave an answer.
    """
    last = attempts[-1]
    if last.end is End.KILLED:
        kills = sum(each.end is End.KILLED for each in attempts)
        return Decision.LOST if kills >= 3 else Decision.AGAIN
    if len(attempts) >= 6:
        return Decision.BLAME if last.end is not End.ANSWERED else Decision.ACCEPT
    telling = [each for each in attempts if each.card not in faulty]
    if not telling or last.card in faulty:
        return Decision.ALONE
    bad = [each for each in telling if each.end in {End.CRASHED, End.HUNG, End.UNPROVEN}]
    if last.end is not End.ANSWERED:
        return Decision.BLAME if len(bad) > 1 else Decision.ALONE
    answers = {each.result for each in telling[:-1] if each.counts}
    if answers:
        return Decision.ACCEPT if answers == {last.result} else Decision.FLAKY
    doubtful = Decision.ALONE if last.answer == "errored" else Decision.AGAIN
    return doubtful if is_case and last.answer in DOUBTFUL else Decision.ACCEPT


def how_it_ended(code: int) -> tuple[End, str]:
    """Interpret an exit code: return how the process ended, and a sentence about it."""
    if code < 0:
        name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
        if -code in {signal.SIGKILL, signal.SIGTERM}:
            return End.KILLED, f"the process was ended from outside by {name}"
        return End.CRASHED, f"the process died of {name}"
    return End.CRASHED, f"the process ended by itself with exit code {code}"
