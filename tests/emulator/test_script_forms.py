"""The judge's forms for scripts: ``precision.whole``, ``layers`` and ``models`` on an NPU with torch_npu's defaults."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from tests.forks import emulated

PROGRAM = """
import json, torch, torch_npu
from torch import nn
from pytest_ascend import precision
from pytest_ascend.run.reference import cpu_reference

torch.manual_seed(0)
model, x = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3)), torch.randn(2, 3, 12, 12)
whole = precision.whole(model, x, device="npu")
layers = precision.layers(model, x, device="npu")
models = precision.models(model, model, x, device="npu")
kept = torch.npu.conv.allow_hf32
wrong = precision.compare(model.npu()(x.npu()), cpu_reference(model.cpu(), x))
gelu, numbers = nn.functional.gelu, torch.randn(1000)
tanh = precision.compare(gelu(numbers, approximate="tanh"), cpu_reference(gelu, numbers))
on_cpu = precision.whole(model.cpu(), x)
torch.npu.conv.allow_hf32 = False
right = precision.compare(model.npu()(x.npu()), cpu_reference(model.cpu(), x))
again = precision.whole(model, x, device="npu")
print(json.dumps({
    "agree": [whole.agrees, layers.agrees, models.agrees, right.agrees, again.agrees],
    "said": [whole.headline, layers.note, models.note],
    "said again": again.headline,
    "kept": kept,
    "wrong": wrong.message,
    "tanh": tanh.message,
    "on the CPU": on_cpu.headline,
}))
"""


def test_a_convolution_is_judged_without_hf32_which_is_torch_npus_default(tmp_path: Path) -> None:
    found = json.loads(emulated(PROGRAM, tmp_path, numerics="chip:1").splitlines()[-1])
    assert found["agree"] == [True] * 5
    assert all("torch.npu.conv.allow_hf32 switched off" in each for each in found["said"])
    assert "hf32" not in found["said again"]
    assert found["kept"] is True
    assert "as of products in HF32: torch.npu.conv.allow_hf32 is on" in found["wrong"]
    assert "another formula?" in found["tanh"]
    assert "HF32" not in found["tanh"]
    assert found["on the CPU"] == "agrees"


INNER = """
import torch, torch_npu, transformers
from torch import nn
from pytest_ascend import precision

torch.manual_seed(0)
vision = transformers.CLIPVisionConfig(
    hidden_size=16, intermediate_size=24, num_hidden_layers=3, num_attention_heads=2, image_size=16, patch_size=8
)

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.tower, self.head = transformers.CLIPVisionModel(vision), nn.Linear(16, 2)

    def forward(self, pixels):
        return self.head(self.tower(pixels, output_hidden_states=True).hidden_states[-2])

report = precision.layers(Model(), torch.randn(2, 3, 16, 16), device="npu")
print(report.agrees, sum(layer.backward is not None for layer in report.layers) > 20)
"""


@pytest.mark.skipif(importlib.util.find_spec("transformers") is None, reason="transformers is not installed")
def test_hidden_states_of_transformers_accuse_nobody(tmp_path: Path) -> None:
    assert emulated(INNER, tmp_path).splitlines()[-1] == "True True"


ARGUMENTS = """
import json, torch, torch_npu
from torch import nn
from pytest_ascend import precision

class Part(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

class Made(Part):
    def forward(self, shape, device, dtype):
        return self.linear(torch.ones(shape, device=device, dtype=dtype))

class Given(Part):
    def forward(self, x, layer, kept, named):
        kept.append(self.linear(layer(x)))
        named["x"] = x
        return x

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.made, self.given, self.base, self.act = Made(), Given(), nn.Linear(4, 4), nn.GELU()

    def forward(self, x):
        kept, named = [], {}
        y = self.given(x, self.base, kept, named)
        return self.act(y + kept[0] + self.made(x.shape, x.device, x.dtype) + named["x"])

class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(2, 4, 4))

    def forward(self, x):
        if x.dtype is torch.float64:
            raise RuntimeError("Expected mat_a to be Float32, BFloat16 or Float16 matrix, got Double")
        return x @ self.weight[0]

torch.manual_seed(0)
model, x = Model(), torch.randn(3, 4)
found = {name: getattr(precision, name)(model, x, device="npu") for name in ("whole", "layers")}
found["models"] = precision.models(model, model, x, device="npu")
unjudged = precision.layers(nn.Sequential(nn.Linear(4, 4), Experts()), x, device="npu")
patched = nn.Sequential(nn.Linear(4, 4))
forward = patched[0].forward
patched[0].forward = lambda x: forward(x) * 2
try:
    precision.whole(patched, x, device="npu")
except Exception as error:
    refused = str(error)
print(json.dumps({
    "agree": [each.agrees for each in found.values()],
    "notes": [found["whole"].headline, found["layers"].note, found["models"].note],
    "judged": [layer.forward is not None for layer in found["layers"].layers],
    "gradients": [layer.backward is not None for layer in found["layers"].layers],
    "unjudged": next(iter(unjudged.explain())), "why": unjudged.layers[1].note,
    "refused": refused,
}))
"""


def test_modules_that_get_devices_dtypes_modules_and_lists_are_judged(tmp_path: Path) -> None:
    found = json.loads(emulated(ARGUMENTS, tmp_path).splitlines()[-1])
    assert found["agree"] == [True] * 3
    assert all("CANN's formula of GELU" in each for each in found["notes"])
    assert all(found["judged"])
    assert sum(found["gradients"]) == 4  # of modules with parameters or inputs of their own
    assert "all 1 layers agree, 2 more were not judged" in found["unjudged"]
    assert "cannot be repeated on the CPU (RuntimeError: Expected mat_a" in found["why"]
    assert "the forward of 0 was replaced" in found["refused"]
    assert "types.MethodType" in found["refused"]
