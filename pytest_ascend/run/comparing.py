"""The fixture ``precision_compare``: judge, record the verdict, raise if it disagrees."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import torch

from pytest_ascend import precision
from pytest_ascend.precision.canaries import Canaries
from pytest_ascend.precision.kernel_fallbacks import active
from pytest_ascend.precision.layers import layers
from pytest_ascend.precision.nested import tensors_in
from pytest_ascend.precision.whole import models, whole
from pytest_ascend.records.record import CallDigests
from pytest_ascend.run import exact
from pytest_ascend.system.errors import UsageError

_Result = TypeVar("_Result")
CPU = torch.device("cpu")


class Disagreement(AssertionError):
    """The result differs from the expected one. The message says where, by how much, and how much is allowed."""


@dataclass(frozen=True, slots=True)
class PrecisionCompare:
    """Compares within one test. ``note`` records each verdict; ``standard`` is "" for the default rule.

    ``device`` is where :meth:`layers` and :meth:`models` run a model. ``marked`` are settings of the test's marker;
    they override ``standard``, and those of a call override them. ``digests`` holds the digests of inputs and outputs
    by the name of a generated call.
    """

    note: Callable[[precision.Verdict], None]
    standard: str = ""
    device: str = "cpu"
    marked: Mapping[str, Any] = field(default_factory=dict)
    digests: dict[str, CallDigests] = field(default_factory=dict)
    #: Whether a failing test is repeated with CANN's formulas: until then, a disagreement's origin is not searched for.
    is_judged_again: Callable[[], bool] = field(default=lambda: False)
    #: Corrupted results that are judged like the device's, if the case plants any.
    canaries: Canaries | None = None

    def __repr__(self) -> str:
        """Return what pytest shows above the traceback of a failing test."""
        return f"<precision_compare on {self.device}>"

    def __call__(
        self, actual: Any, expected: Any, *, locate: Callable[[precision.Verdict], str] | None = None, **settings: Any
    ) -> precision.Verdict:
        """Judge the device's ``actual`` against ``expected``, and return the verdict; ``settings`` are those of
        :func:`pytest_ascend.precision.compare`. ``locate`` returns where a disagreement begins, for the message.

        Raises Disagreement, an AssertionError, if they disagree, and UsageError for invalid arguments.
        """
        __tracebackhide__ = True
        verdict = precision.compare(actual, expected, **self._effective(settings))
        if not verdict.agrees and locate is not None and (active() or not self.is_judged_again()):
            where = locate(verdict)
            rest = verdict.message.partition("\n")[2]
            headline = f"{where}; {verdict.headline}"
            verdict = replace(verdict, headline=headline, message=f"{verdict.path}: {headline}\n{rest}")
        self.note(verdict)
        if not verdict.agrees:
            raise Disagreement(verdict.message or "\n".join(precision.explain(verdict)))
        if self.canaries:
            source = getattr(next(iter(tensors_in(expected)), None), "source", None)
            self.canaries.plant(
                actual,
                lambda wrong: precision.compare(wrong, expected, **self._effective(settings)).agrees,
                (source.args, source.kwargs) if source else (),
            )
        return verdict

    def exact(
        self,
        function: Callable[..., Any],
        *shapes: Sequence[int],
        dtypes: Sequence[torch.dtype] = (torch.float32, torch.float16, torch.bfloat16),
        definition: Callable[..., Any] | None = None,
    ) -> None:
        """Judge a function that only adds, multiplies and moves, bit for bit: results and gradients.

        It is called on the device with tensors of these shapes in each dtype; ``definition``, by default the function
        itself, is called in float64 on the CPU. With whole numbers all sums are exact in float32, in any order, so only
        one result is correct. Raises Disagreement for any other, UsageError for a function that is not exact for them.
        """
        __tracebackhide__ = True
        if not shapes or not all(isinstance(each, (list, tuple)) for each in shapes):
            raise UsageError(
                "precision_compare.exact() needs the shape of each tensor",
                hint="exact(torch.mm, (5, 16384), (16384, 3))",
            )
        for dtype in dtypes:
            for name, actual, wanted in exact.calls(function, definition or function, shapes, dtype, self.device):
                self(actual, wanted, standard="binary", name=name)

    def module(self, model: torch.nn.Module, *inputs: Any, **settings: Any) -> precision.Verdict:
        """Judge outputs, gradients of inputs and gradients of parameters of ``model`` on the device, and return the
        verdict; ``settings`` are those of :func:`pytest_ascend.precision.whole`, and keyword arguments of the model.

        Raises Disagreement, which names the first wrong layer, and UsageError for anything but a module, and for a
        model that draws random numbers outside dropout modules, which are disabled and named.
        """
        __tracebackhide__ = True
        settings.setdefault("standard", self._effective({}).get("standard"))
        verdict = whole(model, *inputs, device=self.device, canaries=self.canaries, **settings)
        self.note(verdict)
        if not verdict.agrees:
            raise Disagreement(verdict.message)
        return verdict

    def layers(self, model: torch.nn.Module, *inputs: Any, **settings: Any) -> precision.LayerReport:
        """Judge every module of ``model`` on the device, forward and backward, and return the report with its table.

        ``settings`` are those of :func:`pytest_ascend.precision.layers`. Raises Disagreement that names the first wrong
        layer, and UsageError for anything but a model.
        """
        __tracebackhide__ = True
        settings.setdefault("standard", self._effective({}).get("standard"))
        return self._kept(layers(model, *inputs, device=self.device, canaries=self.canaries, **settings))

    def models(
        self, model: torch.nn.Module, original: torch.nn.Module, *inputs: Any, **settings: Any
    ) -> precision.LayerReport:
        """Compare a rewritten ``model`` on the device with its ``original``, by modules that ``names`` pairs.

        ``settings`` are those of :func:`pytest_ascend.precision.layers`. Raises Disagreement that names the first wrong
        layer, and UsageError for anything but a model.
        """
        __tracebackhide__ = True
        settings.setdefault("standard", self._effective({}).get("standard"))
        return self._kept(models(model, original, *inputs, device=self.device, canaries=self.canaries, **settings))

    def _kept(self, report: precision.LayerReport) -> precision.LayerReport:
        __tracebackhide__ = True
        for layer in report.layers:
            for verdict in filter(None, (layer.forward, layer.backward)):
                self.note(verdict)
        if not report.agrees:
            raise Disagreement("\n".join(report.explain()))
        return report

    def _effective(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings of a call, with those of the marker for the same standard."""
        if "standard" in settings:
            return dict(settings)
        return {**({"standard": self.standard} if self.standard else {}), **self.marked, **settings}


def agrees(judge: Callable[[PrecisionCompare], object], compare: PrecisionCompare) -> bool:
    """Return whether the results that ``judge`` compares agree; ``compare`` notes the verdicts if they do."""
    verdicts: list[precision.Verdict] = []
    try:
        judge(replace(compare, note=verdicts.append))
    except Disagreement:
        return False
    for each in verdicts:
        compare.note(each)
    return True


def in_time(
    call: Callable[[], _Result], usual_s: float, limit_s: float, name: str, device: torch.device = CPU
) -> _Result:
    """Return the result of a call that takes the CPU ``usual_s`` seconds and must leave nothing on the ``device``.

    Raises Disagreement if each attempt takes longer than ``limit_s``, or leaves less memory free.
    """
    took, left = list[float](), list[int]()
    # The first call may build the kernel, and other work on the machine may slow some down.
    while len(took) < 4 or (min(left) <= 0 and len(took) < 12 and sum(took) < 1):
        free, start = free_bytes(device), time.perf_counter()
        found = call()
        took.append(time.perf_counter() - start)
        left.append(free - free_bytes(device))
        if took[-1] <= limit_s and left[-1] <= 0:
            return found
    if min(left) > 0:
        raise Disagreement(f"{name} leaves {min(left):,} bytes behind on the device each time.")
    if min(took) <= limit_s:
        return found
    said = f"{name} takes {min(took) * 1e3:.3g} ms at best, the CPU {usual_s * 1e3:.2g} ms"
    raise Disagreement(f"{said}; {limit_s * 1e3:.3g} ms are allowed. Its results were not looked at.")


def refusal(call: Callable[[], object], device: torch.device) -> Exception | None:
    """Return what a call raises, at once or when its device is synchronised; None if nothing is raised."""
    try:
        call()
        if device.type != "cpu":
            getattr(torch, device.type).synchronize(device)
    except Exception as error:  # noqa: BLE001 - whatever is raised is the finding
        return error
    return None


def free_bytes(device: torch.device) -> int:
    """Return how much of the device's memory is free, for all processes; 0 if it is unknown."""
    return 0 if device.type == "cpu" else int(getattr(torch, device.type).mem_get_info(device)[0])


def marked_settings(arguments: Sequence[Any], named: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the settings of a marker ``ascend_standard(name, limits={...}, waiver="...")``; ``where`` names its test.

    Raises UsageError for a marker with other arguments, and for a standard that does not exist.
    """
    if not {"limits", "waiver"}.issuperset(named) or len(arguments) > 1 or not (arguments or named):
        written = ", ".join([*map(repr, arguments), *(f"{key}={value!r}" for key, value in named.items())])
        raise UsageError(
            f"{where}: the marker ascend_standard({written})",
            hint='write ascend_standard("NAME"), with limits={...} and waiver="why" where limits are to be changed',
        )
    if arguments:
        precision.standard_of(arguments[0])
    return {**({"standard": arguments[0]} if arguments else {}), **named}
