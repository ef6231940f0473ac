"""A training program as written for CUDA, without any NPU code: ``transfer_to_npu`` has to make it run."""

from __future__ import annotations

import json
import sys

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from torch import Tensor, nn

STEPS = 10


def make_model() -> nn.Module:
    model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.SiLU(), nn.Flatten(), nn.Linear(8 * 64, 5))
    with torch.no_grad():
        for place, parameter in enumerate(model.parameters()):
            values = torch.arange(parameter.numel(), dtype=torch.float64)
            parameter.copy_((0.1 * torch.sin(values * (1.7 + place))).reshape(parameter.shape))
    return model


def make_batch() -> tuple[Tensor, Tensor]:
    values = torch.arange(4 * 3 * 64, dtype=torch.float64)
    return torch.cos(values * 0.37).reshape(4, 3, 8, 8).float(), torch.tensor([0, 3, 1, 4])


def train(model: nn.Module, images: Tensor, targets: Tensor) -> list[float]:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images), targets)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        losses.append(loss.item())
    return losses


def main() -> None:
    if not torch.cuda.is_available():
        raise SystemExit("no CUDA device")
    torch.cuda.set_device(0)
    device = torch.device("cuda:0")
    images, targets = make_batch()
    losses = train(make_model().cuda(), images.to(device), targets.to("cuda", non_blocking=True))
    torch.cuda.synchronize()
    sys.stdout.write(f"\nlosses: {json.dumps(losses)}\n")


if __name__ == "__main__":
    main()
