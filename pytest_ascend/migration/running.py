"""Run one step of a model, recording every operator and every byte of memory."""

from __future__ import annotations

import contextlib
import copy
import logging
import re
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from pytest_ascend.migration.analysis import BACKWARD, OPTIMIZER, Memory
from pytest_ascend.migration.target import TargetModel, floating, rebatched
from pytest_ascend.migration.tracing import OperatorUse, Recorder, Values, size_bytes, tensors_in
from pytest_ascend.system.errors import UsageError

#: Optimizers by the option's names; their state is measured, not assumed.
OPTIMIZERS: Mapping[str, Callable[[Iterator[nn.Parameter]], torch.optim.Optimizer]] = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=1e-3),
    "momentum": lambda parameters: torch.optim.SGD(parameters, lr=1e-3, momentum=0.9),
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=1e-3),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=1e-3),
}


#: Operators whose output size depends on the values of their input.
BY_VALUES = ("nonzero", "bincount", "unique", "masked_select", "repeat_interleave")


@dataclass(frozen=True, kw_only=True, slots=True)
class Traced:
    """The result of one way of tracing: uses by (phase, operator), the memory, and the kind of stand-in tensors.

    ``reads_values``: the model reads values, which a run on the CPU provided.
    """

    way: str
    uses: Mapping[tuple[str, str], OperatorUse]
    memory: Memory
    reads_values: bool = False
    notes: tuple[str, ...] = field(default=())


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """How a step is run: the optimizer's name or "none", autocast's dtype if any, training or inference only."""

    optimizer: str = "adamw"
    autocast: torch.dtype | None = None
    training: bool = True


def trace(target: TargetModel, step: Step, ways: tuple[str, ...]) -> Traced:
    """Trace one step in the first of ``ways`` that works, with values from the CPU if the model reads any.

    Raises UsageError if none does.
    """
    notes: list[str] = []
    for way in ways:
        traced = _tried(target, step, way)
        if isinstance(traced, Traced):
            return replace(traced, notes=tuple(notes[:1]))  # the other ways without values fail for the same reason
        with_values = _with_values(target, step, way) if way != "cpu" else traced
        if isinstance(with_values, Traced):
            note = f"{obstacle(traced)}: its values are those of a run on the CPU"
            return replace(with_values, reads_values=True, notes=(note,))
        notes.append(f"not traced with {way} tensors: {obstacle(traced)}")
    hint = "see that model(*inputs) and its backward pass run on the CPU; --no-training leaves the latter out"
    raise UsageError(f"{target.name} does not run: " + "; ".join(notes), hint=hint)


def fitting_batch(target: TargetModel, step: Step, capacity_bytes: int) -> int | None:
    """Return the largest batch that fits, by traces on meta tensors. Raises UsageError if there is none."""
    args, kwargs = meta_arguments(target)

    def peak(batch: int) -> int:
        again = rebatched(args, kwargs, batch)
        of_batch = TargetModel(name=target.name, model=target.model, args=again[0], kwargs=again[1])
        return trace(of_batch, step, ("meta",)).memory.peak

    return largest_batch(peak, capacity_bytes, target.batch)


def _with_values(target: TargetModel, step: Step, way: str) -> Traced | Exception:
    values = Values()
    failed = _tried(target, step, "cpu", values)
    if isinstance(failed, Exception):
        return failed
    values.replays = True
    return _tried(target, step, way, values)


def _tried(target: TargetModel, step: Step, way: str, values: Values | None = None) -> Traced | Exception:
    try:
        with quiet(), _standing_in(way) as convert:
            return _Run(target, step, way, convert, values).traced()
    except UsageError:
        raise
    except Exception as error:  # noqa: BLE001 - models raise anything without values, and may run with values
        return error


def obstacle(error: BaseException) -> str:
    """Return why a model could not be traced without values, and the user's line that needs them."""
    ours = Path(__file__).resolve().parents[1]
    lines = traceback.extract_tb(error.__traceback__)
    own = [each for each in lines if "site-packages" not in each.filename and ours not in Path(each.filename).parents]
    text, place = str(error), (f" at {Path(own[-1].filename).name}:{own[-1].lineno}" if own else "")
    found = re.search(r"aten[.:]+(\w+)|torch\.(\w+)\(\)", text)
    name = next(filter(None, found.groups()), "") if found else ""
    if type(error).__name__ == "DynamicOutputShapeException" or name in BY_VALUES:
        return f"{name}{place} gives a tensor whose size depends on the data (as routing to experts does)"
    if type(error).__name__ in {"DataDependentOutputException", "GuardOnDataDependentSymNode"} or name == "item":
        return f"the model reads a value{place} (.item(), .tolist(), if tensor: ...), and there are none"
    return f"{type(error).__name__}{place}: {_first_line(error)}"


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Suppress torch's logs and warnings while stand-ins are tried: the notes have what matters."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


@contextlib.contextmanager
def _standing_in(way: str) -> Iterator[Callable[[Any], Any]]:
    """Yield a function that turns modules and tensors into stand-ins."""
    if way != "npu":
        yield lambda each: as_meta(each) if way == "meta" else each
        return
    from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: PLC0415 - loads torch's symbolic shapes

    with FakeTensorMode(allow_non_fake_inputs=True):
        yield lambda each: _empty(each, torch.device("npu", 0))


def meta_arguments(target: TargetModel) -> Any:
    """Return the positional and the named arguments of a call, with tensors without values."""
    return tree_map(
        lambda each: as_meta(each) if isinstance(each, Tensor) else each, (target.args, dict(target.kwargs))
    )


def as_meta(each: Any) -> Any:
    """Return a tensor or a module of the same shapes without values."""
    return _empty(each, torch.device("meta"))


def _empty(each: Any, device: torch.device) -> Any:
    """Return a tensor, or a copy of a module with parameters and buffers, of the same shapes without values."""
    if isinstance(each, Tensor):
        return torch.empty_strided(each.size(), each.stride(), dtype=each.dtype, device=device)
    known: dict[int, Any] = {}
    for tensor in (*each.parameters(), *each.buffers()):
        stand_in = _empty(tensor.detach(), device)
        is_parameter = isinstance(tensor, nn.Parameter)
        known[id(tensor)] = nn.Parameter(stand_in, requires_grad=tensor.requires_grad) if is_parameter else stand_in
    return copy.deepcopy(each, known)  # what is in known counts as copied, and what is shared stays shared


class _Run:
    """One model with stand-ins for its tensors: an inference, then a training step."""

    def __init__(
        self, target: TargetModel, step: Step, way: str, convert: Callable[[Any], Any], values: Values | None
    ) -> None:
        self.step, self.way, self.batch, self.values = step, way, target.batch, values
        self.model = convert(copy.deepcopy(target.model) if way == "cpu" else target.model)
        self.model.train(step.training)
        self.args, self.kwargs = tree_map(
            lambda each: convert(each) if isinstance(each, Tensor) else each, (target.args, dict(target.kwargs))
        )
        self.inputs = list(tensors_in((self.args, self.kwargs)))
        self.parameters = _bytes(self.model.parameters())
        self.buffers = _bytes(self.model.buffers())
        self.before = self.parameters + self.buffers + _bytes(self.inputs)

    def traced(self) -> Traced:
        """Run both, and return what was recorded."""
        inference = self._inference_peak()
        recorder = self._recorder()
        optimizer = _optimizer(self.model, self.step)
        with torch.set_grad_enabled(self.step.training), recorder:
            output = self._forward()
            kept = recorder.live.bytes
            if self.step.training:
                recorder.phase = BACKWARD
                # Start from the loss if the model returns one, else from every output, adding no operators.
                found = {name: each for name, each in floating(output).items() if each.requires_grad}
                loss = found.get("output.loss")
                starts = [loss] if loss is not None else list(found.values())
                if starts:
                    torch.autograd.backward(starts, [torch.empty_like(each) for each in starts])
        peak = recorder.live.peak_bytes
        gradients = _bytes(each.grad for each in self.model.parameters() if each.grad is not None)
        state = _stepped(recorder, optimizer)
        memory = Memory(
            batch=self.batch,
            parameters=self.parameters,
            buffers=self.buffers,
            gradients=gradients,
            optimizer=state,
            activations=kept if self.step.training else 0,
            training_peak=(peak + self.before + state) if self.step.training else 0,
            inference_peak=inference,
        )
        return Traced(way=self.way, uses=recorder.uses, memory=memory)

    def _inference_peak(self) -> int:
        recorder = self._recorder()
        with torch.no_grad(), recorder:
            self._forward()
        return recorder.live.peak_bytes + self.before

    def _recorder(self) -> Recorder:
        recorder = Recorder(self.values)
        recorder.live.know((*self.model.parameters(), *self.model.buffers(), *self.inputs))
        return recorder

    def _forward(self) -> Any:
        with _casting(self.step, self.way):
            return self.model(*self.args, **self.kwargs)


def _optimizer(model: nn.Module, step: Step) -> torch.optim.Optimizer | None:
    trainable = [each for each in model.parameters() if each.requires_grad]
    if not step.training or step.optimizer == "none" or not trainable:
        return None
    return OPTIMIZERS[step.optimizer](iter(trainable))


def _stepped(recorder: Recorder, optimizer: torch.optim.Optimizer | None) -> int:
    """Run the optimizer's step, and return the bytes of its state."""
    if optimizer is None:
        return 0
    recorder.phase = OPTIMIZER
    with recorder:
        optimizer.step()
    return _bytes(tensors_in(list(optimizer.state.values())))


def _casting(step: Step, way: str) -> Any:
    device = "npu" if way == "npu" else "cpu"
    if step.autocast is None:
        return contextlib.nullcontext()
    return torch.autocast(device, dtype=step.autocast)


def _bytes(tensors: Iterable[Tensor]) -> int:
    return sum(map(size_bytes, tensors))


def _first_line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), "")[:200]


#: Steps of the search, and its precision as a share of the batch.
STEPS, EXACTNESS = 8, 0.02

#: If memory does not grow from one batch to the next, something else is larger: jump far ahead.
FAR = 1024

#: No tensor has more rows.
LARGEST = 2**31


def largest_batch(peak: Callable[[int], int], capacity_bytes: int, start: int = 1) -> int | None:
    """Return the largest batch whose ``peak(batch)`` bytes fit; 0 if none does; None if memory never grows.

    A peak is the largest of several phases, each linear in the batch. It is convex, so that the line through two
    points leads to the crossing in a few steps.
    """
    points = {batch: peak(batch) for batch in (start, 2 * start)}
    for _ in range(STEPS):
        fits, fails = _around(points, capacity_bytes)
        if fails is not None and fails - fits <= max(1, EXACTNESS * fits):
            break
        if fits == LARGEST:
            return None
        guess = _next(points, capacity_bytes, fits, fails)
        if guess is None:
            return None
        points[guess] = peak(guess)
    return _around(points, capacity_bytes)[0]


def _around(points: dict[int, int], capacity_bytes: int) -> tuple[int, int | None]:
    fits = max((batch for batch, size in points.items() if size <= capacity_bytes), default=0)
    return fits, min((batch for batch, size in points.items() if size > capacity_bytes), default=None)


def _next(points: dict[int, int], capacity_bytes: int, fits: int, fails: int | None) -> int | None:
    """Follow a line: through both ends of the unknown range, else through the two largest batches that fit.

    The first leads to a batch that fits, at a kink or at the crossing; going a little further tells which.
    """
    beside = fits + max(1, int(EXACTNESS * fits))
    if fails is not None and fits in points:
        chord = _crossing(points, fits, fails, capacity_bytes)
        return chord if chord is not None and beside < chord < fails else beside
    first, last = sorted(points)[-2:] if fails is None else sorted(points)[:2]
    guess = _crossing(points, first, last, capacity_bytes)
    if guess is None:
        return None if fails is not None else min(last * FAR, LARGEST)
    return min(max(guess, fits + 1), LARGEST if fails is None else fails - 1)


def _crossing(points: dict[int, int], first: int, last: int, capacity_bytes: int) -> int | None:
    growth = (points[last] - points[first]) / (last - first)
    return first + int((capacity_bytes - points[first]) / growth) if growth > 0 else None
