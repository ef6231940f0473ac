"""Functions that ``torch.compile`` rewrites for captured graphs: in-place operations, views, and fusions."""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from torch import Tensor

from pytest_ascend.operators.calling import tensors

from .workloads import Same, Watched, numbers

#: A function of x (4, 8) and y (4, 8).
Pattern: TypeAlias = Callable[[Tensor, Tensor], object]
#: Aliases of inputs and of results.
VIEWS: tuple[Pattern, ...] = (
    lambda x, y: (x.view(8, 4) + 1, y),
    lambda x, y: x.t() @ y,
    lambda x, y: (x[:, :4], x[:, :4] * 2, y),
    lambda x, y: torch.cat([x[1:], y[:1]]),
    lambda x, y: (x + y).view(-1)[::3],
    lambda x, y: [(z := x * 2), z.view(-1), z[0], y],
    lambda x, y: (x.expand(3, 4, 8) + y).sum(0),
    lambda x, y: (x.unsqueeze(1) - y.unsqueeze(0)).flatten(1),
    lambda x, y: torch.split(x, 2)[1] * y.chunk(2)[0],
    lambda x, y: (x.permute(1, 0).contiguous(), y.transpose(0, 1)),
)


def _changed(change: Pattern) -> Pattern:
    """Return a function that changes a copy, and returns the result of the change and the copy."""

    def work(x: Tensor, y: Tensor) -> tuple[object, Tensor]:
        z = x.clone()
        return change(z, y), z

    return work


_CHANGES: tuple[Pattern, ...] = (
    lambda z, y: z.add_(y).mul_(2),
    lambda z, y: z[:2].add_(y[:2]),
    lambda z, y: z.view(-1)[:8].copy_(y[0]),
    lambda z, y: z.t().mul_(y.t()),
    lambda z, y: z.index_copy_(0, torch.tensor([0, 2], device=y.device), y[:2]),
    lambda z, y: z.relu_() + y,
    lambda z, y: (z + 1, z.zero_(), y),
    lambda z, y: (z.add_(1), y * z, z.sub_(1)),
    lambda z, y: z.masked_fill_(y > 0, 3.0),
    lambda z, y: z.scatter_(1, torch.zeros(4, 1, dtype=torch.int64, device=y.device), y[:, :1]),
)
IN_PLACE = tuple(map(_changed, _CHANGES))
FUSIONS: tuple[Pattern, ...] = (
    lambda x, y: F.layer_norm(x + y, (8,)),
    lambda x, y: F.rms_norm(x + y, (8,)),
    lambda x, y: ((s := x + y), F.rms_norm(s, (8,))),
    lambda x, y: F.gelu(x @ y.t()),
    lambda x, y: F.silu(x) * y,
    lambda x, y: (x @ y.t()).softmax(-1) @ y,
    lambda x, y: torch.addmm(x[0, :4], x, y.t()),
    lambda x, y: x.float() * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * y,
    lambda x, y: torch.where(x > y, x, y).to(torch.float16).float(),
    lambda x, y: (x * 2 + y * 3 - 1).clamp(-1, 1),
)


#: Functions that change their inputs, and return them or views of them.
ALIASES: tuple[Pattern, ...] = (
    lambda x, y: x.add_(y),
    lambda x, y: (x.mul_(2), y),
    lambda x, y: (x[:2].zero_(), x.view(-1), y + x),
    lambda x, y: (y.copy_(x), x.sub_(1), y[0]),
    lambda x, y: (x.t(), x.relu_(), torch.add(x, y, out=y)),
)


def _exported(function: Pattern, x: Tensor, y: Tensor) -> Callable[[Tensor, Tensor], Any]:
    class Module(torch.nn.Module):
        def forward(self, x: Tensor, y: Tensor) -> object:
            return function(x, y)

    file = io.BytesIO()
    torch.export.save(torch.export.export(Module(), (x, y)), file)
    file.seek(0)
    return torch.export.load(file).module()


def _check(functions: tuple[Pattern, ...], backend: str, device: torch.device, same: Same) -> None:
    """Check functions by a backend of torch.compile, or "export"; by aot_eager with gradients too."""
    for number, function in enumerate(functions):
        torch._dynamo.reset()  # noqa: SLF001 - its only name
        compiled: Any = None if backend == "export" else torch.compile(function, backend=backend, dynamic=False)
        for seed in (0, 2):
            given = [numbers(device, each, 4, 8) for each in (seed, seed + 1)]
            eager = [each.clone() for each in given]
            with torch.no_grad():
                compiled = compiled or _exported(function, *(each.clone() for each in given))
                found, wanted = tensors(compiled(*given)), tensors(function(*eager))
            if backend == "aot_eager" and function not in IN_PLACE:
                found += _gradients(compiled, device, seed)
                wanted += _gradients(function, device, seed)
            where, locate = f"pattern {number}, inputs {seed}", partial(_operators, function, *eager)
            for place, pair in enumerate(zip(found, wanted, strict=True)):
                same(*pair, f"{where}, result {place}", locate)
            for place, pair in enumerate(zip(given, eager, strict=True)):
                same(*pair, f"{where}, input {place} afterwards", locate)


def _operators(function: Callable[..., object], x: Tensor, y: Tensor) -> str:
    with Watched() as seen:
        function(x, y)
    return f"its operators are {', '.join(seen.names)}"


def _gradients(function: Callable[..., object], device: torch.device, seed: int) -> list[Tensor]:
    given = [numbers(device, each, 4, 8).requires_grad_() for each in (seed, seed + 1)]
    losses = [each.square().sum() for each in tensors(function(*given)) if each.requires_grad]
    torch.autograd.backward(losses)
    return [each.grad for each in given if each.grad is not None]


_CAPTURED = {"views": VIEWS, "in-place": IN_PLACE, "aliases": ALIASES, "fusions": FUSIONS}
#: Subject -> its check.
COMPILED: dict[str, Callable[[torch.device, Same], None]] = {
    **{name: partial(_check, patterns, "npugraph_ex") for name, patterns in _CAPTURED.items()},
    "autograd-graph": partial(_check, (*VIEWS, *IN_PLACE, *FUSIONS), "aot_eager"),
    "exported": partial(_check, (*VIEWS, *IN_PLACE, *FUSIONS), "export"),
}
