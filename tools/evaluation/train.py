"""A training by DistributedDataParallel, correct or with one mistake that people make: python train.py MISTAKE."""

from __future__ import annotations

import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

MISTAKE = sys.argv[1] if len(sys.argv) > 1 else ""
RANK, RANKS = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
IS_NPU = os.environ.get("PYTEST_ASCEND_EMULATED") == "1"
DEVICE = torch.device("npu", RANK) if IS_NPU else torch.device("cpu")


class Model(nn.Module):
    """Layers of each kind that a mistake is about."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(16, 64), nn.Linear(64, 4)
        self.middle: nn.Module = nn.BatchNorm1d(64) if "batch" in MISTAKE or "buffer" in MISTAKE else nn.LayerNorm(64)
        self.dropout = nn.Dropout(0.1 if IS_NPU else 0.0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return logits (batch, 4)."""
        return self.second(self.dropout(torch.relu(self.middle(self.first(x)))))


def wrapped() -> nn.Module:
    """Return the model as it is trained."""
    torch.manual_seed(0)
    model = Model().to(DEVICE)
    if MISTAKE == "not-wrapped":
        return model
    if MISTAKE == "frozen":
        model.second.bias.requires_grad_(False)
    if MISTAKE == "sync-batch-norm":
        model = nn.SyncBatchNorm.convert_sync_batchnorm(model)
    ddp = nn.parallel.DistributedDataParallel(model, broadcast_buffers=MISTAKE != "buffers")
    model.second.bias.requires_grad_(True)
    if MISTAKE == "half":
        ddp.register_comm_hook(None, default_hooks.fp16_compress_hook)
    return ddp


def main() -> None:
    """Train for a few epochs."""
    if IS_NPU:
        torch.npu.set_device(RANK)
    dist.init_process_group("hccl" if IS_NPU else "gloo")
    model = wrapped()
    torch.manual_seed(1 if MISTAKE == "seeds" else 1 + RANK)
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    generator = torch.Generator().manual_seed(2)
    data = TensorDataset(torch.randn(250, 16, generator=generator), torch.randint(0, 4, (250,), generator=generator))
    overlaps = MISTAKE in ("overlap", "same-data")
    ranks, rank = (1 if MISTAKE == "same-data" else RANKS), (0 if overlaps else RANK)
    sampler = DistributedSampler(data, ranks, rank, seed=3)
    batches = DataLoader(data, 16, sampler=sampler)
    for epoch in range(2):
        if MISTAKE != "epoch":
            sampler.set_epoch(epoch)
        for index, (x, y) in enumerate(batches):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x.to(DEVICE)), y.to(DEVICE))
            loss.backward()
            if MISTAKE == "sum":
                for each in model.parameters():
                    each.grad.mul_(RANKS)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0 if MISTAKE == "clip" else 1e9)
            if MISTAKE == "skipped" and RANK == 1 and (epoch, index) == (0, 3):
                continue
            optimizer.step()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
