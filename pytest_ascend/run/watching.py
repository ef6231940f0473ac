"""What happens around a test while a device computes for it."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_flatten

from pytest_ascend.device import Device
from pytest_ascend.device.dispatcher import kind
from pytest_ascend.dispatching import EagerDispatchMode
from pytest_ascend.records.census import FALLBACK
from pytest_ascend.run.trial import Trial


@functools.cache
def falls_back(operator: torch._ops.OpOverload) -> bool:
    """Whether torch_npu has the CPU compute ``operator``: it has no kernel for it, and torch none for any device."""
    return kind(_name(operator)) == FALLBACK


def _name(operator: torch._ops.OpOverload) -> str:
    return str(operator.name())  # type: ignore[no-untyped-call]


class FallbackWatch(EagerDispatchMode):  # type: ignore[no-untyped-call]
    """Notes operators on tensors of ``device_type`` that the CPU computes, in the order of their first call.

    It sees what torch dispatches, not what a kernel calls inside: there it knows the ``out=`` variants only.
    """

    def __init__(self, device_type: str) -> None:
        super().__init__()
        self.device_type = device_type
        self.seen: dict[str, None] = {}

    def __torch_dispatch__(
        self,
        func: torch._ops.OpOverload,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Call the operator as it was to be called."""
        kwargs = kwargs or {}
        if falls_back(func) and self._is_on_device(args, kwargs):
            self.seen[_name(func)] = None
        return func(*args, **kwargs)

    def _is_on_device(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
        leaves, _ = tree_flatten((args, dict(kwargs)))
        return any(isinstance(leaf, torch.Tensor) and leaf.device.type == self.device_type for leaf in leaves)


@contextlib.contextmanager
def watching(trial: Trial, device: Device, *, timed: bool) -> Iterator[None]:
    """Note the operators that fall back to the CPU, and let the device raise what it has to, within the test.

    A ``timed`` test is not watched: watching costs some microseconds an operator.
    """
    with _noting_fallbacks(trial, device) if device.falls_back and not timed else contextlib.nullcontext():
        yield
        device.synchronize()


@contextlib.contextmanager
def _noting_fallbacks(trial: Trial, device: Device) -> Iterator[None]:
    from pytest_ascend.run.watching import FallbackWatch

    with FallbackWatch(device.kind) as watch:
        try:
            yield
        finally:
            trial.fallbacks.extend(watch.seen)


def lost(device: Device) -> str:
    """Ask the device for a known answer after it raised: "" where it still gives it, else what is wrong with it."""
    from pytest_ascend.device.probe import known_answer

    try:
        return known_answer(device.torch_device())
    except Exception as error:  # noqa: BLE001  (whatever a dead device raises is the finding)
        return f"{type(error).__name__}: {error}"
