"""Weights that need no download and keep activations, statistics and gradients at moderate sizes.

Each tensor is a random stream of its own, keyed by model and name, so that it depends on no other tensor.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeAlias

import torch
from torch import Tensor, nn

from pytest_ascend.run import inputs

Shape = tuple[int, ...]
#: Makes a tensor of its key and shape.
Draw: TypeAlias = Callable[[str, Shape], Tensor]


def spread(low: float, high: float) -> Draw:
    """Sample uniformly from a range."""
    return lambda key, shape: inputs.uniform(key, shape, low=low, high=high)


def scaled(gain: float) -> Draw:
    """Sample approximately normally, so that the output's variance is ``gain`` times the input's mean square."""
    return lambda key, shape: inputs.normal(key, shape, std=math.sqrt(gain / math.prod(shape[1:])))


def centred(gain: float) -> Draw:
    """Sample as :func:`scaled`, with weights that sum to zero for each output.

    A ReLU's output is positive. Weights with another sum would pass its mean on from layer to layer, until all images
    look the same. The mean is subtracted in integers, so that the order of summation does not matter.
    """

    def draw(key: str, shape: Shape) -> Tensor:
        whole = inputs.normal(key, shape, std=inputs.STD_OF_SUM).to(torch.int64).flatten(1)
        whole -= whole.sum(1, keepdim=True).div(whole.shape[1], rounding_mode="floor")
        return (whole.float() * (math.sqrt(gain / whole.shape[1]) / inputs.STD_OF_SUM)).reshape(shape)

    return draw


def zero(_key: str, shape: Shape) -> Tensor:
    """Return zeros."""
    return torch.zeros(shape, dtype=torch.int64)


#: By model, what makes tensors whose name matches a pattern: the first one that does.
RULES: Mapping[str, tuple[tuple[str, Draw], ...]] = {
    "resnet50": (
        (r"num_batches_tracked$", zero),
        (r"running_mean$", spread(-0.1, 0.1)),
        (r"running_var$", spread(0.75, 1.25)),
        # Sixteen blocks add to their shortcuts; together they must not add much more than the image itself.
        (r"bn3\.weight$", spread(0.1, 0.2)),
        (r"(bn\d|downsample\.1)\.weight$", spread(0.75, 1.25)),
        # Few values near the kink of a ReLU: rounding across it changes gradients considerably.
        (r"bn[12]\.bias$", spread(0.5, 1.0)),
        (r"(bn3|downsample\.1)\.bias$", spread(0.0, 0.1)),
        (r"fc\.bias$", spread(-0.1, 0.1)),
        (r"fc\.weight$", centred(16.0)),
        (r"weight$", centred(3.0)),  # without its mean, a ReLU's output has about a third of the mean square
    ),
    "vit_b_16": (
        (r"(pos_embedding|class_token)$", partial(inputs.normal, std=0.25)),
        (r"ln(_\d)?\.weight$", spread(0.75, 1.25)),
        (r"bias$", spread(-0.1, 0.1)),
        (r"(out_proj|mlp\.3)\.weight$", scaled(0.5)),
        (r"weight$", scaled(1.0)),
    ),
}


def state(name: str, model: nn.Module) -> dict[str, Tensor]:
    """Return the state dictionary of the model ``name``, float32 on the CPU. Raises LookupError without a rule."""
    return {key: _draw(name, key, tuple(tensor.shape)) for key, tensor in model.state_dict().items()}


def _draw(name: str, key: str, shape: Shape) -> Tensor:
    for pattern, draw in RULES[name]:
        if re.search(pattern, key):
            return draw(f"models/{name}/{key}", shape)
    raise LookupError(f"no rule of {name} says where {key} comes from")


def images(count: int, size: int = 224) -> Tensor:
    """Return float32 images (count, 3, size, size) of mean 0: large patches, which differ, and fine noise.

    Noise alone would look the same to a network in every image. ``size`` is a multiple of 8.
    """
    patches = inputs.normal("models/images/patches", (count, 3, 8, 8))
    noise = inputs.normal("models/images/noise", (count, 3, size, size), std=0.5)
    return patches.repeat_interleave(size // 8, dim=2).repeat_interleave(size // 8, dim=3) + noise


def targets(count: int, classes: int = 1000) -> Tensor:
    """Return the int64 class of each image."""
    return inputs.integers("models/targets", (count,), low=0, high=classes)
