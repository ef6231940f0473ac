"""From a case that does not pass to a program that shows why: which call, placed how, with what from above."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from pytest_ascend.operators import judging, layouts
from pytest_ascend.operators.draw import Call
from pytest_ascend.operators.judging import tensors
from pytest_ascend.operators.layouts import LAYOUTS, Placing
from pytest_ascend.operators.operator import BACKWARD, REPEAT, Operator
from pytest_ascend.operators.properties import drawn_above
from pytest_ascend.operators.snippet import Reproduction, snippet
from pytest_ascend.records.case import Case

CPU = torch.device("cpu")


def program(case: Case, operator: Operator, device: torch.device, verdict: Mapping[str, Any] | None) -> str:
    """Write the program of a case: of the worst call of a disagreement, else of the first.

    Raises Unwritable where it cannot be written.
    """
    dtype = getattr(torch, case.dtype)
    draw = operator.draw(dtype)
    calls = operator.calls(dtype, draw)
    leaf = worst_leaf(verdict) if verdict else None
    path = str(leaf["path"]) if leaf else ""
    found = next((each for each in _named(calls) if f"[{each[0]!r}]" in path), None)
    name, call, placing = found or (calls[0].name, calls[0], layouts.contiguous)
    worst = leaf["worst"] if leaf and found else None
    drawn = tensors((call.args, dict(call.kwargs)))
    args, kwargs = judging.on_tensors(lambda each: placing(each, CPU), (call.args, dict(call.kwargs)))
    said = {id(each): draw.expression(one) for each, one in zip(tensors((args, kwargs)), drawn, strict=True)}
    leaves: tuple[int, ...] = ()
    above: list[torch.Tensor] = []
    if case.property == BACKWARD:
        leaves = tuple(place for place, each in enumerate(drawn) if each.requires_grad)
        draw, above = drawn_above(operator, call, dtype)
        said |= {id(each): draw.expression(each) for each in above}
    return snippet(
        Reproduction(
            title=f"{case.id}: {name}",
            function=operator.function,
            definition=operator.definition,
            args=tuple(args),
            kwargs=kwargs,
            leaves=leaves,
            above=tuple(above),
            element=(place_of(path), tuple(worst["index"])) if worst else None,
            repeats=case.property == REPEAT,
            large=lambda each: said.get(id(each), ""),
        ),
        device,
    )


def worst_leaf(verdict: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the part of a verdict that its own figures are those of."""
    wrong = [each for each in verdict.get("leaves", ()) if not each["agrees"]]
    same = (each for each in wrong if each["worst"] == verdict["worst"])
    return next(same, wrong[0] if wrong else verdict)


def place_of(path: str) -> int:
    """Return the number of the output at the end of a path: 1 for "sort['3x5'][1]"."""
    last = path.rpartition("[")[2].rstrip("]")
    return int(last) if last.isdigit() else 0


def _named(calls: list[Call]) -> Iterator[tuple[str, Call, Placing]]:
    """Yield what a verdict may call a call, with the call and how it was placed."""
    for call in calls:
        yield call.name, call, layouts.contiguous
        for layout, placing in LAYOUTS.items():
            yield f"{call.name}, {layout}", call, placing
