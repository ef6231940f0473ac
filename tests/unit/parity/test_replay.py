"""Dumps of msprobe: every API call is judged on its own inputs, and the first wrong one is named.

The dumps are written as msprobe's documentation shows them, of calls that torch really made.
"""

import json
import os
import time

import pytest
import torch
from click.testing import CliRunner

from pytest_ascend.errors import UsageError
from pytest_ascend.parity import replay as replaying
from pytest_ascend.parity.replay import replay, resolve


class Writer:
    """Writes one rank's dump, call by call."""

    def __init__(self, folder, *, values=True):
        self.folder, self.values, self.data, self.count = folder, values, {}, {}
        (folder / "dump_tensor_data").mkdir(parents=True)

    def call(self, name, *args, result=None, **kwargs):
        """Call a function of torch, and dump it; ``result`` stands for what a device made."""
        outputs = resolve(name)(*args, **kwargs) if result is None else result
        index = self.count[name] = self.count.get(name, -1) + 1
        self.data[f"{name}.{index}.forward"] = {
            "input_args": [self._entry(each, f"{name}.{index}.forward.input.{at}") for at, each in enumerate(args)],
            "input_kwargs": {key: self._entry(each, f"{name}.{index}.forward.{key}") for key, each in kwargs.items()},
            "output": [self._entry(outputs, f"{name}.{index}.forward.output.0")],
        }
        return outputs

    def backward(self, name, above, *gradients):
        index = self.count[name]
        self.data[f"{name}.{index}.backward"] = {
            "input": [self._entry(above, f"{name}.{index}.backward.input.0")],
            "output": [self._entry(each, f"{name}.{index}.backward.output.{at}") for at, each in enumerate(gradients)],
        }

    def done(self):
        content = {"task": "tensor", "level": "L1", "framework": "pytorch", "data": self.data}
        (self.folder / "dump.json").write_text(json.dumps(content), encoding="utf-8")
        return self.folder

    def _entry(self, value, name):
        if not isinstance(value, torch.Tensor):
            return {"type": type(value).__name__, "value": value}
        entry = {"type": "torch.Tensor", "dtype": str(value.dtype), "shape": list(value.shape)}
        wide = value.detach().double()
        entry |= {"Max": wide.max().item(), "Min": wide.min().item(), "Mean": wide.mean().item()}
        entry |= {"Norm": wide.norm().item(), "requires_grad": value.requires_grad}
        if self.values:
            entry["data_name"] = f"{name}.pt"
            torch.save(value.detach(), self.folder / "dump_tensor_data" / f"{name}.pt")
        return entry


def made(seed=0):
    return torch.randn(8, 16, generator=torch.Generator().manual_seed(seed))


def program(folder, *, wrong=False, **settings):
    """Dump a small program: in ``wrong`` ones the second call lost its last rows."""
    torch.manual_seed(7)
    writer = Writer(folder, **settings)
    x, weight = made(), made(1)[:, :16]
    y = writer.call("Functional.linear", x, weight)
    bad = torch.nn.functional.softmax(y, dim=-1)
    bad[-2:] = 0
    z = writer.call("Functional.softmax", y, dim=-1, result=bad if wrong else None)
    writer.call("Tensor.__add__", z, 1.5)
    writer.call("Functional.dropout", z)
    leaf = made(2).requires_grad_()
    writer.call("Functional.gelu", leaf)
    above = made(3)
    (gradient,) = torch.autograd.grad(torch.nn.functional.gelu(leaf), leaf, above)
    writer.backward("Functional.gelu", above, gradient)
    return writer.done()


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch):
    """Have the forked child compute in one thread.

    Unlike the command's own process, that of these tests may have used OpenMP's threads, which a fork does not copy: a
    child that asks for them waits for ever.
    """
    monkeypatch.setattr(replaying, "MOST_THREADS", 1)


def run(*arguments):
    result = CliRunner().invoke(replay, [str(each) for each in arguments], catch_exceptions=False)
    return result.exit_code, result.output


def test_a_correct_dump_is_accused_of_nothing(tmp_path):
    code, output = run(program(tmp_path / "step0" / "rank0"), "--json")
    (found,) = json.loads(output).values()
    assert code == 0
    assert {each["call"]: each["state"] for each in found} == {
        "Functional.linear.0.forward": "agrees",
        "Functional.softmax.0.forward": "agrees",
        "Tensor.__add__.0.forward": "agrees",
        "Functional.dropout.0.forward": "not-judged",
        "Functional.gelu.0.forward": "agrees",
        "Functional.gelu.0.backward": "agrees",
    }


def test_the_first_wrong_call_is_named_and_those_after_it_are_not_accused(tmp_path):
    program(tmp_path / "step0" / "rank0", wrong=True)
    code, output = run(tmp_path)
    assert code == 1
    assert "1 disagrees, 4 agrees, 1 not-judged" in output
    assert "first wrong: Functional.softmax.0.forward: " in output


def test_a_wrong_gradient_is_seen(tmp_path):
    writer = Writer(tmp_path)
    leaf, above = made().requires_grad_(), made(3)
    writer.call("Functional.gelu", leaf)
    writer.backward("Functional.gelu", above, above * 0.5)
    code, output = run(writer.done())
    assert (code, "first wrong: Functional.gelu.0.backward" in output) == (1, True)


def test_half_precision_summed_in_another_order_is_right_and_rounded_inside_is_wrong(tmp_path):
    x, weight = (torch.randn(64, 2048, generator=torch.Generator().manual_seed(seed)).half() for seed in (1, 2))
    parts = [(x[:, at : at + 128].float() @ weight[:, at : at + 128].float().T) for at in range(0, 2048, 128)]
    right, wrong = parts[0], parts[0].half()
    for part in parts[1:]:
        right, wrong = right + part, wrong + part.half()
    for place, result, state in ((0, right.half(), "agrees"), (1, wrong, "disagrees")):
        writer = Writer(tmp_path / str(place))
        writer.call("Functional.linear", x, weight, result=result)
        (found,) = json.loads(run(writer.done(), "--json")[1]).values()
        assert [each["state"] for each in found] == [state]


@pytest.mark.parametrize("values", [True, False])
def test_two_dumps_part_where_like_inputs_give_unlike_results(values, tmp_path):
    first = program(tmp_path / "a", values=values)
    assert run(first, "--against", program(tmp_path / "b", values=values)) == (
        0,
        "every result of every call is alike\n",
    )
    code, output = run(first, "--against", program(tmp_path / "c", wrong=True, values=values))
    assert code == 1
    assert output.startswith("the dumps part at Functional.softmax.0.forward: the inputs are alike, ")


def test_calls_that_cannot_be_compared_are_not_said_to_be_alike(tmp_path):
    inputs = {"a": made(), "b": made(), "c": made(1)}
    first, same, other = (Writer(tmp_path / name) for name in inputs)
    for writer, x in zip((first, same, other), inputs.values(), strict=True):
        writer.call("Functional.relu", x)
        writer.call("Functional.relu", made())
        writer.done()
    assert run(first.folder, "--against", other.folder) == (
        0,
        "1 of 2 calls are alike; the others have other inputs, or cannot be compared\n",
    )
    for writer in (first, same):
        for entry in writer.data.values():
            for each in (*entry["input_args"], *entry["output"]):
                for name in ("Max", "Min", "Mean", "Norm", "data_name"):
                    each.pop(name, None)
        writer.done()
    code, output = run(first.folder, "--against", same.folder)
    assert (code, output.startswith("0 of 2 calls are alike")) == (5, True)


def test_a_dump_of_statistics_cannot_be_judged_and_says_so(tmp_path):
    code, output = run(program(tmp_path, values=False))
    assert code == 5
    assert "only statistics of a tensor (dump with task 'tensor')" in output


@pytest.mark.parametrize(
    "name",
    [
        *("Torch.load", "Torch.hub.load", "Torch.save", "Functional.torch", "NPU.x", "X.y", "Aten.from_file"),
        *(
            "Aten.set_.source_Storage",
            "Torch.manual_seed",
            "Tensor.__reduce_ex__",
            "Tensor.share_memory_",
            "VF.from_file",
        ),
    ],
)
def test_a_dump_cannot_call_what_takes_no_tensors(name, tmp_path):
    writer = Writer(tmp_path)
    writer.data = {f"{name}.0.forward": {"input_args": [{"type": "str", "value": "x"}], "output": []}}
    code, output = run(writer.done())
    assert (code, "no reference on the CPU" in output) == (5, True)


def test_a_call_has_bounds_of_memory_and_time(tmp_path, monkeypatch):
    """What takes too much, too long, or ends the process is not judged; the calls after it are."""
    writer = Writer(tmp_path)
    size = {"type": "int", "value": 2**36}
    writer.data = {"Torch.zeros.0.forward": {"input_args": [size], "output": []}}
    for name in ("Torch.mul", "Torch.sub"):
        writer.call(name, made(), 2.0)
    program = {"torch.mul": lambda *_: time.sleep(60), "torch.sub": lambda *_: os._exit(9)}
    known = replaying.allowed.function
    writer.call("Torch.add", made(), 2.0)
    writer.done()
    monkeypatch.setattr(replaying, "CALL_LIMIT_S", 1.0)
    monkeypatch.setattr(replaying.allowed, "function", lambda name: program.get(name) or known(name))
    code, output = run(tmp_path)
    assert code == 0
    assert "1 agrees, 3 not-judged" in output
    for part in ("can't allocate memory", "it took more than 1 s", "its process ended with 9"):
        assert part in output


class Harm:
    """What a pickle would call."""

    def __reduce__(self):
        return (print, ("harmed",))


def test_a_tensor_file_runs_no_code(tmp_path, capsys):
    folder = program(tmp_path)
    torch.save(Harm(), folder / "dump_tensor_data" / "Functional.linear.0.forward.input.0.pt")
    _, output = run(folder)
    assert "is damaged or holds more than a tensor" in output
    assert "harmed" not in capsys.readouterr().out + output


@pytest.mark.parametrize("content", ["", "[]", '{"data": 3}', "{" * 9])
def test_what_is_no_dump_is_one_message(content, tmp_path):
    (tmp_path / "dump.json").write_text(content, encoding="utf-8")
    with pytest.raises(UsageError, match="is not an msprobe dump"):
        run(tmp_path)


def test_a_folder_without_a_dump_is_one_message(tmp_path):
    with pytest.raises(UsageError, match=r"there is no dump\.json"):
        run(tmp_path)
