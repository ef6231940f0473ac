"""The cases of the operator suite in this process: what a run asks, without pytest, children and logs.

Imported after the emulated device is activated, and before anything else imports torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch_npu  # noqa: F401

from pytest_ascend.bundled import folder
from pytest_ascend.golden import GoldenStore
from pytest_ascend.records.case import Case
from pytest_ascend.run.comparing import PrecisionCompare
from suites.ops import test_ops
from suites.ops.catalogue import CASES, is_recorded
from suites.ops.corpus.subject import RecordedSubject
from suites.ops.subject import Subject

STANDARD: tuple[Case, ...] = tuple(case for case in CASES if case.level in ("smoke", "standard"))

_STORE = GoldenStore(folder("baselines") / "golden")


def complaint(case: Case) -> str:
    """Run a case on the emulated device; give what is said against it, "" where nothing is."""
    kind = RecordedSubject if is_recorded(case.subject, case.dtype) else Subject
    test: Callable[..., None] = getattr(test_ops, f"test_{case.property.replace('-', '_')}")
    try:
        test(kind(case, torch.device("npu", 0), _STORE), PrecisionCompare(note=_forget))
    except BaseException as error:  # pytest's own failures are none of Exception
        if isinstance(error, KeyboardInterrupt):
            raise
        return f"{type(error).__name__}: {error}".partition("\n")[0] or type(error).__name__
    return ""


def _forget(_: Mapping[str, Any]) -> None:
    """Keep no verdict."""
