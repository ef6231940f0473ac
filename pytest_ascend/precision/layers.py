"""Which layer of a model goes wrong: every module is judged on the inputs that the device gave it.

What a module makes of the device's own inputs is computed again on the CPU, in float64 and in the same dtype. So the
errors of earlier layers are no part of a layer's verdict: it is wrong if its error is more than its inputs explain.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from pytest_ascend.errors import UsageError
from pytest_ascend.precision.capture import Call, casting, mapped, run, tensors_in
from pytest_ascend.precision.compare import compare
from pytest_ascend.records.verdict import Verdict

Gradients: TypeAlias = list[Tensor | None]

#: Modules whose results are random while they train.
DROPOUTS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout)


@dataclass(frozen=True, kw_only=True, slots=True)
class Layer:
    """One call of one module. Errors are root mean squares relative to the reference; NaN where there is nothing.

    ``input_error`` and ``output_error`` are against a float64 run of the whole model; the verdicts are of this layer
    alone. A verdict is None where the layer could not be judged by itself; ``note`` then says why.
    """

    label: str
    kind: str
    input_error: float
    output_error: float
    forward: Verdict | None = None
    backward: Verdict | None = None
    note: str = ""

    @property
    def agrees(self) -> bool:
        """Whether nothing wrong was found."""
        return all(each is None or each.agrees for each in (self.forward, self.backward))


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerReport:
    """Every layer in the order in which the calls ended: inner modules before the ones that they are part of."""

    layers: tuple[Layer, ...] = field(default=())

    @property
    def agrees(self) -> bool:
        """Whether every layer does."""
        return all(layer.agrees for layer in self.layers)

    @property
    def first(self) -> Layer | None:
        """The first layer that is wrong: forwards the earliest, else backwards the latest, where gradients start."""
        for layer in self.layers:
            if layer.forward is not None and not layer.forward.agrees:
                return layer
        wrong = [layer for layer in self.layers if not layer.agrees]
        leaves = [layer for layer in wrong if "part" not in layer.note] or wrong
        return leaves[-1] if leaves else None

    def explain(self) -> Iterator[str]:
        """Yield what was found, and the table."""
        if self.first is None:
            yield f"all {len(self.layers)} layers agree"
        else:
            verdict = next(each for each in (self.first.forward, self.first.backward) if each and not each.agrees)
            yield f"first wrong layer: {self.first.label} ({self.first.kind})"
            yield from verdict.message.splitlines()
        yield from self.table()

    def table(self) -> Iterator[str]:
        """Yield one line for each layer: its name, errors before and after it, and both verdicts."""
        width = max([5, *(len(layer.label) for layer in self.layers)])
        yield f"{'layer':{width}}  {'kind':18}  error in   error out  forward  backward"
        for layer in self.layers:
            words = [_word(layer.forward), _word(layer.backward)]
            errors = f"{layer.input_error:9.2e}  {layer.output_error:9.2e}"
            line = f"{layer.label:{width}}  {layer.kind:18.18}  {errors}  {words[0]:7}  {words[1]:8}  {layer.note}"
            yield line.rstrip()


def _word(verdict: Verdict | None) -> str:
    return "-" if verdict is None else "agrees" if verdict.agrees else "WRONG"


def layers(
    model: nn.Module,
    *inputs: Any,
    device: str | torch.device = "cpu",
    autocast: torch.dtype | None = None,
    backward: bool = True,
    standard: str | None = None,
    **kwargs: Any,
) -> LayerReport:
    """Run ``model`` on ``device`` and judge every module's output and gradients; ``kwargs`` go to the model.

    The model is copied, and left as it is. Gradients start from fixed random ones. Modules with active dropout are not
    judged by themselves: put the model into evaluation mode. Raises :class:`UsageError` for a model without modules.
    """
    if not isinstance(model, nn.Module):
        raise UsageError(f"{type(model).__name__} is not a torch.nn.Module", hint="give a module and its inputs")
    on_device = copy.deepcopy(model).to(device)
    args, named = (mapped(each, lambda tensor: _moved(tensor, tensor.detach().to(device))) for each in (inputs, kwargs))
    _, calls = run(on_device, args, named, autocast, backward)
    wide = copy.deepcopy(model).cpu().double()
    args, named = (
        mapped(each, lambda tensor: _moved(tensor, _wide(tensor.detach().cpu()))) for each in (inputs, kwargs)
    )
    _, reference = run(wide, args, named, None, False)
    again = Again(dict(copy.deepcopy(model).cpu().named_modules()), dict(wide.named_modules()), autocast, standard)
    truth = {(call.name, call.number): call for call in reference}
    return LayerReport(layers=tuple(again.judge(call, truth.get((call.name, call.number))) for call in calls))


@dataclass(frozen=True, slots=True)
class Again:
    """Both CPU copies of a model, to compute single calls again."""

    usual: Mapping[str, nn.Module]
    wide: Mapping[str, nn.Module]
    autocast: torch.dtype | None
    standard: str | None

    def judge(self, call: Call, truth: Call | None) -> Layer:
        """Judge one call."""
        layer = Layer(
            label=call.label,
            kind=call.kind,
            input_error=_error((call.args, call.kwargs), truth and (truth.args, truth.kwargs)),
            output_error=_error(call.output, truth and truth.output),
        )
        module = self.usual[call.name]
        if any(isinstance(each, DROPOUTS) and each.training and each.p for each in module.modules()):
            return replace(layer, note="active dropout: not judged")
        has_parts = any(True for _ in module.children())
        expected, honest = self._compute(call, self.wide, None), self._compute(call, self.usual, self.autocast)
        forward = compare(
            call.output,
            expected[0],
            honest=honest[0],
            name=call.label,
            standard=self.standard,
            accumulation=sums_of(module),
        )
        backward = self._backward(call, expected[1], honest[1], has_parts)
        return replace(layer, forward=forward, backward=backward, note="has parts" if has_parts else "")

    def _backward(self, call: Call, expected: Gradients, honest: Gradients, has_parts: bool) -> Verdict | None:
        found = {
            f"grad_input[{place}]": (ours, expected[place], honest[place])
            for place, ours in enumerate(call.grad_inputs)
            if ours is not None and expected[place] is not None and honest[place] is not None
        }
        if not found:
            return None
        ours, theirs, cpu = ({key: each[part] for key, each in found.items()} for part in range(3))
        return compare(
            ours, theirs, honest=cpu, name=f"{call.label} backward", standard=self.standard, branching=has_parts
        )

    def _compute(
        self, call: Call, modules: Mapping[str, nn.Module], autocast: torch.dtype | None
    ) -> tuple[Any, Gradients]:
        """Give the output of a call, and the gradients of its inputs, on the CPU."""
        convert = _wide if modules is self.wide else _same
        inputs = [convert(each) for each in tensors_in((call.args, call.kwargs))]
        wanted = [place for place, each in enumerate(call.grad_inputs) if each is not None]
        for place in wanted:
            inputs[place].requires_grad_()
        handed = iter([each.clone() for each in inputs])
        args, kwargs = mapped((call.args, call.kwargs), lambda _: next(handed))
        with casting("cpu", autocast), torch.set_grad_enabled(bool(wanted)):
            output = modules[call.name](*args, **kwargs)
        given = [
            (each, convert(gradient))
            for each, gradient in zip(tensors_in(output), call.grad_outputs, strict=False)
            if gradient is not None and each.requires_grad
        ]
        gradients: Gradients = [None] * len(inputs)
        if wanted and given:
            results, seeds = zip(*given, strict=True)
            seeds = tuple(seed.to(result.dtype) for seed, result in zip(seeds, results, strict=True))
            torch.autograd.backward(results, seeds)  # not grad(): reentrant checkpoints refuse it
            modules[call.name].zero_grad(set_to_none=True)
            for place in wanted:
                gradients[place] = inputs[place].grad
        return mapped(output, torch.Tensor.detach), gradients


def _moved(original: Tensor, tensor: Tensor) -> Tensor:
    """Give a leaf that asks for a gradient where the original does."""
    return tensor.clone().requires_grad_(original.requires_grad)


def _wide(tensor: Tensor) -> Tensor:
    if tensor.is_complex():
        return tensor.to(torch.complex128)
    return tensor.double() if tensor.is_floating_point() else tensor


def _same(tensor: Tensor) -> Tensor:
    return tensor.clone()


def _error(actual: Any, expected: Any) -> float:
    """Root mean square error relative to that of the expected values, over all floating tensors."""
    pairs = list(zip(tensors_in(actual), tensors_in(expected), strict=False)) if expected is not None else []
    pairs = [(_wide(a), _wide(b)) for a, b in pairs if a.is_floating_point() and a.shape == b.shape]
    norm = sum(float(b.square().sum()) for _, b in pairs)
    gap = sum(float((a - b).square().sum()) for a, b in pairs)
    return (gap / norm) ** 0.5 if norm else float("nan")


def sums_of(module: nn.Module) -> int | None:
    """Give the number of terms in each sum of a module's output, where its kind says so."""
    if isinstance(module, nn.Linear):
        return module.in_features
    if isinstance(module, nn.Conv1d | nn.Conv2d | nn.Conv3d):
        return int(module.weight[0].numel())
    if isinstance(module, nn.LayerNorm):
        return int(torch.Size(module.normalized_shape).numel())
    return None


def models(
    model: nn.Module, original: nn.Module, *inputs: Any, names: Mapping[str, str] | None = None, **kwargs: Any
) -> LayerReport:
    """Compare a rewritten model with its original, by what the modules give that ``names`` maps to each other.

    ``names`` goes from the model's names to the original's; without it, modules of equal names are compared. Both run
    on the CPU: the original in float64 (expected) and as it is (honest). Raises :class:`UsageError` for unknown names.
    """
    pairs = dict(names) if names is not None else _shared(model, original)
    _check_names(pairs, model, original)
    ours, theirs, wide = (copy.deepcopy(each).cpu() for each in (model, original, original))
    args, named = (mapped(each, _wide) for each in (inputs, kwargs))
    expected = {(call.name, call.number): call for call in run(wide.double(), args, named, None, False)[1]}
    honest = {(call.name, call.number): call for call in run(theirs, inputs, kwargs, None, False)[1]}
    found = []
    for call in run(ours, inputs, kwargs, None, False)[1]:
        key = (pairs.get(call.name), call.number)
        if key in expected:
            found.append(_against(call, expected[key], honest[key]))
    return LayerReport(layers=tuple(found))


def _against(call: Call, expected: Call, honest: Call) -> Layer:
    return Layer(
        label=call.label if call.label == expected.label else f"{call.label} = {expected.label}",
        kind=call.kind,
        input_error=_error(call.args, expected.args),
        output_error=_error(call.output, expected.output),
        forward=compare(call.output, expected.output, honest=honest.output, name=call.label),
    )


def _shared(model: nn.Module, original: nn.Module) -> dict[str, str]:
    known = {name for name, _ in original.named_modules()}
    return {name: name for name, _ in model.named_modules() if name in known}


def _check_names(pairs: Mapping[str, str], model: nn.Module, original: nn.Module) -> None:
    for names, owner, title in ((pairs, model, "model"), (pairs.values(), original, "original")):
        missing = _unknown(names, owner)
        if missing:
            raise UsageError(
                f"the {title} has no module {missing[0]!r}",
                hint="give names as named_modules() of the model lists them",
            )


def _unknown(names: Iterable[str], owner: nn.Module) -> list[str]:
    known = {name for name, _ in owner.named_modules()}
    return [name for name in names if name not in known]
