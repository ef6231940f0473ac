"""A model is found by its name, and called with inputs as people write them."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from pytest_ascend.errors import UsageError
from pytest_ascend.migration.target import called_with, floating, made, rebatched, resolve, target_model
from tests import architectures


def test_a_factory_is_called_and_its_inputs_are_taken_from_beside_it() -> None:
    found = target_model("tests.architectures:decoder", "tests.architectures:decoder_inputs")
    assert isinstance(found.model, architectures.Decoder)
    assert set(found.kwargs) == {"input_ids", "labels"}
    assert found.batch == 2


def test_a_factory_may_give_both_and_a_class_is_a_factory() -> None:
    both = target_model("tests.architectures:unet")
    assert (type(both.model).__name__, tuple(both.args[0].shape)) == ("UNet", (2, 3, 16, 16))
    assert isinstance(target_model("tests.architectures:Tagger", "2x4:int64:50").model, architectures.Tagger)


def test_a_function_with_a_parameter_is_asked_for_the_batch() -> None:
    assert target_model("tests.architectures:decoder", "tests.architectures:decoder_inputs", 5).batch == 5


def test_other_inputs_are_repeated_up_to_the_batch() -> None:
    args, kwargs = rebatched((torch.arange(2), torch.ones(3)), {"mask": torch.zeros(2, 4), "scale": 2.0}, 5)
    assert args[0].tolist() == [0, 1, 0, 1, 0]
    assert (len(args[1]), tuple(kwargs["mask"].shape), kwargs["scale"]) == (3, (5, 4), 2.0)
    with pytest.raises(UsageError, match="the first input is empty"):
        rebatched((torch.ones(0, 3),), {}, 5)


def test_shapes_say_dtype_and_range() -> None:
    args, _ = called_with(target_model("torch.nn:Identity", "2x3,4:int64:7,1x2:bool").args)
    assert [(tuple(each.shape), each.dtype) for each in args] == [
        ((2, 3), torch.float32),
        ((4,), torch.int64),
        ((1, 2), torch.bool),
    ]
    assert int(args[1].max()) < 7


@pytest.mark.parametrize(
    ("name", "inputs", "said"),
    [
        ("tests.architectures", "1x2", "does not name a factory"),
        ("/", "1x2", "its code alone: --source /"),
        ("tests.nowhere:model", "1x2", "cannot be imported"),
        ("tests.architectures:nothing", "1x2", "cannot be imported"),
        ("tests.architectures:experts_inputs", "1x2", "not a torch.nn.Module"),
        ("tests.architectures:tagger", "", "has no inputs"),
        ("torch.nn:Identity", "2x3:float99", "is not a shape with a torch dtype"),
        ("torch.nn:Identity", "100000x100000", "more than 1,073,741,824 elements"),
        ("torch.nn:Identity", f"{'9' * 5000}x3", "does not name a factory"),
        ("os:system", "2x3", "needs command"),
        ("a\0b:c", "2x3", "cannot be imported"),
    ],
)
def test_what_makes_no_sense_is_said(name: str, inputs: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        target_model(name, inputs)


def test_the_current_folder_is_looked_into(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "only_here.py").write_text("VALUE = 3\n", encoding="utf-8")
    (tmp_path / "unfinished.py").write_text("VALUE =\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert resolve("only_here:VALUE", "model") == 3
    with pytest.raises(UsageError, match="'unfinished:VALUE' cannot be imported: SyntaxError"):
        resolve("unfinished:VALUE", "model")


def test_floating_tensors_of_every_kind_of_output_have_names() -> None:
    decoder = architectures.decoder()(**architectures.decoder_inputs())
    assert {"output.loss", "output.logits", "output.past_key_values[1][0]"} <= floating(decoder).keys()
    assert list(floating((torch.ones(1), (torch.ones(2), torch.arange(2))))) == ["output[0]", "output[1][0]"]
    assert list(floating(torch.max(torch.ones(2, 2), 1))) == ["output[0]"]
    with pytest.raises(UsageError, match="without a floating tensor"):
        floating(torch.arange(3))


def test_a_module_itself_is_a_model() -> None:
    module = nn.Linear(2, 2)
    assert made(module, "here") == (module, None)


def test_a_factory_draws_the_same_from_every_generator_whatever_was_drawn_before() -> None:
    def factory() -> tuple[nn.Module, Any]:
        model = nn.Linear(3, 3)
        with torch.no_grad():
            model.bias.copy_(torch.tensor([random.random(), *np.random.rand(2)]))  # noqa: S311 - no secret
        return model, lambda: torch.randn(2, 3)

    first, given = made(factory, "factory")
    (x,), _ = called_with(given)
    torch.rand(7), random.random(), np.random.rand(5)  # noqa: S311 - no secret
    again, given = made(factory, "factory")
    assert all(torch.equal(one, other) for one, other in zip(first.parameters(), again.parameters(), strict=True))
    assert torch.equal(x, called_with(given)[0][0])
