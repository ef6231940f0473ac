"""The closed world: every catalogued case is in the manifest of every run, and a fault in any one of them is seen."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from pytest_ascend.coverage import manifest
from pytest_ascend.coverage.expectations import NAME, load
from pytest_ascend.coverage.selection import BUNDLED, CollectedCases, concerns, plan
from pytest_ascend.records.case import Case, Stack
from pytest_ascend.records.outcome import Errored, Fallback, Outcome, Unsupported
from pytest_ascend.records.record import ResultRecord
from pytest_ascend.records.verdict import Verdict
from pytest_ascend.run.case_context import CaseContext
from pytest_ascend.runlog.contents import Run
from pytest_ascend.system.bundled import folder
from pytest_ascend.verdict.summary import summarise
from tests.unit.runlog import synthetic

FROZEN = manifest.load(folder("suites"))
STACKS = [
    Stack(device="npu", emulated=True, chip="Ascend910B1", torch_npu="2.13.0", torch="2.13.0"),
    Stack(device="npu", emulated=False, chip="Ascend310P3", torch_npu="2.5.1", torch="2.5.1", cann="8.0.0"),
    Stack(device="npu", emulated=False, chip="", torch_npu="", torch=""),
]
#: Cases in which a fault is planted, and the seed that draws them.
DRAWN, SEED = 60, 1312


@pytest.mark.parametrize("level", ["smoke", "standard", "full"])
def test_a_run_on_an_npu_has_to_execute_every_case_whatever_was_collected(level: str) -> None:
    collected = CollectedCases(cases={"node": FROZEN[0]})
    due = [each for each in FROZEN if concerns(each, level, "npu")]
    cases, narrowed = plan(collected, due, level=level, scope=BUNDLED, paths=(), narrowed_by=())
    assert {case.id for case in cases} >= {case.id for case in FROZEN if case.is_in(level)}
    assert narrowed == ""


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_device_without_torch_npu_has_to_execute_all_but_what_needs_torch_npu(device: str) -> None:
    left_out = {case.suite for case in FROZEN if not concerns(case, "full", device)}
    assert left_out == {"fused", "graphs", "inference"}


def drawn() -> list[Case]:
    return Random(SEED).sample(FROZEN, DRAWN)  # noqa: S311  (which cases is no secret)


def judged(case: Case, stack: Stack, *, error_outcome: Outcome | None = None, **given: Any) -> Outcome:
    known = load([folder("baselines") / NAME], stack).known(case.id)
    return CaseContext(case=case, node_id="test", known=known, error_outcome=error_outcome, **given).outcome()


DISAGREES = Verdict(path="output", agrees=False, standard="", headline="1 of 2 elements differ", message="by 3")


@pytest.mark.parametrize("stack", STACKS, ids=lambda stack: stack.chip or "unknown")
def test_a_wrong_number_in_any_case_is_seen_unless_an_entry_names_the_case_and_expects_one(stack: Stack) -> None:
    table = load([folder("baselines") / NAME], stack)
    for case in drawn():
        outcome, entry = judged(case, stack, verdicts=[DISAGREES]), table.find(case.id)
        is_known = entry is not None and entry.outcome in ("failed", "disputed") and entry.says in DISAGREES.headline
        assert outcome.conforms == is_known, case.id


@pytest.mark.parametrize("stack", STACKS, ids=lambda stack: stack.chip or "unknown")
def test_a_crash_an_unknown_refusal_and_a_kernel_on_the_cpu_are_seen_in_any_case(stack: Stack) -> None:
    found = (Errored(reason="the process died"), Unsupported(reason="no"), Fallback(reason="on the CPU: aten::add"))
    table = load([folder("baselines") / NAME], stack)
    for case in drawn():
        entry = table.find(case.id)
        for each in found:
            is_known = entry is not None and entry.outcome == each.name and not entry.says
            assert judged(case, stack, error_outcome=each).conforms == is_known, (case.id, each)


def test_one_missing_or_one_deviating_record_of_any_case_costs_the_verdict() -> None:
    header = synthetic.header(FROZEN, stack=synthetic.HARDWARE)
    records = {case.id: synthetic.passed(case) for case in FROZEN}
    assert summarise(Run(header=header, records=tuple(records.values()))).verdict.conforms
    for case in drawn()[:3]:
        rest = {name: record for name, record in records.items() if name != case.id}
        absent = summarise(Run(header=header, records=tuple(rest.values())))
        assert (absent.verdict.kind, absent.missing) == ("incomplete", 1)
        failed = ResultRecord.of(case, "test", Unsupported(reason="no"))
        worse = summarise(Run(header=header, records=(*rest.values(), failed)))
        assert (worse.verdict.kind, worse.deviations) == ("does-not-conform", 1)
