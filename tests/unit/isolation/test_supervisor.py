"""The loop of the parent, over real child processes that do nothing but live and die."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from pytest_ascend.isolation.cards import Card
from pytest_ascend.isolation.process import Channel, Child, Task, start
from pytest_ascend.isolation.supervisor import Settings, Supervisor
from pytest_ascend.system.attempts import Attempt, Decision

#: What a child does with a task: by its index, on a card, the how-many-th process of the run it is in.
Behaviour = Callable[[int, Card, int], str]


class Recorder:
    """Starts children of one behaviour, and keeps what became of the tasks."""

    def __init__(self, behave: Behaviour, ready: Callable[[Card, int], str] = lambda card, number: "") -> None:
        self.behave = behave
        self.ready = ready
        self.started: list[tuple[str, bool]] = []
        self.deterministic: list[bool] = []
        self.pids: list[int] = []
        self.outcomes: dict[int, tuple[Decision, list[str]]] = {}
        self.reasons: dict[int, set[str]] = {}
        self.faulty: list[str] = []
        self.limit: int | None = None

    def start(self, card: Card, *, alone: bool, deterministic: bool) -> Child:
        number = len(self.started)
        self.started.append((card.label, alone))
        self.deterministic.append(deterministic)

        def live(channel: Channel) -> None:
            channel.send(ready=self.ready(card, number))
            goes_on = True
            while "run" in (message := channel.receive()):
                if message["ahead"] and not goes_on:
                    continue
                said = self.behave(message["run"], card, number)
                answer, _, health = said.partition("/")
                channel.send(finished=message["run"], answer=answer, health=health)
                goes_on = answer == "passed" and not health

        child = start(live)
        self.pids.append(child.pid)
        return child

    def heard(self, card: Card, message: Mapping[str, Any]) -> None: ...

    def attempted(self, task: Task, attempt: Attempt) -> None: ...

    def decided(self, task: Task, decision: Decision, attempts: Sequence[Attempt]) -> None:
        self.outcomes[task.index] = (decision, [each.result for each in attempts])
        self.reasons[task.index] = {each.reason for each in attempts}

    def quarantined(self, card: Card) -> None:
        self.faulty.append(card.label)

    def stopping(self) -> bool:
        return self.limit is not None and len(self.outcomes) >= self.limit


def die(by: int) -> str:
    os.kill(os.getpid(), by)
    time.sleep(60)
    return ""


def run(
    recorder: Recorder, tasks: int, *, cards: int = 1, limit_s: float = 30.0, **settings: Any
) -> tuple[list[Task], str]:
    made = [Card(label=f"npu:{index}", index=index) for index in range(cards)]
    work = [Task(index, limit_s) for index in range(tasks)]
    left = Supervisor(work, made, recorder, Settings(start_limit_s=20, end_limit_s=5, **settings)).run()
    for pid in recorder.pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    return left


def test_all_is_settled_by_one_process_where_nothing_goes_wrong() -> None:
    recorder = Recorder(lambda index, card, number: "passed")
    assert run(recorder, 20) == ([], "")
    assert recorder.started == [("npu:0", False)]
    assert recorder.outcomes == dict.fromkeys(range(20), (Decision.ACCEPT, ["passed"]))


@pytest.mark.drawn(3)
@pytest.mark.parametrize("cards", [1, 2])
@pytest.mark.parametrize("seed", range(4))
def test_tasks_of_groups_are_told_ahead_and_each_is_decided_once(cards: int, seed: int, tmp_path: Any) -> None:
    """Whatever the tasks do: pass, fail, die, leave the device unwell; and each child hears of them in order."""
    chance, ran = random.Random(seed), tmp_path / "ran"  # noqa: S311  (no secret)
    fates = chance.choices(["passed", "failed", "errored", "passed/zeros came", "die"], [20, 2, 2, 1, 1], k=120)

    def behave(index: int, card: Card, number: int) -> str:
        with ran.open("a") as file:
            file.write(f"{number} {index}\n")
        return die(signal.SIGSEGV) if fates[index] == "die" else fates[index]

    recorder = Recorder(behave)
    made = [Card(label=f"npu:{index}", index=index) for index in range(cards)]
    work = [Task(index, 30.0, group=f"g{index // 5}", deterministic=index > 90) for index in range(len(fates))]
    left, why = Supervisor(work, made, recorder, Settings(start_limit_s=20, end_limit_s=5, doubts_limit=1000)).run()
    assert (left, why) == ([], "")
    assert recorder.outcomes.keys() == {*range(len(fates))}
    passed = {index for index, fate in enumerate(fates) if fate == "passed"}
    assert {index for index, (_, told) in recorder.outcomes.items() if told == ["passed"]} == passed
    times = [int(line.split()[1]) for line in ran.read_text().splitlines()]
    assert all(times.count(index) == 1 for index in passed), "what is dropped is not run"


def test_tasks_that_ask_for_determinism_have_a_process_of_their_own_kind() -> None:
    recorder = Recorder(lambda index, card, number: die(signal.SIGKILL) if index == 5 else str(number))
    tasks = [Task(index, 30.0, deterministic=index >= 3) for index in range(7)]
    Supervisor(tasks, [Card(label="npu:0", index=0)], recorder, Settings(start_limit_s=20, end_limit_s=5)).run()
    kinds = {
        index: {recorder.deterministic[int(said)] for said in told if said.isdigit()}
        for index, (_, told) in recorder.outcomes.items()
    }
    assert kinds == {0: {False}, 1: {False}, 2: {False}, 3: {True}, 4: {True}, 5: set(), 6: {True}}
    assert len(recorder.deterministic) <= 5


def test_a_crash_is_tried_again_alone_and_blamed() -> None:
    recorder = Recorder(lambda index, card, number: die(signal.SIGSEGV) if index == 1 else "passed")
    run(recorder, 4)
    assert recorder.outcomes[1] == (Decision.BLAME, ["crashed", "crashed"])
    assert recorder.reasons == {0: {""}, 1: {"the process died of SIGSEGV"}, 2: {""}, 3: {""}}
    assert [recorder.outcomes[index][0] for index in (0, 2, 3)] == [Decision.ACCEPT] * 3
    assert recorder.started == [("npu:0", False), ("npu:0", True), ("npu:0", False)]


def test_a_hang_ends_at_its_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_ascend.isolation.supervisor.native", lambda pid: "")  # a debugger takes seconds
    recorder = Recorder(lambda index, card, number: die(0) if index == 0 else "passed")
    began = time.monotonic()
    run(recorder, 2, limit_s=0.5)
    assert recorder.outcomes == {0: (Decision.BLAME, ["hung", "hung"]), 1: (Decision.ACCEPT, ["passed"])}
    assert recorder.reasons == {0: {"no end within 0.5 s"}, 1: {""}}
    assert time.monotonic() - began < 55


def test_a_case_that_somebody_killed_is_no_flake() -> None:
    recorder = Recorder(lambda index, card, number: die(signal.SIGKILL) if (index, number) == (1, 0) else "passed")
    run(recorder, 3)
    assert recorder.outcomes[1] == (Decision.ACCEPT, ["killed", "passed"])


def test_an_answer_from_a_faulty_device_is_no_answer() -> None:
    recorder = Recorder(lambda index, card, number: "passed/zeros came" if (index, number) == (1, 0) else "failed")
    run(recorder, 2)
    assert recorder.outcomes[1] == (Decision.ACCEPT, ["unproven", "failed", "failed"])
    assert recorder.reasons[1] == {"the device is not well afterwards: zeros came", ""}


def test_a_card_that_does_not_come_up_is_quarantined_and_the_others_finish() -> None:
    recorder = Recorder(lambda index, card, number: "passed", lambda card, number: "faulty" if card.index == 1 else "")
    assert run(recorder, 6, cards=2) == ([], "")
    assert recorder.faulty == ["npu:1"]
    assert {decision for decision, _ in recorder.outcomes.values()} == {Decision.ACCEPT}


def test_where_no_card_is_left_the_rest_is_given_back_with_the_reason() -> None:
    recorder = Recorder(lambda index, card, number: "passed", lambda card, number: "no heartbeat")
    left, why = run(recorder, 3)
    assert [task.index for task in left] == [0, 1, 2]
    assert "no heartbeat" in why


def test_a_card_on_which_cases_fail_that_pass_elsewhere_is_quarantined_and_nobody_is_blamed() -> None:
    def behave(index: int, card: Card, number: int) -> str:
        time.sleep(0.05)
        return die(signal.SIGABRT) if card.index == 1 else "passed"

    recorder = Recorder(behave)
    assert run(recorder, 16, cards=2) == ([], "")
    assert recorder.faulty == ["npu:1"]
    assert {decision for decision, _ in recorder.outcomes.values()} == {Decision.ACCEPT}
    assert len(recorder.outcomes) == 16


def test_the_deadline_of_the_run_leaves_what_is_not_done() -> None:
    recorder = Recorder(lambda index, card, number: die(0) if index == 1 else "passed")
    left, why = run(recorder, 3, deadline=time.monotonic() + 1.5)
    assert [task.index for task in left] == [1, 2]
    assert "deadline" in why


def test_who_wants_to_stop_gets_no_more() -> None:
    recorder = Recorder(lambda index, card, number: "unsupported")
    recorder.limit = 2
    left, _ = run(recorder, 5)
    assert set(recorder.outcomes) == {0, 1}
    assert [task.index for task in left] == [2, 3, 4]


def test_a_card_that_is_busy_for_a_while_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_ascend.isolation.cards.BUSY_FIRST_S", 0.05)
    busy = "RuntimeError: 507899 EL0005: The resources are busy."
    recorder = Recorder(lambda index, card, number: "passed", lambda card, number: busy if number < 4 else "")
    assert run(recorder, 2) == ([], "")
    assert len(recorder.started) == 5
    assert not recorder.faulty


def test_the_first_task_of_a_subject_in_a_process_may_take_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_ascend.isolation.supervisor.native", lambda pid: "")

    def behave(index: int, card: Card, number: int) -> str:
        time.sleep(1.0)
        return "passed"

    tasks = [Task(0, 0.3, subject="add", first_s=20), Task(1, 0.3, subject="add", first_s=20)]
    recorder = Recorder(behave)
    Supervisor(tasks, [Card(label="npu:0", index=0)], recorder, Settings()).run()
    assert recorder.outcomes[0] == (Decision.ACCEPT, ["passed"])
    assert recorder.outcomes[1][1][0] == "hung"


def test_a_process_that_the_driver_holds_costs_its_card_and_not_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """No signal ends a process inside a driver call: here none is sent."""
    sent = os.kill
    monkeypatch.setattr("pytest_ascend.isolation.supervisor.native", lambda pid: "")
    monkeypatch.setattr("pytest_ascend.isolation.process.os.killpg", lambda pid, by: None)
    monkeypatch.setattr("pytest_ascend.isolation.process.os.kill", lambda pid, by: None)
    monkeypatch.setattr("pytest_ascend.isolation.process.Child.kill.__defaults__", (0.2,))
    recorder = Recorder(lambda index, card, number: time.sleep(60) or "passed")
    cards = [Card(label="npu:0", index=0)]
    left, why = Supervisor([Task(0, 0.2), Task(1, 0.2)], cards, recorder, Settings()).run()
    assert len(left) == 2
    assert "the driver holds it" in why
    for pid in recorder.pids:
        sent(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


@pytest.mark.parametrize("seed", range(4))
def test_one_process_does_what_shares_something_and_no_card_is_idle(seed: int) -> None:
    lengths = random.Random(seed)  # noqa: S311
    groups = [name for name in "abcdefgh" for _ in range(lengths.randint(1, 9))]

    def behave(index: int, card: Card, _: int) -> str:
        time.sleep(lengths.uniform(0, 0.01))
        return card.label

    recorder, cards = Recorder(behave), [Card(label=f"npu:{index}", index=index) for index in range(2)]
    tasks = [Task(index, 30.0, group=group) for index, group in enumerate(groups)]
    Supervisor(tasks, cards, recorder, Settings(start_limit_s=20, end_limit_s=5)).run()
    by = {group: {recorder.outcomes[task.index][1][0] for task in tasks if task.group == group} for group in "abcdefgh"}
    assert set.union(*by.values()) == {"npu:0", "npu:1"}
    assert sum(len(used) > 1 for used in by.values()) <= 1, "only the last group is worth sharing"
