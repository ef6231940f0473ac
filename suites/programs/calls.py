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


def _views(device: torch.device) -> dict[str, Any]:
    """Return parts of memory as another dtype, and elements so often as told."""
    words, x = torch.arange(64, dtype=torch.int32, device=device), _whole(device, "x", 5, 6)
    part, halves = words[5:21], x.half().flatten()[4:24]
    bytes_of = torch.arange(96, device=device).to(torch.uint8)[8:24]
    some, counts = (torch.tensor(each, device=device) for each in ([2, 0, 0, 1, 0, 3], [0, 3, 0, 1, 2]))
    return {
        "as another dtype": [part.view(torch.int16), part[3:].view(torch.uint8), halves.view(torch.int32)],
        "as a larger dtype": [bytes_of.view(torch.int64), words[2:8].view(torch.float32).view(torch.int64)],
        "so often": [x.repeat_interleave(some, 1), x.repeat_interleave(counts, 0)],
    }


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


def _indexed(device: torch.device) -> dict[str, Any]:
    """Read and write at places that lie on the host, on the device, in one number, and beside slices."""
    found, every, whole = dict[str, Any](), slice(None), inputs.integers("calls/cube", (3, 4, 5, 6), low=-9, high=9)
    x = whole.float().to(device).requires_grad_()
    for name, where in (("host", CPU), ("device", device)):
        i, j, n, m = (torch.tensor(each, device=where) for each in ([2, 0], [[1], [3]], 1, [True, False, True]))
        keys: dict[str, Any] = {"apart": (every, i, every, j), "first": (i, every, j), "new": (None, i), "mask": (m,)}
        keys |= {"rows": slice(1, 3), "columns": (..., slice(0, 6, 2))}
        keys |= {"number": (n, ..., n), "later": (..., j, i), "mask and places": (m, i), "steps": (slice(0, 3, 2), j)}
        for key, places in keys.items():
            y = x * 1
            found[f"{name}, {key}"] = [x[places], *torch.autograd.grad((x[places] * 2).sum(), x)]
            y[places] = 5
            y[places] += n
            found[f"{name}, {key}, written"] = [y, *torch.autograd.grad(y.square().sum(), x)]
    return found


_ROWS = (_products, _hooked, _graphs, _views, _told, _indexed)
CALLS: Mapping[str, Row] = {
    row.__name__[1:]: alike(STANDARD, row, "what is called around operators gives something else") for row in _ROWS
}
