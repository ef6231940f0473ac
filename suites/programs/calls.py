"""What users call around operators: graphs, hooks, casts, views of memory, indexing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from pytest_ascend.run import inputs

from ..runtime.rows import CPU, SMOKE, STANDARD, Row, T, alike

#: torch, for functions without type annotations or with wrong ones.
API: Any = torch


def _whole(device: torch.device, key: str, *shape: int, grad: bool = False) -> Any:
    return inputs.integers(f"calls/{key}", shape, low=-3, high=4).float().to(device).requires_grad_(grad)


def _products(device: torch.device) -> dict[str, Any]:
    """Return a Hessian-vector product of a function of a matmul, which takes the third derivative."""
    x, v, w = (_whole(device, key, *shape) for key, *shape in (("x", 2, 6), ("v", 2, 6), ("w", 6, 4)))
    return {"hvp": API.autograd.functional.hvp(lambda y: (y @ w).square().sum(), x, v)}


def _hooked(device: torch.device) -> dict[str, Any]:
    """Return what hooks of nodes, of several tensors, of leaves, of modules and of saved tensors see and change."""
    seen, calls = list[Any](), list[str]()

    def kept(call: str, factor: int, x: T) -> T:
        calls.append(call)
        return x * factor

    x, z, y = (_whole(device, key, 5, 6, grad=True) for key in "xzy")
    product = x * z
    inner = product * 1
    inner.retain_grad()
    inner.register_hook(lambda grad: grad * 3)
    product.grad_fn.register_prehook(lambda above: (above[0] * 2,))
    product.grad_fn.register_hook(lambda below, _: seen.append(below[0].clone()))
    API.autograd.graph.register_multi_grad_hook([x, z], lambda some: seen.extend(e for e in some if e is not None))
    x.register_post_accumulate_grad_hook(lambda leaf: seen.append(leaf.grad.clone()))
    for each in ((inner * product).sum(), (z * 3).sum()):
        torch.autograd.backward(each)
    found: dict[str, Any] = {"of nodes and leaves": [*seen, x.grad, z.grad, inner.grad]}
    model: Any = nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 2)).to(device)
    nn.utils.vector_to_parameters(_whole(device, "model", 38), model.parameters())
    model[0].register_forward_pre_hook(lambda _, given: (given[0] + 1,))
    model[0].register_full_backward_hook(lambda _, __, above: calls.append(above[0].tolist()))
    model[2].register_forward_hook(lambda _, __, given: given * 2)
    model[2].register_full_backward_pre_hook(lambda _, above: (above[0] * 2,))
    found["of modules"] = [*torch.autograd.grad(model(y).sum(), [y, *model.parameters()])]
    ways = torch.autograd.graph
    for name, context in {
        "of saved tensors": ways.saved_tensors_hooks(partial(kept, "pack", 2), partial(kept, "unpack", 1)),
        "kept on the host": ways.save_on_cpu(),
        "kept on the host, pinned": ways.save_on_cpu(pin_memory=device != CPU),
    }.items():
        with context:
            square = (y @ y.mT).relu() * (y @ y.mT)
        found[name] = [*torch.autograd.grad(square.sum(), y)]
    # A zero may have the other sign.
    return {name: [each.detach().cpu() + 0.0 for each in some] for name, some in found.items()} | {"calls": calls}


class _Swapped(torch.autograd.Function):
    """Multiply two tensors and a number; the gradients show what backward receives."""

    @staticmethod
    def forward(ctx: Any, x: T, y: T, number: float) -> tuple[T, T]:
        found, places = x * y * number, (x > y).nonzero()
        ctx.save_for_backward(x, y, found)
        ctx.mark_non_differentiable(places)
        ctx.number = number
        return found, places

    @staticmethod
    def backward(ctx: Any, above: T, _: T) -> tuple[T | None, T | None, None]:
        x, y, found = ctx.saved_tensors
        first = above * y * ctx.number + found if ctx.needs_input_grad[0] else None
        return first, above * x * ctx.number if ctx.needs_input_grad[1] else None, None


def _graphs(device: torch.device) -> dict[str, Any]:
    """Return results of custom functions, nested backward passes, errors in them, and graphs over several devices."""

    def gradients(result: T, *of: T) -> list[T]:
        return [*torch.autograd.grad(result.sum(), of)]

    def within(x: T) -> Any:
        return checkpoint(lambda y: checkpoint(torch.square, y * 2, use_reentrant=True) + y, x, use_reentrant=True)

    def stop(_: T) -> None:
        raise LookupError

    def told(a: T) -> T:
        dtypes.append(str((a @ a.mT).dtype))
        return a * a

    dtypes, (x, y, z, nothing) = list[str](), (_whole(device, key, 5, 6, grad=True) for key in "xyzn")
    swapped: Any = _Swapped
    result, places = swapped.apply(x, y, 3)
    found = {"a function": [result, places, *gradients(result * 2, x, y)]}
    found["of the first alone"] = gradients(swapped.apply(x, y.detach(), 2)[0], x)
    if hasattr(torch.amp, "custom_fwd"):
        cast = torch.amp.custom_fwd(swapped.forward, device_type=device.type, cast_inputs=torch.float32)
        casts: Any = type("Casts", (swapped,), {"forward": staticmethod(cast)})
        with torch.autocast(device.type, torch.bfloat16):
            found["cast within autocast"] = [casts.apply(x.bfloat16(), y.bfloat16(), 0.3)[0]]
    with torch.autocast(device.type, torch.bfloat16):
        product = checkpoint(told, x, use_reentrant=False)
    found["a checkpoint within autocast"] = gradients(product, x)
    torch.autograd.backward(within(z).sum())
    found["within a pass"] = [z.grad]
    last = device if device == CPU else torch.device(device.type, getattr(torch, device.type).device_count() - 1)
    there = (x * 2).cpu().square().to(device) + x.to(last).mul(3).to(device) * y
    found["over devices"] = gradients(there, x, y)
    held = [(x * number).square() for number in (1, 2)]
    found["of the first"] = [*gradients(held[0], x), *gradients(held[1], x)]
    torch.autograd.backward((x + y).sum())
    x.grad.add_(1)
    found["kept apart"] = [x.grad, y.grad] if y.grad is not None else []
    failing = x * y
    failing.register_hook(stop)
    with suppress(LookupError):
        gradients(failing * 2, x)
        found["an error that is lost"] = []
    with suppress(RuntimeError), API.autograd.detect_anomaly(check_nan=True):
        gradients((nothing * 0).sqrt() * 0, nothing)
        found["NaN that is not found"] = []
    found["after an error"] = gradients(x * y, x, y)
    tensors = {name: [each.detach().cpu() + 0 for each in some] for name, some in found.items()}
    return {**tensors, "dtypes within autocast": dtypes}


def _told(device: torch.device) -> dict[str, Any]:
    """Return printed numbers, tensors made from elements of others, and tensors made in a device context."""
    x = _whole(device, "x", 5, 6)
    one = x[0, 0].abs() + 2
    numbers = [repr(one).partition(", device")[0].removesuffix(")"), f"{one:.3f}", int(one), float(one), bool(one)]
    numbers += [[*range(9)][one.long()], *x[:2, 0]]
    made = [torch.tensor([one, one + 1]), torch.as_tensor(x).sum(), torch.stack([one, one]), x.new_tensor([2, 3])]
    with device:
        there = [torch.ones(3), torch.arange(4), torch.eye(2), nn.Linear(2, 2).weight.detach().square() * 0]
    are_there = [each.device.type == device.type for each in there]
    return {"numbers": numbers, "made": made, "there": there, "where": are_there}


def _keys(where: torch.device) -> dict[str, Any]:
    """Return index expressions of all forms for a tensor (3, 4, 5, 6), without duplicates; the last are refused."""
    i, j, n, m = (torch.tensor(each, device=where) for each in ([2, 0], [[1], [3]], 1, [True, False, True]))
    every, few = slice(None), torch.arange(20, device=where).view(4, 5) % 3 == 1
    return {
        "apart": (every, i, every, j), "first": (i, every, j), "new": (None, i), "mask": (m,), "rows": slice(1, 3),
        "columns": (..., slice(0, 6, 2)), "number": (n, ..., n), "later": (..., j, i), "mask and places": (m, i),
        "steps": (slice(0, 3, 2), j), "lists": ([2, 0], [1, 3]), "list": [2, 0], "none": (i[:0],), "range": range(2),
        "from the end": (-i - 1, -1, slice(-3, None)), "beyond": (slice(1, 99), ..., slice(-99, 2)), "all": ...,
        "no rows": slice(2, 2), "no columns": (every, i[:0]), "true": (True, i), "false": False, "int32": (i.int(),),
        "plane": (every, few), "two masks": (m, few[:, 2]), "mask of one": n > 0, "mask of none": (m & False,),
        "element": (2, 3, 4, 5), "new between": (every, None, i, None), "grid": (i[:, None], every, j[:, 0]),
        "last": (..., torch.arange(6, device=where) % 2 == 0), "too many": (0,) * 5, "too large": 3, "too small": -4,
        "half": (every, 2.5), "floating": (i.float(),), "backwards": slice(3, 0, -1), "another mask": few[:, 0],
    }  # fmt: skip


def _indexed(device: torch.device) -> dict[str, Any]:
    """Read and write with indices on the host, on the device, as single numbers, and combined with slices."""
    found, whole = dict[str, Any](), inputs.integers("calls/cube", (3, 4, 5, 6), low=-9, high=9)
    x = whole.float().to(device).requires_grad_()
    for name, where in (("host", CPU), ("device", device)):
        for key, places in _keys(where).items():
            try:
                part = x[places]
            except (IndexError, TypeError, ValueError) as error:
                found[f"{name}, {key}"] = type(error).__name__
                continue
            count = torch.arange(part.numel(), device=device).float()
            turned = count.view(part.shape[::-1]).permute(tuple(range(part.dim()))[::-1])
            row = torch.arange(part.shape[-1], device=device).float() if part.dim() else 7
            found[f"{name}, {key}"] = [part, *torch.autograd.grad((part * 2).sum(), x)]
            for given in (5, row, turned, turned[None, None], part.detach() + 1):
                y = x * 1
                y[places] = given
                y[places] += 1
                found[f"{name}, {key}, written {len(found)}"] = [y, *torch.autograd.grad(y.square().sum(), x)]
    i, j, ones = torch.tensor([2, 0, 2], device=device), torch.tensor([1, 1, 3, 1], device=device), torch.ones_like(x)
    for key, again in {"grid": (i[:, None], j), "pairs": (i, j[:3])}.items():
        added = ones.index_put(again, ones[again] * 2, accumulate=True)
        found[f"repeated, {key}"] = [added, *torch.autograd.grad((x[again] * 2).sum(), x)]
    found["repeated, apart"] = [*torch.autograd.grad((x[i[:, None], :, j] * 2).sum(), x)]
    return found


def _two(x: T) -> T:
    return torch.tensor([3, 1], device=x.device)


#: Differentiable in-place operations on rows, through views and with masks.
_CHANGES: Mapping[str, Callable[[T, T], object]] = {
    "a row": lambda y, _: y[0].mul_(2), "columns": lambda y, r: y.mT[1:3].mul_(r[1, 1:]), "all": lambda y, r: y.mul_(r),
    "a diagonal": lambda y, _: y.diagonal().mul_(2), "copied": lambda y, r: y[0].copy_(r[1] * r[2]),
    "repeated": lambda y, r: y[1:].copy_(r[0] * 2), "cast": lambda y, r: y[0].copy_(r[1].half() * 2),
    "filled": lambda y, _: y[:, 0].fill_(4), "zeros": lambda y, _: y[1:3].zero_(), "signs": lambda y, _: y[1:4].relu_(),
    "masked": lambda y, r: y.masked_fill_(r > 0, 2), "by a tensor": lambda y, r: y.masked_fill_(r > 0, r[0, 0]),
    "at places": lambda y, r: y.index_copy_(0, _two(r), r[3:] * 2), "flat": lambda y, r: y.view(-1)[3:9].sub_(r[4]),
    "added": lambda y, r: y.index_add_(0, _two(r), r[3:], alpha=2), "turned": lambda y, r: y.t_().mul_(r.mT),
    "scattered": lambda y, r: y.scatter_(1, _two(r).expand(5, 2), r[:, 4:]), "limited": lambda y, _: y.clamp_(-1, 1),
    "strided": lambda y, _: y.as_strided((2, 3), (6, 2), 1).mul_(3), "products": lambda y, r: y[:, :5].addmm_(r, r.mT),
    "apart": lambda y, _: torch.no_grad()(y[0].mul_)(3), "between": lambda y, r: y.lerp_(r, 0.5),
}  # fmt: skip


def _changed(device: torch.device) -> dict[str, Any]:
    """Return tensors modified in place, a view made beforehand, and the gradients of both."""
    found = dict[str, Any]()
    for name, change in _CHANGES.items():
        x, r = (_whole(device, key, 5, 6, grad=True) for key in "xr")
        y, other = x * 1, r * 1
        view = y[1:, 1:]
        change(y, other)
        total = (y * y * 2).sum() + (view * view).sum()
        found[name] = [y, view, *torch.autograd.grad(total, (x, r), allow_unused=True)]
    return {name: [each + 0.0 for each in some if each is not None] for name, some in found.items()}


def _passes(device: torch.device) -> dict[str, Any]:
    """Return gradients of some inputs, of several results, batched, with a graph, and accumulated in leaf layout."""
    (x, y, z), grad = (_whole(device, key, 5, 6, grad=True) for key in "xyz"), torch.autograd.grad
    given, cube = torch.stack([x, y * 2, x - y]).detach(), _whole(device, "leaf", 2, 3, 4, 5)
    torch.autograd.backward((x * y).sum(), inputs=[y])
    found: dict[str, Any] = {
        "to some": [x.grad, y.grad], "in batches": grad(x * y.square(), [x, y], given, is_grads_batched=True),
        "of several": grad([x * y, x * 2, z[0]], [x, y, z], [given[0], given[1], given[2, 0]]),
        "unused": [*grad((x * 2).sum(), [x, z], allow_unused=True), *grad(y.sum(), [z], materialize_grads=True)],
    }  # fmt: skip
    torch.autograd.backward((x * x * y).sum(), create_graph=True)
    found["with a graph"] = grad(API.sum(x.grad * x.grad), [x, y])
    for name, leaf in {"turned": cube.mT, "last": cube.permute(0, 2, 3, 1), "apart": cube[..., ::2]}.items():
        for turn in range(3):
            torch.autograd.backward((leaf.requires_grad_() * leaf.detach().contiguous()).sum())
            found[f"{name}, {turn}"] = [API.clone(leaf.grad), API.Tensor.stride(leaf.grad)]
    return found


_CAUSE = "what is called around operators gives something else"
CALLS: Mapping[str, Row] = {
    **{row.__name__[1:]: alike(SMOKE, row, _CAUSE) for row in (_changed, _passes)},
    **{row.__name__[1:]: alike(STANDARD, row, _CAUSE) for row in (_products, _hooked, _graphs, _told, _indexed)},
}
