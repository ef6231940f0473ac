"""Functions with more than one right result are judged by what PyTorch promises of them, not by the CPU's choice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import linalg

from pytest_ascend.errors import UsageError
from pytest_ascend.precision import compare
from pytest_ascend.run.reference import cpu_reference

X = torch.randn(6, 6, generator=torch.Generator().manual_seed(0))
SYMMETRIC = X + X.T
TIES = torch.tensor([3.0, 1, 1, 2, 3, 1])


def minus(part: torch.Tensor) -> torch.Tensor:
    return -part


def zero(part: torch.Tensor) -> torch.Tensor:
    return torch.zeros_like(part)


def same(part: torch.Tensor) -> torch.Tensor:
    return part


RIGHT: list[tuple[Callable[..., Any], torch.Tensor, tuple[Callable[..., Any], ...]]] = [
    (linalg.eigh, SYMMETRIC, (same, minus)),
    (linalg.eigh, SYMMETRIC.repeat(2, 1, 1), (same, minus)),
    (linalg.eig, X, (same, minus)),
    (linalg.svd, X, (minus, same, minus)),
    (lambda x: linalg.svd(x, full_matrices=False), X[:, :3], (minus, same, minus)),
    (torch.svd, X, (minus, same, minus)),
    (linalg.qr, X, (minus, minus)),
]
WRONG: list[tuple[Callable[..., Any], torch.Tensor, tuple[Callable[..., Any], ...]]] = [
    (linalg.eigh, SYMMETRIC, (same, zero)),
    (linalg.eigh, SYMMETRIC, (minus, same)),
    (linalg.eig, X, (same, zero)),
    (linalg.svd, X, (zero, same, zero)),
    (linalg.svd, X, (minus, same, same)),
    (linalg.qr, X, (zero, same)),
    (linalg.qr, X, (minus, same)),
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64])
@pytest.mark.parametrize(
    ("agrees", "function", "x", "changes"), [(True, *e) for e in RIGHT] + [(False, *e) for e in WRONG]
)
def test_factors_of_other_signs_are_right_and_no_factors_are_not(
    agrees: bool,
    function: Callable[..., Any],
    x: torch.Tensor,
    changes: tuple[Callable[..., Any], ...],
    dtype: torch.dtype,
) -> None:
    x = x.to(dtype)
    actual = tuple(change(part) for change, part in zip(changes, function(x), strict=True))
    verdict = compare(actual, cpu_reference(function, x))
    assert verdict.agrees is agrees
    assert agrees or "PyTorch leaves open" in verdict.message


@pytest.mark.parametrize(
    ("function", "values", "indices", "agrees"),
    [
        (torch.sort, [1.0, 1, 1, 2, 3, 3], [5, 2, 1, 3, 4, 0], True),
        (torch.sort, [1.0, 1, 1, 2, 3, 3], [1, 1, 1, 3, 0, 4], False),
        (torch.sort, [1.0, 1, 1, 2, 3, 3], [0, 2, 5, 3, 1, 4], False),
        (torch.sort, [1.0, 1, 1, 2, 3, 3], [1, 2, 5, 3, 0, 9], False),
        (lambda x: x.topk(2), [3.0, 3], [4, 0], True),
        (lambda x: x.topk(3, sorted=False), [2.0, 3, 3], [3, 0, 4], True),
        (lambda x: x.topk(3), [2.0, 3, 3], [3, 0, 4], False),
        (lambda x: x.topk(2), [3.0, 3], [4, 4], False),
        (lambda x: x.kthvalue(2), 1.0, 5, True),
        (lambda x: x.kthvalue(2), 1.0, 3, False),
        (lambda x: x.median(0), 1.0, 5, True),
        (lambda x: x.mode(), 1.0, 2, True),
        (lambda x: x.mode(), 1.0, 0, False),
    ],
)
def test_which_of_equal_elements_is_taken_is_free(
    function: Callable[..., Any], values: Any, indices: Any, agrees: bool
) -> None:
    actual = (torch.tensor(values), torch.tensor(indices))
    assert compare(actual, cpu_reference(function, TIES)).agrees is agrees


def test_positions_alone_are_judged_by_what_they_point_at() -> None:
    expected = cpu_reference(torch.argsort, TIES)
    assert compare(torch.tensor([2, 1, 5, 3, 4, 0]), expected).agrees
    assert not compare(torch.arange(6), expected).agrees


def _with(values: torch.Tensor, place: int, value: Any) -> torch.Tensor:
    values = values.clone()
    values[place] = value
    return values


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64])
def test_eigenvalues_alone_have_no_order(dtype: torch.dtype) -> None:
    values, expected = linalg.eigvals(X.to(dtype)), cpu_reference(linalg.eigvals, X.to(dtype))
    assert compare(values.flip(0), expected).agrees
    assert not compare(_with(values, 0, values[0] + 1e-3), expected).agrees
    assert not compare(_with(values, 0, values[1]), expected).agrees
    assert not compare(torch.zeros_like(values), expected).agrees


@pytest.mark.parametrize(
    ("values", "inverse", "counts", "agrees"),
    [
        ([3.0, 1, 2], [0, 1, 1, 2, 0, 1], [2, 3, 1], True),
        ([1.0, 2, 3], [2, 0, 0, 1, 2, 0], [3, 1, 2], True),
        ([3.0, 1, 2], [0, 1, 2, 2, 0, 1], [2, 3, 1], False),
        ([3.0, 1, 2], [0, 1, 1, 2, 0, 9], [2, 3, 1], False),
        ([3.0, 1, 2], [0, 1, 1, 2, 0, 1], [3, 2, 1], False),
        ([3.0, 1, 4], [0, 1, 1, 2, 0, 1], [2, 3, 1], False),
        ([3.0, 1], [0, 1, 1, 1, 0, 1], [2, 4], False),
    ],
)
def test_unique_elements_have_an_order_only_where_it_is_asked_for(
    values: list[float], inverse: list[int], counts: list[int], agrees: bool
) -> None:
    def unsorted(x: torch.Tensor) -> Any:
        return x.unique(sorted=False, return_inverse=True, return_counts=True)

    actual = (torch.tensor(values), torch.tensor(inverse), torch.tensor(counts))
    assert compare(actual, cpu_reference(unsorted, TIES)).agrees is agrees
    alone = cpu_reference(lambda x: torch.unique(x, sorted=False), TIES)
    assert compare(torch.tensor([2.0, 3, 1]), alone).agrees
    assert not compare(torch.tensor([2.0, 3, 1]), cpu_reference(torch.unique, TIES)).agrees
    for function in (lambda x: torch.unique(x, True), torch._unique, lambda x: x.unique(dim=0)):
        assert compare(function(TIES), cpu_reference(function, TIES)).agrees


@pytest.mark.parametrize("function", [lambda x: x.to_sparse(), lambda x: 2 * x])
def test_there_is_no_reference_for_sparse_tensors(function: Callable[..., Any]) -> None:
    with pytest.raises(UsageError, match=r"layout torch\.sparse_coo") as raised:
        cpu_reference(function, X if function(X).layout is torch.sparse_coo else X.to_sparse())
    assert "to_dense()" in raised.value.hint


def test_a_result_of_another_shape_is_told_as_such() -> None:
    verdict = compare((torch.zeros(3, 3), torch.zeros(3)), cpu_reference(linalg.eigh, SYMMETRIC))
    assert "shape: expected (6,), got (3, 3)" in verdict.headline


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x + torch.randn_like(x),
        lambda x: x * torch.rand_like(x),
        lambda x: torch.nn.functional.dropout(x, 0.5),
    ],
)
def test_of_random_numbers_no_result_is_the_right_one(function: Callable[..., Any]) -> None:
    with pytest.raises(UsageError, match="draws random numbers"):
        cpu_reference(function, X)


def test_a_function_that_seeds_the_generator_itself_has_one_result() -> None:
    def seeded(x: torch.Tensor) -> torch.Tensor:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(1)
            return x + torch.randn(6, 6).to(x.dtype)

    def drawing(x: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(1)
        return x + torch.randn(6, 6, dtype=torch.float64).to(x.dtype)

    assert compare(seeded(X), cpu_reference(seeded, X)).agrees
    assert compare(drawing(X), cpu_reference(drawing, X)).agrees
