"""What happens around a test while a device computes for it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from pytest_ascend.device import Device
from pytest_ascend.run.case_context import CaseContext


@contextlib.contextmanager
def watching(trial: CaseContext, device: Device, *, timed: bool) -> Iterator[None]:
    """Note the operators that fall back to the CPU, and let the device raise what it has to, within the test.

    A ``timed`` test is not watched: watching costs some microseconds an operator.
    """
    with _noting_fallbacks(trial, device) if device.falls_back and not timed else contextlib.nullcontext():
        yield
        device.synchronize()


@contextlib.contextmanager
def _noting_fallbacks(trial: CaseContext, device: Device) -> Iterator[None]:
    from pytest_ascend.run.fallback import FallbackWatch

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
