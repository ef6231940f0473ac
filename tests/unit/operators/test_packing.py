"""Recorded tensors and arguments: written down and read again, they are the same, and damage is named."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from pytest_ascend.errors import GoldenError, UsageError
from pytest_ascend.operators import replay
from pytest_ascend.operators.replay import Entry, Recording, Unwritable, load, read, unpack, write
from pytest_ascend.operators.samples import StoredTensor
from pytest_ascend.records.case import REPEAT
from tools.ops.packing import Packed, save

T = torch.Tensor
INF = math.inf

#: A tensor, and the dtype that it is stored in.
STORED: list[tuple[T, str]] = [
    (torch.tensor([1.0, -0.0, 0.5, INF]), "bfloat16"),
    (torch.tensor([1.0, math.nan, -INF]).half(), ""),  # by torch and chip: to bfloat16, a NaN's sign may change
    (torch.tensor([1.0, 1 + 2.0**-9]), "float16"),
    (torch.tensor([1.0, 2.0**-20 + 2.0**-30]), "float32"),
    (torch.tensor([1e300, 0.1], dtype=torch.float64), "float64"),
    (torch.tensor([0.5, 2.0], dtype=torch.float64), "bfloat16"),
    (torch.tensor([1 + 2j, -0.5j]), "bfloat16"),
    (torch.tensor([0.1 + 2j], dtype=torch.complex128), "float64"),
    (torch.tensor([-128, 127]), "int8"),
    (torch.tensor([0, 255]), "uint8"),
    (torch.tensor([-129]), "int16"),
    (torch.tensor([256]), "int16"),
    (torch.tensor([2**20], dtype=torch.int32), "int32"),
    (torch.tensor([2**40]), "int64"),
    (torch.tensor([[True], [False]]), "bool"),
    (torch.arange(6.0).reshape(2, 3).T, "bfloat16"),
    (torch.tensor(2.5), "bfloat16"),
    (torch.empty(0, 3), "bfloat16"),
    (torch.tensor([1 + 2j]).conj(), "bfloat16"),
]


def same(one: T, other: T) -> bool:
    plain = [torch.view_as_real(each.resolve_conj()) if each.is_complex() else each for each in (one, other)]
    return (
        (one.dtype, one.shape) == (other.dtype, other.shape)
        and torch.equal(plain[0].isnan(), plain[1].isnan())
        and torch.equal(plain[0].nan_to_num(7), plain[1].nan_to_num(7))
        and (not plain[0].is_floating_point() or torch.equal(plain[0].signbit(), plain[1].signbit()))
    )


def test_tensors_come_back_as_they_were_from_the_first_dtype_that_holds_them() -> None:
    packed = Packed()
    numbers = [packed.add(each) for each, _ in STORED]
    assert numbers == list(range(len(STORED)))
    assert [packed.add(each.clone()) for each, _ in STORED] == numbers, "each is there once"
    arrays = packed.arrays()
    for (tensor, storage), row in zip(STORED, packed.table, strict=True):
        assert storage in {"", row[1]}
        assert row[0] == str(tensor.dtype).removeprefix("torch.")
        assert same(unpack(arrays, row), tensor)
    for name, each in arrays.items():
        assert str(each.dtype) == f"torch.{name}"
        assert each.dim() == 1
    assert packed.add(torch.tensor([0.0])) != packed.add(torch.tensor([-0.0]))
    assert packed.add(torch.tensor([1.0])) != packed.add(torch.tensor([1.0]).double())
    assert packed.add(torch.ones(4)) != packed.add(torch.ones(2, 2))


@pytest.mark.parametrize("row", [["float32", "float32", -1, [2]], ["float32", "float32", 3, [2]],
                                 ["complex64", "float32", 0, [3]]])  # fmt: skip
def test_a_tensor_outside_of_what_is_stored_is_refused(row: list[Any]) -> None:
    with pytest.raises(ValueError, match="outside of what is stored"):
        unpack({"float32": torch.arange(4.0)}, row)


def test_what_is_unpacked_is_a_copy() -> None:
    arrays = {"float32": torch.arange(4.0)}
    unpack(arrays, ["float32", "float32", 0, [4]]).zero_()
    unpack(arrays, ["complex64", "float32", 0, [2]]).zero_()
    assert arrays["float32"].tolist() == [0, 1, 2, 3]


def entry(name: str, **fields: Any) -> Entry:
    return Entry(
        **{
            "name": name,
            "function": "torch.add",
            "family": "arithmetic",
            "exactness": "function",
            "properties": {"int64": ("forward",), "float16": ("forward", "backward", "out")},
            **fields,
        }
    )


def test_entries_are_written_in_order_and_read_again(tmp_path: Path) -> None:
    path, entries = tmp_path / "recorded.json", [entry("b", in_place="torch.Tensor.add_"), entry("a")]
    save(entries, path)
    assert load(path) == {each.name: each for each in entries}
    assert list(load(path)) == ["a", "b"]
    assert len(path.read_text(encoding="utf-8").splitlines()) == 4, "a line each, and the brackets"
    assert load(path)["b"].properties == {"int64": ("forward",), "float16": ("forward", "backward", "out")}
    assert entry("a").golden_id == "ops/opinfo/a"
    assert entry("a").first_dtype == "float16"


@pytest.mark.parametrize("text", ["", "{}", "[1]", '[{"name": "a"}]', '[{"name": "a", "properties": {}, "more": 1}]'])
def test_a_damaged_list_of_entries_is_one_message(tmp_path: Path, text: str) -> None:
    path = tmp_path / "recorded.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match="the list of recorded operators cannot be read"):
        load(path)
    with pytest.raises(UsageError, match="cannot be read"):
        load(tmp_path / "missing.json")


@pytest.mark.parametrize("in_place", ["", "torch.Tensor.add_"])
def test_an_entry_becomes_an_operator(in_place: str) -> None:
    made = replay.operator_of(entry("add", in_place=in_place))
    assert (made.name, made.function, made.family, made.exactness) == ("add", torch.add, "arithmetic", "function")
    assert made.dtypes == ("int64", "float16")
    assert made.in_place == (torch.Tensor.add_ if in_place else False)
    assert (made.grad, made.out, made.one_set_of_inputs) == (True, True, True)
    assert made.layouts == ("transposed", "stepped")
    assert tuple(made.inputs(None)) == ()  # type: ignore[arg-type]
    plain = replay.operator_of(entry("add", properties={"int64": ("forward",)}))
    assert (plain.grad, plain.out) == (False, False)


#: Arguments of a call, as JSON.
WRITTEN: list[tuple[Any, Any]] = [
    (None, None),
    (True, True),
    ("sum", "sum"),
    (3, 3),
    (0.5, 0.5),
    (INF, {"float": "inf"}),
    (-INF, {"float": "-inf"}),
    (1 + 2j, {"complex": [1.0, 2.0]}),
    (complex(INF, 0), {"complex": [{"float": "inf"}, 0.0]}),
    ([1, [2.5, None]], [1, [2.5, None]]),
    ((1, "a"), {"tuple": [1, "a"]}),
    (slice(1, None, 2), {"slice": [1, None, 2]}),
    (..., {"ellipsis": True}),
    ({"dim": 1, "how": (2,)}, {"dict": {"dim": 1, "how": {"tuple": [2]}}}),
    (torch.float16, {"dtype": "float16"}),
    (torch.channels_last, {"memory_format": "channels_last"}),
    (torch.strided, {"layout": "strided"}),
    (torch.device("npu" if hasattr(torch, "npu") else "cpu"), {"device": True}),
]


def nothing(_: Any) -> Any:
    raise AssertionError("there is no tensor")


@pytest.mark.parametrize(("value", "data"), WRITTEN, ids=str)
def test_arguments_are_written_as_json_and_read_again(value: Any, data: Any) -> None:
    assert write(value, nothing) == data
    back = read(data, nothing)
    assert back == (torch.device("cpu") if isinstance(value, torch.device) else value)
    assert type(back) is type(value)


def test_nan_and_tensors_are_written_too() -> None:
    assert write(math.nan, nothing) == {"float": "nan"}
    assert math.isnan(read({"float": "nan"}, nothing))
    kept: list[StoredTensor] = []
    tensor = StoredTensor(tensor=torch.ones(2))
    data = write([tensor, (tensor,)], lambda each: kept.append(each) or len(kept))
    assert data == [{"tensor": 1}, {"tuple": [{"tensor": 2}]}]
    assert read(data, lambda held: held * 10) == [10, (20,)]


@pytest.mark.parametrize("value", [torch.Generator(), len, {1: 2}, {"a": object()}, [b"x"]], ids=type)
def test_what_json_cannot_represent_is_refused(value: Any) -> None:
    with pytest.raises(Unwritable, match="cannot be written down"):
        write(value, nothing)


@pytest.mark.parametrize("data", [{"dtype": "ones"}, {"layout": "float32"}, {"memory_format": "strided"}])
def test_names_of_something_else_are_refused(data: Any) -> None:
    with pytest.raises(ValueError, match="is no"):
        read(data, nothing)


# --- a recording ---

TENSORS = (
    torch.arange(6.0).reshape(2, 3),
    torch.tensor([2, 0]),
    torch.tensor([1.5, 2.5], dtype=torch.float64),
    torch.tensor([7.0, 8.0]),
    torch.ones(2).expand(3, 2).clone(),
    torch.tensor([1 + 2j, 3 - 1j]),
)
DTYPES = {"float32": {"asked": ["forward", "in-place", "layout"], "forward": [[2, None], ["float32", None], [3, None]]},
          "int64": {"asked": ["layout"]}}  # fmt: skip


def sample(name: str, **held: Any) -> dict[str, Any]:
    tensor = {"tensor": {"number": 0, "follows": True, "grad": True} | held}
    return {"name": name, "args": [tensor, {"tensor": {"number": 1, "follows": False}}], "kwargs": {"dict": {"dim": 1}},
            "group": "forward", "dtypes": DTYPES}  # fmt: skip


def recording(*samples: dict[str, Any], form: int = 1) -> Recording:
    packed = Packed()
    for each in TENSORS:
        packed.add(each)
    meta = {"form": form, "samples": list(samples), "table": packed.table}
    golden: Any = SimpleNamespace(meta=meta, tensors=packed.arrays(), id="ops/opinfo/x")
    return Recording(golden, "x.safetensors")


def test_samples_are_those_of_a_property() -> None:
    other = sample("second") | {"dtypes": {"float32": {"asked": ["out"]}}, "all_bits": True}
    made = recording(sample("first"), other)
    first, second = *made.samples("forward", "float32"), *made.samples("out", "float32")
    assert (first.name, second.name) == ("first", "second")
    assert (first.all_bits, second.all_bits) == (False, True)
    assert made.samples(REPEAT, "float32") == (first,), "the usual ones"
    assert made.samples("layout", "int64") == made.samples("layout", "float32") == (first,)
    assert made.samples("forward", "int64") == made.samples("forward", "float64") == ()
    data, index = first.values()
    assert (data.make("", torch.float16).equal(TENSORS[0].half()), first.kwargs, first.group) == (
        True, {"dim": 1}, "forward",
    )  # fmt: skip
    assert data.wants_grad(torch.float32)
    assert index.make("", torch.float16).equal(TENSORS[1])
    assert not index.wants_grad(torch.float32)
    assert isinstance(data, StoredTensor)
    assert (data.number, data.stride) == (0, None)


def test_what_overlaps_in_memory_is_not_changed_in_place() -> None:
    strides = {"plain": {}, "dense": {"stride": [3, 1]}, "overlapping": {"number": 4, "stride": [0, 1]}}
    made = recording(*(sample(name, **held) for name, held in strides.items()))
    assert [each.name for each in made.samples("in-place", "float32")] == ["plain", "dense"]
    assert [each.name for each in made.samples("forward", "float32")] == list(strides)
    alone = {**sample("numbers"), "args": [2.5, {"tensor": {"number": 0, "follows": True}}]}
    assert len(recording(alone).samples("in-place", "float32")) == 1


def test_results_are_what_is_expected_and_what_the_cpu_has() -> None:
    made = recording(sample("first"))
    (first,) = made.samples("forward", "float32")
    found = made.expect(first, "float32")
    assert found.expected[0] is not None
    assert found.expected[0].equal(TENSORS[2])
    assert found.expected[1] is None
    rounded, stored = found.reference_runs
    assert rounded[0] is not None
    assert rounded[0].equal(TENSORS[2].float())
    assert stored[0] is not None
    assert stored[0].equal(TENSORS[3])
    assert rounded[1] is stored[1] is None
    with pytest.raises(KeyError, match="backward"):
        made.expect(first, "float32", backward=True)


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (lambda: recording(form=2), "its form is 2, not 1"),
        (lambda: recording(sample("x", number=99)).samples("forward", "float32"), "tensor 99"),
        (lambda: recording({**sample("x"), "args": [{"what": 1}]}).samples("forward", "float32"), "the sample 'x'"),
        (lambda: recording({**sample("x"), "kwargs": {"dtype": "ones"}}).samples("forward", "float32"), "'ones'"),
    ],
)
def test_a_damaged_recording_says_what_is_wrong(made: Any, says: str) -> None:
    with pytest.raises(GoldenError, match=r"x\.safetensors is damaged") as error:
        made()
    assert says in str(error.value)
