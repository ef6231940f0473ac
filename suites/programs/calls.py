"""What users call around operators: graphs, hooks, casts, views of memory, places."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from pytest_ascend.run import inputs

from ..runtime.rows import CPU, STANDARD, Row, T, alike

#: Without types, or with wrong ones.
API: Any = torch


def _whole(device: torch.device, key: str, *shape: int, grad: bool = False) -> Any:
    return inputs.integers(f"calls/{key}", shape, low=-3, high=4).float().to(device).requires_grad_(grad)


def _products(device: torch.device) -> dict[str, Any]:
    """Return a product with the Hessian of a function through matmul, which takes its third derivative."""
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
    # A zero may have another sign.
    return {name: [each.detach().cpu() + 0.0 for each in some] for name, some in found.items()} | {"calls": calls}


class _Swapped(torch.autograd.Function):
    """Multiply two tensors and a number; the gradients tell what backward is given."""

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
    """Functions with gradients of their own, passes within passes, errors in them, and graphs over several devices."""

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
    """Return what is printed, numbers and tensors that are made of parts of tensors, and what is made within."""
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
    """Return places in a tensor (3, 4, 5, 6), none of them twice, in all forms; the last are refused."""
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
    """Read and write at places that lie on the host, on the device, in one number, and beside slices."""
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
    return found


_ROWS = (_products, _hooked, _graphs, _told, _indexed)
CALLS: Mapping[str, Row] = {
    row.__name__[1:]: alike(STANDARD, row, "what is called around operators gives something else") for row in _ROWS
}
