"""Kernels of normalization by themselves, against torch's functions and their gradients in float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from .kernel import T, by_name, called, close, floats, gradients

EPS = 0.5  # large enough to be seen


def _rms(x: T, gamma: T) -> T:
    return x * _rstd(x, gamma) * gamma


def _rstd(x: T, gamma: T) -> T:
    dims = tuple(range(x.dim() - gamma.dim(), x.dim()))
    return (x.square().mean(dims, keepdim=True) + EPS).rsqrt()


SHAPES = [((4, 6), (6,)), ((2, 3, 6), (6,)), ((4, 3, 6), (3, 6))]


@pytest.mark.parametrize(("shape", "weights"), SHAPES, ids=str)
def test_root_mean_squares_and_their_gradients(shape: tuple[int, ...], weights: tuple[int, ...]) -> None:
    x, gamma, dy = floats(*shape), floats(*weights, seed=1), floats(*shape, seed=2)
    rstd = _rstd(x, gamma)
    close(called("RmsNorm", x, gamma, EPS), (_rms(x, gamma), rstd))
    close(called("GemmaRmsNorm", x, gamma, EPS), (_rms(x, gamma + 1), rstd))
    close(called("RmsNormGrad", dy, x, rstd, gamma), gradients(_rms, dy, x, gamma))
    other = floats(*shape, seed=3)
    close(called("AddRmsNorm", x, other, gamma, EPS), (_rms(x + other, gamma), _rstd(x + other, gamma), x + other))
    first, second = x.clone(), other.clone()
    close(called("InplaceAddRmsNorm", first, second, gamma, EPS), _rstd(x + other, gamma))
    close((first, second), (_rms(x + other, gamma), x + other))


def test_root_mean_squares_of_halves_are_computed_in_float32() -> None:
    x, gamma = floats(4, 64).half(), floats(64, seed=1).half()
    y, rstd = called("RmsNorm", x, gamma, 1e-6)
    assert rstd.dtype == torch.float32
    wide = x.double()
    wanted = wide * (wide.square().mean(-1, keepdim=True) + 1e-6).rsqrt() * gamma.double()
    close(y.double(), wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("biased", [False, True])
def test_sums_are_normalized(biased: bool, keep: bool) -> None:
    x1, x2, gamma, beta = (floats(*shape, seed=i) for i, shape in enumerate([(4, 6), (4, 6), (6,), (6,)]))
    bias = floats(6, seed=9) if biased else None
    total = x1 + x2 + (bias if biased else 0)
    mean = total.mean(-1, keepdim=True)
    rstd = (total.var(-1, correction=0, keepdim=True) + EPS).rsqrt()
    found = called("AddLayerNorm", x1, x2, gamma, beta, bias, EPS, keep)
    wanted = F.layer_norm(total, (6,), gamma, beta, EPS)
    close(found, (wanted, mean, rstd, total if keep else None))


@pytest.mark.parametrize("more", [False, True])
def test_gradients_of_normalized_sums(more: bool) -> None:
    x1, x2, gamma, beta = (floats(*shape, seed=i) for i, shape in enumerate([(4, 6), (4, 6), (6,), (6,)]))
    dy, dsum = floats(4, 6, seed=7), floats(4, 6, seed=8) if more else None
    total = x1 + x2
    mean, rstd = total.mean(-1, keepdim=True), (total.var(-1, correction=0, keepdim=True) + EPS).rsqrt()
    dx, dgamma, dbeta = gradients(lambda *given: F.layer_norm(given[0], (6,), *given[1:], EPS), dy, total, gamma, beta)
    found = called("AddLayerNormGrad", dy, x1, x2, rstd, mean, gamma, dsum)
    close(found, (dx + (dsum if more else 0), dgamma, dbeta))


def test_deep_norm_and_its_gradients() -> None:
    x, gx, beta, gamma = (floats(*shape, seed=i) for i, shape in enumerate([(4, 6), (4, 6), (6,), (6,)]))
    dy, alpha = floats(4, 6, seed=7), 0.3
    total = x * alpha + gx
    mean, rstd = total.mean(-1, keepdim=True), (total.var(-1, correction=0, keepdim=True) + EPS).rsqrt()

    def defined(x: T, gx: T, beta: T, gamma: T) -> T:
        return F.layer_norm(x * alpha + gx, (6,), gamma, beta, EPS)

    close(called("DeepNorm", x, gx, beta, gamma, alpha, EPS), (mean, rstd, defined(x, gx, beta, gamma)))
    found = called("DeepNormGrad", dy, x, gx, gamma, mean, rstd, alpha)
    close(found, gradients(defined, dy, x, gx, beta, gamma))


def test_layer_norm_by_name() -> None:
    x, gamma, beta = floats(3, 4, 6), floats(4, 6, seed=1), floats(4, 6, seed=2)
    y, mean, rstd = by_name("LayerNormV3")(x, gamma, beta, epsilon=EPS, begin_norm_axis=1)
    close(y, F.layer_norm(x, (4, 6), gamma, beta, EPS))
    close(mean.flatten(), x.mean((1, 2)))
    close(rstd.flatten(), (x.var((1, 2), correction=0) + EPS).rsqrt())


@pytest.mark.parametrize("widened", [False, True], ids=["same dtype", "wide parameters"])
def test_gradients_of_layer_norm(widened: bool) -> None:
    x, dy = floats(5, 6).half(), floats(5, 6, seed=1).half()
    gamma, beta = (floats(6, seed=seed).to(torch.float32 if widened else torch.half) for seed in (2, 3))
    mean = x.float().mean(-1, keepdim=True)
    rstd = (x.float().var(-1, correction=0, keepdim=True) + EPS).rsqrt()
    wanted = gradients(lambda *given: F.layer_norm(given[0], (6,), *given[1:], EPS), dy, x, gamma, beta)
    found = called("LayerNormBackward", dy, x, [6], mean, rstd, gamma, beta, [True, True, True])
    close([each.float() for each in found], [each.float() for each in wanted], rtol=3e-3, atol=3e-3)
    masked = called("LayerNormBackward", dy, x, [6], mean, rstd, gamma, None, [True, False, False])
    close(masked[0].float(), wanted[0].float(), rtol=3e-3, atol=3e-3)
    plain = called("LayerNormBackward", dy.float(), x.float(), [6], mean, rstd, None, None, [True, False, False])
    close(plain[0], gradients(lambda each: F.layer_norm(each, (6,), eps=EPS), dy.float(), x.float())[0])


@pytest.mark.parametrize("strided", [False, True])
def test_groups_are_normalized_and_activated(strided: bool) -> None:
    x, gamma, beta = floats(2, 6, 4, 5), floats(6, seed=1), floats(6, seed=2)
    normal = F.group_norm(x, 3, gamma, beta, EPS)
    mean = x.view(2, 3, -1).mean(-1)
    rstd = (x.view(2, 3, -1).var(-1, correction=0) + EPS).rsqrt()
    given: list[Any] = [x, gamma, beta]
    if strided:
        given = [torch.stack([each, each + 7], -1)[..., 0] for each in given]
    close(called("GroupNormSilu", *given, 3, EPS), (F.silu(normal), mean, rstd))
    close(called("GroupNorm", *given, 2, 6, 20, 3, EPS), (normal, mean, rstd))
    close(called("GroupNorm", given[0], None, None, 2, 6, 20, 3, EPS)[0], F.group_norm(x, 3, eps=EPS))
    close(called("GroupNormSilu", given[0], None, None, 3, EPS)[0], F.silu(F.group_norm(x, 3, eps=EPS)))
    swish = called("GroupNormSwish", *given, groups=3, eps=EPS, activateSwish=True, swishScale=1.7)
    close(swish, (normal * torch.sigmoid(1.7 * normal), mean, rstd))
    close(called("GroupNormSwish", *given, groups=3, eps=EPS, swishScale=1.7)[0], normal)


@pytest.mark.parametrize("asked", [(True, True), (True, False), (False, True)])
def test_gradients_of_activated_groups(asked: tuple[bool, bool]) -> None:
    x, gamma, beta, dy = floats(2, 6, 4), floats(6, seed=1), floats(6, seed=2), floats(2, 6, 4, seed=3)
    mean, rstd = x.view(2, 3, -1).mean(-1), (x.view(2, 3, -1).var(-1, correction=0) + EPS).rsqrt()

    def defined(x: T, gamma: T, beta: T) -> T:
        y = F.group_norm(x, 3, gamma, beta, EPS)
        return y * torch.sigmoid(1.7 * y)

    found = called("GroupNormSwishGrad", dy, mean, rstd, x, gamma, beta, 3, None, 1.7, *asked)
    for each, wanted, is_asked in zip(found, gradients(defined, dy, x, gamma, beta), (True, *asked), strict=True):
        if is_asked:
            close(each, wanted)
        else:
            assert each is None or not each.numel()


def _of_all(parts: list[T]) -> T:
    return torch.cat(parts)


@pytest.mark.parametrize("affine", [False, True])
@pytest.mark.parametrize("shape", [(5, 3), (5, 3, 4, 2)], ids=str)
def test_a_batch_on_several_devices_is_normalized_as_a_whole(shape: tuple[int, ...], affine: bool) -> None:
    """Two devices, of 5 and of 2 images: statistics of each are combined, and so are sums for the gradient."""
    parts = [floats(*shape), floats(2, *shape[1:], seed=1) + 1]
    weight, bias = (floats(3, seed=seed) if affine else None for seed in (2, 3))
    x, counts = _of_all(parts), torch.tensor([each.numel() // 3 for each in parts])
    stats = [called("BatchNormStats", part, EPS) for part in parts]
    for part, (mean, invstd) in zip(parts, stats, strict=True):
        dims = [0, *range(2, len(shape))]
        close((mean, invstd), (part.mean(dims), (part.var(dims, correction=0) + EPS).rsqrt()))
    running = [floats(3, seed=4), floats(3, seed=5).abs()]
    kept = [each.clone() for each in running]
    means, invstds = (torch.stack(each) for each in zip(*stats, strict=True))
    mean, invstd = called(
        "BatchNormGatherStatsWithCounts", parts[0], means, invstds, *running, 0.3, EPS, counts.float()
    )
    wanted = F.batch_norm(x, *kept, weight, bias, training=True, momentum=0.3, eps=EPS)
    close(running, kept)
    close(called("BatchNormGatherStatsWithCounts", parts[0], means, invstds, None, None, 0.3, EPS, counts),
          (mean, invstd))  # fmt: skip
    made = [called("BatchNormElemt", part, weight, bias, mean, invstd, EPS) for part in parts]
    close(_of_all(made), wanted)

    dys = [floats(*part.shape, seed=6 + i) for i, part in enumerate(parts)]
    leaves = [x, *(each for each in (weight, bias) if each is not None)]
    dx, *of_affine = gradients(
        lambda x, *pair: F.batch_norm(x, None, None, *pair, training=True, eps=EPS), _of_all(dys), *leaves
    )
    reduced = [
        called("BatchNormReduceBackward", dy, part, mean, invstd, weight, True, True, True)
        for dy, part in zip(dys, parts, strict=True)
    ]
    sums, products, of_weight, of_bias = (sum(each) for each in zip(*reduced, strict=True))
    found = [
        called("BatchNormElemtBackward", dy, part, mean, invstd, weight, sums, products, counts)
        for dy, part in zip(dys, parts, strict=True)
    ]
    close(_of_all(found), dx)
    if affine:
        close((of_weight, of_bias), tuple(of_affine))


@pytest.mark.parametrize("asked", [(True, False, False), (False, True, False), (False, False, True)])
def test_only_the_sums_that_are_asked_are_returned(asked: tuple[bool, bool, bool]) -> None:
    dy, x = floats(4, 3), floats(4, 3, seed=1)
    found = called("BatchNormReduceBackward", dy, x, x.mean(0), torch.ones(3), None, *asked)
    of_input, of_weight, of_bias = asked
    assert [each is not None for each in found] == [of_input, of_input, of_weight, of_bias]


@pytest.mark.parametrize("affine", [False, True])
@pytest.mark.parametrize("strided", [False, True])
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_batch_norm_and_its_statistics(dtype: torch.dtype, training: bool, strided: bool, affine: bool) -> None:
    """The statistics of a half-precision batch are in float32."""
    x = floats(4, 3, 5).to(dtype)
    given = torch.stack([x, x], -1)[..., 0] if strided else x
    weight, bias = (floats(3, seed=seed) if affine else None for seed in (1, 2))
    running = [floats(3, seed=3), floats(3, seed=4).abs() + 1]
    kept = [each.double() for each in running]
    out = called("BatchNorm", given, weight, bias, *running, training, 0.3, EPS)
    wide = [each.double() if affine else None for each in (weight, bias)]
    wanted = F.batch_norm(x.double(), *kept, *wide, training=training, momentum=0.3, eps=EPS)
    near = {"rtol": 1e-5, "atol": 1e-5} if dtype == torch.float32 else {"rtol": 2e-3, "atol": 2e-3}
    close(out[0].double(), wanted, **near)
    close([each.double() for each in running], kept, **near)
    if training:
        mean, var = x.double().mean((0, 2)), x.double().var((0, 2), correction=0)
        close([each.double() for each in out[1:]], [mean, (var + EPS).rsqrt()], **near)
    else:
        assert out[1:] == (None, None)
