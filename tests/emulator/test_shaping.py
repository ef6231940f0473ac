"""Joining, splitting, repeating, moving and padding give the same on the emulated device as on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn.functional import pad

from .both import FLOATS, assert_same, floats, integers, operators

DTYPES = (*FLOATS, torch.int64, torch.bool)

MOVED: dict[str, Callable[..., Any]] = {
    "cat": lambda x: torch.cat([x, x[:1], x], 0),
    "cat with an empty one": lambda x: torch.cat([x, x[:0]], 0),
    "stack": lambda x: torch.stack([x, x + x], 1),
    "split": lambda x: x.split(2, 1),
    "split_with_sizes_copy": lambda x: torch.split_with_sizes_copy(x, [1, 3], 1),
    "chunk": lambda x: x.chunk(3, 2),
    "unbind": lambda x: x.unbind(1),
    "flip": lambda x: x.flip(0, 2),
    "roll": lambda x: x.roll((1, -2), (0, 2)),
    "roll, flattened": lambda x: x.roll(3),
    "rot90": lambda x: x.rot90(1, (0, 2)),
    "repeat": lambda x: x.repeat(2, 1, 3),
    "tile": lambda x: x.tile(2),
    "expanded": lambda x: x[:, :1].expand(3, 4, 5).contiguous(),
    "permuted": lambda x: x.permute(2, 0, 1).contiguous(),
    "sliced": lambda x: x[1:, ::2, -2:].clone(),
    "transposed and flattened": lambda x: x.transpose(0, 2).reshape(-1),
    "repeat_interleave": lambda x: x.repeat_interleave(2),
    "repeat_interleave along a dimension": lambda x: x.repeat_interleave(3, 1),
    "constant pad": lambda x: pad(x, (1, 2, 0, 3), value=1),
    "negative pad": lambda x: pad(x, (-1, 2)),
    "unfold": lambda x: x.unfold(2, 3, 1).contiguous(),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", MOVED)
def test_elements_are_moved(name: str, dtype: torch.dtype) -> None:
    assert_same(MOVED[name], integers(3, 4, 5, dtype=dtype), strided=True, by="any")


@pytest.mark.parametrize("name", MOVED)
def test_gradients_move_back(name: str) -> None:
    assert_same(MOVED[name], floats(3, 4, 5), backward=True, by="any")


def test_repeats_of_each_element() -> None:
    counts = torch.tensor([2, 0, 3])
    assert_same(lambda x, n: x.repeat_interleave(n, 0), floats(3, 4), counts, backward=True)
    assert_same(lambda x, n: x.repeat_interleave(n), floats(3), counts)
    assert_same(torch.repeat_interleave, counts)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
@pytest.mark.parametrize("dimensions", [1, 2, 3])
def test_padding(mode: str, dimensions: int, dtype: torch.dtype) -> None:
    widths = (1, 2, 0, 3, 2, 1)[: 2 * dimensions]
    values = floats(2, 3, *(4, 5, 6)[:dimensions], dtype=dtype)
    wide, by = dtype == torch.float32, "any" if mode == "circular" else "device"
    assert_same(lambda x: pad(x, widths, mode), values, backward=wide, strided=not wide, by=by)


def test_lists_of_different_dtypes_are_joined() -> None:
    assert_same(lambda a, b: torch.cat([a, b]), integers(3), floats(2))


def test_out() -> None:
    def into(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        out = torch.zeros(5, 8, device=a.device)
        torch.cat([a, b], out=out[:, ::2])
        return out

    assert_same(into, floats(3, 4), floats(2, 4, seed=1))


def test_chunks_of_several_tensors() -> None:
    assert_same(lambda a, b: torch._chunk_cat([a, b], 0, 2), floats(3, 4), floats(5, seed=1).reshape(5, 1))


def test_the_operators_run_on_the_device() -> None:
    x = floats(3, 4).npu()
    assert operators(lambda: torch.cat([x, x])) == {"aclnnCat"}
    assert operators(lambda: pad(x[None], (1, 1), "reflect")) == {"aclnnReflectionPad1d"}
    assert operators(lambda: x.repeat(2, 2)) == {"aclnnRepeat"}
