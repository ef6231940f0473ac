"""Random numbers on the emulated device: their distributions, seeds, states and generators."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch
import torch_npu
from torch.nn import functional

from pytest_ascend.emulator.kernels import random as kernels

from .both import FLOATS, INTEGERS, operators
from .kernel import by_name, called

N = 20_000

#: What is drawn -> its mean and standard deviation.
DRAWN: dict[str, tuple[Callable[..., torch.Tensor], float, float]] = {
    "rand": (lambda **options: torch.rand(N, **options), 0.5, 12**-0.5),
    "randn": (lambda **options: torch.randn(N, **options), 0, 1),
    "uniform_": (lambda **options: torch.empty(N, **options).uniform_(-2, 4), 1, 3**0.5),
    "normal_": (lambda **options: torch.empty(N, **options).normal_(2, 3), 2, 3),
    "exponential_": (lambda **options: torch.empty(N, **options).exponential_(2), 0.5, 0.5),
    "bernoulli_": (lambda **options: torch.empty(N, **options).bernoulli_(0.3), 0.3, 0.21**0.5),
    "bernoulli": (lambda **options: torch.full((N,), 0.3, **options).bernoulli(), 0.3, 0.21**0.5),
    "random_": (lambda **options: torch.empty(N, **options).random_(3, 9), 5.5, (35 / 12) ** 0.5),
    "dropout": (lambda **options: functional.dropout(torch.ones(N, **options), 0.2), 1, 0.5),
    "dropout of nearly all": (lambda **options: functional.dropout(torch.ones(N, **options), 0.9), 1, 3),
    "rrelu": (
        lambda **options: functional.rrelu(-torch.ones(N, **options), 0.1, 0.3, training=True),
        -0.2,
        0.2 / 12**0.5,
    ),
}


@pytest.fixture(autouse=True)
def _same_numbers_every_time() -> None:
    torch.manual_seed(11)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", DRAWN)
def test_distributions(name: str, dtype: torch.dtype) -> None:
    draw, mean, deviation = DRAWN[name]
    drawn = draw(dtype=dtype, device="npu").cpu()
    assert drawn.dtype == dtype
    assert drawn.double().mean() == pytest.approx(mean, abs=0.03 * deviation + 0.01)
    assert drawn.double().std() == pytest.approx(deviation, rel=0.08)


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS, torch.bool])
def test_all_numbers_of_a_dtype(dtype: torch.dtype) -> None:
    drawn = torch.empty(N, dtype=dtype, device="npu").random_().cpu()
    assert (drawn >= 0).all()
    assert dtype == torch.bool or drawn.unique().numel() > 100


def test_integers() -> None:
    drawn = torch.randint(-2, 3, (N,), device="npu").cpu()
    assert torch.bincount(drawn + 2).div(N / 5).sub(1).abs().max() < 0.1


def test_normal_of_tensors() -> None:
    mean, std = torch.full((N,), 3.0, device="npu"), torch.full((N,), 2.0, device="npu")
    for drawn in (
        torch.normal(mean, std),
        torch.normal(mean, 2.0),
        torch.normal(3.0, std),
        torch.normal(3.0, 2.0, (N,), device="npu"),
    ):
        assert drawn.cpu().mean() == pytest.approx(3, abs=0.1)
        assert drawn.cpu().std() == pytest.approx(2, abs=0.1)


def test_permutations() -> None:
    drawn = torch.randperm(1000, device="npu").cpu()
    assert drawn.sort().values.equal(torch.arange(1000))
    assert not drawn.equal(torch.arange(1000))


def test_multinomial() -> None:
    weights = torch.tensor([1.0, 2.0, 0.0, 5.0], device="npu")
    counts = torch.bincount(torch.multinomial(weights, 8000, replacement=True).cpu(), minlength=4)
    assert counts.sub(torch.tensor([1000, 2000, 0, 5000])).abs().max() < 200
    assert sorted(torch.multinomial(weights, 3).tolist()) == [0, 1, 3]


def test_dropout_drops_the_gradient_of_the_same_elements() -> None:
    x = torch.ones(1000, device="npu", requires_grad=True)
    dropped = functional.dropout(x, 0.4)
    dropped.sum().backward()
    assert x.grad is not None
    assert x.grad.equal(dropped.detach())
    assert functional.dropout(x, 0.4, training=False).equal(x)
    assert not functional.dropout(x, 1.0).any()


def test_the_mask_of_dropout() -> None:
    mask = torch_npu.npu_dropout_gen_mask([100, 80], 0.25, device="npu").cpu()
    bits = (mask[:, None] >> torch.arange(8)) & 1
    assert bits.float().mean() == pytest.approx(0.75, abs=0.02)
    x = torch.arange(4.0, device="npu")
    assert torch._masked_scale(x, (x > 1).to(torch.uint8), 2.0).tolist() == [0, 0, 4, 6]


def test_rrelu_in_place() -> None:
    x = torch.tensor([-1.0, 2.0], device="npu").repeat(100)
    functional.rrelu_(x, 0.1, 0.3, training=True)
    assert x[1::2].eq(2).all()
    assert x[::2].lt(-0.1).logical_and(x[::2] > -0.3).all()


def test_npu_sim_exponential() -> None:
    drawn = torch_npu.npu_sim_exponential_(torch.empty(N, device="npu"), lambd=2)
    assert drawn.cpu().mean() == pytest.approx(0.5, abs=0.02)


def test_a_seed_gives_the_same_numbers_again() -> None:
    torch.npu.manual_seed(3)
    first, second = torch.rand(50, device="npu"), torch.rand(50, device="npu")
    torch.manual_seed(3)  # seeds every device
    assert torch.rand(50, device="npu").equal(first)
    assert torch.rand(50, device="npu").equal(second)
    assert not first.equal(second)
    assert torch.npu.initial_seed() == 3


@pytest.mark.parametrize(
    "draw", [*(draw for draw, _, _ in DRAWN.values()), lambda **how: torch.empty(9, **how).random_()]
)
def test_whatever_is_drawn_a_seed_decides(draw: Callable[..., torch.Tensor]) -> None:
    def drawn(seed: int) -> torch.Tensor:
        torch.npu.manual_seed(seed)
        return draw(device="npu").cpu()

    first = drawn(3)
    assert torch.equal(drawn(3), first)
    assert not torch.equal(drawn(4), first)


def _filled(draw: Callable[..., None], *given: object, dtype: torch.dtype = torch.int64) -> Callable[..., torch.Tensor]:
    """Return what fills a tensor, as a function that returns a new one."""

    def drawn(**seeds: int) -> torch.Tensor:
        x = torch.zeros(64, dtype=dtype)
        draw(x, *given, **seeds)
        return x

    return drawn


#: Kernels that are given a seed and an offset. torch_npu calls some of them nowhere, or only for some dtypes.
SEEDED: dict[str, Callable[..., torch.Tensor]] = {
    "uniform_": _filled(partial(called, "InplaceUniform"), 0.0, 1.0, dtype=torch.float32),
    "normal_": _filled(partial(called, "InplaceNormal"), 0.0, 1.0, dtype=torch.float32),
    "normal_ of complex numbers": _filled(partial(called, "InplaceNormal"), 0.0, 1.0, dtype=torch.complex64),
    "normal_ of integers": _filled(partial(called, "InplaceNormal"), 0.0, 100.0),
    "random_": _filled(partial(called, "InplaceRandom"), 0, 1000),
    "random_ of all numbers": _filled(partial(called, "InplaceRandomWithoutFromTo")),
    "bernoulli_": _filled(partial(called, "InplaceBernoulli"), 0.5),
    "exponential_": _filled(partial(called, "SimThreadExponential"), 64, 1.0, dtype=torch.float32),
    "multinomial": lambda **seeds: called("Multinomial", torch.ones(64), 64, False, **seeds),
    "randperm": lambda **seeds: called("Randperm", 64, **seeds),
    "rrelu": lambda **seeds: kernels.rrelu_with_noise(-torch.ones(64), torch.empty(64), 0.1, 0.3, True, **seeds),
    "dropout_gen_mask": _filled(
        lambda out, seed, offset: called("DropoutGenMask", [512], 0.5, seed, offset, out), dtype=torch.uint8
    ),
    "dropout_v3": lambda **seeds: called("DropoutV3", torch.ones(64), None, 0.5, **seeds)[0],
}


@pytest.mark.parametrize("name", SEEDED)
def test_a_kernel_draws_by_its_seed_and_offset_alone(name: str) -> None:
    draw, state = SEEDED[name], torch.get_rng_state()
    first = draw(seed=3, offset=4)
    assert draw(seed=3, offset=4).equal(first)
    assert not draw(seed=4, offset=4).equal(first)
    assert not draw(seed=3, offset=8).equal(first)
    assert torch.get_rng_state().equal(state), "the CPU's own generator is left alone"


def test_a_graph_adds_any_number_of_64_bits_to_its_offset() -> None:
    seeds = {"seed": torch.tensor(3), "offset": torch.tensor(4)}
    drawn, _ = called("DropoutV3Tensor", torch.ones(64), probability=0.5, **seeds, more=2**64 - 1)
    assert drawn.equal(called("DropoutV3", torch.ones(64), None, 0.5, seed=3, offset=3)[0])


def test_integers_of_a_normal_distribution_are_its_numbers_truncated() -> None:
    wide, whole = torch.empty(1000), torch.empty(1000, dtype=torch.int32)
    for x in (wide, whole):
        kernels.normal_(x, 3.0, 50.0, seed=1, offset=0)
    assert whole.equal(wide.trunc().int())


def test_a_mean_and_a_deviation_per_element() -> None:
    mean, std = torch.tensor([-100.0, 100.0]).repeat(500), torch.tensor([0.5, 0.0]).repeat(500)
    drawn = torch.normal(mean.to("npu"), std.to("npu")).cpu()
    assert drawn[1::2].eq(100).all()
    assert drawn[::2].mean() == pytest.approx(-100, abs=0.1)
    assert drawn[::2].std() == pytest.approx(0.5, rel=0.1)


def test_the_noise_of_rrelu_is_what_was_multiplied_by() -> None:
    x, noise = torch.linspace(-1, 1, 100), torch.full((100,), 7.0)
    found = kernels.rrelu_with_noise(x, noise, 0.1, 0.3, True, seed=1, offset=0)
    assert found.equal(x * noise)
    assert noise[x >= 0].eq(1).all()
    assert noise[x < 0].gt(0.1).all()
    assert noise[x < 0].lt(0.3).all()
    assert noise[x < 0].unique().numel() > 40
    noise.fill_(7)
    assert kernels.rrelu_with_noise(x, noise, 0.1, 0.3, False, seed=1, offset=0).equal(x.where(x >= 0, x * 0.2))
    assert noise.eq(7).all(), "written in training only"


@pytest.mark.parametrize(("elements", "bytes_"), [(1, 16), (128, 16), (129, 32), (256, 32)])
def test_dropout_with_its_mask_in_blocks_of_128_bits(elements: int, bytes_: int) -> None:
    x = torch.arange(1.0, elements + 1)
    dropped, mask = called("DropoutV3", x, None, 0.75, seed=1, offset=0)
    bits = ((mask.int()[:, None] >> torch.arange(8)) & 1).view(-1)[:elements]
    assert (mask.dtype, mask.numel()) == (torch.uint8, bytes_)
    assert dropped.equal(x * bits * 4)
    assert called("DropoutV3Grad", x, mask, 4.0).equal(dropped)


def test_dropout_by_name_keeps_whole_bytes() -> None:
    kept = by_name("DropOutGenMaskV3")(torch.tensor([50, 400]), torch.tensor(0.75), seed=1, seed2=2)
    assert (kept.shape, kept.dtype) == ((50, 400), torch.uint8)
    assert kept.float().mean() == pytest.approx(0.75, abs=0.02)
    assert kept.max() == 1
    for seeds in ({"seed": 2, "seed2": 2}, {"seed": 1, "seed2": 3}):
        assert not by_name("DropOutGenMaskV3")(torch.tensor([50, 400]), torch.tensor(0.75), **seeds).equal(kept)
    x = torch.ones(50, 400, dtype=torch.float16)
    assert kernels.dropout_by_bytes(x, kept, torch.tensor(0.75)).equal(kept.float() / 0.75)


def test_seeds_that_differ_beyond_32_bits() -> None:
    torch.npu.manual_seed(5)
    first = torch.rand(50, device="npu")
    torch.npu.manual_seed(5 + (1 << 40))
    assert not torch.rand(50, device="npu").equal(first)


def test_all_devices_are_seeded() -> None:
    torch.npu.manual_seed_all(5)
    assert torch.rand(9, device="npu:0").cpu().equal(torch.rand(9, device="npu:1").cpu())


def test_a_state_is_taken_up_again() -> None:
    state = torch.npu.get_rng_state()
    first = torch.randn(9, device="npu")
    torch.npu.set_rng_state(state)
    assert torch.randn(9, device="npu").equal(first)
    states = torch.npu.get_rng_state_all()
    torch.npu.set_rng_state_all(states)
    assert len(states) == torch.npu.device_count()


def test_a_forked_state_leaves_no_trace() -> None:
    torch.npu.manual_seed(1)
    expected = torch.rand(9, device="npu")
    torch.npu.manual_seed(1)
    with torch.random.fork_rng(devices=[0], device_type="npu"):
        torch.rand(9, device="npu")
    assert torch.rand(9, device="npu").equal(expected)


def test_generators() -> None:
    mine, other = (torch.Generator(device="npu").manual_seed(7) for _ in range(2))
    assert mine.initial_seed() == 7
    first = torch.rand(9, device="npu", generator=mine)
    torch.rand(9, device="npu")
    assert torch.rand(9, device="npu", generator=other).equal(first)
    other.set_state(mine.get_state())
    assert torch.randperm(99, device="npu", generator=mine).equal(torch.randperm(99, device="npu", generator=other))


def test_cpu_numbers_do_not_depend_on_the_device() -> None:
    torch.manual_seed(2)
    expected = torch.rand(9)
    torch.manual_seed(2)
    torch.rand(9, device="npu")
    torch.randperm(9, device="npu")
    assert torch.rand(9).equal(expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_softmax_of_a_sum_with_dropout(dtype: torch.dtype) -> None:
    x, y = (torch.randn(2, 3, 8, 5).to(dtype) for _ in range(2))
    leaves = [each.npu().requires_grad_() for each in (x, y)]
    mask, softmax, dropped = torch_npu.npu_dropout_with_add_softmax(leaves[0], leaves[1], 0.5, 0.25, -1)
    wanted = (y.double() + 0.5 * x.double()).softmax(-1)
    near = {"rtol": 2e-3, "atol": 1e-5} if dtype == torch.float16 else {"rtol": 1e-5, "atol": 1e-6}
    torch.testing.assert_close(softmax.cpu().double(), wanted, **near)
    kept = mask.cpu()[: x.numel()].view(x.shape).double()
    assert 0 < kept.sum() < x.numel()
    torch.testing.assert_close(dropped.cpu().double(), wanted * kept / 0.75, **near)
    grad = torch.randn(2, 3, 8, 5).to(dtype)
    dropped.backward(grad.npu())
    through = grad.double() * kept / 0.75
    back = 0.5 * wanted * (through - (through * wanted).sum(-1, keepdim=True))
    torch.testing.assert_close(leaves[0].grad.cpu().double(), back, rtol=1e-2, atol=2e-3)


def test_the_operators_run_on_the_device() -> None:
    x = torch.ones(9, device="npu")
    assert operators(x.normal_) == {"aclnnInplaceNormal"}
    assert operators(lambda: functional.dropout(x)) == {"aclnnDropoutGenMaskV2", "aclnnDropoutDoMask"}
