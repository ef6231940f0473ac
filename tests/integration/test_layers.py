"""``precision_compare.layers``: every module of a model, on the device."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import pytest

from tests.integration.conftest import Run

MODEL = """
import torch

def model():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))

def test_right(precision_compare):
    report = precision_compare.layers(model(), torch.linspace(-1, 1, 64).reshape(8, 8))
    assert len(report.layers) >= 3
"""


def test_a_model_is_judged_layer_by_layer(ascend: Run, pytester: pytest.Pytester) -> None:
    pytester.makepyfile(MODEL)
    ascend().assert_outcomes(passed=1)


def test_the_first_wrong_layer_is_named(ascend_apart: Run, pytester: pytest.Pytester) -> None:
    pytester.makepyfile(MODEL.replace("ReLU", "GELU"))
    result = ascend_apart("--ascend-device=emulated", "--ascend-emulate=fault=gelu-by-sigmoid")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*first wrong layer: 1 (GELU)*"])


TRAINED = """
import torch

def test_training(_model_parity):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 4))
    _model_parity(model, torch.linspace(-3, 3, 64).reshape(8, 8), property="training")
"""


def test_the_first_wrong_step_of_a_training_is_named(
    ascend_apart: Run, pytester: pytest.Pytester, lines: Callable[..., list[dict[str, Any]]]
) -> None:
    pytester.makepyfile(TRAINED)
    result = ascend_apart("--ascend-device=emulated", "--ascend-emulate=fault=gelu-by-sigmoid")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["failed *curve: first wrong at step 1, loss; curve*losses*"])
    assert "first wrong at step 1, loss" in str(lines("record"))


HARD = """
import copy
import pytest, torch
from torch import nn
from torch.utils.checkpoint import checkpoint

class Block(nn.Module):
    def __init__(self, use_reentrant):
        super().__init__()
        self.shared, self.activation, self.norm = nn.Linear(8, 8), nn.ReLU(inplace=True), nn.LayerNorm(8)
        self.inner, self.use_reentrant = nn.Sequential(nn.Linear(8, 8), nn.GELU()), use_reentrant

    def forward(self, x):
        y = self.activation(self.shared(x))
        y = self.norm(self.shared(y) + x)
        return checkpoint(self.inner, y, use_reentrant=self.use_reentrant), {"hidden": y}

@pytest.mark.parametrize("use_reentrant", [False, True])
@pytest.mark.parametrize("autocast", [None, torch.bfloat16])
def test_hard(precision_compare, use_reentrant, autocast):
    torch.manual_seed(0)
    report = precision_compare.layers(Block(use_reentrant), torch.randn(16, 8, requires_grad=True), autocast=autocast)
    judged = {leaf.path for layer in report.layers for leaf in (layer.backward.leaves if layer.backward else ())}
    assert {"shared (call 2) backward['grad weight']", "norm backward['grad bias']",
            "inner.0 backward['grad weight']", "shared backward['grad_input[0]']"} <= judged
    assert "inner.1" in "\\n".join(report.table())

class Rewritten(nn.Module):
    def __init__(self, original):
        super().__init__()
        self.up, self.act, self.down = copy.deepcopy(original[0]), nn.Mish(), copy.deepcopy(original[2])

    def forward(self, x):
        return self.down(self.act(self.up(x)))

def test_rewritten(precision_compare):
    torch.manual_seed(0)
    original = nn.Sequential(nn.Linear(8, 16), nn.Mish(), nn.Linear(16, 4))
    names = {"up": "0", "act": "1", "down": "2"}
    report = precision_compare.models(Rewritten(original), original, torch.randn(4, 8), names=names)
    assert [layer.label for layer in report.layers] == ["up = 0", "act = 1", "down = 2"]
    other = copy.deepcopy(original)
    other[2].weight.data[1, 2] += 1e-3
    with pytest.raises(AssertionError, match="first wrong layer: down = 2"):
        precision_compare.models(Rewritten(other), original, torch.randn(4, 8), names=names)
"""


def test_models_of_every_kind_are_judged_on_the_device(ascend_apart: Run, pytester: pytest.Pytester) -> None:
    pytester.makepyfile(HARD)
    result = ascend_apart("--ascend-device=emulated", "-p", "no:cacheprovider")
    result.assert_outcomes(passed=3)  # test_rewritten catches its disagreement: pytest decides
    result.stdout.fnmatch_lines(
        ["1 not judged, 2 waived, 2 passed", "known: 2 cases: 2 gelu-by-tanh"]
    )  # in float32, judged by CANN's formula


OPERATOR = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up = torch.nn.Linear(8, 8)

    def forward(self, x):
        return torch.exp(self.up(x)).mean(-1)

def test_module(precision_compare):
    torch.manual_seed(0)
    precision_compare.module(Net(), torch.linspace(-1, 1, 256).reshape(32, 8))
"""


def test_a_module_is_judged_in_one_line_and_the_first_wrong_operator_is_named(
    ascend: Run, ascend_apart: Run, pytester: pytest.Pytester
) -> None:
    pytester.makepyfile(OPERATOR)
    ascend().assert_outcomes(passed=1)
    result = ascend_apart("--ascend-device=emulated", "--ascend-emulate=fault=exp-by-polynomial")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*first wrong layer: (model) (Net)*", "*operator that is wrong by itself: aten.exp*"])


REFERENCE_RUN = """
import pytest
import torch
from tests.architectures import decoder, decoder_inputs, experts, experts_inputs

@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_decoder_with_its_cache(precision_compare, dtype):
    precision_compare.module(decoder().to(dtype), **decoder_inputs())

def test_experts_under_autocast(precision_compare):
    precision_compare.module(experts(), experts_inputs(), autocast=torch.bfloat16)
    precision_compare.layers(experts(), experts_inputs(), autocast=torch.bfloat16)
"""


@pytest.mark.drawn(1)
@pytest.mark.parametrize("seed", [1, 2])
def test_models_that_a_chip_computes_in_an_order_of_its_own_are_not_accused(
    ascend_apart: Run, pytester: pytest.Pytester, seed: int
) -> None:
    pytester.makepyfile(REFERENCE_RUN)
    result = ascend_apart("--ascend-device=emulated", f"--ascend-emulate=numerics=chip:{seed}")
    result.assert_outcomes(passed=3)


TRANSFORMERS = """
import torch

def test_bert(precision_compare, npu_device, cpu_reference):
    from transformers import LlamaConfig, LlamaForCausalLM
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(vocab_size=99, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
                                         num_attention_heads=4, max_position_embeddings=64)).eval()
    words = torch.randint(1, 99, (2, 12))
    expected = cpu_reference(model, input_ids=words, labels=words)
    actual = model.to(npu_device)(input_ids=words.to(npu_device), labels=words.to(npu_device))
    precision_compare(actual, expected)
    precision_compare(actual.logits, expected.logits)
    precision_compare.layers(model.cpu(), input_ids=words)
"""


@pytest.mark.skipif(not importlib.util.find_spec("transformers"), reason="needs the extra models")
def test_a_model_of_transformers_with_its_cache_is_judged_where_torch_npu_has_no_cann(
    ascend_apart: Run, pytester: pytest.Pytester
) -> None:
    pytester.makepyfile(TRANSFORMERS)
    ascend_apart("--ascend-device=cpu").assert_outcomes(passed=1)
