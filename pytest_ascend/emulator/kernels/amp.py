"""Training with scaled gradients."""

from __future__ import annotations

import torch

from pytest_ascend.emulator.registry import Family, aten

family = Family("amp")
T = torch.Tensor


@family.kernel(
    "aclnnForeachNonFiniteCheckAndUnscale(inout TensorList scaledGrads, inout Tensor foundInf, Tensor invScale)"
)
def foreach_non_finite_check_and_unscale(grads: list[T], found_inf: T, inv_scale: T) -> None:
    aten._amp_foreach_non_finite_check_and_unscale_(grads, found_inf, inv_scale)


@family.kernel(
    "aclnnAmpUpdateScale(Tensor currentScale, Tensor growthTracker, Tensor foundInf, double growthFactor,"
    " double backoffFactor, int64 growthInterval, out Tensor updatedScale, out Tensor updatedGrowthTracker)"
)
def amp_update_scale(scale: T, tracker: T, found_inf: T, growth: float, backoff: float, interval: int) -> tuple[T, T]:
    scale, tracker = scale.clone(), tracker.clone()
    aten._amp_update_scale_(scale, tracker, found_inf, growth, backoff, interval)
    return scale, tracker
