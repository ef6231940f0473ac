"""Autograd: second backward passes, second derivatives, expanded gradients, and the absence of side effects."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812  (as everybody calls it)
from torch.utils.checkpoint import checkpoint

from pytest_ascend.operators.calling import channels_last, tensors
from pytest_ascend.precision import Samples
from pytest_ascend.run import inputs

from ..runtime.rows import CPU, SMOKE, STANDARD, At, Row, T, alike, fetched, joined


class Function(NamedTuple):
    """A function of tensors with these shapes. ``twice``: its second derivative exists on every device."""

    call: Callable[..., T]
    shapes: tuple[tuple[int, ...], ...] = ((5, 33),)
    twice: bool = True
    positive: bool = False


def _places(x: T, count: int) -> T:
    return torch.arange(count, device=x.device) * 7 % len(x)


def _in_place(name: str, x: T) -> Any:
    """Modify a copy in place; the gradient formula may then no longer read the original values."""
    return getattr(T, f"{name}_")(x * 1) if hasattr(T, f"{name}_") else getattr(F, name)(x * 1, inplace=True)


_IN_PLACE = "elu selu celu relu leaky_relu hardtanh silu hardswish mish exp tanh sigmoid expm1 sin square"
_IMAGE = (2, 4, 9, 8)
FUNCTIONS: Mapping[str, Function] = {
    "mul": Function(torch.mul, ((67, 33), (33,))),
    "mul-apart": Function(torch.mul, ((67, 5, 9), (5, 1))),
    "div": Function(lambda x, y: x / (y.abs() + 1), ((5, 33), (5, 1))),
    "pow": Function(lambda x, y: (x.abs() + 0.5) ** y, ((5, 33), (33,))),
    "where": Function(lambda x, y: torch.where(x > y, x * y, y), ((5, 33), (5, 1)), twice=False),
    "exp": Function(torch.exp),
    **{name: Function(getattr(torch, name), positive=True) for name in ("log", "sqrt")},
    **{name: Function(getattr(torch, name)) for name in ("tanh", "sigmoid")},
    "silu": Function(F.silu),
    "gelu": Function(lambda x: F.gelu(x, approximate="tanh")),
    **{name: Function(getattr(F, name)) for name in ("softplus", "elu")},
    "softmax": Function(lambda x: x.softmax(-1) + x.softmax(1), ((3, 5, 33),)),
    "log_softmax": Function(lambda x: x.log_softmax(-1) + x.log_softmax(1), ((3, 5, 33),)),
    "logsumexp": Function(lambda x: x.logsumexp(-1) + x.logsumexp(1)[:, :5], ((3, 5, 33),)),
    "sum": Function(lambda x: x.sum(0)),
    "mean": Function(lambda x: x.mean(-1, keepdim=True) * x),
    "var": Function(lambda x: x.var(-1)),
    "norm": Function(lambda x: torch.linalg.vector_norm(x, dim=-1) ** 2),
    "cumsum": Function(lambda x: x.cumsum(-1) * x),
    "amax": Function(lambda x: x.amax(-1), twice=False),
    "prod": Function(lambda x: x[:, :4].prod(-1), twice=False),
    "mm": Function(torch.mm, ((5, 33), (33, 7))),
    "bmm": Function(torch.matmul, ((3, 5, 33), (33, 7))),
    "addmm": Function(torch.addmm, ((7,), (5, 33), (33, 7))),
    "linear": Function(F.linear, ((2, 67, 33), (7, 33), (7,))),
    "conv1d": Function(F.conv1d, ((2, 4, 33), (6, 4, 3), (6,))),
    "conv2d": Function(lambda x, w: F.conv2d(x, w, padding=1, stride=2), ((17, 4, 5, 6), (6, 4, 3, 3))),
    "conv_transpose2d": Function(F.conv_transpose2d, (_IMAGE, (4, 3, 3, 3), (3,))),
    "layer_norm": Function(lambda x, w, b: F.layer_norm(x, (33,), w, b), ((67, 33), (33,), (33,))),
    "group_norm": Function(lambda x, w: F.group_norm(x, 2, w), (_IMAGE, (4,)), twice=False),
    "batch_norm": Function(lambda x, w: F.batch_norm(x, None, None, w, training=True), (_IMAGE, (4,)), twice=False),
    "batch_norm-evaluated": Function(
        lambda x, w: F.batch_norm(x, w.detach(), w.detach().abs() + 1, w, training=False), (_IMAGE, (4,)), twice=False
    ),
    "avg_pool2d": Function(lambda x: F.avg_pool2d(x, 3, 2, 1), (_IMAGE,), twice=False),
    "avg_pool2d-ceil": Function(lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True), (_IMAGE,), twice=False),
    "max_pool2d": Function(lambda x: F.max_pool2d(x, 3, 1, 1), (_IMAGE,), twice=False),
    "interpolate": Function(lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), (_IMAGE,), twice=False),
    "embedding": Function(lambda w: F.embedding(_places(w, 4099), w), ((9, 33),), twice=False),
    "index_select": Function(lambda x: x.index_select(0, _places(x, 4099)) * x.mT.index_select(1, _places(x, 4099)).mT),
    "getitem": Function(lambda x: x[_places(x, 4096)] * x[1:].repeat(1024, 1) * x.mT[:, _places(x, 4096)].mT),
    "gather": Function(lambda x: x.gather(0, _places(x, 4099)[:, None].expand(4099, 33)), twice=False),
    "scatter_add": Function(
        lambda x, y: x.scatter_add(0, _places(x, 40)[:, None].expand(40, 33), y) ** 2, ((5, 33), (40, 33))
    ),
    "cat": Function(lambda x, y: torch.cat([x, y.expand(2, 33), x]) ** 2, ((5, 33), (1, 33))),
    "pad": Function(lambda x: F.pad(x, (2, 3)) ** 2),
    "views": Function(lambda x: x.reshape(33, 5)[::2].mT.flip(0) ** 2),
    "expand": Function(lambda x: x.expand(820, 5, 33).sum(0) * x),
    "cross_entropy": Function(lambda x: F.cross_entropy(x, _places(x.mT, 5), x[0].detach().abs(), reduction="none")),
    "cdist": Function(
        lambda x, y: torch.cdist(torch.cat([y, x]), y.contiguous())[:, :3], ((5, 33), (4, 33)), twice=False
    ),
    "mse_loss": Function(F.mse_loss, ((5, 33), (5, 33))),
    "lstm": Function(
        lambda x, *w: torch.lstm(x, [x.new_zeros(1, 3, 5)] * 2, w, True, 1, 0.0, True, False, False)[0],
        ((7, 3, 4), (20, 4), (20, 5), (20,), (20,)),
        twice=False,
    ),
    "attention": Function(F.scaled_dot_product_attention, ((1, 2, 5, 16),) * 3, twice=False),
    "dropout": Function(lambda x: F.dropout(x, 0.0) * 2),
    **{f"{name}_": Function(partial(_in_place, name)) for name in _IN_PLACE.split()},
}


def _leaves(
    name: str, function: Function, device: torch.device, dtype: torch.dtype, *, whole: bool = False
) -> tuple[list[T], list[T]]:
    """Return tensors and views of them, which are the inputs: offset, and with gaps between columns."""
    wholes, views = [], []
    for place, shape in enumerate(function.shapes):
        values = inputs.normal(f"autograd/{name}/{place}", shape)
        values = values.abs() + 0.25 if function.positive else values
        values = (values * 2).round() if whole else values
        # The memory around views is filled with a number that no input contains.
        around = torch.full((*shape[:-1], shape[-1] * 2 + 3), 77.0, dtype=torch.float32)
        around[..., 3 : 3 + 2 * shape[-1] : 2] = values
        wholes.append(around.to(dtype).to(device).requires_grad_())
        views.append(wholes[-1][..., 3 : 3 + 2 * shape[-1] : 2])
    return wholes, views


#: Functions with a constant sum: for a constant incoming gradient their gradients are zero except for rounding.
_OF_CONSTANTS = ("softmax", "log_softmax", "logsumexp", "layer_norm", "group_norm", "batch_norm")


def _gradients(
    name: str, function: Function, device: torch.device, dtype: torch.dtype, *, whole: bool = False
) -> dict[str, T]:
    """Return the result and its gradients: for expanded and transposed incoming gradients, for each input alone."""
    wholes, views = _leaves(name, function, device, dtype, whole=whole)
    result = function.call(*views)

    def drawn(key: str, shape: tuple[int, ...]) -> T:
        made = inputs.normal(f"autograd/{name}/{key}", shape)
        return ((made * 2).round() if whole else made).to(dtype).to(device)

    # Expanded along all dimensions but the last: for a constant one, the gradients of a softmax or a norm are zero.
    above = drawn("row", result.shape[-1:]).expand(result.shape)
    grad = partial(torch.autograd.grad, inputs=wholes, allow_unused=True)
    kinds = {"gradient {}": grad(result, grad_outputs=above, retain_graph=True)}
    turned = drawn("turned", result.shape[::-1]).permute([*range(result.dim())][::-1])
    kinds["gradient {}, of a transposed one"] = grad(result, grad_outputs=turned, retain_graph=True)
    if any(each.dim() == 4 for each in views):
        last = function.call(*(channels_last(x, device) for x in views))
        kinds["gradient {}, channels last"] = grad(last, grad_outputs=turned, retain_graph=True)
    # All other inputs are frozen, which torch_npu 2.1 refuses for 1-D convolutions.
    for place in range(len(views)) if len(views) > 1 and name != "conv1d" else ():
        alone = function.call(*(each if i == place else each.detach() for i, each in enumerate(views)))
        kinds[f"gradient {{}} alone, {place}"] = grad(alone, grad_outputs=above, retain_graph=True)
    if whole or name not in _OF_CONSTANTS:
        kinds["gradient {}, of a sum"] = grad(result.sum(), retain_graph=True)  # a single number, expanded
    if function.twice:  # with create_graph, other operators compute the gradients
        kinds["gradient {}, with a graph"] = again = grad(result, grad_outputs=above, create_graph=True)
        if attached := [each for each in again if each is not None and each.requires_grad]:
            kinds["second derivative {}"] = grad(torch.stack([(each**2).sum() for each in attached]).sum())
    found = {kind.format(i): x for kind, each in kinds.items() for i, x in enumerate(each) if x is not None}
    return {"result": result, **found}


def _transformed(way: str, names: Iterable[str], device: torch.device, dtype: torch.dtype) -> dict[str, T]:
    """Return results and gradients under vmap, or forward-mode derivatives of functions and of their gradients."""
    found = dict[str, T]()
    for name in names:
        call = FUNCTIONS[name].call
        views = tuple(each.detach() for each in _leaves(name, FUNCTIONS[name], device, dtype)[1])
        result, *backward = torch.func.vjp(call, *views)
        batch = [torch.stack([each, each * 2]) for each in views]
        drawn = [
            inputs.normal(f"autograd/{name}/{way}/{i}", each.shape).to(dtype).to(device)
            for i, each in enumerate((torch.stack([result] * 3), *views))
        ]
        if way == "forward":
            squared = torch.func.grad(lambda *x: (call(*x) ** 2).sum(), tuple(range(len(views))))  # noqa: B023
            made = [torch.func.jvp(each, views, tuple(drawn[1:]))[1] for each in (call, squared)]
        else:
            made = [torch.vmap(call)(*batch), torch.vmap(backward[0])(drawn[0])]
        kinds = zip(("of it", "of gradients"), made, strict=True)
        found |= {f"{name}: {kind}, {i}": x for kind, each in kinds for i, x in enumerate(tensors(each))}
    return found


def _twice(at: At, names: Iterable[str]) -> None:
    """Check second derivatives that a device may refuse; those it computes must be right."""
    for name in names:
        function, found = FUNCTIONS[name], []
        for where in ((at.device, torch.float32), (CPU, torch.float64), (CPU, torch.float32)):
            with suppress(RuntimeError):
                found.append(fetched(_gradients(name, function._replace(twice=True), *where)))
        at.holds(len(found) != 1, f"{name}: the device has a second derivative, or its reference is missing")
        if len(found) == 3:
            at.judge(found[0], found[1], reference_runs=Samples([found[2]]), name=name, accumulation=64)


def _checked(at: At, name: str) -> None:
    function = FUNCTIONS[name]
    wholes, views = _leaves(name, function, at.device, torch.float32)
    before = [each.detach().cpu() for each in wholes]
    result = function.call(*views)
    first = result.detach().cpu()
    above = inputs.normal(f"autograd/{name}/above", result.shape).to(at.device)
    up = above.cpu()
    passes = [torch.autograd.grad(result, views, above, retain_graph=True, allow_unused=True) for _ in range(2)]
    kept = [[each.detach().cpu() for each in found if each is not None] for found in passes]
    at.judge(kept[1], [each.double() for each in kept[0]], reference_runs=Samples([kept[0]]),
             name=f"{name}: a second backward pass gives other gradients", accumulation=64)  # fmt: skip
    # These gradients belong to the caller; a later pass must not change them.
    held = [each.detach().cpu() for each in passes[0] if each is not None]
    at.same(held, kept[0], f"{name}: a second backward pass changes the gradients of the first")
    at.same(result.detach().cpu(), first, f"{name}: backward changes the result")
    at.same(above.cpu(), up, f"{name}: backward changes the gradient that it was given")
    now = [each.detach().cpu() for each in wholes]
    at.same(now, before, f"{name}: its inputs, or the memory around these views, are changed")
    at.defined(partial(_gradients, name, function), accumulation=64)


#: Functions whose gradients are exact for small integers.
_WHOLE = """mul mul-apart where prod sum cumsum mm bmm addmm linear conv1d conv2d conv_transpose2d max_pool2d
interpolate embedding index_select getitem gather scatter_add cat pad views expand dropout"""


def _exact(device: torch.device) -> dict[str, T]:
    functions = {name: FUNCTIONS[name]._replace(twice=False) for name in _WHOLE.split()}
    found = {name: _gradients(name, each, device, torch.float32, whole=True) for name, each in functions.items()}
    # Summed in another order, opposite numbers may give a zero of the other sign.
    return {name: joined(each.values()).cpu() + 0.0 for name, each in found.items()}


def _together(device: torch.device, dtype: torch.dtype) -> dict[str, T]:
    """Return the gradients of all functions, each joined in one tensor."""
    some = {name: each for name, each in FUNCTIONS.items() if name != "cdist"}  # not available in every version
    made = {name: _gradients(name, each, device, dtype) for name, each in some.items()}
    return {name: joined(each.values()) for name, each in made.items()}


def _dropped(at: At) -> None:
    """Check that dropped elements have no gradient and kept ones have theirs, for any memory layout.

    When torch.utils.checkpoint recomputes the forward pass, the same elements are dropped.
    """
    ones = torch.ones(4, 6, 5, 7, device=at.device)
    last = channels_last(ones, at.device)
    views = {"plain": ones, "transposed": ones.mT, "channels last": last, "stepped": ones[..., ::2]}
    for name, view in views.items():
        x = view.detach().requires_grad_()
        for again in (False, True) if name == "plain" else (False,):
            found = checkpoint(F.dropout, x, 0.5, use_reentrant=False) if again else F.dropout(x, 0.5)
            F.dropout(ones, 0.5)
            (grad,) = torch.autograd.grad(found.sum(), x)
            said = f"{name}: dropout's gradient has another mask than its result"
            at.same(grad.cpu(), found.detach().cpu(), f"{said}, if that is computed again" if again else said)


#: Functions without forward-mode derivatives or batching rules in torch, or that write to the result of such a rule.
_NOT_TRANSFORMED = ("cdist", "lstm", "attention", *(f"{name}_" for name in _IN_PLACE.split()))
#: By mode, functions that torch_npu is known to transform wrongly or not at all.
_APART = {"forward": ("softmax", "max_pool2d", "linear", "bmm", "gather"), "batched": ("softmax",)}
#: Functions whose second derivatives some devices lack, and those whose second derivatives torch_npu loses.
_ONCE, _TWICE_APART = {name for name, each in FUNCTIONS.items() if not each.twice}, ("lstm", "attention")
AUTOGRAD: Mapping[str, Row] = {
    **{name: (STANDARD, partial(_checked, name=name)) for name in FUNCTIONS},
    "exact": alike(SMOKE, _exact, "gradients of whole numbers are not exact"),
    "together": (SMOKE, lambda at: at.defined(_together, orders=4, accumulation=64)),
    "dropout-mask": (SMOKE, _dropped),
    "twice": (STANDARD, partial(_twice, names=sorted(_ONCE - {*_TWICE_APART}))),
    **{f"twice-{name}": (STANDARD, partial(_twice, names=[name])) for name in _TWICE_APART},
    **{
        f"{way}{name and '-'}{name}": (
            STANDARD,
            partial(At.defined, function=partial(_transformed, way, names), accumulation=64),
        )
        for way, apart in _APART.items()
        for name, names in (
            ("", sorted(FUNCTIONS.keys() - {*apart, *_NOT_TRANSFORMED})),
            *((name, (name,)) for name in apart),
        )
    },
}
