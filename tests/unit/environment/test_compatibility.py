"""The compatibility data: what is in it, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_ascend.environment.compatibility import BUNDLED, load
from pytest_ascend.errors import UsageError


def data() -> Any:
    return json.loads(BUNDLED.read_text(encoding="utf-8"))


def test_a_pair_of_the_official_table() -> None:
    (statement, *_) = load().statements("2.9.0.post2")
    assert (statement.says, statement.cann) == ("paired", ("9.0.0",))
    assert "COMPATIBILITY" in statement.source


def test_a_number_is_looked_up_and_never_compared() -> None:
    # post15 was published after post14, and belongs to an older CANN.
    assert load().lines("2.1.0.post15") == ("7.0.0.1", "7.2.RC1.alpha002")
    assert load().lines("2.1.0.post14") == ("7.1.0.1", "7.2.RC1.alpha001")


def test_what_is_said_of_a_line_is_said_of_its_corrections() -> None:
    said = [each for each in load().statements("2.1.0.post15") if each.says == "compatible"]
    assert {each.subject for each in said} == {"line 7.0.0"}


def test_a_row_that_was_corrected_does_not_say_where_a_number_belongs() -> None:
    assert not [each for each in load().statements("2.9.0") if each.subject.startswith("line 26")]


def test_contradictions_are_kept_as_they_are() -> None:
    said = {each.says for each in load().statements("2.9.0") if "9.0.0" in each.cann or "9.0.x" in each.cann}
    assert said >= {"compatible", "incompatible"}


def test_releases_of_cann_are_in_their_order() -> None:
    names = [str(each) for each in load().cann_releases]
    assert names[-4:] == ["8.3.RC1", "8.5.0", "9.0.0", "9.1.0"]


def test_newer_data_takes_the_place_of_the_bundled(tmp_path: Path) -> None:
    newer = data()
    newer["combinations"].append(
        {"torch_npu": "2.30.0", "torch": "2.30.0", "cann": ["12.0.0"], "line": "", "says": "paired", "source": "table"}
    )
    path = tmp_path / "newer.json"
    path.write_text(json.dumps(newer), encoding="utf-8")
    assert load(path).knows("2.30.0")


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data.update(schema=2),
        lambda data: data.pop("hdk"),
        lambda data: data["combinations"][0].update(says="perhaps"),
        lambda data: data["combinations"][0].update(source="nowhere"),
        lambda data: data["combinations"][0].update(cann="9.1.0"),
        lambda data: data["combinations"][0].update(more=1),
        lambda data: data["lines"].append(3),
        lambda data: data.update(cann_releases=["x"]),
        lambda data: data["sources"].update(table="somewhere"),
        lambda data: data["hdk"][0].update(hdk=["the newest"]),
    ],
)
def test_data_of_another_form_is_refused(tmp_path: Path, change: Any) -> None:
    wrong = data()
    change(wrong)
    path = tmp_path / "wrong.json"
    path.write_text(json.dumps(wrong), encoding="utf-8")
    with pytest.raises(UsageError, match="cannot be used"):
        load(path)


@pytest.mark.parametrize("content", [b"", b"[]", b"\xff", b"[" * 100_000])
def test_what_is_no_data_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "data.json"
    path.write_bytes(content)
    with pytest.raises(UsageError, match="cannot be used"):
        load(path)
    with pytest.raises(UsageError, match="No such file"):
        load(tmp_path / "gone")
