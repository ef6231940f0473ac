"""How to judge a comparison, validated before anything is computed: by a standard, a row of ``standards.json``."""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np
import torch

from pytest_ascend.precision.formats import ALLOWANCES, FORMATS, REAL_PARTS, Format, dtype_name
from pytest_ascend.precision.nested import kind
from pytest_ascend.records.verdict import Verdict
from pytest_ascend.system.bundled import table
from pytest_ascend.system.errors import UsageError, choice

Numbers = Mapping[str, float]
#: The key for dtypes without a row of their own; the default standard.
ANY, DEFAULT = "any", "error-model"


@dataclass(frozen=True, kw_only=True, slots=True)
class Standard:
    """A rule with its numbers by dtype. ``rule`` names the function in :mod:`pytest_ascend.precision.floating`.

    ``upper`` names the numbers that are looser if they are larger; the others are looser if they are smaller.
    """

    name: str
    revision: str
    source: str
    rule: str
    limits: Mapping[str, Numbers]
    upper: frozenset[str] = field(default=frozenset())
    waiver: str = ""

    @property
    def label(self) -> str:
        """Return name and revision, as in reports."""
        return f"{self.name}@{self.revision}"

    def numbers(self, dtype: str) -> Numbers:
        """Return the numbers for a dtype (torch's name). Raises :class:`UsageError` if the standard has none."""
        found = self.limits.get(dtype) or self.limits.get(ANY)
        if found is None:
            raise UsageError(
                f"standard {self.label} says nothing about {dtype}: it knows {', '.join(sorted(self.limits))}",
                hint=f"judge {dtype} by another standard, such as {DEFAULT}",
            )
        return found


def _standard(*, dtypes: list[str], limits: dict[str, list[float | str]], upper: list[str], **row: str) -> Standard:
    """Return a standard from a row of ``standards.json``, whose limits have a number for each dtype."""
    numbers = {dtype: {key: _number(each[at]) for key, each in limits.items()} for at, dtype in enumerate(dtypes)}
    return Standard(**row, limits=MappingProxyType(numbers), upper=frozenset(upper))


def _number(given: float | str) -> float:
    """Return a number, parsed if it is a string such as "2^-10" or "10 * 2^-10"."""
    if not isinstance(given, str):
        return given
    factor, _, exponent = given.partition("2^")
    return float(factor.rstrip("* ") or 1) * 2.0 ** int(exponent)


_ROWS = (
    Standard(
        name=DEFAULT,
        revision="1",
        source="this project: docs/precision.md",
        rule="model",
        limits={ANY: {key: float(value) for key, value in asdict(ALLOWANCES).items()}},
        upper=frozenset(asdict(ALLOWANCES)) - {"luck"},
    ),
    *(_standard(**row) for row in table("precision/standards.json")),
)

#: Every standard by name and revision; a bare name stands for its latest revision.
STANDARDS: Mapping[str, Standard] = MappingProxyType({row.label: row for row in _ROWS})


def standard_of(name: str | Standard | None) -> Standard:
    """Return a standard by name, or the default. Raises :class:`UsageError` for an unknown one."""
    if isinstance(name, Standard):
        return name
    wanted = DEFAULT if name is None else name
    found = next((row for row in reversed(_ROWS) if wanted in (row.label, row.name)), None)
    if found is None:
        raise UsageError(f"there is no standard {wanted!r}", hint=choice(str(wanted), STANDARDS))
    return found


def adjusted(standard: Standard, dtype: str, limits: Mapping[str, float], waiver: str) -> Standard:
    """Return the standard with some of its numbers replaced for ``dtype``.

    A tighter number needs no reason; a looser one needs a waiver, without which :class:`UsageError` is raised.
    """
    numbers = standard.numbers(dtype)
    if not limits:
        return standard
    looser = [key for key, x in limits.items() if (x > numbers[key] if key in standard.upper else x < numbers[key])]
    if looser and not waiver:
        (name, *_), hint = looser, "give a reason with waiver='...': it is then counted as a waiver"
        usual = f"the {numbers[name]:g} of standard {standard.label}"
        raise UsageError(f"{name}={limits[name]:g} is looser than {usual}", hint=hint)
    changed = {**standard.limits, dtype: {**numbers, **limits}}
    return replace(standard, limits=changed, waiver=waiver if looser else "")


def as_tensor(value: Any, path: str, number: torch.dtype | None = None) -> torch.Tensor:
    """Return a tensor for anything that holds numbers; a Python float gets the dtype ``number``.

    Memory-mapped files stay mapped: only the pages in use of a numpy.memmap, or of a slice of a safetensors file
    (opened for "pt"), are in memory. Raises :class:`UsageError` for anything else.
    """
    if callable(getattr(value, "get_shape", None)) and callable(getattr(value, "get_dtype", None)):
        value = value[...]  # a view of the mapped file
    if isinstance(value, torch.Tensor):
        if value.device.type == "meta":
            raise UsageError(f"{path} is a meta tensor: it has no values", hint="compare tensors that were computed")
        if value.is_nested:
            raise UsageError(f"{path} is a nested tensor", hint="compare what it is made of, with unbind()")
        if value.layout is not torch.strided:
            value = value.to_dense()
        if value.is_quantized:
            value = value.int_repr()
        plain: torch.Tensor = value.detach().resolve_conj().resolve_neg()
        return plain.clone() if plain._is_zerotensor() else plain  # noqa: SLF001 - a gradient without memory (sgn)
    if isinstance(value, bool | int | complex | float):
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise UsageError(f"{path} is {value}, which no integer dtype holds", hint="compare it without the judge")
        return torch.tensor(value, dtype=number if isinstance(value, float) else None, device="cpu")
    if isinstance(value, np.ndarray | np.generic):
        with contextlib.suppress(TypeError), warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="The given NumPy array is not writable")  # it is never written
            array = np.asarray(value)
            array = array.astype(array.dtype.newbyteorder("="), copy=min(array.strides, default=0) < 0)
            return torch.from_numpy(array)  # it supports neither foreign byte order nor negative strides
    hint = "give tensors, arrays, numbers, or structures of these"
    raise UsageError(f"{path} is {kind(value)}, which holds no numbers that can be compared", hint=hint)


#: The kind of a dtype, by default the dtype itself. Dtypes of the same kind can be compared by value.
_KINDS = dict.fromkeys(FORMATS, "floating") | dict.fromkeys(REAL_PARTS, "complex")


def differences(
    actual: torch.Tensor, expected: torch.Tensor, reference_runs: Sequence[torch.Tensor], promise: Request, *given: Any
) -> Iterator[str]:
    """Yield the wrong attributes of ``actual``; ``given`` are the original values of ``actual`` and ``expected``.

    With a float64 reference any floating-point dtype is correct, unless one is promised or reference runs have one.
    """
    dtype: Any = reference_runs[0].dtype if reference_runs else expected.dtype
    if promise.dtype is not None:
        dtype = getattr(torch, promise.dtype.removeprefix("torch."), None)
        if not isinstance(dtype, torch.dtype):
            raise UsageError(f"there is no dtype {promise.dtype!r}", hint="give torch's name, such as float16")
    is_free = promise.dtype is None and not reference_runs and dtype in (torch.float64, torch.complex128)
    if actual.dtype is not dtype and not is_free:
        yield f"dtype: expected {dtype_name(dtype)}, got {dtype_name(actual.dtype)}"
    elif _KINDS.get(actual.dtype, actual.dtype) != (wanted := _KINDS.get(expected.dtype, expected.dtype)):
        name = wanted if isinstance(wanted, str) else dtype_name(wanted)
        yield f"dtype: expected {name} numbers, got {dtype_name(actual.dtype)}"
    if actual.shape != expected.shape:
        yield f"shape: expected {tuple(expected.shape)}, got {tuple(actual.shape)}"
    # Devices are compared by name: torch has no device "npu" before torch_npu is loaded.
    own = actual.device
    names = {own.type, str(own), *([f"{own.type}:0"] if own.index is None else [])}
    if promise.device is not None and promise.device not in names:
        yield f"device: expected {promise.device}, got {actual.device}"
    if promise.stride is not None and promise.stride is not False:
        stride = expected.stride() if promise.stride is True else _checked(promise.stride, actual)
        if significant(actual.shape, actual.stride()) != significant(actual.shape, stride):
            yield f"stride: expected {stride}, got {actual.stride()}"
    asks = getattr(given[0], "requires_grad", False)
    if promise.requires_grad is not None and asks != promise.requires_grad:
        yield f"requires_grad: expected {promise.requires_grad}, got {asks}"
    quantized = [each.dequantize() for each in given if getattr(each, "is_quantized", False)]
    if len(quantized) == 2 and torch.equal(actual, expected) and not torch.equal(*quantized):
        yield "quantization: the integers are equal, but their scales or zero points differ"


def _checked(stride: Any, actual: torch.Tensor) -> tuple[int, ...]:
    found = tuple(stride) if isinstance(stride, tuple | list) else ()
    if len(found) != actual.dim() or not all(isinstance(each, int) for each in found):
        hint = "give one whole number for each dimension, or True for the strides of expected"
        raise UsageError(f"stride is {stride!r:.80}, for a tensor of {actual.dim()} dimensions", hint=hint)
    return found


def significant(shape: Sequence[int], stride: Sequence[int]) -> list[int]:
    """Return the strides of dimensions with more than one element; the others have no effect."""
    return [step for size, step in zip(shape, stride, strict=False) if size > 1]


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """How to judge: the standard, changed limits with the reason for looser ones, and known properties of the result.

    Raises :class:`UsageError` for contradictory settings.
    """

    standard: Standard
    limits: Mapping[str, float] = field(default_factory=dict)
    waiver: str = ""
    #: As in :func:`pytest_ascend.precision.compare`; a missing scale is derived from the expected values.
    accumulation: int | None = None
    scale: float | None = None
    branching: bool = False
    #: Promised attributes of an output other than its values; None if not checked.
    dtype: str | None = None
    device: str | None = None
    stride: bool | tuple[int, ...] | None = None
    requires_grad: bool | None = None
    #: Whether more reference runs can be computed if these do not explain an error.
    sampled: bool = False

    def __post_init__(self) -> None:
        terms = self.accumulation
        if terms is not None and (not isinstance(terms, int) or isinstance(terms, bool) or terms < 1):
            hint = "give the number of terms in each sum, at least 1, or leave it out"
            raise UsageError(f"accumulation is {self.accumulation!r}", hint=hint)
        if self.scale is not None and not (_is_number(self.scale) and self.scale > 0):
            hint = "give the usual sum of the terms' magnitudes, or leave it out"
            raise UsageError(f"scale is {self.scale!r}", hint=hint)
        if self.limits:
            if not isinstance(self.limits, Mapping):
                hint = "give limits by name, as in {'element_ulps': 1.0}"
                raise UsageError(f"limits is {self.limits!r:.80}", hint=hint)
            known = {key for numbers in self.standard.limits.values() for key in numbers}
            if unknown := [name for name in self.limits if name not in known]:
                hint = f"it has: {', '.join(sorted(known))}"
                raise UsageError(f"standard {self.standard.label} has no limit {unknown[0]!r}", hint=hint)
            for name, value in self.limits.items():
                if not (_is_number(value) and value >= 0):
                    raise UsageError(f"the limit {name} is {value!r:.80}", hint="give a number that is not negative")
        if self.waiver and not str(self.waiver).strip():
            raise UsageError("the waiver is blank", hint="say why the looser limit is right here")
        if not isinstance(self.requires_grad, bool | None):
            raise UsageError(f"requires_grad is {self.requires_grad!r}", hint="give True or False, or leave it out")


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """Properties of a result other than its values, with the ``request`` to judge it.

    ``finer``: whether the expected values have a finer format than the judged ones; ``distinct``: the number of
    distinct expected values in a sample; ``approximated``: whether the errors exceed those of correct rounding.
    """

    format: Format
    root_mean_square: float
    request: Request
    finer: bool = True
    distinct: int = 1024
    approximated: bool = False


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def explain(verdict: Verdict) -> Iterator[str]:
    """Yield lines on the difference, its place and the rule; for a verdict that agrees, its metrics."""
    yield f"{verdict.path}: {verdict.headline}"
    if verdict.worst is not None:
        place = f"[{', '.join(map(str, verdict.worst.index))}]"
        yield f"  worst element: {place}  actual {verdict.worst.actual}  expected {verdict.worst.expected}"
    if verdict.limit is not None:
        yield f"  limit: {verdict.limit.name}: {verdict.limit.value:.4g}"
    yield f"  standard: {verdict.standard}" + (f", waived: {verdict.waiver}" if verdict.waiver else "")
    if verdict.pattern:
        yield f"  pattern: {verdict.pattern}"
    if verdict.metrics:
        yield f"  figures: {', '.join(f'{key} {value:.4g}' for key, value in verdict.metrics.items())}"
