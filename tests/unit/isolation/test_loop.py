"""The loop of the parent, over children that are made for the test: no process, no time that passes."""

from __future__ import annotations

import io
import json
import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_ascend.isolation import cards as cards_module
from pytest_ascend.isolation import process, supervisor
from pytest_ascend.isolation.cards import Card
from pytest_ascend.isolation.process import Channel, Child, Task
from pytest_ascend.isolation.supervisor import Settings, Supervisor
from pytest_ascend.plugin.parent import _recorded
from pytest_ascend.system.attempts import Attempt, Decision, End

#: What a child does with a task: the messages that it sends, or the exit code that it dies with.
Behaviour = Callable[[int, "Scripted"], "list[dict[str, Any]] | int"]


class Scripted:
    """A child that answers at once."""

    end = Child.end

    def __init__(self, pid: int, ready: str | int, behave: Behaviour) -> None:
        self.pid = self.reading = pid
        self._behave = behave
        self._messages: list[Any] = []
        self.sent: list[dict[str, Any]] = []
        self.died: int | None = None
        self.done: list[str] = []
        self._take([{"ready": ready}] if isinstance(ready, str) else ready)

    def _take(self, found: list[dict[str, Any]] | int) -> None:
        if isinstance(found, int):
            self.died = found
        else:
            self._messages += found

    def send(self, **message: Any) -> None:
        self.sent.append(message)
        if "run" in message and not message["ahead"]:
            self._take(self._behave(message["run"], self))
        elif "end" in message:
            self.died = 0

    def read(self) -> list[dict[str, Any]]:
        found, self._messages = self._messages, []
        if None in found:
            raise ValueError("no JSON")
        return found

    def code(self) -> int | None:
        return self.died

    def notes(self) -> str:
        return f"notes of {self.pid}"

    def ask_for_stacks(self) -> str:
        return "stacks"

    def is_gone(self, within_s: float) -> bool:
        self.done.append(f"waited {within_s:g} s")
        return self.died is not None

    def kill(self) -> bool:
        self.done.append("kill")
        self.died = -9 if self.died is None else self.died
        return True

    def close(self) -> None:
        self.done.append("close")


class Told:
    """A listener that keeps everything."""

    def __init__(self, behave: Behaviour, ready: Callable[[int], str | int] = lambda number: "") -> None:
        self.behave, self.ready = behave, ready
        self.children: list[Scripted] = []
        self.asked: list[tuple[str, bool, bool]] = []
        self.messages: list[Mapping[str, Any]] = []
        self.attempts: list[tuple[int, Attempt]] = []
        self.outcomes: dict[int, tuple[Decision, list[Attempt]]] = {}
        self.order: list[int] = []
        self.faulty: list[str] = []
        self.stops: Callable[[], bool] = lambda: False

    def start(self, card: Card, *, alone: bool, deterministic: bool) -> Any:
        number = len(self.children)
        self.asked.append((card.label, alone, deterministic))
        self.children.append(Scripted(number, self.ready(number), self.behave))
        return self.children[-1]

    def heard(self, card: Card, message: Mapping[str, Any]) -> None:
        self.messages.append({"card": card.label, **message})

    def attempted(self, task: Task, attempt: Attempt) -> None:
        self.attempts.append((task.index, attempt))

    def decided(self, task: Task, decision: Decision, attempts: Sequence[Attempt]) -> None:
        self.outcomes[task.index] = (decision, list(attempts))
        self.order.append(task.index)

    def quarantined(self, card: Card) -> None:
        self.faulty.append(card.label)

    def stopping(self) -> bool:
        return self.stops()

    def results(self) -> dict[int, tuple[Decision, list[str]]]:
        return {index: (made, [each.result for each in found]) for index, (made, found) in self.outcomes.items()}


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Let time pass where the loop waits, and nowhere else."""
    now = SimpleNamespace(s=1000.0, step=0.01)

    def wait(_: object, timeout: float) -> None:
        now.s += min(max(timeout, now.step), 1.0)

    def sleep(seconds: float) -> None:
        now.s += seconds

    moved = SimpleNamespace(monotonic=lambda: now.s, sleep=sleep)
    for module in (supervisor, cards_module, process):
        monkeypatch.setattr(module, "time", moved)
    monkeypatch.setattr(supervisor, "wait", wait)
    monkeypatch.setattr(process, "cpu_waits", lambda _: {})
    monkeypatch.setattr(supervisor, "native", lambda pid: f"native of {pid}")
    return now


def answered(index: int, answer: str = "passed", health: str = "") -> list[dict[str, Any]]:
    return [{"finished": index, "answer": answer, "health": health}]


def passes(index: int, _: Scripted) -> list[dict[str, Any]]:
    return answered(index)


def run(
    told: Told,
    tasks: int | Sequence[Task],
    *,
    cards: int = 1,
    earlier: Mapping[int, Sequence[Attempt]] | None = None,
    **settings: Any,
) -> tuple[list[int], str]:
    work = [Task(index, 30.0) for index in range(tasks)] if isinstance(tasks, int) else tasks
    made = [Card(label=f"npu:{index}", index=index) for index in range(cards)]
    left, why = Supervisor(work, made, told, Settings(**settings), earlier).run()
    return [each.index for each in left], why


def test_the_limits_are_these() -> None:
    assert Settings() == Settings(start_limit_s=180, end_limit_s=30, deadline=float("inf"), doubts_limit=100)
    assert (supervisor.TICK_S, supervisor.KILLED_STARTS_LIMIT) == (0.2, 10)


def test_reports_of_a_case_come_with_its_attempt_and_all_else_is_passed_on() -> None:
    def behave(index: int, _: Scripted) -> list[dict[str, Any]]:
        done = {**answered(index)[0], "reports": [{"n": index}, {"m": index}]}
        return [{"else": 1}, done, {**done, "reports": [{"x": 9}]}]

    told = Told(behave)
    assert run(told, 2) == ([], "")
    assert [each.payloads for _, [each] in told.outcomes.values()] == [({"n": 0}, {"m": 0}), ({"n": 1}, {"m": 1})]
    assert told.messages[0] == {"card": "npu:0", "ready": ""}
    assert told.messages.count({"card": "npu:0", "else": 1}) == 2
    assert [each["reports"] for each in told.messages if "reports" in each] == [[{"x": 9}]] * 2, (
        "nothing runs that it is of"
    )
    assert told.children[0].sent == [
        {"run": 0, "next": 1, "ahead": False},
        {"run": 1, "next": -1, "ahead": False},
        {"end": True},
    ]
    assert told.children[0].done[-2:] == ["kill", "close"]


def test_a_message_that_cannot_be_read_is_a_crash() -> None:
    told = Told(lambda index, child: [None] if child.pid == 0 else answered(index))  # type: ignore[list-item]
    run(told, 1)
    decision, [first, second] = told.outcomes[0]
    assert (decision, second.result) == (Decision.FLAKY, "passed")
    assert (first.end, first.reason, first.detail) == (
        End.CRASHED, "the process sent what cannot be read: no JSON", "notes of 0",
    )  # fmt: skip
    assert told.children[0].done == ["kill", "kill", "close"]
    assert [alone for _, alone, _ in told.asked] == [False, True]


def test_a_death_says_how_and_what_was_left_behind() -> None:
    told = Told(lambda index, child: -signal.SIGSEGV)
    run(told, 1)
    decision, found = told.outcomes[0]
    assert decision is Decision.BLAME
    assert [(each.reason, each.detail, each.alone) for each in found] == [
        ("the process died of SIGSEGV", "notes of 0", False),
        ("the process died of SIGSEGV", "notes of 1", True),
    ]
    assert told.attempts == [(0, found[0])]


def test_a_hang_has_the_stacks_of_both(clock: SimpleNamespace) -> None:
    told = Told(lambda index, child: [])
    run(told, [Task(0, 5.0, first_s=2.0, subject="a")])
    first, second = told.outcomes[0][1]
    assert (first.end, first.reason, first.detail) == (End.HUNG, "no end within 7 s", "stacks\n\nnative of 0")
    assert second.end is End.HUNG
    assert 1014 <= clock.s < 1020


def test_a_process_that_does_not_start_in_time_costs_the_card() -> None:
    told = Told(passes)
    told.ready = lambda number: 0  # replaced below: it lives and says nothing
    made = told.start

    def start(card: Card, **how: bool) -> Any:
        child = made(card, **how)
        child.died = None
        return child

    told.start = start  # type: ignore[method-assign]
    left, why = run(told, 2, start_limit_s=3.0)
    assert left == [0, 1]
    assert why == (
        "npu:0 is quarantined: in 2 fresh processes one after the other: no end within 3 s, before the first case"
    )
    assert told.faulty == ["npu:0"]


def test_a_process_that_was_killed_before_its_first_case_is_started_again_ten_times() -> None:
    told = Told(passes, lambda number: -9 if number < 10 else "")
    assert run(told, 1) == ([], "")
    assert len(told.children) == 11
    told = Told(passes, lambda number: -9)
    left, why = run(told, 1)
    assert (left, len(told.children)) == ([0], 12), "then it counts, and a card has two starts"
    assert "the process was ended from outside by SIGKILL, before the first case" in why


def test_a_process_that_ends_between_two_cases_is_replaced_and_nobody_is_to_blame() -> None:
    def behave(index: int, child: Scripted) -> list[dict[str, Any]]:
        child.died = {0: -9, 1: -signal.SIGSEGV}.get(index)
        return answered(index)

    told = Told(behave)
    assert run(told, 3) == ([], "")
    assert told.results() == dict.fromkeys(range(3), (Decision.ACCEPT, ["passed"]))
    assert len(told.children) == 3
    assert told.faulty == []


def test_after_an_error_a_process_is_let_end_and_replaced() -> None:
    told = Told(lambda index, child: answered(index, "errored" if index == 0 else "passed"))
    assert run(told, 2) == ([], "")
    assert told.results() == {0: (Decision.ACCEPT, ["errored", "errored"]), 1: (Decision.ACCEPT, ["passed"])}
    assert {"end": True} in told.children[0].sent
    assert tuple(alone for _, alone, _ in told.asked)[:2] == (False, True)


def test_only_so_many_failures_run_a_second_time() -> None:
    told = Told(lambda index, child: answered(index, "failed"))
    run(told, 4, doubts_limit=2)
    assert sorted(len(found) for _, found in told.outcomes.values()) == [1, 1, 2, 2]
    assert {decision for decision, _ in told.outcomes.values()} == {Decision.ACCEPT}
    told = Told(lambda index, child: answered(index, "errored"))
    run(told, 3, doubts_limit=1)
    assert sorted(len(found) for _, found in told.outcomes.values()) == [1, 1, 2]
    told = Told(lambda index, child: answered(index, "unsupported"))
    run(told, 2, doubts_limit=0)
    assert [len(found) for _, found in told.outcomes.values()] == [1, 1], "which is no doubt"


def test_an_ordinary_test_is_asked_once() -> None:
    told = Told(lambda index, child: answered(index, "failed"))
    run(told, [Task(0, 1.0, is_case=False), Task(1, 1.0)])
    assert [len(told.outcomes[index][1]) for index in (0, 1)] == [1, 2]


def test_attempts_of_the_run_before_count() -> None:
    crashed = Attempt(card="npu:0", end=End.CRASHED)
    told = Told(lambda index, child: 1)
    run(told, 1, earlier={0: [crashed]})
    assert told.results() == {0: (Decision.BLAME, ["crashed", "crashed"])}
    assert len(told.children) == 1


def test_health_afterwards_takes_the_answer_back() -> None:
    told = Told(lambda index, child: answered(index, "passed", "zeros" if child.pid == 0 else ""))
    run(told, 1)
    first, second = told.outcomes[0][1]
    assert (first.end, first.answer, first.reason, first.detail) == (
        End.UNPROVEN, "passed", "the device is not well afterwards: zeros", "notes of 0",
    )  # fmt: skip
    assert (second.result, second.reason, second.detail) == ("passed", "", "")


def test_a_second_answer_on_one_card_is_a_flake_at_once() -> None:
    told = Told(lambda index, child: answered(index, "failed" if len(child.sent) == 1 else "passed"))
    run(told, 1)
    assert told.results() == {0: (Decision.FLAKY, ["failed", "passed"])}


def test_of_two_cards_a_flake_waits_for_the_end_and_another_card_is_tried() -> None:
    told = Told(lambda index, child: answered(index, "failed" if told.asked[child.pid][0] == "npu:0" else "passed"))
    assert run(told, 1, cards=2) == ([], "")
    [(index, attempt), _] = told.attempts
    assert (index, attempt.card) == (0, "npu:0")
    assert told.results() == {0: (Decision.FLAKY, ["failed", "passed"])}
    assert [each.card for each in told.outcomes[0][1]] == ["npu:0", "npu:1"]


def test_a_card_that_is_alone_at_fault_loses_its_answers() -> None:
    told = Told(lambda index, child: answered(index, "failed" if told.asked[child.pid][0] == "npu:0" else "passed"))
    assert run(told, 12, cards=2) == ([], "")
    assert told.faulty == ["npu:0"]
    assert {decision for decision, _ in told.outcomes.values()} == {Decision.ACCEPT}
    assert {found[-1].result for _, found in told.outcomes.values()} == {"passed"}


def test_where_two_cards_are_faulty_the_run_says_why_of_each() -> None:
    told = Told(passes, lambda number: "no heartbeat")
    left, why = run(told, 3, cards=2)
    assert sorted(left) == [0, 1, 2]
    reason = "is quarantined: in 2 fresh processes one after the other: no heartbeat"
    assert why == f"npu:0 {reason}; npu:1 {reason}"


def test_a_stop_is_obeyed_between_two_cases_and_a_deadline_within_one(clock: SimpleNamespace) -> None:
    told = Told(passes)
    told.stops = lambda: 1 in told.outcomes
    left, why = run(told, 5)
    assert (why, left) == ("stopped", [index for index in range(5) if index not in told.outcomes])
    assert 1 in told.outcomes
    told = Told(lambda index, child: [] if index == 1 else answered(index))
    assert run(told, 3, deadline=clock.s + 5) == ([1, 2], "the deadline of the run passed")
    assert told.children[0].done == ["kill", "close"], "who is at work is not waited for"


def test_a_failure_is_told_before_anything_else_begins() -> None:
    told = Told(lambda index, child: answered(index, "unsupported" if index == 0 else "passed"))
    told.stops = lambda: 0 in told.outcomes
    left, _ = run(told, 3)
    assert (told.order, left) == ([0], [1, 2])


def test_what_is_left_is_in_its_order() -> None:
    told = Told(lambda index, child: [] if index == 2 else answered(index))
    left, _ = run(told, 6, deadline=supervisor.time.monotonic() + 5)
    assert left == [2, 3, 4, 5]


def test_tasks_alone_have_a_process_each_and_others_wait_for_no_such() -> None:
    told = Told(lambda index, child: -6 if index == 0 and child.pid == 0 else answered(index))
    run(told, 3)
    assert told.results()[0] == (Decision.FLAKY, ["crashed", "passed"])
    of = {
        index: child.pid
        for child in told.children
        for message in child.sent
        if "run" in message
        for index in [message["run"]]
    }
    assert told.asked[of[0]] == ("npu:0", True, False)
    assert of[0] not in (of[1], of[2])


def lanes(count: int = 2, **options: Any) -> Supervisor:
    made = [Card(label=f"npu:{index}", index=index) for index in range(count)]
    given = {"tasks": [], "listener": Told(passes), "settings": Settings(), **options}
    return Supervisor(cards=made, **given)


def task(index: int, group: str = "") -> Task:
    return Task(index, 1.0, group=group)


@pytest.mark.parametrize(
    ("own", "other", "queued", "taken"),
    [
        ("", "", "aab", 0),
        ("", "a", "aab", 2),
        ("a", "", "aab", 0),  # its own group first
        ("a", "", "bba", 0),  # which is not gone for over others that are free
        ("a", "b", "bba", 2),
        ("b", "a", "aab", 2),
        ("", "a", "aaa", 0),  # nothing else is left
        ("a", "b", "cba", 0),  # what is free comes before what is its own later on
    ],
)
def test_a_lane_takes_of_its_group_or_of_one_that_nobody_works_on(
    own: str, other: str, queued: str, taken: int
) -> None:
    made = lanes(tasks=[task(place, group) for place, group in enumerate(queued)])
    first, second = made._lanes
    first.last, second.last = task(90, own), task(91, other)
    found = made._next(first)
    assert found.index == taken
    assert [each.index for each in made._queue] == [place for place in range(len(queued)) if place != taken]


def test_what_is_tried_again_is_tried_elsewhere_where_there_is_another_card() -> None:
    made = lanes()
    first, second = made._lanes
    again = replace(task(0), avoid="npu:0")
    made._again = [again]
    assert made._pick(first) is None
    assert made._pick(second) is again
    made._again = [again]
    second.card.quarantined = "faulty"
    assert made._pick(first) is again


def test_what_is_tried_again_alone_waits_for_a_fresh_process_while_there_is_other_work() -> None:
    made = lanes(1, tasks=[task(1)])
    [lane] = made._lanes
    alone = replace(task(0), alone=True)
    made._again = [alone]
    lane.child = object()  # type: ignore[assignment]
    assert made._pick(lane) == task(1)
    assert made._pick(lane) is alone, "nothing else is left"
    assert made._pick(lane) is None


def test_a_task_that_ran_last_is_repeated_before_what_is_reserved() -> None:
    made = lanes(1)
    [lane] = made._lanes
    last, following = task(0), task(1)
    again = replace(last, avoid="npu:0")
    lane.last, made._again = last, [again]
    lane.following.append(following)
    assert made._pick(lane) is again
    assert made._pick(lane) == following
    assert not lane.following


@pytest.mark.parametrize(("alone", "reserved"), [(True, []), (False, [1])])
def test_nothing_is_reserved_for_a_task_alone_nor_twice(alone: bool, reserved: list[int]) -> None:
    made = lanes(1, tasks=[task(1), task(2)])
    [lane] = made._lanes
    lane.child, lane.ready, lane.alone = Scripted(0, "", lambda index, child: []), True, alone  # type: ignore[assignment]
    for _ in range(2):
        lane.assigned = replace(task(0), alone=alone)
        made._feed(lane)
        assert [each.index for each in lane.following] == reserved
        lane.current, lane.runs = None, 0
    lane.current = replace(task(0), alone=alone)
    made._give_up(lane)
    assert [each.index for each in made._queue] == [0, 1, 2]
    assert not lane.is_busy


def test_a_card_that_passes_elsewhere_what_fails_here_is_suspected() -> None:
    made = lanes()
    first, second = made._lanes

    def attempt(card: str, answer: str) -> Attempt:
        return Attempt(card=card, end=End.ANSWERED, answer=answer)

    made._suspect(task(0), [attempt("npu:0", "failed"), attempt("npu:1", "failed")])
    made._suspect(task(1), [attempt("npu:1", "failed"), attempt("npu:1", "passed")])
    made._suspect(task(2), [attempt("npu:0", "passed"), attempt("npu:1", "passed")])
    assert (first.card.suspicions, second.card.suspicions) == (set(), set())
    made._suspect(task(3), [attempt("npu:0", "failed"), attempt("npu:1", "passed")])
    assert (first.card.suspicions, second.card.suspicions) == ({3}, set())


def test_an_attempt_is_kept_as_it_was_and_some_count() -> None:
    made = _recorded(Attempt(card="npu:1", end=End.CRASHED, answer="", reason="r", detail="d", alone=True))
    assert (made.card, made.end, made.outcome, made.reason, made.alone) == ("npu:1", "crashed", "", "r", True)
    counts = {end: Attempt(card="c", end=end).counts for end in End}
    assert {end for end, does in counts.items() if does} == {End.ANSWERED, End.CRASHED, End.HUNG}


@contextmanager
def channel() -> Iterator[tuple[Channel, int, int]]:
    """Yield a child's end, where it reads from, and where what it says arrives."""
    to_child, to_parent = os.pipe(), os.pipe()
    made = Channel(to_child[0], to_parent[1])
    with made._reading, made._writing, os.fdopen(to_child[1], "wb"), os.fdopen(to_parent[0], "rb"):
        yield made, to_child[1], to_parent[0]


def test_a_channel_says_what_json_cannot_hold_as_text_and_hears_line_by_line() -> None:
    with channel() as (made, writing, reading):
        made.send(a=1, b={2})
        assert json.loads(os.read(reading, 1000)) == {"a": 1, "b": "{2}"}
        os.write(writing, b'{"x": 1}\n{"y": 2}\n')
        assert [made.receive(), made.receive()] == [{"x": 1}, {"y": 2}]


def test_a_child_without_a_parent_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[int] = []

    def leave(code: int) -> None:
        ended.append(code)
        raise SystemExit

    monkeypatch.setattr(process.os, "_exit", leave)
    made: Any = SimpleNamespace(_reading=io.BytesIO(b""))
    with pytest.raises(SystemExit):
        Channel.receive(made)
    assert ended == [0]


def test_a_log_of_cann_is_cut_in_the_middle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "PLOG_END_BYTES", 8)
    path = tmp_path / "debug" / "plog" / "plog-12_0.log"
    path.parent.mkdir(parents=True)
    for text, shown in (
        ("12345678abcdefgh", "12345678abcdefgh"),
        ("12345678-abcdefgh", "12345678\n... 1 bytes ...\nabcdefgh"),
        ("1234\x1b\t", "1234?\t"),
    ):
        path.write_text(text, encoding="utf-8")
        [log] = process.plogs(12, 0, {"ASCEND_PROCESS_LOG_PATH": str(tmp_path)})
        assert log.partition("\n")[2] == shown


def test_four_logs_of_a_process_are_kept_by_their_names(tmp_path: Path) -> None:
    folder = tmp_path / "debug" / "plog"
    folder.mkdir(parents=True)
    for number in range(6):
        (folder / f"plog-12_{number}.log").write_text(f"log {number}", encoding="utf-8")
    (folder / "plog-12_9.log.1").write_text("", encoding="utf-8")
    (folder / "other-12_9.log").write_text("log 9", encoding="utf-8")
    found = list(process.plogs(12, 0, {"ASCEND_PROCESS_LOG_PATH": str(tmp_path)}))
    assert [each.splitlines()[-1] for each in found] == ["log 3", "log 4", "log 5"]
    assert found[0].startswith(f"CANN's log of the process, {folder}/plog-12_3.log:\n")
