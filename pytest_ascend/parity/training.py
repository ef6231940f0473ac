"""A short training of any model: its loss curve, and the resulting weights, optimizer state and statistics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.utils._pytree import tree_map_only

from pytest_ascend.precision.capture import casting


class Batch(NamedTuple):
    """The inputs of one call of a model, and what the loss needs besides the output."""

    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = MappingProxyType({})
    target: Any = None


#: Far from overflow with models of these sizes; a power of two, so that scaling and unscaling are exact.
LOSS_SCALE = 1024.0

KINDS = ("curve", "weights", "state", "statistics")


@dataclass(frozen=True, kw_only=True, slots=True)
class Recipe:
    """How a model is trained: on the batches in turn for ``steps`` steps; float16 autocast uses a GradScaler.

    With ``evaluation`` the model stays in evaluation mode, without dropout and similar layers.
    """

    batches: tuple[Batch, ...]
    #: The loss of an output on its batch; both are on the output's device.
    loss: Callable[[Any, Batch], Tensor]
    optimizer: Callable[[Iterable[nn.Parameter]], Optimizer]
    schedule: Callable[[Optimizer], LRScheduler] | None = None
    steps: int = 20
    autocast: torch.dtype | None = None
    evaluation: bool = False


def train(model: nn.Module, recipe: Recipe, device: torch.device | str = "cpu") -> dict[str, dict[str, Tensor]]:
    """Train ``model``, which is modified, and return the results on the CPU, by KINDS.

    "curve" has the losses (steps,), "weights" the change of each parameter, "state" the optimizer's tensors by
    parameter, "statistics" the floating-point buffers. Batches get the dtype of the model's parameters.
    """
    before = {name: each.detach().to("cpu", copy=True) for name, each in model.named_parameters()}
    made = [(loss.detach().cpu(), optimizer) for loss, optimizer in steps(model, recipe, device)]
    return {
        "curve": {"losses": torch.stack([loss for loss, _ in made])},
        "weights": changes(model, before),
        "state": dict(optimizer_state(model, made[-1][1])),
        "statistics": running_statistics(model),
    }


def steps(model: nn.Module, recipe: Recipe, device: torch.device | str = "cpu") -> Iterator[tuple[Tensor, Optimizer]]:
    """Train ``model``, and yield the loss and the optimizer after each step, while its gradients still exist."""
    device = torch.device(device)
    model.to(device).train(not recipe.evaluation)
    dtype = next((each.dtype for each in model.parameters()), torch.float32)
    optimizer = recipe.optimizer(model.parameters())
    schedule = recipe.schedule(optimizer) if recipe.schedule else None
    scaler = scaler_of(device.type, LOSS_SCALE) if recipe.autocast is torch.float16 else None
    batches = [Batch(*moved(device, dtype, (batch.args, dict(batch.kwargs), batch.target))) for batch in recipe.batches]
    for step in range(recipe.steps):
        batch = batches[step % len(batches)]
        optimizer.zero_grad()
        with casting(device.type, recipe.autocast):
            output = model(*batch.args, **batch.kwargs)
        loss = recipe.loss(output, batch)
        make_step(loss, optimizer, scaler)
        if schedule is not None:
            schedule.step()
        yield loss, optimizer


def make_step(loss: Tensor, optimizer: Optimizer, scaler: Any = None) -> None:
    """Run the backward pass and the optimizer's step, through a GradScaler if one is given."""
    torch.autograd.backward(loss if scaler is None else scaler.scale(loss))
    if scaler is None:
        optimizer.step()
    else:
        scaler.step(optimizer)
        scaler.update()


def scaler_of(device_type: str, scale: float, **settings: Any) -> Any:
    """Return a GradScaler. From torch 2.3 on, torch.amp has one for any device; before, some devices have their own.

    Raises NotImplementedError for other devices, as for an operator that a device lacks.
    """
    if hasattr(torch.amp, "GradScaler"):
        return torch.amp.GradScaler(device_type, init_scale=scale, **settings)
    own = getattr(getattr(torch, device_type).amp, "GradScaler", None)
    if own is None:
        raise NotImplementedError(f"torch {torch.__version__} has no GradScaler for {device_type}; 2.3 has")
    return own(init_scale=scale, **settings)


def moved(device: torch.device, dtype: torch.dtype, tree: Any) -> Any:
    """Return a structure with its tensors on a device, the floating-point ones in a dtype."""
    return tree_map_only(Tensor, lambda x: x.to(device, dtype if x.is_floating_point() else x.dtype), tree)


def changes(model: nn.Module, before: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the change of each parameter, which shows an optimizer's faults better than its value."""
    return {name: each.detach().cpu() - before[name] for name, each in model.named_parameters()}


def optimizer_state(model: nn.Module, optimizer: Optimizer) -> Iterator[tuple[str, Tensor]]:
    """Yield the optimizer's tensors, named after their parameter; step counters are left out.

    Means of squares are returned as roots, by which a step divides. A gradient of only rounding error, like that of
    attention's key bias, differs by a multiple of the reference runs' error, and its square by that multiple squared.
    """
    # For Adam, AMSGrad, RMSprop and Adadelta.
    means_of_squares = {"exp_avg_sq", "max_exp_avg_sq", "square_avg", "acc_delta"}
    for name, parameter in model.named_parameters():
        for key, value in optimizer.state.get(parameter, {}).items():
            if isinstance(value, Tensor) and value.dim():
                kept = value.detach().cpu()
                yield f"{name}.{key}", kept.sqrt() if key in means_of_squares else kept


def running_statistics(model: nn.Module) -> dict[str, Tensor]:
    """Return the floating-point buffers on the CPU."""
    return {
        name: each.detach().to("cpu", copy=True) for name, each in model.named_buffers() if each.is_floating_point()
    }
