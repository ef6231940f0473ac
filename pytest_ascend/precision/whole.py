"""A module on a device compared with the CPU (outputs, gradients), and a rewritten model with its original."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial, wraps
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor, nn

from pytest_ascend.environment.chips import has_own_formulas
from pytest_ascend.precision.canaries import Canaries
from pytest_ascend.precision.capture import Autocast, Call, casting, run, seed_gradient
from pytest_ascend.precision.choices import RANDOM, OperatorNames
from pytest_ascend.precision.compare import compare, joined
from pytest_ascend.precision.diagnosis import without_hf32
from pytest_ascend.precision.kernel_fallbacks import active, cann_formulas
from pytest_ascend.precision.layers import (
    DROPOUTS,
    Layer,
    LayerReport,
    ModuleCopies,
    check_module,
    layers,
    noted,
    relative_error,
    runs_on_cpu,
)
from pytest_ascend.precision.nested import Leaf, leaves, mapped, tensors_in
from pytest_ascend.precision.reference import COUNTS_OF_MANY, Reference, Source, in_shapes_of, initialise, plain
from pytest_ascend.records.verdict import Verdict
from pytest_ascend.system.dispatching import HALF
from pytest_ascend.system.errors import UsageError
from pytest_ascend.system.text import some_of

#: Share of its limit from which an agreeing output is also judged layer by layer. Correct devices use half. Errors of
#: one to three times the noise are visible in the layer that makes them, but not after later layers.
NARROW, NARROWLY = 0.55, "the whole output agrees, but narrowly: each layer was judged by itself"
P = ParamSpec("P")
Found = TypeVar("Found", Verdict, LayerReport)
#: The note on a result that was judged by CANN's formulas.
BY_CANN = "judged by CANN's formula of GELU (tanh), a known deviation of torch_npu from PyTorch's"
#: The seed of random generators before the model runs, on the device and on the CPU.
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
    """Judge a module on ``device``: its outputs, and the gradients of its floating-point inputs and its parameters.

    Gradients start from the output's ``loss`` if any, else from fixed random gradients of every output. The model is
    copied, not changed. Dropout modules are disabled in the copies and named in the verdict. A disagreement's message
    names the first wrong layer, unless ``locate`` is False. ``canaries`` are planted in results that agree. Raises
    :class:`UsageError` for anything but a module, and for a model that draws random numbers outside dropout.
    """
    check_module(model, autocast)
    with without_hf32(device) as note:
        both = ModuleResults.of(model, inputs, kwargs, torch.device(device), autocast)
    name = type(model).__name__
    parts = [leaf for each in both.judged(standard) for leaf in (each.leaves or (each,))]
    verdict = joined(parts, name)
    dropout = f"dropout was switched off in {some_of(both.dropped, 6)}" if both.dropped else ""
    for each in filter(None, (dropout, note)):
        verdict = noted(verdict, each)
    if canaries and verdict.agrees:
        for part, right in both.actual.items():
            found, wanted = right, both.expected[part]
            if part != "output" and right:  # for gradients, in only one of them
                name_of_one = canaries.one_of(sorted(right))
                found, wanted = right[name_of_one], wanted[name_of_one]
            accepts = partial(compare, expected=wanted, standard=standard)
            canaries.plant(found, lambda wrong: accepts(wrong).agrees, (inputs, kwargs))  # noqa: B023 - called at once
    if not verdict.agrees:
        _refuse_own_seeds(both.model, inputs, kwargs, both.expected)
    if not locate:
        return verdict
    if verdict.agrees:  # a 16-bit output may use more of its limit than correct devices do
        is_short = any(each.dtype in HALF for each in tensors_in(both.actual["output"]))
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
    unjudged = [f"{each.label}: {each.note}" for each in report.layers if not (each.forward or each.backward)]
    between = "each layer that was judged agrees by itself: what is wrong lies between them, or adds up over them"
    where = layer or "; ".join((between, *unjudged[:1]))
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
        """Compute both. Raises :class:`UsageError` for a model that draws random numbers outside dropout modules."""
        initialise(model, inputs, kwargs)
        still, dropped = copy.deepcopy(model), []
        for name, module in still.named_modules():
            if isinstance(module, DROPOUTS) and module.training and module.p:
                module.p = 0.0
                dropped.append(name or "(model)")
        source = Source(still, tuple(inputs), dict(kwargs), autocast, call=outputs_and_gradients, counts=COUNTS_OF_MANY)
        with OperatorNames() as seen, runs_on_cpu(model):
            expected = source.exact()
        if (drawn := seen.names & RANDOM) and source.depends_on_seed(expected):
            raise _refusal(still, inputs, kwargs, drawn)
        return cls(still, inputs, kwargs, autocast, expected, dropped).on(device)

    def on(self, device: torch.device) -> ModuleResults:
        """Return a copy with new results, computed on a device."""
        args, named = mapped((self.inputs, self.kwargs), lambda tensor: tensor.detach().to(device, copy=True))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(SEED)
            model = copy.deepcopy(self.model).to(device)
            try:
                actual = outputs_and_gradients(model, args, named, casting(device.type, self.autocast))
            except Exception:
                args, named = mapped((self.inputs, self.kwargs), Tensor.cpu)
                with runs_on_cpu(self.model):  # if it fails here as well, the device is not to blame
                    cpu = copy.deepcopy(self.model).cpu()
                    outputs_and_gradients(cpu, args, named, casting("cpu", self.autocast))
                raise
        return replace(self, actual=actual, expected=in_shapes_of(actual, self.expected))

    def judged(self, standard: str | None = None) -> Iterator[Verdict]:
        """Yield the verdict of each part."""
        for part in self.actual:
            name = f"{type(self.model).__name__}.{part}"
            yield compare(self.actual[part], self.expected[part], name=name, standard=standard)


def outputs_and_gradients(
    model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], within: AbstractContextManager[Any]
) -> dict[str, Any]:
    """Return a model's output and the gradients of its inputs and parameters, by name, on the model's device."""
    inputs: dict[str, Tensor] = {}

    def leaf(tensor: Tensor) -> Tensor:
        if not tensor.is_floating_point():
            return tensor
        inputs[str(len(inputs))] = own = tensor.detach().clone().requires_grad_()
        return own.clone()  # in-place changes by the model must not reach the leaves

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


def _refuse_own_seeds(model: nn.Module, inputs: Sequence[Any], kwargs: Mapping[str, Any], expected: Any) -> None:
    """Raise :class:`UsageError` if results depend on a seed set by the model: devices draw other numbers from it."""
    source = next((each.source for each in tensors_in(expected) if isinstance(each, Reference)), None)
    with OperatorNames() as seen:
        depends = source is not None and source.depends_on_seed(expected, own=True)
    if depends and (drawn := seen.names & RANDOM):
        raise _refusal(model, inputs, kwargs, drawn)


def _refusal(model: nn.Module, inputs: Sequence[Any], kwargs: Mapping[str, Any], drawn: Iterable[str]) -> UsageError:
    """Return the error for a model whose results depend on random numbers."""
    copied = copy.deepcopy(model).cpu()
    found: list[str] = []  # the innermost modules that use random numbers

    def watched(name: str, forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        with OperatorNames() as seen:
            output = forward(*args, **kwargs)
        if seen.names & RANDOM and not any(each.startswith(name) for each in found):
            found.append(name)
        return output

    for name, module in copied.named_modules():
        module.forward = partial(watched, name, module.forward)
    args, named = mapped((inputs, dict(kwargs)), lambda tensor: tensor.detach().cpu())
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        copied(*args, **named)
    where = some_of([each or "the model itself" for each in found], 6) or "its backward pass"
    drawn_by = ", ".join(sorted(drawn))
    return UsageError(
        f"{type(model).__name__} draws random numbers ({drawn_by}) in {where}, others on each device",
        hint="dropout: call model.eval(), or set it to 0; other random numbers: give them to the model as inputs",
    )


def by_cann_too(function: Callable[P, Found]) -> Callable[P, Found]:
    """Return a judge for scripts, which judges an NPU's disagreements again by CANN's formulas, and says so.

    ``pytest --ascend`` does this for entire tests, and lists such deviations as known.
    """

    @wraps(function)
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


#: Multiple of the original's noise by which another function differs from it; also the limit for the error of the same
#: function in a module that rounds more often. Weights merged and rounded again differ by up to 1.4 times the noise.
TWICE = 2.0
#: The notes on such a module, and on another function.
ROUNDS = "in float64 the same as the original: it rounds more often, or elsewhere"
ANOTHER = "by itself, in float64, another function than the original: {times:.2g} times the original's noise apart"
#: The note on a module with other inputs, inside a module whose result is the original's.
INNER = "not judged: it gets other values than in the original, within a module that agrees"
#: The note on parts that one of the models leaves out, such as attention weights; the number of parts named.
LACKING, NAMED = "not compared, as one of the models has None there: {}", 4


def models(
    model: nn.Module,
    original: nn.Module,
    *inputs: Any,
    names: Mapping[str, str] | None = None,
    device: str | torch.device = "cpu",
    standard: str | None = None,
    canaries: Canaries | None = None,
    **kwargs: Any,
) -> LayerReport:
    """Compare a rewritten model with its original, by the outputs of the modules that ``names`` pairs.

    ``names`` maps the model's names to the original's; without it, modules of equal names are compared. The model runs
    on ``device``, its original on the CPU: in float64 (expected), and in its own dtype in several orders (reference
    runs). In 16 bits, a module whose input agrees is also compared by itself. A part of an output that only one model
    has (None in the other) is not compared, but named. ``canaries`` are planted in one innermost module. Raises
    :class:`UsageError` for unknown names, for an original that draws random numbers, and if nothing can be compared.
    """
    check_module(model)
    check_module(original)
    pairs = _module_pairs(model, original, names)
    outputs = partial(_calls_and_outputs, frozenset(pairs.values()))
    source = Source(copy.deepcopy(original), inputs, kwargs, call=outputs, counts=COUNTS_OF_MANY, is_ordered=True)
    with OperatorNames() as seen:
        expected = source.exact()
    if (drawn := seen.names & RANDOM) and source.depends_on_seed(expected):
        raise _refusal(original, inputs, kwargs, drawn)
    args, named = mapped((inputs, kwargs), lambda tensor: tensor.to(device))
    with without_hf32(device) as note:
        calls = run(copy.deepcopy(model).to(device), args, named, None, False)[1]
    keyed = [(call, (pairs[call.name], call.number)) for call in calls if call.name in pairs]
    both = [(call, key) for call, key in keyed if key in expected]
    if not both:
        hint = "say with names={...} which modules correspond"
        raise UsageError("the models have no module in common that both call", hint=hint)
    modules = [dict(copy.deepcopy(each).cpu().named_modules()) for each in (model, original)]
    copies = [ModuleCopies(each, None, standard) for each in modules]
    wanted = in_shapes_of({key: (tensors_in((call.args, call.kwargs)), call.output) for call, key in both}, expected)
    judged = [_against(call, key, wanted[key], copies) for call, key in both]
    report = LayerReport(layers=tuple(_without_inner_values([call for call, _ in both], judged)), note=note)
    if not report.agrees:
        _refuse_own_seeds(original, inputs, kwargs, expected)
    innermost = [each for each in both if not copies[0].has_parts(each[0])]
    if canaries and innermost and report.agrees:
        call, key = canaries.one_of(innermost)

        def accepts(wrong: Any) -> bool:
            return _against(replace(call, output=wrong), key, wanted[key], copies).agrees

        canaries.plant(call.output, accepts, (call.args, call.kwargs))
    lacking = [path for call, key in both for path in _lacking(call.label, call.output, expected[key][1])]
    return noted(report, LACKING.format(some_of(lacking, NAMED))) if lacking else report


def _module_pairs(model: nn.Module, original: nn.Module, names: Mapping[str, str] | None) -> dict[str, str]:
    """Return a mapping of the model's names to the original's. Raises :class:`UsageError` for unknown names."""
    if not isinstance(names, Mapping | None):
        hint = "give a mapping: {'name in the model': 'name in the original'}"
        raise UsageError(f"names is {names!r:.80}", hint=hint)
    ours, theirs = ({name for name, _ in each.named_modules()} for each in (model, original))
    pairs = dict(names) if names is not None else {name: name for name, _ in model.named_modules() if name in theirs}
    for wanted, known, title in ((pairs, ours, "model"), (pairs.values(), theirs, "original")):
        if missing := [name for name in wanted if name not in known]:
            hint = "give names as named_modules() of the model lists them"
            raise UsageError(f"the {title} has no module {missing[0]!r}", hint=hint)
    return pairs


def _without_inner_values(calls: Sequence[Call], layers: Sequence[Layer]) -> Iterator[Layer]:
    """Withdraw the verdict on a module that gets other values than in the original, inside one that agrees.

    A mixture of experts may sort its tokens in another order: its experts get other rows, but its result is the same.
    """
    by_call = dict(zip(map(id, calls), layers, strict=True))
    for call, layer in zip(calls, layers, strict=True):
        outer = call.parent
        while outer is not None and id(outer) not in by_call:
            outer = outer.parent
        around = by_call.get(id(outer))
        is_inner = around is not None and around.input_agrees and around.agrees
        is_accused = layer.input_agrees is False and not layer.agrees
        yield replace(layer, forward=None, note=INNER) if is_inner and is_accused else layer


def _calls_and_outputs(
    names: frozenset[str], model: nn.Module, args: Any, kwargs: Any, within: AbstractContextManager[Any]
) -> dict[tuple[str, int], tuple[list[Tensor], Any]]:
    """Return, for each call of the named modules, its input tensors and its output."""
    with within:
        calls = run(model, args, kwargs, None, False)[1]
    each_of = (call for call in calls if call.name in names)
    return {(call.name, call.number): (tensors_in((call.args, call.kwargs)), call.output) for call in each_of}


def _pairs(actual: Any, expected: Any) -> tuple[list[Tensor], list[Tensor]]:
    """Return the tensors at equal places of two outputs."""
    parts = [(each.actual, each.expected) for each in leaves(Leaf("", actual, expected))]
    both = [each for each in parts if all(isinstance(one, Tensor) for one in each)]
    return [one for one, _ in both], [other for _, other in both]


def _lacking(path: str, actual: Any, expected: Any) -> list[str]:
    """Return the paths of the parts that only one of the outputs has; none if nothing else would be left."""
    parts = list(leaves(Leaf(path, actual, expected)))
    lacking = [each.path for each in parts if (each.actual is None) is not (each.expected is None)]
    return lacking if len(lacking) < len(parts) else []


def _against(
    call: Call, key: tuple[str, int], theirs: tuple[list[Tensor], Any], copies: Sequence[ModuleCopies]
) -> Layer:
    (given, output), other = theirs, replace(call, name=key[0])
    tensors, standard = tensors_in((call.args, call.kwargs)), copies[0].standard
    pairs = [(a, b) for a, b in zip(tensors, given, strict=False) if a.shape == b.shape]
    forward = compare(call.output, output, name=call.label, standard=standard)
    if lacking := _lacking(call.label, call.output, output):  # judged by the parts that both models have
        forward = joined([each for each in forward.leaves if each.path not in lacking], call.label)
    layer = Layer(
        label=call.label if call.label == other.label else f"{call.label} = {other.label}",
        kind=call.kind,
        input_error=relative_error((call.args, call.kwargs), mapped(given, plain)),
        input_agrees=all(compare(a, b, standard=standard).agrees for a, b in pairs),
        output_error=relative_error(*_pairs(call.output, mapped(output, plain))),
        forward=forward.in_full(),  # as for layers: verdicts would keep all tensors alive
    )
    dtypes = {each.dtype for each in tensors_in(call.output)}
    is_alike = layer.input_agrees and len(pairs) == len(tensors) == len(given)
    if not is_alike or len(dtypes) != 1 or not dtypes <= set(HALF):
        return layer
    try:
        ours, theirs = (each.source(one).exact()[0] for each, one in zip(copies, (call, other), strict=True))
    except Exception:  # noqa: BLE001 - it may exist only on an NPU, or take other arguments
        return layer
    found = _by_itself(layer, output, ours, theirs, *dtypes)
    if found is layer:
        return layer
    # The finding counts only if the results of both modules depend on nothing but their inputs.
    rounded = mapped(theirs, lambda each: plain(each).to(*dtypes))
    return found if compare(call.output, ours).agrees and compare(rounded, output).agrees else layer


def _by_itself(layer: Layer, expected: Any, ours: Any, theirs: Any, dtype: torch.dtype) -> Layer:
    """Return the layer judged by itself: ``ours`` and ``theirs`` are float64 results for its own input.

    Their difference contains neither noise of earlier layers nor their own; the original's noise is that of its
    reference runs. In float32, comparing the entire models is as sensitive.
    """
    apart = 0.0
    for mine, exact in zip(*_pairs(ours, theirs), strict=True):
        if mine.shape == exact.shape:
            noise = max(torch.finfo(dtype).eps / 4, _noise(exact, dtype))
            apart = max(apart, relative_error(plain(mine), plain(exact)) / noise)
    verdict, is_same = layer.forward, apart <= TWICE
    if verdict is None or is_same is verdict.agrees or (is_same and verdict.limit is None):  # None: another structure
        return layer
    usual = max((_noise(each, dtype) for each in tensors_in(expected)), default=0.0)
    if is_same and layer.output_error > TWICE * usual:
        return replace(layer, note=ROUNDS)
    said = ROUNDS if is_same else ANOTHER.format(times=apart)
    verdict = Verdict(path=verdict.path, agrees=is_same, standard=verdict.standard, headline=said)
    message, note = ("", ROUNDS) if is_same else (f"{verdict.path}: {said}", "")
    return replace(layer, forward=replace(verdict, message=message), note=note)


def _noise(exact: Tensor, dtype: torch.dtype) -> float:
    """Return the largest relative error of the reference runs."""
    runs = exact.reference_runs(dtype) if isinstance(exact, Reference) else ()
    return max((relative_error(each, plain(exact)) for each in runs), default=0.0)
