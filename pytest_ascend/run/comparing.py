"""The fixture ``precision_compare``: judge, keep the verdict, raise where it disagrees."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from pytest_ascend import precision


class Disagreement(AssertionError):
    """The device computed something else than was expected. The message says where, how much, how much was allowed."""


@dataclass(frozen=True, slots=True)
class PrecisionCompare:
    """Compares within one test. ``note`` takes each verdict as builtins; ``standard`` is "" for the default rule.

    ``device`` is where :meth:`layers` runs a model.
    """

    note: Callable[[Mapping[str, Any]], None]
    standard: str = ""
    device: str = "cpu"

    def __call__(self, actual: Any, expected: Any, **settings: Any) -> precision.Verdict:
        """Judge ``actual`` of the device by ``expected``, and give the verdict; ``settings`` are those of
        :func:`pytest_ascend.precision.compare`.

        Raises Disagreement, an AssertionError, where they disagree, and UsageError on senseless arguments.
        """
        __tracebackhide__ = True
        if self.standard:
            settings.setdefault("standard", self.standard)
        verdict = precision.compare(actual, expected, **settings)
        self.note(verdict.to_dict())
        if not verdict.agrees:
            raise Disagreement("\n".join(precision.explain(verdict)))
        return verdict

    def layers(self, model: torch.nn.Module, *inputs: Any, **settings: Any) -> precision.LayerReport:
        """Judge every module of ``model`` on the device, forward and backward, and give the report with its table.

        ``settings`` are those of :func:`pytest_ascend.precision.layers`. Raises Disagreement that names the first
        wrong layer, and UsageError for what is no model.
        """
        __tracebackhide__ = True
        if self.standard:
            settings.setdefault("standard", self.standard)
        report = precision.layers(model, *inputs, device=self.device, **settings)
        for layer in report.layers:
            for verdict in filter(None, (layer.forward, layer.backward)):
                self.note(verdict.to_dict())
        if not report.agrees:
            raise Disagreement("\n".join(report.explain()))
        return report
