"""Which layer of a model is wrong: every module is judged on the device's own inputs to it.

Each module is computed again on the CPU from the device's inputs, in float64 and in the same dtype. Errors of earlier
layers are therefore no part of a layer's verdict: it is wrong only if it adds an error of its own.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from types import CellType, FunctionType
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from pytest_ascend.precision.canaries import Canaries
from pytest_ascend.precision.capture import Call, Part, call_again, run, widened
from pytest_ascend.precision.compare import compare
from pytest_ascend.precision.diagnosis import without_hf32
from pytest_ascend.precision.layer_report import Layer, LayerReport, relative_error
from pytest_ascend.precision.nested import mapped, tensors_in
from pytest_ascend.precision.operators import first_wrong_operator
from pytest_ascend.precision.reference import COUNTS_OF_MANY, Source, initialise
from pytest_ascend.precision.stand_ins import stand_ins
from pytest_ascend.system.errors import UsageError

Gradients: TypeAlias = dict[str, Tensor]

#: Modules whose results are random while they train.
DROPOUTS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout)
#: A cell of a closure without a value.
_EMPTY = CellType()
#: Why gradients of a module are not judged.
LEAKED = "gradients not judged: a tensor leaves it by another way than its output"


def layers(
    model: nn.Module,
    *inputs: Any,
    device: str | torch.device = "cpu",
    autocast: torch.dtype | None = None,
    backward: bool = True,
    standard: str | None = None,
    canaries: Canaries | None = None,
    **kwargs: Any,
) -> LayerReport:
    """Run ``model`` on ``device`` and judge every module's output and gradients; ``kwargs`` go to the model.

    The model is copied and not changed. Gradients start from fixed random numbers. Modules with active dropout are not
    judged by themselves: switch the model to evaluation mode. ``canaries`` are planted in one innermost module. Raises
    :class:`UsageError` for a model without modules.
    """
    check_module(model)
    if autocast is not None and not isinstance(autocast, torch.dtype):
        raise UsageError(f"autocast is {autocast!r:.80}", hint="give a dtype, such as torch.bfloat16, or leave it out")
    initialise(model, inputs, kwargs)
    on_device = copy.deepcopy(model).to(device)
    args, named = mapped((inputs, kwargs), lambda x: x.detach().to(device).clone().requires_grad_(x.requires_grad))
    with without_hf32(device) as note:
        _, calls = run(on_device, args, named, autocast, backward)
    reference: list[Call] = []  # of the model in float64 on the CPU
    with contextlib.suppress(Exception), stand_ins([], wide=True):  # written for one dtype; its errors are only shown
        inputs64, kwargs64 = mapped((inputs, kwargs), lambda tensor: widened(tensor.detach().cpu()))
        reference = run(copy.deepcopy(model).cpu().double(), inputs64, kwargs64, None, False)[1]
    again = ModuleCopies(dict(copy.deepcopy(model).cpu().named_modules()), autocast, standard)
    truth = {(call.name, call.number): call for call in reference}
    innermost = [call for call in calls if not again.has_parts(call)]
    blind = canaries.one_of(innermost) if canaries and innermost else None
    judged = tuple(
        again.judge(call, truth.get((call.name, call.number)), canaries if call is blind else None) for call in calls
    )
    report = LayerReport(layers=judged, note=note)
    if not any(each.forward for each in judged) and (why := next((each.note for each in judged), "")):
        raise UsageError(
            f"no layer of {type(model).__name__} can be judged: {why}", hint="judge its parts by themselves"
        )
    if report.first is None:
        return report
    wrong = next(call for call, layer in zip(calls, report.layers, strict=True) if layer is report.first)
    try:
        with without_hf32(device):
            name, count = first_wrong_operator(dict(on_device.named_modules()), wrong, device, autocast)
    except RuntimeError as error:
        within = f"its operators cannot be run again by themselves: {str(error).splitlines()[0]}"
    else:
        within = f"within it, the first operator that is wrong by itself: {name}"
        if not name:
            within = f"run again, each of its {count} operators agrees by itself"
    return replace(report, within=within)


@dataclass(frozen=True, slots=True)
class ModuleCopies:
    """The modules of a model by name, on the CPU, to compute single calls again."""

    modules: Mapping[str, nn.Module]
    autocast: torch.dtype | None
    standard: str | None

    def converted(self, call: Call, module: nn.Module, dtype: torch.dtype | None, value: Any) -> Any:
        """Return a dtype or module among the arguments of a call as it is where ``module`` computes in ``dtype``."""
        before = _dtype_of(self.modules[call.name], (call.args, call.kwargs))
        if not isinstance(value, Part):
            return dtype if value is before else value
        path = value.removeprefix(f"{call.name}." if call.name else "")
        if path != value or not call.name:
            return module.get_submodule(path)
        other = copy.deepcopy(self.modules[value])
        return other if dtype is before else other.to(dtype)

    def source(self, call: Call) -> Source:
        """Return what computes a call again."""
        compute, module = partial(_computed, self, call), self.modules[call.name]
        return Source(module, call.args, call.kwargs, self.autocast, call=compute, counts=COUNTS_OF_MANY)

    def has_parts(self, call: Call) -> bool:
        """Whether the module of a call has modules within; an empty container among them is false by itself."""
        return any(True for _ in self.modules[call.name].children())

    def judge(self, call: Call, truth: Call | None = None, canaries: Canaries | None = None) -> Layer:
        """Judge one call by the CPU's results for the device's inputs, and its ``canaries`` if it agrees."""
        layer = Layer(
            label=call.label,
            kind=call.kind,
            input_error=relative_error((call.args, call.kwargs), truth and (truth.args, truth.kwargs)),
            output_error=relative_error(call.output, truth and truth.output),
        )
        module = self.modules[call.name]
        if any(isinstance(each, DROPOUTS) and each.training and each.p for each in module.modules()):
            return replace(layer, note="active dropout: not judged")
        source = self.source(call)
        try:
            output, gradients = exact = source.exact()
        except Exception as error:  # noqa: BLE001 - a module may depend on anything outside of it
            said = f"{type(error).__name__}: {error}".splitlines()[0][:160]
            return replace(layer, note=f"not judged: its call cannot be repeated on the CPU ({said})")
        forward_of = partial(compare, expected=output, name=call.label, standard=self.standard)
        found = {name: each for name, each in gradients_of(call).items() if name in gradients}
        backward_of = partial(
            compare,
            expected={name: gradients[name] for name in found},
            name=f"{call.label} backward",
            standard=self.standard,
        )
        # Figures that were computed when they are read would keep all reference runs of all layers until then.
        forward, backward = forward_of(call.output).in_full(), backward_of(found).in_full()
        if not (forward.agrees and backward.agrees) and source.depends_on_seed(exact):
            return replace(layer, note="draws random numbers, others on each device: not judged")
        note = "has parts" if self.has_parts(call) else ""
        if any(leak.spot is None and leak.gradient is not None for leak in call.leaks):
            note, found = f"{note}; {LEAKED}".lstrip("; "), {}
        if canaries and forward.agrees:
            canaries.plant(call.output, lambda wrong: forward_of(wrong).agrees, (call.args, call.kwargs))
        if canaries and found and backward.agrees:
            canaries.plant(found, lambda wrong: backward_of(wrong).agrees)
        return replace(layer, forward=forward, backward=backward if found else None, note=note)


def _dtype_of(module: nn.Module, args: Any) -> torch.dtype | None:
    """Return the dtype of the first floating tensor among arguments and parameters."""
    return next((each.dtype for each in [*tensors_in(args), *module.parameters()] if each.is_floating_point()), None)


def _computed(copies: ModuleCopies, call: Call, module: nn.Module, *values: Any) -> tuple[Any, Gradients]:
    """Return the output of a call, and the gradients of its inputs and parameters, in the dtype of the arguments.

    ``values`` are the arguments, the keywords, and the context for the forward pass.
    """
    within: AbstractContextManager[Any] = values[2]
    others = partial(copies.converted, call, module, _dtype_of(module, values[:2]))
    args, kwargs = mapped(values[:2], Tensor.detach, others=others)
    inputs = tensors_in((args, kwargs))
    wanted = {f"grad_input[{place}]": inputs[place] for place, each in enumerate(call.grad_inputs) if each is not None}
    for each in wanted.values():
        each.requires_grad_()
    parameters = dict(module.named_parameters())
    wanted |= {f"grad {name}": parameters[name] for name in call.grad_parameters if name in parameters}
    args, kwargs = mapped((args, kwargs), torch.clone)
    with torch.set_grad_enabled(bool(wanted)):
        output, given = call_again(module, call, args, kwargs, within)
    gradients: Gradients = {}
    if wanted and given:
        results, seeds = zip(*given, strict=True)
        torch.autograd.backward(results, seeds)  # not grad(): reentrant checkpoints refuse it
        gradients = {name: each.grad for name, each in wanted.items() if each.grad is not None}
    return mapped(output, torch.Tensor.detach), gradients


def gradients_of(call: Call) -> Gradients:
    """Return the gradients that a call has, of inputs and of parameters, by name."""
    inputs = {f"grad_input[{place}]": each for place, each in enumerate(call.grad_inputs) if each is not None}
    return inputs | {f"grad {name}": each for name, each in call.grad_parameters.items()}


def check_module(model: object) -> None:
    """Raise :class:`UsageError` for anything but a module, and for one whose copies would call the original."""
    if not isinstance(model, nn.Module):
        raise UsageError(f"{type(model).__name__} is not a torch.nn.Module", hint="give a module and its inputs")
    for name, module in model.named_modules():
        if _keeps_tensors(module.__dict__.get("forward")):
            raise UsageError(
                f"the forward of {name or 'the model'} was replaced by a function that keeps a module or tensor: "
                "copies of the model, which are judged, would still call the original",
                hint="define that forward in a subclass, or set forward = types.MethodType(function, module)",
            )


def _keeps_tensors(function: Any, depth: int = 0) -> bool:
    """Whether a plain function has a module or tensor in its closure or defaults, which deepcopy() does not copy.

    Of global names in it only those of modules count: constants may be tensors.
    """
    if not isinstance(function, FunctionType):
        return depth > 0 and isinstance(getattr(function, "__self__", function), nn.Module | Tensor)
    cells = [each.cell_contents for each in function.__closure__ or () if each != _EMPTY]
    named = [function.__globals__.get(name) for name in function.__code__.co_names]
    if any(isinstance(getattr(each, "__self__", each), nn.Module) for each in named):
        return True
    return depth < 8 and any(_keeps_tensors(each, depth + 1) for each in (*cells, *(function.__defaults__ or ())))
