"""One case on its way: what it calls, where, and what was stored of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from pytest_ascend.dispatching import unseen
from pytest_ascend.golden import GoldenStore
from pytest_ascend.operators import layouts
from pytest_ascend.operators.layouts import Placing
from pytest_ascend.records.case import Case

from .catalogue import OPERATORS
from .evaluate import double, forward, gradients, upstream, with_grad
from .operator import Operator, Sample
from .properties import chosen
from .stored import BACKWARD, HONEST, Results, read
from .trees import on_leaves


class Subject:
    """An operator in one dtype, for one property, on one device; its samples are those of the catalogue."""

    def __init__(self, case: Case, device: torch.device, store: GoldenStore) -> None:
        self.case, self.device, self.store = case, device, store
        self.dtype: torch.dtype = getattr(torch, case.dtype)
        self.operator = self.found()
        self.samples = self.chosen()
        self._drawn: dict[str, Any] = {}
        self._above: dict[str, list[torch.Tensor]] = {}
        #: The sample that was called last, and how it was placed.
        self.latest: tuple[Sample, Placing] | None = None

    def found(self) -> Operator:
        """Return the operator."""
        return OPERATORS[self.case.subject]

    def chosen(self) -> tuple[Sample, ...]:
        """Return the samples that show the property."""
        return chosen(self.operator, self.case.property, self.case.dtype)

    def shows(self, sample: Sample, property_: str) -> bool:
        """Whether a sample is one of those that show a property."""
        return sample in chosen(self.operator, property_, self.case.dtype)

    def on_cpu(self, sample: Sample) -> Any:
        """Make the arguments of a sample on the CPU: a tuple and a dictionary."""
        drawn = self._drawn.get(sample.name)
        if drawn is None:
            with unseen():
                drawn = sample.arguments(self.operator.name, self.dtype)
            if self.device.type != "cpu":  # where nothing is copied, what is drawn would be written to
                self._drawn[sample.name] = drawn
        return drawn

    def arguments(
        self, sample: Sample, placing: Placing = layouts.contiguous, device: torch.device | None = None
    ) -> Any:
        """Make the arguments of a sample on a device: the one under test, unless another is named."""
        self.latest = sample, placing
        given = self.on_cpu(sample)
        with unseen():  # copies only
            return self.placed(given, placing, device or self.device)

    def usual(self, tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
        """Place a tensor where no layout is asked for."""
        return layouts.contiguous(tensor, device)

    def placed(self, arguments: Any, placing: Placing, device: torch.device) -> Any:
        """Put arguments onto a device, and that device where one is named among them."""
        there = self.usual if placing is layouts.contiguous else placing

        def put(leaf: Any) -> Any:
            if isinstance(leaf, torch.Tensor):
                return there(leaf, device)
            return device if isinstance(leaf, torch.device) or leaf == "cpu" else leaf  # some name it by a text

        return on_leaves(put, arguments)

    def said(self, _: Any) -> str:
        """Return the Python that reads a tensor of a sample from where it is stored; "" where it is not stored."""
        return ""

    def stored(self, sample: Sample) -> Results:
        """Return the stored results of a sample."""
        return read(self.store, self.operator, self.case.dtype, "forward", sample)

    def is_long(self, name: str) -> bool:
        """Whether the result of this name is of a sample with the longest sums."""
        return any(each.is_long and name.startswith(each.name) for each in self.samples)

    def placings(self) -> dict[str, Placing]:
        """Return the layouts that the operator is asked for."""
        left_out = () if self.operator.channels_last else ("channels-last",)
        return {name: placing for name, placing in layouts.LAYOUTS.items() if name not in left_out}

    def run(self, sample: Sample, placing: Placing = layouts.contiguous) -> list[torch.Tensor]:
        """Call on the device and bring the results back."""
        return self.fetched(forward(self.operator.function, *self.arguments(sample, placing)))

    def fetched(self, outputs: Iterable[torch.Tensor | None]) -> list[Any]:
        """Bring results to the CPU, having seen that they are where they were to be computed."""
        with unseen():
            return [each if each is None else self._fetched(each) for each in outputs]

    def _fetched(self, output: torch.Tensor) -> torch.Tensor:
        name, where = self.operator.name, output.device
        assert where == self.device, f"{name}: a result is on {where} instead of {self.device}"
        return output.cpu()

    def stored_gradients(self, sample: Sample) -> Results:
        """Return the stored gradients of a sample, one for each input that has one."""
        count = sum(values.wants_grad(self.dtype) for values in sample.values())
        return read(self.store, self.operator, self.case.dtype, BACKWARD, sample, count)

    def go_back(self, sample: Sample, placing: Placing = layouts.contiguous) -> list[torch.Tensor | None]:
        """Call on the device, go back, and bring the gradients to the CPU; what comes from above is placed as well."""

        def above(outputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
            with unseen():
                if sample.name not in self._above:
                    self._above[sample.name] = upstream(self.operator, sample, outputs, self.dtype)
                return [placing(each, self.device) for each in self._above[sample.name]]

        args, kwargs = self.arguments(sample, placing)
        leaves = with_grad(sample, (args, kwargs), self.dtype)
        return self.fetched(gradients(self.operator.function, args, kwargs, leaves, above))

    def in_place(self) -> Callable[..., Any]:
        """Return the variant that changes its first argument."""
        found: Callable[..., Any] = getattr(torch.Tensor, self.operator.name.partition(".")[0] + "_")
        return found

    def stored_in_place(self, sample: Sample) -> Results:
        """Return the stored results as they stand in a tensor of the case's dtype: comparisons give 0 and 1."""
        return in_dtype(self.stored(sample), self.dtype)


def in_dtype(results: Results, dtype: torch.dtype) -> Results:
    """Return results as they stand in a tensor of this dtype: comparisons give 0 and 1."""
    if results.first.dtype is not torch.bool or dtype is torch.bool:
        return results
    with unseen():
        written: torch.Tensor = results.first.to(dtype)
        return Results([double(written)], tuple([written] for _ in HONEST))
