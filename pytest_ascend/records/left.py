"""Cases that are not asked, as torch_npu leaves their operator to the CPU and one case of it shows that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pytest_ascend.records.case import Case


@dataclass(frozen=True, kw_only=True, slots=True)
class Left:
    """The cases that the case with the id ``asked`` stands for.

    torch_npu has no kernel for any of ``operators``, named with their overload ("aten::special_entr.out"); ``reason``
    is the sentence of the expectation that says so.
    """

    asked: str
    operators: tuple[str, ...]
    reason: str
    cases: tuple[Case, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return builtins only."""
        return {
            "asked": self.asked,
            "operators": list(self.operators),
            "reason": self.reason,
            "cases": [case.to_dict() for case in self.cases],
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Left:
        """Read what :meth:`to_dict` gave. Raises KeyError or TypeError on anything else."""
        return cls(
            asked=data["asked"],
            operators=tuple(data["operators"]),
            reason=data["reason"],
            cases=tuple(Case.from_dict(case) for case in data["cases"]),
        )
