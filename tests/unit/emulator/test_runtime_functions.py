"""The page names every function of the runtime that torch_npu asks for and the emulated CANN does not have."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from pathlib import Path

from pytest_ascend.emulator import build

PAGE = Path(__file__).resolve().parents[3] / "docs" / "emulator.md"
#: Names of functions among the texts of a library: those that are looked up at run time.
LOOKED_UP = re.compile(rb"(?<=\0)acl(?:rt|mdl|prof|op)[A-Z]\w*(?=\0)")


def asked() -> set[str]:
    libraries = build.torch_npu_libraries()
    texts = {each.decode() for path in libraries for each in LOOKED_UP.findall(path.read_bytes())}
    return texts | build.needed_from_cann(libraries)[0]


def emulated() -> set[str]:
    return build._defined([*build.HERE.glob("runtime/*.c"), *build.HERE.glob("hccl/*.c")])


def listed() -> set[str]:
    section = PAGE.read_text(encoding="utf-8").partition("### Functions of the runtime")[2].partition("###")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    return {name for row in rows for name in re.findall(r"`([^`]+)`", row)}


def test_what_is_not_emulated_is_listed() -> None:
    missing, patterns = asked() - emulated(), listed()
    assert {each for each in missing if not any(fnmatchcase(each, pattern) for pattern in patterns)} == set()


def test_nothing_is_listed_that_nobody_asks_for_or_that_is_emulated() -> None:
    missing = asked() - emulated()
    assert {pattern for pattern in listed() if not any(fnmatchcase(each, pattern) for each in missing)} == set()
