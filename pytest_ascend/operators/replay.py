"""Recorded operators: the list of them, their samples and results from goldens, and their arguments as JSON."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import EllipsisType
from typing import Any, TypeAlias

import msgspec
import torch

from pytest_ascend.golden import Golden, GoldenStore
from pytest_ascend.operators.callables import resolve
from pytest_ascend.operators.operator import ALL_OUTPUTS, BOOL, FLOATS, INTS, Operator
from pytest_ascend.operators.reference import Definition, Results, Tensors
from pytest_ascend.operators.samples import Sample, StoredTensor, laid_out
from pytest_ascend.precision.kernel_fallbacks import active
from pytest_ascend.records.case import REPEAT
from pytest_ascend.system.bundled import folder
from pytest_ascend.system.dispatching import no_dispatch
from pytest_ascend.system.errors import GoldenError, as_error
from pytest_ascend.system.files import read_regular

#: The list of recorded operators, written when their goldens are built, and its largest size in bytes.
PATH, LARGEST_BYTES = folder("suites") / "ops" / "recorded.json", 16 << 20
#: Dtypes, ordered by the number of their cases.
_ORDER = (*FLOATS, "float64", "complex64", *INTS, *BOOL)
#: The prefix of the goldens' IDs.
PREFIX = "ops/opinfo/"
#: Layouts in which torch's CPU kernels were recorded as well.
_LAYOUTS = ("transposed", "stepped")
#: The format version in a golden's metadata; other versions are refused.
FORM = 1


class Entry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A recorded operator.

    ``function`` is its name ("torch.linalg.det"); ``in_place`` names the variant that changes its first argument, "" if
    none. ``properties`` lists each dtype's tested properties. ``exactness`` is as in :class:`Operator`.
    """

    name: str
    function: str
    family: str
    exactness: str
    properties: Mapping[str, tuple[str, ...]]
    in_place: str = ""

    @property
    def golden_id(self) -> str:
        """Return the ID of its golden."""
        return PREFIX + self.name

    @property
    def first_dtype(self) -> str:
        """Return the dtype of those properties that are tested in one dtype only."""
        return min(self.properties, key=_ORDER.index)


def load(path: Path = PATH) -> dict[str, Entry]:
    """Return all entries, by name. Raises UsageError if the file is missing or damaged."""
    message = f"the list of recorded operators cannot be read: {path}"
    hint = "reinstall pytest-ascend; in a checkout: pytest-ascend baseline build ops/opinfo"
    with as_error(message, hint, OSError, ValueError, msgspec.MsgspecError, why=str):
        entries = msgspec.json.decode(read_regular(path, LARGEST_BYTES), type=list[Entry])
    return {each.name: each for each in entries}


#: A tensor in a golden's table: its dtype, the dtype it is stored in, the index of its first element, its shape.
Row: TypeAlias = Sequence[Any]


def unpack(arrays: Mapping[str, torch.Tensor], row: Row) -> torch.Tensor:
    """Return the tensor of a row of the table. Raises ValueError or KeyError if it lies outside the stored data."""
    name, storage, first, shape = row
    dtype = getattr(torch, name)
    count = math.prod(shape) * (2 if dtype.is_complex else 1)
    part = arrays[storage][first : first + count]
    if first < 0 or part.numel() != count:
        raise ValueError(f"a tensor of {count} elements lies outside of what is stored")
    if dtype.is_complex:
        real = torch.float64 if dtype is torch.complex128 else torch.float32
        # A copy, since view_as_complex needs an even storage offset.
        return torch.view_as_complex(part.to(real, copy=True).reshape(*shape, 2))
    return part.to(dtype).reshape(shape).clone()


def operator_of(entry: Entry) -> Operator:
    """Return the catalogue operator for an entry; its samples are in its golden."""
    return Operator(
        entry.name,
        resolve(entry.function),
        lambda _: (),
        tuple(entry.properties),
        entry.family,
        entry.exactness,
        grad=any("backward" in names for names in entry.properties.values()),
        out=any("out" in names for names in entry.properties.values()),
        in_place=resolve(entry.in_place) if entry.in_place else False,
        grad_outputs=ALL_OUTPUTS,
        layouts=_LAYOUTS,
        one_set_of_inputs=True,
    )


class Recording:
    """The reference of a recorded operator: its golden. Raises GoldenError if that is damaged or revoked."""

    def __init__(self, golden: Golden, path: str) -> None:
        self._golden, self._path = golden, path
        self._definition: Definition | None = None
        if golden.meta.get("form") != FORM:
            raise self._damaged(f"its form is {golden.meta.get('form')!r}, not {FORM}")
        self._made: dict[int, Sample] = {}
        self._recorded: Sequence[Mapping[str, Any]] = golden.meta["samples"]
        self._position = {recorded["name"]: position for position, recorded in enumerate(self._recorded)}

    def samples(self, property_: str, dtype: str) -> tuple[Sample, ...]:
        """Return the samples for a property."""
        shown = "forward" if property_ == REPEAT else property_
        asked = (sample["dtypes"].get(dtype, {}).get("asked", ()) for sample in self._recorded)
        samples = tuple(self._sample(place) for place, properties in enumerate(asked) if shown in properties)
        return tuple(filter(_can_change, samples)) if property_ == "in-place" else samples

    def of(self, operator: Operator) -> Recording:
        """Enable computing results by another formula than the golden's, and return this reference."""
        self._definition = Definition(operator)
        return self

    def expect(self, sample: Sample, dtype: str, *, backward: bool = False) -> Results:
        """Return the expected results of a sample in a dtype, or one gradient for each input that has one."""
        if self._definition and active() == "reference":
            return self._definition.expect(sample, dtype, backward=backward)
        part = "backward" if backward else "forward"
        with no_dispatch():
            numbers, *reference_runs = self._recorded[self._position[sample.name]]["dtypes"][dtype][part]
            expected: Tensors = [None if each is None else self._tensor(each) for each in numbers]
            return Results(expected, tuple([*self._reference_runs(expected, each)] for each in reference_runs))

    def _sample(self, place: int) -> Sample:
        if place not in self._made:
            recorded = self._recorded[place]
            name, group, all_bits = recorded["name"], recorded["group"], recorded.get("all_bits", False)
            try:
                args, kwargs = (read(recorded[each], self._source) for each in ("args", "kwargs"))
            except (ValueError, KeyError, TypeError) as error:
                raise self._damaged(f"the sample {name!r}: {error}") from error
            self._made[place] = Sample(name=name, args=tuple(args), kwargs=kwargs, group=group, all_bits=all_bits)
        return self._made[place]

    def _source(self, held: Mapping[str, Any]) -> StoredTensor:
        tensor, number = self._tensor(held["number"]), int(held["number"])
        stride = tuple(held["stride"]) if "stride" in held else None
        follows, grad = bool(held["follows"]), bool(held.get("grad", False))
        return StoredTensor(tensor=tensor, follows=follows, grad=grad, stride=stride, number=number)

    def _reference_runs(self, expected: Tensors, recorded: Sequence[int | str | None]) -> Iterator[torch.Tensor | None]:
        """Yield a reference run's results: a dtype's name means the expected result cast to it, a number a tensor."""
        for wanted, each in zip(expected, recorded, strict=True):
            if isinstance(each, str) and wanted is not None:
                yield wanted.to(getattr(torch, each))
            else:
                yield None if each is None else self._tensor(int(each))

    def _tensor(self, number: int) -> torch.Tensor:
        try:
            return unpack(self._golden.tensors, self._golden.meta["table"][number])
        except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
            raise self._damaged(f"tensor {number}: {error}") from error

    def _damaged(self, reason: str) -> GoldenError:
        hint = f"restore it from version control, or build it again: 'pytest-ascend baseline build {self._golden.id}'"
        return GoldenError(f"{self._path} is damaged: {reason}", path=self._path, hint=hint)


def _can_change(sample: Sample) -> bool:
    """Return whether the first tensor can be changed in place: with overlapping memory the result is undefined."""
    first = sample.values()[0]
    if not isinstance(first, StoredTensor) or first.stride is None:
        return True
    numbers = torch.arange(first.tensor.numel()).reshape(first.shape)
    return torch.equal(laid_out(numbers, first.stride), numbers)


@functools.cache
def recording(store: GoldenStore, golden_id: str) -> Recording:
    """Read an operator's recording, cached. Raises GoldenError."""
    return Recording(store.read(golden_id), str(store.path(golden_id)))


#: Write stores a tensor and returns its JSON; Read loads a stored tensor.
Write: TypeAlias = Callable[[StoredTensor], Any]
Read: TypeAlias = Callable[[Any], Any]

#: Stands for the device under test, in place of the device on which a sample was recorded.
DEVICE = torch.device("cpu")

#: torch's own constants, by their key in JSON.
_NAMED: Mapping[str, type] = {"dtype": torch.dtype, "memory_format": torch.memory_format, "layout": torch.layout}


class Unwritable(ValueError):
    """An argument without a JSON representation: a generator, a function, a module."""


def write(value: Any, tensor: Write) -> Any:
    """Return ``value`` as JSON; ``tensor`` stores tensors. Raises Unwritable."""
    found: Any = value
    if isinstance(value, StoredTensor):
        found = {"tensor": tensor(value)}
    elif isinstance(value, float):
        found = value if math.isfinite(value) else {"float": str(value)}
    elif isinstance(value, complex):
        found = {"complex": [write(value.real, tensor), write(value.imag, tensor)]}
    elif isinstance(value, list):
        found = [write(each, tensor) for each in value]
    elif isinstance(value, tuple):
        found = {"tuple": [write(each, tensor) for each in value]}
    elif isinstance(value, slice):
        found = {"slice": [value.start, value.stop, value.step]}
    elif isinstance(value, EllipsisType):
        found = {"ellipsis": True}
    elif isinstance(value, dict) and all(isinstance(key, str) for key in value):
        found = {"dict": {key: write(each, tensor) for key, each in value.items()}}
    elif isinstance(value, torch.device):
        found = {"device": True}
    elif key := next((key for key, kind in _NAMED.items() if isinstance(value, kind)), ""):
        found = {key: str(value).removeprefix("torch.")}
    elif not (value is None or isinstance(value, bool | str) or type(value) is int):
        raise Unwritable(f"{type(value).__name__} cannot be written down")
    return found


def read(data: Any, tensor: Read) -> Any:
    """Return the value passed to :func:`write`; ``tensor`` loads tensors. Raises ValueError on anything else."""
    if isinstance(data, list):
        return [read(each, tensor) for each in data]
    if not isinstance(data, dict):
        return data
    ((key, held),) = data.items()
    if key in _NAMED:
        found = getattr(torch, held)
        if not isinstance(found, _NAMED[key]):
            raise ValueError(f"{held!r} is no {key}")
        return found
    return _READERS[key](held, tensor)


_READERS: Mapping[str, Callable[[Any, Read], Any]] = {
    "tensor": lambda held, tensor: tensor(held),
    "float": lambda held, _: float(held),
    "complex": lambda held, tensor: complex(*(read(each, tensor) for each in held)),
    "tuple": lambda held, tensor: tuple(read(each, tensor) for each in held),
    "slice": lambda held, _: slice(*held),
    "ellipsis": lambda *_: ...,
    "dict": lambda held, tensor: {key: read(each, tensor) for key, each in held.items()},
    "device": lambda *_: DEVICE,
}
