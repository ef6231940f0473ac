"""One case of an operator of the corpus: as any other, with samples and results from its recording."""

from __future__ import annotations

import torch

from pytest_ascend.operators import layouts
from pytest_ascend.operators.layouts import Placing

from ..catalogue import RECORDED
from ..operator import Operator, Sample
from ..stored import BACKWARD, Results
from ..stored_tensor import StoredTensor
from ..subject import Subject
from .callables import Function, resolve
from .index import Entry
from .replay import Recording, operator_of, recording

#: Layouts that torch's CPU kernels were recorded in as well.
_LAYOUTS = ("transposed", "stepped")


class RecordedSubject(Subject):
    """An operator of the corpus in one dtype, for one property, on one device."""

    @property
    def entry(self) -> Entry:
        """What the corpus says of the operator."""
        return RECORDED[self.case.subject]

    @property
    def recording(self) -> Recording:
        """Its samples and results. Raises GoldenError."""
        return recording(self.store, self.entry.golden_id)

    def found(self) -> Operator:
        """Return the operator."""
        return operator_of(self.entry)

    def chosen(self) -> tuple[Sample, ...]:
        """Return the samples that show the property."""
        return self.recording.chosen(self.case.property, self.case.dtype)

    def shows(self, sample: Sample, property_: str) -> bool:
        """Whether a sample is one of those that show a property."""
        return sample in self.recording.chosen(property_, self.case.dtype)

    def usual(self, tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
        """Place a tensor in the layout that was recorded."""
        return layouts.as_it_is(tensor, device)

    def said(self, source: StoredTensor) -> str:
        """Return the Python that reads a tensor from the recording."""
        return self.recording.expression(source.number, self.dtype if source.follows else None)

    def stored(self, sample: Sample) -> Results:
        """Return the stored results of a sample."""
        return self.recording.results(sample, self.case.dtype, "forward")

    def stored_gradients(self, sample: Sample) -> Results:
        """Return the stored gradients of a sample, one for each input that has one."""
        return self.recording.results(sample, self.case.dtype, BACKWARD)

    def placings(self) -> dict[str, Placing]:
        """Return the layouts that were recorded."""
        return {name: layouts.LAYOUTS[name] for name in _LAYOUTS}

    def in_place(self) -> Function:
        """Return the variant that changes its first argument."""
        return resolve(self.entry.in_place)
