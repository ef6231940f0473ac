"""The unit that a conformance suite counts: one subject, one property, one dtype."""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

#: From the quickest to the most thorough. A level includes the ones before it.
LEVELS = ("smoke", "standard", "full")


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """One thing that a device either does as PyTorch promises, or does not.

    ``suite`` is the bundled suite ("ops", "models", ...) or "user"; ``subject`` the operator or model; ``property``
    what is looked at ("forward", "backward", ...); ``dtype`` torch's name without the prefix, or "" where no dtype
    applies; ``family`` groups subjects on the page; ``level`` is the lowest level that runs the case.
    """

    suite: str
    subject: str
    property: str
    dtype: str = ""
    family: str = ""
    level: str = "smoke"

    @builtins.property  # a field has that name
    def id(self) -> str:
        """The name by which manifests, run logs and pages know the case: stable over versions and machines."""
        return "/".join(part for part in (self.suite, self.subject, self.property, self.dtype) if part)

    def is_in(self, level: str) -> bool:
        """Whether a run at ``level`` has to run this case."""
        return LEVELS.index(self.level) <= LEVELS.index(level)

    def to_dict(self) -> dict[str, str]:
        """Return builtins only, with the id, as they stand in a run log."""
        return {"id": self.id, **asdict(self)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Case:
        """Read what :meth:`to_dict` wrote. Raises KeyError or TypeError where a field is missing or unknown."""
        return cls(**{key: str(value) for key, value in data.items() if key != "id"})
