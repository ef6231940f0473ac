"""Types of the run log's fields, with bounds that an untrusted log must respect."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from msgspec import Meta


def empty() -> dict[str, Any]:
    """Return an empty object, for fields that are written even if empty: the factory ``dict`` would omit them."""
    return {}


def one_of(*names: str) -> Meta:
    """Return the constraint that restricts a string to some names."""
    return Meta(pattern=rf"\A(?:{'|'.join(names)})\Z")


#: A whole number. No count or measurement needs more than 64 bits, and a float can hold any of them.
Whole: TypeAlias = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Count: TypeAlias = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Number: TypeAlias = Whole | float
#: A duration in seconds.
Seconds: TypeAlias = Annotated[float, Meta(ge=0, le=sys.float_info.max)]

if TYPE_CHECKING:  # readers of these fields handle any value
    Metric: TypeAlias = float
    Plain: TypeAlias = Any
    Nested: TypeAlias = Any
else:
    #: A metric of a comparison, which may be unknown.
    Metric = Number | None
    #: Builtins that decide nothing, with bounded nesting.
    Plain = str | Whole | float | bool | None
    _Flat = Plain | Sequence[Plain] | Mapping[str, Plain]
    Nested = Plain | Sequence[_Flat] | Mapping[str, _Flat]


def now() -> str:
    """Return the time in UTC, in whole seconds, as logs have it."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def moment(text: str) -> datetime:
    """Parse a time in ISO 8601. Raises ValueError without an offset, since it would not be comparable."""
    try:
        found = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        raise ValueError(f"expected a time in ISO 8601 with its offset, got {text[:40]!r}")
    if not 2000 <= found.year < 3000:  # datetime arithmetic overflows beyond the year 9999
        raise ValueError(f"{text!r} is no time of a run")
    return found
