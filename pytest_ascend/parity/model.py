"""Any model compared with itself on the CPU: outputs, layers, gradients, training, memory; programs of failed cases.

A program needs pytest-ascend, which makes the weights and inputs of bundled models and imports those of users.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from pytest_ascend.device import Device
from pytest_ascend.migration.target import TargetModel, floating
from pytest_ascend.parity import language
from pytest_ascend.parity.ensemble import Observed, Reference, first_wrong, reference, trace
from pytest_ascend.parity.training import Batch, Recipe, moved, train
from pytest_ascend.precision.capture import casting
from pytest_ascend.precision.whole import ModuleResults, outputs_and_gradients
from pytest_ascend.records.case import Case, Measure
from pytest_ascend.records.verdict import Verdict
from pytest_ascend.run import inputs
from pytest_ascend.run.case_context import Reproduce
from pytest_ascend.run.comparing import PrecisionCompare
from pytest_ascend.run.program import pinning, worst_leaf
from pytest_ascend.system.dispatching import one_thread
from pytest_ascend.system.errors import UsageError
from pytest_ascend.system.text import one_line

#: Steps, learning rate and epsilon of a training: enough for the optimizer's state to matter, for any model.
STEPS, RATE, EPS = 6, 1e-4, 1e-3

CPU = torch.device("cpu")

#: Number of perturbed reference runs for a model of unknown size.
MOVES = 3


@dataclass(frozen=True, slots=True)
class ModelParity:
    """The cases of one model on one device. ``compare`` and ``measure`` are the fixtures of the running test."""

    target: TargetModel
    device: Device
    compare: PrecisionCompare
    measure: Measure

    def check(self, case: Case) -> None:
        """Run one case. Raises Disagreement if device and CPU disagree."""
        autocast, _, what = case.property.rpartition("-")
        named = getattr(torch, case.dtype)
        dtype, casting = (torch.float32, named) if autocast else (named, None)
        with one_thread():
            if what == "layers":
                # Every module by itself, forward and backward; the first wrong one is named.
                self.compare.layers(_still(self.target.model), *self.target.args, **self.target.kwargs)
            elif what == "memory":
                self._memory()
            elif what == "training":
                self._compare_training(dtype, casting)
            elif what == "generate":
                # Texts are continued token by token; tokens, logits and each layer's results are judged.
                found = language.Generation.of(self.target, self.device.torch_device(), dtype, casting)
                for name, value in found.figures():
                    self.measure(name, value)
                found.judge(self.compare)
            else:
                # Outputs or gradients are judged as :func:`pytest_ascend.precision.whole` does.
                model = _still(self.target.model).to(dtype)
                args, kwargs = moved(CPU, dtype, (self.target.args, dict(self.target.kwargs)))
                with torch.set_grad_enabled(what == "gradients"):
                    both = ModuleResults.of(model, args, kwargs, self.device.torch_device(), casting)
                    actual, expected = (_judged(what, each) for each in (both.actual, both.expected))
                    self.compare(actual, expected, name=what)

    def _memory(self) -> None:
        """Measure the peak memory of a training, and check that it does not grow with steps."""
        model = copy.deepcopy(self.target.model).to(self.device.torch_device())
        peaks = []
        for _ in range(2):
            self.device.reset_peak_memory()
            train(model, _recipe(self.target, None), self.device.torch_device())
            peaks.append(self.device.peak_memory_bytes())
        first, again = peaks
        self.measure("memory_training_bytes", float(first))
        # The gradients of the first training still exist when the second one begins.
        kept = sum(each.numel() * each.element_size() for each in model.parameters())
        self.compare(again <= first + kept + first // 50, True, name="memory does not grow from training to training")

    def _compare_training(self, dtype: torch.dtype, autocast: torch.dtype | None) -> None:
        actual, right = self._on_both(train, dtype, autocast)
        for kind, found in actual.items():
            for name, values in right.losses(found["losses"]) if kind == "curve" else ():
                self.measure(name, values)
            if found:
                # Devices have their own autocast lists, so results may have other dtypes.
                self.compare(
                    dict(found),
                    right.expected(kind),
                    reference_runs=right.samples(kind, found if autocast is not None else None),
                    name=kind,
                    branching=kind in {"weights", "state"},
                    locate=partial(self._first_wrong_step, dtype, autocast, actual),
                )

    def _on_both(
        self, by: Callable[..., Observed], dtype: torch.dtype, autocast: torch.dtype | None
    ) -> tuple[Observed, Reference]:
        """Return the results of a few steps of AdamW, or, by :func:`trace`, fingerprints of all quantities in them."""
        model = _still(self.target.model).to(dtype)
        actual = by(copy.deepcopy(model), _recipe(self.target, autocast), self.device.torch_device())
        exactly, in_dtype = (partial(by, recipe=_recipe(self.target, each)) for each in (None, autocast))
        return actual, reference(model, exactly, in_dtype, autocast, MOVES, orders=by is trace)

    def _first_wrong_step(self, dtype: torch.dtype, autocast: torch.dtype | None, actual: Observed, _: Verdict) -> str:
        any_dtype = autocast is not None
        if found := first_wrong(*self._on_both(trace, dtype, autocast), branching=True, any_dtype=any_dtype):
            return found
        none = "trained again to find the first wrong step, no single step is further off than reference runs"
        again = computed(self.target, "training", self.device.torch_device(), dtype, autocast)
        same = all(torch.equal(each, again[kind][name]) for kind in actual for name, each in actual[kind].items())
        return f"{none}: the error adds up" if same else f"{none}, and results change from one training to the next"


def _still(model: nn.Module) -> nn.Module:
    """Return a copy in evaluation mode, since random layers in training cannot be compared."""
    return copy.deepcopy(model).eval()


def _recipe(target: TargetModel, autocast: torch.dtype | None) -> Recipe:
    if next(target.model.parameters(), None) is None:
        hint = "leave these cases out: -k 'not training and not memory'"
        raise UsageError(f"{target.name} has no parameters, so that nothing can be trained", hint=hint)
    return Recipe(
        batches=(Batch(target.args, dict(target.kwargs)),),
        loss=loss_of,
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=RATE, eps=EPS),
        steps=STEPS,
        autocast=autocast,
        evaluation=True,
    )


def loss_of(output: Any, batch: Batch) -> Tensor:  # noqa: ARG001 - has the signature of other losses
    """Return the model's own loss, or the mean squared distance of its outputs from fixed random numbers."""
    found = floating(output)
    if "output.loss" in found:
        return found["output.loss"]
    means = []
    for name, each in found.items():
        if each.requires_grad:
            wide = each if each.dtype is torch.float64 else each.float()
            wanted = torch.ones_like(wide)
            if wide.dim():
                wanted = inputs.uniform(f"parity/seed/{name}", tuple(wide.shape)).to(wide)
            means.append((wide - wanted).square().mean())
    return torch.stack(means).sum()


def computed(
    target: TargetModel, what: str, device: torch.device, dtype: torch.dtype, autocast: torch.dtype | None = None
) -> Observed:
    """Return the tensors that a case compares, by kind and name, computed by a copy of the model in a dtype."""
    model = _still(target.model).to(device, dtype)
    if what == "training":
        return train(model, _recipe(target, autocast), device)
    args, kwargs = moved(device, dtype, (target.args, dict(target.kwargs)))
    with torch.set_grad_enabled(what == "gradients"):
        found = outputs_and_gradients(model, args, kwargs, casting(device.type, autocast))
    return {what: _judged(what, found)}


def _judged(what: str, found: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return the floating-point tensors of the output, or the gradients of the parameters, by name."""
    return floating(found["output"]) if what == "forward" else dict(found["grad"])


def computation(case: Case, name: str, inputs: str) -> Computation:
    """Return how a program repeats a case, for a model and inputs that can be named."""
    autocast, _, what = case.property.rpartition("-")
    dtypes = f"torch.float32, torch.{case.dtype}" if autocast else f"torch.{case.dtype}"
    imports = ("from pytest_ascend.migration import target",)
    setup = (f"given = target.target_model({name!r}, {inputs!r})",)
    if what == "generate":
        again = "dict(generate=of_target(given, cpu, {}, tokens=made.tokens).tensors())"
        return Computation(
            imports=(*imports, "from pytest_ascend.parity.language import of_target"),
            setup=(*setup, f"made = of_target(given, device, {dtypes})"),
            actual="dict(generate=made.tensors())",
            exact=again.format("torch.float64"),
            reference_runs=again.format(dtypes),
        )
    return Computation(
        imports=(*imports, "from pytest_ascend.parity.model import computed"),
        setup=setup,
        actual=f"computed(given, {what!r}, device, {dtypes})",
        exact=f"computed(given, {what!r}, cpu, torch.float64)",
        reference_runs=f"computed(given, {what!r}, cpu, {dtypes})",
        layers="given.model.eval(), *given.args, **given.kwargs" if what == "layers" else "",
    )


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
    ``cpu`` in float64, and on ``cpu`` in the case's dtype. ``layers`` holds the arguments of :func:`precision.layers`
    if each module is judged separately. ``imports`` and ``setup`` are lines required by these.
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
        """Return the program. Raises ValueError if the verdict names no tensor that can be recomputed."""
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
