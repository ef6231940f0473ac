"""Lists of tests that a real NPU does not pass, in the forms in which they are published.

torch's own (``.pytorch-disabled-tests.json``): {"test_exp_npu_int8 (__main__.TestUnary)": ["", [chips]]}, or with a
reason by kind (``disabled_tests_type.json``) instead: {"DTYPE": "..."}. By node id, as Ascend/pytorch keeps for an
Atlas A3: {"test/test_ops.py::TestCommon::test_exp_npu": {"reason": "..."}}, or a line of JSON each, {"nodeid": "..."}.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pytest_ascend.system.errors import UsageError, as_error, with_type
from pytest_ascend.system.files import VALUES_LIMIT, count_values, read_regular

#: The end of a device-generic test's name: "_npu", or "_npu_float32".
_DEVICE = re.compile(r"_(cpu|npu|privateuse1)(_(bool|u?int\d+|b?float\d+|complex\d+))*$")
_CLASS = re.compile(r"(Device)?(PRIVATEUSE1|NPU)$")
_CLASSIC = re.compile(r"(\S+) \((?:.*?\.)?(\w[^()]*)\)")
LIMIT_BYTES = 64 * 2**20


@dataclass(frozen=True, slots=True)
class Entry:
    """A test on a list. ``file`` is "" if the list names none; ``id`` is the list's text."""

    id: str
    test: str
    cls: str
    file: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Listed:
    """A list, by the names of tests."""

    entries: Mapping[str, list[Entry]] = field(default_factory=dict)

    def of(self, file: str, name: str) -> Entry | None:
        """Return the entry of a test, ``name`` being CLASS::TEST: itself, or without its device and dtype.

        A class stands for all classes whose names begin with it. torch_npu calls its device by two names, and PyTorch
        renamed classes of device-generic tests by putting "Device" before the name.
        """
        cls, _, test = name.partition("::")
        empty: list[Entry] = []
        for entry in self.entries.get(test, empty) + self.entries.get(_DEVICE.sub("", test), empty):
            if entry.file in {"", file} and _CLASS.sub("", cls).startswith(_CLASS.sub("", entry.cls)):
                return entry
        return None


def read(paths: Iterable[Path]) -> Listed:
    """Read lists; torch's format counts if it names chips such as a 910B. Raises UsageError for anything but a list."""
    found: dict[str, list[Entry]] = {}
    for path in paths:
        kinds = (OSError, ValueError, TypeError, AttributeError, LookupError, RecursionError)
        hint = "give a JSON file as Ascend/pytorch's CI has them"
        with as_error(f"{path} is no list of tests", hint, *kinds, why=with_type):
            text = read_regular(path, LIMIT_BYTES).decode()
            if count_values(text) > VALUES_LIMIT:
                raise ValueError(f"more than {VALUES_LIMIT} values")
            rows = [json.loads(each) for each in text.splitlines()] if path.suffix == ".jsonl" else json.loads(text)
            entries = list(_entries(rows))
        if not entries:
            raise UsageError(f"{path} names no test", hint='expected "file::Class::test" or "test (module.Class)"')
        for entry in entries:
            found.setdefault(entry.test, []).append(entry)
    return Listed(found)


def _entries(rows: Any) -> Iterator[Entry]:
    for key, value in rows.items() if isinstance(rows, dict) else ((each, None) for each in rows):
        name = key.get("nodeid", "") if isinstance(key, dict) else str(key)
        if match := _CLASSIC.fullmatch(name):
            chips = value[1] if isinstance(value, list) and len(value) > 1 else [""]
            reason = " ".join(map(str, value.values())) if isinstance(value, dict) else ""
            if not {"910A", "A1"} & set(chips):
                yield Entry(name, match[1], match[2].rpartition(".")[2], reason=reason)
        elif name.count("::") >= 2:
            file, cls, test = name.split("::", 2)
            yield Entry(name, test, cls, file, str(value.get("reason", "")) if isinstance(value, dict) else "")


def ids(path: Path) -> list[str]:
    """Return the ids of all tests of a run, from its tests.txt. Raises UsageError."""
    with as_error(f"{path} cannot be read", "give the tests.txt of upstream run", OSError, ValueError, why=str):
        found = read_regular(path, LIMIT_BYTES).decode().split()
        if strange := next((each for each in found if "::" not in each), ""):
            raise ValueError(f"{strange[:80]!r} is not the id of a test")
        return found


def half(of: str) -> str:
    """Return "even" or "odd", by the last hex digit of the SHA-256 of a test's id."""
    return "odd" if int(hashlib.sha256(of.encode()).hexdigest()[-1], 16) % 2 else "even"
