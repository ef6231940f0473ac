"""The first wrong operator of a layer: each is judged on its operands from the device."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from pytest_ascend.precision.capture import Call, Part, call_again, casting, kept
from pytest_ascend.precision.choices import RANDOM
from pytest_ascend.precision.compare import compare
from pytest_ascend.precision.nested import mapped, tensors_in
from pytest_ascend.precision.reference import Reference, Source
from pytest_ascend.system.dispatching import EagerDispatchMode

#: Operators whose results are uninitialised.
UNWRITTEN = frozenset((
    "empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided",
))  # fmt: skip


@dataclass(slots=True)
class Step:
    """One operator: its operands before it ran, and its results, on the CPU."""

    func: Any
    args: Any
    kwargs: Any
    output: Any = field(default=None)


class Steps(EagerDispatchMode):
    """Records every operator that runs within its context, with operands and results."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[Step] = []

    def handle(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Run an operator, and record it."""
        args, kwargs = (mapped(each, lambda tensor: tensor) for each in (args, dict(kwargs)))
        given, named = (mapped(each, kept) for each in (args, kwargs))
        output = func(*args, **kwargs)
        on_cpu = tree_map(lambda each: torch.device("cpu") if isinstance(each, torch.device) else each, named)
        self.steps.append(Step(func, given, on_cpu, mapped(output, kept)))
        return output


def first_wrong_operator(
    modules: Mapping[str, nn.Module], call: Call, device: str | torch.device, autocast: torch.dtype | None
) -> tuple[str, int]:
    """Repeat a module's call on the device, and return the first operator that is wrong by itself ("" for none).

    The second value is the number of operators, including those of the backward pass if the call had one.
    """
    module, device = modules[call.name], torch.device(device)
    wanted = [each is not None for each in call.grad_inputs]

    def place(tensor: Tensor) -> Tensor:
        asks = bool(wanted) and wanted.pop(0) and tensor.is_floating_point()
        return tensor.to(device, copy=True).requires_grad_(asks)

    def there(value: Any) -> Any:
        if isinstance(value, Part):
            return modules[value]
        return device if isinstance(value, torch.device) else value

    args, kwargs = mapped((call.args, dict(call.kwargs)), place, others=there)
    recorder = Steps()
    with recorder, torch.set_grad_enabled(any(each is not None for each in call.grad_outputs)):
        _, given = call_again(module, call, args, kwargs, casting(device.type, autocast))
        if given:
            torch.autograd.backward([each for each, _ in given], [seed for _, seed in given])
    module.zero_grad(set_to_none=True)
    steps = recorder.steps
    for number, step in enumerate(steps, start=1):
        if _is_wrong(step):
            return f"{step.func.overloadpacket} (operator {number} of {len(steps)})", len(steps)
    return "", len(steps)


def _is_wrong(step: Step) -> bool:
    name = step.func.overloadpacket.__name__
    if name in RANDOM or name in UNWRITTEN or not any(each.is_floating_point() for each in tensors_in(step.output)):
        return False
    with contextlib.suppress(Exception):  # what the CPU cannot compute cannot be judged
        expected = Source(step.func, step.args, step.kwargs, call=_without_gradients).exact()
        for ours, theirs in zip(tensors_in(step.output), tensors_in(expected), strict=False):
            is_comparable = ours.shape == theirs.shape and isinstance(theirs, Reference) and ours.is_floating_point()
            if is_comparable and not compare(ours, theirs).agrees:
                return True
    return False


def _without_gradients(func: Any, args: Any, kwargs: Any, _: Any) -> Any:
    with torch.no_grad():
        return func(*args, **kwargs)
