"""What is timed besides operators: ResNet50 and ViT-B/16, copies, input pipelines, augmentation, and optimizers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from pytest_ascend.device import npu
from pytest_ascend.performance.timing import Call
from pytest_ascend.precision.capture import casting

from ..models.architectures import VisionTransformer
from ..models.computation import MODELS, Mode, Prepare, empty, images, preserve_layout, targets
from .sizes import Sizes

MIB = 2**20


def copied(size_bytes: int, way: str, memory: str, device: torch.device) -> Call:
    """Prepare a copy of float32 numbers to or from the device, with pinned or pageable host memory."""
    host = torch.ones(size_bytes // 4)
    if memory == "pinned" and device.type != "cpu":
        host = host.pin_memory()
    there = host.to(device, copy=True)
    return (lambda: there.copy_(host)) if way == "to" else (lambda: host.copy_(there))


#: Size in bytes, direction and kind of memory.
COPIES = {
    f"{way}-device-{size}-{memory}": (size_bytes, way, memory)
    for size_bytes, size in ((4 * 1024, "4KiB"), (MIB, "1MiB"), (16 * MIB, "16MiB"))
    for way in ("to", "from")
    for memory in ("pinned", "pageable")
}

#: Kind of optimizer and its implementation: a loop over parameters, torch's foreach, or one torch_npu operator.
OPTIMIZERS: Mapping[str, tuple[type[torch.optim.Optimizer], str]] = {
    f"{kind.__name__.lower()}-{way}": (kind, way)
    for kind in (torch.optim.SGD, torch.optim.AdamW)
    for way in ("loop", "foreach", "fused")
}


def stepped(kind: Callable[..., torch.optim.Optimizer], way: str, device: torch.device) -> Call:
    parameters = [nn.Parameter(torch.ones(128, 128, device=device)) for _ in range(64)]
    for parameter in parameters:
        parameter.grad = torch.full_like(parameter, 1e-3)
    # The CPU, for comparison, does the same work with torch's implementation.
    if way == "fused" and device.type != "cpu":
        return npu.optimizer(f"NpuFused{kind.__name__}")(parameters, lr=1e-3).step  # type: ignore[no-any-return]
    return kind(parameters, lr=1e-3, foreach=way != "loop").step


#: Settings of a DataLoader: workers, pinned memory, batches prefetched per worker, batch size.
PIPELINES = ((0, False, 2, 16), (0, False, 2, 64), (2, False, 2, 16), (2, False, 4, 64), (2, True, 2, 64))


def loaded(device: torch.device, count: int, workers: int, pinned: bool, ahead: int, batch: int) -> Iterator[Tensor]:
    data, factor = TensorDataset(torch.ones(count, 3, 64, 64)), ahead if workers else None
    for (each,) in DataLoader(data, batch, num_workers=workers, pin_memory=pinned, prefetch_factor=factor):
        yield each.to(device, non_blocking=pinned)


def augmentation(batch: int, device: torch.device) -> Call:
    images = torch.rand(batch, 3, 128, 128).to(device)
    channels = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    mean, std = (torch.tensor(each).view(3, 1, 1).to(device) for each in channels)
    kernel = torch.full((3, 1, 3, 3), 1 / 9).to(device)

    def call() -> Tensor:
        x = images.flip(-1)[..., 8:120, 8:120]
        x = F.interpolate(x, size=(96, 96), mode="bilinear", align_corners=False)
        x = F.conv2d((x * 1.1).clamp(0, 1), kernel, padding=1, groups=3)
        return (x - mean) / std

    return call


# --- models: an inference or a training step, in a dtype or under autocast ---


def model_of(name: str, sizes: Sizes) -> nn.Module:
    """Return the model with arbitrary weights, which do not affect its speed."""
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


def inference(
    name: str, mode: Mode, sizes: Sizes, batch: int, device: torch.device, prepare: Prepare = preserve_layout
) -> Call:
    model = prepare(model_of(name, sizes).eval().to(device=device, dtype=mode.dtype))
    x = batch_of(name, sizes, batch).to(device=device, dtype=mode.dtype)

    def call() -> Tensor:
        with torch.no_grad(), casting(device.type, mode.autocast):
            logits: Tensor = model(x)
        return logits

    return call


def training(name: str, mode: Mode, sizes: Sizes, batch: int, device: torch.device) -> Call:
    model = model_of(name, sizes).train().to(device=device, dtype=mode.dtype)
    x, y = batch_of(name, sizes, batch).to(device=device, dtype=mode.dtype), targets(batch).to(device)
    optimizer = MODELS[name].optimizer(model.parameters())

    def call() -> None:
        optimizer.zero_grad()
        with casting(device.type, mode.autocast):
            loss = F.cross_entropy(model(x).float(), y)
        torch.autograd.backward(loss)
        optimizer.step()

    return call


WORKS = {"inference": inference, "training-step": training}
