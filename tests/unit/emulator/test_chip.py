"""The numerics of a chip: other bits than the CPU's, equally near to the truth."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.utils._pytree import tree_leaves

from pytest_ascend.emulator.chip import Chip, apply_numerics
from pytest_ascend.emulator.choices import checked
from pytest_ascend.emulator.registry import Kernel
from pytest_ascend.emulator.signature import parse
from pytest_ascend.errors import UsageError

T = torch.Tensor
aten = torch.ops.aten

SEEDS = (0, 1, 2, 7)


def _drawn(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 3) -> T:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


X, W, ROW = _drawn(33, 70), _drawn(70, 50, seed=4), _drawn(70, seed=5)
IMAGES, KERNELS = _drawn(4, 16, 12, 12), _drawn(8, 16, 3, 3, seed=6)
INDEX = torch.arange(33) % 5

#: What the CPU computes with other bits; each in float64, too, where ``to`` says so.
SUMS: dict[str, Callable[[Callable[[T], T]], Any]] = {
    "addmm": lambda to: torch.addmm(to(W[0]), to(X), to(W), beta=2, alpha=0.5),
    "baddbmm": lambda to: torch.baddbmm(
        to(X[:, :50, None]), to(X.view(33, 1, 70).expand(33, 50, 70)), to(X[..., None])
    ),
    "bmm": lambda to: torch.bmm(to(X.view(3, 11, 70)), to(X.view(3, 70, 11))),
    "conv2d": lambda to: F.conv2d(to(IMAGES), to(KERNELS), to(W[0, :8]), padding=1),
    "conv_transpose2d": lambda to: F.conv_transpose2d(to(IMAGES), to(KERNELS.transpose(0, 1)), stride=2),
    "convolution_backward": lambda to: aten.convolution_backward(
        to(IMAGES[:, :8].contiguous()),
        to(IMAGES),
        to(KERNELS),
        [8],
        [1, 1],
        [1, 1],
        [1, 1],
        False,
        [0, 0],
        1,
        [True] * 3,
    ),
    "cumsum": lambda to: to(X).cumsum(1),
    "dot": lambda to: to(ROW) @ to(ROW),
    "einsum": lambda to: torch.einsum("ij,jk->k", to(X), to(W)),
    "embedding": lambda to: aten.embedding_dense_backward(to(X * 9), INDEX, 5, -1, False),
    "group_norm": lambda to: F.group_norm(to(IMAGES), 4, to(ROW[:16]), to(ROW[16:32])),
    "index_add": lambda to: to(torch.zeros(33, 5)).index_add(1, torch.arange(70) % 5, to(X)),
    "layer_norm": lambda to: F.layer_norm(to(X), (70,), to(ROW), to(ROW * 2)),
    "log_softmax": lambda to: to(X).log_softmax(0),
    "logsumexp": lambda to: to(X).logsumexp(1),
    "matmul": lambda to: to(X) @ to(W),
    "mean": lambda to: to(X).mean(0),
    "mv": lambda to: to(X) @ to(ROW),
    "scatter_add": lambda to: to(torch.zeros(33, 5)).scatter_add(1, (torch.arange(70) % 5).expand(33, 70), to(X)),
    "softmax": lambda to: to(X).softmax(1),
    "softmax backward": lambda to: aten._softmax_backward_data(to(X), to(X.softmax(1)), 1, to(X).dtype),
    "std_mean": lambda to: torch.std_mean(to(X), [0], correction=0, keepdim=True),
    "sum": lambda to: to(X).sum((0, 1), keepdim=True),
    "sum into": lambda to: torch.sum(to(X), 1, out=to(torch.zeros(33))),
    "var": lambda to: to(X).var(1),
    "vector_norm": lambda to: torch.linalg.vector_norm(to(X), 2, 1),
}

FUNCTIONS: dict[str, Callable[[T], Any]] = {
    "exp": torch.exp,
    "exp in place": lambda x: x.clone().exp_(),
    "exp into": lambda x: torch.exp(x, out=torch.empty_like(x)),
    "exp of lists": lambda x: torch._foreach_exp([x, x[:3]]),
    "gelu": F.gelu,
    "gelu backward": lambda x: aten.gelu_backward(x, x),
    "log": lambda x: x.abs().log(),
    "pow": lambda x: x.abs() ** 1.3,
    "sigmoid": torch.sigmoid,
    "sin of columns": lambda x: x.t().sin(),
    "tanh": torch.tanh,
}


def _of_chip(function: Callable[[], Any], seed: int) -> list[T]:
    with torch.no_grad(), Chip(seed):
        return tree_leaves(function())


def _same(one: list[T], other: list[T]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("name", SUMS)
def test_sums_are_as_good_as_the_cpus_and_not_the_cpus(name: str) -> None:
    exact = tree_leaves(SUMS[name](T.double))
    of_cpu = tree_leaves(SUMS[name](T.clone))
    allowed = [4 * float((a - b).abs().max()) + 2e-6 * float(b.abs().max()) for a, b in zip(of_cpu, exact, strict=True)]
    differ = []
    for seed in SEEDS:
        found = _of_chip(lambda: SUMS[name](T.clone), seed)
        differ.append(not _same(found, of_cpu))
        for mine, reference, of, limit in zip(found, exact, of_cpu, allowed, strict=True):
            assert (mine.dtype, mine.shape) == (of.dtype, of.shape)
            assert float((mine - reference).abs().max()) <= limit
    assert any(differ)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_are_within_one_ulp_of_the_cpus(name: str, dtype: torch.dtype) -> None:
    x = _drawn(40, 50, dtype=dtype)
    integer = torch.int32 if dtype is torch.float32 else torch.int16
    for seed in SEEDS:
        for mine, of_cpu in zip(
            _of_chip(lambda: FUNCTIONS[name](x), seed), tree_leaves(FUNCTIONS[name](x)), strict=True
        ):
            moved = (mine.view(integer).long() - of_cpu.view(integer).long()).abs()
            assert int(moved.max()) == 1
            assert 0.1 < float(moved.float().mean()) < 0.4


def test_equal_operands_give_equal_results_wherever_they_lie() -> None:
    x = _drawn(64)
    (whole,) = _of_chip(x.exp, 5)
    (part,) = _of_chip(x[17:].exp, 5)
    assert torch.equal(whole[17:], part)


def test_a_row_does_not_depend_on_its_neighbours() -> None:
    for function in (lambda x: x.sum(1), lambda x: x.softmax(1), lambda x: x.cumsum(1), lambda x: x.var(1)):
        (whole,) = _of_chip(lambda: function(X), 1)  # noqa: B023  called at once
        (part,) = _of_chip(lambda: function(X[5:9].clone()), 1)  # noqa: B023
        assert torch.equal(whole[5:9], part)


def test_the_seed_decides_and_nothing_else() -> None:
    assert _same(_of_chip(X.exp, 1), _of_chip(X.exp, 1))
    assert not _same(_of_chip(X.exp, 1), _of_chip(X.exp, 2))


def test_exact_values_stay_exact() -> None:
    special = torch.tensor([0.0, -0.0, float("inf"), float("-inf"), float("nan")])
    for function in (torch.tanh, torch.exp, torch.erf, torch.sigmoid):
        (found,) = _of_chip(lambda: function(special), 1)  # noqa: B023
        expected = function(special)
        exact = expected.isnan() | expected.isinf() | (expected == 0) | (expected.abs() == 1)
        assert torch.equal(found[exact].nan_to_num(), expected[exact].nan_to_num())


def test_integers_float64_and_bfloat16_are_the_cpus() -> None:
    for x in (X.double(), X.bfloat16()):
        assert _same(_of_chip(lambda: torch.exp(x), 1), [torch.exp(x)])  # noqa: B023
    numbers = torch.arange(60).view(6, 10)
    assert _same(_of_chip(lambda: numbers @ numbers.t(), 1), [numbers @ numbers.t()])
    assert _same(_of_chip(numbers.sum, 1), [numbers.sum()])


@pytest.mark.parametrize("seed", SEEDS)
def test_a_product_of_float64_is_added_in_float64(seed: int) -> None:
    rows, scale = X.double(), 0.8831494822540025
    wanted = torch.addcmul(rows, rows, rows, value=scale), *torch._foreach_lerp([rows], [rows.sin()], scale)
    with Chip(seed):
        made = torch.addcmul(rows, rows, rows, value=scale), *torch._foreach_lerp([rows], [rows.sin()], scale)
    assert all(one.dtype is torch.float64 and one.equal(other) for one, other in zip(made, wanted, strict=True))


def test_half_precision_products_are_summed_in_float32_and_rounded_once() -> None:
    left, right = X.half(), W.half()
    (found,) = _of_chip(lambda: left @ right, 1)
    exact = left.double() @ right.double()
    ulp = torch.exp2(exact.abs().log2().floor() - 10)
    assert float(((found - exact) / ulp).abs().max()) < 0.51


@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (1, 1)])
def test_shapes_without_anything_to_order(shape: tuple[int, ...]) -> None:
    x = torch.ones(shape)
    for function in (T.sum, T.exp, lambda x: x.softmax(-1), lambda x: x.cumsum(-1), lambda x: x.mean(-1)):
        expected = function(x)  # type: ignore[operator]
        (found,) = _of_chip(lambda: function(x), 1)  # type: ignore[operator]  # noqa: B023
        torch.testing.assert_close(found, expected, equal_nan=True)


@pytest.mark.parametrize(
    ("text", "meant"), {"": "exact", "exact": "exact", "chip": "chip:0", "chip:03": "chip:3"}.items()
)
def test_names(text: str, meant: str) -> None:
    assert checked(text) == meant


@pytest.mark.parametrize("text", ["gpu", "chip:", "chip:x", "chip:-1", "Chip", "chip:1 "])
def test_unknown_names_are_answered_with_those_that_are_known(text: str) -> None:
    with pytest.raises(UsageError, match="chip:SEED"):
        checked(text)


def _asked_for(numerics: str, cube: int) -> int:
    """Return the cubeMathType that reaches a kernel when torch_npu passes ``cube``."""
    kernel = Kernel(parse("aclnnMm(Tensor self, Tensor mat2, out Tensor out, int8 cube)"), lambda *a: a[2], False, "x")
    (applied,) = apply_numerics([kernel], numerics)
    return int(applied.body(X, W, cube))


def test_float32_is_multiplied_in_hf32_where_that_is_allowed() -> None:
    assert [_asked_for("chip:1", cube) for cube in (0, 1, 2, 3)] == [0, 3, 2, 3]
    assert [_asked_for("exact", cube) for cube in (0, 1, 2, 3)] == [0, 1, 2, 3]


def test_a_square_is_a_product() -> None:
    (found,) = _of_chip(lambda: X**2, 1)
    assert torch.equal(found, X * X)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_factors_are_rounded_once(dtype: torch.dtype) -> None:
    factors = (1 + _drawn(5, 17) / 8).to(dtype)
    for seed in SEEDS:
        (found,) = _of_chip(lambda: factors.prod(1), seed)
        exact = factors.double().prod(1)
        assert found.dtype is dtype
        assert float(((found - exact).abs() / exact).max()) <= torch.finfo(dtype).eps * 0.51


@pytest.mark.parametrize(
    "function",
    [
        pytest.param(lambda: X @ ROW[:60], id="mv"),
        pytest.param(lambda: ROW[:60] @ ROW, id="dot"),
        pytest.param(lambda: torch.mm(X, X), id="mm"),
        pytest.param(lambda: torch.mm(X, W.half()), id="two dtypes"),
        pytest.param(lambda: torch.bmm(X[None], W.expand(3, 70, 50)), id="batches"),
    ],
)
def test_what_does_not_fit_is_refused(function: Callable[[], Any]) -> None:
    with pytest.raises(RuntimeError):
        _of_chip(function, 1)
