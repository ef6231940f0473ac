"""Types of the run log's fields, with the bounds that an untrusted log has to keep to."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from msgspec import Meta


def empty() -> dict[str, Any]:
    """Return an object without keys, for fields that are written even so: ``dict`` itself means that they are not."""
    return {}


def one_of(*names: str) -> Meta:
    """Return what restricts a text to some names."""
    return Meta(pattern=rf"\A(?:{'|'.join(names)})\Z")


#: A whole number. Nothing that is counted or measured needs more than 64 bits, and a float can hold any of them.
Whole: TypeAlias = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Count: TypeAlias = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Number: TypeAlias = Whole | float
#: A duration in seconds.
Seconds: TypeAlias = Annotated[float, Meta(ge=0, le=sys.float_info.max)]

if TYPE_CHECKING:  # readers of these handle whatever they find
    Metric: TypeAlias = float
    Plain: TypeAlias = Any
    Nested: TypeAlias = Any
else:
    #: A figure of a comparison, which may be unknown.
    Metric = Number | None
    #: Builtins that decide nothing, of bounded nesting.
    Plain = str | Whole | float | bool | None
    _Flat = Plain | Sequence[Plain] | Mapping[str, Plain]
    Nested = Plain | Sequence[_Flat] | Mapping[str, _Flat]


def now() -> str:
    """Return the time in UTC as logs have it, in whole seconds."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def moment(text: str) -> datetime:
    """Parse a time in ISO 8601. Raises ValueError without an offset, since it could not be compared."""
    try:
        found = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        raise ValueError(f"expected a time in ISO 8601 with its offset, got {text[:40]!r}")
    if not 2000 <= found.year < 3000:  # sums with days and offsets end at the year 9999
        raise ValueError(f"{text!r} is no time of a run")
    return found
