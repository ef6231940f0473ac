"""The cases of operators, random ones among them, in this process: without pytest, children and logs."""

from __future__ import annotations

import inspect
import random
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import click
import torch
import torch_npu  # noqa: F401

from pytest_ascend.coverage import expectations
from pytest_ascend.device.npu import Npu
from pytest_ascend.environment.stack import collect
from pytest_ascend.golden import GoldenStore
from pytest_ascend.operators.checks import check
from pytest_ascend.operators.target import Target
from pytest_ascend.precision.kernel_fallbacks import cann_formulas
from pytest_ascend.records.case import Case
from pytest_ascend.run.comparing import PrecisionCompare
from pytest_ascend.system.bundled import folder
from suites.ops import CASES
from suites.ops.table import target_of
from suites.random import CASES as RANDOM
from suites.random import test_random
from tests.meta.kernel_switch import SWITCH

STANDARD: tuple[Case, ...] = tuple(case for case in CASES if case.level in ("smoke", "standard"))

_STORE = GoldenStore(folder("baselines") / "golden")

torch.set_num_threads(1)  # tensors are small: threads would only wait for each other
Npu().pin_numerics()


def asked() -> list[Case]:
    """Return the cases of every level that are to pass here: those of which nothing else is expected."""
    stack = collect("npu", emulated=True, chip=Npu().chip())
    known = expectations.load([folder("baselines") / "expectations.json"], stack)
    return [case for case in (*CASES, *RANDOM) if known.find(case.id) is None]


def emulated(case: Case, level: str = "standard") -> Target:
    """Return what a case is about in a run of a level, on the emulated device."""
    return target_of(case, torch.device("npu", 0), _STORE, level=level)


def complaint(case: Case, target: Target | None = None, *, level: str = "standard") -> str:
    """Run a case on the emulated device as a level does; return what is said against it, "" where nothing is.

    That the emulated device lacks an operator, or a dtype of it, says nothing, and neither does that CANN refuses one.
    As in a run, CANN's own formulas, of GELU, explain what they explain.
    """
    said = _said(case, target, level)
    if said:
        with cann_formulas() as formulas:
            again = _said(case, target, level)
        said = again if formulas.used else said
    return said


def _said(case: Case, target: Target | None, level: str) -> str:
    try:
        if case.suite == "random":
            _draw(case)
        else:
            check(target or emulated(case, level), PrecisionCompare(note=_forget))
    except BaseException as error:  # pytest's own failures are none of Exception
        if isinstance(error, KeyboardInterrupt):
            raise
        if "not emulated" in str(error) or "not implemented for DT_" in str(error):
            return ""
        return f"{type(error).__name__}: {error}".partition("\n")[0] or type(error).__name__
    return ""


def _draw(case: Case) -> None:
    """Call the test of a random operator as pytest does."""
    test = getattr(test_random, f"test_{case.property}")
    fixtures = {
        "case": case,
        "npu_device": torch.device("npu", 0),
        "precision_compare": PrecisionCompare(note=_forget),
        "ascend_measure": lambda *_: None,
    }
    test(**{name: fixtures[name] for name in inspect.signature(test).parameters})


def _forget(_: Mapping[str, Any]) -> None:
    """Keep no verdict."""


class Suite:
    """The cases of the suite, and what is known of them: which kernels they call, and whether they pass as it is."""

    def __init__(self) -> None:
        self.cases = asked()
        self.of_subject: dict[str, list[Case]] = defaultdict(list)
        for case in self.cases:
            self.of_subject[case.subject].append(case)
        self.calls: dict[str, set[str]] = {}
        self._passes: dict[str, bool] = {}

    def watch(self, levels: Sequence[str], only: Sequence[str] = ()) -> None:
        """Run the cases of these levels as they are: who calls what. Of the others their operators are known by it.

        ``only``: those of these operators of torch's database.
        """
        names = {name.removeprefix("nn.functional.") for name in only}
        watched = [case for case in self.cases if case.level in levels and (not only or case.subject in names)]
        with click.progressbar(watched, label="cases") as cases:
            for case in cases:
                self._passes[case.id] = not self.complaint(case)

    def complaint(self, case: Case, level: str = "standard") -> str:
        """Run a case as a level does; return what is said against it, and remember what kernels it calls."""
        SWITCH.called.clear()
        said = complaint(case, level=level)
        self.calls.setdefault(case.id, set()).update(SWITCH.called)
        return said

    def passes(self, case: Case) -> bool:
        """Whether a case passes with every kernel right."""
        if case.id not in self._passes:
            kernel, SWITCH.kernel = SWITCH.kernel, ""
            self._passes[case.id] = not self.complaint(case)
            SWITCH.kernel = kernel
        return self._passes[case.id]

    def cases_of(self, kernel: str, names: Iterable[str], shown: str, chance: random.Random) -> list[Case]:
        """Return the cases that call a kernel, or may: those of the operator that shows a fault first.

        Only cases of level full may call what is not known of them.
        """
        subjects = {case.subject for case in self.cases if kernel in self.calls.get(case.id, ())}
        subjects.update(name for name in names if name in self.of_subject)
        found = [case for name in sorted(subjects) for case in self.of_subject[name]]
        # Generated calls change more often than what is known of them.
        found = [case for case in found if kernel in self.calls.get(case.id, {kernel}) or "sweep" in case.property]
        chance.shuffle(found)
        name, dtype = shown.split()[:2]

        def order(case: Case) -> tuple[object, ...]:
            return (
                case.subject not in {name, name.rpartition(".")[2]},
                case.dtype != dtype,
                "sweep" not in case.property,
                len(self.calls.get(case.id, ())),
            )

        return sorted(found, key=order)
