"""Where the memory went when it ran out: by module, by tensor, and the batch size that would fit."""

from __future__ import annotations

import contextlib
import functools
import gc
import re
import traceback
from collections import Counter
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from pytest_ascend.migration.running import Step, as_meta, fitting_batch, quiet
from pytest_ascend.migration.target import TargetModel
from pytest_ascend.migration.tracing import size_bytes
from pytest_ascend.system.figures import quantity
from pytest_ascend.system.text import parse_size

_size = functools.partial(quantity, "_bytes")
#: Maximum number of modules and of tensors listed.
NAMED = 5

_CAPACITY = re.compile(r"([\d.]+ [KMG]iB)\s*(?:;\s*)?total capacity|total capacity (?:of )?([\d.]+ [KMG]iB)")


def findings(error: BaseException, device_type: str) -> tuple[str, ...]:
    """Return lines on the device's memory at the time of an error, from what its traceback still holds."""
    frames = [frame.f_locals for frame, _ in traceback.walk_tb(error.__traceback__)]
    call = _outermost_call(frames)
    if call is None:
        return tuple(_largest(None, device_type))
    names = {id(each): name for name, each in call.model.named_modules() if name}
    # The innermost module of the model that was being called
    inner = next((each for each in reversed(frames) if id(each.get("self")) in names), None)
    sizes: Counter[str] = Counter()
    for name, parameter in call.model.named_parameters():
        for each in (parameter, parameter.grad):
            if each is not None and each.device.type == device_type:
                sizes[_part(name.rpartition(".")[0])] += size_bytes(each)
    return (
        *([f"it ran: {names[id(inner['self'])]} ({type(inner['self']).__name__})"] if inner else []),
        *_shares("parameters and gradients", sizes, call),
        *_activations(call),
        *_largest(call, device_type),
        *_fitting(call, str(error)),
    )


def _outermost_call(frames: list[dict[str, Any]]) -> TargetModel | None:
    """Return the outermost module being called, with its arguments; without one, any module in a frame."""
    for local in frames:
        module = local.get("self")
        if isinstance(module, nn.Module) and isinstance(local.get("args"), tuple) and "kwargs" in local:
            kwargs = dict(local["kwargs"] or {})
            return TargetModel(name=type(module).__name__, model=module, args=local["args"], kwargs=kwargs)
    found = (each for local in frames for each in local.values() if isinstance(each, nn.Module))
    module = next(found, None)
    return None if module is None else TargetModel(name=type(module).__name__, model=module)


def _activations(call: TargetModel) -> Iterator[str]:
    """Yield what each module saves for the backward pass, determined by a forward pass on meta tensors."""
    if not torch.is_grad_enabled() or not (call.args or call.kwargs):
        return
    sizes: Counter[str] = Counter()
    running = [""]

    def keep(saved: Tensor) -> Tensor:
        if saved.untyped_storage()._cdata not in known:  # noqa: SLF001 - meta tensors have no address
            known[saved.untyped_storage()._cdata] = saved  # noqa: SLF001 - kept, so that no other takes its place
            sizes[running[-1]] += size_bytes(saved)
        return saved

    try:
        model, (args, kwargs) = as_meta(call.model), call.mapped(as_meta)
        known = {each.untyped_storage()._cdata: each for each in (*model.parameters(), *model.buffers())}  # noqa: SLF001
        for name, each in model.named_modules():
            each.register_forward_pre_hook(lambda *_, name=name: running.append(_part(name)))
            each.register_forward_hook(lambda *_: running.pop() and None)
        with quiet(), torch.autograd.graph.saved_tensors_hooks(keep, lambda saved: saved):
            model(*args, **kwargs)
    except Exception:  # noqa: BLE001 - a model that reads values cannot run without them
        return
    yield from _shares("kept for the backward pass,", sizes, call)


def _part(module: str) -> str:
    """Return the part of a model to which a module belongs: its name up to the second dot."""
    return ".".join(module.split(".")[:2])


def _shares(says: str, sizes: Counter[str], call: TargetModel) -> Iterator[str]:
    shown = ", ".join(f"{name or call.name} {_size(size)}" for name, size in sizes.most_common(NAMED) if size)
    if shown:
        yield f"{says} by module: {shown}"


def _largest(call: TargetModel | None, device_type: str) -> Iterator[str]:
    """Yield a line on the largest tensors; of several views of one storage, the parameter or the largest counts."""
    own = (*call.model.named_parameters(), *call.model.named_buffers()) if call else ()
    names, known = {id(each): name for name, each in own}, dict[int, Tensor]()
    for each in gc.get_objects():
        # isinstance would ask proxies of other libraries for their class and thereby load them.
        if issubclass(type(each), Tensor) and each.device.type == device_type:
            # Sparse, fake and other wrapped tensors have no storage; the tensors they wrap do.
            with contextlib.suppress(Exception):
                key = each.untyped_storage().data_ptr()
                known[key] = max(known.get(key, each), each, key=lambda one: (id(one) in names, size_bytes(one)))
    largest = sorted(known.values(), key=size_bytes, reverse=True)[:NAMED]
    if largest:
        total = _size(sum(map(size_bytes, known.values())))
        forms = [f"{str(each.dtype)[6:]}{list(each.shape)} {_size(size_bytes(each))}" for each in largest]
        shown = ", ".join(
            f"{names.get(id(each), 'a tensor')} {form}" for each, form in zip(largest, forms, strict=True)
        )
        yield f"{len(known)} tensors on the device hold {total}; the largest: {shown}"


def _fitting(call: TargetModel, message: str) -> Iterator[str]:
    """Estimate the batch size that would fit by tracing the call on meta tensors, which allocates nothing."""
    match = _CAPACITY.search(message)
    if not (call.args or call.kwargs) or match is None:
        return
    capacity = parse_size((match[1] or match[2]).replace(" ", ""))
    training = torch.is_grad_enabled() and any(each.requires_grad for each in call.model.parameters())
    step = Step(optimizer="none", training=training)
    try:
        fits = fitting_batch(call, step, capacity)
    except Exception:  # noqa: BLE001 - it reads values, so it cannot be traced without memory
        return
    if fits is not None:
        yield f"a batch of {call.batch} was given; by a trace of {call.name} up to {fits} should fit {_size(capacity)}"
