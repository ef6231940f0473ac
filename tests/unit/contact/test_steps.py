"""Lists of questions: a process that dies at one of them, hangs or runs out of time costs no other answer."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from pytest_ascend.contact import kit as kits
from pytest_ascend.contact import steps
from pytest_ascend.contact.kit import Answer, Kit
from pytest_ascend.contact.steps import Notebook
from pytest_ascend.system.programs import MARK

#: A step of ten questions, of which those that are named kill their process or hang.
STEP = f"""
import os, sys, time
from pathlib import Path
from pytest_ascend.contact.steps import Notebook
dies, hangs = sys.argv[1:3]
def ask(number):
    if str(number) in dies: os.abort()
    if str(number) in hangs: time.sleep(600)
    return number
questions = ((f"op{{number % 5}}/{{number}}", lambda number=number: ask(number)) for number in range(10))
Notebook(Path(sys.argv[-2])).work(questions, float(sys.argv[-1]))
print("\\n{MARK}" + "{{}}")
"""


@pytest.fixture
def _quick_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kits, "ENDING_S", 0.5)


def _asked(dies: str = "", hangs: str = "", limit_s: float = 60) -> Answer:
    made = Kit(environ={"PYTHONPATH": ":".join(sys.path)}, emulated=False, say=lambda line: None)
    return made.ask("numbers", [sys.executable, "-c", STEP, dies, hangs], limit_s)


def _told(answer: Answer) -> dict[int, object]:
    return {int(number): said for each in answer.data.values() for number, said in each.items()}


def test_all_answers_of_a_machine_that_is_well() -> None:
    answer = _asked()
    assert answer.status == "done"
    assert _told(answer) == {number: number for number in range(10)}
    assert answer.data["op3"] == {"3": 3, "8": 8}


def test_a_process_that_dies_costs_one_answer() -> None:
    answer = _asked(dies="3,7")
    assert answer.status == "done"
    assert {number for number, said in _told(answer).items() if said != number} == {3, 7}
    assert "ended with code -6" in str(_told(answer)[3])
    assert "op3/3" in answer.output
    assert "op2/7" in answer.output


def test_after_a_refusal_a_lost_device_ends_the_process_and_is_no_answer(tmp_path: Path) -> None:
    """What a process says after a fatal error of the device says nothing of the operator."""
    (tmp_path / "book").touch()
    said = {"abs": "npu", "add": {"by": "", "said": "RuntimeError: no kernel"}, "mul": {"by": "", "said": "X: fatal"}}
    wrong = iter(("", "it returned zeros"))
    questions = [(name, lambda name=name: said[name]) for name in said]
    with pytest.raises(SystemExit, match=r"lost after .*fatal.*it returned zeros"):
        Notebook(tmp_path / "book").work(iter(questions), float("inf"), lambda: next(wrong))
    book = Notebook(tmp_path / "book")
    assert (set(book.answers), book.asked) == ({"abs", "add"}, "mul")


@pytest.mark.usefixtures("_quick_ends")
def test_one_that_hangs_keeps_what_was_said_before() -> None:
    answer = _asked(hangs="4", limit_s=6)
    assert answer.status == "late"
    assert [number for number, said in _told(answer).items() if said == number] == [0, 1, 2, 3]
    assert "no answer within" in str(_told(answer)[4])


def test_a_list_that_is_too_long_ends_by_itself(tmp_path: Path) -> None:
    path, asked = tmp_path / "book", []
    path.write_text("", encoding="utf-8")
    clock = iter([1.0, 2.0, 3.0, 4.0])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(steps.time, "monotonic", lambda: next(clock))
        Notebook(path).work(((str(number), lambda number=number: asked.append(number)) for number in range(9)), 2.5)
    assert asked == [0, 1]


def test_where_every_question_kills_somebody_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kits, "MOST_DEATHS", 3)
    answer = _asked(dies="0123456789")
    assert answer.status == "failed"
    assert sorted(_told(answer)) == [0, 1, 2]


def test_a_step_that_cannot_begin_says_why() -> None:
    made = Kit(environ={}, emulated=False, say=lambda line: None)
    answer = made.ask("numbers", [sys.executable, "-c", "raise SystemExit('no torch here')"], 30)
    assert (answer.status, answer.data) == ("failed", None)
    assert "no torch here" in answer.output


def test_a_notebook_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "book"
    path.write_text("", encoding="utf-8")
    book = Notebook(path)
    book.work(iter([("a/b", lambda: {"x": [1, None]}), ("c", lambda: "\n\u2028")]), float("inf"))
    book.note("d")
    again = Notebook(path)
    assert again.nested() == {"a": {"b": {"x": [1, None]}}, "c": "\n\u2028"}
    assert again.asked == "d"
    assert all(json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line)
