"""The plot of a layer report: errors before and after each layer, as a picture that loads nothing."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape

from pytest_ascend.precision.layer_report import Layer

#: Height of the drawing and of its margin, and width for each layer, in pixels.
HEIGHT, MARGIN, STEP = 240, 40, 14
COLOURS = {True: "#2a6f4e", False: "#c0392b"}


def plot(layers: Sequence[Layer]) -> str:
    """Return an SVG with the relative error after each layer on a logarithmic axis; layers that are wrong are red."""
    errors = [_exponent(layer.output_error) for layer in layers]
    known = [each for each in errors if each is not None] or [-8.0, 0.0]
    low, high = math.floor(min(known)), max(math.ceil(max(known)), math.floor(min(known)) + 1)
    width = 2 * MARGIN + STEP * max(len(layers), 1)
    size = f'width="{width}" height="{HEIGHT + 2 * MARGIN}"'
    marks = "".join((*_grid(low, high, width), *_marks(layers, errors, low, high)))
    title = "<title>Relative error after each layer</title>"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="10">{title}{marks}</svg>'
    )


def _exponent(error: float) -> float | None:
    return math.log10(error) if math.isfinite(error) and error > 0 else None


def _height(exponent: float, low: int, high: int) -> float:
    return MARGIN + HEIGHT * (high - exponent) / (high - low)


def _grid(low: int, high: int, width: int) -> Iterator[str]:
    for power in range(low, high + 1):
        y = _height(power, low, high)
        yield f'<line x1="{MARGIN}" x2="{width - MARGIN}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>'
        yield f'<text x="4" y="{y + 3:.1f}">1e{power}</text>'


def _marks(layers: Sequence[Layer], errors: Sequence[float | None], low: int, high: int) -> Iterator[str]:
    for place, (layer, error) in enumerate(zip(layers, errors, strict=True)):
        if error is not None:
            x, y = MARGIN + STEP * (place + 0.5), _height(error, low, high)
            colour = COLOURS[layer.agrees]
            text = escape(f"{layer.label} ({layer.kind}): {layer.output_error:.2e}")
            yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"><title>{text}</title></circle>'
