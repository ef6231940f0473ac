"""What is asked of copies, layouts, modules that are moved and calls between others sees a device that is wrong."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from pytest_ascend.run.comparing import Disagreement, PrecisionCompare
from suites.programs import calls, parts
from suites.runtime import movement, state
from suites.runtime.rows import CPU, At, fetched

AT = At(CPU, PrecisionCompare(lambda _: None))


def _untied(usual: Any) -> Any:
    """Give every place of a module a parameter of its own."""

    def wrong(*args: Any, **named: Any) -> Any:
        module = usual(*args, **named)
        for each in module.modules() if isinstance(module, nn.Module) else ():
            for name, parameter in each._parameters.items():
                each._parameters[name] = nn.Parameter(parameter.detach().clone(), parameter.requires_grad)
        return module

    return wrong


def _in_order_of_memory(usual: Any) -> Any:
    def wrong(x: Tensor, source: Tensor) -> Tensor:
        order = sorted(range(source.dim()), key=lambda i: -source.stride(i))
        return usual(x, source.permute(order).reshape(source.shape))

    return wrong


def _without_copy(usual: Any) -> Any:
    def wrong(*args: Any, **named: Any) -> Any:
        named.pop("copy", None)
        return usual(*args, **named)

    return wrong


def _copies_bytes(usual: Any) -> Any:
    return lambda x, *how: usual(x, *how).clone() if how[0] is torch.uint8 else usual(x, *how)


def _numbers_alone(usual: Any) -> Any:
    return lambda x, at, y: usual(x, at, y) if isinstance(y, int) else None


def _fills_gaps(usual: Any) -> Any:
    def wrong(x: Tensor, source: Tensor) -> Tensor:
        if x.numel() and x.stride()[-1:] == (2,):
            usual(x.as_strided(x.shape, x.stride(), x.storage_offset() + 1), source)
        return usual(x, source)

    return wrong


_RUNS: dict[str, Callable[[torch.device], dict[str, Any]]] = {
    "moved": partial(parts.moved, ways=parts.DONE),
    "saved": partial(parts.moved, ways=parts.SAVED),
    "kept": partial(movement.kept, moves=movement.KEEPS),
    "saved tensors": partial(movement.kept, moves=movement.KEEPS),
    "views": partial(movement.kept, moves=movement._VIEWS, layouts=movement._SQUARE),
    "layouts": movement._layouts,
    "gaps": partial(movement._copies, targets=movement._GAPS, sources=movement._GAPS, dtypes=movement._WITH_CASTS),
    "indexed": calls._indexed,
}
#: By row, what is replaced while the device computes, and what makes the wrong one of the right one.
WRONG: tuple[tuple[str, Any, str, Callable[[Any], Any]], ...] = (
    ("moved", nn.Module, "to", _untied),
    ("moved", parts, "deepcopy", lambda _: copy),
    ("moved", parts, "deepcopy", _untied),
    ("moved", nn.Module, "half", lambda _: lambda m: m._apply(torch.Tensor.half)),
    ("moved", nn.Module, "zero_grad", lambda _: lambda *_, **__: None),
    ("moved", nn.Module, "zero_grad", lambda usual: lambda m, **_: usual(m)),
    ("moved", nn.Module, "requires_grad_", lambda _: lambda m, _: m),
    ("moved", nn.Module, "load_state_dict", lambda usual: lambda m, s, **how: usual(m, s, **how | {"assign": True})),
    ("moved", nn.Module, "load_state_dict", lambda usual: lambda m, s, assign=False, **how: usual(m, s, **how)),
    ("moved", nn.Module, "to_empty", _untied),
    ("saved", torch, "load", _untied),
    ("saved", nn.Module, "load_state_dict", lambda _: lambda *_, **__: None),
    ("saved tensors", torch, "load", lambda usual: lambda *args, **how: usual(*args, **how).clone()),
    ("saved tensors", torch, "load", lambda usual: lambda *args, **how: usual(*args, **how).contiguous()),
    ("kept", torch.Tensor, "half", lambda usual: lambda x: usual(x).contiguous()),
    ("kept", torch.Tensor, "to", _without_copy),
    ("kept", torch, "asarray", lambda usual: lambda x, **_: usual(x)),
    ("kept", torch.Tensor, "view_as", lambda _: lambda x, _: x.clone()),
    ("kept", torch.Tensor, "squeeze", lambda _: torch.clone),
    ("kept", movement, "deepcopy", lambda _: copy),
    ("kept", torch, "full_like", lambda usual: lambda x, n, **_: usual(x, n)),
    ("views", torch.Tensor, "view", _copies_bytes),
    ("views", torch.Tensor, "repeat_interleave", lambda usual: lambda x, n, *dim: usual(x, n.clamp(1), *dim)),
    ("layouts", torch.Tensor, "copy_", _in_order_of_memory),
    ("gaps", torch.Tensor, "copy_", _fills_gaps),
    ("indexed", torch.Tensor, "__setitem__", _numbers_alone),
)  # fmt: skip


@pytest.mark.parametrize("row", _RUNS)
def test_what_is_right_is_not_accused(row: str) -> None:
    AT.same(fetched(_RUNS[row](CPU)), fetched(_RUNS[row](CPU)), "the CPU differs from itself")


@pytest.mark.parametrize(
    ("row", "place", "name", "wrong"), WRONG, ids=[f"{row}-{name}-{i}" for i, (row, _, name, _) in enumerate(WRONG)]
)
def test_a_wrong_front_end_is_seen(
    row: str, place: Any, name: str, wrong: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    right = fetched(_RUNS[row](CPU))
    with monkeypatch.context() as patched:
        patched.setattr(place, name, wrong(getattr(place, name)))
        if (row, name) == ("kept", "half"):
            patched.setitem(movement.KEEPS, "half", torch.Tensor.half)
        if place is movement or name in ("squeeze", "asarray"):
            patched.setitem(movement.KEEPS, name, getattr(place, name))
        found = fetched(_RUNS[row](CPU))
    with pytest.raises(Disagreement):
        AT.same(found, right, "planted")


def _first_buffer() -> Callable[[Tensor], Any]:
    """Sort into the memory of the last result of the same shape."""
    made = dict[Any, Any]()

    def wrong(x: Tensor) -> Any:
        found = x.sort(-1)
        for mine, its in zip(made.setdefault(x.shape, found), found, strict=True):
            mine.copy_(its)
        return made[x.shape]

    return wrong


def _first_plan(of: Callable[[Tensor], Any], fits: Callable[[Any, Any], bool]) -> Callable[[Tensor], Tensor]:
    """Compute a softmax with what was prepared for an earlier call, where that seems to fit."""
    first = list[Any]()

    def wrong(x: Tensor) -> Tensor:
        first[:] = first if first and fits(first[0], of(x)) else [of(x), x.clone()]
        return torch.softmax(first[1] if first[1].shape == x.shape and first[1].numel() else x, -1)

    return wrong


def _truncated() -> Callable[[Tensor], Tensor]:
    """Lose rows beyond the fewest that there ever were."""
    least = [10**6]

    def wrong(x: Tensor) -> Tensor:
        least[0] = min(least[0], len(x))
        return torch.softmax(x, -1) * (torch.arange(len(x)) < least[0])[:, None]

    return wrong


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("sort", _first_buffer),
        ("softmax", partial(_first_plan, lambda x: x.untyped_storage().data_ptr(), lambda a, b: a == b)),
        ("softmax", _truncated),
    ],
    ids=["buffer", "storage", "rows"],
)
def test_a_call_that_depends_on_those_between_is_seen(
    name: str, wrong: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("add", "softmax", "sum", "sort")
    usual = state.computed  # on the CPU, what is fetched is no copy
    monkeypatch.setattr(state, "computed", lambda of, x: [each.clone() for each in usual(of, x)])
    state._interleaved(AT, 6, names)
    monkeypatch.setitem(state.CALLS, name, wrong())
    with pytest.raises(Disagreement):
        state._interleaved(AT, 6, names)
