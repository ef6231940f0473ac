"""Calls that PyTorch refuses, one per line, and their cases: what raises on the CPU must raise on the device."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812  (as everybody calls it)

from pytest_ascend.records.case import Case

T = torch.Tensor

SHAPE, DIM, INDEX, DTYPE, ARGUMENT = "shape", "dim", "index", "dtype", "argument"
OVERLAP, AUTOGRAD = "overlap", "autograd"


@dataclass(frozen=True, slots=True)
class Maker:
    """A factory of tensors on one device; their values do not matter."""

    device: torch.device

    def f(self, *shape: int, dtype: torch.dtype = torch.float32, grad: bool = False) -> T:
        return torch.ones(shape, dtype=dtype, device=self.device, requires_grad=grad)

    def i(self, *values: int) -> T:
        return torch.tensor(values, dtype=torch.int64, device=self.device)


def _twice(m: Maker) -> None:
    y = (m.f(2, grad=True).exp()).sum()
    torch.autograd.backward(y)
    torch.autograd.backward(y)


def _changed(m: Maker, change: Callable[[Maker, T], object] = lambda _, y: y.add_(1)) -> None:
    y = m.f(2, grad=True).exp()
    total = y.sum()
    change(m, y.detach())
    torch.autograd.backward(total)


#: In-place changes that autograd has to notice.
_CHANGES: Mapping[str, Callable[[Maker, T], object]] = {
    "a result": lambda m, y: torch.add(m.f(2), 1, out=y),
    "random numbers": lambda _, y: y.normal_(),
    "dropout": lambda _, y: F.dropout(y, inplace=True),
    "a copy from the host": lambda _, y: y.copy_(torch.ones(2)),
    "indices": lambda m, y: y.index_put_((m.i(0),), m.f(1)),
    "a view": lambda _, y: y[:1].mul_(2),
    "a list": lambda _, y: torch._foreach_mul_([y], 2),
}


def _inferred(m: Maker) -> T:
    with torch.inference_mode():
        return m.f(2)


def _shifted(m: Maker, call: Callable[[T, T], object]) -> None:
    x = m.f(6)
    call(x[:-1], x[1:])


#: In-place operators that write each element once, with the arguments besides their target.
_INTO_EXPANDED: Mapping[str, Callable[[Maker], tuple[Any, ...]]] = {
    **dict.fromkeys(("exp_", "normal_", "relu_", "sqrt_", "neg_"), lambda _: ()),
    **dict.fromkeys(("add_", "sub_", "mul_", "div_", "copy_"), lambda m: (m.f(2, 3),)),
    "clamp_": lambda _: (0, 1),
    "cumsum_": lambda _: (0,),
    "index_add_": lambda m: (0, m.i(0, 1), m.f(2, 3)),
    "index_copy_": lambda m: (0, m.i(0, 1), m.f(2, 3)),
    "scatter_": lambda m: (0, m.i(0, 1).view(2, 1), m.f(2, 3)),
    "addmm_": lambda m: (m.f(2, 2), m.f(2, 3)),
}

#: Calls by family, in case order. Errors that generated calls of level smoke already cover are not repeated.
_TABLES: Mapping[str, Mapping[str, Callable[[Maker], Any]]] = {
    SHAPE: {
        "add_: a result that is larger than its target": lambda m: m.f(3).add_(m.f(2, 3)),
        "mm: inner sizes": lambda m: torch.mm(m.f(2, 3), m.f(4, 5)),
        "mm: a vector": lambda m: torch.mm(m.f(3), m.f(3, 2)),
        "bmm: batches": lambda m: torch.bmm(m.f(2, 3, 4), m.f(3, 4, 5)),
        "matmul: inner sizes": lambda m: m.f(2, 3) @ m.f(2, 3),
        "addmm: a bias that does not fit": lambda m: torch.addmm(m.f(4), m.f(2, 3), m.f(3, 5)),
        "dot: sizes": lambda m: torch.dot(m.f(3), m.f(4)),
        "conv2d: channels": lambda m: F.conv2d(m.f(1, 3, 8, 8), m.f(4, 2, 3, 3)),
        "conv2d: a kernel larger than the image": lambda m: F.conv2d(m.f(1, 3, 2, 2), m.f(4, 3, 5, 5)),
        "cat: other sizes": lambda m: torch.cat([m.f(2, 3), m.f(2, 4)], 0),
        "stack: other sizes": lambda m: torch.stack([m.f(2), m.f(3)]),
        "view: another number of elements": lambda m: m.f(2, 3).view(7),
        "reshape: another number of elements": lambda m: m.f(2, 3).reshape(4, 2),
        "view: strides that do not allow it": lambda m: m.f(2, 3).t().view(6),
        "expand: a size that is not 1": lambda m: m.f(2, 3).expand(2, 4),
        "layer_norm: another shape than the input's": lambda m: F.layer_norm(m.f(2, 3), (4,)),
        "group_norm: channels that cannot be divided": lambda m: F.group_norm(m.f(2, 5, 4), 2),
        "batch_norm: one value in training": lambda m: F.batch_norm(m.f(1, 3), None, None, training=True),
        "nll_loss: batches": lambda m: F.nll_loss(m.f(3, 4), m.i(0, 1)),
        "cross_entropy: weights": lambda m: F.cross_entropy(m.f(2, 4), m.i(0, 1), weight=m.f(3)),
        "binary_cross_entropy: targets": lambda m: F.binary_cross_entropy(m.f(3), m.f(4)),
        "scatter: an index larger than its source": lambda m: m.f(3, 5).scatter(
            0, m.i(0, 1, 2).expand(2, 3), m.f(1, 3)
        ),
        "gather: an index that is wider than its input": lambda m: m.f(2, 3).gather(0, m.i(0, 1, 0, 1).view(1, 4)),
        "index_copy: sizes": lambda m: m.f(5, 3).index_copy(0, m.i(0, 1), m.f(2, 4)),
        "max_pool2d: a window larger than the image": lambda m: F.max_pool2d(m.f(1, 1, 2, 2), 5),
        "pixel_shuffle: channels": lambda m: F.pixel_shuffle(m.f(1, 3, 2, 2), 2),
        "setitem: as many elements": lambda m: m.f(2, 3).__setitem__(slice(2), m.f(3, 2)),
        "tril: a vector": lambda m: torch.tril(m.f(3)),
        "huber_loss: targets of another size": lambda m: F.huber_loss(m.f(3), m.f(4)),
        "foreach_add: lists of two lengths": lambda m: torch._foreach_add([m.f(2)], [m.f(2), m.f(3)]),  # noqa: SLF001
    },
    DIM: {
        **{
            f"{name}: dim 2 of two": lambda m, name=name: getattr(m.f(2, 3), name)(2)  # type: ignore[misc]
            for name in ("sum", "amax", "argmax", "softmax", "cumsum", "sort", "flip", "unbind", "squeeze")
        },
        "sum: a dim twice": lambda m: m.f(2, 3).sum((0, 0)),
        "transpose: dim -3 of two": lambda m: m.f(2, 3).transpose(-3, 0),
        "permute: a dim twice": lambda m: m.f(2, 3).permute(0, 0),
        "permute: too few": lambda m: m.f(2, 3).permute(0),
        "select: dim 2 of two": lambda m: m.f(2, 3).select(2, 0),
        "unsqueeze: dim 4 of two": lambda m: m.f(2, 3).unsqueeze(4),
        "cat: dim 2 of two": lambda m: torch.cat([m.f(2, 3), m.f(2, 3)], 2),
        "kthvalue: more than there are": lambda m: m.f(5).kthvalue(6),
        "glu: an odd size": lambda m: F.glu(m.f(2, 3)),
        "max: of nothing": lambda m: m.f(0).max(),
        "argmax: of nothing": lambda m: m.f(0).argmax(),
    },
    INDEX: {
        "narrow: beyond the end": lambda m: m.f(5).narrow(0, 3, 4),
        "split: sizes that do not add up": lambda m: torch.split(m.f(5), [2, 2]),
        "movedim: to where there is none": lambda m: m.f(2, 3).movedim(0, 5),
    },
    DTYPE: {
        "mm: two dtypes": lambda m: torch.mm(m.f(2, 2), m.f(2, 2, dtype=torch.float16)),
        "conv2d: two dtypes": lambda m: F.conv2d(m.f(1, 1, 4, 4), m.f(1, 1, 3, 3, dtype=torch.float16)),
        "bitwise_and: floating": lambda m: torch.bitwise_and(m.f(2), m.f(2)),
        "add_: a floating result into integers": lambda m: m.i(1, 2).add_(m.f(2)),
        "add_: a fraction into integers": lambda m: m.i(1, 2).add_(1.5),
        "sub_: integers into booleans": lambda m: (m.i(1, 2) > 1).sub_(1),
        "div_: a fraction into integers": lambda m: m.i(1, 2).div_(2),
        "embedding: floating indices": lambda m: F.embedding(m.f(2), m.f(4, 3)),
        "masked_fill: a mask of integers": lambda m: m.f(3).masked_fill(m.i(1, 0, 1), 2.0),
        "neg: of bool": lambda m: -(m.f(2) > 0),
        "sub: of bool": lambda m: (m.f(2) > 0) - (m.f(2) > 0),
        "requires_grad: integers": lambda m: m.i(1, 2).requires_grad_(),
        "out=: a dtype that loses": lambda m: torch.add(m.f(2), m.f(2), out=m.i(0, 0)),
        "cumsum_: into bool": lambda m: (m.f(2) > 0).cumsum_(0),
    },
    ARGUMENT: {
        "conv2d: groups that do not divide": lambda m: F.conv2d(m.f(1, 3, 8, 8), m.f(4, 1, 3, 3), groups=2),
        "conv2d: a stride of 0": lambda m: F.conv2d(m.f(1, 3, 8, 8), m.f(4, 3, 3, 3), stride=0),
        "max_pool2d: a padding over half the window": lambda m: F.max_pool2d(m.f(1, 1, 8, 8), 2, padding=2),
        "dropout: a probability above 1": lambda m: F.dropout(m.f(3), 1.5),
        "bernoulli_: a probability above 1": lambda m: m.f(3).bernoulli_(1.5),
        "normal_: a negative deviation": lambda m: m.f(3).normal_(0, -1),
        "uniform_: ends in the wrong order": lambda m: m.f(3).uniform_(2, 1),
        "random_: ends in the wrong order": lambda m: m.f(3).random_(5, 2),
        "randperm: a negative number": lambda m: torch.randperm(-1, device=m.device),
        "multinomial: more than there are": lambda m: m.f(3).multinomial(4),
        "div: an unknown rounding": lambda m: torch.div(m.f(2), m.f(2), rounding_mode="up"),
        "gelu: an unknown approximation": lambda m: F.gelu(m.f(2), approximate="sometimes"),
        "interpolate: no size": lambda m: F.interpolate(m.f(1, 1, 4, 4)),
        "empty: a negative size": lambda m: torch.empty(-1, device=m.device),
        "arange: a step of 0": lambda m: torch.arange(0, 5, 0, device=m.device),
        "linspace: a negative number of steps": lambda m: torch.linspace(0, 1, -1, device=m.device),
        "pad: more padding than reflection gives": lambda m: F.pad(m.f(1, 1, 3), (3, 3), mode="reflect"),
        "roll: two shifts, one dim": lambda m: m.f(2, 3).roll((1, 2), (0,)),
        "repeat: fewer than dimensions": lambda m: m.f(2, 3).repeat(2),
        "clamp: no end": lambda m: m.f(3).clamp(),
        "item: of several elements": lambda m: m.f(3).item(),
        "bool: of several elements": lambda m: bool(m.f(3)),
    },
    OVERLAP: {
        **{
            f"{name}: an expanded target": lambda m, n=name, of=of: getattr(m.f(1, 3).expand(2, 3), n)(*of(m))  # type: ignore[misc]
            for name, of in _INTO_EXPANDED.items()
        },
        "add: out= that begins within its input": lambda m: _shifted(m, lambda x, y: torch.add(x, 1, out=y)),
        "exp: out= that begins within its input": lambda m: _shifted(m, lambda x, y: torch.exp(x, out=y)),
        "cat: out= that begins within its input": lambda m: _shifted(m, lambda x, y: torch.cat([x], out=y)),
        "mul_: an operand that begins within its target": lambda m: _shifted(m, lambda x, y: x.mul_(y)),
        "gather: out= that is its input": lambda m: _shifted(m, lambda x, _: torch.gather(x, 0, m.i(0, 1), out=x)),
    },
    AUTOGRAD: {
        "grad: an input that was not used": lambda m: torch.autograd.grad(m.f(2, grad=True).sum(), m.f(2, grad=True)),
        "backward: a gradient of another size": lambda m: torch.autograd.backward(m.f(2, grad=True) * 2, m.f(3)),
        "zero_: a part of a leaf that asks for a gradient": lambda m: m.f(2, grad=True)[0].zero_(),
        "backward: what inference mode made": lambda m: m.f(2, grad=True) * _inferred(m),
        "add_: what inference mode made": lambda m: _inferred(m).add_(1),
        "backward: nothing asks for a gradient": lambda m: torch.autograd.backward(m.f(2).sum()),
        "backward: no gradient for what is no number": lambda m: torch.autograd.backward(m.f(2, grad=True) * 2),
        "backward: twice": _twice,
        "backward: what it needs was changed": _changed,
        **{f"backward: changed by {name}": partial(_changed, change=change) for name, change in _CHANGES.items()},
        "add_: a leaf that asks for a gradient": lambda m: m.f(2, grad=True).add_(1),
    },
}


def _case(family: str, name: str) -> Case:
    operator, _, what = name.replace("out=", "out").partition(": ")  # -k takes no "="
    subject = f"{operator}.{re.sub(r'[^a-z0-9]+', '-', what.lower()).strip('-')}"
    return Case(suite="errors", subject=subject, property="refused", family=family, level="smoke")


#: Case -> name of the refused call, and the call.
BY_CASE = {_case(family, name): (name, call) for family, table in _TABLES.items() for name, call in table.items()}
CASES: tuple[Case, ...] = tuple(BY_CASE)
