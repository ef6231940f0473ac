"""The verdicts on every module of a model, and their table."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from typing import Any, TypeVar

from pytest_ascend.precision.capture import widened
from pytest_ascend.precision.nested import tensors_in
from pytest_ascend.records.verdict import Verdict


@dataclass(frozen=True, kw_only=True, slots=True)
class Layer:
    """One call of one module. Errors are root mean squares relative to the reference; NaN if there is none.

    ``input_error`` and ``output_error`` are against a float64 run of the whole model; the verdicts are of this layer
    alone. A verdict is None if the layer could not be judged by itself; ``note`` says why. ``input_agrees`` is known
    where a rewritten model is compared with its original.
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
        """Whether the layer agrees."""
        return all(each is None or each.agrees for each in (self.forward, self.backward))


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerReport:
    """Every layer in the order in which the calls ended: inner modules before the ones that contain them."""

    layers: tuple[Layer, ...] = field(default=())
    #: The finding on the operators of the first wrong layer.
    within: str = ""
    #: What was set for the comparison.
    note: str = ""

    @property
    def agrees(self) -> bool:
        """Whether every layer agrees."""
        return all(layer.agrees for layer in self.layers)

    @property
    def first(self) -> Layer | None:
        """The first wrong layer: the earliest in the forward pass, else the latest one in the backward pass.

        Of rewritten models it is the earliest whose input agrees; of modules within each other, the innermost.
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
        unjudged = sum(layer.forward is None and layer.backward is None for layer in self.layers)
        if first is None:
            judged = len(self.layers) - unjudged
            yield f"all {judged} layers agree" + (f", {unjudged} more were not judged" if unjudged else "")
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
        """Yield one line for each layer: its name, errors before and after it, and both verdicts.

        Modules that are wrong because a module inside them is share one line at the end.
        """
        width = max([5, *(len(layer.label) for layer in self.layers)])
        yield f"{'layer':{width}}  {'kind':18}  error in   error out  forward  backward"
        # Layers whose output is wrong and that have a layer inside whose output is wrong.
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
    """Return a verdict or a report that says one thing more."""
    if isinstance(found, LayerReport):
        return replace(found, note="; ".join(filter(None, (found.note, note))))
    message = f"{found.message}\n{note}" if found.message else ""
    return replace(found, headline=f"{found.headline}; {note}", message=message)


#: Whether the input of the first wrong layer of a rewritten model agrees.
INPUTS = {
    True: "its input agrees with the original's, its output does not",
    False: "its input is wrong already, by code between the modules that were compared",
}


def _is_within(inner: Layer, outer: Layer) -> bool:
    """Whether the module of one call is a part of the other's."""
    labels = [layer.label.partition(" = ")[0].partition(" (call ")[0] for layer in (inner, outer)]
    names = [label.replace("(model)", "") for label in labels]
    return names[0] != names[1] and (not names[1] or names[0].startswith(f"{names[1]}."))


def relative_error(actual: Any, expected: Any) -> float:
    """Root mean square error relative to that of the expected values, over all floating tensors."""
    pairs = list(zip(tensors_in(actual), tensors_in(expected), strict=False)) if expected is not None else []
    pairs = [(widened(a), widened(b)) for a, b in pairs if a.is_floating_point() and a.shape == b.shape]
    norm = sum(float(b.square().sum()) for _, b in pairs)
    gap = sum(float((a - b).square().sum()) for a, b in pairs)
    return (gap / norm) ** 0.5 if norm else float("nan")


#: Height of the plot and of its margin, and width for each layer, in pixels.
HEIGHT, MARGIN, STEP = 240, 40, 14


def plot(layers: Sequence[Layer]) -> str:
    """Return an SVG with the relative error after each layer on a logarithmic axis; layers that are wrong are red."""
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
