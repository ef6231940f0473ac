"""What an attempt at a case came to, and what follows: another attempt, or an end."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from pytest_ascend.records.record import AttemptRecord


class End(str, Enum):
    """How one attempt ended. Only an answer from a device that is well says what the case computes."""

    ANSWERED = "answered"
    CRASHED = "crashed"
    HUNG = "hung"
    #: Somebody else ended the process: the kernel for want of memory, or a person.
    KILLED = "killed"
    #: The device failed its known answer afterwards.
    UNPROVEN = "unproven"


class Decision(str, Enum):
    """What to do after an attempt."""

    SETTLE = "settle"
    FLAKY = "flaky"
    #: The case is to blame: it took the process or the device down twice.
    BLAME = "blame"
    #: Infrastructure failure: nothing is known of the case.
    LOST = "lost"
    AGAIN = "again"
    #: In a process of its own, with blocking launches.
    ALONE = "alone"


#: An answer that is asked for once more: a second one of another kind makes the case flaky.
DOUBTFUL = ("failed", "errored")

#: Attempts that somebody from outside may end before the case is given up.
KILLS_LIMIT = 3
ATTEMPTS_LIMIT = 6


@dataclass(frozen=True, kw_only=True, slots=True)
class Attempt:
    """One attempt: on which card, how it ended, with which answer ("" for none), and what is known beside.

    ``payloads`` are the reports of an answer, for whoever asked.
    """

    card: str
    end: End
    answer: str = ""
    reason: str = ""
    detail: str = ""
    alone: bool = False
    payloads: tuple[dict[str, Any], ...] = field(default=(), repr=False)

    @property
    def said(self) -> str:
        """Return what two attempts are compared by: the answer, or how the process ended."""
        return self.answer if self.end is End.ANSWERED else self.end.value

    @property
    def counts(self) -> bool:
        """Whether this says something of the case."""
        return self.end in {End.ANSWERED, End.CRASHED, End.HUNG}

    def record(self) -> AttemptRecord:
        """Return the attempt as it stands in a record."""
        return AttemptRecord(
            card=self.card, end=self.end.value, outcome=self.answer, reason=self.reason, alone=self.alone
        )


def decide(attempts: Sequence[Attempt], *, faulty: frozenset[str] = frozenset(), is_case: bool = True) -> Decision:
    """Say what follows the last attempt. What happened on cards that are ``faulty`` says nothing of the case.

    An ordinary test (``is_case`` false) is not asked twice for an answer that it gave.
    """
    last = attempts[-1]
    if last.end is End.KILLED:
        kills = sum(each.end is End.KILLED for each in attempts)
        return Decision.LOST if kills >= KILLS_LIMIT else Decision.AGAIN
    if len(attempts) >= ATTEMPTS_LIMIT:
        return Decision.BLAME if last.end is not End.ANSWERED else Decision.SETTLE
    telling = [each for each in attempts if each.card not in faulty]
    if not telling or last.card in faulty:
        return Decision.ALONE
    bad = [each for each in telling if each.end in {End.CRASHED, End.HUNG, End.UNPROVEN}]
    if last.end is not End.ANSWERED:
        return Decision.BLAME if len(bad) > 1 else Decision.ALONE
    return _after_answer([each for each in telling if each.counts], is_case=is_case)


def _after_answer(answers: Sequence[Attempt], *, is_case: bool) -> Decision:
    last, earlier = answers[-1], answers[:-1]
    if earlier:
        return Decision.FLAKY if any(each.said != last.said for each in earlier) else Decision.SETTLE
    if not is_case or last.answer not in DOUBTFUL:
        return Decision.SETTLE
    return Decision.ALONE if last.answer == "errored" else Decision.AGAIN


def how_it_ended(code: int) -> tuple[End, str]:
    """Read an exit code: who ended the process, and a sentence on it."""
    if code < 0:
        name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
        if -code in {signal.SIGKILL, signal.SIGTERM}:
            return End.KILLED, f"the process was ended from outside by {name}"
        return End.CRASHED, f"the process died of {name}"
    return End.CRASHED, f"the process ended by itself with exit code {code}"
