"""A module on a device against the CPU: outputs, gradients of inputs, gradients of parameters, each judged."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor, nn

from pytest_ascend.environment.chips import has_own_formulas
from pytest_ascend.precision.canaries import Canaries
from pytest_ascend.precision.capture import Autocast, casting, seed_gradient
from pytest_ascend.precision.choices import RANDOM, OperatorNames
from pytest_ascend.precision.compare import compare, joined
from pytest_ascend.precision.diagnosis import without_hf32
from pytest_ascend.precision.layers import DROPOUTS, LayerReport, check_module, layers, noted
from pytest_ascend.precision.nested import mapped, tensors_in
from pytest_ascend.precision.orders import SHORT
from pytest_ascend.precision.reference import COUNTS_OF_MANY, Source, initialise
from pytest_ascend.precision.stand_ins import active, cann_formulas
from pytest_ascend.records.verdict import Verdict
from pytest_ascend.system.errors import UsageError

#: Share of its limit from which an output that agrees is judged layer by layer, too. Correct devices use half: errors
#: between one and three times the noise are seen in the layer that makes them, not in what later ones make of it.
NARROW, NARROWLY = 0.55, "the whole output agrees, but narrowly: each layer was judged by itself"
P = ParamSpec("P")
Found = TypeVar("Found", Verdict, LayerReport)
#: What is said of a result that was judged by CANN's formulas.
BY_CANN = "judged by CANN's formula of GELU (tanh), a known deviation of torch_npu from PyTorch's"
#: The seed of generators before the model runs, on the device and on the CPU.
SEED = 0


def whole(
    model: nn.Module,
    *inputs: Any,
    device: str | torch.device = "cpu",
    autocast: torch.dtype | None = None,
    standard: str | None = None,
    locate: bool = True,
    canaries: Canaries | None = None,
    **kwargs: Any,
) -> Verdict:
    """Judge a module on ``device``: its outputs, and the gradients of its floating inputs and of its parameters.

    Gradients start from the output's ``loss`` if it has one, else from fixed random gradients of every output. The
    model is copied and not changed. Dropout modules are switched off in the copies and named in the verdict. A
    disagreement's message names the first wrong layer, unless ``locate`` is False. ``canaries`` are planted in results
    that agree. Raises :class:`UsageError` for anything but a module, and for a model that uses random numbers in
    another way.
    """
    check_module(model)
    with without_hf32(device) as note:
        both = ModuleResults.of(model, inputs, kwargs, torch.device(device), autocast)
    name = type(model).__name__
    parts = [leaf for each in both.judged(standard) for leaf in (each.leaves or (each,))]
    verdict = joined(parts, name)
    dropout = f"dropout was switched off in {_listed(both.dropped)}" if both.dropped else ""
    for each in filter(None, (dropout, note)):
        verdict = noted(verdict, each)
    if canaries and verdict.agrees:
        for part in both.actual:
            found, accepts = both.sampled(part, canaries.one_of, standard)
            canaries.plant(found, accepts, (inputs, kwargs))
    if not locate:
        return verdict
    if verdict.agrees:  # an output with 16 bits perhaps with more of its limit than correct devices use
        is_short = any(each.dtype in SHORT for each in tensors_in(both.actual["output"]))
        outputs = (each for each in parts if ".output" in each.path)
        if not (is_short and any((each.metrics.get("limit_used") or 0) > NARROW for each in outputs)):
            return verdict
    report = layers(both.model, *inputs, device=device, autocast=autocast, standard=standard, **kwargs)
    if verdict.agrees:
        first = report.first
        wrong = [each for each in (first.forward, first.backward) if each and not each.agrees] if first else []
        if not wrong:
            return verdict
        verdict = noted(joined([*parts, *(wrong[0].leaves or wrong)], name), NARROWLY)
    layer = next(iter(report.explain())) if report.first else ""
    where = layer or "each layer agrees by itself: what is wrong lies between them, or adds up over them"
    lines: Iterator[str] = filter(None, [where, report.within, verdict.message])
    return replace(verdict, headline=f"{where}; {verdict.headline}", message="\n".join(lines))


@dataclass(frozen=True, slots=True)
class ModuleResults:
    """The results of a module on a device and on the CPU, by part: "output", "grad_input" and "grad"."""

    model: nn.Module
    inputs: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    autocast: Autocast
    expected: dict[str, Any]
    dropped: list[str]
    actual: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(
        cls, model: nn.Module, inputs: Any, kwargs: Mapping[str, Any], device: torch.device, autocast: Autocast
    ) -> ModuleResults:
        """Compute both. Raises :class:`UsageError` for a model that uses random numbers outside dropout modules."""
        initialise(model, inputs, kwargs)
        still, dropped = copy.deepcopy(model), []
        for name, module in still.named_modules():
            if isinstance(module, DROPOUTS) and module.training and module.p:
                module.p = 0.0
                dropped.append(name or "(model)")
        source = Source(still, tuple(inputs), dict(kwargs), autocast, call=outputs_and_gradients, counts=COUNTS_OF_MANY)
        with OperatorNames() as seen:
            expected = source.exact()
        if (drawn := seen.names & RANDOM) and source.depends_on_seed(expected):
            where, drawn_by = _drawing(still, inputs, kwargs), ", ".join(sorted(drawn))
            raise UsageError(
                f"{type(model).__name__} draws random numbers ({drawn_by}) in {where}, others on each device",
                hint="put the model into evaluation mode, with model.eval(), or set that dropout to 0",
            )
        return cls(still, inputs, kwargs, autocast, expected, dropped).on(device)

    def on(self, device: torch.device) -> ModuleResults:
        """Return these with new results of a device."""
        args, named = (
            mapped(each, lambda tensor: tensor.detach().to(device, copy=True)) for each in (self.inputs, self.kwargs)
        )
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(SEED)
            model = copy.deepcopy(self.model).to(device)
            actual = outputs_and_gradients(model, args, named, casting(device.type, self.autocast))
        return replace(self, actual=actual)

    def judged(self, standard: str | None = None) -> Iterator[Verdict]:
        """Yield the verdict of each part."""
        for part in self.actual:
            name = f"{type(self.model).__name__}.{part}"
            yield compare(self.actual[part], self.expected[part], name=name, standard=standard)

    def sampled(
        self, part: str, one_of: Callable[[Sequence[str]], str], standard: str | None
    ) -> tuple[Any, Callable[[Any], bool]]:
        """Return a part, of gradients one only, and a function that says whether another in its place agrees."""
        found, wanted = self.actual[part], self.expected[part]
        if part != "output" and found:
            name = one_of(sorted(found))
            found, wanted = found[name], wanted[name]
        return found, lambda wrong: compare(wrong, wanted, standard=standard).agrees


def outputs_and_gradients(
    model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], within: AbstractContextManager[Any]
) -> dict[str, Any]:
    """Return the output of a model and the gradients of its inputs and parameters, by name, on the model's device."""
    inputs: dict[str, Tensor] = {}

    def leaf(tensor: Tensor) -> Tensor:
        if not tensor.is_floating_point():
            return tensor
        inputs[str(len(inputs))] = own = tensor.detach().clone().requires_grad_()
        return own.clone()  # in-place changes by a model must not reach the leaves

    args, kwargs = mapped((args, dict(kwargs)), leaf)
    model.zero_grad(set_to_none=True)
    with within:
        output = model(*args, **kwargs)
    loss = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
    starts = [each for each in tensors_in(output) if each.requires_grad]
    starts = [loss] if isinstance(loss, Tensor) and loss.requires_grad else starts
    if starts:
        seeds = [seed_gradient(each) if each.dim() else torch.ones_like(each) for each in starts]
        torch.autograd.backward(starts, seeds)
    return {
        "output": mapped(output, Tensor.detach),
        "grad_input": {name: each.grad for name, each in inputs.items() if each.grad is not None},
        "grad": {name: each.grad for name, each in model.named_parameters() if each.grad is not None},
    }


def _drawing(model: nn.Module, inputs: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """Return the names of the innermost modules that use random numbers."""
    copied = copy.deepcopy(model).cpu()
    found: list[str] = []
    stack: list[tuple[str, OperatorNames]] = []

    def enter(name: str, _module: nn.Module, _args: Any) -> None:
        stack.append((name, OperatorNames()))
        stack[-1][1].__enter__()  # type: ignore[no-untyped-call]

    def leave(_module: nn.Module, _args: Any, _output: Any) -> None:
        name, seen = stack.pop()
        seen.__exit__(None, None, None)  # type: ignore[no-untyped-call]
        if seen.names & RANDOM and not any(each.startswith(name) for each in found):
            found.append(name)

    for name, module in copied.named_modules():
        module.register_forward_pre_hook(functools.partial(enter, name))
        module.register_forward_hook(leave)
    args, named = (mapped(each, lambda tensor: tensor.detach().cpu()) for each in (inputs, dict(kwargs)))
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        copied(*args, **named)
    return _listed([each or "the model itself" for each in found]) or "its backward pass"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")


def by_cann_too(function: Callable[P, Found]) -> Callable[P, Found]:
    """Return a form of the judge for scripts: what disagrees on an NPU is judged again by CANN's formulas, and says so.

    ``pytest --ascend`` does this for whole tests, and lists those as known.
    """

    @functools.wraps(function)
    def judged(*args: P.args, **kwargs: P.kwargs) -> Found:
        found = function(*args, **kwargs)
        if found.agrees or active() or not str(kwargs.get("device", "")).startswith("npu"):
            return found
        if not has_own_formulas(str(torch.npu.get_device_name())):  # type: ignore[attr-defined]
            return found
        with cann_formulas() as how:
            again = function(*args, **kwargs)
        return noted(again, BY_CANN) if how.used else found

    return judged
