"""The form of the three kinds of line, checked before anything is believed: a run log is untrusted input.

Every function gives the checked object or raises ValueError with the path of the offending field.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from datetime import datetime
from typing import Any

from pytest_ascend.records.case import LEVELS, Case
from pytest_ascend.records.outcome import OUTCOMES
from pytest_ascend.records.record import SERIES_LIMIT, SERIES_POINTS_LIMIT, ResultRecord
from pytest_ascend.records.stack import Stack
from pytest_ascend.runlog.contents import (
    ATTEMPT,
    CANARIES,
    CARDS,
    EVENTS,
    FULL,
    LEFT_BEHIND,
    LOST,
    QUARANTINED,
    RESUMED,
    SUBSET,
    Footer,
    Header,
    Selection,
)

#: A check takes a value and its path, and raises ValueError.
Check = Callable[[Any, str], None]

#: Nothing that is counted or measured needs more, and everything later can take it for a float.
_LARGEST = 2**64


def _fail(path: str, expected: str, value: Any) -> ValueError:
    return ValueError(f"{path}: expected {expected}, got {repr(value)[:80]}")


def _text(value: Any, path: str) -> None:
    if not isinstance(value, str):
        raise _fail(path, "text", value)


def _flag(value: Any, path: str) -> None:
    if not isinstance(value, bool):
        raise _fail(path, "true or false", value)


def _number(value: Any, path: str) -> None:
    if type(value) is float:  # nearly all of them, and millions in a large log
        return
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _fail(path, "a number", value)
    if isinstance(value, int) and abs(value) > _LARGEST:
        raise ValueError(f"{path}: a whole number of more than {_LARGEST.bit_length()} bits")


def _count(value: Any, path: str) -> None:
    _number(value, path)
    if not isinstance(value, int) or value < 0:
        raise _fail(path, "a whole number from 0", value)


def _whole(value: Any, path: str) -> None:
    _number(value, path)
    if not isinstance(value, int):
        raise _fail(path, "a whole number", value)


def _duration(value: Any, path: str) -> None:
    _number(value, path)
    if not 0 <= value < float("inf"):
        raise _fail(path, "a number of seconds from 0", value)


def _object(value: Any, path: str) -> None:
    if not isinstance(value, Mapping):
        raise _fail(path, "an object", value)


def _time(value: Any, path: str) -> None:
    _text(value, path)
    try:
        moment(value)
    except ValueError:
        raise _fail(path, "a time in ISO 8601 with its offset", value) from None


def _one_of(*names: str) -> Check:
    def check(value: Any, path: str) -> None:
        if value not in names:
            raise _fail(path, f"one of {', '.join(names)}", value)

    return check


def _list_of(each: Check) -> Check:
    def check(value: Any, path: str) -> None:
        if not isinstance(value, list | tuple):
            raise _fail(path, "a list", value)
        for index, item in enumerate(value):
            each(item, f"{path}[{index}]")

    return check


def _map_of(each: Check) -> Check:
    def check(value: Any, path: str) -> None:
        _object(value, path)
        try:
            for item in value.values():
                each(item, path)
        except ValueError:  # only what is wrong is worth the name of its place
            for key, item in value.items():
                each(item, f"{path}.{key}")

    return check


def _optional(inner: Check) -> Check:
    def check(value: Any, path: str) -> None:
        if value is not None:
            inner(value, path)

    return check


def _fields(table: Mapping[str, Check]) -> Check:
    def check(value: Any, path: str) -> None:
        _object(value, path)
        for name, inner in table.items():
            if name not in value:
                raise ValueError(f"{path}.{name}: missing")
            inner(value[name], f"{path}.{name}")

    return check


_CASE = _fields(
    {
        "id": _text,
        "suite": _text,
        "subject": _text,
        "property": _text,
        "dtype": _text,
        "family": _text,
        "level": _one_of(*LEVELS),
    }
)
_ELEMENT = _fields({"index": _list_of(_count), "actual": _text, "expected": _text})
_LEAF_FIELDS: dict[str, Check] = {
    "path": _text,
    "agrees": _flag,
    "standard": _text,
    "headline": _text,
    "message": _text,
    "metrics": _map_of(_optional(_number)),
    "worst": _optional(_ELEMENT),
    "limit": _optional(_fields({"name": _text, "value": _number})),
    "pattern": _text,
}
_LEAF = _fields(_LEAF_FIELDS)
_RECORD = _fields(
    {
        "case": _CASE,
        "node_id": _text,
        "outcome": _one_of(*OUTCOMES),
        "reason": _text,
        "detail": _text,
        "verdicts": _list_of(_LEAF),
        "measurements": _map_of(_number),
        "fallbacks": _list_of(_text),
        "duration_s": _duration,
    }
)
_HEADER = _fields(
    {
        "run_id": _text,
        "started": _time,
        "stack": _fields({"device": _text, "emulated": _flag}),
        "level": _one_of(*LEVELS),
        "selection": _fields({"kind": _one_of(FULL, SUBSET), "reason": _text}),
        "manifest": _list_of(_CASE),
        "options": _object,
    }
)
_ATTEMPT = _fields({"card": _text, "end": _text, "outcome": _text, "reason": _text, "alone": _flag})
#: What each kind of event holds beside its kind.
_EVENTS: Mapping[str, Check] = {
    ATTEMPT: _fields({"case": _text, "card": _text, "end": _text, "outcome": _text, "reason": _text, "alone": _flag}),
    LOST: _fields({"cases": _list_of(_text), "reason": _text}),
    CANARIES: _fields({"planted": _count, "detected": _count, "honest": _count, "missed": _list_of(_text)}),
    QUARANTINED: _fields({"card": _text, "reason": _text}),
    LEFT_BEHIND: _fields({"case": _text, "card": _text, "bytes": _count}),
    RESUMED: _fields({"at": _time, "records": _count}),
    CARDS: _fields({"when": _text, "cards": _list_of(_fields({"index": _count, "npu": _whole, "chip": _whole}))}),
}
_FOOTER = _fields(
    {
        "finished": _time,
        "records": _count,
        "counts": _map_of(_count),
        "verdict": _fields({"kind": _text, "conforms": _flag, "sentence": _text}),
    }
)


def moment(text: str) -> datetime:
    """Read a time in ISO 8601. Raises ValueError where it lacks its offset, since it could not be compared."""
    found = datetime.fromisoformat(text.replace("Z", "+00:00"))
    if found.tzinfo is None:
        raise ValueError(f"{text!r} has no offset from UTC")
    if not 2000 <= found.year < 3000:  # sums with days and offsets end at the year 9999
        raise ValueError(f"{text!r} is no time of a run")
    return found


def case(data: Any, path: str) -> Case:
    """Check and read one case, whose id must be the one that its fields give."""
    _CASE(data, path)
    try:
        found = Case.from_dict(data)
    except TypeError as error:
        raise ValueError(f"{path}: {error}") from None
    if found.id != data["id"]:
        raise ValueError(f"{path}.id: expected {found.id!r} from the other fields, got {data['id']!r}")
    return found


def header(data: Any) -> Header:
    """Check and read the first line, whose manifest must not name a case twice."""
    _HEADER(data, "header")
    _stack(data["stack"])
    return Header(
        run_id=data["run_id"],
        started=data["started"],
        stack=Stack.from_dict(data["stack"]),
        level=data["level"],
        selection=Selection(data["selection"]["kind"], data["selection"]["reason"]),
        manifest=manifest(data["manifest"]),
        options=data["options"],
        doctor=_doctor(data.get("doctor", {})),
        census=_census(data.get("census", {})),
        used=_used(data.get("used", {})),
        shard=_shard(data.get("shard", {})),
    )


def _census(data: Any) -> Mapping[str, Mapping[str, int]]:
    _map_of(_map_of(_count))(data, "header.census")
    found: Mapping[str, Mapping[str, int]] = data
    return found


_SELECTION = _fields({"kind": _one_of(FULL, SUBSET), "reason": _text})
_SHARD = _fields({"index": _count, "count": _count, "cases": _count, "digest": _text, "selection": _SELECTION})


def _shard(data: Any) -> Mapping[str, Any]:
    _object(data, "header.shard")
    if data:
        _SHARD(data, "header.shard")
        if set(data["selection"]) != {"kind", "reason"} or not 1 <= data["index"] <= data["count"]:
            raise _fail("header.shard", "a part of a whole", data)
    found: Mapping[str, Any] = data
    return found


#: What the doctor says of one thing; ``evidence`` are sentences, each with its source.
_FINDINGS = _list_of(
    _fields({"severity": _text, "what": _text, "evidence": _list_of(_text), "why": _text, "remedy": _text})
)


def _doctor(data: Any) -> Mapping[str, Any]:
    _object(data, "header.doctor")
    _FINDINGS(data.get("findings", []), "header.doctor.findings")
    found: Mapping[str, Any] = data
    return found


def _used(data: Any) -> Mapping[str, str]:
    _map_of(_text)(data, "header.used")
    found: Mapping[str, str] = data
    return found


def _stack(data: Mapping[str, Any]) -> None:
    """Check the versions that this release knows; fields of later ones are left out when read."""
    for each in fields(Stack):
        if each.name != "emulated" and each.name in data:
            _text(data[each.name], f"header.stack.{each.name}")


def manifest(data: Any) -> tuple[Case, ...]:
    """Check and read the cases that must run, none of them twice."""
    found = {}
    for index, each in enumerate(data):
        one = case(each, f"header.manifest[{index}]")
        if one.id in found:
            raise ValueError(f"header.manifest: names the case {one.id!r} twice")
        found[one.id] = one
    return tuple(found.values())


def _series(value: Any, path: str) -> None:
    _map_of(_list_of(_number))(value, path)
    if len(value) > SERIES_LIMIT or any(len(points) > SERIES_POINTS_LIMIT for points in value.values()):
        raise ValueError(f"{path}: more than {SERIES_LIMIT} series, or {SERIES_POINTS_LIMIT} points in one")


def record(data: Any) -> ResultRecord:
    """Check and read one record."""
    _RECORD(data, "record")
    _series(data.get("series", {}), "record.series")
    _map_of(_text)(data.get("waiver", {}), "record.waiver")
    _text(data.get("snippet", ""), "record.snippet")
    case(data["case"], "record.case")
    _list_of(_ATTEMPT)(data.get("attempts", []), "record.attempts")
    for index, verdict in enumerate(data["verdicts"]):
        path = f"record.verdicts[{index}]"
        _list_of(_LEAF)(verdict.get("leaves", []), f"{path}.leaves")
        for each in (verdict, *verdict.get("leaves", [])):
            _text(each.get("waiver", ""), f"{path}.waiver")
            _list_of(_ELEMENT)(each.get("worst_elements", []), f"{path}.worst_elements")
            _list_of(_text)(each.get("where", []), f"{path}.where")
    return ResultRecord.from_dict(data)


def event(data: Any) -> dict[str, Any]:
    """Check and give one event."""
    _fields({"kind": _one_of(*EVENTS)})(data, "event")
    _EVENTS[data["kind"]](data, "event")
    return dict(data)


def footer(data: Any) -> Footer:
    """Check and read the last line."""
    _FOOTER(data, "footer")
    return Footer(finished=data["finished"], records=data["records"], counts=data["counts"], verdict=data["verdict"])
