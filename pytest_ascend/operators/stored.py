"""The golden of an operator of the catalogue: the names of its results, and reading them."""

from __future__ import annotations

import functools
import hashlib
import itertools
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from pytest_ascend.golden import Golden, GoldenStore
from pytest_ascend.operators.calling import double
from pytest_ascend.operators.operator import Operator
from pytest_ascend.operators.properties import STORED, chosen
from pytest_ascend.operators.reference import Definition, Results
from pytest_ascend.operators.samples import EXACT, Sample
from pytest_ascend.precision.formulas import active
from pytest_ascend.system.dispatching import unseen
from pytest_ascend.system.errors import GoldenError

#: Suffixes of a result's name: the reference runs by torch's CPU kernels in the dtype of the case, from contiguous
#: inputs and from those of other layouts.
REFERENCE_RUN = ("~", "~stepped", "~transposed")
#: The expected results, and the reference runs.
_SIDES = 1 + len(REFERENCE_RUN)
BACKWARD = "backward"


@dataclass(frozen=True, slots=True)
class StoredGolden:
    """The reference of an operator of the catalogue: its golden. Raises GoldenError as :func:`load` does."""

    operator: Operator
    store: GoldenStore

    def samples(self, property_: str, dtype: str) -> tuple[Sample, ...]:
        """Return the samples for a property in a dtype."""
        return chosen(self.operator, property_, dtype)

    def expect(self, sample: Sample, dtype: str, *, backward: bool = False) -> Results:
        """Return the stored results of a call, or its gradients: one for each input that has one."""
        if active() == "reference" or sample.group == EXACT:
            return Definition(self.operator).expect(sample, dtype, backward=backward)
        count = sum(values.wants_grad(getattr(torch, dtype)) for values in sample.values()) if backward else 0
        return read(self.store, self.operator, dtype, BACKWARD if backward else "forward", sample, count)


def golden_id(operator: Operator) -> str:
    """Return the id of an operator's golden."""
    return f"ops/{operator.name}"


def place(dtype: str, part: str, sample: Sample, position: int) -> str:
    """Return the name of one tensor: of its dtype, "forward" or "backward", sample, and output or input."""
    return f"{dtype}/{part}/{sample.name}/{position}"


def stored_samples(operator: Operator, dtype: str) -> tuple[Sample, ...]:
    """Return the samples with stored results: of properties that need results of their own."""
    found = [sample for group in STORED for sample in chosen(operator, group, dtype)]
    return tuple({sample.name: sample for sample in found}.values())


def description(operator: Operator, dtype: str) -> str:
    """Return a hash of a golden's inputs: if it differs, the golden is of another catalogue."""
    said = repr([(each.name, each.args, dict(each.kwargs)) for each in stored_samples(operator, dtype)])
    return hashlib.sha256(said.encode()).hexdigest()[:16]


@functools.cache
def load(store: GoldenStore, operator: Operator) -> Golden:
    """Read an operator's golden, once. Raises GoldenError if it is damaged, or made from other inputs."""
    golden = store.read(golden_id(operator))
    stale = [each for each in operator.dtypes if golden.meta["inputs"].get(each) != description(operator, each)]
    if stale:
        raise GoldenError(
            f"the golden {golden.id!r} was made from other samples than the catalogue has now for {', '.join(stale)}",
            path=str(store.path(golden.id)),
            hint=f"build it again: 'pytest-ascend baseline build {golden.id}'",
        )
    return golden


def read(  # noqa: PLR0917
    store: GoldenStore, operator: Operator, dtype: str, part: str, sample: Sample, count: int = 0
) -> Results:
    """Return the results of one call; ``count`` is their number if some may be None.

    Raises GoldenError as :func:`load` does.
    """
    tensors = load(store, operator).tensors
    names = (place(dtype, part, sample, position) for position in itertools.count())
    found = list(itertools.islice(names, count) if count else itertools.takewhile(tensors.__contains__, names))
    with unseen():
        sides = zip(*(_result(tensors, name) for name in found), strict=True) if found else [()] * _SIDES
        expected, *reference_runs = sides
    return Results(list(expected), tuple(map(list, reference_runs)))


def _result(tensors: Mapping[str, torch.Tensor], name: str) -> tuple[torch.Tensor | None, ...]:
    """Return the expected result, then the reference runs: as stored, or else the first, or else the expected."""
    expected, usual = tensors.get(name), tensors.get(name + REFERENCE_RUN[0])
    if expected is None:
        return (None,) * _SIDES
    if usual is None:
        expected, usual = double(expected), expected
    elif usual.shape != expected.shape:
        usual = expected.to(usual.dtype)
    return expected, usual, *(tensors.get(name + suffix, usual) for suffix in REFERENCE_RUN[1:])
