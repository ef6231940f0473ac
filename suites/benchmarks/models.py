"""ResNet50 and ViT-B/16 as benchmarks: an inference or a training step, in a dtype or under autocast."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from torch import Tensor, nn

from pytest_ascend.performance.timing import Call

from ..models.architectures import VisionTransformer
from ..models.computation import MODELS, Mode, empty, images, targets
from .sizes import Sizes

#: Modes of computing, by the dtype name of the case.
MODES: Mapping[str, Mode] = {
    "float32": Mode(dtype=torch.float32),
    "bfloat16": Mode(dtype=torch.bfloat16),
    "autocast-bfloat16": Mode(dtype=torch.float32, autocast=torch.bfloat16),
}


def model_of(name: str, sizes: Sizes) -> nn.Module:
    """Return the model with new weights, which do not affect its speed."""
    torch.manual_seed(0)
    model = empty(name)
    if isinstance(model, VisionTransformer):
        layers: nn.Sequential = model.encoder.layers
        del layers[sizes.layers :]
    model.to_empty(device="cpu")
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.02)
    for buffer in model.buffers():  # running statistics
        nn.init.ones_(buffer)
    return model


def batch_of(name: str, sizes: Sizes, batch: int) -> Tensor:
    return images(batch, 224 if name == "vit_b_16" else sizes.pixels)


def inference(name: str, mode: Mode, sizes: Sizes, batch: int) -> Callable[[torch.device], Call]:
    def prepared(device: torch.device) -> Call:
        model = model_of(name, sizes).eval().to(device=device, dtype=mode.dtype)
        x = batch_of(name, sizes, batch).to(device=device, dtype=mode.dtype)

        def call() -> Tensor:
            with torch.no_grad(), mode.context(device.type):
                logits: Tensor = model(x)
            return logits

        return call

    return prepared


def training(name: str, mode: Mode, sizes: Sizes, batch: int) -> Callable[[torch.device], Call]:
    def prepared(device: torch.device) -> Call:
        model = model_of(name, sizes).train().to(device=device, dtype=mode.dtype)
        x = batch_of(name, sizes, batch).to(device=device, dtype=mode.dtype)
        y = targets(batch).to(device)
        optimizer = MODELS[name].optimizer(model.parameters())

        def call() -> None:
            optimizer.zero_grad()
            with mode.context(device.type):
                loss = F.cross_entropy(model(x).float(), y)
            torch.autograd.backward(loss)
            optimizer.step()

        return call

    return prepared


WORKS = {"inference": inference, "training-step": training}
