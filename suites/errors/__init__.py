"""Calls that PyTorch refuses, one per line, and their cases: what raises on the CPU must raise on the device."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812  (as everybody calls it)

from pytest_ascend.records.case import Case

T = torch.Tensor

SHAPE, DIM, INDEX, DTYPE, ARGUMENT, AUTOGRAD = "shape", "dim", "index", "dtype", "argument", "autograd"
#: Errors that only the device notices, while running: a RuntimeError is enough, as for CUDA.
DATA = "data"


@dataclass(frozen=True, slots=True, eq=False)
class Refusal:
    """A call that must raise. ``call`` makes its tensors with a :class:`Maker`."""

    name: str
    family: str
    call: Callable[[Maker], Any]


@dataclass(frozen=True, slots=True)
class Maker:
    """Makes tensors on one device; their values do not matter."""

    device: torch.device

    def f(self, *shape: int, dtype: torch.dtype = torch.float32, grad: bool = False) -> T:
        return torch.ones(shape, dtype=dtype, device=self.device, requires_grad=grad)

    def i(self, *values: int, dtype: torch.dtype = torch.int64) -> T:
        return torch.tensor(values, dtype=dtype, device=self.device)


def _shapes() -> Iterator[tuple[str, Callable[[Maker], Any]]]:
    yield "add: sizes that do not fit", lambda m: m.f(3) + m.f(4)
    yield "mul: sizes that do not fit", lambda m: m.f(2, 3) * m.f(2, 4)
    yield "add_: a result that is larger than its target", lambda m: m.f(3).add_(m.f(2, 3))
    yield "where: sizes that do not fit", lambda m: torch.where(m.f(2) > 0, m.f(3), m.f(3))
    yield "mm: inner sizes", lambda m: torch.mm(m.f(2, 3), m.f(4, 5))
    yield "mm: a vector", lambda m: torch.mm(m.f(3), m.f(3, 2))
    yield "bmm: batches", lambda m: torch.bmm(m.f(2, 3, 4), m.f(3, 4, 5))
    yield "matmul: inner sizes", lambda m: m.f(2, 3) @ m.f(2, 3)
    yield "addmm: a bias that does not fit", lambda m: torch.addmm(m.f(4), m.f(2, 3), m.f(3, 5))
    yield "mv: sizes", lambda m: torch.mv(m.f(2, 3), m.f(4))
    yield "dot: sizes", lambda m: torch.dot(m.f(3), m.f(4))
    yield "linear: features", lambda m: F.linear(m.f(2, 3), m.f(5, 4))
    yield "conv2d: channels", lambda m: F.conv2d(m.f(1, 3, 8, 8), m.f(4, 2, 3, 3))
    yield "conv2d: a kernel larger than the image", lambda m: F.conv2d(m.f(1, 3, 2, 2), m.f(4, 3, 5, 5))
    yield "cat: other sizes", lambda m: torch.cat([m.f(2, 3), m.f(2, 4)], 0)
    yield "stack: other sizes", lambda m: torch.stack([m.f(2), m.f(3)])
    yield "view: another number of elements", lambda m: m.f(2, 3).view(7)
    yield "reshape: another number of elements", lambda m: m.f(2, 3).reshape(4, 2)
    yield "view: strides that do not allow it", lambda m: m.f(2, 3).t().view(6)
    yield "expand: a size that is not 1", lambda m: m.f(2, 3).expand(2, 4)
    yield "layer_norm: another shape than the input's", lambda m: F.layer_norm(m.f(2, 3), (4,))
    yield "group_norm: channels that cannot be divided", lambda m: F.group_norm(m.f(2, 5, 4), 2)
    yield "batch_norm: one value in training", lambda m: F.batch_norm(m.f(1, 3), None, None, training=True)
    yield "nll_loss: batches", lambda m: F.nll_loss(m.f(3, 4), m.i(0, 1))
    yield "cross_entropy: weights", lambda m: F.cross_entropy(m.f(2, 4), m.i(0, 1), weight=m.f(3))
    yield "binary_cross_entropy: targets", lambda m: F.binary_cross_entropy(m.f(3), m.f(4))
    yield (
        "scatter: an index larger than its source",
        lambda m: m.f(3, 5).scatter(0, m.i(0, 1, 2).expand(2, 3), m.f(1, 3)),
    )
    yield "gather: other dimensions", lambda m: m.f(2, 3).gather(0, m.i(0, 1))
    yield "index_copy: sizes", lambda m: m.f(5, 3).index_copy(0, m.i(0, 1), m.f(2, 4))
    yield "masked_select: sizes", lambda m: m.f(3).masked_select(m.f(4) > 0)
    yield "max_pool2d: a window larger than the image", lambda m: F.max_pool2d(m.f(1, 1, 2, 2), 5)
    yield "pixel_shuffle: channels", lambda m: F.pixel_shuffle(m.f(1, 3, 2, 2), 2)
    yield "copy_: sizes", lambda m: m.f(3).copy_(m.f(4))
    yield "tril: a vector", lambda m: torch.tril(m.f(3))


def _over_third(name: str, m: Maker) -> Any:
    return getattr(m.f(2, 3), name)(2)


def _dims() -> Iterator[tuple[str, Callable[[Maker], Any]]]:
    for name in ("sum", "mean", "amax", "argmax", "softmax", "cumsum", "sort", "flip", "unbind", "squeeze"):
        yield f"{name}: dim 2 of two", partial(_over_third, name)
    yield "sum: a dim twice", lambda m: m.f(2, 3).sum((0, 0))
    yield "transpose: dim -3 of two", lambda m: m.f(2, 3).transpose(-3, 0)
    yield "permute: a dim twice", lambda m: m.f(2, 3).permute(0, 0)
    yield "permute: too few", lambda m: m.f(2, 3).permute(0)
    yield "select: dim 2 of two", lambda m: m.f(2, 3).select(2, 0)
    yield "unsqueeze: dim 4 of two", lambda m: m.f(2, 3).unsqueeze(4)
    yield "cat: dim 2 of two", lambda m: torch.cat([m.f(2, 3), m.f(2, 3)], 2)
    yield "topk: more than there are", lambda m: m.f(5).topk(6)
    yield "kthvalue: more than there are", lambda m: m.f(5).kthvalue(6)
    yield "glu: an odd size", lambda m: F.glu(m.f(2, 3))
    yield "max: of nothing", lambda m: m.f(0).max()
    yield "argmax: of nothing", lambda m: m.f(0).argmax()


def _indices() -> Iterator[tuple[str, Callable[[Maker], Any]]]:
    yield "select: an index that is too large", lambda m: m.f(3)[3]
    yield "select: an index that is too small", lambda m: m.f(3)[-4]
    yield "narrow: beyond the end", lambda m: m.f(5).narrow(0, 3, 4)
    yield "getitem: too many indices", lambda m: m.f(2, 3)[0, 0, 0]
    yield "split: sizes that do not add up", lambda m: torch.split(m.f(5), [2, 2])
    yield "unfold: a window larger than the tensor", lambda m: m.f(5).unfold(0, 6, 1)
    yield "movedim: to where there is none", lambda m: m.f(2, 3).movedim(0, 5)
    yield "getitem: a mask of another size", lambda m: m.f(3)[m.f(4) > 0]
    yield "getitem: floating indices", lambda m: m.f(3)[m.f(2)]


def _dtypes() -> Iterator[tuple[str, Callable[[Maker], Any]]]:
    yield "mm: two dtypes", lambda m: torch.mm(m.f(2, 2), m.f(2, 2, dtype=torch.float16))
    yield "bitwise_and: floating", lambda m: torch.bitwise_and(m.f(2), m.f(2))
    yield "add_: a floating result into integers", lambda m: m.i(1, 2).add_(m.f(2))
    yield "mean: of integers", lambda m: m.i(1, 2).mean()
    yield "index_select: floating indices", lambda m: m.f(3).index_select(0, m.f(2))
    yield "embedding: floating indices", lambda m: F.embedding(m.f(2), m.f(4, 3))
    yield "gather: int32 that is no index", lambda m: m.f(3).gather(0, m.f(2))
    yield "masked_fill: a mask of integers", lambda m: m.f(3).masked_fill(m.i(1, 0, 1), 2.0)
    yield "neg: of bool", lambda m: -(m.f(2) > 0)
    yield "sub: of bool", lambda m: (m.f(2) > 0) - (m.f(2) > 0)
    yield "requires_grad: integers", lambda m: m.i(1, 2).requires_grad_()
    yield "cross_entropy: integers for logits", lambda m: F.cross_entropy(m.i(1, 2, 3).view(1, 3), m.i(0))
    yield "out=: a dtype that loses", lambda m: torch.add(m.f(2), m.f(2), out=m.i(0, 0))
    yield "cumsum_: into bool", lambda m: (m.f(2) > 0).cumsum_(0)


def _arguments() -> Iterator[tuple[str, Callable[[Maker], Any]]]:
    yield "conv2d: groups that do not divide", lambda m: F.conv2d(m.f(1, 3, 8, 8), m.f(4, 1, 3, 3), groups=2)
    yield "conv2d: a stride of 0", lambda m: F.conv2d(m.f(1, 3, 8, 8), m.f(4, 3, 3, 3), stride=0)
    yield "max_pool2d: a padding over half the window", lambda m: F.max_pool2d(m.f(1, 1, 8, 8), 2, padding=2)
    yield "dropout: a probability above 1", lambda m: F.dropout(m.f(3), 1.5)
    yield "bernoulli_: a probability above 1", lambda m: m.f(3).bernoulli_(1.5)
    yield "normal_: a negative deviation", lambda m: m.f(3).normal_(0, -1)
    yield "uniform_: ends in the wrong order", lambda m: m.f(3).uniform_(2, 1)
    yield "random_: ends in the wrong order", lambda m: m.f(3).random_(5, 2)
    yield "randperm: a negative number", lambda m: torch.randperm(-1, device=m.device)
    yield "multinomial: more than there are", lambda m: m.f(3).multinomial(4)
    yield "div: an unknown rounding", lambda m: torch.div(m.f(2), m.f(2), rounding_mode="up")
    yield "gelu: an unknown approximation", lambda m: F.gelu(m.f(2), approximate="sometimes")
    yield "interpolate: no size", lambda m: F.interpolate(m.f(1, 1, 4, 4))
    yield "empty: a negative size", lambda m: torch.empty(-1, device=m.device)
    yield "arange: a step of 0", lambda m: torch.arange(0, 5, 0, device=m.device)
    yield "linspace: a negative number of steps", lambda m: torch.linspace(0, 1, -1, device=m.device)
    yield "pad: more padding than reflection gives", lambda m: F.pad(m.f(1, 1, 3), (3, 3), mode="reflect")
    yield "roll: two shifts, one dim", lambda m: m.f(2, 3).roll((1, 2), (0,))
    yield "repeat: fewer than dimensions", lambda m: m.f(2, 3).repeat(2)
    yield "clamp: no end", lambda m: m.f(3).clamp()
    yield "item: of several elements", lambda m: m.f(3).item()
    yield "bool: of several elements", lambda m: bool(m.f(3))


def _autograd() -> Iterator[tuple[str, Callable[[Maker], Any]]]:
    yield "backward: nothing asks for a gradient", lambda m: torch.autograd.backward(m.f(2).sum())
    yield "backward: no gradient for what is no number", lambda m: torch.autograd.backward(m.f(2, grad=True) * 2)
    yield "backward: twice", _twice
    yield "backward: what it needs was changed", _changed
    yield "add_: a leaf that asks for a gradient", lambda m: m.f(2, grad=True).add_(1)


def _twice(m: Maker) -> None:
    y = (m.f(2, grad=True).exp()).sum()
    torch.autograd.backward(y)
    torch.autograd.backward(y)


def _changed(m: Maker) -> None:
    y = m.f(2, grad=True).exp()
    total = y.sum()
    y.detach().add_(1)
    torch.autograd.backward(total)


def _data() -> Iterator[tuple[str, Callable[[Maker], Any]]]:
    yield "index_select: an index that is too large", lambda m: m.f(3).index_select(0, m.i(0, 5)).cpu()
    yield "gather: an index that is too large", lambda m: m.f(3).gather(0, m.i(0, 5)).cpu()
    yield "embedding: an index that is too large", lambda m: F.embedding(m.i(0, 5), m.f(3, 2)).cpu()
    yield "scatter_add: an index that is too large", lambda m: m.f(3).scatter_add(0, m.i(0, 5), m.f(2)).cpu()
    yield "take: an index that is too large", lambda m: m.f(3).take(m.i(0, 5)).cpu()
    yield "getitem: an index that is too large", lambda m: m.f(3)[m.i(0, 5)].cpu()
    yield "nll_loss: a target that is too large", lambda m: F.nll_loss(m.f(1, 3), m.i(5)).cpu()
    yield "multinomial: negative weights", lambda m: (-m.f(3)).multinomial(1).cpu()


_TABLES = {
    SHAPE: _shapes,
    DIM: _dims,
    INDEX: _indices,
    DTYPE: _dtypes,
    ARGUMENT: _arguments,
    AUTOGRAD: _autograd,
    DATA: _data,
}
REFUSED = "refused"


def _cases() -> Iterator[tuple[Case, Refusal]]:
    for family, table in _TABLES.items():
        # On a chip these may break the device: they come last, and only in a full run.
        level = "full" if family == DATA else "standard"
        for name, call in table():
            operator, _, what = name.replace("out=", "out").partition(": ")  # -k takes no "="
            subject = f"{operator}.{re.sub(r'[^a-z0-9]+', '-', what.lower()).strip('-')}"
            case = Case(suite="errors", subject=subject, property=REFUSED, family=family, level=level)
            yield case, Refusal(name, family, call)


BY_CASE: Mapping[Case, Refusal] = dict(_cases())

CASES: tuple[Case, ...] = tuple(BY_CASE)
