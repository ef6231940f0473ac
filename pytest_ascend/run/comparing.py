"""The fixture ``precision_compare``: judge, keep the verdict, raise where it disagrees."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pytest_ascend import precision


class Disagreement(AssertionError):
    """The device computed something else than was expected. The message says where, how much, how much was allowed."""


@dataclass(frozen=True, slots=True)
class PrecisionCompare:
    """Compares within one test. ``note`` takes each verdict as builtins; ``standard`` is "" for the default rule."""

    note: Callable[[Mapping[str, Any]], None]
    standard: str = ""

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
