"""What is refused, and that the device lives on: nothing is lost, and what follows is right."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from functools import partial

import torch
import torch.nn.functional as F  # noqa: N812  (as everybody calls it)

from .rows import SMOKE, STANDARD, At, Row, T, numbered


def _index(at: At, *values: int) -> T:
    return torch.tensor(values, dtype=torch.int64, device=at.device)


#: Calls that PyTorch refuses for the numbers in their tensors: the CPU raises an error for each.
DATA: Mapping[str, Callable[[At, T], object]] = {
    "getitem": lambda at, x: x[_index(at, 0, len(x))],
    "getitem-negative": lambda at, x: x[_index(at, 0, -len(x) - 1)],
    "setitem": lambda at, x: x.clone().index_put_((_index(at, 0, len(x)),), x[:2]),
    "index_select": lambda at, x: x.index_select(0, _index(at, 0, len(x))),
    "index_copy": lambda at, x: x.clone().index_copy_(0, _index(at, 0, len(x)), x[:2]),
    "index_add": lambda at, x: x.clone().index_add_(0, _index(at, 0, len(x)), x[:2]),
    "index_fill": lambda at, x: x.clone().index_fill_(0, _index(at, 0, len(x)), 0),
    "gather": lambda at, x: x.gather(0, _index(at, 0, len(x)).expand(4, 2).mT),
    "gather-negative": lambda at, x: x.gather(0, _index(at, 0, -len(x) - 1).expand(4, 2).mT),
    "scatter": lambda at, x: x.clone().scatter_(0, _index(at, 0, len(x)).expand(4, 2).mT, x[:2]),
    "scatter_add": lambda at, x: x.clone().scatter_add_(0, _index(at, 0, len(x)).expand(4, 2).mT, x[:2]),
    "take": lambda at, x: x.take(_index(at, 0, x.numel())),
    "embedding": lambda at, x: F.embedding(_index(at, 0, len(x)), x),
    "embedding-negative": lambda at, x: F.embedding(_index(at, 0, -1), x),
    "nll_loss": lambda at, x: F.nll_loss(x, _index(at, *(4,) * len(x))),
    "nll_loss-negative": lambda at, x: F.nll_loss(x, _index(at, *(-1,) * len(x))),
    "cross_entropy": lambda at, x: F.cross_entropy(x, _index(at, *(0,) * (len(x) - 1), 4)),
    "floor-divide": lambda at, _: _index(at, 5, 6) // _index(at, 1, 0),
    "divide-truncated": lambda at, _: torch.div(_index(at, 5, 6), _index(at, 1, 0), rounding_mode="trunc"),
    "multinomial-zeros": lambda _, x: torch.multinomial(x[0] * 0, 1),
    "multinomial-negative": lambda _, x: torch.multinomial(x[0] * -1, 1),
    "multinomial-nan": lambda _, x: torch.multinomial(x[0] * float("nan"), 1),
    "bernoulli": lambda _, x: torch.bernoulli(x * 1.5),
    "item-of-nothing": lambda _, x: x[x > 5].max(),
    "repeat_interleave": lambda at, x: x[0].repeat_interleave(_index(at, 1, 1, -1, 1)),
    "bincount": lambda at, _: torch.bincount(_index(at, 1, -1)),
    "binary_cross_entropy": lambda _, x: F.binary_cross_entropy(x * 2, x),
    "cholesky": lambda _, x: torch.linalg.cholesky(-x[:4] @ x[:4].mT),
}
_FIRST = ("getitem", "gather", "embedding", "cross_entropy", "floor-divide", "multinomial-zeros", "index_select",
          "scatter")  # fmt: skip


def _refused(at: At, name: str) -> None:
    guard = numbered(4099).to(at.device)
    x = torch.ones(5, 4, device=at.device)
    try:
        found = DATA[name](at, x)
        if isinstance(found, T):
            found.cpu()
        at.wait()
        is_refused = False
    except (RuntimeError, IndexError, ValueError, ZeroDivisionError):
        is_refused = True
    at.holds(is_refused, f"{name}: nothing is raised for numbers that PyTorch refuses")
    at.same(x.cpu(), torch.ones(5, 4), f"{name}: a call that was refused changed its input")
    at.same(guard.cpu(), numbered(4099), f"{name}: a call that was refused wrote to the memory of another tensor")
    at.same((x @ x.mT).cpu(), torch.full((5, 5), 4.0), f"{name}: after a call that was refused, a product is wrong")


def _out_of_memory(at: At) -> None:
    """A tensor that does not fit is refused; all others keep their numbers, and there is as much memory as before."""
    kept = numbered(2**18, 3).to(at.device)
    before = at.backend.memory_allocated()
    free, total = at.backend.mem_get_info()
    for size in (2**50, total + 2**30, free + 2**28):
        with contextlib.suppress(RuntimeError):  # torch.OutOfMemoryError is one
            torch.empty(size, dtype=torch.uint8, device=at.device)
            at.holds(size <= free + 2**28, f"{size:,} bytes were allocated on a device of {total:,}")
    at.holds(at.backend.memory_allocated() == before, "memory stays allocated after an out-of-memory error")
    at.same(kept.cpu(), numbered(2**18, 3), "a tensor is changed after an out-of-memory error")
    again = numbered(2**18, 4).to(at.device)
    at.same((again + 1).cpu(), numbered(2**18, 4) + 1, "results are wrong after an out-of-memory error")
    at.backend.empty_cache()
    at.holds(at.backend.mem_get_info()[0] >= free - 2**26, "memory is lost after an out-of-memory error")
    size = min(2**28, free // 4)
    at.holds(torch.empty(size, dtype=torch.uint8, device=at.device).numel() == size, "no memory can be had any more")


REFUSALS: Mapping[str, Row] = {
    "out-of-memory": (SMOKE, _out_of_memory),
    **{name: (SMOKE if name in _FIRST else STANDARD, partial(_refused, name=name)) for name in DATA},
}
