"""An input pipeline whose tensors depend on the sample alone, whichever worker makes it, and however many there are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, RandomSampler

from pytest_ascend.run import inputs

SAMPLES, SIDE, BATCH, EPOCHS = 26, 20, 4, 2
#: Added to a sample's number, and the seed of the order.
SEED = 2_147_483_659


@dataclass(frozen=True, slots=True)
class Workers:
    """Settings of a DataLoader: processes that make samples, and whether they live on from epoch to epoch."""

    count: int
    persistent: bool = False
    pinned: bool = False


#: By the name of a case.
WORKERS: Mapping[str, Workers] = {
    "workers-0": Workers(0),
    "workers-1": Workers(1),
    "workers-2": Workers(2),
    "workers-4": Workers(4),
    "workers-2-persistent": Workers(2, persistent=True),
    "workers-2-pinned": Workers(2, pinned=True),
}


class Augmented(Dataset[Tensor]):
    """Images (3, 16, 16), flipped, cropped, brightened and made noisy by numbers that are drawn for each sample."""

    def __len__(self) -> int:
        return SAMPLES

    def generator(self, index: int) -> torch.Generator:
        """Return what the numbers of a sample are drawn from."""
        return torch.Generator().manual_seed(SEED + index)

    def __getitem__(self, index: int) -> Tensor:
        drawn = self.generator(index)
        image = inputs.uniform(f"adaptation/pipeline/{index}", (3, SIDE, SIDE), low=0.0, high=1.0)
        if torch.rand((), generator=drawn) < 0.5:
            image = image.flip(-1)
        top, left = torch.randint(SIDE - 16 + 1, (2,), generator=drawn).tolist()
        image = image[:, top : top + 16, left : left + 16]
        noise = 0.01 * torch.randn(image.shape, generator=drawn)
        brightness = 0.8 + 0.4 * torch.rand((), generator=drawn)
        return (brightness * image + noise).clamp(0, 1)


def shuffled() -> RandomSampler:
    """Return the order of the samples, another one in each epoch."""
    return RandomSampler(range(SAMPLES), generator=torch.Generator().manual_seed(SEED))


def epochs(data: Dataset[Tensor], workers: Workers, device: torch.device) -> dict[str, Tensor]:
    """Return the samples of each epoch as they come to the device, back on the CPU: (SAMPLES, 3, 16, 16) by its name.

    The order is drawn from a generator of the sampler's own. One that the loader has too is also drawn from for the
    seeds of workers, and with persistent workers less often: from the second epoch on the order would be another.
    """
    loader = DataLoader(
        data,
        batch_size=BATCH,
        sampler=shuffled(),
        num_workers=workers.count,
        persistent_workers=workers.persistent,
        pin_memory=workers.pinned,
        multiprocessing_context="fork" if workers.count else None,
    )
    return collected(loader, device, non_blocking=workers.pinned)


def collected(loader: DataLoader[Tensor], device: torch.device, *, non_blocking: bool = False) -> dict[str, Tensor]:
    """Read some epochs, each batch by way of the device."""
    found = {}
    for epoch in range(EPOCHS):
        batches = [batch.to(device, non_blocking=non_blocking) for batch in loader]
        found[f"epoch {epoch}"] = torch.cat([batch.cpu() for batch in batches])
    return found


def expected(data: Callable[[int], Tensor]) -> dict[str, Tensor]:
    """Return the same without a DataLoader: sample by sample, in the order of the sampler."""
    order = shuffled()
    return {f"epoch {epoch}": torch.stack([data(index) for index in order]) for epoch in range(EPOCHS)}


def bits(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return float32 as integers of the same bits, which agree only where they are equal."""
    return {name: tensor.view(torch.int32) for name, tensor in tensors.items()}
