"""Input pipelines, and augmentation of images (N, 3, H, W) with values in [0, 1].

In a pipeline, tensors depend only on the sample, not on workers or their number. Augmentation is defined as in
torchvision.transforms.v2, but in plain torch: the same code runs on a device and, as the float64 reference, on the CPU.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, RandomSampler

from pytest_ascend.run import inputs

SAMPLES, SIDE, BATCH, EPOCHS = 26, 20, 4, 2
#: Offset of each sample's seed, and the seed of the order.
SEED = 2_147_483_659
#: Settings of a DataLoader, by the name of a case.
WORKERS: Mapping[str, Mapping[str, Any]] = {
    **{f"workers-{count}": {"num_workers": count} for count in (0, 1, 2, 4)},
    "workers-2-persistent": {"num_workers": 2, "persistent_workers": True},
    "workers-2-pinned": {"num_workers": 2, "pin_memory": True},
}


class Augmented(Dataset[Tensor]):
    """Images (3, 16, 16), flipped, cropped, brightened and with noise, each by the generator of its sample."""

    def __len__(self) -> int:
        return SAMPLES

    def generator(self, index: int) -> torch.Generator:
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
    return RandomSampler(range(SAMPLES), generator=torch.Generator().manual_seed(SEED))


def epochs(data: Dataset[Tensor], workers: Mapping[str, Any], device: torch.device) -> dict[str, Tensor]:
    """Return each epoch's samples, sent to the device and back to the CPU: (SAMPLES, 3, 16, 16) by name.

    The sampler has a generator of its own. A generator shared with the loader would also supply the workers' seeds,
    less often with persistent workers, which would change the order from the second epoch on.
    """
    forks: dict[str, Any] = {"multiprocessing_context": "fork"} if workers["num_workers"] else {}
    loader = DataLoader(data, BATCH, sampler=shuffled(), **workers, **forks)
    return collected(loader, device, non_blocking=workers.get("pin_memory", False))


def collected(loader: DataLoader[Tensor], device: torch.device, *, non_blocking: bool = False) -> dict[str, Tensor]:
    found = [[batch.to(device, non_blocking=non_blocking) for batch in loader] for _ in range(EPOCHS)]
    return {f"epoch {epoch}": torch.cat([batch.cpu() for batch in each]) for epoch, each in enumerate(found)}


def expected(data: Callable[[int], Tensor]) -> dict[str, Tensor]:
    order = shuffled()
    return {f"epoch {epoch}": torch.stack([data(index) for index in order]) for epoch in range(EPOCHS)}


def bits(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.view(torch.int32) for name, tensor in tensors.items()}


#: Mean and standard deviation of ImageNet's channels.
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def _channels(values: tuple[float, ...], like: Tensor) -> Tensor:
    return torch.tensor(values, dtype=like.dtype, device=like.device)[:, None, None]


def _warped(x: Tensor, matrix: tuple[tuple[float, ...], ...]) -> Tensor:
    theta = torch.tensor(matrix, dtype=x.dtype, device=x.device).expand(len(x), 2, 3)
    grid = F.affine_grid(theta, list(x.shape), align_corners=False)
    return F.grid_sample(x, grid, mode="bilinear", padding_mode="zeros", align_corners=False)


def rotation(x: Tensor) -> Tensor:
    """Rotate by 30 degrees about the centre, with bilinear interpolation and zeros outside."""
    cos, sin = math.cos(math.radians(30)), math.sin(math.radians(30))
    return _warped(x, ((cos, sin, 0.0), (-sin, cos, 0.0)))


def _blended(first: Tensor, second: Tensor, share: float) -> Tensor:
    return (share * first + (1 - share) * second).clamp(0, 1)


def _grey(x: Tensor) -> Tensor:
    """Add red, green and blue with the weights of ITU-R BT.601."""
    return (x * _channels((0.2989, 0.587, 0.114), x)).sum(1, keepdim=True)


def hue(x: Tensor, shift: float = 0.15) -> Tensor:
    """Rotate the hue of each pixel by a share of the circle; value and saturation of HSV do not change."""
    red, green, blue = x.unbind(1)
    value, chroma = x.amax(1), x.amax(1) - x.amin(1)
    divisor = torch.where(chroma == 0, torch.ones_like(chroma), chroma)  # grey has no hue and stays grey
    others = torch.where(value == green, (blue - red) / divisor + 2, (red - green) / divisor + 4)
    sixths = torch.where(value == red, (green - blue) / divisor, others)
    # A channel equals the value within a sixth of its own hue and drops by the chroma from two sixths on.
    turned = ((sixths + 6 * shift + place).remainder(6) for place in (5, 3, 1))
    channels = [value - chroma * torch.minimum(each, 4 - each).clamp(0, 1) for each in turned]
    return torch.stack(channels, 1)


def gaussian_blur(x: Tensor, size: int = 5, sigma: float = 1.2) -> Tensor:
    places = torch.linspace(-(size - 1) / 2, (size - 1) / 2, size, dtype=x.dtype, device=x.device)
    weights = torch.exp(-0.5 * (places / sigma) ** 2)
    weights = weights / weights.sum()
    kernel = torch.outer(weights, weights).expand(3, 1, size, size)
    return F.conv2d(F.pad(x, [size // 2] * 4, mode="reflect"), kernel, groups=3)


AUGMENT: Mapping[str, Callable[[Tensor], Tensor]] = {
    "horizontal-flip": lambda x: x.flip(-1),
    "vertical-flip": lambda x: x.flip(-2),
    "rotation": rotation,
    "affine": lambda x: _warped(x, ((1.25, 0.2, 0.1), (0.0, 1.25, -0.2))),
    "brightness": lambda x: (1.3 * x).clamp(0, 1),
    "contrast": lambda x: _blended(x, _grey(x).mean((1, 2, 3), keepdim=True), 1.4),
    "saturation": lambda x: _blended(x, _grey(x), 0.6),
    "hue": hue,
    "gaussian-blur": gaussian_blur,
    "normalise": lambda x: (x - _channels(MEAN, x)) / _channels(STD, x),
    "resize": lambda x: F.interpolate(x, size=(24, 20), mode="bilinear", align_corners=False),
    "centre-crop": lambda x: x[..., 4:28, 6:26],
}
