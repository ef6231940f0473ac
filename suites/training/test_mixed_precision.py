"""Autocast as torch.amp documents it: sensitive operators compute in float32, products in the lower dtype."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from torch import Tensor

from pytest_ascend.records.case import Case
from pytest_ascend.run import inputs
from pytest_ascend.run.comparing import PrecisionCompare

from . import AUTOCAST, CPU_FLOAT32, CPU_UNLISTED, FLOAT32, LOWER

#: The lower dtype of autocast.
LOWER_DTYPE = torch.bfloat16


@pytest.mark.ascend_cases("training", *AUTOCAST)
def test_autocast(case: Case, npu_device: torch.device, precision_compare: PrecisionCompare) -> None:
    name = case.property
    tensors, call, dtype = given(LOWER_DTYPE), CALLS[name], promised(name, npu_device.type)
    with torch.autocast(npu_device.type, dtype=LOWER_DTYPE):
        actual = call(tensors.to(lambda each: each.to(npu_device)))
    # Products also round their inputs; all other operators widen them exactly.
    rounded = tensors.to(lambda each: each.to(LOWER_DTYPE)) if name in LOWER else tensors
    expected = call(rounded.to(lambda each: each.double()))
    # torch runs the inner softmax of cross_entropy in the input's dtype, regardless of autocast.
    within = LOWER_DTYPE if name == "cross_entropy" else dtype
    reference_runs = call(rounded.to(lambda each: each.to(within))).to(dtype)
    precision_compare(actual, expected, reference_runs=reference_runs, dtype=dtype, name=name)


def promised(name: str, device_type: str) -> torch.dtype:
    """Return the required dtype of a result from its device's list; unlisted operators use their widest input."""
    on_cpu = device_type == "cpu"
    is_lower = name in LOWER or (on_cpu and name in FLOAT32 and name not in CPU_FLOAT32)
    return LOWER_DTYPE if is_lower and not (on_cpu and name in CPU_UNLISTED) else torch.float32


class Given(NamedTuple):
    """Inputs of operators: ``x`` and ``y`` (4, 6) in (-1, 1), ``p`` in (0, 1), and ``wide`` in float32."""

    x: Tensor
    y: Tensor
    p: Tensor
    wide: Tensor
    classes: Tensor

    def to(self, change: Callable[[Tensor], Tensor]) -> Given:
        x, y, p, wide = map(change, self[:4])
        return Given(x, y, p, wide, self.classes.to(wide.device))


def given(lower: torch.dtype) -> Given:
    """Return the tensors on the CPU: outputs of a lower-precision operator, and float32 as weights are."""
    x, y = (inputs.uniform(f"autocast/{name}", (4, 6)).to(lower) for name in "xy")
    p = inputs.uniform("autocast/p", (4, 6), low=0.1, high=0.9).to(lower)
    return Given(x, y, p, inputs.uniform("autocast/wide", (4, 6)), torch.tensor([0, 3, 5, 1]))


def _of(names: str, module: Any, inputs: Callable[[Given], tuple[Any, ...]]) -> dict[str, Callable[[Given], Any]]:
    def of(name: str) -> Callable[[Given], Any]:
        return lambda t: getattr(module, name)(*inputs(t))

    return {name: of(name) for name in names.split()}


CALLS: Mapping[str, Callable[[Given], Any]] = {
    **_of("exp expm1 tan sinh cosh norm", torch.Tensor, lambda t: (t.x,)),
    **_of("log log1p log10 log2 rsqrt reciprocal", torch.Tensor, lambda t: (t.p,)),
    **_of("mse_loss l1_loss smooth_l1_loss cosine_similarity", F, lambda t: (t.x, t.y)),
    **_of("softmax log_softmax", F, lambda t: (t.x, 1)),
    **_of("sum cumsum", torch.Tensor, lambda t: (t.x, 1)),
    **_of("prod cumprod", torch.Tensor, lambda t: (t.p, 1)),
    **_of("cross_entropy nll_loss", F, lambda t: (t.x, t.classes)),
    **_of("acos asin", torch.Tensor, lambda t: (t.x / 2,)),
    **_of("matmul mm", torch, lambda t: (t.wide, t.wide.t())),
    **_of("bmm", torch, lambda t: (t.wide[None], t.wide.t()[None])),
    **_of("conv2d conv_transpose2d", F, lambda t: (t.wide[None, None], t.wide[None, None, :2, :3])),
    **_of("cat stack", torch, lambda t: ([t.x, t.wide],)),
    "layer_norm": lambda t: F.layer_norm(t.x, (6,)),
    "group_norm": lambda t: F.group_norm(t.x[None], 2),
    "kl_div": lambda t: F.kl_div(t.x, t.p, reduction="sum"),
    "binary_cross_entropy_with_logits": lambda t: F.binary_cross_entropy_with_logits(t.x, t.p),
    "pow": lambda t: t.p.pow(1.7),
    "softplus": lambda t: F.softplus(t.x),
    "addmm": lambda t: torch.addmm(t.wide[:, :4], t.wide, t.wide.t()),
    "baddbmm": lambda t: torch.baddbmm(t.wide[None, :, :4], t.wide[None], t.wide.t()[None]),
    "mv": lambda t: torch.mv(t.wide, t.wide[0]),
    "linear": lambda t: F.linear(t.wide, t.wide),
    "conv1d": lambda t: F.conv1d(t.wide[None], t.wide[:2, :4].t()[:2, :, None].repeat(1, 2, 3)),
    "add": lambda t: t.x + t.wide,
    "addcmul": lambda t: torch.addcmul(t.wide, t.x, t.y),
}
