"""Commonly fused patterns, equivalent forms with fewer or cheaper kernels, and their cases."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from pytest_ascend.device import npu
from pytest_ascend.operators.calling import tensors
from pytest_ascend.precision import Samples
from pytest_ascend.records.case import Case
from pytest_ascend.run import inputs

from ..programs.parts import Of

CHANNELS, SIDE, WIDTH, TOKENS, HEADS, DEPTH = 64, 28, 768, 197, 12, 64


def _attended(_layers: nn.Module, x: Tensor) -> Tensor:
    """Map queries, keys, values (N, 3, heads, tokens, depth) to (N, heads, tokens, depth), with two products."""
    q, k, v = x.unbind(1)
    mixed: Tensor = (q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])).softmax(-1) @ v
    return mixed


class Form(NamedTuple):
    """A fused form: ``fuse`` makes it from a pattern's layers; ``everywhere`` if it needs no operator of torch_npu."""

    pattern: str
    fuse: Callable[[nn.Module], nn.Module]
    everywhere: bool = True


def _convolved(*rest: nn.Module) -> nn.Module:
    convolution = nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(CHANNELS), *rest)


#: A function that makes a pattern's layers, and the shape of a sample.
PATTERNS: Mapping[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "conv-bn": (_convolved, (CHANNELS, SIDE, SIDE)),
    "conv-bn-relu": (lambda: _convolved(nn.ReLU()), (CHANNELS, SIDE, SIDE)),
    "linear-relu": (lambda: nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU()), (TOKENS, WIDTH)),
    "layer-norm-gelu": (lambda: nn.Sequential(nn.LayerNorm(WIDTH), nn.GELU()), (TOKENS, WIDTH)),
    "attention": (lambda: Of(_attended, nn.Identity()), (3, HEADS, TOKENS, DEPTH)),
}


def drawn(name: str, count: int) -> tuple[nn.Module, Tensor]:
    """Return a pattern's layers (float32, CPU, evaluation mode) and ``count`` samples, both derived from its name."""
    layers, sample = PATTERNS[name]
    model = layers().eval()
    with torch.no_grad():
        for key, tensor in model.state_dict().items():
            if tensor.is_floating_point():
                is_factor = key.endswith("running_var") or (key.endswith("weight") and tensor.dim() == 1)
                reach = math.sqrt(3 / tensor[0].numel()) if tensor.dim() > 1 else 0.25
                low, high = (0.75, 1.25) if is_factor else (-reach, reach)
                tensor.copy_(inputs.uniform(f"fusion/{name}/{key}", tensor.shape, low=low, high=high))
    return model, inputs.normal(f"fusion/{name}/input", (count, *sample))


def _by(compute: Callable[[Any, Tensor], Tensor]) -> Callable[[nn.Module], nn.Module]:
    return lambda layers: Of(compute, copy.deepcopy(layers)).eval()


def _folded(layers: nn.Module) -> nn.Module:
    """Fold the normalisation into the convolution's weights; a ReLU then works in place."""
    convolution, norm, *rest = layers.children()
    assert isinstance(convolution, nn.Conv2d)
    assert isinstance(norm, nn.BatchNorm2d)
    return nn.Sequential(fuse_conv_bn_eval(convolution, norm), *(nn.ReLU(inplace=True) for _ in rest)).eval()


def _product_with_relu(layers: Any, x: Tensor) -> Tensor:
    rows, weight, bias = x.flatten(0, 1), layers[0].weight.t(), layers[0].bias
    made: Tensor = npu.operator("npu_fused_matmul")(rows, weight, bias=bias, fused_op_type="relu")
    return made.reshape(*x.shape[:2], -1)


def _normed_for_inference(layers: Any, x: Tensor) -> Tensor:
    norm = layers[0]
    return F.gelu(npu.operator("npu_layer_norm_eval")(x, [x.shape[-1]], norm.weight, norm.bias, 1e-5))


def _by_torch_npu(_layers: nn.Module, x: Tensor) -> Tensor:
    q, k, v = x.unbind(1)
    fused: Callable[..., tuple[Tensor, ...]] = npu.operator("npu_fusion_attention")
    return fused(q, k, v, q.shape[1], "BNSD", scale=1 / math.sqrt(q.shape[-1]))[0]


def numbers(form: Form, device: torch.device) -> tuple[Tensor, Tensor, Tensor, Samples]:
    """Return results of the form, its pattern and float64, with reference runs of every form the CPU supports."""
    (layers, x), cpu = drawn(form.pattern, 1), torch.device("cpu")
    fused, plain = _run(form.fuse(layers), x, device), _run(layers, x, device)
    known = [each.fuse(layers) for each in FORMS.values() if each.pattern == form.pattern and each.everywhere]
    reference_runs = Samples(_run(each, x, cpu) for each in (layers, *known))
    return fused, plain, _run(layers.double(), x.double(), cpu), reference_runs


def _run(model: nn.Module, x: Tensor, device: torch.device) -> Tensor:
    with torch.no_grad():
        return tensors(copy.deepcopy(model).to(device)(x.to(device)))[0].cpu()


#: By the name used in cases: the pattern and the function that fuses it.
FORMS: Mapping[str, Form] = {
    "conv-bn.folded": Form("conv-bn", _folded),
    "conv-bn-relu.folded": Form("conv-bn-relu", _folded),
    "linear-relu.in-place": Form("linear-relu", _by(lambda layers, x: layers[0](x).relu_())),
    "linear-relu.npu_fused_matmul": Form("linear-relu", _by(_product_with_relu), everywhere=False),
    "layer-norm-gelu.in-place": Form("layer-norm-gelu", _by(lambda layers, x: torch.ops.aten.gelu_(layers[0](x)))),
    "layer-norm-gelu.npu_layer_norm_eval": Form("layer-norm-gelu", _by(_normed_for_inference), everywhere=False),
    "attention.scaled_dot_product_attention": Form(
        "attention", _by(lambda _, x: F.scaled_dot_product_attention(x[:, 0], x[:, 1], x[:, 2]))
    ),
    "attention.npu_fusion_attention": Form("attention", _by(_by_torch_npu), everywhere=False),
}

#: Forms that need an operator not available on every chip.
OF_SOME_CHIPS = {"linear-relu.npu_fused_matmul"}
#: Level of each property.
PROPERTIES = {"precision": "standard", "time": "full", "memory": "full"}


def _case(name: str, property_: str, level: str) -> Case:
    level, family = "full" if name in OF_SOME_CHIPS else level, name.partition(".")[0]
    return Case(suite="fusion", subject=name, property=property_, dtype="float32", family=family, level=level)


CASES = tuple(_case(name, property_, level) for property_, level in PROPERTIES.items() for name in FORMS)
