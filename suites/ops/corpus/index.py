"""Which operators the corpus has, and what is asked of each: read from a file that building the goldens writes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pytest_ascend.errors import UsageError
from pytest_ascend.golden.files import write_if_new

from ..operator import BOOL, FLOATS, INTS

PATH = Path(__file__).with_name("operators.json")
#: Dtypes, those first in which most is asked.
_ORDER = (*FLOATS, "float64", "complex64", *INTS, *BOOL)
#: What the ids of the goldens begin with.
PREFIX = "ops/opinfo/"


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """An operator of the corpus.

    ``function`` is where it is found ("torch.linalg.det"); ``in_place`` the same of its variant that changes its first
    argument, "" where there is none. ``properties`` has, for each dtype, what is asked. ``exactness`` as
    :class:`Operator` has it.
    """

    name: str
    function: str
    family: str
    exactness: str
    properties: Mapping[str, tuple[str, ...]]
    in_place: str = ""

    @property
    def golden_id(self) -> str:
        """The id of its golden."""
        return PREFIX + self.name

    @property
    def first_dtype(self) -> str:
        """The dtype in which what is asked once is asked."""
        return min(self.properties, key=_ORDER.index)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Entry:
        """Read what :meth:`to_dict` wrote. Raises KeyError or TypeError where a field is missing or unknown."""
        properties = {dtype: tuple(asked) for dtype, asked in data["properties"].items()}
        return cls(**{**data, "properties": properties})

    def to_dict(self) -> dict[str, Any]:
        """Return builtins only."""
        return asdict(self)


def load(path: Path = PATH) -> dict[str, Entry]:
    """Read all entries, by name. Raises UsageError where the file is missing or damaged."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        return {each["name"]: Entry.from_dict(each) for each in data}
    except (OSError, ValueError, KeyError, TypeError) as error:
        hint = "install pytest-ascend anew; in a checkout: pytest-ascend baseline build ops/opinfo"
        raise UsageError(f"the list of recorded operators cannot be read: {path}: {error}", hint=hint) from error


def save(entries: Iterable[Entry], path: Path = PATH) -> None:
    """Write the file anew: one operator a line, sorted, so that a change shows as what it is."""
    ordered = sorted(entries, key=lambda each: each.name)
    lines = ",\n".join(json.dumps(each.to_dict(), sort_keys=True) for each in ordered)
    write_if_new(path, f"[\n{lines}\n]\n".encode())
