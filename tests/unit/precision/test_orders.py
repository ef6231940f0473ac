"""Another order of an operator's sums is another way to be right: the same value, form and dtype, and other bits."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from pytest_ascend.precision.compare import compare
from pytest_ascend.precision.orders import FAITHFUL, other_order
from pytest_ascend.precision.reference import COUNTS_OF_MANY, Source


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.FLASH_ATTENTION):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def batch_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.batch_norm(x, None, None, weight, bias, training=True)


#: Name -> a function, the shapes of what it is given, and which of its results (what it returns, then the gradient of
#: each input) a sum of many numbers in another order makes: these have other bits than the CPU's own.
SUMS: Mapping[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...], tuple[int, ...]]] = {
    "mm": (torch.mm, ((5, 331), (331, 7)), (0,)),
    "mm, its gradients": (torch.mm, ((331, 5), (5, 337)), (1, 2)),
    "bmm": (torch.bmm, ((3, 5, 331), (3, 331, 7)), (0,)),
    "mv": (torch.mv, ((5, 331), (331,)), (0,)),
    "dot": (torch.dot, ((1331,), (1331,)), ()),
    "addmm": (lambda c, a, b: torch.addmm(c, a, b, beta=0.5, alpha=3), ((5, 7), (5, 331), (331, 7)), (0,)),
    "addmv": (lambda c, a, b: torch.addmv(c, a, b, beta=0.5, alpha=3), ((5,), (5, 331), (331,)), (0,)),
    "baddbmm": (lambda c, a, b: torch.baddbmm(c, a, b, alpha=3), ((3, 5, 7), (3, 5, 331), (3, 331, 7)), (0,)),
    "sum": (torch.sum, ((3, 1001),), ()),
    "sum of a dimension": (lambda x: x.sum(1, keepdim=True), ((64, 1001),), (0,)),
    "mean": (lambda x: x.mean((0, 2)), ((31, 3, 33),), (0,)),
    "logsumexp": (lambda x: x.logsumexp(1), ((64, 1001),), (0,)),
    "prod": (lambda x: (1 + x / 100).prod(1), ((64, 301),), (0,)),
    "var": (lambda x: x.var(1), ((64, 1001),), (0,)),
    "var, kept and uncorrected": (lambda x: x.var(1, correction=0, keepdim=True), ((64, 1001),), (0,)),
    "std": (lambda x: x.std(1, correction=2), ((64, 1001),), (0,)),
    "var of all": (lambda x: x.var(correction=1001), ((2, 1001),), ()),
    "var of one": (lambda x: x.view(-1, 1).var(1, correction=0), ((5,),), ()),
    "var_mean": (lambda x: torch.var_mean(x, 1, correction=0), ((3, 1001),), ()),
    "cumsum": (lambda x: x.cumsum(1), ((64, 1001),), (0,)),
    "cumprod": (lambda x: (1 + x / 100).cumprod(0), ((301, 64),), (0,)),
    "norm": (lambda x: torch.linalg.vector_norm(x, 3, 1), ((64, 1001),), (0,)),
    "softmax": (lambda x: x.softmax(1), ((64, 1001),), (0, 1)),
    "log_softmax": (lambda x: x.log_softmax(0), ((1001, 64),), (0, 1)),
    "layer_norm": (lambda x, w, b: F.layer_norm(x, (331,), w, b), ((37, 331), (331,), (331,)), (0, 1, 2)),
    "batch_norm": (batch_norm, ((17, 5, 31), (5,), (5,)), (1, 2)),
    "group_norm": (lambda x, w, b: F.group_norm(x, 2, w, b), ((17, 6, 331), (6,), (6,)), (0, 1, 2)),
    "convolution": (lambda x, w, b: F.conv2d(x, w, b, 2, 1), ((5, 16, 9, 9), (8, 16, 3, 3), (8,)), (0, 1, 2)),
    "convolution of a line": (F.conv1d, ((5, 64, 9), (8, 64, 3)), (0, 1, 2)),
    "convolution, in groups": (lambda x, w: F.conv1d(x, w, groups=4), ((15, 16, 19), (8, 4, 3)), (0, 1, 2)),
    "convolution, depthwise": (
        lambda x, w, b: F.conv2d(x, w, b, 2, 1, 1, 8),
        ((5, 8, 19, 9), (8, 1, 3, 3), (8,)),
        (0, 1, 2),
    ),
    "convolution, transposed": (
        lambda x, w: F.conv_transpose2d(x, w, None, 2),
        ((5, 16, 9, 9), (16, 8, 3, 3)),
        (0, 1, 2),
    ),
    "fft": (lambda x: torch.view_as_real(torch.fft.fft(x)), ((7, 96),), (0, 1)),
    "fft of parts": (
        lambda x: torch.view_as_real(torch.fft.fftn(x, dim=(0, 2), norm="ortho")),
        ((300, 2, 12),),
        (0, 1),
    ),
    "ifft": (lambda x: torch.view_as_real(torch.fft.ifft(torch.view_as_complex(x), dim=0)), ((96, 3, 2),), (0, 1)),
    "rfft": (lambda x: torch.view_as_real(torch.fft.rfftn(x)), ((12, 25),), (0, 1)),
    "irfft": (lambda x: torch.fft.irfftn(torch.view_as_complex(x)), ((12, 13, 2),), (0, 1)),
    "irfft of an odd size": (lambda x: torch.fft.irfft(torch.view_as_complex(x), n=25), ((12, 13, 2),), (0, 1)),
    "distances of many rows": (torch.cdist, ((37, 16), (41, 16)), (0,)),
    "embedding": (lambda w: F.embedding(torch.arange(999) % 7, w), ((7, 5),), (1,)),
    "attention": (attention, ((2, 2, 65, 16),) * 3, (0, 1, 2, 3)),
}


def results(function: Callable[..., Any], inputs: list[Tensor]) -> list[Tensor]:
    """Return what a function makes, and the gradient of each input for a gradient that is no constant."""
    given = [each.clone().requires_grad_() for each in inputs]
    made = function(*given)
    made = list(made) if isinstance(made, tuple) else [made]
    draw = torch.Generator().manual_seed(6)
    weights = [torch.randn(each.shape, generator=draw).to(each.dtype) for each in made]
    return [*(each.detach() for each in made), *torch.autograd.grad(made, given, weights)]


def drawn(shapes: tuple[tuple[int, ...], ...]) -> list[Tensor]:
    draw = torch.Generator().manual_seed(5)
    return [torch.randn(shape, generator=draw) for shape in shapes]


@pytest.mark.parametrize("order", [0, 1, 5, 7])
@pytest.mark.parametrize("name", SUMS)
def test_another_order_is_right_and_other(name: str, order: int) -> None:
    function, shapes, others = SUMS[name]
    inputs = drawn(shapes)
    usual, exact = results(function, inputs), results(function, [each.double() for each in inputs])
    with other_order(order):
        found = results(function, inputs)
    for each, plain, right in zip(found, usual, exact, strict=True):
        assert (each.shape, each.dtype) == (plain.shape, torch.float32)
        assert (each.double() - right).abs().max() <= 5e-6 * right.abs().max()
    assert [place for place in others if torch.equal(found[place], usual[place])] == []
    assert all(torch.equal(each, again) for each, again in zip(results(function, inputs), usual, strict=True))


@pytest.mark.parametrize("order", [7, 9])
def test_late_orders_add_the_gradients_of_float32_weights_otherwise_beside_16_bits(order: int) -> None:
    x, seed, weight = drawn(((2, 64, 32, 32), (2, 64, 32, 32), (64,)))

    def of_weight(x: Tensor, seed: Tensor, weight: Tensor) -> Tensor:
        weight = weight.clone().requires_grad_()
        made = F.batch_norm(x, torch.zeros_like(weight), torch.ones_like(weight), weight, eps=0.0)
        return torch.autograd.grad(made, weight, seed)[0]

    exact = of_weight(x.bfloat16().double(), seed.bfloat16().double(), weight.double())
    with other_order(order):
        found = of_weight(x.bfloat16(), seed.bfloat16(), weight)
    ulp = exact.abs() * torch.finfo(torch.float32).eps
    assert 1 < ((found - exact).abs() / ulp).max() < 1000


def test_each_order_adds_the_norms_of_weights_otherwise() -> None:
    v, g = drawn(((32, 64, 9), (1, 1, 9)))
    found = []
    for order in (0, 5, 7):
        with other_order(order):
            found.append(torch._weight_norm_interface(v, g, 2)[1])
        assert torch.allclose(found[-1], torch.norm_except_dim(v, 2, 2), rtol=1e-6)
    assert not any(torch.equal(found[place], found[place - 1]) for place in range(3))


@pytest.mark.parametrize("size", [32, 64, 128])
def test_a_fourier_transform_may_be_a_product_with_sines_and_cosines(size: int) -> None:
    def transformed(x: Tensor, factor: torch.dtype) -> Tensor:
        places = torch.arange(size)
        angles = (torch.outer(places, places) % size).float() * (-2 * math.pi / size)
        parts = (x @ angles.cos().to(factor).float(), x @ angles.sin().to(factor).float())
        return torch.stack(parts, -1)

    for seed in range(8):
        x = torch.randn(16, size, generator=torch.Generator().manual_seed(seed))
        expected = Source(lambda x: torch.view_as_real(torch.fft.fft(x)), (x,), {}).exact()
        assert compare(transformed(x, torch.float32), expected).agrees
        assert not compare(transformed(x, torch.float16), expected).agrees
        assert not compare(transformed(x, torch.float32) * (1 + 2**-20), expected).agrees


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("name", [each for each in FAITHFUL if hasattr(torch, each)])
def test_functions_are_rounded_faithfully_and_not_all_to_the_nearest(name: str, dtype: torch.dtype) -> None:
    function = getattr(torch, name)
    x = torch.linspace(0.05, 0.95, 997).to(dtype)
    exact = function(x.double())
    nearest = exact.to(dtype)
    below, above = (torch.nextafter(nearest, torch.tensor(end, dtype=dtype)) for end in (-torch.inf, torch.inf))
    farther = torch.where(exact > nearest.double(), above, below)
    moved = []
    for order in range(8):
        with other_order(order):
            found = function(x)
        assert found.dtype is dtype
        assert bool(((found == nearest) | (found == farther)).all())
        moved.append(found != nearest)
        assert 0.1 < moved[-1].double().mean() < 0.9
    assert bool(
        (torch.stack(moved[1:5]).any(0) | (exact == nearest.double())).all()
    )  # four orders choose all elements between them


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_every_second_late_order_goes_the_other_way_in_float16(dtype: torch.dtype) -> None:
    x = torch.linspace(0.05, 0.95, 997).to(dtype)
    exact = x.double().sigmoid()
    nearest = exact.to(dtype)
    spacing = (nearest.nextafter(torch.ones((), dtype=dtype)) - nearest).double()
    with other_order(8):
        off = (x.sigmoid().double() - exact).abs() / spacing
    assert off.max() <= 1.5
    assert bool((off > 1).any()) == (dtype is torch.float16)


def test_each_order_is_another() -> None:
    (x,) = drawn(((64, 1001),))
    found = [x.sum(1)]
    for order in (0, 1, 2, 7):
        with other_order(order):
            found.append(x.sum(1))
    with other_order(0):
        assert torch.equal(found[1], x.sum(1))
    assert torch.equal(found[1], x.flip(1).sum(1))
    assert not [one for one in range(5) for other in range(one) if torch.equal(found[one], found[other])]


def test_bfloat16_is_rounded_to_the_nearest_in_the_first_order_alone() -> None:
    x = torch.linspace(0.05, 0.95, 997).bfloat16()
    for order in (0, 1):
        with other_order(order):
            moved = x.exp() != x.double().exp().bfloat16()
        assert bool(moved.any()) == (order > 0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_exponentials_kept_for_a_gradient_are_rounded_faithfully_where_that_matters(dtype: torch.dtype) -> None:
    x = drawn(((64, 301),))[0].to(dtype)
    exact = x.double().softmax(1)
    spacing = exact.to(dtype).nextafter(torch.ones((), dtype=dtype)).double() - exact.to(dtype).double()
    for order in (0, 1, 4, 5, 6, 7):
        with other_order(order):
            off = ((x.softmax(1).double() - exact) / spacing).abs().max()
        if dtype is torch.float16 or order not in (0, 5, 6):
            assert 0.5 < off <= 1
        else:
            assert off > 1


@pytest.mark.parametrize("order", [4, 5])
def test_late_orders_have_the_reciprocal_root_wrong_by_two_units(order: int) -> None:
    (x,) = drawn(((64, 301),))
    with other_order(order):
        root = torch.native_layer_norm(x, [301], None, None, 1e-5)[2]
    exact = (x.double().var(1, correction=0, keepdim=True) + 1e-5).rsqrt()
    off = (root.double() / exact - 1) * 2**22
    assert off.abs().max() < 1.6
    assert bool((off.abs() > 0.7).any()) == (order > 4)
    if order > 4:
        assert off.min() < -0.7
        assert off.max() > 0.7


def test_late_orders_have_the_reciprocal_root_of_a_batch_norm_wrong_in_evaluation_mode() -> None:
    x, mean, var = torch.ones(2, 64, 3, requires_grad=True), torch.zeros(64), torch.linspace(0.5, 2, 64)
    exact = (var.double() + 1e-5).rsqrt()
    furthest = []
    for order in (0, 1, 7):
        with other_order(order):
            (grad,) = torch.autograd.grad(F.batch_norm(x, mean, var).sum(), x)
        furthest.append(float((grad[0, :, 0] / exact - 1).abs().max()) * 2**23)
    assert max(furthest[:2]) < 1.1 < furthest[2] < 3.1


@pytest.mark.parametrize("order", [6, 7])
def test_late_orders_have_a_reciprocal_root_by_itself_wrong_by_two_units(order: int) -> None:
    x = torch.linspace(0.5, 2, 301)
    with other_order(order):
        found = x.rsqrt()
    off = (found.double() / x.double().rsqrt() - 1) * 2**22
    assert off.abs().max() < 1.6
    assert bool((off.min() < -0.7) & (off.max() > 0.7)) == (order > 6)


@pytest.mark.parametrize("order", [6, 7])
def test_late_orders_have_powers_with_different_exponents_wrong_by_two_units(order: int) -> None:
    exponents = torch.linspace(0, 1, 301)
    with other_order(order):
        found, square = 10000**exponents, exponents**2
    off = (found.double() / 10000 ** exponents.double() - 1) * 2**22
    assert found[0] == 1  # as IEEE 754 has it
    assert off.abs().max() < 1.6
    assert bool((off.abs() > 0.7).any()) == (order > 6)
    assert (square.double() - exponents.double() ** 2).abs().max() < 2.0**-23


@pytest.mark.parametrize("x", [torch.linspace(-2, 2, 33, dtype=torch.float64), torch.arange(33)])
def test_integers_and_float64_are_not_rounded(x: Tensor) -> None:
    for function in (torch.sum, lambda x: x.cumsum(0), lambda x: x.double().exp(), torch.relu):
        for order in (0, 1):
            with other_order(order):
                found = function(x)
            torch.testing.assert_close(found, function(x), rtol=1e-14, atol=1e-14)
    with other_order(1):
        assert F.max_pool2d(torch.ones(1, 4, 4).double(), 2).tolist() == [[[1, 1], [1, 1]]]


#: Name -> a function with kinks, where they are, and the slopes on either side of each.
KINKS: Mapping[str, tuple[Callable[[Tensor], Tensor], dict[float, tuple[float, float]]]] = {
    "relu": (torch.relu, {0.0: (0, 1)}),
    "leaky_relu": (lambda x: F.leaky_relu(x, 0.25), {0.0: (0.25, 1)}),
    "hardtanh": (lambda x: F.hardtanh(x, -0.5, 2), {-0.5: (0, 1), 2.0: (1, 0)}),
    "hardswish": (F.hardswish, {-3.0: (0, -0.5), 3.0: (1.5, 1)}),
    "hardsigmoid": (F.hardsigmoid, {-3.0: (0, 1 / 6), 3.0: (1 / 6, 0)}),
    "prelu": (lambda x: F.prelu(x, torch.tensor([0.25])), {0.0: (0.25, 1)}),
    "abs": (torch.abs, {0.0: (-1, 1)}),
    "clamp": (lambda x: x.clamp(-0.5, 2), {-0.5: (0, 1), 2.0: (1, 0)}),
}


@pytest.mark.parametrize("name", KINKS)
def test_what_is_near_a_kink_goes_to_its_other_side_and_nothing_else_does(name: str) -> None:
    function, kinks = KINKS[name]
    for kink, slopes in kinks.items():
        near, far = 4e-6, 0.1  # some roundings of inputs of the size of 4, and no rounding
        x = torch.tensor([kink - far, kink - near, kink + near, kink + far, 4.0]).requires_grad_()
        plain = function(x)
        with other_order():
            made = function(x)
            (slope,) = torch.autograd.grad(made.sum(), x)
        assert torch.allclose(made, plain, atol=1e-5)
        assert torch.allclose(slope[:4:3], torch.tensor(slopes).float(), atol=0.06)
        assert torch.allclose(slope[1:3], torch.tensor(slopes[::-1]).float(), atol=1e-4)
        with other_order(1):
            (slope,) = torch.autograd.grad(function(x).sum(), x)
        assert torch.allclose(slope[1:3], torch.tensor(slopes).float(), atol=1e-4)


def test_among_nearly_equal_maxima_any_is_chosen_and_a_clear_one_always() -> None:
    x = torch.zeros(1, 200, 4, 4)
    x[..., 0, 0], x[..., 1, 1], x[..., 2, 2], x[..., 3, 3] = 1, 1 + 2**-22, 1, 1.5
    with other_order(3):
        values, places = F.max_pool2d(x, 2, return_indices=True)
    assert torch.allclose(values, F.max_pool2d(x, 2), atol=1e-6)
    assert set(places[0, :, 0, 0].tolist()) == {0, 5}
    assert set(places[0, :, 1, 1].tolist()) == {15}


@pytest.mark.parametrize("reduce", [torch.amax, lambda x, dim: x.max(dim).values, lambda x, dim: -(-x).min(dim)[0]])
def test_the_gradient_of_a_maximum_goes_to_any_that_is_nearly_the_largest(reduce: Callable[..., Tensor]) -> None:
    x = torch.tensor([1.0, 1 + 2**-22, 0.5]).repeat(64, 1).requires_grad_()
    with other_order():
        made = reduce(x, 1)
        (found,) = torch.autograd.grad(made.sum(), x)
    assert torch.equal(made, reduce(x, 1))
    assert found[:, 0].any(), "the second largest gets some"
    assert torch.equal(found.sum(1), torch.ones(64))
    assert not found[:, 2].any()


def test_a_comparison_that_is_no_part_of_a_backward_pass_stays_as_it_is() -> None:
    x = torch.tensor([1e-7, 1.0])
    with other_order():
        assert (x > 0).all()
        assert torch.equal(x.sgn(), torch.ones(2))


@pytest.mark.parametrize("groups", [1, 2])
def test_each_order_sums_the_gradients_of_a_convolutions_few_parameters_otherwise(groups: int) -> None:
    generator = torch.Generator().manual_seed(0)
    shapes = ((2, 2, 3000), (4, 2 // groups, 7), (4,))
    x, weight, bias = (torch.randn(shape, generator=generator).requires_grad_() for shape in shapes)

    def gradients(dtype: torch.dtype) -> list[Tensor]:
        given = [each.detach().to(dtype).requires_grad_() for each in (x, weight, bias)]
        return list(torch.autograd.grad(F.conv1d(*given, padding=3, groups=groups).sin().sum(), given[1:]))

    exact, found = gradients(torch.float64), []
    for number in range(6):
        with other_order(number):
            found.append(gradients(torch.float32))
    for place, each in enumerate(exact):
        assert all(torch.allclose(made[place].double(), each, rtol=1e-4, atol=1e-3) for made in found)
        assert len({tuple(made[place].flatten().tolist()) for made in found}) == 6


def test_a_gradient_that_the_cpu_adds_in_float64_is_added_in_float32_too() -> None:
    generator = torch.Generator().manual_seed(0)
    x, seed = torch.randn(5, 5, 5, generator=generator), torch.randn(5, 5, 5, generator=generator)

    def gradient(dtype: torch.dtype) -> Tensor:
        given = x.to(dtype).requires_grad_()
        return torch.autograd.grad(torch.renorm(given, 2, 1, 0.5), given, seed.to(dtype))[0]

    exact, errors = gradient(torch.float64), []
    for number in range(4):
        with other_order(number):
            errors.append(float((gradient(torch.float32) - exact).abs().max()))
            assert gradient(torch.float64).dtype is torch.float64
            assert x.sum(dtype=torch.float64).dtype is torch.float64
    assert errors[0] == errors[2]
    assert min(errors[1], errors[3]) > errors[0]
    assert max(errors) < 1e-7


@pytest.mark.parametrize("seed", range(4))
def test_what_cancels_in_a_sum_of_16_bits_may_be_lost_as_in_float32(seed: int) -> None:
    draw = torch.Generator().manual_seed(seed)
    half = torch.randn(12, 32, generator=draw).bfloat16()
    x = torch.cat([half, -half, torch.randn(1, 32, generator=draw).bfloat16() * 2.0**-16])
    x = x[torch.randperm(25, generator=draw)]
    expected = Source(lambda x: x.sum(0), (x,), {}, counts=COUNTS_OF_MANY).exact()

    def added(dtype: torch.dtype) -> Tensor:
        total = torch.zeros(32, dtype=dtype)
        for place in torch.randperm(25, generator=torch.Generator().manual_seed(99 + seed)):
            total += x[place].to(dtype)
        return total.bfloat16()

    assert compare(added(torch.float32), expected).agrees
    assert not compare(added(torch.bfloat16), expected).agrees
