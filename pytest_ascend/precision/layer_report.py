"""What was found of every module of a model, and the table of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from pytest_ascend.precision.capture import widened
from pytest_ascend.precision.nested import tensors_in
from pytest_ascend.records.verdict import Verdict


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
    #: What is said of the operators of the first wrong layer.
    within: str = ""

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
            if self.within:
                yield f"  {self.within}"
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


def relative_error(actual: Any, expected: Any) -> float:
    """Root mean square error relative to that of the expected values, over all floating tensors."""
    pairs = list(zip(tensors_in(actual), tensors_in(expected), strict=False)) if expected is not None else []
    pairs = [(widened(a), widened(b)) for a, b in pairs if a.is_floating_point() and a.shape == b.shape]
    norm = sum(float(b.square().sum()) for _, b in pairs)
    gap = sum(float((a - b).square().sum()) for a, b in pairs)
    return (gap / norm) ** 0.5 if norm else float("nan")
