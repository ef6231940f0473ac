"""The format of a file of known deviations, checked key by key; docs/expectations.md describes it for users."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date
from typing import Any

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from pytest_ascend.environment.chips import MOST_DIMENSIONS, family, limits
from pytest_ascend.records.outcome import Disputed, Errored, Failed, Fallback, Outcome, Unsupported
from pytest_ascend.system.text import one_line

#: 1: a list of ``expectations``, each with one pattern. 2: a list of ``causes``, each with all its patterns.
SCHEMAS = {1: "expectations", 2: "causes"}

#: Outcomes that can be expected. An error is identified by what it ``says``; a crash or a hang is never a known
#: deviation, because its consequences are unknown.
EXPECTED = (Failed.name, Unsupported.name, Fallback.name, Errored.name, Disputed.name)
#: Parts of a stack that an expectation can be limited to by a range of versions (PEP 440).
RANGES = ("torch_npu", "cann", "torch")
DEVICES = ("npu", "emulated", "cuda", "cpu")
_NEEDED = ("outcome", "reason", "source", "expires")
_TEXTS = ("cause", "why", "owner", "says")
_FLAGS = ("confirmed", "by_design", "optional")
_MESSAGE = "message"
#: Sources of derived entries, which decide what explains an outcome: torch's dispatcher for torch_npu's missing
#: kernels, CANN's dtype lists for operators, the judge for numbers correct on some chips, and the outcome's message.
SOURCES = ("dispatcher", "dtypes", "numbers", _MESSAGE)
_KEYS = {*_NEEDED, *_TEXTS, *_FLAGS, *RANGES, "cases", "chips", "devices", "derived"}
#: Keys of schema 1: one pattern of chips; true or false for emulated or real devices.
_OLD_KEYS = {*_NEEDED, "cases", "chip", "emulated", "owner", "says", *RANGES}


def checked(data: Any) -> list[dict[str, Any]]:
    """Return a file's entries as arguments of an expectation. Raises ValueError with the entry that is wrong."""
    schema = data.get("schema") if isinstance(data, dict) else None
    listed = SCHEMAS.get(schema, "") if isinstance(schema, int) else ""
    if not listed or not isinstance(data.get(listed), list):
        raise ValueError('expected {"schema": 2, "causes": [...]}')
    is_old = listed == SCHEMAS[1]
    return [_entry(each, f"entry {number}", is_old=is_old) for number, each in enumerate(data[listed], 1)]


def _entry(given: Any, place: str, *, is_old: bool) -> dict[str, Any]:
    if not isinstance(given, dict):
        raise ValueError(f"{place} is no object")
    for name in (*(("cases",) if is_old else ("cause",)), *_NEEDED):
        if not isinstance(given.get(name), str) or not given[name].strip():
            raise ValueError(f"{place} has no {name}")
    if unknown := given.keys() - (_OLD_KEYS if is_old else _KEYS):
        raise ValueError(f"{place} has an unknown key: {min(unknown)!r}")
    if is_old:  # converted to schema 2
        if given.get("emulated") not in (None, True, False):
            raise ValueError(f"{place}: emulated is {given['emulated']!r}, expected true or false")
        kinds = {None: [], True: ["emulated"], False: ["npu", "cuda", "cpu"]}[given.get("emulated")]
        chips = [str(given["chip"])] if "chip" in given else []
        kept = {name: value for name, value in given.items() if name not in ("cases", "chip", "emulated")}
        given = {**kept, "cause": given["reason"], "cases": [given["cases"]], "chips": chips, "devices": kinds}
    if given["outcome"] not in EXPECTED:
        raise ValueError(f"{place}: outcome is {given['outcome']!r}, expected one of {', '.join(EXPECTED)}")
    if given["outcome"] == Errored.name and not given.get("says"):
        raise ValueError(f"{place}: an error is expected by what it says, and there is no says")
    if given.get("derived") == _MESSAGE and not given.get("says"):
        raise ValueError(f"{place} is derived from a message, and there is no says")
    value = given.get("derived", "")
    if value not in ("", *SOURCES):
        raise ValueError(f"{place}: derived is {value!r}, expected one of {', '.join(SOURCES)}")
    devices = _texts(given.get("devices", []), f"{place}: devices")
    if unknown := set(devices) - set(DEVICES):
        raise ValueError(f"{place}: devices has {min(unknown)!r}, expected some of {', '.join(DEVICES)}")
    flags = {name: given[name] for name in _FLAGS if name in given}
    if wrong := [f"{name} is {value!r:.80}" for name, value in flags.items() if not isinstance(value, bool)]:
        raise ValueError(f"{place}: {wrong[0]}, expected true or false")
    return {
        **{name: str(given[name]) for name in (*_NEEDED, *_TEXTS) if name in given},
        **flags,
        "cases": _texts(given.get("cases"), f"{place}: cases"),
        "chips": _texts(given.get("chips", []), f"{place}: chips"),
        "devices": devices,
        "expires": _date(given["expires"], place),
        "versions": {name: _range(given[name], f"{place}: {name}") for name in RANGES if name in given},
        "derived": str(value),
    }


def _texts(value: Any, place: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(each, str) and each for each in value):
        raise ValueError(f"{place} is {value!r:.80}, expected a list of patterns")
    if place.endswith("cases") and not value:
        raise ValueError(f"{place} is empty")
    return tuple(value)


def _date(text: str, place: str) -> date:
    try:
        if len(text) != len("2027-06-30"):  # newer Pythons accept weeks and more
            raise ValueError
        return date.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{place}: expires is {text!r}, expected a date as 2027-06-30") from None


def _range(text: Any, place: str) -> SpecifierSet:
    try:
        return SpecifierSet(str(text))
    except InvalidSpecifier:
        raise ValueError(f"{place} is {text!r}, expected a range of versions as >=2.1,<2.14") from None


#: CANN's message for a refused dtype (the macro OP_CHECK_DTYPE_NOT_SUPPORT in its operator sources).
_REFUSED = re.compile(r"Tensor \w+ not implemented for DT_(\w+), should be in dtype support list")
#: The same for a tensor of too high a rank (OP_CHECK_MAX_DIM).
_RANKED = re.compile(r"The \w+ tensor cannot be larger than \d+ dimensions")
#: The same for a float32 product that the matrix unit does not support (the function CheckSocSupportDtype there).
_REFUSED_TO_MULTIPLY = "does not support bf16 / fp32 for calculations"
_OPERATOR = re.compile(r"\b(aclnn\w+)")


def _dtypes(found: Outcome, chip: str) -> str:
    """Name CANN's operator and the dtype that it refuses, if that is missing in CANN's own list for the chip."""
    text = f"{found.reason}\n{found.detail}"
    if not (kind := family(chip)):
        return ""
    if _REFUSED_TO_MULTIPLY in text and kind.halves:
        return "products that keep float32"
    refused = _REFUSED.search(text)
    known = {each: limits(each.removeprefix("aclnn"), kind.name) for each in _OPERATOR.findall(text)}
    if _RANKED.search(text):
        ranked = [each for each, its in known.items() if its.ranked]
        return f"{ranked[0]} of more than {MOST_DIMENSIONS} dimensions" if ranked else ""
    if not refused:
        return ""
    names = [each for each, its in known.items() if its.refuses(refused[1])]
    return f"{names[0]} of {refused[1].lower()}" if names else ""


def gap(source: str, found: Outcome, fallbacks: Sequence[str], chip: str, deviations: frozenset[str]) -> str:
    """Name the gap of the stack that explains a case's outcome by one of :data:`SOURCES`, "" for none.

    ``fallbacks`` are operators that the CPU computed, such as "aten::lcm"; ``chip`` is the device's, such as
    "Ascend310P3"; ``deviations`` are the documented deviations of chips that together explain every error, by the names
    in :mod:`pytest_ascend.records.verdict`; none if any error is left.
    """
    return {
        # The operators that the CPU computed: torch's dispatcher has no torch_npu kernel for them.
        "dispatcher": ", ".join(sorted(fallbacks)),
        "dtypes": _dtypes(found, chip),
        # The deviations that explain every error.
        "numbers": ", ".join(sorted(deviations)),
        # The outcome's message; the cause has the part that identifies it.
        _MESSAGE: one_line(found.reason),
    }[source]
