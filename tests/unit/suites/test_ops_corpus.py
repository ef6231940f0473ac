"""Recorded operators: what is stored comes back bit for bit, what is damaged is refused."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

from pytest_ascend.errors import GoldenError, UsageError
from pytest_ascend.golden import Golden, GoldenStore
from pytest_ascend.operators import calling, replay
from pytest_ascend.operators.callables import resolve
from pytest_ascend.operators.replay import FORM, Entry, Recording, Unwritable, read, unpack, write
from pytest_ascend.operators.samples import StoredTensor, call, laid_out
from pytest_ascend.operators.target import Target, placed
from pytest_ascend.system.bundled import folder
from suites.ops import CASES, REPEAT
from suites.ops.table import OPERATORS, RECORDED, exceptions, is_recorded, target_of
from tools.ops.choosing import choose
from tools.ops.packing import Packed, same_bits, save
from tools.ops.table import LEFT_OUT, WITHOUT_OUT, names

TENSORS = (
    torch.tensor([[0.0, -0.0], [float("nan"), 1.5]]),
    torch.tensor([1 / 3, float("-inf")], dtype=torch.float64),
    torch.tensor([2**40, -1]),
    torch.tensor([200, 0], dtype=torch.uint8),
    torch.tensor([True, False]),
    torch.tensor([1 + 2j, -0.5j], dtype=torch.complex64),
    torch.tensor(3.0, dtype=torch.bfloat16),
    torch.empty(0, 3),
)


def source(*shape: int, **named: Any) -> StoredTensor:
    return StoredTensor(tensor=torch.arange(float(torch.Size(shape).numel())).reshape(shape), **named)


# --- packing ---


def test_every_tensor_comes_back_bit_for_bit() -> None:
    packed = Packed()
    numbers = [packed.add(each) for each in TENSORS]
    arrays = packed.arrays()
    for number, tensor in zip(numbers, TENSORS, strict=True):
        found = unpack(arrays, packed.table[number])
        assert (found.dtype, found.shape) == (tensor.dtype, tensor.shape)
        assert same_bits(found, tensor)


def test_the_same_tensor_is_stored_once_and_in_few_bytes() -> None:
    packed = Packed()
    assert packed.add(torch.ones(5)) == packed.add(torch.ones(5))
    assert {name: each.numel() for name, each in packed.arrays().items()} == {"bfloat16": 5}


@pytest.mark.parametrize("row", [["float32", "bfloat16", 4, [3]], ["float32", "bfloat16", -1, [1]]])
def test_a_row_that_points_outside_is_refused(row: list[Any]) -> None:
    with pytest.raises(ValueError, match="outside"):
        unpack({"bfloat16": torch.ones(5, dtype=torch.bfloat16)}, row)


# --- arguments ---


@pytest.mark.parametrize(
    "value",
    [
        *(None, True, 3, 0.5, float("inf"), "mean", 1 - 2j, [1, (2, 3)], {"dim": (0, 1)}, slice(1, None, 2), ...),
        *(torch.float16, torch.channels_last, torch.strided, torch.device("cpu")),
    ],
    ids=repr,
)
def test_an_argument_comes_back_from_json(value: Any) -> None:
    text = json.dumps(write(value, lambda _: None))
    assert read(json.loads(text), lambda _: None) == value


@pytest.mark.parametrize("value", [torch.Generator(), print, {1: 2}], ids=["generator", "function", "dict"])
def test_what_json_cannot_say_is_refused(value: Any) -> None:
    with pytest.raises(Unwritable):
        write(value, lambda _: None)


def test_a_name_that_is_no_dtype_is_refused() -> None:
    with pytest.raises(ValueError, match="no dtype"):
        read({"dtype": "load"}, lambda _: None)


# --- tensors of samples ---


@pytest.mark.parametrize("stride", [(1, 3), (8, 2), (0, 1)], ids=str)
def test_recorded_strides_are_those_of_the_tensor_that_is_made(stride: tuple[int, int]) -> None:
    numbers = torch.arange(12.0).reshape(3, 4)
    kept = numbers[:1].expand(3, 4).contiguous() if stride[0] == 0 else numbers
    made = StoredTensor(tensor=kept, stride=stride).make("", torch.float16)
    assert (made.stride(), made.dtype) == (stride, torch.float16)
    assert made.float().equal(kept)
    there = calling.preserve_layout(made, torch.device("cpu"))
    assert (there.stride(), there.float().equal(kept)) == (stride, True)


def test_a_device_that_a_sample_names_is_the_one_that_is_tested() -> None:
    given = ("cpu", torch.device("cpu"), "mean")
    assert placed(given, calling.contiguous, torch.device("meta")) == (
        torch.device("meta"),
        torch.device("meta"),
        "mean",
    )


def test_a_tensor_with_a_dtype_of_its_own_keeps_it() -> None:
    kept = StoredTensor(tensor=torch.tensor([1, 2]), follows=False)
    assert kept.make("", torch.float16).dtype is torch.int64
    assert not kept.wants_grad(torch.float32)


def test_made_tensors_share_nothing() -> None:
    one = source(3)
    one.make("", torch.float32).zero_()
    assert one.make("", torch.float32).tolist() == [0, 1, 2]


def test_empty_tensors_have_strides_too() -> None:
    assert laid_out(torch.empty(0, 3), (1, 7)).stride() == (1, 7)


# --- choosing samples ---


def test_few_samples_show_every_value_of_every_argument() -> None:
    candidates = [call(source(4), dim=dim, keepdim=keep) for dim in (0, -1) for keep in (True, False)] * 5
    chosen = choose(candidates, 7)
    assert {each.kwargs["dim"] for each in chosen} == {0, -1}
    assert {each.kwargs["keepdim"] for each in chosen} == {True, False}
    assert len(chosen) <= 4


# --- recordings ---


def recording(**changed: Any) -> Recording:
    packed = Packed()
    number = packed.add(torch.tensor([1.0, -2.0]))
    result = packed.add(torch.tensor([1 / 3, 2.0], dtype=torch.float64))
    sample: Mapping[str, Any] = {
        "name": "2",
        "group": "forward",
        "args": [{"tensor": {"number": number, "follows": True, "grad": True}}],
        "kwargs": {"dict": {"dim": 0}},
        "dtypes": {"float32": {"forward": [[result], ["float32"]], "asked": ["forward"]}},
    }
    meta = {"form": FORM, "table": packed.table, "samples": [sample], **changed}
    return Recording(Golden("ops/opinfo/some", packed.arrays(), meta), "some.safetensors")


def test_a_recording_gives_samples_and_results() -> None:
    found = recording()
    (sample,) = found.samples("forward", "float32")
    assert found.samples("forward", "float16") == ()
    args, kwargs = sample.arguments("", torch.float16)
    assert (args[0].tolist(), args[0].dtype, kwargs) == ([1.0, -2.0], torch.float16, {"dim": 0})
    results = found.expect(sample, "float32")
    assert results.expected[0] is not None
    assert results.expected[0].tolist() == [1 / 3, 2.0]
    assert results.first.equal(torch.tensor([1 / 3, 2.0]))
    assert len(results.reference_runs) == 1


@pytest.mark.parametrize(
    "changed", [{"form": 99}, {"table": []}, {"table": [["float32", "bfloat16", 0, [99]]] * 2}], ids=str
)
def test_a_damaged_recording_is_an_error_that_names_the_file(changed: dict[str, Any]) -> None:
    with pytest.raises(GoldenError, match=r"some\.safetensors is damaged"):
        recording(**changed).samples("forward", "float32")


def test_a_function_that_this_torch_lacks_says_so_when_it_is_called() -> None:
    with pytest.raises(NotImplementedError, match=r"torch.no_such_thing is not implemented in torch"):
        resolve("torch.no_such_thing")(1)


# --- the list of operators ---


def test_a_damaged_list_of_operators_is_one_error(tmp_path: Path) -> None:
    (tmp_path / "operators.json").write_text('[{"name": "x"}]', encoding="utf-8")
    with pytest.raises(UsageError, match=r"operators\.json"):
        replay.load(tmp_path / "operators.json")


def test_the_list_comes_back_as_it_was_written(tmp_path: Path) -> None:
    save(RECORDED.values(), tmp_path / "operators.json")
    assert (tmp_path / "operators.json").read_bytes() == replay.PATH.read_bytes()


def test_what_is_recorded_is_what_is_to_be_recorded() -> None:
    assert RECORDED.keys() == set(names())
    assert not LEFT_OUT.keys() & RECORDED.keys()


def test_the_suite_has_as_many_operators_as_it_says() -> None:
    assert len({case.subject for case in CASES}) >= 620


def test_every_recorded_operator_has_a_golden_of_the_same_promises() -> None:
    """``baseline build`` writes the list from the goldens: what is edited by hand in one of them would be lost."""
    store = GoldenStore(folder("baselines") / "golden")
    held = (msgspec.convert(store.read(entry.golden_id).meta["entry"], Entry) for entry in RECORDED.values())
    assert [own.name for own, entry in zip(held, RECORDED.values(), strict=True) if own != entry] == []


def test_what_overlaps_itself_is_not_changed_in_place() -> None:
    store = GoldenStore(folder("baselines") / "golden")
    recording = Recording(store.read("ops/opinfo/square"), "")
    read, changed = ({each.name for each in recording.samples(asked, "float64")} for asked in ("forward", "in-place"))
    assert changed
    assert any("5x5x2 strided" in name for name in read)
    assert not any("5x5x2 strided" in name for name in changed)


def test_of_some_operators_out_is_not_asked() -> None:
    assert WITHOUT_OUT
    assert not [name for name in WITHOUT_OUT if any("out" in each for each in RECORDED[name].properties.values())]


def test_whatever_is_recorded_is_a_case() -> None:
    known = {case.id for case in CASES}
    listed = {
        f"ops/{entry.name}/{property_}/{dtype}"
        for entry in RECORDED.values()
        for dtype, properties in entry.properties.items()
        if is_recorded(entry.name, dtype)
        for property_ in properties
    }
    assert listed
    assert listed <= known


def test_an_operator_is_asked_in_a_dtype_either_by_the_catalogue_or_from_a_recording() -> None:
    assert not is_recorded("add", OPERATORS["add"].dtypes[0])
    assert is_recorded("add", "complex64")


# --- the same bits when called again ---


def test_each_recorded_operator_repeats_itself_once_at_level_standard_and_in_all_dtypes_at_full() -> None:
    levels = {case.id: case.level for case in CASES}
    for name, entry in RECORDED.items():
        for dtype in entry.properties:
            forward, again = (f"ops/{name}/{each}/{dtype}" for each in ("forward", REPEAT))
            wanted = forward in levels and not exceptions(name).not_repeated
            assert (again in levels) == wanted, again
            first = name not in OPERATORS and dtype == entry.first_dtype
            assert levels.get(again) in (None, "standard" if first else "full"), again


def test_float32_comes_first() -> None:
    assert RECORDED["linalg.det"].first_dtype == "float32"
    assert RECORDED["view_as_real"].first_dtype == "complex64"


def test_what_repeats_itself_is_what_is_asked_for_its_results() -> None:
    subject = subject_of("ops/sinc/repeat/float32")
    forward = subject_of("ops/sinc/forward/float32")
    assert [each.name for each in subject.samples] == [each.name for each in forward.samples]
    assert any(subject.shows(each, "backward") for each in subject.samples)


def subject_of(case_id: str) -> Target:
    case = next(each for each in CASES if each.id == case_id)
    return target_of(case, torch.device("cpu"), GoldenStore(folder("baselines") / "golden"))


# --- building and replaying ---

REBUILD = """
from tools.ops.operators import record
from tools.ops.database import database
from tools.ops.table import LEFT_OUT, WITHOUT_OUT
from suites.ops.table import OPERATORS
from tools.ops.table import names
from pytest_ascend.golden import Golden
from pytest_ascend.golden.commands import reproducible
from pytest_ascend.golden.files import encode
import sys
left = set(database()) - set(names()) - set(OPERATORS)
assert not left, f"neither recorded nor left out: {sorted(left)}"
with reproducible():
    for name in ("H", "special.entr", "linalg.det"):
        made = [record(name) for _ in range(2)]
        one, other = (encode(Golden(f"ops/opinfo/{name}", each.tensors, each.meta)) for each in made)
        assert one == other, name
"""

REPLAY = """
import sys, torch
from pathlib import Path
from pytest_ascend.golden import GoldenStore
from suites.ops.table import RECORDED
from pytest_ascend.operators.replay import recording
store = GoldenStore(Path(sys.argv[1]))
for name in ("linalg.det", "fft.rfft", "special.entr"):
    for dtype, asked in RECORDED[name].properties.items():
        for sample in recording(store, RECORDED[name].golden_id).samples("forward", dtype):
            sample.arguments(name, getattr(torch, dtype))
packages = ("torch.testing._internal.opinfo", "torch.testing._internal.common_methods", "scipy", "expecttest")
foreign = [each for each in sys.modules if each.startswith(packages)]
assert not foreign, foreign
"""


def python(script: str, *arguments: str) -> None:
    environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    command = [sys.executable, "-W", "ignore", "-c", script, *arguments]
    done = subprocess.run(
        command, cwd=folder("suites").parent, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.drawn(4, "long")
def test_a_second_recording_has_the_same_bytes_and_nothing_of_the_database_is_forgotten() -> None:
    python(REBUILD)


def test_replaying_reads_nothing_of_torchs_tests() -> None:
    python(REPLAY, str(folder("baselines") / "golden"))
