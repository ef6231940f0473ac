"""Which layer of a model is wrong: every module is judged with the inputs it had on the device.

Each module is recomputed on the CPU from the device's inputs, in float64 and in the same dtype. Errors of earlier
layers therefore do not affect a layer's verdict: it is wrong only if it adds an error of its own.
"""

from __future__ import annotations

import contextlib
import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from html import escape
from types import CellType, FunctionType
from typing import Any, TypeAlias, TypeVar

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from pytest_ascend.precision.canaries import Canaries
from pytest_ascend.precision.capture import Autocast, Call, Part, call_again, casting, kept, run
from pytest_ascend.precision.choices import RANDOM
from pytest_ascend.precision.compare import compare
from pytest_ascend.precision.diagnosis import without_hf32
from pytest_ascend.precision.kernel_fallbacks import kernel_fallbacks
from pytest_ascend.precision.nested import holds_padding, mapped, tensors_in, widened
from pytest_ascend.precision.reference import COUNTS_OF_MANY, Reference, Source, in_shapes_of, initialise
from pytest_ascend.records.verdict import Verdict
from pytest_ascend.system.dispatching import EagerDispatchMode
from pytest_ascend.system.errors import UsageError, as_error, with_type


@dataclass(frozen=True, kw_only=True, slots=True)
class Layer:
    """One call of one module. Errors are root mean squares relative to the reference; NaN if there is none.

    ``input_error`` and ``output_error`` are relative to a float64 run of the entire model; the verdicts are on this
    layer alone. A verdict is None if the layer could not be judged by itself; ``note`` says why. ``input_agrees`` is
    known when a rewritten model is compared with its original.
    """

    label: str
    kind: str
    input_error: float
    output_error: float
    forward: Verdict | None = None
    backward: Verdict | None = None
    note: str = ""
    input_agrees: bool | None = None

    @property
    def agrees(self) -> bool:
        """Return whether the layer agrees."""
        return all(each is None or each.agrees for each in (self.forward, self.backward))


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerReport:
    """Every layer, in the order in which the calls ended: inner modules before those that contain them."""

    layers: tuple[Layer, ...] = ()
    #: The finding on the operators of the first wrong layer.
    within: str = ""
    #: Settings changed for the comparison.
    note: str = ""

    @property
    def agrees(self) -> bool:
        """Return whether every layer agrees."""
        return all(layer.agrees for layer in self.layers)

    @property
    def first(self) -> Layer | None:
        """Return the first wrong layer: the earliest in the forward pass, else the latest one in the backward pass.

        For rewritten models it is the earliest whose input agrees; for nested modules, the innermost.
        """
        forward = [layer for layer in self.layers if layer.forward is not None and not layer.forward.agrees]
        if forward:
            return next((layer for layer in forward if layer.input_agrees is not False), forward[0])
        wrong = [layer for layer in self.layers if not layer.agrees]
        innermost = (each for each in reversed(wrong) if not any(_is_within(other, each) for other in wrong))
        return next(innermost, None)

    def explain(self) -> Iterator[str]:
        """Yield the finding and the table."""
        first = self.first
        if first is None:
            unjudged = sum(layer.forward is None and layer.backward is None for layer in self.layers)
            more = f", {unjudged} more were not judged" if unjudged else ""
            yield f"all {len(self.layers) - unjudged} layers agree{more}"
        else:
            verdict = next(each for each in (first.forward, first.backward) if each and not each.agrees)
            yield f"first wrong layer: {first.label} ({first.kind})"
            if first.input_agrees is not None:
                yield f"  {INPUTS[first.input_agrees]}"
            within = (each for each in self.layers if each.input_agrees is False and _is_within(each, first))
            if first.input_agrees and (inner := next(within, None)):
                yield f"  inside it, {inner.label} is the first whose input is wrong: look at the code before that call"
            if self.within:
                yield f"  {self.within}"
            yield from verdict.message.splitlines()
        if self.note:
            yield self.note
        yield from self.table()

    def table(self) -> Iterator[str]:
        """Yield one line for each layer: its name, the errors before and after it, and both verdicts.

        Modules that are wrong because of an inner module share one line at the end.
        """
        width = max([5, *(len(layer.label) for layer in self.layers)])
        yield f"{'layer':{width}}  {'kind':18}  error in   error out  forward  backward"
        # Layers with a wrong output that contain a layer with a wrong output.
        wrong = [layer for layer in self.layers if layer.forward is not None and not layer.forward.agrees]
        heirs = [layer for layer in wrong if layer is not self.first and any(_is_within(each, layer) for each in wrong)]
        for layer in self.layers:
            if layer in heirs:
                continue
            judged = (layer.forward, layer.backward)
            words = ["-" if each is None else "agrees" if each.agrees else "WRONG" for each in judged]
            errors = f"{layer.input_error:9.2e}  {layer.output_error:9.2e}"
            line = f"{layer.label:{width}}  {layer.kind:18.18}  {errors}  {words[0]:7}  {words[1]:8}  {layer.note}"
            yield line.rstrip()
        if heirs:
            yield f"wrong as a module inside is: {', '.join(layer.label for layer in heirs)}"


R = TypeVar("R", Verdict, LayerReport)


def noted(found: R, note: str) -> R:
    """Return a verdict or a report with a note appended."""
    if isinstance(found, LayerReport):
        return replace(found, note="; ".join(filter(None, (found.note, note))))
    message = f"{found.message}\n{note}" if found.message else ""
    return replace(found, headline=f"{found.headline}; {note}", message=message)


#: Messages by whether the input of the first wrong layer of a rewritten model agrees.
INPUTS = {
    True: "its input agrees with the original's, its output does not",
    False: "its input is wrong already, by code between the modules that were compared",
}


def _is_within(inner: Layer, outer: Layer) -> bool:
    """Return whether the module of one call is part of the other call's."""
    labels = [layer.label.partition(" = ")[0].partition(" (call ")[0] for layer in (inner, outer)]
    names = [label.replace("(model)", "") for label in labels]
    return names[0] != names[1] and (not names[1] or names[0].startswith(f"{names[1]}."))


def relative_error(actual: Any, expected: Any) -> float:
    """Return the RMS error relative to the RMS of the expected values, over all floating-point tensors."""
    pairs = list(zip(tensors_in(actual), tensors_in(expected), strict=False)) if expected is not None else []
    pairs = [(widened(a), widened(b)) for a, b in pairs if a.is_floating_point() and a.shape == b.shape]
    norm = sum(float(b.square().sum()) for _, b in pairs)
    gap = sum(float((a - b).square().sum()) for a, b in pairs)
    return (gap / norm) ** 0.5 if norm else float("nan")


#: Height of the plot and of its margins, and width of each layer, in pixels.
HEIGHT, MARGIN, STEP = 240, 40, 14


def plot(layers: Sequence[Layer]) -> str:
    """Return an SVG with the relative error after each layer on a logarithmic axis; wrong layers are red."""
    errors = [layer.output_error for layer in layers]
    powers = [math.log10(each) if math.isfinite(each) and each > 0 else None for each in errors]
    known = [each for each in powers if each is not None] or [-8.0, 0.0]
    low, high = math.floor(min(known)), max(math.ceil(max(known)), math.floor(min(known)) + 1)
    width = 2 * MARGIN + STEP * max(len(layers), 1)
    marks = ["<title>Relative error after each layer</title>"]

    def height(exponent: float) -> float:
        return MARGIN + HEIGHT * (high - exponent) / (high - low)

    for power in range(low, high + 1):
        y = height(power)
        marks.append(f'<line x1="{MARGIN}" x2="{width - MARGIN}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
        marks.append(f'<text x="4" y="{y + 3:.1f}">1e{power}</text>')
    for place, (layer, error) in enumerate(zip(layers, powers, strict=True)):
        if error is not None:
            x, y, colour = MARGIN + STEP * (place + 0.5), height(error), "#2a6f4e" if layer.agrees else "#c0392b"
            text = escape(f"{layer.label} ({layer.kind}): {layer.output_error:.2e}")
            marks.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"><title>{text}</title></circle>')
    size = f'width="{width}" height="{HEIGHT + 2 * MARGIN}" font-family="sans-serif" font-size="10"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}>{"".join(marks)}</svg>'


Gradients: TypeAlias = dict[str, Tensor]

#: The note on a call with packed sequences on an NPU.
PADDED = "not judged: torch_npu packs sequences with their padding, and the CPU without"
#: Modules with random results in training mode.
DROPOUTS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout)


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
    :class:`UsageError` for a model of which no module can be judged.
    """
    check_module(model, autocast)
    initialise(model, inputs, kwargs)
    on_device = copy.deepcopy(model).to(device)

    def own(where: str | torch.device) -> Any:
        return lambda x: x.detach().to(where).clone().requires_grad_(x.requires_grad)

    args, named = mapped((inputs, kwargs), own(device))
    with without_hf32(device) as note:
        try:
            _, calls = run(on_device, args, named, autocast, backward)
        except Exception:
            with runs_on_cpu(model):  # if it fails here as well, the device is not to blame
                args, named = mapped((inputs, kwargs), own("cpu"))
                run(copy.deepcopy(model).cpu(), args, named, autocast, backward)
            raise
    reference: list[Call] = []  # of the model in float64 on the CPU
    # A model may support only one dtype; these errors are only displayed.
    with contextlib.suppress(Exception), kernel_fallbacks([], wide=True):
        inputs64, kwargs64 = mapped((inputs, kwargs), lambda tensor: widened(tensor.detach().cpu()))
        reference = run(copy.deepcopy(model).cpu().double(), inputs64, kwargs64, None, False)[1]
    again = ModuleCopies(dict(copy.deepcopy(model).cpu().named_modules()), autocast, standard)
    truth = {(call.name, call.number): call for call in reference}
    innermost = [call for call in calls if not again.has_parts(call)]
    blind = canaries.one_of(innermost) if canaries and innermost else None
    pairs = [(call, truth.get((call.name, call.number))) for call in calls]
    judged = tuple(again.judge(call, right, canaries if call is blind else None) for call, right in pairs)
    report = LayerReport(layers=judged, note=note)
    if not any(each.forward for each in judged) and (why := next((each.note for each in judged), "")):
        hint = "judge its parts by themselves"
        raise UsageError(f"no layer of {type(model).__name__} can be judged: {why}", hint=hint)
    if report.first is None:
        return report
    wrong = next(call for call, layer in zip(calls, report.layers, strict=True) if layer is report.first)
    try:
        with without_hf32(device):
            name, count = first_wrong_operator(dict(on_device.named_modules()), wrong, device, autocast)
    except RuntimeError as error:
        within = f"its operators cannot be run again by themselves: {str(error).splitlines()[0]}"
    else:
        first = f"within it, the first operator that is wrong by itself: {name}"
        within = first if name else f"run again, each of its {count} operators agrees by itself"
    return replace(report, within=within)


@dataclass(frozen=True, slots=True)
class ModuleCopies:
    """A model's modules by name, on the CPU, to recompute single calls."""

    modules: Mapping[str, nn.Module]
    autocast: torch.dtype | None
    standard: str | None

    def converted(self, call: Call, module: nn.Module, dtype: torch.dtype | None, value: Any) -> Any:
        """Return the replacement for a dtype or module among the arguments, where ``module`` computes in ``dtype``."""
        before = _dtype_of(self.modules[call.name], (call.args, call.kwargs))
        if not isinstance(value, Part):
            return dtype if value is before else value
        path = value.removeprefix(f"{call.name}." if call.name else "")
        if path != value or not call.name:
            return module.get_submodule(path)
        other = copy.deepcopy(self.modules[value])
        return other if dtype is before else other.to(dtype)

    def source(self, call: Call) -> Source:
        """Return the source that recomputes a call."""
        compute, module = partial(_computed, self, call), self.modules[call.name]
        return Source(module, call.args, call.kwargs, self.autocast, call=compute, counts=COUNTS_OF_MANY)

    def has_parts(self, call: Call) -> bool:
        """Return whether a call's module has inner modules; an empty container among them is false by itself."""
        return any(True for _ in self.modules[call.name].children())

    def judge(self, call: Call, truth: Call | None = None, canaries: Canaries | None = None) -> Layer:
        """Judge one call by the CPU's results for the device's inputs, and plant ``canaries`` if it agrees."""
        layer = Layer(
            label=call.label,
            kind=call.kind,
            input_error=relative_error((call.args, call.kwargs), truth and (truth.args, truth.kwargs)),
            output_error=relative_error(call.output, truth and truth.output),
        )
        module = self.modules[call.name]
        if any(isinstance(each, DROPOUTS) and each.training and each.p for each in module.modules()):
            return replace(layer, note="active dropout: not judged")
        if holds_padding((call.args, call.kwargs, call.output)):
            return replace(layer, note=PADDED)
        source = self.source(call)
        try:
            output, gradients = exact = source.exact()
        except Exception as error:  # noqa: BLE001 - a module may depend on anything outside of it
            said = with_type(error).splitlines()[0][:160]
            return replace(layer, note=f"not judged: its call cannot be repeated on the CPU ({said})")
        # The gradients that the call produced, of inputs and of parameters.
        found = {f"grad_input[{place}]": each for place, each in enumerate(call.grad_inputs) if each is not None}
        found |= {f"grad {name}": each for name, each in call.grad_parameters.items()}
        found = {name: each for name, each in found.items() if name in gradients}
        output, gradients = in_shapes_of((call.output, found), (output, gradients))
        forward_of = partial(compare, expected=output, name=call.label, standard=self.standard)
        wanted, name = {name: gradients[name] for name in found}, f"{call.label} backward"
        backward_of = partial(compare, expected=wanted, name=name, standard=self.standard)
        # Metrics computed only when read would keep all reference runs of all layers until then.
        forward, backward = forward_of(call.output).in_full(), backward_of(found).in_full()
        if not (forward.agrees and backward.agrees) and source.depends_on_seed(exact, own=True):
            return replace(layer, note="draws random numbers, others on each device: not judged")
        note = "has parts" if self.has_parts(call) else ""
        if any(leak.spot is None and leak.gradient is not None for leak in call.leaks):
            said = "gradients not judged: a tensor leaves it by another way than its output"
            note, found = f"{note}; {said}".lstrip("; "), {}
        if canaries and forward.agrees:
            canaries.plant(call.output, lambda wrong: forward_of(wrong).agrees, (call.args, call.kwargs))
        if canaries and found and backward.agrees:
            canaries.plant(found, lambda wrong: backward_of(wrong).agrees)
        return replace(layer, forward=forward, backward=backward if found else None, note=note)


def _dtype_of(module: nn.Module, args: Any) -> torch.dtype | None:
    """Return the dtype of the first floating-point tensor among arguments and parameters."""
    return next((each.dtype for each in [*tensors_in(args), *module.parameters()] if each.is_floating_point()), None)


def _computed(copies: ModuleCopies, call: Call, module: nn.Module, *values: Any) -> tuple[Any, Gradients]:
    """Return a call's output, and the gradients of its inputs and parameters, in the dtype of the arguments.

    ``values`` are the positional arguments, the keyword arguments, and the context for the forward pass.
    """
    within: contextlib.AbstractContextManager[Any] = values[2]
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
        torch.autograd.backward(results, seeds)  # not grad(): reentrant checkpoints do not support it
        gradients = {name: each.grad for name, each in wanted.items() if each.grad is not None}
    return mapped(output, torch.Tensor.detach), gradients


def check_module(model: object, autocast: object = None) -> None:
    """Raise :class:`UsageError` for anything but a module, and for one whose copies would call the original.

    Also for an ``autocast`` that is not a dtype.
    """
    if not isinstance(model, nn.Module):
        raise UsageError(f"{type(model).__name__} is not a torch.nn.Module", hint="give a module and its inputs")
    if not isinstance(autocast, torch.dtype | None):
        raise UsageError(f"autocast is {autocast!r:.80}", hint="give a dtype, such as torch.bfloat16, or leave it out")
    for name, module in model.named_modules():
        if _keeps_tensors(module.__dict__.get("forward")):
            raise UsageError(
                f"the forward of {name or 'the model'} was replaced by a function that keeps a module or tensor: "
                "copies of the model, which are judged, would still call the original",
                hint="define that forward in a subclass, or set forward = types.MethodType(function, module)",
            )


def runs_on_cpu(model: nn.Module) -> contextlib.AbstractContextManager[None]:
    """Raise :class:`UsageError` if a model fails on the CPU within the context: then no device is to blame."""
    hint = "run its forward and backward pass there first; some models need use_cache=False or training mode"
    message = f"{type(model).__name__} fails on the CPU"
    return as_error(message, hint, Exception, why=lambda error: with_type(error).splitlines()[0][:240])


def _keeps_tensors(function: Any, depth: int = 0) -> bool:
    """Return whether a plain function holds a module or tensor in closure or defaults, which deepcopy() does not copy.

    Among its global names, only modules count: constants may be tensors.
    """
    if not isinstance(function, FunctionType):
        return depth > 0 and isinstance(getattr(function, "__self__", function), nn.Module | Tensor)
    cells = [each.cell_contents for each in function.__closure__ or () if each != CellType()]  # skips empty cells
    named = [function.__globals__.get(name) for name in function.__code__.co_names]
    if any(isinstance(getattr(each, "__self__", each), nn.Module) for each in named):
        return True
    return depth < 8 and any(_keeps_tensors(each, depth + 1) for each in (*cells, *(function.__defaults__ or ())))


#: Operators with uninitialised results.
UNWRITTEN = frozenset(("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"))


class Steps(EagerDispatchMode):
    """Records every operator that runs within its context."""

    def __init__(self) -> None:
        super().__init__()
        #: Each operator, its positional and keyword arguments before it ran, and its results, all on the CPU.
        self.steps: list[tuple[Any, Any, Any, Any]] = []

    def handle(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Run an operator, and record it."""
        args, kwargs = (mapped(each, lambda tensor: tensor) for each in (args, dict(kwargs)))
        given, named = (mapped(each, kept) for each in (args, kwargs))
        output = func(*args, **kwargs)
        on_cpu = tree_map(lambda each: torch.device("cpu") if isinstance(each, torch.device) else each, named)
        self.steps.append((func, given, on_cpu, mapped(output, kept)))
        return output


def first_wrong_operator(
    modules: Mapping[str, nn.Module], call: Call, device: str | torch.device, autocast: Autocast
) -> tuple[str, int]:
    """Repeat a module's call on the device, and return the first operator that is wrong by itself ("" for none).

    The second value is the number of operators, including those of the backward pass if the call had one.
    """
    module, device = modules[call.name], torch.device(device)
    wanted = [each is not None for each in call.grad_inputs]

    def place(tensor: Tensor) -> Tensor:
        asks = bool(wanted) and wanted.pop(0) and tensor.is_floating_point()
        return tensor.to(device, copy=True).requires_grad_(asks)

    def there(value: Any) -> Any:
        if isinstance(value, Part):
            return modules[value]
        return device if isinstance(value, torch.device) else value

    args, kwargs = mapped((call.args, dict(call.kwargs)), place, others=there)
    recorder = Steps()
    with recorder, torch.set_grad_enabled(any(each is not None for each in call.grad_outputs)):
        _, given = call_again(module, call, args, kwargs, casting(device.type, autocast))
        if given:
            torch.autograd.backward([each for each, _ in given], [seed for _, seed in given])
    module.zero_grad(set_to_none=True)
    count = len(recorder.steps)
    for number, step in enumerate(recorder.steps, start=1):
        if _is_wrong(*step):
            return f"{step[0].overloadpacket} (operator {number} of {count})", count
    return "", count


def _is_wrong(func: Any, args: Any, kwargs: Any, output: Any) -> bool:
    name = func.overloadpacket.__name__
    if name in RANDOM or name in UNWRITTEN or not any(each.is_floating_point() for each in tensors_in(output)):
        return False
    with contextlib.suppress(Exception):  # operators that the CPU cannot compute are not judged
        without = torch.no_grad()(func)
        expected = Source(func, args, kwargs, call=lambda _, args, kwargs, __: without(*args, **kwargs)).exact()
        for ours, theirs in zip(tensors_in(output), tensors_in(expected), strict=False):
            is_comparable = ours.shape == theirs.shape and isinstance(theirs, Reference) and ours.is_floating_point()
            if is_comparable and not compare(ours, theirs).agrees:
                return True
    return False
