"""A run in which child processes use the device: the parent's side, which reports to pytest and the log."""

from __future__ import annotations

import builtins
import gc
import os
import warnings
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import pytest
from msgspec import convert, structs

from pytest_ascend.coverage.selection import place
from pytest_ascend.coverage.shards import USUAL_S
from pytest_ascend.environment.identity import observed
from pytest_ascend.environment.machine import PATIENT_S, this_machine
from pytest_ascend.environment.npu_smi import NpuSmi, parse
from pytest_ascend.isolation import Attempt, Card, Child, Decision, End, Settings, Supervisor, Task, start
from pytest_ascend.isolation.cards import Locks
from pytest_ascend.plugin.keys import CASE
from pytest_ascend.plugin.reports import OUTCOME_PROPERTY, RECORD_PROPERTY, record_of, restored
from pytest_ascend.plugin.session import DISTRIBUTED, RunRecorder, RunSetup
from pytest_ascend.plugin.worker import Work, uses_ranks
from pytest_ascend.records.case import EQUAL_BITS
from pytest_ascend.records.outcome import Errored, Flaky, Outcome
from pytest_ascend.records.record import AttemptRecord, ResultRecord
from pytest_ascend.run import benchmarked
from pytest_ascend.runlog import codec
from pytest_ascend.runlog.contents import Attempted, Cards, CardStatus, Event, LeftBehind, Quarantined, SelfTest
from pytest_ascend.system.errors import DeviceUnavailable

#: If set, emulated devices are locked too. Otherwise each belongs to one process and needs no lock.
LOCKS_VARIABLE = "PYTEST_ASCEND_CARD_LOCKS"

#: Number of lines of stacks on the terminal; the log and the page have all.
SHOWN_LINES = 30


class Host(Protocol):
    """What an isolated run needs from the plugin: settings, recorder, and how to run a test in a child."""

    setup: RunSetup
    recorder: RunRecorder | None
    bundled: frozenset[str]


def run(host: Host, session: pytest.Session) -> bool:
    """Run all collected tests in child processes, instead of pytest's own loop."""
    assert host.recorder is not None  # noqa: S101  (workers of xdist are never isolated)
    named = os.environ.get(LOCKS_VARIABLE)
    locks = Locks(Path(named) if named else None)
    try:
        ranks = host.setup.ranks if uses_ranks(session) else 0
        wanted = host.setup.options.cards or _usual_cards(host, session.items)
        cards, rank_devices = _cards(host.setup, locks, wanted, ranks)
        host.setup = replace(host.setup, rank_devices=rank_devices)
        used = tuple(dict.fromkeys((*(card.index for card in cards), *rank_devices)))
        _note_cards(host, used, "before")
        Parent(host, session, cards).run()
        gc.freeze()  # no test ran in this process: pytest need not look for leaks among torch's objects
        _note_cards(host, used, "after")
    finally:
        locks.release()
    if session.shouldfail:
        raise session.Failed(session.shouldfail)
    if session.shouldstop:
        raise session.Interrupted(session.shouldstop)
    return True


def _note_cards(host: Host, cards: Sequence[int], when: str) -> None:
    """Record which cards these are, and whether other processes use them."""
    prepared = host.setup.prepared
    if host.recorder is None or prepared.device.kind != "npu":
        return
    npu_smi = NpuSmi() if prepared.device.emulated else parse(this_machine(limit_s=PATIENT_S).npu_smi().text)
    identified = [prepared.identity(index) for index in cards]
    host.recorder.note(Cards(when=when, cards=convert(observed(identified, npu_smi), tuple[CardStatus, ...])))


def _usual_cards(host: Host, items: Sequence[pytest.Item]) -> int:
    """Return the default number of devices: one if a test is not bundled, whose fixtures may expect one process."""
    setup, durations = host.setup, host.recorder.durations if host.recorder else {}
    if not all(_is_bundled(host, item) for item in items):
        return 1
    expected_s = sum(durations.get(item.stash[CASE].id, USUAL_S) for item in items)
    return setup.usual_cards(max(expected_s, setup.options.explore_s))


def _is_bundled(host: Host, item: pytest.Item) -> bool:
    return CASE in item.stash and item.nodeid in host.bundled


def _cards(setup: RunSetup, locks: Locks, wanted: int | str, ranks: int = 0) -> tuple[list[Card], tuple[int, ...]]:
    """Lock the wanted number of cards, or as many as are free, and as many as there are ``ranks``.

    Return the cards of the run, and the indices of the devices of the ranks, its own first. Raises DeviceUnavailable if
    none is free, the one that was named is not, or the ranks need more than are free.
    """
    device, indices = setup.prepared.device, setup.prepared.indices
    named = wanted == 1 and ":" in setup.options.device
    everything = wanted == "auto"
    wanted = len(indices) if isinstance(wanted, str) else wanted
    needed = max(wanted, ranks) if ranks > 1 else wanted
    taken, is_shared = indices[:needed], not device.emulated or bool(os.environ.get(LOCKS_VARIABLE))
    if device.kind == "npu" and is_shared:
        given = indices[:1] if needed == 1 and named else indices
        places = locks.take([setup.prepared.identity(index).keys for index in given], needed)
        taken = tuple(given[place] for place in places)
        if not taken or (named and taken[0] != indices[0]):
            held = ", ".join(setup.prepared.identity(index).label for index in (indices[:1] if named else given))
            raise DeviceUnavailable(
                f"other runs on this machine hold {held}",
                hint=f"wait for them, or name another device; the locks are in {locks.folder}",
            )
    if ranks > 1 and everything and not setup.options.ranks and not device.emulated:
        ranks = max(2, len(taken))  # one for each card that is free
    if ranks > 1 and len(taken) < min(ranks, len(indices)):
        raise DeviceUnavailable(
            f"distributed cases need {ranks} cards, and {len(taken)} of {len(indices)} on this machine are free",
            hint="wait for other runs, give --ascend-ranks=N for fewer, or leave these cases out: -k 'not distributed'",
        )
    # More ranks than cards is what --ascend-ranks asked for: the devices that are missing say so.
    beyond = (each for each in range(ranks) if each not in taken and each not in indices)
    on = (*taken, *beyond)[:ranks] if ranks > 1 else ()
    return [Card(label=f"{device.kind}:{index}", index=index) for index in taken[:wanted]], on


class Parent:
    """Receives attempts, and turns decided cases into pytest reports and records."""

    def __init__(self, host: Host, session: pytest.Session, cards: Sequence[Card]) -> None:
        self._host = host
        self._session = session
        self._cards = cards
        self._recorder = host.recorder
        self._left: dict[int, int] = {}
        self._has_self_test = False

    def run(self) -> None:
        """Run everything, and report what could not be run."""
        recorder, deadline = self._host.recorder, self._host.setup.deadline(len(self._session.items))
        supervisor = Supervisor(
            self._tasks(), self._cards, self, Settings(deadline=deadline), earlier=self._earlier_attempts()
        )
        left, why = supervisor.run()
        if recorder and why and why != "stopped" and left:
            self._lose(left, why)
            recorder.stopped = why

    # --- called by the supervisor ---

    def start(self, card: Card, *, alone: bool, deterministic: bool) -> Child:
        """Fork a child, which has everything but the device."""
        work = Work(
            session=self._session,
            setup=self._host.setup,
            index=card.index,
            alone=alone,
            deterministic=deterministic,
            runs_self_test=not self._has_self_test,
            threads=max(1, self._host.setup.prepared.threads // len(self._cards)),
        )
        return start(work.live)

    def heard(self, card: Card, message: Mapping[str, Any]) -> None:
        """Receive a child's other messages."""
        if message.get("self_test") and not self._has_self_test:
            self._has_self_test = True
            self._note(codec.converted(message["self_test"], SelfTest, "self-test"))
        if "left_bytes" in message:
            item = self._session.items[message["index"]]
            if CASE in item.stash:
                self._note(LeftBehind(case=item.stash[CASE].id, card=card.label, bytes=message["left_bytes"]))
        for each in message.get("benchmarks", ()):
            benchmarked.put_back(self._session.config, self._session.items[message["index"]], each)
        if "said" in message and self._recorder:
            self._recorder.output[str(message["said"])] += int(message["lines"])
        if "warning" in message:
            config = self._session.config
            told, place_of = message["warning"], message["location"]
            known = getattr(builtins, told["category"], UserWarning)
            warning = warnings.WarningMessage(known(told["text"]), known, told["filename"], told["lineno"])
            config.hook.pytest_warning_recorded.call_historic(
                kwargs={
                    "warning_message": warning,
                    "when": message["when"],
                    "nodeid": message["nodeid"],
                    "location": tuple(place_of) if place_of else None,
                }
            )
        if "stop" in message:
            self._session.shouldstop = str(message["stop"])

    def attempted(self, task: Task, attempt: Attempt) -> None:
        """Record an attempt that another one follows, so that a resumed run counts it."""
        item = self._session.items[task.index]
        if CASE in item.stash:
            fields = structs.asdict(_recorded(attempt))
            self._note(Attempted(case=item.stash[CASE].id, detail=attempt.detail, **fields))

    def decided(self, task: Task, decision: Decision, attempts: Sequence[Attempt]) -> None:
        """Tell pytest, and through it the log."""
        item, last = self._session.items[task.index], attempts[-1]
        if decision is Decision.LOST:
            self._lose([task], f"{last.reason}, {len(attempts)} times")
            reports = [_report(item, f"not run: {last.reason}", "not-run", None)]
        elif last.end is not End.ANSWERED:
            reason = "; then: ".join(_told(each) for each in attempts)
            detail = "\n\n".join(f"{_told(each)}\n{each.detail}".strip() for each in attempts)
            case, record = item.stash.get(CASE, None), None
            if case is not None:
                node_id = place(item.path, item.nodeid, item.config.invocation_params.dir)
                outcome = Errored(reason=reason, detail=detail)
                record = ResultRecord.of(case, node_id, outcome, attempts=_listed(attempts))
            shown = "\n".join(detail.splitlines()[:SHOWN_LINES])
            reports = [_report(item, f"errored: {reason}\n{shown}", "errored" if case else "", record)]
        else:
            reports = [restored(item.config, each) for each in last.payloads]
            _amend(reports, decision, attempts)
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        for report in reports:
            item.ihook.pytest_runtest_logreport(report=report)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)

    def quarantined(self, card: Card) -> None:
        """Record that a card is quarantined."""
        self._note(Quarantined(card=card.label, reason=card.quarantined))

    def stopping(self) -> bool:
        """Whether pytest wants to stop: -x, --maxfail, pytest.exit()."""
        return bool(self._session.shouldstop or self._session.shouldfail)

    # --- the rest ---

    def _tasks(self) -> list[Task]:
        options, recorder = self._host.setup.options, self._recorder
        durations = recorder.durations if recorder else {}
        tasks = []
        for index, item in enumerate(self._session.items):
            case = item.stash.get(CASE, None)
            known = recorder.recorded.get(case.id) if case and recorder else None
            limit = options.case_deadline_s or limit_s(known) + options.explore_s
            first_s = 0.0 if options.case_deadline_s or case is None else FIRST_CALL_S
            subject = case.subject if case else ""
            tasks.append(
                Task(
                    index,
                    limit,
                    is_case=case is not None,
                    subject=subject,
                    first_s=first_s,
                    deterministic=case is not None and case.property in EQUAL_BITS,
                    group=self._group(item),
                )
            )
        ordered = self._longest_first(tasks, durations) if len(self._cards) > 1 else tasks
        # Tests that need another kind of process go last, so that few processes are started.
        return sorted(ordered, key=lambda task: task.deterministic)

    def _group(self, item: pytest.Item) -> str:
        """Return the group of a bundled test, whose tests share results: its operator or model, or the ranks."""
        if not _is_bundled(self._host, item):
            return ""
        case = item.stash[CASE]
        return case.suite if case.suite == DISTRIBUTED else f"{case.suite}/{case.subject}"

    def _longest_first(self, tasks: list[Task], durations: Mapping[str, float]) -> list[Task]:
        """Put long groups of the bundled suites first, so that no card waits for another at the end.

        A user's tests keep their order, which their fixtures may rely on.
        """
        lengths: defaultdict[str, float] = defaultdict(float)
        for task in tasks:
            if task.group:
                lengths[task.group] += durations.get(self._session.items[task.index].stash[CASE].id, USUAL_S)
        return sorted(tasks, key=lambda task: (-lengths[task.group], task.group))

    def _earlier_attempts(self) -> dict[int, list[Attempt]]:
        """Return the attempts of an earlier part of this run at cases that it did not decide."""
        found: dict[int, list[Attempt]] = {}
        indices = {item.stash[CASE].id: i for i, item in enumerate(self._session.items) if CASE in item.stash}
        for event in self._recorder.events if self._recorder else ():
            if isinstance(event, Attempted) and event.case in indices and event.end in set(End):
                attempt = Attempt(
                    card=event.card, end=End(event.end), answer=event.outcome, reason=event.reason, alone=event.alone
                )
                found.setdefault(indices[event.case], []).append(attempt)
        return found

    def _lose(self, tasks: Sequence[Task], why: str) -> None:
        """Record which cases did not run."""
        items = (self._session.items[task.index] for task in tasks)
        if self._recorder:
            self._recorder.lose([item.stash[CASE].id for item in items if CASE in item.stash], why)

    def _note(self, event: Event) -> None:
        if self._recorder:
            self._recorder.note(event)


def _told(attempt: Attempt) -> str:
    how = f" (on {attempt.card}, alone, with blocking launches)" if attempt.alone else f" (on {attempt.card})"
    return f"{attempt.reason or attempt.answer}{how}"


def _listed(attempts: Sequence[Attempt]) -> tuple[AttemptRecord, ...]:
    return tuple(map(_recorded, attempts)) if len(attempts) > 1 else ()


def _recorded(attempt: Attempt) -> AttemptRecord:
    """Return an attempt in the form of a record."""
    answer, reason = attempt.answer, attempt.reason
    return AttemptRecord(card=attempt.card, end=attempt.end.value, outcome=answer, reason=reason, alone=attempt.alone)


def _amend(reports: Sequence[pytest.TestReport], decision: Decision, attempts: Sequence[Attempt]) -> None:
    """Add earlier attempts to the record, and make a flaky case flaky for pytest too."""
    is_flaky = decision is Decision.FLAKY
    counted = (each for each in attempts if each.counts)
    answers = "; then: ".join(f"{each.result} ({each.reason})" if each.reason else each.result for each in counted)
    outcome: Outcome | None = Flaky(reason=f"changed its answer: {answers}") if is_flaky else None
    for report in reports:
        record = record_of(report)
        properties: dict[str, Any] = dict(report.user_properties)
        if record and len(attempts) > 1:
            kept = replace(outcome, detail=record.detail) if outcome else record.outcome
            properties[RECORD_PROPERTY] = record.but(kept, attempts=_listed(attempts))
        if outcome and OUTCOME_PROPERTY in properties:
            properties[OUTCOME_PROPERTY] = outcome.name
            report.outcome = "failed"
            report.longrepr = f"{outcome.name}: {outcome.reason}"
        report.user_properties = list(properties.items())


def _report(item: pytest.Item, text: str, outcome: str, record: ResultRecord | None) -> pytest.TestReport:
    """Make the report of a test whose process died before reporting."""
    properties: list[tuple[str, Any]] = [(OUTCOME_PROPERTY, outcome)] if outcome else []
    if record:
        properties.append((RECORD_PROPERTY, record))
    return pytest.TestReport(
        nodeid=item.nodeid,
        location=item.location,
        keywords=dict.fromkeys(item.keywords, 1),
        outcome="failed",
        longrepr=text,
        when="call",
        user_properties=properties,
    )


#: Limit for a case without a known duration: the first one on a fresh NPU may compile operators for minutes.
UNKNOWN_S = 900.0
#: Limit for a case that took t seconds: machines are shared, and kernels may be compiled again.
SPARE_S = 60.0
FACTOR = 20.0
#: Additional time for the first call of an operator in a process: it is loaded and, if called by its name, compiled,
#: which takes a minute or more.
FIRST_CALL_S = 240.0


def limit_s(recorded_s: float | None) -> float:
    """Return the time limit of a case in seconds, from an earlier run of this stack; None without one."""
    return UNKNOWN_S if recorded_s is None else SPARE_S + FACTOR * recorded_s
