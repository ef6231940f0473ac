"""Whether a golden of the catalogue can be trusted: a second reference, of other code than the first, has to agree."""

from __future__ import annotations

from pytest_ascend.operators.operator import Operator
from pytest_ascend.operators.reference import Results
from pytest_ascend.operators.samples import Sample

from .database import database
from .scientific import CATALOGUE
from .second import DEFINITION, NUMPY, Limits, agreeing, references

#: Longer sums and other formulas lose a few digits of float64.
NARROW: Limits = (1e-11, 1e-13)


def reference_of(operator: Operator) -> str:
    """Say what the second reference is, as the golden's meta does."""
    kinds = [kind for kind, _ in references(operator, database().get(operator.name, ()), CATALOGUE)]
    if NUMPY in kinds:
        return "numpy float64"
    return DEFINITION if kinds else "no second reference: torch's own kernels in the dtype agree"


def admit(operator: Operator, sample: Sample, dtype: str, results: Results) -> str:
    """Return the second reference that agrees, "" if there is none. Raises AssertionError if all disagree."""
    known = references(operator, database().get(operator.name, ()), CATALOGUE)
    name = agreeing(operator, sample, dtype, results.expected, known, NARROW)
    assert name is not None, f"{operator.name}, {dtype}: {sample.name}: the second reference disagrees"
    return name
