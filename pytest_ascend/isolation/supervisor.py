"""The parent's loop: it hands out cases, enforces deadlines, kills children and decides. It never uses a device."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from multiprocessing.connection import wait
from typing import Any, Protocol

from pytest_ascend.isolation.cards import Card, CardQueue
from pytest_ascend.isolation.process import GOES_ON, Child, Task, is_stopped, native
from pytest_ascend.system.attempts import DOUBTFUL, Attempt, Decision, End, decide, how_it_ended

#: Seconds within which a dead child is noticed even if another process keeps its pipe open.
TICK_S = 0.2
#: Number of processes killed before their first case after which a card counts as failed to start.
KILLED_STARTS_LIMIT = 10


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """Time limits: ``start_limit_s`` for a fresh process to use its card, ``end_limit_s`` for its clean-up.

    ``deadline`` is when the run must be over (``time.monotonic``); ``doubts_limit`` the number of failures run again.
    """

    start_limit_s: float = 180.0
    end_limit_s: float = 30.0
    deadline: float = float("inf")
    doubts_limit: int = 100


class Listener(Protocol):
    """Starts the children and receives the results of the tasks."""

    def start(self, card: Card, *, alone: bool, deterministic: bool) -> Child:
        """Return a fresh process for a card; ``alone``: with blocking launches, ``deterministic``: with determinism."""

    def heard(self, card: Card, message: Mapping[str, Any]) -> None:
        """Receive a message that is not meant for the supervisor."""

    def attempted(self, task: Task, attempt: Attempt) -> None:
        """Receive and record an attempt that is not the last one."""

    def decided(self, task: Task, decision: Decision, attempts: Sequence[Attempt]) -> None:
        """Receive the decision on a task."""

    def quarantined(self, card: Card) -> None:
        """Record that a card was quarantined."""

    def stopping(self) -> bool:
        """Return whether to stop handing out tasks."""


class Supervisor:
    """Runs tasks on cards. ``earlier`` has attempts at tasks (by index) from the run that this one continues."""

    def __init__(
        self,
        tasks: Sequence[Task],
        cards: Sequence[Card],
        listener: Listener,
        settings: Settings,
        earlier: Mapping[int, Sequence[Attempt]] | None = None,
    ) -> None:
        self._queue = deque(tasks)
        self._again: list[Task] = []
        self._attempts = {index: list(attempts) for index, attempts in (earlier or {}).items()}
        self._lanes = [CardQueue(card=card) for card in cards]
        self._listener = listener
        self._settings = settings
        self._doubts = 0
        self._decisions: list[tuple[Task, Decision]] = []
        self._open: list[Task] = []

    def run(self) -> tuple[list[Task], str]:
        """Run until every task is decided; return the remaining tasks, with the reason."""
        why, patience_s = "", 0.0
        try:
            while not why and (self._queue or self._again or any(lane.is_busy for lane in self._lanes)):
                for lane in self._lanes:
                    self._look_at(lane)  # a driver may hold on to a killed process
                    self._feed(lane)
                self._report_decisions()
                lanes = [(lane, lane.child) for lane in self._lanes if lane.child]
                latest = min([lane.deadline.at for lane, _ in lanes] + [self._settings.deadline])
                wait([child.reading for _, child in lanes], timeout=max(0.0, min(TICK_S, latest - time.monotonic())))
                for lane, child in lanes:
                    if lane.child is child:
                        self._attend(lane, child)
                why = self._reason_to_stop()
            patience_s = max(0.0, min(self._settings.end_limit_s, self._settings.deadline - time.monotonic()))
        finally:
            for lane in self._lanes:
                self._give_up(lane, 0.0 if lane.current else patience_s)
        self._report_decisions()
        for task in self._open:
            attempts = self._attempts[task.index]
            telling = [each for each in attempts if each.card not in self._faulty()] or attempts
            is_flaky = len({each.result for each in telling if each.counts}) > 1
            self._listener.decided(task, Decision.FLAKY if is_flaky else Decision.ACCEPT, telling)
        return [*self._queue, *self._again], why

    def _reason_to_stop(self) -> str:
        if any(self._attempts[task.index][-1].result != "passed" for task, _ in self._decisions):
            self._report_decisions()  # before anything else begins: a decision may stop the run
        if self._listener.stopping():
            return "stopped"
        if time.monotonic() > self._settings.deadline:
            return "the deadline of the run passed"
        if all(lane.card.quarantined for lane in self._lanes):
            return "; ".join(f"{lane.card.label} is quarantined: {lane.card.quarantined}" for lane in self._lanes)
        return ""

    # --- assigning tasks ---

    def _feed(self, lane: CardQueue) -> None:
        if lane.card.quarantined or time.monotonic() < lane.not_before:
            return
        if lane.current:
            # A child gets its next task in advance if both are of bundled suites: waiting takes a tenth of their time.
            # Any other may be the last one before the user's run stops.
            if not lane.following or lane.ahead or self._again or lane.current.alone:
                return
            following = lane.following[0]
            if lane.current.group and following.group and following.deterministic == lane.deterministic:
                self._reserve(lane, 2)
                lane.give(ahead=True)
            return
        lane.assigned = lane.assigned or self._pick(lane)
        if lane.assigned is None:
            return
        if lane.child and lane.is_unfit():
            self._drop(lane, self._settings.end_limit_s)
        if lane.child is None:
            how = {"alone": lane.assigned.alone, "deterministic": lane.assigned.deterministic}
            lane.began(self._listener.start(lane.card, **how), limit_s=self._settings.start_limit_s, **how)
        elif lane.ready:
            # Fixtures of wide scope are kept for the next case, so the child must know that case.
            self._reserve(lane, 0 if lane.assigned.alone else 1)
            lane.give()
            self._feed(lane)  # the tasks that come next

    def _pick(self, lane: CardQueue) -> Task | None:
        has_other = any(other is not lane and not other.card.quarantined for other in self._lanes)
        last = lane.last.index if lane.last else -1
        repeated = [each for each in self._again if each.index == last and not each.alone and not has_other]
        if not repeated and lane.following:
            return lane.following.popleft()
        is_prompt = lane.child is None or not self._queue
        may_run = (each for each in self._again if is_prompt or not each.alone)
        repeated += [each for each in may_run if each.avoid != lane.card.label or not has_other]
        if repeated:
            self._again.remove(repeated[0])
            return repeated[0]
        return self._next(lane)

    def _next(self, lane: CardQueue) -> Task | None:
        """Take the next task, if any: of the lane's group, else the first of a group that no lane works on."""
        if not self._queue:
            return None
        at_work = {each.group for each in self._lanes} - {""}
        free = next((place for place, task in enumerate(self._queue) if task.group not in at_work), None)
        own = (place for place, task in enumerate(islice(self._queue, free)) if task.group == lane.group)
        place = next(own, free or 0)
        task = self._queue[place]
        del self._queue[place]
        return task

    def _reserve(self, lane: CardQueue, count: int) -> None:
        if len(lane.following) < count and (task := self._next(lane)):
            lane.following.append(task)

    def _drop(self, lane: CardQueue, patience_s: float = 0.0) -> None:
        """End a child, and requeue the tasks that were to follow."""
        self._queue.extendleft(reversed(lane.following))
        lane.following.clear()
        lane.ahead = False
        lane.end(patience_s)

    def _give_up(self, lane: CardQueue, patience_s: float = 0.0) -> None:
        """End a child, and requeue all tasks of its lane, in their order."""
        self._drop(lane, patience_s)
        held = (each for each in (lane.assigned, lane.current) if each)
        self._queue.extendleft(replace(each, alone=False, avoid="") for each in held)
        lane.assigned = lane.current = None

    # --- receiving messages ---

    def _attend(self, lane: CardQueue, child: Child) -> None:
        code = child.code()  # before reading: the pipe holds all messages of a dead child
        try:
            for message in child.read():
                self._hear(lane, message)
        except ValueError as error:
            child.kill()
            self._failed(lane, End.CRASHED, f"the process sent what cannot be read: {error}", child.notes())
            return
        if lane.child is not child:
            return
        if code is not None:
            end, reason = how_it_ended(code)
            if lane.current is None and end is End.KILLED and lane.killed_starts < KILLED_STARTS_LIMIT:
                lane.killed_starts += not lane.ready
                self._drop(lane)
            else:
                self._failed(lane, end, reason, child.notes())
        elif lane.is_overdue() and is_stopped(child.pid):
            self._failed(lane, End.KILLED, "the process was stopped from outside, as SIGSTOP does", "")
        elif lane.is_overdue():
            below = native(child.pid)  # first: the signal for Python's stacks may interrupt the call that hangs
            stacks = f"{child.ask_for_stacks()}\n\n{below}".strip()
            self._failed(lane, End.HUNG, f"no end within {lane.deadline.limit_s:g} s", stacks)

    def _hear(self, lane: CardQueue, message: Mapping[str, Any]) -> None:
        if "ready" in message:
            failure = str(message["ready"])
            self._started(lane, failure)
            if not failure:
                lane.ready = True
                self._listener.heard(lane.card, message)
        elif "finished" in message and lane.current:
            health = str(message.get("health", ""))
            said = {"answer": str(message["answer"]), "payloads": tuple(message.get("reports", ()))}
            if health:
                reason, notes = f"the device is not well afterwards: {health}", lane.child.notes() if lane.child else ""
                self._conclude(lane, End.UNPROVEN, reason=reason, detail=notes, **said)
            else:
                self._conclude(lane, End.ANSWERED, **said)
        else:
            self._listener.heard(lane.card, message)

    def _started(self, lane: CardQueue, failure: str) -> None:
        lane.not_before = time.monotonic() + lane.card.started(failure)
        if failure:
            self._drop(lane)
            self._look_at(lane)

    def _failed(self, lane: CardQueue, end: End, reason: str, detail: str) -> None:
        """Handle the end of a child: the cause may be its case or its card."""
        if lane.current:
            self._conclude(lane, end, reason=reason, detail=detail)
        elif lane.ready:
            self._drop(lane)
        else:
            self._started(lane, f"{reason}, before the first case")

    # --- deciding ---

    def _conclude(self, lane: CardQueue, end: End, **said: Any) -> None:
        """Decide on the current task; ``said`` are answer, reports, reason and detail of the attempt."""
        task, lane.current = lane.current, None
        assert task is not None  # noqa: S101  (callers looked)
        attempt = Attempt(card=lane.card.label, end=end, alone=task.alone, **said)
        answer = attempt.answer
        if end is End.ANSWERED and answer == GOES_ON and lane.ahead:
            lane.begin(lane.following.popleft())
        lane.ahead = False
        if end is not End.ANSWERED:
            self._drop(lane)
        elif answer == "errored" and self._doubts < self._settings.doubts_limit:
            self._drop(lane, self._settings.end_limit_s)  # the error may have left this process in a bad state
        attempts = self._attempts.setdefault(task.index, [])
        attempts.append(attempt)
        self._suspect(task, attempts)
        decision = decide(attempts, faulty=self._faulty(), is_case=task.is_case)
        if decision in {Decision.AGAIN, Decision.ALONE} and answer in DOUBTFUL:
            self._doubts += 1
            decision = Decision.ACCEPT if self._doubts > self._settings.doubts_limit else decision
        if decision in {Decision.AGAIN, Decision.ALONE}:
            self._listener.attempted(task, attempt)
            self._again.append(replace(task, alone=decision is Decision.ALONE, avoid=attempt.card))
        elif decision is Decision.FLAKY and len(self._lanes) > 1:
            self._listener.attempted(task, attempt)
            self._open.append(task)  # if the card turns out faulty, its answers are invalid
        else:
            self._decisions.append((task, decision))

    def _suspect(self, task: Task, attempts: Sequence[Attempt]) -> None:
        """Count a case that passes here against every card on which it failed."""
        last = attempts[-1]
        failed = {each.card for each in attempts if each.result != "passed"} - {last.card}
        for lane in self._lanes if last.result == "passed" else ():
            if lane.card.label in failed:
                lane.card.suspect(task.index)
                self._look_at(lane)

    def _look_at(self, lane: CardQueue) -> None:
        if lane.card.quarantined and not lane.is_given_up:
            lane.is_given_up = True
            self._listener.quarantined(lane.card)
            self._give_up(lane)

    def _faulty(self) -> frozenset[str]:
        return frozenset(lane.card.label for lane in self._lanes if lane.card.quarantined)

    def _report_decisions(self) -> None:
        decisions, self._decisions = self._decisions, []
        for task, decision in decisions:
            self._listener.decided(task, decision, self._attempts[task.index])
