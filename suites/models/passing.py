"""One forward and backward pass of a model with all intermediate results: logits, loss, layers, gradients."""

from __future__ import annotations

import copy
from dataclasses import replace
from functools import cache, partial
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from torch import Tensor, nn

from pytest_ascend.operators.calling import channels_last
from pytest_ascend.parity.ensemble import PERTURBATIONS, Observed, Reference, fingerprint, fingerprints, move
from pytest_ascend.precision.capture import casting
from pytest_ascend.precision.kernel_fallbacks import once, products_in_float32

from .computation import MODES, at_least_float32, images, make, targets
from .goldens import CPU
from .variants import Variant

#: The loss scale of the backward pass, so that float16 holds the gradients: a power of two.
SCALE = 1024.0
#: Reference runs with moved weights, in addition to the usual one.
MOVES = 2


@cache
def weights_of(name: str) -> nn.Module:
    """Return a model, not to be changed, with weights exact in both halves: one float64 result serves all."""
    model = make(name, MODES["float32"], CPU)
    with torch.no_grad():
        for each in (*model.parameters(), *model.buffers()):
            if each.is_floating_point():
                each.copy_(short(each))
    return model


def short(tensor: Tensor) -> Tensor:
    """Round to numbers that are exact in both float16 and bfloat16."""
    return tensor.bfloat16().half().float()


def one_pass(variant: Variant, model: nn.Module, device: torch.device) -> Observed:
    """Run ``model`` forward and backward; return "forward", "loss", "layers" and "gradients". The model is changed.

    It computes in its parameters' dtype; "layers" has fingerprints of every module's output, in order of completion.
    """
    dtype = next(model.parameters()).dtype
    autocast = None if dtype is torch.float64 else MODES[variant.mode].autocast
    model.to(device).train(variant.training)
    x = short(images(variant.batch)).to(device=device, dtype=dtype)
    if variant.channels_last:
        x = channels_last(x, device)
        for each in model.parameters():
            each.data = channels_last(each.data, device)
    layers: dict[str, Tensor] = {}
    for name, module in model.named_modules():
        module.register_forward_hook(partial(_keep, layers, name or "(model)"))
    with casting(device.type, autocast):
        logits = model(x)
    loss = F.cross_entropy(at_least_float32(logits), targets(variant.batch).to(device))
    torch.autograd.backward(loss * SCALE)
    gradients = {name: each.grad for name, each in model.named_parameters() if each.grad is not None}
    return {
        "forward": {"logits": logits.detach().cpu()},
        "top five": {"classes": logits.detach().topk(5).indices.cpu()},
        "loss": {"loss": loss.detach().cpu()},
        "layers": layers,
        "gradients": fingerprints(gradients),
    }


def _keep(kept: dict[str, Tensor], name: str, _module: nn.Module, _args: Any, output: Tensor) -> None:
    # A module called several times, such as a block's ReLU, has one entry per call.
    number = sum(each == name or each.startswith(f"{name} (call ") for each in kept) + 1
    kept[name if number == 1 else f"{name} (call {number})"] = fingerprint(output)


@once
def exact(model: str, batch: int, training: bool) -> Observed:
    """Return the exact results of a pass, in float64: the same for every dtype and layout."""
    variant = Variant(model, "float64", batch, training, channels_last=False)
    return one_pass(variant, copied(variant), CPU)


#: Models that behave the same in training and evaluation: one float64 result serves both.
ALIKE = {"vit_b_16"}


@once
def right(variant: Variant) -> Reference:
    """Return the exact results of a variant, and reference runs of the CPU in its mode.

    The runs are the usual one, some with moved weights, and for ResNet-50 one in the other layout: all its layers then
    use other kernels, which sum in another order. That adds information on the first layers, where moved weights have
    little effect yet.
    """
    by, other = PERTURBATIONS[MODES[variant.mode].autocast], replace(variant, channels_last=not variant.channels_last)
    ways = [(variant, copied(variant))]
    ways += [(variant, move(copied(variant), f"move {number}", by)) for number in range(MOVES)]
    ways += [(other, copied(variant))] if variant.model == "resnet50" else []
    with products_in_float32():
        reference_runs = tuple(one_pass(way, model, CPU) for way, model in ways)
    return Reference(exact(variant.model, variant.batch, variant.training or variant.model in ALIKE), reference_runs)


def copied(variant: Variant) -> nn.Module:
    return copy.deepcopy(weights_of(variant.model)).to(MODES[variant.mode].dtype)
