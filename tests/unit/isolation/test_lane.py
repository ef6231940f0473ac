"""What a card's child may be given next, and how much time it has for it."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import pytest

from pytest_ascend.isolation.cards import Card, CardQueue
from pytest_ascend.isolation.process import Child, Task


@dataclass
class Heard:
    """A child that only hears."""

    messages: list[dict[str, Any]] = field(default_factory=list)
    pid: int = 0

    def send(self, **message: Any) -> None:
        self.messages.append(message)


def lane(*, alone: bool = False) -> CardQueue:
    made = CardQueue(card=Card(label="npu:0", index=0))
    made.began(Heard(), alone=alone, limit_s=5)  # type: ignore[arg-type]
    return made


@pytest.mark.parametrize(
    ("alone", "runs", "wanted", "unfit"),
    [
        (False, 0, False, False),
        (False, 7, False, False),
        (False, 0, True, True),
        (False, 7, True, True),
        (True, 0, False, True),
        (True, 1, False, True),
        (True, 0, True, False),
        (True, 1, True, True),
        (True, 2, True, True),
    ],
)
def test_a_process_is_fit_for_what_it_was_started_for_and_one_that_is_alone_for_one_task(
    alone: bool, runs: int, wanted: bool, unfit: bool
) -> None:
    made = lane(alone=alone)
    for index in range(runs):
        made.assigned = Task(index, 1.0, alone=alone)
        made.give()
    assert made.runs == runs
    made.assigned = Task(99, 1.0, alone=wanted)
    assert made.is_unfit() is unfit


def test_the_first_task_of_a_subject_has_more_time_and_the_child_hears_what_comes_next() -> None:
    made, limits = lane(), []
    tasks = [Task(index, 10.0, subject=subject, first_s=100.0) for index, subject in enumerate(("add", "add", "mul"))]
    for task, following in zip(tasks, (tasks[1], None, None), strict=True):
        made.assigned, made.following = task, deque(filter(None, [following]))
        made.give()
        limits.append(made.deadline.limit_s)
        assert abs(made.deadline.at - time.monotonic() - limits[-1]) < 5
        assert (made.assigned, made.current, made.last) == (None, task, task)
    assert limits == [110.0, 10.0, 110.0]
    assert made.child.messages == [
        {"run": 0, "next": 1, "ahead": False},
        {"run": 1, "next": -1, "ahead": False},
        {"run": 2, "next": -1, "ahead": False},
    ]


def test_what_is_told_ahead_is_begun_with_the_time_that_it_needs() -> None:
    made, tasks = lane(), [Task(index, 10.0, subject="add", first_s=100.0) for index in range(3)]
    made.assigned, made.following = tasks[0], deque(tasks[1:])
    made.give()
    made.give(ahead=True)
    assert (made.ahead, list(made.following), made.current) == (True, tasks[1:], tasks[0])
    made.following.pop()
    made.give(ahead=True)
    made.begin(made.following.popleft())
    assert (list(made.following), made.current, made.last) == ([], tasks[1], tasks[1])
    assert (made.deadline.limit_s, made.runs) == (10.0, 2)
    assert made.child.messages[1:] == [{"run": 1, "next": 2, "ahead": True}, {"run": 1, "next": -1, "ahead": True}]


def test_a_fresh_child_has_met_nothing_and_done_nothing() -> None:
    made = lane()
    made.assigned = Task(0, 1.0, subject="add", first_s=3.0)
    made.give()
    made.began(Heard(), alone=True, limit_s=7.0)  # type: ignore[arg-type]
    assert (made.runs, made.met, made.last, made.alone, made.ready) == (0, set(), None, True, False)
    assert made.deadline.limit_s == 7


def test_only_who_is_at_something_can_be_late() -> None:
    made = lane()
    assert not made.is_overdue()
    made.deadline.allow(-1)
    assert made.is_overdue()  # at its start
    made.ready = True
    assert not made.is_overdue()  # waits for work
    made.current = Task(0, 1.0)
    assert made.is_overdue()
    made.current = None
    assert [made.is_busy, made.following.append(Task(1, 1.0)), made.is_busy] == [False, None, True]


@dataclass
class Ending(Heard):
    """A child that is alive or dead; one that cannot be killed stays."""

    is_alive: bool = False
    can_be_killed: bool = True
    done: list[str] = field(default_factory=list)
    pid: int = 12
    end = Child.end

    def code(self) -> int | None:
        return None if self.is_alive else 0

    def is_gone(self, within_s: float) -> bool:
        assert self.messages == [{"end": True}]
        self.done.append(f"waited {within_s:g} s")
        return not self.is_alive

    def kill(self) -> bool:
        self.done.append("kill")
        return self.can_be_killed

    def close(self) -> None:
        self.done.append("close")


@pytest.mark.parametrize(
    ("is_alive", "patience_s", "waits"),
    [(True, 20, ["waited 20 s"]), (False, 20, []), (True, 0, [])],
    ids=["alive", "dead", "at once"],
)
def test_a_child_is_let_clean_up_for_a_while_and_is_gone(is_alive: bool, patience_s: float, waits: list[str]) -> None:
    made, child = lane(), Ending(is_alive=is_alive)
    made.child, made.ready = child, True  # type: ignore[assignment]
    made.end(patience_s)
    assert (made.child, made.ready) == (None, False)
    assert bool(child.messages) is bool(waits)
    assert child.done == [*waits, "kill", "close"]
    assert not made.card.quarantined
    made.end(patience_s)  # again, of none


def test_a_child_that_the_driver_holds_costs_the_card() -> None:
    made, child = lane(), Ending(can_be_killed=False)
    made.child = child  # type: ignore[assignment]
    made.end(0)
    assert made.card.quarantined == "process 12 cannot be ended, as the driver holds it"
    assert child.done == ["kill", "close"]


def test_the_group_at_work_is_that_of_what_comes_next_or_was_last() -> None:
    made = lane()
    assert made.group == ""
    last, current, assigned, following = (Task(place, 1.0, group=each) for place, each in enumerate("abcd"))
    for name, value in (("last", last), ("current", current), ("assigned", assigned)):
        setattr(made, name, value)
        assert made.group == value.group
    made.following += [last, following]
    assert made.group == following.group


@pytest.mark.parametrize("asked_for", [True, False])
def test_a_process_is_fit_for_determinism_where_it_was_started_with_it(asked_for: bool) -> None:
    made = lane()
    made.began(Heard(), alone=False, limit_s=5, deterministic=True)  # type: ignore[arg-type]
    made.assigned = Task(0, 1.0, deterministic=asked_for)
    assert made.is_unfit() is not asked_for
