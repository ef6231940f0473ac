"""JSON that holds every float and nothing ambiguous.

``json`` writes bare NaN and Infinity, which no other JSON reader accepts, and reads an object that says the same key
twice without a word. Here a non-finite float travels as ``{"$float": "nan"}``, and anything odd is refused.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, NoReturn

_KEY = "$float"
_BY_NAME = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}

#: Deepest nesting that is read. A record needs eight; deeper input can only be damage or an attack.
DEPTH_LIMIT = 32
#: Values in one line: the header of a log with 200,000 cases has 2 million. An empty list takes 60 bytes of memory.
VALUES_LIMIT = 2_500_000


def encode(value: Any) -> Any:
    """Return ``value`` with each non-finite float replaced by ``{"$float": name}``.

    Raises ValueError for a mapping that has the key "$float" itself, since it could not be told apart afterwards.
    """
    if isinstance(value, float):
        return value if math.isfinite(value) else {_KEY: str(float(value))}
    if isinstance(value, Mapping):
        if _KEY in value:
            raise ValueError(f"the key {_KEY!r} is reserved for non-finite numbers")
        return {key: encode(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [encode(each) for each in value]
    return value


def dumps(value: Any) -> str:
    """Write ``value`` as one line of ASCII. Raises TypeError or ValueError for anything but builtins."""
    return json.dumps(encode(value), allow_nan=False, separators=(",", ":"))


def loads(text: str, *, depth_limit: int = DEPTH_LIMIT) -> Any:
    """Read what :func:`dumps` wrote.

    Raises ValueError for anything else: bare NaN or Infinity, a key said twice, nesting deeper than ``depth_limit``.
    """
    if text.count(",") + text.count("[") + text.count("{") > VALUES_LIMIT:
        raise ValueError(f"more than {VALUES_LIMIT} values")
    try:
        value = json.loads(text, object_pairs_hook=_object, parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError(f"nested deeper than {depth_limit}") from None
    # Few brackets cannot nest deeply, which spares most lines the walk.
    if text.count("{") + text.count("[") > depth_limit and _is_deeper(value, depth_limit):
        raise ValueError(f"nested deeper than {depth_limit}")
    return value


def _object(pairs: list[tuple[str, Any]]) -> Any:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("an object says the same key twice")
    if _KEY not in found:
        return found
    if len(found) > 1 or found[_KEY] not in list(_BY_NAME):
        raise ValueError(f'"{_KEY}" must stand alone, with one of: {", ".join(_BY_NAME)}')
    return _BY_NAME[found[_KEY]]


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _is_deeper(value: Any, limit: int) -> bool:
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    if limit < 0:
        return True
    return any(_is_deeper(child, limit - 1) for child in children if isinstance(child, dict | list))


def for_script(value: Any) -> str:
    """Write ``value`` as JSON that may stand inside a script element: it cannot end it, begin a comment or a tag.

    Raises ValueError for non-finite floats, which JavaScript's reader would reject.
    """
    text = json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    return text.translate(_ESCAPED)


_ESCAPED = {ord(character): f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029\x7f"}
