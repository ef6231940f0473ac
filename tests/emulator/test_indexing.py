"""Reading and writing at indices and under masks give the same on the emulated device as on the CPU."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch_npu
from torch.nn import functional

from .both import FLOATS, assert_identical, assert_same, floats, integers, operators
from .kernel import called

DTYPES = (*FLOATS, torch.int64, torch.int32, torch.uint8, torch.bool)

ROWS = torch.tensor([2, 0, 2])
COLUMNS = torch.tensor([1, 3, 0])
FULL = torch.tensor([[1, 0, 2, 1], [0, 2, 1, 1], [2, 2, 0, 0]])
MASK = FULL == 1

READS: dict[str, Callable[..., Any]] = {
    "rows": lambda x, rows, columns, full, mask: x[rows],
    "columns": lambda x, rows, columns, full, mask: x[:, columns],
    "both": lambda x, rows, columns, full, mask: x[rows, columns],
    "a grid": lambda x, rows, columns, full, mask: x[rows[:, None], columns],
    "under a mask": lambda x, rows, columns, full, mask: x[mask],
    "under no mask": lambda x, rows, columns, full, mask: x[mask & ~mask],
    "no rows": lambda x, rows, columns, full, mask: x[rows[:0]],
    "no columns": lambda x, rows, columns, full, mask: x[:, columns[:0]],
    "index_select": lambda x, rows, columns, full, mask: x.index_select(1, columns),
    "gather": lambda x, rows, columns, full, mask: x.gather(0, full),
    "take": lambda x, rows, columns, full, mask: x.take(full),
    "take_along_dim": lambda x, rows, columns, full, mask: x.take_along_dim(full, 0),
    "masked_select": lambda x, rows, columns, full, mask: x.masked_select(mask),
    "tril": lambda x, rows, columns, full, mask: x.tril(1),
    "triu": lambda x, rows, columns, full, mask: x.triu(-1),
    "diagonal": lambda x, rows, columns, full, mask: x.diagonal(1).contiguous(),
    "diag": lambda x, rows, columns, full, mask: x[0].diag(),
    "diag_embed": lambda x, rows, columns, full, mask: x.diag_embed(),
    "masked_fill": lambda x, rows, columns, full, mask: x.masked_fill(mask, 1),
    "index_fill": lambda x, rows, columns, full, mask: x.index_fill(1, columns, 1),
    "select_scatter": lambda x, rows, columns, full, mask: x.select_scatter(x[0], 0, 1),
}

WRITES: dict[str, Callable[..., Any]] = {
    "rows": lambda x, y, rows, columns, full, mask: x.index_put((rows,), y),
    "columns": lambda x, y, rows, columns, full, mask: x.index_put_((rows, columns), y[0, :3]),
    "accumulated": lambda x, y, rows, columns, full, mask: x.index_put((rows,), y, accumulate=True),
    "assigned rows": lambda x, y, rows, columns, full, mask: x.__setitem__(rows, y[0]),
    "assigned columns": lambda x, y, rows, columns, full, mask: x.__setitem__((slice(None), columns), y[:, :3]),
    "assigned under a mask": lambda x, y, rows, columns, full, mask: x.__setitem__(mask, y[mask]),
    "assigned number": lambda x, y, rows, columns, full, mask: x.__setitem__(mask, 1),
    "assigned to nothing": lambda x, y, rows, columns, full, mask: x.__setitem__(rows[:0], 1),
    "assigned to no columns": lambda x, y, rows, columns, full, mask: x.__setitem__((slice(None), columns[:0]), 1),
    "index_add": lambda x, y, rows, columns, full, mask: x.index_add(0, rows, y),
    "index_copy": lambda x, y, rows, columns, full, mask: x.index_copy(0, rows[:2], y[:2]),
    "index_copy_": lambda x, y, rows, columns, full, mask: x.index_copy_(0, rows[:2], y[:2]),
    "index_fill_": lambda x, y, rows, columns, full, mask: x.index_fill_(0, rows, 1),
    "scatter": lambda x, y, rows, columns, full, mask: x.scatter(0, full, y),
    "scatter_": lambda x, y, rows, columns, full, mask: x.scatter_(1, full[:, :1], y),
    "scatter a number": lambda x, y, rows, columns, full, mask: x.scatter(1, full, 1),
    "scatter_ a number": lambda x, y, rows, columns, full, mask: x.scatter_(1, full, 1),
    "scatter_add": lambda x, y, rows, columns, full, mask: x.scatter_add(0, full, y),
    "masked_fill_": lambda x, y, rows, columns, full, mask: x.masked_fill_(mask, 1),
    "masked_fill_ with a tensor": lambda x, y, rows, columns, full, mask: x.masked_fill_(mask, y[0, 0]),
    "masked_scatter_": lambda x, y, rows, columns, full, mask: x.masked_scatter_(mask, y),
    "put_": lambda x, y, rows, columns, full, mask: x.put_(columns, y[0, :3]),
    "put_ accumulated": lambda x, y, rows, columns, full, mask: x.put_(rows, y[0, :3], accumulate=True),
    "tril_": lambda x, y, rows, columns, full, mask: x.tril_(),
    "triu_": lambda x, y, rows, columns, full, mask: x.triu_(1),
    "fill_diagonal_": lambda x, y, rows, columns, full, mask: x.fill_diagonal_(1),
}

#: What is copied, with nothing to compute.
MOVES = ("diagonal", "diag", "diag_embed", "select_scatter")

#: What needs no gradient, or what gradients cannot flow through as it changes a leaf.
PLACES = (ROWS, COLUMNS, FULL, MASK)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", READS)
def test_reading(name: str, dtype: torch.dtype) -> None:
    by = "any" if name in MOVES else "device"
    assert_same(READS[name], integers(3, 4, dtype=dtype), *PLACES, strided=True, by=by)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", READS)
def test_gradients_of_reading(name: str, dtype: torch.dtype) -> None:
    by = "any" if name in MOVES else "device"
    assert_same(READS[name], floats(3, 4, dtype=dtype), *PLACES, backward=True, by=by)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", WRITES)
def test_writing(name: str, dtype: torch.dtype) -> None:
    values = integers(3, 4, dtype=dtype), integers(3, 4, dtype=dtype, seed=1)
    assert_same(WRITES[name], *values, *PLACES, strided=True)


@pytest.mark.parametrize("name", ["rows", "accumulated", "index_add", "scatter", "scatter_add", "index_copy"])
def test_gradients_of_writing(name: str) -> None:
    assert_same(WRITES[name], floats(3, 4), floats(3, 4, seed=1), *PLACES, backward=True)


@pytest.mark.parametrize("include_self", [False, True])
@pytest.mark.parametrize("reduce", ["sum", "prod", "mean", "amax", "amin"])
def test_scatter_reduce(reduce: str, include_self: bool) -> None:
    by = "any" if reduce == "sum" and include_self else "cpu"  # the device takes some dtypes
    for dtype in (torch.float32, torch.int64):
        values = integers(3, 4, dtype=dtype), FULL, integers(3, 4, dtype=dtype, seed=1)
        assert_same(lambda x, i, y: x.scatter_reduce(0, i, y, reduce, include_self=include_self), *values, by=by)


@pytest.mark.filterwarnings("ignore:The reduce argument of torch.scatter:UserWarning")
@pytest.mark.parametrize("reduce", ["add", "multiply"])
def test_scatter_with_arithmetic(reduce: str) -> None:
    assert_same(lambda x, i, y: x.scatter(0, i, y, reduce=reduce), floats(3, 4), FULL, floats(3, 4, seed=1), by="cpu")
    assert_same(lambda x, i: x.scatter_(0, i, 2.5, reduce=reduce), floats(3, 4), FULL, by="cpu")


@pytest.mark.parametrize("dtype", DTYPES)
def test_nonzero(dtype: torch.dtype) -> None:
    values = integers(3, 4, low=0, high=2, dtype=dtype)
    assert_same(torch.nonzero, values, strided=True)
    assert_same(lambda x: torch.nonzero(x, as_tuple=True), values)
    assert_same(torch.nonzero, torch.zeros(3, 2, dtype=dtype))


@pytest.mark.skipif(os.environ["TASK_QUEUE_ENABLE"] != "0", reason="an error in torch_npu's queue breaks the queue")
def test_an_index_beyond_the_end_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="out of"):
        floats(3, 4).npu().index_select(0, torch.tensor([3]).npu())


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("indices", [FULL, FULL[0], torch.tensor(1), FULL.int()])
def test_embedding(indices: torch.Tensor, dtype: torch.dtype) -> None:
    weight = floats(5, 3, dtype=dtype)
    assert_same(functional.embedding, indices, weight, backward=True)
    assert_same(functional.embedding, indices, weight, padding_idx=1, scale_grad_by_freq=True, backward=True)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_embedding_bag(mode: str) -> None:
    indices, weight, starts = torch.tensor([1, 2, 4, 0, 0]), floats(6, 3), torch.tensor([0, 2, 2])
    assert_same(functional.embedding_bag, indices, weight, starts, mode=mode)
    assert_same(functional.embedding_bag, FULL, weight, mode=mode)


def test_one_hot() -> None:
    assert_same(functional.one_hot, FULL)
    assert_same(functional.one_hot, FULL[0], 7)


def test_indices_without_a_dimension_are_told_from_empty_ones() -> None:
    zeros = torch.zeros(3, 3, dtype=torch.int64)
    assert_same(lambda x, i: x[:, i], zeros, torch.tensor([], dtype=torch.int64))
    assert_same(lambda x, i: x[:, i], zeros, torch.tensor([2, 0]))


@pytest.mark.parametrize("dim", [1, 2, -1])
def test_a_gather_takes_other_indices_in_each_batch(dim: int) -> None:
    """As TensorFlow's gather with batch_dims, which is the golden of index/gather_v2 in CANN's ops-nn."""
    x, index = floats(2, 4, 5), torch.tensor([[3, 0, 1], [2, 2, 0]])
    expected = torch.stack([x[each].index_select(dim - (dim > 0), index[each]) for each in range(2)])
    assert_identical(called("GatherV3", x, dim, index, 1, 0), expected)


def test_a_batch_of_nothing_has_no_rows_to_take() -> None:
    found = called("GatherV3", torch.ones(0, 4, 3), 1, torch.ones(0, 2, dtype=torch.long), 1, 0)
    assert found.shape == (0, 2, 3)


def test_embedding_with_rows_that_are_scaled_down() -> None:
    assert_same(functional.embedding, FULL, floats(5, 3), max_norm=0.5)


@pytest.mark.filterwarnings("ignore:Sparse invariant checks:UserWarning")
@pytest.mark.parametrize("shape", [(4,), (4, 2)])
def test_sparse_tensors_are_summed_up(shape: tuple[int, ...]) -> None:
    def coalesced(indices: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        return torch.sparse_coo_tensor(indices, values, (4, 5, *shape[1:])).coalesce().to_dense()

    assert_same(coalesced, torch.tensor([[0, 0, 2, 0], [1, 3, 0, 1]]), floats(*shape))


def test_scatter_reduce_in_place() -> None:
    assert_same(lambda x, i, y: x.scatter_reduce_(0, i, y, "sum"), floats(3, 4), FULL, floats(3, 4, seed=1))


# --- what only torch_npu has ---


def test_npu_scatter_nd_update() -> None:
    x, update = floats(3, 4), floats(2, 4, seed=1)
    expected = x.index_copy(0, torch.tensor([2, 0]), update)
    assert_identical(torch_npu.npu_scatter_nd_update(x.npu(), torch.tensor([[2], [0]]).npu(), update.npu()), expected)


def test_npu_scatter_update() -> None:
    cache, update = torch.zeros(2, 3, 4, 2), floats(2, 3, 1, 2)
    actual = torch_npu.scatter_update(cache.npu(), torch.tensor([1, 2]).npu(), update.npu(), -2)
    cache[0, :, 1], cache[1, :, 2] = update[0, :, 0], update[1, :, 0]
    assert_identical(actual, cache)


def test_npu_gather_sparse_index() -> None:
    assert_identical(torch_npu.npu_gather_sparse_index(floats(3, 4).npu(), FULL.npu()), floats(3, 4)[FULL])


def test_npu_index_add() -> None:
    actual = torch_npu._npu_index_add(floats(3, 4).npu(), ROWS.npu(), floats(3, 4, seed=1).npu(), alpha=2)
    assert_identical(actual, floats(3, 4).index_add(0, ROWS, floats(3, 4, seed=1), alpha=2))


def test_the_operators_run_on_the_device() -> None:
    x, other, rows = floats(3, 4).npu(), floats(3, 4).npu(), ROWS.npu()
    assert operators(lambda: x[rows]) == {"aclnnIndex"}
    assert operators(lambda: x.index_put_((rows,), other)) == {"aclnnIndexPutImpl"}
    assert operators(lambda: functional.embedding(rows, x)) == {"aclnnEmbedding"}


@pytest.mark.parametrize(
    "given", [torch.tensor([2, 0]), torch.tensor([[1, 2], [0, 0]])], ids=["by batch", "with batch"]
)
def test_updates_are_quantized_and_written_from_a_place_on(given: torch.Tensor) -> None:
    x, updates = torch.zeros(2, 5, 3, dtype=torch.int8), floats(2, 2, 3) * 20
    scales, zeros = torch.tensor([0.5, 1.0, 2.0]), torch.tensor([1.0, 0.0, -1.0])
    called("InplaceQuantScatter", x, given, updates, scales, zeros, -2, -1, 1)
    wanted = torch.zeros(2, 5, 3, dtype=torch.int8)
    for source, (batch, start) in enumerate([(0, 2), (1, 0)] if given.dim() == 1 else [(1, 2), (0, 0)]):
        for row in range(2):
            for column in range(3):
                number = updates[source, row, column].item() / scales[column].item() + zeros[column].item()
                wanted[batch, start + row, column] = min(max(round(number), -128), 127)
    assert x.tolist() == wanted.tolist()
