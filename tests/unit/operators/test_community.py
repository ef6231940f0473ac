"""Operator cases of others, as files: what is a plain call runs under our judge, the rest says why not."""

import json

import pytest
import torch

from pytest_ascend.errors import UsageError
from pytest_ascend.operators import community
from pytest_ascend.operators.community import compute
from pytest_ascend.operators.samples import Values
from pytest_ascend.precision import compare
from pytest_ascend.run.reference import cpu_reference

HEAD = "testcase_name,api_name,tensor_view_shapes,tensor_dtypes,attributes,input_data_ranges,output_tensor_indexes\n"


def read(folder, *rows, atk=()):
    if rows:
        (folder / "cases.csv").write_text(HEAD + "\n".join(rows) + "\n", encoding="utf-8")
    if atk:
        (folder / "cases.json").write_text(json.dumps(list(atk)), encoding="utf-8")
    community.read.cache_clear()
    return {case.id: call for case, call in community.read(folder).items()}


def tensor(shape, dtype="fp32", values=(-2, 2), kind="tensor"):
    return {"name": "self", "type": kind, "dtype": dtype, "shape": shape, "range_values": list(values)}


def judged(call):
    """Return the verdict on a case, computed on the CPU by a device that is the CPU."""
    verdicts = []
    note = lambda actual, expected, name: verdicts.append(compare(actual, expected))  # noqa: E731
    compute(call, torch.device("cpu"), cpu_reference, note)
    return verdicts[0].agrees


def test_a_table_becomes_cases_that_agree(tmp_path):
    rows = (
        "add,torch.add,\"((2,3,4),(2,3,4))\",\"('float32',)\",{'alpha':2.0},,",
        'abs,aclnnAbs,"((16,2),(16,2))","(\'float16\',\'float16\')",,"((-1000,-10),)","(-1,)"',
        "cat,torch.cat,\"(((2,3),(2,3)),)\",\"(('int8','int8'),)\",{'dim':1},,",
        'relu,torch.Tensor.relu_,"((2,3),)","(\'bfloat16\',)",,"((-inf,inf),)",',
    )
    found = read(tmp_path, *rows)
    assert list(found) == [
        "user/cases.csv/add/forward/float32",
        "user/cases.csv/abs/forward/float16",
        "user/cases.csv/cat/forward",
        "user/cases.csv/relu/forward/bfloat16",
    ]
    assert found["user/cases.csv/abs/forward/float16"].args == (
        Values(shape=(16, 2), kind="uniform", dtype="float16", low=-1000, high=-10),
    )
    assert all(judged(call) for call in found.values())


def test_a_list_of_atk_becomes_cases_that_agree(tmp_path):
    stack = {"id": 0, "name": "aclnnStack", "aclnn_name": "Stack", "api_type": "ascend_method_torch_stack"}
    dim = {"name": "dim", "type": "attr", "dtype": "int", "shape": None, "range_values": 0}
    normal = {**tensor([3, 5]), "range_values": {"name": "nd", "mean": [-1, 1], "std": [1, 3]}}
    found = read(
        tmp_path,
        atk=(
            {**stack, "inputs": [[tensor([1, 3], kind="tensors"), tensor([1, 3], kind="tensors")], dim]},
            {"id": 1, "name": "torch.softmax", "inputs": [tensor([7, 9], "bf16"), {**dim, "range_values": -1}]},
            {"id": 2, "name": "aclnnTanh", "aclnn_name": "Tanh", "inputs": [normal]},
        ),
    )
    assert [call.functions[0] for call in found.values()] == ["torch.stack", "torch.softmax", "torch.tanh"]
    assert all(judged(call) for call in found.values())


def test_what_is_no_plain_call_is_there_with_its_reason_and_count(tmp_path):
    atk = [{"id": each, "name": "aclnnX", "api_type": "somebody_s", "inputs": []} for each in range(31)]
    rows = (
        'r,torch.rand,"((2,),)","(\'float32\',)",,,',
        'k,,"((2,),)","(\'float32\',)",,,',
        'n,torch.nothing_like_it,"((2,),)","(\'float32\',)",,,',
        'h,torch.abs,"((100000,100000),)","(\'float32\',)",,,',
        'b,torch.abs,"((2,","(\'float32\',)",,,',
    )
    said = " | ".join(call.why for call in read(tmp_path, *rows, atk=atk).values())
    for part in (
        "31 cases of cases.json: the executor somebody_s is a program of its own",
        "draws random numbers",
        "it is of a kernel",
        "neither torch nor torch_npu has an operator torch.nothing_like_it",
        "more than 67,108,864 elements",
        "not as its format says",
    ):
        assert part in said


def test_damaged_files_are_named_and_other_files_left_alone(tmp_path):
    (tmp_path / "config.json").write_text('{"a": 1}', encoding="utf-8")
    (tmp_path / "table.csv").write_text("a,b\n1,2\n", encoding="utf-8")
    (tmp_path / "cut.json").write_text('[{"name": "x", "inputs": [', encoding="utf-8")
    (call,) = read(tmp_path).values()
    assert "1 cases of cut.json: the file cannot be read" in call.why


def test_nothing_in_a_file_is_executed(tmp_path):
    rows = (f"x,torch.abs,\"__import__('pathlib').Path('{tmp_path}/seen').touch()\",\"('float32',)\",,,",)
    assert "not as its format says" in next(iter(read(tmp_path, *rows).values())).why
    assert not (tmp_path / "seen").exists()


@pytest.mark.parametrize(
    "name",
    [
        "torch.os.system",
        "torch.hub.os.system",
        "torch.hub.download_url_to_file",
        "torch.save",
        "torch.load",
        "torch.from_file",
        "torch.manual_seed",
        "torch.set_default_dtype",
        "torch.Tensor.apply_",
        "torch.Tensor.share_memory_",
        "torch.ops.aten.set_",
        "torch_npu.npu.set_device",
        "torch_npu.npu_change_data_ptr",
        "os.system",
    ],
)
def test_a_file_names_operators_and_nothing_else(name, tmp_path):
    command = {"type": "attr", "name": "command", "range_values": f"touch {tmp_path}/seen"}
    written = [{"name": name, "inputs": [command]}, {"name": "x", "aclnn_name": name, "inputs": [command]}]
    for call in read(tmp_path, f"a,{name},\"()\",,{{'command':1}},,", atk=written).values():
        assert "neither torch nor torch_npu has an operator" in call.why


def test_the_tensors_of_a_case_have_a_bound_together(tmp_path):
    many = ",".join(["(8192,8192)"] * 40)
    (call,) = read(tmp_path, f'c,torch.cat,"(({many}),)","((\'int8\',),)",,,').values()
    assert "its tensors have more than 67,108,864 elements" in call.why


def test_a_result_beyond_the_bound_of_memory_is_not_made(tmp_path):
    (call,) = read(tmp_path, "r,torch.tile,\"((8,),)\",\"('float32',)\",{'dims':[1099511627776]},,").values()
    with pytest.raises(UsageError, match="torch on the CPU refuses it: torch"):
        judged(call)


def test_a_case_that_torch_does_not_take_says_so(tmp_path):
    (call,) = read(tmp_path, 'm,torch.mm,"((2,3),(2,3))","(\'float32\',)",,,').values()
    with pytest.raises(UsageError, match="torch on the CPU refuses it"):
        judged(call)


def test_a_wrong_device_is_seen(tmp_path, monkeypatch):
    (call,) = read(tmp_path, 'e,torch.exp,"((64,),)","(\'float32\',)",,,').values()
    assert judged(call)

    def faulty(x):
        return torch.exp(x).half().float()

    monkeypatch.setattr(community, "_found", lambda _: (faulty, "torch.exp"))
    compared = []
    exact = lambda function, *args, **kwargs: torch.exp(args[0].double())  # noqa: E731
    compute(call, torch.device("cpu"), exact, lambda actual, expected, name: compared.append(compare(actual, expected)))
    assert not compared[0].agrees


def test_a_folder_without_cases_is_refused(tmp_path):
    for folder in (tmp_path, tmp_path / "nowhere"):
        community.read.cache_clear()
        with pytest.raises(UsageError, match="there"):
            community.read(folder)
