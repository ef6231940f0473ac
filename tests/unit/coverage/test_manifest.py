"""The frozen manifest: complete, readable by people, and refused when it is damaged."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_ascend.coverage.manifest import NAME, collect, encode, load, write
from pytest_ascend.errors import UsageError
from pytest_ascend.records.case import Case
from pytest_ascend.system.bundled import folder

RELU = Case(suite="ops", subject="relu", property="forward", dtype="float32")
GELU = Case(suite="ops", subject="gelu", property="forward", dtype="float32")


def test_the_manifest_of_the_bundled_suites_is_up_to_date() -> None:
    suites = folder("suites")
    assert (suites / NAME).read_text(encoding="utf-8") == encode(collect(suites)), "run: pytest-ascend manifest"


def test_what_is_written_is_read(tmp_path: Path) -> None:
    write(tmp_path, [RELU, GELU])
    assert set(load(tmp_path)) == {RELU, GELU}


def test_the_order_of_the_catalogues_does_not_show(tmp_path: Path) -> None:
    assert encode([RELU, GELU]) == encode([GELU, RELU])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"schema": 2, "cases": []}',
        '{"schema": 1, "cases": [{"suite": "ops"}]}',
        '{"schema": 1, "cases": [{"suite": "ops", "subject": "a", "property": "b", "level": "never"}]}',
        '{"schema": 1}',
    ],
)
def test_a_damaged_manifest_is_refused_by_its_name(tmp_path: Path, text: str) -> None:
    (tmp_path / NAME).write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=NAME):
        load(tmp_path)


def test_a_missing_manifest_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        load(tmp_path)


def test_a_case_twice_is_refused(tmp_path: Path) -> None:
    (tmp_path / NAME).write_text(encode([RELU, RELU]), encoding="utf-8")
    with pytest.raises(UsageError, match="same id"):
        load(tmp_path)
