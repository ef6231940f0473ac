"""One run of ``pytest --ascend``, from its plan to its report, independent of pytest."""

from __future__ import annotations

import os
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from msgspec import convert

from pytest_ascend.certificate import timestamp
from pytest_ascend.certificate.release import used
from pytest_ascend.coverage import expectations, manifest, shards
from pytest_ascend.coverage.expectations import Expectations
from pytest_ascend.coverage.selection import CollectedCases, concerns, plan
from pytest_ascend.doctor import Diagnosis, examine
from pytest_ascend.emulator.settings import EmulatorSettings
from pytest_ascend.environment import measured
from pytest_ascend.environment.machine import PATIENT_S, this_machine
from pytest_ascend.environment.stack import collect
from pytest_ascend.performance.settings import NAME, VARIABLES, Settings
from pytest_ascend.performance.timing import shares_the_host
from pytest_ascend.plugin.options import Options
from pytest_ascend.plugin.preparation import Prepared
from pytest_ascend.records.bounds import now
from pytest_ascend.records.case import OPTIONAL, Case, Stack
from pytest_ascend.records.outcome import Errored
from pytest_ascend.records.record import ResultRecord
from pytest_ascend.runlog import contents
from pytest_ascend.runlog.reading import LOG, recorded
from pytest_ascend.runlog.writing import RunLog, read
from pytest_ascend.system.bundled import folder
from pytest_ascend.system.errors import AscendError
from pytest_ascend.system.files import write_file
from pytest_ascend.system.programs import process_began
from pytest_ascend.verdict.phrase import say
from pytest_ascend.verdict.summary import Summary, exit_code, notice, summarise

PAGE = "conformance.html"
#: The suite that needs several devices.
DISTRIBUTED = "distributed"


@dataclass(frozen=True, kw_only=True, slots=True)
class RunSetup:
    """Settings fixed before collection. ``suites`` is the bundled folder, ``scope`` the selected part of it.

    ``paths`` and ``narrowed_by`` (options that exclude tests) are pytest's arguments, as given.
    """

    options: Options
    paths: tuple[str, ...] = ()
    narrowed_by: tuple[str, ...] = ()
    scope: str
    suites: Path
    prepared: Prepared
    expectations: Expectations = field(default_factory=Expectations)
    #: Indices of the devices of distributed cases, once they are locked.
    rank_devices: tuple[int, ...] = ()
    #: Start of the process, by ``time.monotonic``: its first imports count as part of the run's time.
    began: float = field(default_factory=process_began)

    def deadline(self, cases: int) -> float:
        """Return the deadline of the cases, by ``time.monotonic``; the remaining time is for finishing the run."""
        whole_s = self.options.deadline_s
        # To end the children and, per case, judge a record and write a row of the page (0.4 ms on an idle core).
        ending_s = min(2.0 + 0.001 * cases, whole_s / 2)
        return self.began + whole_s - ending_s if whole_s else float("inf")

    def concerns(self, case: Case) -> bool:
        """Return whether a case fits the level and device of this run; distributed ones need several devices."""
        if case.suite == DISTRIBUTED and not self.ranks:
            return False
        return concerns(case, self.options.level, self.prepared.device.kind)

    def whole(self, collected: CollectedCases) -> tuple[tuple[Case, ...], str]:
        """Plan the run, including all shards: the cases that must run, and why these are not all, or ""."""
        frozen, level, by = filter(self.concerns, manifest.load(self.suites)), self.options.level, self.narrowed_by
        return plan(collected, frozen, level=level, scope=self.scope, paths=self.paths, narrowed_by=by)

    def usual_cards(self, expected_s: float) -> int:
        """Return the default number of devices: one, or for a long emulated run as many as the processors allow."""
        is_long = expected_s > 4.0  # starting another process takes a second
        cards = min(len(os.sched_getaffinity(0)), len(self.prepared.indices))
        return cards if is_long and self.prepared.device.emulated else 1

    @property
    def ranks(self) -> int:
        """Return how many ranks distributed cases run on: one for each card of the run; 0 with one card.

        The user may ask for another number; an emulated device has its own number of ranks.
        """
        if self.rank_devices or self.options.ranks:
            return len(self.rank_devices) or self.options.ranks
        if self.prepared.device.emulated:  # two find almost everything, four what needs several neighbours
            return 4 if self.options.level == "full" else 2
        cards, count = self.options.cards, len(self.prepared.indices)
        count = count if isinstance(cards, str) else min(cards, count)
        return count if count > 1 else 0

    @property
    def expected_by(self) -> tuple[Path, ...]:
        """Return the files of known deviations: the bundled one, then the user's."""
        bundled = folder("baselines") / expectations.NAME
        return (bundled, *self.options.expectations) if bundled.exists() else self.options.expectations

    def stack(self) -> Stack:
        """Describe the combination under test."""
        device = self.prepared.device
        return collect(device.kind, emulated=device.emulated, chip=self.prepared.chip)

    def timing(self) -> Settings:
        """Return what affects timing: cards in use at once, torch's threads during timing, numerics, variables."""
        import torch

        prepared, threads = self.prepared, 1
        if not shares_the_host(prepared.device):
            threads = prepared.threads if prepared.isolated else torch.get_num_threads()
        cards, cpus = self.options.cards or 1, len(os.sched_getaffinity(0))
        found = {"cards": cards, "cpus": cpus, "torch_threads": threads, **prepared.numerics}
        if prepared.device.emulated:
            emulator = prepared.emulator or EmulatorSettings()
            found |= {"emulated_numerics": emulator.numerics, "emulated_memory_bytes": emulator.memory_bytes}
        return found | {name: os.environ[name] for name in VARIABLES if name in os.environ}


class RunRecorder:
    """Keeps the records of a run, in pytest's main process."""

    def __init__(self, setup: RunSetup) -> None:
        self.setup = setup
        self.stack = setup.stack()
        self.summary: Summary | None = None
        self.stopped = ""
        self.no_page = ""
        #: Lines that C++ wrote around pytest's capturing, with their counts.
        self.output: Counter[str] = Counter()
        #: Durations of cases, to order them; and those recorded on this stack, for deadlines.
        self.durations: Mapping[str, float] = {}
        self.recorded: Mapping[str, float] = {}
        self._collected = CollectedCases(cases={})
        self._against: Summary | None = None
        self._log: RunLog | None = None

    @cached_property
    def diagnosis(self) -> Diagnosis:
        """Return the doctor's findings on the machine before the run."""
        return examine(this_machine(limit_s=PATIENT_S))

    @property
    def page(self) -> Path:
        """Return the path of the report."""
        return self.setup.options.report / PAGE

    @property
    def cases(self) -> tuple[Case, ...]:
        """Return the cases that this run has to execute; none before it began."""
        return self._log.header.manifest if self._log else ()

    def begin(self, collected: CollectedCases) -> bool:
        """Write the plan, once, and return whether this call did.

        Raises RunLogError if another run is writing to the same folder.
        """
        if self._log is not None:
            return False
        self._collected = collected
        self.recorded = recorded(self.setup.options.report, self.stack)
        seen = {} if self.stack.emulated else measured.durations_s(self.stack.chip)
        self.durations = {**shards.load(self.setup.suites), **seen, **self.recorded}
        # Read now: the folder of the earlier run may be the one that this run writes to.
        self._against = summarise(read(against)) if (against := self.setup.options.against) else None
        begin = RunLog.resume if self.setup.options.resume else RunLog.create
        self._log = begin(self.setup.options.report / LOG, self._header(collected))
        self._stamp(self._log)
        return True

    def _stamp(self, log: RunLog, *, may_fail: bool = False) -> None:
        """Record that the timestamping authority, if the user named one, stamped the last line, or why it did not."""
        authority, answer, reason = self.setup.options.timestamp, "", ""
        if not authority:
            return
        try:
            answer = timestamp.take(authority, log.last_line)
        except AscendError as error:
            if not may_fail:
                raise
            reason = error.message
        log.note(contents.TimeStamped(authority=authority, digest=log.head, answer=answer, reason=reason))

    @property
    def events(self) -> tuple[contents.Event, ...]:
        """Return the events so far, including an earlier part of this run."""
        return self._log.contents().events if self._log else ()

    def note(self, event: contents.Event) -> None:
        """Record an event."""
        if self._log is not None:
            self._log.note(event)

    def lose(self, cases: Sequence[str], why: str) -> None:
        """Record which cases did not run: many per line, since each line waits for the disk; 4 MiB at most."""
        for first in range(0, len(cases), 10_000):
            self.note(contents.Lost(cases=tuple(cases[first : first + 10_000]), reason=why))

    def take(self, record: ResultRecord) -> None:
        """Write the record of one case. If a case runs again, the first record counts."""
        if self._log is not None and record.case.id in self._log.waiting:
            self._log.append(record)

    def take_crash(self, node_id: str, text: str) -> None:
        """Record that the process of a case crashed."""
        if case := self._collected.cases.get(node_id):
            outcome = Errored(reason="the process died while it ran this case", detail=text)
            self.take(ResultRecord.of(case, self._collected.places.get(node_id, node_id), outcome))

    def close(self, exit_status: int) -> int:
        """End the log, write the page, and return the exit code of the whole run.

        ``exit_status`` is pytest's own. An interrupted run gets no footer, and keeps pytest's exit code.
        """
        if self._log is None or self.summary is not None:
            return exit_status
        is_late = time.monotonic() > self.setup.deadline(len(self.cases))
        # An interruption, an internal error, a usage error and a test's pytest.exit() take precedence over a verdict.
        ended = exit_status in (0, 1, 5)
        if ended and is_late and self._log.waiting and not self.stopped:
            self.stopped = "the deadline of the run passed"
            self.lose(sorted(self._log.waiting), self.stopped)
        ended = ended and not self.stopped
        self.summary = summarise(self._log.contents(ended=ended))
        if ended:
            self._stamp(self._log, may_fail=True)  # keep a run of hours even if the authority does not answer
            self._log.finish(self.summary.footer(now()))
        self._log.close()
        try:
            from pytest_ascend.page import html

            write_file(self.page, html.render(summarise(read(self._log.path)), against=self._against))
        except Exception as error:  # noqa: BLE001 - the log is complete; a release may be replaced in a run of hours
            known = isinstance(error, (AscendError, OSError))
            why = str(error) if known else f"{type(error).__name__}: {error}"
            self.no_page = f"{why}\n  'pytest-ascend report render {self._log.path}' makes it from the log"
        if not ended and not self.stopped:
            return exit_status
        # A resumed run may have nothing left to collect, for which pytest's exit code is 5.
        return exit_code(self.summary) or (0 if exit_status == 5 else exit_status)

    def _header(self, collected: CollectedCases) -> contents.Header:
        setup, frozen = self.setup, manifest.load(self.setup.suites)
        (planned, narrowed), shard, of = setup.whole(collected), setup.options.shard, None
        mine, selection = planned, contents.Selection(contents.SUBSET if narrowed else contents.FULL, narrowed)
        if shard is not None:
            index, count, digest = shard.index, shard.count, contents.digest(case.id for case in mine)
            of = contents.Shard(index=index, count=count, cases=len(mine), digest=digest, selection=selection)
            ids = shards.part(mine, shards.load(setup.suites), shard)
            mine = tuple(case for case in mine if case.id in ids)
            reasons = filter(None, (f"shard {shard}", narrowed))
            selection = contents.Selection(contents.SUBSET, "; ".join(reasons))
        if not narrowed:
            setup.expectations.refuse_unmatched({case.id for case in (*frozen, *planned)})
        in_force = replace(setup.options, emulator=setup.prepared.emulator or setup.options.emulator)
        operators = {}
        if setup.prepared.device.kind == "npu":
            from pytest_ascend.migration import census

            operators = census.take().by_namespace()
        return contents.Header(
            run_id=uuid.uuid4().hex,
            started=now(),
            stack=self.stack,
            level=setup.options.level,
            selection=selection,
            manifest=mine,
            options={
                **in_force.to_dict(),
                "arguments": setup.options.arguments(is_emulated=setup.prepared.device.emulated),
                "numerics": dict(setup.prepared.numerics),
                "expectations": setup.expectations.summaries(),
                NAME: setup.timing(),
            },
            doctor=convert(self.diagnosis.to_dict(), contents.DoctorReport),
            census=operators,
            used=used(setup.suites, setup.options.baselines, setup.expected_by),
            shard=of,
        )


def header_lines(setup: RunSetup, stack: Stack, diagnosis: Diagnosis | None = None) -> Iterator[str]:
    """Yield the header lines for the terminal: what is tested."""
    prepared, options = setup.prepared, setup.options
    where = f"{prepared.device.label} ({prepared.chip})" if prepared.chip else prepared.device.label
    if prepared.emulator and prepared.emulator.numerics != "exact":
        where += f", numerics {prepared.emulator.numerics}"
    yield f"ascend: {where}, level {options.level}, report {options.report}"
    versions = {
        "chip": stack.chip,
        "driver": stack.driver,
        "CANN": stack.cann,
        "torch": stack.torch,
        "torch_npu": f"{stack.torch_npu} ({stack.torch_npu_commit[:9]})".removesuffix(" ()"),
        **{str(say(f"stack.{name}")): str(getattr(stack, name)) for name in OPTIONAL},
        "Python": stack.python,
    }
    yield f"ascend stack: {', '.join(f'{name} {version}' for name, version in versions.items() if version)}"
    if text := " ".join(part for part in (prepared.notice, str(notice(stack))) if part):
        yield f"ascend: {text}"
    is_real = prepared.device.kind == "npu" and not prepared.device.emulated
    if is_real and len(prepared.indices) > 1 and not options.cards:
        unused = "-n auto uses all that are free (pip install pytest-xdist)"
        yield f"ascend: one card of {len(prepared.indices)} is used: {unused}"
    if is_real and not setup.ranks:
        yield "ascend: without the distributed cases, which need several cards: --ascend-ranks=N, or -n"
    if faults := options.emulator.faults:
        yield f"ascend: FAULTS ARE PLANTED: {', '.join(faults)}"
    for finding in diagnosis.grave if diagnosis else ():
        yield f"ascend doctor: {finding.severity}: {finding.what} [{finding.id}]"
