"""Which operators were recorded, and what is tested of each: read from a file that building the goldens writes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pytest_ascend.errors import UsageError
from pytest_ascend.golden.files import write_if_new
from pytest_ascend.operators.operator import BOOL, FLOATS, INTS
from pytest_ascend.system.bundled import folder

PATH = folder("suites") / "ops" / "recorded.json"
#: Dtypes, those first in which most is asked.
_ORDER = (*FLOATS, "float64", "complex64", *INTS, *BOOL)
#: What the ids of the goldens begin with.
PREFIX = "ops/opinfo/"

_ADDED = "several elements may come to one place, in any order: see torch.use_deterministic_algorithms"
_EQUAL = "gives any of several equal places: see torch.median and torch.kthvalue"
_UPDATES = "updates running statistics, which are among its inputs"
_LAPACK = "torch_npu has LAPACK compute it, whose last bits depend on where in memory its inputs lie"

#: Operators that need not give the same bits when they are called again, and why: PyTorch does not promise it.
NOT_REPEATED: Mapping[str, str] = {
    **dict.fromkeys(
        (
            *("index_add", "index_copy", "index_put", "index_reduce", "put", "scatter", "scatter_add"),
            *("scatter_reduce", "histc", "bincount", "_unsafe_masked_index_put_accumulate"),
        ),
        _ADDED,
    ),
    **dict.fromkeys(("kthvalue", "median", "nanmedian"), _EQUAL),
    **dict.fromkeys(
        (
            *("batch_norm", "instance_norm", "native_batch_norm", "_native_batch_norm_legit"),
            "_batch_norm_with_update",
        ),
        _UPDATES,
    ),
    "linalg.lstsq": _LAPACK,
}


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
