"""Under autocast sensitive operators compute in float32, products in the lower dtype, by torch's documented lists."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from torch import Tensor

from pytest_ascend.run import inputs
from pytest_ascend.run.comparing import PrecisionCompare

from . import CASES_OF_AUTOCAST, CPU_FLOAT32, CPU_UNLISTED, FLOAT32, LOWER

#: What a result of the lists must have, by the lower dtype.
LOWER_DTYPE = torch.bfloat16

#: torch gives the inner softmax of these the dtype of the input, whatever autocast would do.
INSIDE = {"cross_entropy"}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.ascend_case(case), id=case.id) for name, case in CASES_OF_AUTOCAST]
)
def test_autocast(name: str, npu_device: torch.device, precision_compare: PrecisionCompare) -> None:
    tensors, call, dtype = given(LOWER_DTYPE), CALLS[name], promised(name, npu_device.type)
    with torch.autocast(npu_device.type, dtype=LOWER_DTYPE):
        actual = call(tensors.to(lambda each: each.to(npu_device)))
    # Products round their inputs, too; everything else takes them as they are, and widens them exactly.
    rounded = tensors.to(lambda each: each.to(LOWER_DTYPE)) if name in LOWER else tensors
    expected = call(rounded.to(lambda each: each.double()))
    within = LOWER_DTYPE if name in INSIDE else dtype
    honest = call(rounded.to(lambda each: each.to(within))).to(dtype)
    precision_compare(actual, expected, honest=honest, dtype=dtype, name=name)


def promised(name: str, device_type: str) -> torch.dtype:
    """Return the dtype of a result by its device's list; what is on no list has the widest of its inputs."""
    if device_type == "cpu" and name in CPU_UNLISTED:
        return torch.float32
    if name in LOWER or (device_type == "cpu" and name in FLOAT32 and name not in CPU_FLOAT32):
        return LOWER_DTYPE
    return torch.float32


@dataclass(frozen=True, slots=True)
class Given:
    """What operators are called with: ``x`` and ``y`` (4, 6) in (-1, 1), ``p`` in (0, 1), and ``wide`` in float32."""

    x: Tensor
    y: Tensor
    p: Tensor
    wide: Tensor
    classes: Tensor

    def to(self, change: Callable[[Tensor], Tensor]) -> Given:
        """Change every floating tensor; the classes only follow to the device."""
        x, y, p, wide = (change(each) for each in (self.x, self.y, self.p, self.wide))
        return Given(x, y, p, wide, self.classes.to(wide.device))


def given(lower: torch.dtype) -> Given:
    """Return the tensors, on the CPU: what comes out of a lower operator, and float32 as weights have it."""
    x, y = (inputs.uniform(f"autocast/{name}", (4, 6)).to(lower) for name in "xy")
    p = inputs.uniform("autocast/p", (4, 6), low=0.1, high=0.9).to(lower)
    return Given(x, y, p, inputs.uniform("autocast/wide", (4, 6)), torch.tensor([0, 3, 5, 1]))


Call = Callable[[Given], Any]

CALLS: Mapping[str, Call] = {
    "softmax": lambda t: F.softmax(t.x, 1),
    "log_softmax": lambda t: F.log_softmax(t.x, 1),
    "layer_norm": lambda t: F.layer_norm(t.x, (6,)),
    "group_norm": lambda t: F.group_norm(t.x[None], 2),
    "mse_loss": lambda t: F.mse_loss(t.x, t.y),
    "l1_loss": lambda t: F.l1_loss(t.x, t.y),
    "smooth_l1_loss": lambda t: F.smooth_l1_loss(t.x, t.y),
    "cross_entropy": lambda t: F.cross_entropy(t.x, t.classes),
    "nll_loss": lambda t: F.nll_loss(t.x, t.classes),
    "kl_div": lambda t: F.kl_div(t.x, t.p, reduction="sum"),
    "binary_cross_entropy_with_logits": lambda t: F.binary_cross_entropy_with_logits(t.x, t.p),
    "exp": lambda t: t.x.exp(),
    "expm1": lambda t: t.x.expm1(),
    "log": lambda t: t.p.log(),
    "log1p": lambda t: t.p.log1p(),
    "log10": lambda t: t.p.log10(),
    "log2": lambda t: t.p.log2(),
    "pow": lambda t: t.p.pow(1.7),
    "rsqrt": lambda t: t.p.rsqrt(),
    "reciprocal": lambda t: t.p.reciprocal(),
    "sum": lambda t: t.x.sum(1),
    "prod": lambda t: t.p.prod(1),
    "cumsum": lambda t: t.x.cumsum(1),
    "cumprod": lambda t: t.p.cumprod(1),
    "norm": lambda t: t.x.norm(),
    "cosine_similarity": lambda t: F.cosine_similarity(t.x, t.y),
    "softplus": lambda t: F.softplus(t.x),
    "tan": lambda t: t.x.tan(),
    "sinh": lambda t: t.x.sinh(),
    "cosh": lambda t: t.x.cosh(),
    "acos": lambda t: (t.x / 2).acos(),
    "asin": lambda t: (t.x / 2).asin(),
    "matmul": lambda t: t.wide @ t.wide.t(),
    "mm": lambda t: torch.mm(t.wide, t.wide.t()),
    "bmm": lambda t: torch.bmm(t.wide[None], t.wide.t()[None]),
    "addmm": lambda t: torch.addmm(t.wide[:, :4], t.wide, t.wide.t()),
    "baddbmm": lambda t: torch.baddbmm(t.wide[None, :, :4], t.wide[None], t.wide.t()[None]),
    "mv": lambda t: torch.mv(t.wide, t.wide[0]),
    "linear": lambda t: F.linear(t.wide, t.wide),
    "conv1d": lambda t: F.conv1d(t.wide[None], t.wide[:2, :4].t()[:2, :, None].repeat(1, 2, 3)),
    "conv2d": lambda t: F.conv2d(t.wide[None, None], t.wide[None, None, :2, :3]),
    "conv_transpose2d": lambda t: F.conv_transpose2d(t.wide[None, None], t.wide[None, None, :2, :3]),
    "add": lambda t: t.x + t.wide,
    "cat": lambda t: torch.cat([t.x, t.wide]),
    "stack": lambda t: torch.stack([t.x, t.wide]),
    "addcmul": lambda t: torch.addcmul(t.wide, t.x, t.y),
}
