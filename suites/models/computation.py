"""The computation of a model: in float64 for the golden, in several reference runs, and on the device.

Weights need no download and keep activations, statistics and gradients at moderate sizes. Each tensor is a random
stream of its own, keyed by model and name, so that it depends on no other tensor.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, NamedTuple, TypeAlias

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from torch import Tensor, nn
from torch.optim import SGD, AdamW, Optimizer

from pytest_ascend.parity.training import Batch, Recipe, changes, steps
from pytest_ascend.precision.capture import casting
from pytest_ascend.run import inputs
from pytest_ascend.system.dispatching import EagerDispatchMode

from .architectures import ResNet50, VisionTransformer

Shape = tuple[int, ...]
#: Returns a tensor for a key and shape.
Draw: TypeAlias = Callable[[str, Shape], Tensor]


def spread(low: float, high: float) -> Draw:
    return lambda key, shape: inputs.uniform(key, shape, low=low, high=high)


def scaled(gain: float) -> Draw:
    """Sample approximately normally, so that the output's variance is ``gain`` times the input's mean square."""
    return lambda key, shape: inputs.normal(key, shape, std=math.sqrt(gain / math.prod(shape[1:])))


def centred(gain: float, key: str, shape: Shape) -> Tensor:
    """Sample as :func:`scaled`, with weights that sum to zero for each output.

    A ReLU's output is positive. Weights with another sum would pass its mean on from layer to layer, until all images
    look the same. The mean is subtracted in integers, so that the order of summation does not matter.
    """
    whole = inputs.normal(key, shape, std=inputs.STD_OF_SUM).to(torch.int64).flatten(1)
    whole -= whole.sum(1, keepdim=True).div(whole.shape[1], rounding_mode="floor")
    return (whole.float() * (math.sqrt(gain / whole.shape[1]) / inputs.STD_OF_SUM)).reshape(shape)


#: By model: patterns of tensor names, and how matching tensors are drawn; the first match counts.
RULES: Mapping[str, tuple[tuple[str, Draw], ...]] = {
    "resnet50": (
        (r"num_batches_tracked$", lambda _, shape: torch.zeros(shape, dtype=torch.int64)),
        (r"running_mean$", spread(-0.1, 0.1)),
        (r"running_var$", spread(0.75, 1.25)),
        # Sixteen blocks add to their shortcuts; together they must not add much more than the image itself.
        (r"bn3\.weight$", spread(0.1, 0.2)),
        (r"(bn\d|downsample\.1)\.weight$", spread(0.75, 1.25)),
        # Few values are near the kink of a ReLU: rounding across it changes gradients considerably.
        (r"bn[12]\.bias$", spread(0.5, 1.0)),
        (r"(bn3|downsample\.1)\.bias$", spread(0.0, 0.1)),
        (r"fc\.bias$", spread(-0.1, 0.1)),
        (r"fc\.weight$", partial(centred, 16.0)),
        (r"weight$", partial(centred, 3.0)),  # without its mean, a ReLU's output has about a third of the mean square
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
    found = {}
    for key, tensor in model.state_dict().items():
        draw = next((draw for pattern, draw in RULES[name] if re.search(pattern, key)), None)
        if draw is None:
            raise LookupError(f"no rule of {name} says where {key} comes from")
        found[key] = draw(f"models/{name}/{key}", tuple(tensor.shape))
    return found


def images(count: int, size: int = 224, of: str = "models/images", across: int = 8) -> Tensor:
    """Return float32 images of mean 0: patches, which differ, and noise, which alone looks uniform to a network."""
    patches = inputs.normal(f"{of}/patches", (count, 3, across, across))
    noise = inputs.normal(f"{of}/noise", (count, 3, size, size), std=0.5)
    return patches.repeat_interleave(size // across, dim=2).repeat_interleave(size // across, dim=3) + noise


def targets(count: int, classes: int = 1000) -> Tensor:
    return inputs.integers("models/targets", (count,), low=0, high=classes)


#: Number of elements kept unchanged, and of buckets of a sketch.
KEPT = BUCKETS = 64


def observe(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return each tensor as a vector on the CPU, in its dtype: whole, or ``KEPT`` elements and then its sketch."""
    found = {}
    for name, tensor in tensors.items():
        flat = tensor.detach().to("cpu").flatten()
        if flat.numel() > KEPT + BUCKETS:
            flat = torch.cat([flat[positions(name, flat.numel())], sketch(name, flat).to(flat.dtype)])
        found[name] = flat
    return found


def positions(name: str, size: int) -> Tensor:
    """Return the indices of the kept elements: the first, the last, and one from each of equal parts between."""
    edges = torch.arange(KEPT + 1) * size // KEPT
    offsets = inputs.integers(f"models/positions/{name}", (KEPT,), low=0, high=2**31)
    chosen = edges[:-1] + offsets % (edges[1:] - edges[:-1])
    chosen[0], chosen[-1] = 0, size - 1
    return chosen


def sketch(name: str, flat: Tensor) -> Tensor:
    """Return float64 sums over every ``BUCKETS``-th element, with random signs, about as large as the elements."""
    rows = -(-flat.numel() // BUCKETS)
    padded = torch.zeros(rows * BUCKETS, dtype=torch.float64)
    padded[: flat.numel()] = flat
    for start in range(0, len(padded), inputs.CHUNK):  # generating all signs would take longer than everything else
        inputs.change_signs(padded[start : start + inputs.CHUNK], f"models/signs/{name}", start=start)
    # A power of two near sqrt(rows): the sums become as large as the elements, without rounding.
    return padded.reshape(rows, BUCKETS).sum(0) * 2.0 ** -((rows.bit_length() - 1) // 2)


BATCH = 2
STEPS = 3

#: Property of a case -> name of a tensor -> its observation.
Observed: TypeAlias = dict[str, dict[str, Tensor]]
#: A change to a model before it computes.
Prepare: TypeAlias = Callable[[nn.Module], nn.Module]


class Model(NamedTuple):
    make: Callable[[], nn.Module]
    optimizer: Callable[[Iterable[nn.Parameter]], Optimizer]


@dataclass(frozen=True, kw_only=True, slots=True)
class Mode:
    """How the model computes: parameters and inputs in ``dtype``; ``autocast`` is the dtype of autocast, if any."""

    dtype: torch.dtype
    autocast: torch.dtype | None = None


MODELS: Mapping[str, Model] = {
    "resnet50": Model(ResNet50, lambda parameters: SGD(parameters, lr=1e-3, momentum=0.9, weight_decay=1e-4)),
    "vit_b_16": Model(VisionTransformer, lambda parameters: AdamW(parameters, lr=1e-5, weight_decay=0.05)),
}

MODES: Mapping[str, Mode] = {
    **{name: Mode(dtype=getattr(torch, name)) for name in ("float64", "float32", "bfloat16", "float16")},
    "autocast-bfloat16": Mode(dtype=torch.float32, autocast=torch.bfloat16),
    "autocast-float16": Mode(dtype=torch.float32, autocast=torch.float16),
}


def preserve_layout(model: nn.Module) -> nn.Module:
    return model


def make(name: str, mode: Mode, device: torch.device) -> nn.Module:
    model = empty(name).to(dtype=mode.dtype).to_empty(device=device)
    model.load_state_dict(weights(name))
    return model


@lru_cache(maxsize=1)
def weights(name: str) -> Mapping[str, Tensor]:
    """Return the state dictionary of a model; the last one is kept until it is cleared (up to 350 MB)."""
    return state(name, empty(name))


def empty(name: str) -> nn.Module:
    """Return the model ``name`` on torch's device "meta", without memory."""
    with torch.device("meta"), _Unfilled():
        return MODELS[name].make()


class _Unfilled(EagerDispatchMode):
    """Skips filling tensors without memory: torch would load its compiler for the random weights."""

    def handle(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        return args[0] if func._schema.is_mutable else func(*args, **kwargs)  # noqa: SLF001 - public under no other name


def forward(name: str, mode: Mode, device: torch.device, prepare: Prepare = preserve_layout) -> Observed:
    model = prepare(make(name, mode, device)).eval()
    with torch.no_grad(), casting(device.type, mode.autocast):
        logits = model(images(BATCH).to(device=device, dtype=mode.dtype))
    return {"forward": {"logits": logits.cpu()}}


def train(name: str, mode: Mode, device: torch.device, prepare: Prepare = preserve_layout) -> Observed:
    """Train for ``STEPS`` steps on one batch; return loss and gradients of the first, and the results of all.

    "loss" holds the loss and the log-probabilities (BATCH, 1000); "gradients" an observation of each parameter's;
    "training" the losses (STEPS), and observations of each parameter's change and of the running statistics.
    """
    model = prepare(make(name, mode, device))
    before = {key: value.detach().to("cpu", copy=True) for key, value in model.named_parameters()}
    logits: list[Tensor] = []

    def loss_of(output: Tensor, batch: Batch) -> Tensor:
        logits.append(at_least_float32(output.detach()))
        return F.cross_entropy(at_least_float32(output), batch.target)

    batches, optimizer = (Batch((images(BATCH),), {}, targets(BATCH)),), MODELS[name].optimizer
    recipe = Recipe(batches=batches, loss=loss_of, optimizer=optimizer, steps=STEPS, autocast=mode.autocast)
    run = (loss.detach().cpu() for loss, _ in steps(model, recipe, device))
    losses = [next(run)]
    loss = {"loss": losses[0], "log_probabilities": F.log_softmax(logits[0], dim=1).cpu()}
    gradients = observe({name: each.grad for name, each in model.named_parameters() if each.grad is not None})
    losses += run
    after = observe({**model.state_dict(), **changes(model, before)})
    return {"loss": loss, "gradients": gradients, "training": {"losses": torch.stack(losses), **after}}


def at_least_float32(logits: Tensor) -> Tensor:
    return logits if logits.dtype is torch.float64 else logits.float()
