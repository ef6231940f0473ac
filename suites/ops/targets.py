"""What a case of the suite is about: its operator with the golden, or the generated calls that it makes."""

from __future__ import annotations

from collections import Counter

import torch

from pytest_ascend.coverage.manifest import SWEEP_SEED
from pytest_ascend.golden import GoldenStore
from pytest_ascend.operators.exploring import FOUND, sweep_of
from pytest_ascend.operators.operator import Operator
from pytest_ascend.operators.replay import operator_of, recording
from pytest_ascend.operators.stored import StoredGolden
from pytest_ascend.operators.sweep_reference import CALLS, Sweep
from pytest_ascend.operators.target import Target
from pytest_ascend.operators.templates import kinds_of, templates_of
from pytest_ascend.records.case import Case

from . import CASES
from .table import FINDINGS, OPERATORS, RECORDED, is_recorded, swept

#: An operator with generated calls in so few dtypes has more calls at level standard, but for those of level smoke:
#: kernels are reached in every dtype, and that of a loss by a third of the calls that reach an addition's. So has one
#: of so many kinds of calls, each of which may have a kernel.
_FEW_DTYPES, _MANY_KINDS, _MORE_CALLS = 3, 12, 42
#: Level smoke makes the first of these only: who runs it after each change waits for it.
_CALLS_AT_SMOKE = 9
_DTYPES = Counter(case.subject for case in CASES if case.property == "sweep")
_AT_SMOKE = {(case.subject, case.dtype) for case in CASES if case.property == "sweep" and case.level == "smoke"}


def target_of(
    case: Case, device: torch.device, store: GoldenStore, seed: int | str = SWEEP_SEED, level: str = "standard"
) -> Target:
    """Return the operator of a case with its golden; generated calls follow from ``seed``, and how many from ``level``.

    Raises GoldenError.
    """
    if case.property == FOUND:
        operator = swept(case.subject, case.dtype, store)
        return Target(case, operator, sweep_of(operator, case.dtype, FINDINGS), device)
    if case.property in CALLS:
        operator = swept(case.subject, case.dtype, store)
        return Target(case, operator, Sweep.of(operator, case.dtype, calls_of(case, operator, level), seed), device)
    if is_recorded(case.subject, case.dtype):
        entry = RECORDED[case.subject]
        return Target(case, operator_of(entry), recording(store, entry.golden_id), device)
    operator = OPERATORS[case.subject]
    return Target(case, operator, StoredGolden(operator, store), device)


def calls_of(case: Case, operator: Operator, level: str = "standard") -> range:
    """Return which generated calls a case makes in a run of a level; those of standard are not made again at full."""
    usual = CALLS[case.property]
    if level == "smoke":
        return usual[:_CALLS_AT_SMOKE]
    is_wide = len(kinds_of(templates_of(operator, case.dtype))) >= _MANY_KINDS
    if (_DTYPES[case.subject] > _FEW_DTYPES and not is_wide) or (case.subject, case.dtype) in _AT_SMOKE:
        return usual
    return range(_MORE_CALLS) if case.property == "sweep" else range(_MORE_CALLS, usual.stop)
