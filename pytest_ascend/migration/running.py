"""Run one step of a model, recording every operator and every byte of memory."""

from __future__ import annotations

import contextlib
import copy
import logging
import re
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from pytest_ascend.migration.analysis import BACKWARD, OPTIMIZER, Memory
from pytest_ascend.migration.target import TargetModel, floating, rebatched
from pytest_ascend.migration.tracing import OperatorUse, Recorder, Values, size_bytes
from pytest_ascend.system.dispatching import tensors_in
from pytest_ascend.system.errors import UsageError
from pytest_ascend.system.programs import for_now

#: Optimizers by the option's names; their state is measured, not assumed.
OPTIMIZERS: Mapping[str, Callable[[list[nn.Parameter]], torch.optim.Optimizer]] = {
    "sgd": partial(torch.optim.SGD, lr=1e-3),
    "momentum": partial(torch.optim.SGD, lr=1e-3, momentum=0.9),
    "adam": partial(torch.optim.Adam, lr=1e-3),
    "adamw": partial(torch.optim.AdamW, lr=1e-3),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Traced:
    """The result of one mode of tracing: uses by (phase, operator), the memory, and the kind of stand-in tensors.

    ``reads_values``: the model reads values, which a run on the CPU provided.
    """

    mode: str
    uses: Mapping[tuple[str, str], OperatorUse]
    memory: Memory
    reads_values: bool = False
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """How a step is run: the optimizer's name or "none", autocast's dtype if any, training or inference only."""

    optimizer: str = "adamw"
    autocast: torch.dtype | None = None
    training: bool = True


def trace(target: TargetModel, step: Step, modes: tuple[str, ...]) -> Traced:
    """Trace one step in the first of ``modes`` that works, with values from the CPU if the model reads any.

    Raises UsageError if none does.
    """
    notes: list[str] = []
    for mode in modes:
        traced = _tried(target, step, mode)
        if isinstance(traced, Traced):
            return replace(traced, notes=tuple(notes[:1]))  # the other modes without values fail for the same reason
        values = Values()
        if mode != "cpu" and isinstance(_tried(target, step, "cpu", values), Traced):
            values.replays = True
            if isinstance(with_values := _tried(target, step, mode, values), Traced):
                note = f"{obstacle(traced)}: its values are those of a run on the CPU"
                return replace(with_values, reads_values=True, notes=(note,))
        notes.append(f"not traced with {mode} tensors: {obstacle(traced)}")
    hint = "see that model(*inputs) and its backward pass run on the CPU; --no-training leaves the latter out"
    # The last mode is the CPU, whose message users understand best.
    raise UsageError(f"{target.name} does not run: {notes[-1]}", hint=hint)


def fitting_batch(target: TargetModel, step: Step, capacity_bytes: int) -> int | None:
    """Return the largest batch that fits, by traces on meta tensors. Raises UsageError if there is none."""
    args, kwargs = target.mapped(as_meta)

    def peak(batch: int) -> int:
        its, named = rebatched(args, kwargs, batch)
        return trace(replace(target, args=its, kwargs=named), step, ("meta",)).memory.peak

    return largest_batch(peak, capacity_bytes, target.batch)


def _tried(target: TargetModel, step: Step, mode: str, values: Values | None = None) -> Traced | Exception:
    try:
        with quiet():
            if mode != "npu":
                return _run(target, step, mode, values)
            from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: PLC0415 - loads torch's symbolic shapes

            with FakeTensorMode(allow_non_fake_inputs=True):
                return _run(target, step, mode, values)
    except UsageError:
        raise
    except Exception as error:  # noqa: BLE001 - models raise anything without values, and may run with values
        return error


def obstacle(error: BaseException) -> str:
    """Return why a model could not be traced without values, and the user's line that needs them."""
    ours = Path(__file__).parents[1]  # as in the file names of frames: not resolved
    lines = traceback.extract_tb(error.__traceback__)
    own = [each for each in lines if "site-packages" not in each.filename and ours not in Path(each.filename).parents]
    text, place = str(error), (f" at {Path(own[-1].filename).name}:{own[-1].lineno}" if own else "")
    found = re.search(r"aten[.:]+(\w+)|torch\.(\w+)\(\)", text)
    name = next(filter(None, found.groups()), "") if found else ""
    by_values = ("nonzero", "bincount", "unique", "masked_select", "repeat_interleave")
    if type(error).__name__ == "DynamicOutputShapeException" or name in by_values:
        return f"{name}{place} gives a tensor whose size depends on the data (as routing to experts does)"
    if type(error).__name__ in {"DataDependentOutputException", "GuardOnDataDependentSymNode"} or name == "item":
        return f"the model reads a value{place} (.item(), .tolist(), if tensor: ...), and there are none"
    first_line = next(filter(None, map(str.strip, text.splitlines())), "")
    return f"{type(error).__name__}{place}: {first_line[:200]}"


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Suppress torch's logs and warnings while stand-ins are tried: the notes have the relevant ones."""
    with for_now(logging.disable, logging.CRITICAL, logging.root.manager.disable), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def as_meta(each: Any, device: torch.device | str = "meta") -> Any:
    """Return a tensor, or a copy of a module with parameters and buffers, with the same shapes but no values."""
    if isinstance(each, Tensor):
        return torch.empty_strided(each.size(), each.stride(), dtype=each.dtype, device=device)
    known: dict[int, Any] = {}
    for tensor in (*each.parameters(), *each.buffers()):
        stand_in = as_meta(tensor.detach(), device)
        is_parameter = isinstance(tensor, nn.Parameter)
        known[id(tensor)] = nn.Parameter(stand_in, requires_grad=tensor.requires_grad) if is_parameter else stand_in
    return copy.deepcopy(each, known)  # objects in known count as copied, and shared ones stay shared


def _run(target: TargetModel, step: Step, mode: str, values: Values | None) -> Traced:
    """Run an inference and a training step with stand-ins for a model's tensors, and return what was recorded."""
    device = torch.device("npu", 0) if mode == "npu" else torch.device(mode)
    model = copy.deepcopy(target.model) if mode == "cpu" else as_meta(target.model, device)
    model.train(step.training)
    args, kwargs = target.mapped(lambda each: each if mode == "cpu" else as_meta(each, device))
    inputs = tensors_in((args, kwargs))
    parameters, buffers = _bytes(model.parameters()), _bytes(model.buffers())
    before = parameters + buffers + _bytes(inputs)

    def forward() -> Any:
        if step.autocast is None:
            return model(*args, **kwargs)
        with torch.autocast("npu" if mode == "npu" else "cpu", dtype=step.autocast):
            return model(*args, **kwargs)

    inference, training = (Recorder(values, (*model.parameters(), *model.buffers(), *inputs)) for _ in range(2))
    with torch.no_grad(), inference:
        forward()
    with torch.set_grad_enabled(step.training), training:
        output = forward()
        kept = training.bytes
        if step.training:
            training.phase = BACKWARD
            # Start from the loss if the model returns one, else from every output, without adding operators.
            found = {name: each for name, each in floating(output).items() if each.requires_grad}
            loss = found.get("output.loss")
            if starts := [loss] if loss is not None else list(found.values()):
                torch.autograd.backward(starts, [torch.empty_like(each) for each in starts])
    peak = training.peak_bytes
    gradients = _bytes(each.grad for each in model.parameters() if each.grad is not None)
    state = 0
    trainable = [each for each in model.parameters() if each.requires_grad]
    if step.training and step.optimizer != "none" and trainable:
        optimizer = OPTIMIZERS[step.optimizer](trainable)
        training.phase = OPTIMIZER
        with training:
            optimizer.step()
        state = _bytes(tensors_in(list(optimizer.state.values())))
    memory = Memory(
        batch=target.batch,
        parameters=parameters,
        buffers=buffers,
        gradients=gradients,
        optimizer=state,
        activations=kept if step.training else 0,
        training_peak=(peak + before + state) if step.training else 0,
        inference_peak=inference.peak_bytes + before,
    )
    return Traced(mode=mode, uses=training.uses, memory=memory)


def _bytes(tensors: Iterable[Tensor]) -> int:
    return sum(map(size_bytes, tensors))


#: Steps of the search, and its precision as a share of the batch.
STEPS, EXACTNESS = 8, 0.02

#: No tensor has more rows.
LARGEST = 2**31


def largest_batch(peak: Callable[[int], int], capacity_bytes: int, start: int = 1) -> int | None:
    """Return the largest batch whose ``peak(batch)`` bytes fit; 0 if none does; None if memory never grows.

    A peak is the largest of several phases, each linear in the batch. It is therefore convex, and the line through two
    points leads to the crossing in a few steps.
    """
    points = {batch: peak(batch) for batch in (start, 2 * start)}
    steps = 0
    while True:
        fits = max((batch for batch, size in points.items() if size <= capacity_bytes), default=0)
        fails = min((batch for batch, size in points.items() if size > capacity_bytes), default=None)
        if steps == STEPS or (fails is not None and fails - fits <= max(1, EXACTNESS * fits)):
            return fits
        guess = _next(points, capacity_bytes, fits, fails) if fits != LARGEST else None
        if guess is None:
            return None
        points[guess] = peak(guess)
        steps += 1


def _next(points: dict[int, int], capacity_bytes: int, fits: int, fails: int | None) -> int | None:
    """Follow a line: through both ends of the unknown range, else through the two largest batches that fit.

    The first leads to a batch that fits, at a kink or at the crossing; a slightly larger batch shows which.
    """
    if between := fails is not None and fits in points:
        first, last = fits, fails
    else:
        first, last = sorted(points)[-2:] if fails is None else sorted(points)[:2]
    growth = (points[last] - points[first]) / (last - first)
    guess = first + int((capacity_bytes - points[first]) / growth) if growth > 0 else None
    if between:
        beside = fits + max(1, int(EXACTNESS * fits))
        return guess if guess is not None and beside < guess < last else beside
    if guess is None:
        # Memory does not grow from one batch to the next, because another phase is larger: jump far ahead.
        return None if fails is not None else min(last * 1024, LARGEST)
    return min(max(guess, fits + 1), LARGEST if fails is None else fails - 1)
