"""A failed model case as a program: the worst tensor, the allowed difference, exit code 0 or 1.

It needs pytest-ascend, which makes the weights and inputs of bundled models and imports users' own.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import partial

import torch

from pytest_ascend.records.verdict import Verdict
from pytest_ascend.run.case_context import Reproduce
from pytest_ascend.run.program import pinning, worst_leaf
from pytest_ascend.system.text import one_line

_HEAD = """\
# {title}
# It needs pytest-ascend, which makes the weights and the inputs.
from __future__ import annotations

{imports}

device, cpu = torch.device("{device}"), torch.device("cpu")
{pinning}{setup}
"""

_TENSORS = """\

print({decided!r})
raise SystemExit(not compare_named({actual}[{kind!r}], {exact}[{kind!r}], lambda: {reference_runs}[{kind!r}], {last}))
"""

_LAYERS = """\

report = layers({arguments}, device=device)
print("\\n".join(report.explain()))
raise SystemExit(not report.agrees)
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Computation:
    """How a program repeats a computation, as Python source.

    ``actual``, ``exact`` and ``reference_runs`` are expressions for tensors by kind and then by name: on ``device``, on
    ``cpu`` in float64, and on ``cpu`` in the case's dtype. ``layers`` are the arguments of :func:`precision.layers` if
    each module is judged separately. ``imports`` and ``setup`` are lines that these need.
    """

    imports: tuple[str, ...] = ()
    setup: tuple[str, ...] = ()
    actual: str = ""
    exact: str = ""
    reference_runs: str = ""
    layers: str = ""

    def reproduce(self, title: str, device: torch.device) -> Reproduce:
        """Return a function that writes the program of a case, for the fixture ``_ascend_reproduce``."""
        return partial(self._program, title, device)

    def _program(self, title: str, device: torch.device, verdict: Verdict | None) -> str:
        """Return the program. Raises ValueError if no tensor is named that can be computed again."""
        judge = "precision import layers" if self.layers else "run.program import compare_named"
        needed = {"import torch", f"from pytest_ascend.{judge}", *self.imports}
        needed |= {"import torch_npu"} if device.type == "npu" else set()
        head = _HEAD.format(
            title=one_line(title),
            imports="\n".join(sorted(needed, key=lambda line: (line.startswith("from"), line))),
            device=device,
            pinning="".join(f"{line}\n" for line in pinning(device)),
            setup="\n".join(self.setup),
        )
        if self.layers:
            return head + _LAYERS.format(arguments=self.layers)
        leaf = worst_leaf(verdict) if verdict else None
        kind, found, key = leaf.path.partition("[") if leaf else ("", "", "")
        if leaf is None or not found or leaf.worst is None or leaf.limit is None:
            raise ValueError("no tensor of it is named; the command that runs the case again shows the message")
        (name,) = ast.literal_eval(f"[{key}")
        worst, index = leaf.worst, leaf.worst.index
        return head + _TENSORS.format(
            decided=f"decided by {name}, element {index}: {worst.actual} in the run, {worst.expected} expected",
            actual=self.actual,
            exact=self.exact,
            reference_runs=self.reference_runs,
            kind=kind,
            last=f"{name!r}, {index}, {(leaf.limit.name, float(leaf.limit.value))}",
        )
