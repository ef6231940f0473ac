"""One pass of a model, forwards and backwards, of which everything is kept: logits, loss, layers, gradients."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from torch import Tensor, nn

from pytest_ascend.parity.ensemble import MOVED_BY, Observed, Reference, move, products_in_float32
from pytest_ascend.parity.steps import fingerprint, fingerprints

from .computation import MODES as WITH_GOLDENS
from .computation import Mode, make
from .goldens import CPU
from .variants import Variant
from .weights import images, targets

MODES: Mapping[str, Mode] = {
    **WITH_GOLDENS,
    "bfloat16": Mode(dtype=torch.bfloat16),
    "float16": Mode(dtype=torch.float16),
}

#: What the loss is multiplied by before the way back, so that float16 holds the gradients: a power of two.
SCALE = 1024.0
#: Reference runs from moved weights, beside the usual one.
MOVES = 2


@cache
def weights_of(name: str) -> nn.Module:
    """Make a model once, in float32, of weights that float16 and bfloat16 hold exactly: one float64 result serves all.

    Nobody may change it.
    """
    model = make(name, MODES["float32"], CPU)
    with torch.no_grad():
        for each in (*model.parameters(), *model.buffers()):
            if each.is_floating_point():
                each.copy_(short(each))
    return model


def short(tensor: Tensor) -> Tensor:
    """Round to numbers that float16 and bfloat16 both have."""
    return tensor.bfloat16().half().float()


def strided(tensor: Tensor) -> Tensor:
    """Return a tensor of four dimensions with channels innermost in memory, without asking for a memory format.

    torch_npu refuses ``memory_format=torch.channels_last``; tensors that come so from elsewhere it has to take.
    """
    return tensor.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2) if tensor.dim() == 4 else tensor


def one_pass(variant: Variant, model: nn.Module, device: torch.device) -> Observed:
    """Go through ``model`` once and back, and give "forward", "loss", "layers" and "gradients"; it is changed.

    It computes in the dtype of its parameters; "layers" has fingerprints of what every module gave, in the order in
    which they ended.
    """
    mode = MODES[variant.mode]
    dtype = next(model.parameters()).dtype
    autocast = Mode(dtype=dtype, autocast=None if dtype is torch.float64 else mode.autocast)
    model.to(device).train(variant.training)
    x = short(images(variant.batch)).to(device=device, dtype=dtype)
    if variant.channels_last:
        x = strided(x)
        for each in model.parameters():
            each.data = strided(each.data)
    layers: dict[str, Tensor] = {}
    for name, module in model.named_modules():
        module.register_forward_hook(_keeping(layers, name or "(model)"))
    with autocast.context(device.type):
        logits = model(x)
    wide = logits if logits.dtype is torch.float64 else logits.float()
    loss = F.cross_entropy(wide, targets(variant.batch).to(device))
    torch.autograd.backward(loss * SCALE)
    gradients = {name: each.grad for name, each in model.named_parameters() if each.grad is not None}
    return {
        "forward": {"logits": logits.detach().cpu()},
        "top five": {"classes": logits.detach().topk(5).indices.cpu()},
        "loss": {"loss": loss.detach().cpu()},
        "layers": layers,
        "gradients": fingerprints(gradients),
    }


def _keeping(kept: dict[str, Tensor], name: str) -> Callable[[nn.Module, Any, Tensor], None]:
    def keep(_module: nn.Module, _args: Any, output: Tensor) -> None:
        # A module that is called again, as a block's ReLU, has a line for each call.
        number = sum(each == name or each.startswith(f"{name} (call ") for each in kept) + 1
        kept[name if number == 1 else f"{name} (call {number})"] = fingerprint(output)

    return keep


@cache
def exact(model: str, batch: int, training: bool) -> Observed:
    """Return what is right of a pass, in float64: the same for every dtype and layout."""
    variant = Variant(model, "float64", batch, training, channels_last=False)
    return one_pass(variant, copied(variant), CPU)


#: Models that do the same in training as in evaluation: one float64 result serves both.
ALIKE = {"vit_b_16"}
#: Models of which every layer is computed otherwise in the other layout.
CONVOLUTIONAL = {"resnet50"}


def right(variant: Variant) -> Reference:
    """Return what is right of a variant, and reference runs of the CPU in its mode.

    They are the usual one, some from moved weights, and of a convolutional network the one of the other layout: other
    kernels, which add up in another order. That says more of the first layers, before which nothing is moved yet.
    """
    by, other = MOVED_BY[MODES[variant.mode].autocast], replace(variant, channels_last=not variant.channels_last)
    ways = [(variant, copied(variant))]
    ways += [(variant, move(copied(variant), f"move {number}", by)) for number in range(MOVES)]
    ways += [(other, copied(variant))] if variant.model in CONVOLUTIONAL else []
    with products_in_float32():
        reference_runs = tuple(one_pass(way, model, CPU) for way, model in ways)
    return Reference(exact(variant.model, variant.batch, variant.training or variant.model in ALIKE), reference_runs)


def copied(variant: Variant) -> nn.Module:
    """Return a copy of the variant's model on the CPU, in the dtype of its mode."""
    return copy.deepcopy(weights_of(variant.model)).to(MODES[variant.mode].dtype)
