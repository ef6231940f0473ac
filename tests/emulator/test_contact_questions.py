"""What the contact kit asks through torch, asked of the emulated device, of which the answers are known."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_ascend.contact.kit import page
from pytest_ascend.contact.questions import LISTS, STEPS
from pytest_ascend.device.probe import numbering


def _asked(name: str, *beginnings: str) -> dict[str, Any]:
    """Ask the questions of a list that begin so."""
    questions = LISTS[name]()
    return {each: ask() for each, ask in questions if each.startswith(beginnings or "")}


def test_numbers_are_asked_for_where_float_formats_end() -> None:
    said = _asked("special")
    assert said["denormals float32 * 1"] == [pytest.approx(x, rel=1e-3, abs=1e-45) for x in (1e-40, 1e-44, -1e-39)]
    assert said["overflow float16 60000 * 2"] == [float("inf")]
    assert said["int64 + 1"][1] == 2**53 + 2
    assert said["int64 sum"] == 2**53 + 1
    assert said["round of ties"] == [0, 2, 2, 0, -2]
    assert said["float32 to float16 ties"] == [2048, 2052]
    assert [str(each) for each in said["1 / 0, -1 / 0, 0 / 0"]] == ["inf", "-inf", "nan"]
    full, rounded = (said[f"bits of a product of float32, hf32 {allowed}"] for allowed in (False, True))
    assert full == [2.0**-bits for bits in range(8, 24)]
    assert [each for each in rounded if each] == [2.0**-bits for bits in (8, 9, 10, 11)]


def test_who_computes_a_dtype_is_told_with_the_message_of_whoever_refuses() -> None:
    said = _asked("dtypes", "add/", "matmul/float", "ctc_loss/float32", "binary_cross_entropy/int8")
    assert (said["add/float32"]["by"], said["add/float32"]["of"]) == ("npu", ["aten::add.Tensor"])
    assert said["add/complex64"]["by"] == "npu"
    assert (said["matmul/float64"]["by"], said["matmul/float64"]["cpu"]) == ("", "taken")
    assert "161002" in said["matmul/float64"]["said"]
    assert said["ctc_loss/float32"]["by"] == "cpu"
    assert said["binary_cross_entropy/int8"]["by"] == "?"
    assert len([each for each in said if each.startswith("add/")]) == 12


def test_bits_and_ulps_are_counted() -> None:
    said = _asked("determinism", "sum/64")
    assert said == {"sum/64/off": 1, "sum/64/on": 1, "sum/64/off again": 1}
    (counts,) = _asked("ulps", "abs/float32").values()
    assert counts == {"0": 4096}
    (counts,) = _asked("ulps", "exp/float32").values()
    assert sum(counts.values()) == 4096
    assert max(map(int, counts)) <= 1


@pytest.mark.parametrize("name", ["error-index", "error-memory", "error-dtype", "error-device"])
def test_errors_are_raised_by_a_call_and_the_process_goes_on(name: str) -> None:
    said = STEPS[name]()
    assert said["raised"] == "the call"
    assert said["goes_on"] is True
    assert said["said"]


def test_the_page_tells_it_in_short() -> None:
    data = {"special": _asked("special"), "numbering": numbering(2), "error-dtype": _error()}
    answers = [
        {"name": name, "status": "done", "seconds": 1.0, "data": each, "output": ""} for name, each in data.items()
    ]
    about = {"made": "2026-11-22", "seconds": 9.0, "pytest_ascend": "1", "emulated": True}
    text = page(about, answers)
    beginnings, _, whole = text.partition("All answers")
    assert "denormals float32 * 1: [" in beginnings
    assert "raised: the call, said: &lt;script&gt;, goes_on: true" in beginnings
    assert "bits of a product of float32, hf32 True" in whole
    assert "<script>" not in text


def _error() -> dict[str, Any]:
    return {"raised": "the call", "said": "<script>", "goes_on": True}
