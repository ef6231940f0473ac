"""What a card's child may be given next, and how much time it has for it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import pytest

from pytest_ascend.isolation import Card, Task
from pytest_ascend.isolation.cards import Assigned, CardQueue


@dataclass
class Heard:
    """A child that only hears."""

    messages: list[dict[str, Any]] = field(default_factory=list)

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
        made.assigned = Assigned(Task(index, 1.0), alone=alone)
        made.give()
    assert made.runs == runs
    made.assigned = Assigned(Task(99, 1.0), alone=wanted)
    assert made.is_unfit() is unfit


def test_the_first_task_of_a_subject_has_more_time_and_the_child_hears_what_comes_next() -> None:
    made, limits = lane(), []
    tasks = [Task(index, 10.0, subject=subject, first_s=100.0) for index, subject in enumerate(("add", "add", "mul"))]
    for task, following in zip(tasks, (tasks[1], None, None), strict=True):
        made.assigned, made.reserved = Assigned(task), following
        made.give()
        limits.append(made.limit_s)
        assert abs(made.deadline - time.monotonic() - made.limit_s) < 5
        assert (made.assigned, made.current.task, made.last) == (None, task, task)
    assert limits == [110.0, 10.0, 110.0]
    assert made.child.messages == [{"run": 0, "next": 1}, {"run": 1, "next": -1}, {"run": 2, "next": -1}]


def test_a_fresh_child_has_met_nothing_and_done_nothing() -> None:
    made = lane()
    made.assigned = Assigned(Task(0, 1.0, subject="add", first_s=3.0))
    made.give()
    made.began(Heard(), alone=True, limit_s=7.0)  # type: ignore[arg-type]
    assert (made.runs, made.met, made.last, made.limit_s, made.alone, made.ready) == (0, set(), None, 7.0, True, False)


def test_only_who_is_at_something_can_be_late() -> None:
    made = lane()
    assert not made.is_overdue()
    made.deadline = time.monotonic() - 1
    assert made.is_overdue()  # at its start
    made.ready = True
    assert not made.is_overdue()  # waits for work
    made.current = Assigned(Task(0, 1.0))
    assert made.is_overdue()
    made.current = None
    assert [made.is_busy, setattr(made, "reserved", Task(1, 1.0)), made.is_busy] == [False, None, True]
