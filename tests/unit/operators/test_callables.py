"""Functions of recorded operators: found by name, and with results that are unique."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from pytest_ascend.operators import callables
from pytest_ascend.operators.callables import resolve

T = torch.Tensor


def drawn(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> T:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def test_names_are_torchs_or_our_own() -> None:
    assert resolve("torch.linalg.det") is torch.linalg.det
    assert resolve("torch.Tensor.add_") is torch.Tensor.add_
    assert resolve("own.eigh") is callables.eigh
    for name in ("torch.linalg.nothing_like_it", "own.nothing_like_it"):
        with pytest.raises(NotImplementedError, match=f"{name} is not implemented in torch"):
            resolve(name)(1, key=2)


X, BATCH, INDEX = drawn(3, 4), drawn(2, 3, 4), torch.tensor([2, 0, 1])
#: What is ours, and what it stands for.
PAIRS: dict[str, tuple[tuple[Any, ...], dict[str, Any], Callable[..., Any]]] = {
    "transposed": ((X,), {}, lambda x: x.transpose(0, 1)),
    "conjugate_transposed": ((X * (1 + 2j),), {}, lambda x: x.transpose(0, 1).conj()),
    "matrix_transposed": ((BATCH,), {}, lambda x: x.transpose(1, 2)),
    "matrix_conjugate_transposed": ((BATCH * (1 + 2j),), {}, lambda x: x.transpose(1, 2).conj()),
    "einsum": (([X, X], "ij,kj->ik"), {}, lambda both, _: both[0] @ both[1].T),
    "where": ((X, X > 0, -X), {}, lambda x, condition, other: x * condition + other * ~condition),
    "polygamma": ((X.abs(), 1), {}, lambda x, n: torch.special.polygamma(n, x)),
    "special_polygamma": ((X.abs(), 2), {}, lambda x, n: torch.polygamma(n, x)),
    "embedding": ((X, INDEX), {}, lambda weight, index: weight[index]),
    "embedding_bag": (
        (X, INDEX.view(1, 3)),
        {"mode": "sum"},
        lambda weight, index, mode: weight[index[0]].sum(0, keepdim=True),
    ),
    "native_batch_norm": (
        (X, None, None, None, None, True, 0.1, 0.5),
        {},
        lambda x, *_: (x - x.mean(0)) / (x.var(0, correction=0) + 0.5).sqrt(),
    ),
    "native_batch_norm_legit": (
        (X, None, None, True, 0.1, 0.5),
        {},
        lambda x, *_: (x - x.mean(0)) / (x.var(0, correction=0) + 0.5).sqrt(),
    ),
    "batch_norm_with_update": (
        (X, None, None, torch.zeros(4).double(), torch.ones(4).double(), 0.1, 0.5),
        {},
        lambda x, *_: (x - x.mean(0)) / (x.var(0, correction=0) + 0.5).sqrt(),
    ),
    "native_layer_norm": (
        (X, [4], None, None, 0.5),
        {},
        lambda x, *_: (x - x.mean(1, True)) / (x.var(1, correction=0, keepdim=True) + 0.5).sqrt(),
    ),
    "native_group_norm": (
        (BATCH[..., None], None, None, 2, 3, 4, 1, 0.5),
        {},
        lambda x, *_: (x - x.mean((1, 2), True)) / (x.var((1, 2), correction=0, keepdim=True) + 0.5).sqrt(),
    ),
    "zero_": ((X,), {}, torch.zeros_like),
    "lstsq": ((drawn(5, 3), drawn(5, 2, seed=1)), {}, lambda x, other: torch.linalg.pinv(x) @ other),
    "eigvals": (
        (drawn(4, 4),),
        {},
        lambda x: (torch.trace(x) + 0j, torch.trace(x @ x) + 0j),
    ),
    "item": ((torch.tensor(2.5),), {}, lambda x: x),
}


@pytest.mark.parametrize("name", PAIRS)
def test_what_is_our_own_is_what_it_stands_for(name: str) -> None:
    args, named, defined = PAIRS[name]
    before = [each.clone() for each in args if isinstance(each, T)]
    try:
        found = resolve(f"own.{name}")(*args, **named)
    except AttributeError:
        pytest.skip(f"torch {torch.__version__} has no such operator")
    torch.testing.assert_close(found, defined(*args, **named))
    if name != "batch_norm_with_update":  # which updates running statistics
        assert all(map(torch.equal, before, [each for each in args if isinstance(each, T)]))


@pytest.mark.parametrize(
    ("other", "is_equal", "is_close"), [(X, True, True), (X + 1e-9, False, True), (-X, False, False)]
)
def test_python_numbers_become_tensors(other: T, is_equal: bool, is_close: bool) -> None:
    equal, close = callables.equal(X, other), callables.allclose(X, other)
    assert (equal.dtype, close.dtype) == (torch.bool, torch.bool)
    assert (bool(equal), bool(close)) == (is_equal, is_close)
    assert bool(callables.allclose(X, other, atol=100.0))
    assert callables.item(torch.tensor(3, dtype=torch.int16)).dtype == torch.int16


@pytest.mark.parametrize("shape", [(2, 3), (6, 5), (3,)], ids=str)
def test_resized_tensors_have_what_both_sizes_have(shape: tuple[int, ...]) -> None:
    kept = X.clone()
    found = callables.resize_(X, shape)
    assert found.equal(X.flatten()[: min(12, torch.Size(shape).numel())])
    assert X.equal(kept)


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128], ids=str)
@pytest.mark.parametrize("shape", [(4, 4), (2, 3, 3)], ids=str)
def test_eigenvectors_multiplied_are_the_matrix(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    x = drawn(*shape, dtype=dtype)
    symmetric = x + x.mH
    values, whole = callables.eigh(symmetric)
    torch.testing.assert_close(values, torch.linalg.eigvalsh(symmetric))
    torch.testing.assert_close(whole, symmetric)
    torch.testing.assert_close(callables.eigh(symmetric, UPLO="U")[1], symmetric)
    torch.testing.assert_close(callables.eig(x), x.to(torch.complex128))


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128], ids=str)
@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (2, 4, 4)], ids=str)
@pytest.mark.parametrize("full", [False, True])
@pytest.mark.filterwarnings("ignore:torch.qr is deprecated", "ignore:torch.svd is deprecated")
def test_factors_multiplied_are_the_matrix(full: bool, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    x = drawn(*shape, dtype=dtype)
    for values, whole in (callables.svd(x, full), callables.old_svd(x, not full)):
        torch.testing.assert_close(values, torch.linalg.svdvals(x))
        torch.testing.assert_close(whole, x)
    for whole, r in (callables.qr(x, "complete" if full else "reduced"), callables.old_qr(x, not full)):
        torch.testing.assert_close(whole, x)
        torch.testing.assert_close(r, torch.linalg.qr(x, "complete" if full else "reduced").R.abs())
    products, r = callables.qr(x, "r")  # without a first factor
    torch.testing.assert_close(products, x.mH @ x)
    torch.testing.assert_close(r, torch.linalg.qr(x, "r").R.abs())
