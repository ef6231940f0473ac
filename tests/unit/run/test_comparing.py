"""The fixture ``precision_compare``: what it keeps, what it raises, and whose settings count."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from pytest_ascend.errors import UsageError
from pytest_ascend.precision import Verdict
from pytest_ascend.run import comparing
from pytest_ascend.run.comparing import Disagreement, PrecisionCompare, in_time, marked_settings

X = torch.tensor([1.0, 2.0, 3.0])


class Model(torch.nn.Module):
    def __init__(self, sign: int = 1) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(3, 2)
        self.sign = sign
        with torch.no_grad():
            self.inner.weight.copy_(torch.arange(6.0).reshape(2, 3) / 4)
            self.inner.bias.copy_(torch.tensor([0.5, -3.0]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.sign * self.inner(x)
        return found


@pytest.fixture
def kept() -> list[Verdict]:
    return []


def test_a_verdict_is_kept_whether_or_not_it_agrees_and_one_that_does_not_is_raised(kept: list[Verdict]) -> None:
    compare = PrecisionCompare(note=kept.append)
    assert compare(X, X.double()) is kept[0]
    with pytest.raises(Disagreement, match=r"^output: 3 of 3 .*\n  worst element: \[2\]  actual -3  expected 3\n"):
        compare(-X, X.double())
    assert [each.agrees for each in kept] == [True, False]


def test_of_a_disagreement_alone_it_is_asked_where_it_began(kept: list[Verdict]) -> None:
    asked: list[Verdict] = []

    def locate(verdict: Verdict) -> str:
        asked.append(verdict)
        return "began in layer 3"

    compare = PrecisionCompare(note=kept.append)
    compare(X, X.double(), locate=locate)
    assert asked == []
    with pytest.raises(Disagreement) as raised:
        compare(-X, X.double(), locate=locate)
    (before,) = asked
    first, _, rest = str(raised.value).partition("\n")
    assert first == f"output: began in layer 3; {before.headline}"
    assert rest == before.message.partition("\n")[2] != ""
    assert kept[1].headline == f"began in layer 3; {before.headline}"
    assert kept[1].message == str(raised.value)


@pytest.mark.parametrize(
    ("standard", "marked", "said", "counts"),
    [
        ("", {}, {}, "error-model"),
        ("thousandth", {}, {}, "thousandth"),
        ("thousandth", {"standard": "binary"}, {}, "binary"),
        ("thousandth", {"standard": "binary"}, {"standard": "ulp"}, "ulp"),
        ("thousandth", {"standard": "binary"}, {"standard": None}, "error-model"),
    ],
)
def test_what_a_call_says_comes_before_the_marker_and_that_before_the_run(
    standard: str, marked: dict[str, Any], said: dict[str, Any], counts: str, kept: list[Verdict]
) -> None:
    compare = PrecisionCompare(note=kept.append, standard=standard, marked=marked)
    assert compare(X, X, **said).standard.partition("@")[0] == counts
    model = Model()
    compare.module(model, X, **said)
    compare.layers(model, X, **said)
    compare.models(model, Model(), X, **said)
    assert len(kept) == 7
    leaves = [leaf for each in kept for leaf in each.leaves or (each,)]
    assert {each.standard.partition("@")[0] for each in leaves} == {counts}


def test_limits_of_a_marker_do_not_go_with_another_standard(kept: list[Verdict]) -> None:
    marked = {"standard": "thousandth", "limits": {"share": 1.0}, "waiver": "why"}
    compare = PrecisionCompare(note=kept.append, marked=marked)
    assert compare._effective({"standard": "binary"}) == {"standard": "binary"}
    assert compare._effective({"name": "x"}) == {**marked, "name": "x"}
    assert compare._effective({"waiver": "mine"})["waiver"] == "mine"


def test_a_wrong_layer_is_raised_after_the_verdicts_of_all_are_kept(kept: list[Verdict]) -> None:
    with pytest.raises(Disagreement, match=r"^first wrong layer"):
        PrecisionCompare(note=kept.append).models(Model(-1), Model(), X)
    assert [each.agrees for each in kept] == [True, False]


def test_a_wrong_module_is_raised_after_its_verdict_is_kept(
    monkeypatch: pytest.MonkeyPatch, kept: list[Verdict]
) -> None:
    wrong = Verdict(path="Model", agrees=False, standard="", headline="differs", message="Model: differs in inner")
    monkeypatch.setattr("pytest_ascend.run.comparing.whole", lambda *_, **__: wrong)
    with pytest.raises(Disagreement, match=r"^Model: differs in inner$"):
        PrecisionCompare(note=kept.append).module(Model(), X)
    assert kept == [wrong]


def test_pytest_shows_it_in_a_few_words() -> None:
    assert repr(PrecisionCompare(note=lambda _: None, device="npu:1")) == "<precision_compare on npu:1>"


def test_a_marker_names_a_standard_or_limits_with_a_waiver() -> None:
    named = {"limits": {"rtol": 0.1}, "waiver": "why"}
    assert marked_settings(("ulp",), {}, "t") == {"standard": "ulp"}
    assert marked_settings(("ulp",), named, "t") == {"standard": "ulp", **named}
    assert marked_settings((), named, "t") == named
    for arguments, others in (((), {}), (("ulp", "binary"), {}), (("ulp",), {"rtol": 1})):
        with pytest.raises(UsageError, match=r"t\.py::x: the marker ascend_standard\("):
            marked_settings(arguments, others, "t.py::x")
    with pytest.raises(UsageError, match="no-such"):
        marked_settings(("no-such",), {}, "t")


@pytest.mark.parametrize(("slow_calls", "is_accused"), [(0, False), (11, False), (99, True)])
def test_a_call_that_is_slow_however_often_it_is_made_is_accused(
    slow_calls: int, is_accused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls, now_s = iter(range(99)), 0.0

    def call() -> int:
        nonlocal now_s
        number = next(calls)
        now_s += 0.02 if number < slow_calls else 0.001
        return number

    monkeypatch.setattr(comparing, "time", SimpleNamespace(perf_counter=lambda: now_s))
    expected = pytest.raises(Disagreement, match=r"abs takes 20 ms at best, .* 15 ms") if is_accused else nullcontext()
    with expected:
        assert in_time(call, 0.0005, 0.015, "abs") == slow_calls


@pytest.mark.parametrize(("left", "is_accused"), [((0,), False), ((512, 0), False), ((512, 512, 512, 512), True)])
def test_a_call_after_which_less_memory_is_free_each_time_is_accused(
    left: tuple[int, ...], is_accused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    free, calls = [4096], iter(left)

    def call() -> None:
        free[0] -= next(calls)

    monkeypatch.setattr(comparing, "free_bytes", lambda _: free[0])
    expected = pytest.raises(Disagreement, match="abs leaves 512 bytes") if is_accused else nullcontext()
    with expected:
        in_time(call, 0.0005, 60, "abs")
    assert next(calls, None) is None
