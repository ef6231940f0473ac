"""One run of ``pytest --ascend`` from its plan to its page, free of pytest."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from pytest_ascend.environment import collect
from pytest_ascend.options import Chosen, Options
from pytest_ascend.records.outcome import Errored
from pytest_ascend.records.record import ResultRecord
from pytest_ascend.records.stack import Stack
from pytest_ascend.report.contents import FULL, SUBSET, Header, Selection
from pytest_ascend.report.runlog import RunLog, read
from pytest_ascend.report.summary import Summary, exit_code, notice, summarise
from pytest_ascend.run import manifest
from pytest_ascend.run.preparation import Prepared
from pytest_ascend.run.selection import Collected, plan

LOG = "run.jsonl"
PAGE = "conformance.html"

#: Exit codes of pytest that say more than a verdict could: interrupted, internal error, usage error.
PYTEST_ONLY = (2, 3, 4)


@dataclass(frozen=True, kw_only=True, slots=True)
class Setup:
    """What is settled before anything is collected. ``suites`` is the bundled folder, ``scope`` what is asked of it."""

    options: Options
    chosen: Chosen
    scope: str
    suites: Path
    prepared: Prepared

    def stack(self) -> Stack:
        """Describe the combination under test."""
        device = self.prepared.device
        return collect(device.kind, emulated=device.emulated, chip=self.prepared.chip)


class Ledger:
    """The account of a run, kept by the one process that pytest was started as."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.stack = setup.stack()
        self.summary: Summary | None = None
        self._collected = Collected(cases={})
        self._log: RunLog | None = None

    @property
    def page(self) -> Path:
        """Where the report is, or will be."""
        return self.setup.options.report / PAGE

    def begin(self, collected: Collected) -> None:
        """Write the plan down, once. Raises RunLogError where another run writes in the same folder."""
        if self._log is not None:
            return
        self._collected = collected
        self._log = RunLog.create(self.setup.options.report / LOG, self._header(collected))

    def take(self, record: Mapping[str, Any]) -> None:
        """Write what became of one case. Of a case that is tried again, the first try counts."""
        read = ResultRecord.from_dict(record)
        if self._log is not None and read.case.id in self._log.waiting():
            self._log.append(read)

    def take_crash(self, node_id: str, text: str) -> None:
        """Write that the process of a case died with it."""
        case = self._collected.cases.get(node_id)
        if case is not None:
            outcome = Errored(reason="the process died while it ran this case", detail=text)
            place = self._collected.places.get(node_id, node_id)
            self.take(ResultRecord(case=case, node_id=place, outcome=outcome).to_dict())

    def close(self, exit_status: int) -> int:
        """End the log, write the page, and give the exit code of the whole run.

        ``exit_status`` is pytest's own. A run that was interrupted gets no footer, and keeps pytest's exit code.
        """
        if self._log is None or self.summary is not None:
            return exit_status
        ended = exit_status not in PYTEST_ONLY
        self.summary = summarise(self._log.contents(ended=ended))
        if ended:
            self._log.finish(self.summary.footer(_now()))
        self._log.close()
        write_page(self._log.path, self.page)
        return (exit_code(self.summary) or exit_status) if ended else exit_status

    def _header(self, collected: Collected) -> Header:
        setup = self.setup
        planned = plan(
            collected,
            manifest.load(setup.suites),
            level=setup.options.level,
            scope=setup.scope,
            paths=setup.chosen.paths,
            narrowed_by=setup.chosen.narrowed_by,
        )
        return Header(
            run_id=uuid.uuid4().hex,
            started=_now(),
            stack=self.stack,
            level=setup.options.level,
            selection=Selection(SUBSET if planned.narrowed else FULL, planned.narrowed),
            manifest=planned.cases,
            options={**setup.options.to_dict(), "numerics": dict(setup.prepared.numerics)},
        )


def write_page(log: Path, page: Path) -> None:
    """Render the log, and nothing but the log."""
    from pytest_ascend.report import html

    html.write(page, html.render(summarise(read(log))))


def header_lines(setup: Setup, stack: Stack) -> Iterator[str]:
    """Say at the top of the terminal what is going to be tested."""
    prepared, options = setup.prepared, setup.options
    where = f"{prepared.device.label}{_in_brackets(prepared.chip)}"
    yield f"ascend: {where}, level {options.level}, report {options.report}"
    yield f"ascend stack: {', '.join(_versions(stack))}"
    if said := " ".join(part for part in (prepared.notice, notice(stack)) if part):
        yield f"ascend: {said}"
    if options.faults:
        yield f"ascend: FAULTS ARE PLANTED: {', '.join(options.faults)}"


def _versions(stack: Stack) -> Iterator[str]:
    named = {
        "chip": stack.chip,
        "driver": stack.driver,
        "CANN": stack.cann,
        "torch": stack.torch,
        "torch_npu": f"{stack.torch_npu}{_in_brackets(stack.torch_npu_commit[:9])}",
        "Python": stack.python,
    }
    return (f"{name} {version}" for name, version in named.items() if version)


def _in_brackets(text: str) -> str:
    return f" ({text})" if text else ""


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
