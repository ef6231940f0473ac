"""The parent of a run whose child processes use the device: it reports to pytest and the log."""

from __future__ import annotations

import builtins
import gc
import os
import warnings
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import convert, structs

from pytest_ascend.coverage.selection import place
from pytest_ascend.coverage.shards import USUAL_S
from pytest_ascend.environment.identity import Identity, observed
from pytest_ascend.environment.machine import PATIENT_S, this_machine
from pytest_ascend.environment.npu_smi import NpuSmi, parse
from pytest_ascend.isolation.cards import Card, Locks
from pytest_ascend.isolation.process import Child, Task, start
from pytest_ascend.isolation.supervisor import Settings, Supervisor
from pytest_ascend.plugin.keys import CASE
from pytest_ascend.plugin.reports import OUTCOME_PROPERTY, RECORD_PROPERTY, record_of, restored
from pytest_ascend.plugin.session import DISTRIBUTED, RunRecorder, RunSetup
from pytest_ascend.plugin.worker import Work, uses_ranks
from pytest_ascend.records.case import EQUAL_BITS
from pytest_ascend.records.outcome import Errored, Flaky, Outcome
from pytest_ascend.records.record import AttemptRecord, ResultRecord
from pytest_ascend.run import benchmarked
from pytest_ascend.runlog import codec
from pytest_ascend.runlog.contents import Attempted, Cards, CardStatus, LeftBehind, Quarantined, SelfTest
from pytest_ascend.system.attempts import Attempt, Decision, End
from pytest_ascend.system.errors import DeviceUnavailable
from pytest_ascend.verdict.evidence import finding

if TYPE_CHECKING:
    from pytest_ascend.plugin.hooks import RunState

#: If set, emulated devices are also locked. By default, each belongs to one process and needs no lock.
LOCKS_VARIABLE = "PYTEST_ASCEND_CARD_LOCKS"


def run(state: RunState, session: pytest.Session) -> bool:
    """Run all collected tests in child processes, instead of pytest's own loop."""
    assert state.recorder is not None  # noqa: S101  (workers of xdist are never isolated)
    named = os.environ.get(LOCKS_VARIABLE)
    locks, options = Locks(Path(named) if named else None), state.setup.options
    # Default to one device if any test is not bundled: its fixtures may expect one process.
    wanted: int | str = options.cards or 1
    if not options.cards and all(CASE in item.stash and item.nodeid in state.bundled for item in session.items):
        expected_s = sum(state.recorder.durations.get(item.stash[CASE].id, USUAL_S) for item in session.items)
        wanted = state.setup.usual_cards(max(expected_s, options.explore_s))
    with locks:
        cards, rank_devices = _cards(state.setup, locks, wanted, state.setup.ranks if uses_ranks(session) else 0)
        state.setup = replace(state.setup, rank_devices=rank_devices)
        indices = dict.fromkeys((*(card.index for card in cards), *rank_devices))
        used = [state.setup.prepared.identity(index) for index in indices]
        _note_cards(state.recorder, used, "before")
        parent = Parent(state, state.recorder, session, cards)
        settings = Settings(deadline=state.setup.deadline(len(session.items)))
        left, why = Supervisor(parent.tasks(), cards, parent, settings, earlier=parent.earlier_attempts()).run()
        if why and why != "stopped" and left:
            parent.lose(left, why)
            state.recorder.stopped = why
        gc.freeze()  # no test ran in this process: skip torch's objects when pytest looks for leaks
        _note_cards(state.recorder, used, "after")
    if session.shouldfail:
        raise session.Failed(session.shouldfail)
    if session.shouldstop and parent.exit_code is not None:
        pytest.exit(str(session.shouldstop), parent.exit_code)
    if session.shouldstop:
        raise session.Interrupted(session.shouldstop)
    return True


def _note_cards(recorder: RunRecorder, cards: Sequence[Identity], when: str) -> None:
    """Record which cards these are, and whether other processes use them."""
    device = recorder.setup.prepared.device
    if device.kind == "npu":
        npu_smi = NpuSmi() if device.emulated else parse(this_machine(limit_s=PATIENT_S).npu_smi().text)
        recorder.note(Cards(when=when, cards=convert(observed(cards, npu_smi), tuple[CardStatus, ...])))


def _cards(setup: RunSetup, locks: Locks, wanted: int | str, ranks: int = 0) -> tuple[list[Card], tuple[int, ...]]:
    """Lock the wanted number of cards, or as many as are free, and at least as many as there are ``ranks``.

    Return the cards of the run, and the device indices of the ranks, its own first. Raises DeviceUnavailable if none is
    free, if the named one is not, or if the ranks need more than are free.
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
        ranks = max(2, len(taken))  # one for each free card
    if ranks > 1 and len(taken) < min(ranks, len(indices)):
        raise DeviceUnavailable(
            f"distributed cases need {ranks} cards, and {len(taken)} of {len(indices)} on this machine are free",
            hint="wait for other runs, give --ascend-ranks=N for fewer, or leave these cases out: -k 'not distributed'",
        )
    # --ascend-ranks asked for more ranks than cards: the missing devices will report it.
    beyond = (each for each in range(ranks) if each not in taken and each not in indices)
    on = (*taken, *beyond)[:ranks] if ranks > 1 else ()
    return [Card(label=f"{device.kind}:{index}", index=index) for index in taken[:wanted]], on


class Parent:
    """Receives attempts, and turns decided cases into pytest reports and records."""

    def __init__(self, state: RunState, recorder: RunRecorder, session: pytest.Session, cards: Sequence[Card]) -> None:
        self._setup, self._bundled, self._recorder = state.setup, state.bundled, recorder
        self._session = session
        self._cards = cards
        self._has_self_test = False
        #: The code that a test passed to ``pytest.exit()``.
        self.exit_code: int | None = None

    # --- called by the supervisor ---

    def start(self, card: Card, *, alone: bool, deterministic: bool) -> Child:
        """Fork a child, in which everything but the device is ready."""
        threads, first = max(1, self._setup.prepared.threads // len(self._cards)), not self._has_self_test
        work = Work(
            self._session, card.index, alone=alone, deterministic=deterministic, self_test=first, threads=threads
        )
        return start(work.live)

    def heard(self, card: Card, message: Mapping[str, Any]) -> None:
        """Handle a child's other messages."""
        if message.get("self_test") and not self._has_self_test:
            self._has_self_test = True
            self._recorder.note(codec.converted(message["self_test"], SelfTest, "self-test"))
        if "left_bytes" in message:
            item = self._session.items[message["index"]]
            if CASE in item.stash:
                left = LeftBehind(case=item.stash[CASE].id, card=card.label, bytes=message["left_bytes"])
                self._recorder.note(left)
        for each in message.get("benchmarks", ()):
            benchmarked.put_back(self._session.config, self._session.items[message["index"]], each)
        if "said" in message:
            self._recorder.output[str(message["said"])] += int(message["lines"])
        if "warning" in message:
            told, location = message["warning"], message["location"]
            known = getattr(builtins, told["category"], UserWarning)
            warning = warnings.WarningMessage(known(told["text"]), known, told["filename"], told["lineno"])
            where = {"nodeid": message["nodeid"], "location": tuple(location) if location else None}
            recorded = self._session.config.hook.pytest_warning_recorded
            recorded.call_historic(kwargs={"warning_message": warning, "when": message["when"], **where})
        if "stop" in message:
            self._session.shouldstop, self.exit_code = str(message["stop"]), message["code"]

    def attempted(self, task: Task, attempt: Attempt) -> None:
        """Record an attempt that will be followed by another, so that a resumed run counts it."""
        item = self._session.items[task.index]
        if CASE in item.stash:
            fields = structs.asdict(_recorded(_with_finding(attempt)))
            self._recorder.note(Attempted(case=item.stash[CASE].id, detail=attempt.detail, **fields))

    def decided(self, task: Task, decision: Decision, attempts: Sequence[Attempt]) -> None:
        """Report the decision to pytest, and through it to the log."""
        item, last = self._session.items[task.index], attempts[-1]
        if decision is Decision.LOST:
            self.lose([task], f"{last.reason}, {len(attempts)} times")
            reports = [_report(item, f"not run: {last.reason}", "not-run", None)]
        elif last.end is not End.ANSWERED:
            reason = "; then: ".join(_with_reason(each) for each in attempts)
            detail = "\n\n".join(f"{_with_reason(each)}\n{each.detail}".strip() for each in attempts)
            case, record = item.stash.get(CASE, None), None
            if case is not None:
                node_id = place(item.path, item.nodeid, item.config.invocation_params.dir)
                outcome = Errored(reason=reason, detail=detail)
                listed = tuple(map(_recorded, attempts)) if len(attempts) > 1 else ()
                record = ResultRecord.of(case, node_id, outcome, attempts=listed)
            shown = "\n".join(detail.splitlines()[:30])  # on the terminal; the log and the page have all lines
            reports = [_report(item, f"errored: {reason}\n{shown}", "errored" if case else "", record)]
        else:
            told = list(map(_with_finding, attempts)) if len(attempts) > 1 else attempts
            reports = [restored(item.config, each) for each in last.payloads]
            _amend(reports, decision, told)
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        for report in reports:
            item.ihook.pytest_runtest_logreport(report=report)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)

    def quarantined(self, card: Card) -> None:
        """Record that a card is quarantined."""
        self._recorder.note(Quarantined(card=card.label, reason=card.quarantined))

    def stopping(self) -> bool:
        """Return whether pytest wants to stop: -x, --maxfail, pytest.exit()."""
        return bool(self._session.shouldstop or self._session.shouldfail)

    # --- the rest ---

    def tasks(self) -> list[Task]:
        """Return the collected tests as tasks, in the order in which they run."""
        options, recorder = self._setup.options, self._recorder
        tasks, lengths = [], defaultdict[str, float](float)
        for index, item in enumerate(self._session.items):
            # Machines are shared and kernels may be recompiled; the first one on a fresh NPU takes minutes.
            case, group, usual_s = item.stash.get(CASE, None), "", 900.0
            if case and case.id in recorder.recorded:
                usual_s = 60.0 + 20.0 * recorder.recorded[case.id]
            limit_s = options.case_deadline_s or usual_s + options.explore_s
            if case is None:
                tasks.append(Task(index, limit_s, is_case=False))
                continue
            # An operator's first call in a process loads it and, if called by name, compiles it, for minutes.
            first_s = 0.0 if options.case_deadline_s else 240.0
            if item.nodeid in self._bundled:
                # Tests of a group share results: those of an operator or model, or the ranks.
                group = case.suite if case.suite == DISTRIBUTED else f"{case.suite}/{case.subject}"
                lengths[group] += recorder.durations.get(case.id, USUAL_S)
            repeats = case.property in EQUAL_BITS
            tasks.append(
                Task(index, limit_s, subject=case.subject, first_s=first_s, deterministic=repeats, group=group)
            )
        if len(self._cards) > 1:
            # Long groups go first, so no card waits at the end. Users' tests keep their order: fixtures may rely on it.
            tasks.sort(key=lambda task: (-lengths[task.group], task.group))
        # Tests that need another kind of process go last, so that fewer processes are started.
        return sorted(tasks, key=lambda task: task.deterministic)

    def earlier_attempts(self) -> dict[int, list[Attempt]]:
        """Return an earlier part's attempts at cases that it did not decide."""
        found = defaultdict[int, list[Attempt]](list)
        indices = {item.stash[CASE].id: i for i, item in enumerate(self._session.items) if CASE in item.stash}
        for event in self._recorder.events:
            if isinstance(event, Attempted) and event.case in indices and event.end in set(End):
                attempt = Attempt(
                    card=event.card, end=End(event.end), answer=event.outcome, reason=event.reason, alone=event.alone
                )
                found[indices[event.case]].append(attempt)
        return found

    def lose(self, tasks: Sequence[Task], why: str) -> None:
        """Record tasks that did not run."""
        items = (self._session.items[task.index] for task in tasks)
        self._recorder.lose([item.stash[CASE].id for item in items if CASE in item.stash], why)


def _with_reason(attempt: Attempt) -> str:
    how = f" (on {attempt.card}, alone, with blocking launches)" if attempt.alone else f" (on {attempt.card})"
    return f"{attempt.reason or attempt.answer}{how}"


def _with_finding(attempt: Attempt) -> Attempt:
    """Return an attempt with its finding as the reason: a flaky case may not show the finding again."""
    found = (dict(each["user_properties"]).get(RECORD_PROPERTY) for each in attempt.payloads)
    records = (codec.converted(each, ResultRecord, "record") for each in found if each)
    return replace(attempt, reason=attempt.reason or next(map(finding, records), ""))


def _recorded(attempt: Attempt) -> AttemptRecord:
    answer, reason = attempt.answer, attempt.reason
    return AttemptRecord(card=attempt.card, end=attempt.end.value, outcome=answer, reason=reason, alone=attempt.alone)


def _amend(reports: Sequence[pytest.TestReport], decision: Decision, attempts: Sequence[Attempt]) -> None:
    """Add earlier attempts to the record, and mark a flaky case as flaky for pytest too."""
    is_flaky = decision is Decision.FLAKY
    counted = (each for each in attempts if each.counts)
    answers = "; then: ".join(f"{each.result} ({each.reason})" if each.reason else each.result for each in counted)
    outcome: Outcome | None = Flaky(reason=f"changed its answer: {answers}") if is_flaky else None
    for report in reports:
        record = record_of(report)
        properties: dict[str, Any] = dict(report.user_properties)
        if record and len(attempts) > 1:
            kept = replace(outcome, detail=record.detail) if outcome else record.outcome
            properties[RECORD_PROPERTY] = record.but(kept, attempts=tuple(map(_recorded, attempts)))
        if outcome and OUTCOME_PROPERTY in properties:
            properties[OUTCOME_PROPERTY] = outcome.name
            report.outcome = "failed"
            report.longrepr = f"{outcome.name}: {outcome.reason}"
        report.user_properties = list(properties.items())


def _report(item: pytest.Item, text: str, outcome: str, record: ResultRecord | None) -> pytest.TestReport:
    properties = {OUTCOME_PROPERTY: outcome, RECORD_PROPERTY: record}
    return pytest.TestReport(
        nodeid=item.nodeid,
        location=item.location,
        keywords=dict.fromkeys(item.keywords, 1),
        outcome="failed",
        longrepr=text,
        when="call",
        user_properties=[(name, value) for name, value in properties.items() if value],
    )
