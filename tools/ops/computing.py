"""Results of recorded samples: the expected ones and those of correct kernels. Disputed samples are left out."""

from __future__ import annotations

import contextlib
import copy
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from pytest_ascend.operators.calling import Layout, out_targets, steps, surrounded
from pytest_ascend.operators.operator import Operator
from pytest_ascend.operators.reference import BACKWARD, CPU, SUM_LAYOUTS, Results, computed
from pytest_ascend.operators.replay import write
from pytest_ascend.operators.samples import FORWARD, Sample, StoredTensor

from . import second
from .packing import Packed, same_bits


@dataclass
class Tally:
    """What happened to samples: which references agreed, what was left out and why."""

    admitted: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True)
class Subject:
    """An operator being recorded: its entries in the database, its in-place variant, the dtypes of its gradients."""

    operator: Operator
    infos: tuple[Any, ...]
    in_place: Callable[..., Any] | None
    has_out: bool
    differentiable: frozenset[str]

    def differentiates(self, sample: Sample, dtype: str) -> bool:
        """Return whether a sample has a differentiable input, in a dtype in which the operator has gradients."""
        return dtype in self.differentiable and any(each.wants_grad(getattr(torch, dtype)) for each in sample.values())


class Disputed(ValueError):
    """A sample whose results cannot serve as a reference."""


def recorded(subject: Subject, sample: Sample, dtypes: tuple[str, ...], packed: Packed, tally: Tally) -> dict[str, Any]:
    """Return what is stored for a sample by dtype: results and properties. Unsupported dtypes are missing."""
    found = {dtype: _if_usable(subject, sample, dtype, packed, tally) for dtype in dtypes}
    return {dtype: said for dtype, said in found.items() if said}


def _if_usable(subject: Subject, sample: Sample, dtype: str, packed: Packed, tally: Tally) -> dict[str, Any]:
    try:
        with quiet():
            return _in_dtype(subject, sample, dtype, packed, tally)
    except Disputed as error:
        tally.refused[str(error)] += 1
    except Exception as error:  # noqa: BLE001 - the CPU does not support this call in this dtype
        tally.refused[f"{dtype}: {type(error).__name__}"] += 1
    return {}


def _in_dtype(subject: Subject, sample: Sample, dtype: str, packed: Packed, tally: Tally) -> dict[str, Any]:
    operator = subject.operator
    results, in_layouts = _computed(operator, sample, dtype)
    found = [each for each in (*results.expected, *results.reference_runs[0]) if each is not None]
    if not found:
        raise Disputed(f"{dtype}: gives no tensor")
    if any(each.layout is not torch.strided or each.is_quantized for each in found):
        raise Disputed(f"{dtype}: gives a tensor that is not strided")
    shapes = [[each.shape for each in some if each is not None] for some in (results.expected, *results.reference_runs)]
    if any(each != shapes[0] for each in shapes):
        raise Disputed(f"{dtype}: its shapes depend on the dtype")
    known = second.references(operator, subject.infos)
    name = second.agreeing(operator, sample, dtype, results.expected, known)
    if name is None:
        raise Disputed(f"{dtype}: the second reference disagrees")
    tally.admitted[name or "none"] += 1
    said: dict[str, Any] = {"forward": _packed(results, packed), "asked": [sample.group]}
    if sample.group != FORWARD:
        return said
    said["asked"] += ["layout"] if in_layouts else []
    said["asked"] += _shown(subject, sample, dtype, results)
    if subject.differentiates(sample, dtype):
        gradients = gradients_of(subject, sample, dtype, tally, SUM_LAYOUTS if in_layouts else SUM_LAYOUTS[:1])
        if gradients is not None:
            said[BACKWARD] = _packed(gradients, packed)
            said["asked"].append(BACKWARD)
    return said


def _computed(operator: Operator, sample: Sample, dtype: str) -> tuple[Results, bool]:
    """Return results, and whether the CPU gives the same from inputs in other layouts."""
    if any(each.shape and 0 not in each.shape for each in sample.values()):
        with contextlib.suppress(Exception):
            results = computed(operator, sample, dtype)
            usual, *others = results.reference_runs
            pairs = ((one, other) for one, *rest in zip(usual, *others, strict=True) for other in rest)
            existing = ((one, other) for one, other in pairs if one is not None and other is not None)
            if all(one.shape == other.shape and _near(one, other) for one, other in existing):
                return results, True
    return computed(operator, sample, dtype, SUM_LAYOUTS[:1]), False


def gradients_of(
    subject: Subject, sample: Sample, dtype: str, tally: Tally, layouts: tuple[Layout, ...]
) -> Results | None:
    """Return gradients if they exist and agree with finite differences."""
    try:
        results = computed(subject.operator, sample, dtype, layouts, backward=True)
        if all(each is None for each in results.expected):
            return None
        if not second.gradient_agrees(subject.operator, sample, dtype, results.expected):
            tally.refused[f"{dtype}: the gradient is not that of a difference"] += 1
            return None
    except Exception as error:  # noqa: BLE001 - the CPU has no gradient for this call in this dtype
        tally.refused[f"{dtype}: gradient: {type(error).__name__}"] += 1
        return None
    tally.admitted["difference"] += 1
    return results


def _shown(subject: Subject, sample: Sample, dtype: str, results: Results) -> Iterator[str]:
    """Yield further properties that the CPU handles correctly for this sample."""
    kind = getattr(torch, dtype)
    with contextlib.suppress(Exception):  # what the CPU refuses is not required of devices
        if subject.has_out and _out_works(subject, sample, kind, results):
            yield "out"
    with contextlib.suppress(Exception):
        if subject.in_place and _in_place_works(subject, sample, kind, results):
            yield "in-place"


def _near(one: torch.Tensor, other: torch.Tensor) -> bool:
    limit = 1e-5 if one.dtype in (torch.float32, torch.complex64) else 2e-2
    exact = not (one.is_floating_point() or one.is_complex())
    return torch.allclose(one, other, 0 if exact else limit, 0 if exact else limit, equal_nan=True)


def _out_works(subject: Subject, sample: Sample, kind: torch.dtype, results: Results) -> bool:
    if len(results.reference_runs[0]) != 1:
        return False
    for kind_of_target, whole in out_targets(results.first, CPU).items():
        target = steps(whole) if kind_of_target == "stepped" else whole
        args, kwargs = sample.arguments(subject.operator.name, kind)
        returned = subject.operator.function(*args, **kwargs, out=target)
        if returned is not target or not _near(target, results.first):
            return False
    return True


def _in_place_works(subject: Subject, sample: Sample, kind: torch.dtype, results: Results) -> bool:
    assert subject.in_place is not None
    if len(results.reference_runs[0]) != 1 or results.first.dtype is not kind:
        return False
    (first, *rest), kwargs = sample.arguments(subject.operator.name, kind)
    if not isinstance(first, torch.Tensor) or first.shape != results.first.shape or not first.ndim:
        return False
    for target in (first.clone(), steps(surrounded(first))):
        before = target._version  # noqa: SLF001  (this is its public name)
        returned = subject.in_place(target, *copy.deepcopy(rest), **kwargs)
        grown = target._version > before  # noqa: SLF001
        if returned is not target or not grown or not _near(target, results.first):
            return False
    return True


def _packed(results: Results, packed: Packed) -> list[list[int | str | None]]:
    """Store results, as few as necessary: see :class:`Recording`."""
    expected: list[int | str | None] = [None if each is None else packed.add(each) for each in results.expected]
    reference_runs = [
        [_one(*both, packed) for both in zip(results.expected, each, strict=True)] for each in results.reference_runs
    ]
    others = reference_runs[1:] if any(each != reference_runs[0] for each in reference_runs[1:]) else []
    return [expected, reference_runs[0], *others]


def _one(expected: torch.Tensor | None, reference_runs: torch.Tensor | None, packed: Packed) -> int | str | None:
    if expected is None or reference_runs is None:
        if expected is not reference_runs:
            raise Disputed("only some of the results exist")
        return None
    if same_bits(expected.to(reference_runs.dtype), reference_runs):
        return str(reference_runs.dtype).removeprefix("torch.")
    return packed.add(reference_runs)


def written(sample: Sample, packed: Packed) -> Mapping[str, Any]:
    """Return a sample's name and arguments as JSON values."""

    def held(source: StoredTensor) -> dict[str, Any]:
        said: dict[str, Any] = {"number": packed.add(source.tensor), "follows": source.follows}
        said |= {"grad": True} if source.grad else {}
        return said | ({"stride": list(source.stride)} if source.stride else {})

    args, kwargs = write(list(sample.args), held), write(dict(sample.kwargs), held)
    said = {"name": sample.name, "group": sample.group, "args": args, "kwargs": kwargs}
    return said | ({"all_bits": True} if sample.all_bits else {})


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Suppress warnings, as deprecated operators are recorded as well."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
