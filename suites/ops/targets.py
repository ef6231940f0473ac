"""What a case of the suite is about: its operator with the golden, or the generated calls that it makes."""

from __future__ import annotations

import torch

from pytest_ascend.golden import GoldenStore
from pytest_ascend.operators.exploring import FOUND, sweep_of
from pytest_ascend.operators.replay import operator_of, recording
from pytest_ascend.operators.stored import StoredGolden
from pytest_ascend.operators.sweep_reference import CALLS, Sweep
from pytest_ascend.operators.target import Target
from pytest_ascend.records.case import SWEEP_SEED, Case

from .exceptions import RARE, SHARED
from .table import FINDINGS, OPERATORS, RECORDED, is_recorded, swept

#: Where the calls of operators with rare kernels end, and those with shared ones, at level standard and at full.
_CALLS_OF_RARE, _CALLS_OF_SHARED = (60, 240), (12, 108)
#: The threes of calls that a case makes at level smoke, where who runs it after each change waits for it: other dtypes
#: have those of float32. Large tensors and many rows, the third and sixth, take two fifths of the time.
_AT_SMOKE = {"float16": (1, 4, 7), "bfloat16": (1, 4, 7), "int32": (0, 1), "int64": (0, 1), "float32": (0, 4, 6, 7)}


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
        return Target(case, operator, Sweep.of(operator, case.dtype, *calls_of(case, level), seed=seed), device)
    if is_recorded(case.subject, case.dtype):
        entry = RECORDED[case.subject]
        operator = operator_of(entry)
        return Target(case, operator, recording(store, entry.golden_id).of(operator), device)
    operator = OPERATORS[case.subject]
    return Target(case, operator, StoredGolden(operator, store), device)


def calls_of(case: Case, level: str = "standard") -> tuple[range, ...]:
    """Return which generated calls a case makes in a run of a level; those of standard are not made again at full."""
    if level == "smoke":
        return tuple(range(3 * three, 3 * three + 3) for three in _AT_SMOKE.get(case.dtype, _AT_SMOKE["float32"]))
    first, last = CALLS["sweep"].stop, CALLS["sweep-more"].stop
    if case.subject in RARE:
        first, last = _CALLS_OF_RARE
    elif case.subject in SHARED:
        first, last = _CALLS_OF_SHARED
    return (range(first) if case.property == "sweep" else range(first, last),)
