"""JSON that represents every float, without ambiguity.

``json`` writes bare NaN and Infinity, which other JSON readers reject, and silently accepts an object with a duplicate
key. Here, a non-finite float is written as ``{"$float": "nan"}``, and anything ambiguous is rejected.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import re
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from pytest_ascend.system.files import VALUES_LIMIT, strict_json

T = TypeVar("T")

_KEY = "$float"
_BY_NAME = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def encode(value: Any) -> Any:
    """Return ``value`` with each non-finite float replaced by ``{"$float": name}``.

    Raises ValueError for a mapping that has the key "$float" itself, which would be ambiguous.
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
    """Return ``value`` as one line of ASCII. Raises TypeError or ValueError for anything but builtins."""
    return json.dumps(encode(value), allow_nan=False, separators=(",", ":"))


def loads(text: str) -> Any:
    """Parse the output of :func:`dumps`. Raises ValueError for anything else, as :func:`strict_json` does."""
    return strict_json(text, objects=_object)


#: The last key of each line in a chained log: the digest of the previous line.
_NAMED = re.compile(rb',\s*"previous":\s*"([0-9a-f]{64})"\s*}\s*$')


def digest_of(text: bytes) -> str:
    """Return the SHA-256 of a line without its end, by which the next line names it."""
    return hashlib.sha256(text).hexdigest()


def chained(text: bytes, previous: str) -> bytes:
    """Return a line of JSON with the digest of the previous line as its last key."""
    return b'%s,"previous":"%s"}' % (text[:-1], previous.encode())


def previous_of(text: bytes) -> str:
    """Return the digest of the previous line as named in a line, "" if it names none."""
    found = _NAMED.search(text[-200:])
    return found[1].decode() if found else ""


def line(value: msgspec.Struct) -> bytes:
    """Return a line of the log, without its end. Raises ValueError or TypeError if :func:`parsed` would reject it."""
    kind = type(value)
    with contextlib.suppress(ValueError):  # surrogates, and NaN, for which msgspec writes null
        text = msgspec.json.encode(value)
        if msgspec.json.decode(text, type=kind) == value:
            return _ascii(text)
    text = dumps(msgspec.to_builtins(value)).encode("ascii")
    parsed(text, kind, "line")
    return text


def parsed(text: bytes, kind: type[T], name: str) -> T:
    """Parse JSON as a ``kind``, whose types define the bounds; ``name`` is its name in messages.

    Raises ValueError as :func:`loads` does, and for a field of another type, by its path.
    """
    if len(text) > VALUES_LIMIT and text.count(b",") + text.count(b"[") + text.count(b"{") > VALUES_LIMIT:
        raise ValueError(f"more than {VALUES_LIMIT} values")
    with contextlib.suppress(msgspec.MsgspecError, UnicodeError, RecursionError):
        found = msgspec.json.decode(text, type=kind)
        # It must be exactly what this version would write: no duplicate or unknown key, no deep nesting.
        encoded, before = _ascii(msgspec.json.encode(found)), previous_of(text)
        if (chained(encoded, before) if before else encoded) == text:
            return found
    return converted(loads(text.decode()), kind, name)


def _ascii(text: bytes) -> bytes:
    """Return JSON with every other character escaped, as :func:`dumps` writes it."""
    if text.isascii():
        return text
    return re.sub(r"[^\x00-\x7f]+", lambda found: json.dumps(found[0])[1:-1], text.decode()).encode("ascii")


def converted(data: Any, kind: type[T], name: str) -> T:
    """Convert builtins to a ``kind``. Raises ValueError for a field of another type, by its path after ``name``."""
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        raise ValueError(_explained(str(error), name)) from None


#: msgspec's names of types -> plain names.
_WORDS = {
    "`bool | int | float | str | null`": "text, a number, true, false or null",
    "`int | float | null`": "a number or null",
    "`int | float`": "a number",
    "`float`": "a number",
    "`int`": "a whole number",
    "`bool`": "true or false",
    "`str`": "text",
    "`array`": "a list",
    "`object`": "an object",
    "`null`": "null",
}


def _explained(message: str, name: str) -> str:
    """Return msgspec's message in the terms of the log: "record.reason: expected text, got null"."""
    problem, _, place = message.partition(" - at `$")
    place = place.rstrip("`")
    if missing := re.fullmatch(r"Object missing required field `(\w+)`", problem):
        return f"{name}{place}.{missing[1]}: missing"
    if choices := re.fullmatch(r"Expected `str` matching regex '\\\\A\(\?:(.+)\)\\\\Z'", problem):
        return f"{name}{place}: expected one of {choices[1].replace('|', ', ')}"
    if problem.startswith("."):  # from a __post_init__, which names the field
        return f"{name}{place}{problem}"
    for theirs, ours in _WORDS.items():
        problem = problem.replace(theirs, ours)
    return f"{name}{place}: {problem[0].lower()}{problem[1:]}"


def _object(pairs: list[tuple[str, Any]]) -> Any:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("an object says the same key twice")
    if _KEY not in found:
        return found
    if len(found) > 1 or found[_KEY] not in list(_BY_NAME):
        raise ValueError(f'"{_KEY}" must stand alone, with one of: {", ".join(_BY_NAME)}')
    return _BY_NAME[found[_KEY]]


def for_script(value: Any) -> str:
    """Return ``value`` as JSON that is safe inside a script element: it cannot end it, or begin a comment or a tag.

    Raises ValueError for non-finite floats, which JavaScript's parser would reject.
    """
    text = json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029\x7f":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text
