"""How the goldens of operators are made: in float64 on the CPU, accepted only if a second reference agrees."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial

import torch
from msgspec import convert

from pytest_ascend.golden import Golden, GoldenRecipe, GoldenStore
from pytest_ascend.operators import replay
from pytest_ascend.operators.operator import Operator, chosen
from pytest_ascend.operators.reference import BACKWARD, Results, computed, golden_id, inputs_hash, stored_samples
from pytest_ascend.operators.samples import Sample
from suites.ops.table import OPERATORS

from .database import database
from .operators import record
from .packing import named, save
from .scientific import CATALOGUE
from .second import DEFINITION, NUMPY, Limits, Reference, agreeing, references
from .table import names

#: For the catalogue's samples: longer sums and other formulas lose a few digits of float64.
NARROW: Limits = (1e-11, 1e-13)
HOW = (
    "each sample of the catalogue, its inputs rounded to the dtype, then computed by torch on the CPU in float64 "
    "(integers and bool: exactly, in their own dtype); gradients by autograd in float64; beside each the result of "
    "torch's CPU kernels in the dtype itself, marked '~'"
)
RECORDED_HOW = (
    "samples of torch's database of operators, in numbers that every floating dtype holds, then as those of the "
    "catalogue; gradients are held against differences"
)


def goldens() -> Iterable[GoldenRecipe]:
    """Return one recipe for each operator of the catalogue and for each recorded one."""
    return [
        *(
            GoldenRecipe(
                id=golden_id(operator),
                make=partial(_catalogued, operator),
                how=HOW,
                seed=f"ops/{operator.name}",
                meta={"inputs": {dtype: inputs_hash(operator, dtype) for dtype in operator.dtypes}},
            )
            for operator in OPERATORS.values()
        ),
        *(
            GoldenRecipe(
                id=replay.PREFIX + name, make=partial(record, name), how=RECORDED_HOW, seed=replay.PREFIX + name
            )
            for name in names()
        ),
    ]


def built(store: GoldenStore) -> None:
    """Rewrite the list of recorded operators from their goldens."""
    wanted = {replay.PREFIX + name for name in names()}
    found = (store.read(each).meta["entry"] for each in store.ids() if each in wanted)
    save(convert(each, replay.Entry) for each in found)


def _catalogued(operator: Operator) -> Golden:
    kinds = [kind for kind, _ in _references(operator)]
    without = "no second reference: torch's own kernels in the dtype agree"
    by = "numpy float64" if NUMPY in kinds else DEFINITION if kinds else without
    return Golden(golden_id(operator), make(operator), {"admitted_by": f"torch float64; {by}"})


def _references(operator: Operator) -> list[Reference]:
    return list(references(operator, database().get(operator.name, ()), CATALOGUE))


def admit(operator: Operator, sample: Sample, dtype: str, results: Results) -> None:
    """Raise AssertionError if second references exist, with other code than the first, and all disagree."""
    name = agreeing(operator, sample, dtype, results.expected, _references(operator), NARROW)
    assert name is not None, f"{operator.name}, {dtype}: {sample.name}: the second reference disagrees"


def make(operator: Operator) -> Mapping[str, torch.Tensor]:
    """Compute all results of one operator. Raise AssertionError if two references do not agree."""
    tensors: dict[str, torch.Tensor] = {}
    for dtype in operator.dtypes:
        for sample in stored_samples(operator, dtype):
            results = computed(operator, sample, dtype)
            admit(operator, sample, dtype, results)
            tensors |= named(dtype, "forward", sample, results)
        for sample in chosen(operator, BACKWARD, dtype):
            tensors |= named(dtype, BACKWARD, sample, computed(operator, sample, dtype, backward=True))
    return tensors
