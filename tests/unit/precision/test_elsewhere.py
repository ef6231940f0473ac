"""What correct devices other than the CPU do otherwise: judged beside a CPU that does the same."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import PackedSequence

from pytest_ascend.precision.compare import compare
from pytest_ascend.precision.kernel_fallbacks import autocast_elsewhere, kernel_fallbacks
from pytest_ascend.precision.layers import layers
from pytest_ascend.precision.orders import other_order
from pytest_ascend.precision.reference import Source
from pytest_ascend.precision.whole import models, whole
from pytest_ascend.system.errors import UsageError


class Experts(nn.Module):
    """Two layers around tokens in some order, which the result does not depend on."""

    def __init__(self, *, is_wrong: bool = False, turned: bool = False) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(8, 8), nn.Linear(8, 8)
        self.is_wrong, self.turned = is_wrong, turned

    def forward(self, x: Tensor) -> Tensor:
        """Compute row by row, and restore the order."""
        order = torch.arange(len(x)).flip(0) if self.turned else torch.arange(len(x))
        found: Tensor = self.outer(self.inner(x[order]).relu())[order]
        return found + 0.1 if self.is_wrong else found


def pair(**how: bool) -> tuple[nn.Module, nn.Module]:
    torch.manual_seed(0)
    original = nn.Sequential(nn.Linear(8, 8), Experts())
    model = nn.Sequential(nn.Linear(8, 8), Experts(turned=True, **how))
    model.load_state_dict(original.state_dict())
    return model, original


def test_another_order_of_tokens_within_a_module_that_agrees_is_no_fault() -> None:
    report = models(*pair(), torch.randn(6, 8))
    assert report.agrees
    assert [each.label for each in report.layers if "within a module that agrees" in each.note] == [
        "1.inner",
        "1.outer",
    ]


def test_within_a_module_that_is_wrong_nothing_is_taken_back() -> None:
    report = models(*pair(is_wrong=True), torch.randn(6, 8))
    assert not report.agrees
    assert not any("within a module that agrees" in each.note for each in report.layers)


class Noisy(nn.Module):
    """Adds random numbers."""

    def forward(self, x: Tensor) -> Tensor:
        """Add them: no two calls agree."""
        return x + torch.randn_like(x)


def test_a_rewritten_model_is_not_compared_with_one_that_draws_random_numbers() -> None:
    original = nn.Sequential(nn.Linear(4, 4), Noisy())
    with pytest.raises(UsageError, match=r"draws random numbers \(randn_like\) in 1, others on each device"):
        models(nn.Sequential(nn.Linear(4, 4), Noisy()), original, torch.randn(3, 4))
    original[1] = nn.Dropout(0.5)
    with pytest.raises(UsageError, match="in 1, others on each device"):
        models(copy.deepcopy(original), original, torch.randn(3, 4))
    assert models(copy.deepcopy(original.eval()), original, torch.randn(3, 4)).agrees


def test_a_layer_with_random_numbers_is_not_judged() -> None:
    report = layers(nn.Sequential(nn.Linear(4, 4), Noisy()), torch.randn(3, 4))
    assert report.agrees
    assert [each.label for each in report.layers if "random numbers" in each.note] == ["1", "(model)"]


class Seeded(nn.Module):
    """Adds random numbers by a seed of its own; one call is a device's, which draws others by the same seed."""

    calls, of_device = 0, 0

    def forward(self, x: Tensor) -> Tensor:
        """Add them."""
        Seeded.calls += 1
        torch.manual_seed(7 if Seeded.calls == Seeded.of_device else 1)
        return x + torch.randn_like(x)


def test_a_model_that_sets_a_seed_itself_is_not_accused() -> None:
    model, x = nn.Sequential(nn.Linear(4, 4), Seeded()), torch.randn(3, 4)
    Seeded.calls, Seeded.of_device = 0, 1
    report = layers(model, x)
    assert report.agrees
    assert [each.label for each in report.layers if "random numbers" in each.note] == ["1", "(model)"]
    for judged in (partial(whole, model), partial(models, copy.deepcopy(model), model)):
        Seeded.calls, Seeded.of_device = 0, 0
        assert judged(x).agrees
        Seeded.calls, Seeded.of_device = 0, 3
        with pytest.raises(UsageError, match=r"draws random numbers \(randn_like\) in 1, others on each device"):
            judged(x)


@pytest.mark.parametrize("name", ["sort", "topk", "kthvalue", "median", "nanmedian", "mode"])
def test_any_of_equal_elements_may_be_taken(name: str) -> None:
    x = torch.tensor([[1.0, 2.0, 2.0, 2.0, 2.0, 0.0, 2.0]])
    args = {"topk": (3,), "kthvalue": (4,), "median": (-1,), "nanmedian": (-1,)}.get(name, ())
    values, indices = getattr(torch, name)(x, *args)
    moved = []
    for order in range(4):
        with other_order(order):
            again, others = getattr(torch, name)(x, *args)
        assert torch.equal(values, again)
        at = others if others.dim() == 2 else others.unsqueeze(-1)
        assert torch.equal(x.gather(-1, at).reshape(again.shape), again)
        moved.append(not torch.equal(indices, others))
    assert any(moved)


def test_a_stable_sort_stays_stable() -> None:
    x = torch.tensor([2.0, 1.0, 2.0, 1.0])
    with other_order():
        assert x.sort(stable=True).indices.tolist() == [1, 3, 0, 2]


def test_products_are_rounded_under_autocast_as_elsewhere() -> None:
    torch.manual_seed(0)
    matrix, vector = torch.randn(5, 7), torch.randn(7)
    rounded = matrix.bfloat16() @ vector.bfloat16()
    with torch.autocast("cpu", dtype=torch.bfloat16), autocast_elsewhere():
        assert torch.equal(torch.mv(matrix, vector), rounded)
    with autocast_elsewhere():
        assert torch.mv(matrix, vector).dtype is torch.float32
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.pinverse(matrix).dtype is torch.float32
        with autocast_elsewhere():
            assert torch.pinverse(matrix).dtype is matrix.pinverse(1e-15).dtype is torch.bfloat16
    with autocast_elsewhere():
        assert torch.equal(matrix.pinverse(rcond=1e-3), torch.linalg.pinv(matrix, rcond=1e-3))


class Mixed(nn.Module):
    """Gives functions that autocast elsewhere casts, or whose kernels take two dtypes, inputs of two dtypes."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.both = nn.Linear(8, 8), nn.Bilinear(8, 8, 4)

    def forward(self, x: Tensor, *, widens: bool = False) -> Tensor:
        """Compute; ``widens`` casts by hand."""
        y = self.up(x)
        y = y.float() if widens else y
        kept = torch.zeros(3, 8)
        kept[1:] = y[:2]
        return self.both(y, y) + kept.index_add(0, torch.tensor([0, 0, 2]), y)[:, :4]


def test_inputs_of_two_dtypes_are_cast_under_autocast_as_elsewhere() -> None:
    torch.manual_seed(0)
    model, x = Mixed(), torch.randn(3, 8)
    expected = Source(model, (x,), {}, torch.bfloat16).exact()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = model(x, widens=True)
    verdict = compare(found, expected)
    assert verdict.agrees
    wrong = compare(found + 0.1, expected)
    assert "in float32, under autocast to bfloat16, in different orders" in wrong.message
    assert "no kernel of bilinear for this: that operator alone is computed in one dtype" in wrong.message


def test_what_the_cpu_lacks_under_autocast_is_held_against_the_lower_dtype() -> None:
    class Refused(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            if torch.is_autocast_enabled("cpu") and not allowed:
                raise RuntimeError("not here")
            return super().forward(x).float()

    allowed: list[bool] = []
    torch.manual_seed(0)
    model, x = Refused(64, 8), torch.randn(16, 64)
    expected = Source(model, (x,), {}, torch.bfloat16).exact()
    wrong = compare(torch.zeros(16, 8), expected)
    assert "in bfloat16 throughout, as it gives none under autocast (RuntimeError: not here)" in wrong.message
    allowed.append(True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert compare(model(x), expected).agrees


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_what_the_cpu_lacks_in_16_bits_is_computed_in_float32(dtype: torch.dtype) -> None:
    def nearest(x: Tensor, distances: Tensor | None = None) -> Tensor:
        distances = torch.cdist(x, x) if distances is None else distances
        return x[distances.topk(4, largest=False).indices].mean(1)

    x = torch.randn(24, 3, generator=torch.Generator().manual_seed(0)).to(dtype)
    expected = Source(nearest, (x,), {}).exact()
    assert compare(nearest(x, torch.cdist(x.float(), x.float()).to(dtype)), expected).agrees
    wrong = compare(x, expected)
    assert "no kernel of cdist for this: that operator alone is computed in float32" in wrong.message


class Packs(nn.Module):
    """Packs sequences, with their padding as torch_npu does or without, and puts their last states out."""

    def __init__(self, *, pads: bool) -> None:
        super().__init__()
        self.pads, self.recurrent, self.head = pads, nn.Identity(), nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        """Compute."""
        sizes = torch.tensor([2, 2, 1, 1])
        rows = x.flatten(0, 1) if self.pads else x.flatten(0, 1)[[0, 1, 2, 3, 4, 6]]
        packed = self.recurrent(PackedSequence(rows, sizes))
        return self.head(packed.data[[3, -2 if self.pads else -1]])


def test_packed_sequences_are_compared_without_the_padding_of_torch_npu() -> None:
    torch.manual_seed(0)
    mine, original, x = Packs(pads=True), Packs(pads=False), torch.randn(4, 2, 3)
    mine.load_state_dict(original.state_dict())
    report = models(mine, original, x)
    assert report.agrees
    assert [each.label for each in report.layers] == ["recurrent", "head", "(model)"]
    sizes, rows = torch.tensor([2, 1]), torch.randn(4, 3)
    assert compare(PackedSequence(rows, sizes), PackedSequence(rows[:3].double(), sizes)).agrees
    assert not compare(PackedSequence(rows, sizes), PackedSequence(rows[1:].double(), sizes)).agrees
    assert not compare(PackedSequence(rows[:3], sizes), PackedSequence(rows.double()[[0, 2, 1]], sizes)).agrees


def test_a_layer_that_gets_packed_sequences_with_padding_is_not_judged() -> None:
    report = layers(Packs(pads=True), torch.randn(4, 2, 3))
    assert report.agrees
    assert [each.label for each in report.layers if "packs sequences with their padding" in each.note] == ["recurrent"]
    assert all(each.forward for each in layers(Packs(pads=False), torch.randn(4, 2, 3)).layers)


def gradient(function: Callable[[Tensor], Tensor], x: Tensor, seed: Tensor) -> Tensor:
    x = x.detach().requires_grad_()
    return torch.autograd.grad(function(x), x, seed)[0]


@pytest.mark.parametrize("name", ["layer", "group"])
def test_float16_may_have_rows_of_equal_numbers_in_a_norm(name: str) -> None:
    draw = torch.Generator().manual_seed(0)
    x, seed, weight = (torch.randn(shape, generator=draw).half() for shape in ((8, 32), (8, 32), (32, 32)))
    x[0], seed[0] = 0.5, seed[0] * 2.0**-10

    def norm(x: Tensor) -> Tensor:
        return F.layer_norm(x, (32,), eps=1e-12) if name == "layer" else F.group_norm(x, 1, eps=1e-12)

    def cpu(x: Tensor, seed: Tensor, weight: Tensor) -> Tensor:
        return gradient(lambda x: norm(x) @ weight, x, seed)

    assert cpu(x, seed, weight)[0].isnan().any()
    expected = Source(cpu, (x, seed, weight), {}).exact()
    runs = expected.reference_runs(torch.float16, 8)
    assert [each.isfinite().all().item() for each in runs] == [False, False, True, False, True, False, True, False]
    found = gradient(lambda x: norm(x.float()).half() @ weight, x, seed)
    assert compare(found, expected).agrees
    found[0, 2] *= 1.1
    assert not compare(found, expected).agrees


def test_one_sample_whose_channels_come_last_is_read_right_by_a_batch_norm() -> None:
    draw = torch.Generator().manual_seed(0)
    x, seed, weight = (torch.randn(shape, generator=draw) for shape in ((1, 8, 4, 4), (128,), (8,)))

    def norm(x: Tensor) -> Tensor:
        return F.batch_norm(x, torch.zeros_like(x[0, :, 0, 0]), torch.ones_like(x[0, :, 0, 0]), weight.to(x.dtype))

    last = seed.as_strided((1, 8, 4, 4), (8, 1, 32, 8))
    expected = Source(partial(gradient, norm), (x, last), {}).exact()
    found = last * weight.view(-1, 1, 1) * (1 + 1e-5) ** -0.5
    assert compare(found, expected).agrees
    assert not compare(found.flip(1), expected).agrees


def test_a_model_may_write_to_tensors_that_it_makes_in_float32() -> None:
    """As PointNet++ does to keep the nearest of many points: in float64 what it writes has another dtype."""

    class Nearest(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            nearest = torch.ones(x.shape) * 1e10
            nearest[x > 0] = x[x > 0]
            return nearest.clamp(max=3)

    x = torch.randn(5, 7, generator=torch.Generator().manual_seed(0))
    assert whole(Nearest(), x).agrees
    with kernel_fallbacks([], wide=True), pytest.raises(RuntimeError, match="dtype"):
        x.double().masked_scatter_(x > 0, x.int())  # of which no float64 is the reason
