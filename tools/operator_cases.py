"""The cases of the operator suite in this process: what a run asks, without pytest, children and logs.

Imported after the emulated device is activated, and before anything else imports torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch_npu  # noqa: F401

from pytest_ascend.coverage import expectations
from pytest_ascend.device.npu import Npu
from pytest_ascend.environment.stack import collect
from pytest_ascend.golden import GoldenStore
from pytest_ascend.operators.checks import check
from pytest_ascend.operators.target import Target
from pytest_ascend.records.case import Case
from pytest_ascend.run.comparing import PrecisionCompare
from pytest_ascend.system.bundled import folder
from suites.ops import CASES
from suites.ops.table import target_of

STANDARD: tuple[Case, ...] = tuple(case for case in CASES if case.level in ("smoke", "standard"))

_STORE = GoldenStore(folder("baselines") / "golden")


torch.set_num_threads(1)  # tensors are small: threads would only wait for each other
Npu().pin_numerics()


def asked() -> list[Case]:
    """Return the cases of every level that are to pass here: those of which nothing else is expected."""
    stack = collect("npu", emulated=True, chip=Npu().chip())
    known = expectations.load([folder("baselines") / "expectations.json"], stack)
    return [case for case in CASES if known.find(case.id) is None]


def emulated(case: Case) -> Target:
    """Return what a case is about, on the emulated device."""
    return target_of(case, torch.device("npu", 0), _STORE)


def complaint(case: Case, target: Target | None = None) -> str:
    """Run a case on the emulated device; return what is said against it, "" where nothing is.

    That the emulated device lacks an operator, or a dtype of it, says nothing, and neither does that CANN refuses one.
    """
    try:
        check(target or emulated(case), PrecisionCompare(note=_forget))
    except BaseException as error:  # pytest's own failures are none of Exception
        if isinstance(error, KeyboardInterrupt):
            raise
        if "not emulated" in str(error) or "not implemented for DT_" in str(error):
            return ""
        return f"{type(error).__name__}: {error}".partition("\n")[0] or type(error).__name__
    return ""


def _forget(_: Mapping[str, Any]) -> None:
    """Keep no verdict."""
