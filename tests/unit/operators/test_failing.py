"""A failing call is saved as it was made, as data; the program loads it and shows what the device makes of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from pytest_ascend.errors import UsageError
from pytest_ascend.golden.files import Golden, decode, encode
from pytest_ascend.operators import Operator, call, calling, failing
from pytest_ascend.operators.checks import check
from pytest_ascend.operators.failing import LARGEST_BYTES, SavedCall, _saved, place_of, program, rerun
from pytest_ascend.operators.reference import Definition
from pytest_ascend.operators.replay import Unwritable
from pytest_ascend.operators.samples import normal, uniform
from pytest_ascend.operators.target import BACKWARD, IN_PLACE, Call, Target
from pytest_ascend.records.case import Case
from pytest_ascend.run.comparing import Disagreement, PrecisionCompare

T = torch.Tensor
CPU = torch.device("cpu")


def target(function: Any, *args: Any, property_: str = "forward", dtype: str = "float32", **settings: Any) -> Target:
    tested = Operator("tested", function, lambda _: [call(*args)], **settings)
    return Target(
        Case(suite="user", subject="tested", property=property_, dtype=dtype), tested, Definition(tested), CPU
    )


@pytest.mark.parametrize(
    ("path", "place"), [("sort['3x5'][1]", 1), ("sort['3x5'][12]", 12), ("sort['3x5']", 0), ("sort", 0), ("", 0)]
)
def test_the_number_of_an_output_is_the_last_of_a_path(path: str, place: int) -> None:
    assert place_of(path) == place


def test_the_call_that_a_verdict_names_is_saved(tmp_path: Path) -> None:
    made, verdicts = target(torch.square, normal(3, 4), property_="layout"), list[Any]()
    made.operator = replace(made.operator, function=lambda x: x.square() + (x.stride() == (1, 3)))
    made.origin = (), "wrong"
    with pytest.raises(Disagreement):
        check(made, PrecisionCompare(verdicts.append))
    assert "3x4, transposed" in program(made, tmp_path, verdicts[-1])
    (file,) = tmp_path.iterdir()
    assert SavedCall.load(file).args[0].stride() == (1, 3)


def reproduced(made: Target, layout: Any = calling.preserve_layout, direction: str = "", label: str = "") -> Any:
    return _saved(made, Call(made.samples[0], layout, direction, label), None, ("", 0.0))


def test_a_call_is_saved_as_it_was_made() -> None:
    made = target(torch.square, normal(3, 4), definition=lambda x: x * x, in_place=torch.Tensor.square_)
    plain = reproduced(made)
    assert (plain.leaves, plain.grad_outputs, plain.repeats) == ((), (), False)
    assert plain.expected[0].equal(plain.args[0].double().square())
    assert plain.reference[0].dtype is torch.float32
    assert reproduced(made, calling.stepped).args[0].stride() == calling.stepped(plain.args[0], CPU).stride()
    back = reproduced(made, direction=BACKWARD)
    assert (back.leaves, [each.shape for each in back.grad_outputs]) == ((0,), [(3, 4)])
    assert back.expected[0].equal(2 * back.args[0].double() * back.grad_outputs[0].double())


@pytest.mark.parametrize("property_", ["backward", "backward-layout"])
def test_gradients_are_reproduced_in_the_layout_of_the_case(property_: str) -> None:
    made = target(torch.mul, normal(3, 4), uniform(3, 4, grad=False), property_="backward")
    made.case = Case(suite="user", subject="tested", property=property_, dtype="float32")
    found = reproduced(made, calling.transposed, BACKWARD)
    assert found.leaves == (0,)
    assert [each.stride() for each in (*found.args, *found.grad_outputs)] == [(1, 3)] * 3


def test_a_repeated_call_is_compared_with_itself() -> None:
    assert reproduced(target(torch.square, normal(3, 4), property_="repeat")).repeats


@pytest.mark.parametrize(
    ("kind", "shape", "stride"),
    [("ready", (3, 4), (4, 1)), ("to be resized", (0,), (1,)), ("stepped", (3, 4), (11, 2))],
)
def test_the_target_of_a_result_is_reproduced(kind: str, shape: tuple[int, ...], stride: Any) -> None:
    made = target(torch.square, normal(3, 4), property_="out", out=True)
    found = reproduced(made, label=kind)
    assert (found.kwargs["out"].shape, found.kwargs["out"].stride()) == (shape, stride)
    assert found.kwargs["out"].isnan().all()
    assert found.args[0].is_contiguous(), "the layout is the target's"


@pytest.mark.parametrize(("label", "stride"), [("", (4, 1)), ("stepped", (11, 2))])
def test_a_tensor_that_is_changed_in_place_is_reproduced_where_it_lies(label: str, stride: tuple[int, int]) -> None:
    made = target(torch.add, normal(3, 4), 2, property_="in-place", in_place=torch.Tensor.add_)
    found = reproduced(made, direction=IN_PLACE, label=label)
    assert (found.args[0].stride(), found.args[1]) == (stride, 2)


def test_without_a_verdict_the_call_made_last_is_shown(tmp_path: Path) -> None:
    made = target(torch.square, normal(3, 4))
    assert "user/tested/forward/float32: 3x4" in program(made, tmp_path, None)
    made.execute(Call(made.samples[0], calling.stepped))
    assert "torch.square, 'cpu')" in program(made, tmp_path, None)
    (file,) = tmp_path.iterdir()
    assert SavedCall.load(file).args[0].stride() == (11, 2)


def test_a_function_without_a_name_is_found_where_its_test_is(tmp_path: Path) -> None:
    made = target(lambda x: x + 1, normal(3))
    with pytest.raises(Unwritable, match="no name"):
        program(made, tmp_path, None)
    made.origin = ("import test_mine",), "test_mine.test.operators['tested']"
    assert "import test_mine\n" in program(made, tmp_path, None)
    assert "test_mine.test.operators['tested'].function, 'cpu')" in program(made, tmp_path, None)
    made.case = Case(suite="user", subject="x\nimport os", property="forward", dtype="float32")
    assert program(made, tmp_path, None).startswith("# user/x\\nimport os/")


# --- the file ---


def again(saved: SavedCall, folder: Path) -> SavedCall:
    saved.save(folder / "call", "a case")
    return SavedCall.load(folder / "call")


def shown(folder: Path, capsys: pytest.CaptureFixture[str], function: Any, **named: Any) -> tuple[str, int]:
    """Save a call and make it again; return what is printed, and the exit code."""
    SavedCall(**named).save(folder / "call", "a case")
    with pytest.raises(SystemExit) as left:
        rerun(folder / "call", function, "cpu")
    return capsys.readouterr().out, int(left.value.code)


@pytest.mark.parametrize(
    "x",
    [
        torch.tensor([float("nan"), float("inf"), -0.0, 1e-45, 0.1]),
        torch.tensor([0.1, -3.4e38], dtype=torch.bfloat16),
        torch.tensor([0.1, 65504.0, 6e-8], dtype=torch.float16),
        torch.tensor([complex(0.1, float("nan")), complex(-0.0, 2)], dtype=torch.complex64),
        torch.tensor([2**62 + 1, -5]),
        torch.tensor(True),
        torch.empty(0, 3),
        torch.arange(24.0).reshape(2, 3, 4).transpose(0, -1),
        torch.arange(24.0)[3::2],
        torch.arange(24.0)[3],
        torch.arange(4.0).expand(3, 4),
    ],
    ids=str,
)
def test_inputs_arrive_bit_for_bit_in_their_strides(x: T, tmp_path: Path) -> None:
    found = again(SavedCall(args=(x, [x, {"y": x}], 2, float("inf"))), tmp_path)
    assert found.args[2:] == (2, float("inf"))
    for each in (found.args[0], found.args[1][1]["y"]):
        assert (each.dtype, each.shape) == (x.dtype, x.shape)
        if x.numel():
            assert (each.stride(), each.storage_offset()) == (x.stride(), x.storage_offset())
        assert torch.equal(each.isnan(), x.isnan())
        if not x.is_complex():
            assert torch.equal(each.nan_to_num(7), x.nan_to_num(7))
            assert torch.equal(each.signbit() & ~x.isnan(), x.signbit() & ~x.isnan())


def test_a_wrong_element_is_shown_beside_the_right_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    x = torch.tensor([[0.0, 1.0], [2.0, 0.5]])
    decided: dict[str, Any] = {"args": (x,), "expected": [x.double().expm1()], "rule": ("error of one element", 0.1)}
    said, code = shown(tmp_path, capsys, torch.exp, element=(0, (0, 0)), **decided)
    first, judged = said.splitlines()
    assert first == "output 0, element (0, 0): 1.0 on cpu, 0.0 expected; largest difference 1"
    assert (judged, code) == ("error of one element: 1, allowed 0.1: FAILED", 1)
    said, code = shown(tmp_path, capsys, torch.expm1, element=(0, (0, 0)), **decided)
    assert (said.splitlines()[1], code) == ("error of one element: 0, allowed 0.1: passed", 0)


def test_gradients_are_compared_where_leaves_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ups = (torch.tensor([10.0]),)
    named: dict[str, Any] = {"args": (torch.tensor([2.0]),), "leaves": (0,), "grad_outputs": ups}
    said, code = shown(tmp_path, capsys, torch.square, expected=[torch.tensor([40.0], dtype=torch.float64)], **named)
    assert said.startswith("output 0, element (0,): 40.0 on cpu, 40.0 expected")
    assert code == 0


def test_what_does_not_repeat_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    count = iter(range(9))
    said, code = shown(tmp_path, capsys, lambda x: x + next(count), args=(torch.ones(2),), repeats=True)
    assert (said.splitlines()[1], code) == ("elements that are not equal: 2, allowed 0: FAILED", 1)


def test_what_is_no_data_or_too_large_is_not_saved(tmp_path: Path) -> None:
    with pytest.raises(Unwritable, match="cannot be written"):
        SavedCall(args=(lambda: 0,)).save(tmp_path / "call", "a case")
    with pytest.raises(Unwritable, match="MB, more than"):
        SavedCall(args=(torch.zeros(LARGEST_BYTES // 4 + 1),)).save(tmp_path / "call", "a case")
    assert not (tmp_path / "call").exists()


@pytest.mark.parametrize(
    "spoil",
    [
        lambda meta: meta.pop("args"),
        lambda meta: meta.update(other=1),
        lambda meta: meta.update(args={"tensor": {"number": 7, "complex": False}}),
        lambda meta: meta.update(args=[{"tensor": {"number": 0, "complex": False, "stride": [1 << 40], "offset": 0}}]),
        lambda meta: meta.update(args=[{"tensor": {"number": 0, "complex": False, "stride": [-1], "offset": 0}}]),
        lambda meta: meta.update(kwargs={"dtype": "load"}),
        lambda meta: meta.update(kwargs={"unknown": 1}),
        lambda meta: meta.update(element=[0]),
    ],
)
def test_a_file_that_is_no_call_is_one_message(spoil: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "call"
    SavedCall(args=(torch.ones(2),)).save(path, "a case")
    golden = decode(path.read_bytes())
    meta = dict(golden.meta)
    spoil(meta)
    path.write_bytes(encode(Golden("a case", golden.tensors, meta)))
    with pytest.raises(UsageError, match="is no saved call"):
        SavedCall.load(path)
    with pytest.raises(SystemExit, match="is no saved call"):
        rerun(path, torch.neg, "cpu")


def test_a_broken_device_does_not_fill_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = target(torch.square, normal(3, 4))
    assert program(made, tmp_path, None)
    monkeypatch.setattr(failing, "FOLDER_BYTES", 100)
    with pytest.raises(Unwritable, match="saved calls, which is enough"):
        program(made, tmp_path, None)


def test_a_missing_file_is_one_message(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="start the program in the folder of the run"):
        rerun(tmp_path / "none", torch.neg, "cpu")
