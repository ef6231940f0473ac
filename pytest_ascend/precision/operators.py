"""The first wrong operator of a layer: each is judged on its operands from the device."""

from __future__ import annotations

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
        self.steps.append(Step(func, given, tree_map(_on_cpu, named), mapped(output, kept)))
        return output


def _on_cpu(value: Any) -> Any:
    return torch.device("cpu") if isinstance(value, torch.device) else value


def first_wrong_operator(
    modules: Mapping[str, nn.Module], call: Call, device: str | torch.device, autocast: torch.dtype | None
) -> tuple[str, int]:
    """Repeat a module's call on the device, and return the first operator that is wrong by itself ("" for none).

    The second value is the number of operators, including those of the backward pass if the call had one.
    """
    steps = _steps(modules, call, torch.device(device), autocast)
    for place, step in enumerate(steps, start=1):
        if _is_wrong(step):
            return f"{step.func.overloadpacket} (operator {place} of {len(steps)})", len(steps)
    return "", len(steps)


def _steps(
    modules: Mapping[str, nn.Module], call: Call, device: torch.device, autocast: torch.dtype | None
) -> list[Step]:
    module = modules[call.name]
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
    return recorder.steps


def _is_wrong(step: Step) -> bool:
    name = step.func.overloadpacket.__name__
    if name in RANDOM or name in UNWRITTEN or not any(each.is_floating_point() for each in tensors_in(step.output)):
        return False
    try:
        expected = Source(step.func, step.args, step.kwargs, call=_without_gradients).exact()
        pairs = list(zip(tensors_in(step.output), tensors_in(expected), strict=False))
        return not all(compare(ours, theirs).agrees for ours, theirs in pairs if _is_comparable(ours, theirs))
    except Exception:  # noqa: BLE001 - what the CPU cannot compute cannot be judged
        return False


def _without_gradients(func: Any, args: Any, kwargs: Any, _: Any) -> Any:
    with torch.no_grad():
        return func(*args, **kwargs)


def _is_comparable(actual: Tensor, expected: Tensor) -> bool:
    return actual.shape == expected.shape and isinstance(expected, Reference) and actual.is_floating_point()
