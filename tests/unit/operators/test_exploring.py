"""Exploring: what is found is kept as a file, small, and asks the same call again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from pytest_ascend.errors import UsageError
from pytest_ascend.operators import exploring, sweep
from pytest_ascend.operators.exploring import Finding, add, cases, explore, kept, read, sweep_of, write
from pytest_ascend.operators.generator import AXES, templates_of
from pytest_ascend.operators.sweep import SweepReference
from pytest_ascend.operators.target import Target
from pytest_ascend.plugin import findings
from pytest_ascend.records.case import Case
from pytest_ascend.run.comparing import Disagreement, PrecisionCompare
from suites.ops.table import OPERATORS

NOWHERE = PrecisionCompare(lambda _: None)


def target(name: str, dtype: str, reference: SweepReference | None = None, *, wrong_above: int = 1 << 60) -> Target:
    """Return an operator on the CPU that loses its last element where a result is larger than that."""
    operator = OPERATORS[name]
    case = Case(suite="ops", subject=name, property="explore", dtype=dtype)
    made = Target(case, operator, reference or SweepReference.of(operator, dtype), torch.device("cpu"))
    correct = made.execute

    def spoilt(results: list[torch.Tensor]) -> list[torch.Tensor]:
        found = [each.clone(memory_format=torch.contiguous_format) for each in results]
        for each in found:
            if each.numel() > wrong_above:
                each.view(-1)[-1] = 0
        return found

    made.execute = lambda call: correct(call) if call.direction else spoilt(correct(call))
    return made


def explored(made: Target, **settings: Any) -> tuple[list[Finding], dict[str, float]]:
    findings: list[Finding] = []
    figures: dict[str, float] = {}
    given = {"seed": 1, "seconds": 0.0} | settings
    try:
        explore(made, NOWHERE, figures.__setitem__, keep=findings.append, **given)
    except Disagreement:
        assert findings
    return findings, figures


def test_what_is_right_is_found_right_and_counted() -> None:
    findings, figures = explored(target("add", "float32"))
    assert not findings
    assert 0 < figures["generated_calls"] <= 2 * exploring.CALLS
    assert figures["generated_size_edge"] > 0
    of_kind = {
        kind: sum(n for name, n in figures.items() if name.startswith(f"generated_{kind}_")) for kind in (*AXES, "way")
    }
    forward = figures["generated_way_forward"]
    assert of_kind == {**dict.fromkeys(AXES, forward), "way": figures["generated_calls"]}
    assert 1 < figures["generated_arguments"] <= len(templates_of(OPERATORS["add"], "float32"))


def test_a_finding_is_small_and_its_file_asks_the_same_call_again(tmp_path: Path) -> None:
    (found,), _ = explored(target("add", "float32", wrong_above=300), seconds=60)
    again = read(write(tmp_path, found))
    assert again == found
    assert found.resized, "it was made smaller"
    shapes = [each.shape for each in again.generated(OPERATORS["add"]).sample.values()]
    assert max(torch.Size(shape).numel() for shape in shapes) <= 2 * 301
    reference = sweep_of(OPERATORS["add"], "float32", [again])
    sweep.check(target("add", "float32", reference), NOWHERE)
    with pytest.raises(Disagreement):
        sweep.check(target("add", "float32", reference, wrong_above=300), NOWHERE)


def test_seeds_ask_other_calls_and_a_short_time_asks_fewer_operators() -> None:
    known = [Case(suite="ops", subject=name, property="sweep", dtype="float32") for name in OPERATORS]
    few, seconds = cases(known, 7, 20.0, 1, lambda _: True)
    assert len(few) == 20.0 / exploring.LEAST_S
    assert seconds == exploring.LEAST_S
    assert few == cases(reversed(known), 7, 20.0, 1, lambda _: True)[0] or len(set(few)) == len(few)
    assert few != cases(known, 8, 20.0, 1, lambda _: True)[0]
    every, seconds = cases(known, 7, 3600.0, 2, lambda _: True)
    assert len(every) == len(known)
    assert seconds == 7200 / len(known)


def test_kept_findings_are_kept_once(tmp_path: Path) -> None:
    path = tmp_path / exploring.KEPT
    one = Finding(operator="add", dtype="float32", seed=5, call=3, resized=((64, 32),))
    assert kept(path) == ()
    assert add(path, [one, one]) == (one,)
    assert add(path, [one]) == ()
    assert kept(path) == (one,)
    (case,) = exploring.cases_of(kept(path), {"add": "arithmetic"})
    assert case.id == "ops/add/found/float32"


BEYOND = json.dumps(
    {"operator": "add", "dtype": "int8", "seed": 1, "call": 1 << 40, "resized": [], "backward": False, "says": ""}
)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"operator": 1}', "[" * 5000, json.dumps({"operator": "a", "seed": -1}), BEYOND]
)
def test_what_is_no_finding_is_one_message(tmp_path: Path, text: str) -> None:
    path = tmp_path / "finding.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=r"finding\.json is not a finding"):
        read(path)


def test_a_finding_of_an_operator_that_the_release_lacks_is_refused_and_nothing_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, Finding(operator="nowhere", dtype="float32", seed=1, call=5))
    monkeypatch.setattr(exploring, "add", None)
    with pytest.raises(UsageError, match="no generated calls of nowhere"):
        findings.add.callback((path,))
