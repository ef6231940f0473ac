"""Small networks train on the emulated device as on the CPU: parts of ResNet and ViT, optimizers, autocast, scaling."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch_npu.npu.amp import GradScaler as NpuGradScaler

from pytest_ascend.precision.kernel_fallbacks import ROUNDED_ELSEWHERE
from pytest_ascend.system.dispatching import HALF

from .both import assert_identical, floats

pytestmark = pytest.mark.usefixtures("full_float32")

Tensor = torch.Tensor
Step = Callable[[nn.Module, torch.optim.Optimizer, Tensor, Tensor], Tensor]

CLASSES = 5


class Residual(nn.Module):
    """A stem, one residual block and a head, as in a ResNet."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 7, 2, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True))
        self.pool = nn.MaxPool2d(3, 2, 1)
        self.block = nn.Sequential(
            nn.Conv2d(8, 4, 1, bias=False),
            nn.BatchNorm2d(4),
            nn.ReLU(inplace=True),
            nn.Conv2d(4, 8, 3, padding=1, bias=False),
            nn.BatchNorm2d(8),
        )
        self.head = nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool(self.stem(x))
        x = F.relu(self.block(x) + x, inplace=True)
        return self.head(torch.flatten(F.adaptive_avg_pool2d(x, 1), 1))  # type: ignore[no-any-return]


class Attentive(nn.Module):
    """Patches, a class token, one encoder layer and a head, as in a ViT."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 16, 8, 8)
        self.token = nn.Parameter(torch.zeros(1, 1, 16))
        self.norm = nn.LayerNorm(16)
        self.attention = nn.MultiheadAttention(16, 2, batch_first=True, dropout=dropout)
        self.mlp = nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 32), nn.SiLU(), nn.Dropout(dropout), nn.Linear(32, 16))
        self.head = nn.Linear(16, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1)
        normed = self.norm(x)
        x = x + self.attention(normed, normed, normed, need_weights=False)[0]
        x = x + self.mlp(x)
        return self.head(x[:, 0])  # type: ignore[no-any-return]


MODELS: dict[str, Callable[[], nn.Module]] = {"residual": Residual, "attentive": Attentive}
OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "SGD": lambda parameters, **form: torch.optim.SGD(parameters, lr=0.1, momentum=0.9, **form),
    "AdamW": lambda parameters, **form: torch.optim.AdamW(parameters, lr=0.01, **form),
}
FORMS = {"one by one": {"foreach": False}, "on lists": {"foreach": True}, "fused": {"fused": True}}


def _plain(model: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor, y: Tensor) -> Tensor:
    loss = F.cross_entropy(model(x).float(), y)
    torch.autograd.backward(loss)
    optimizer.step()
    return loss.detach()


def _trained(
    device: str, name: str, optimizer: str, step: Step = _plain, dtype: Any = torch.float32, **form: bool
) -> Any:
    """Train for three steps; gives the losses, and the parameters and buffers after them."""
    torch.manual_seed(0)
    model = MODELS[name]().to(device=device, dtype=dtype)
    steps = OPTIMIZERS[optimizer](model.parameters(), **form)
    x, y = floats(4, 3, 32, 32, dtype=dtype).to(device), torch.tensor([0, 1, 2, 4], device=device)
    losses = []
    for _ in range(3):
        steps.zero_grad()
        losses.append(step(model, steps, x, y).cpu())
    return {"losses": torch.stack(losses), **{key: value.cpu() for key, value in model.state_dict().items()}}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("form", ["one by one", "on lists"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("name", MODELS)
def test_training_gives_the_same_bits(name: str, optimizer: str, form: str, dtype: torch.dtype) -> None:
    actual = _trained("npu", name, optimizer, dtype=dtype, **FORMS[form])
    expected = _trained("cpu", name, optimizer, dtype=dtype, **FORMS[form])
    if dtype in HALF:  # results are rounded once, where the CPU rounds on the way: no bits are promised
        torch.testing.assert_close(actual["losses"][0], expected["losses"][0], rtol=1e-2, atol=1e-2)
        return
    for key, value in expected.items():
        assert_identical(actual[key], value, key)


@pytest.mark.parametrize("name", MODELS)
def test_training_with_a_fused_optimizer(name: str) -> None:
    actual, expected = (_trained(device, name, "SGD", fused=True) for device in ("npu", "cpu"))
    for key, value in expected.items():
        assert_identical(actual[key], value, key)
    actual, expected = (_trained(device, name, "AdamW", fused=True) for device in ("npu", "cpu"))
    torch.testing.assert_close(actual["losses"], expected["losses"], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", MODELS)
def test_training_under_autocast(name: str, dtype: torch.dtype) -> None:
    def step(model: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor, y: Tensor) -> Tensor:
        with torch.autocast(x.device.type, dtype=dtype):
            logits = model(x)
        assert logits.dtype is dtype
        loss = F.cross_entropy(logits.float(), y)
        torch.autograd.backward(loss)
        optimizer.step()
        return loss.detach()

    actual, expected = (_trained(device, name, "SGD", step) for device in ("npu", "cpu"))
    torch.testing.assert_close(actual["losses"], expected["losses"], rtol=0.05, atol=0.02)
    assert actual["losses"][2] < actual["losses"][0]


def _scaler(kind: str, scale: float) -> Any:
    return torch.amp.GradScaler("npu", init_scale=scale) if kind == "torch" else NpuGradScaler(init_scale=scale)


#: torch_npu's own scaler cannot step with torch's fused optimizers.
SCALERS = [*(("torch", form) for form in FORMS), *(("torch_npu", form) for form in list(FORMS)[:2])]


def test_autocast_rounds_products_on_an_npu_that_it_does_not_round_on_the_cpu() -> None:
    matrix, vector = floats(3, 3), floats(3)
    given = {"addmv": (vector, matrix, vector), "addr": (matrix, vector, vector), "mv": (matrix, vector)}
    assert given.keys() == ROUNDED_ELSEWHERE
    for name, args in given.items():
        for device, dtype in (("npu", torch.bfloat16), ("cpu", torch.float32)):
            with torch.autocast(device, dtype=torch.bfloat16):
                assert getattr(torch, name)(*(each.to(device) for each in args)).dtype is dtype


@pytest.mark.parametrize(("kind", "form"), SCALERS)
def test_training_with_scaled_gradients(kind: str, form: str) -> None:
    scaler = _scaler(kind, 2.0**10)

    def step(model: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor, y: Tensor) -> Tensor:
        with torch.autocast("npu", dtype=torch.float16):
            loss = F.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return loss.detach().float()

    losses = _trained("npu", "residual", "SGD", step, **FORMS[form])["losses"]
    assert losses[2] < losses[0]
    assert scaler.get_scale() == 2.0**10


@pytest.mark.parametrize(("kind", "form"), SCALERS)
@pytest.mark.parametrize("bad", [float("inf"), float("nan")])
def test_a_gradient_that_is_not_finite_skips_the_step(bad: float, kind: str, form: str) -> None:
    scaler = _scaler(kind, 4.0)
    parameter = torch.ones(3, device="npu", requires_grad=True)
    optimizer = torch.optim.SGD([parameter], lr=1.0, momentum=0.5, **FORMS[form])
    for factor, expected, scale in ((1.0, 0.0, 4.0), (bad, 0.0, 2.0), (1.0, -1.5, 2.0)):
        optimizer.zero_grad()
        scaler.scale((parameter * torch.tensor([1.0, factor, 1.0], device="npu")).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        assert torch.equal(parameter.detach().cpu(), torch.full((3,), expected))
        assert scaler.get_scale() == scale


def test_training_with_dropout_repeats_with_its_seed() -> None:
    def train() -> Tensor:
        torch.manual_seed(3)
        model = Attentive(dropout=0.3).npu()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        x, y = floats(4, 3, 32, 32).npu(), torch.tensor([0, 1, 2, 4], device="npu")
        return torch.stack([_plain(model, optimizer, x, y) for _ in range(3)]).cpu()

    first = train()
    assert torch.equal(first, train())
    assert first.isfinite().all()


def test_evaluation_gives_the_same_bits() -> None:
    for make in MODELS.values():
        torch.manual_seed(0)
        model = make().eval()
        x = floats(2, 3, 32, 32)
        with torch.inference_mode():
            expected = model(x)
            assert_identical(model.npu()(x.npu()), expected)
