"""Recording one operator: its samples in every dtype the CPU supports, with their results, as a golden."""

from __future__ import annotations

import cmath
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from msgspec import to_builtins

from pytest_ascend.errors import AscendError
from pytest_ascend.golden import Golden
from pytest_ascend.operators.callables import resolve
from pytest_ascend.operators.calling import tensors
from pytest_ascend.operators.operator import ALL_OUTPUTS, FUNCTION, MOVE, Operator
from pytest_ascend.operators.replay import FORM, PREFIX, Entry
from pytest_ascend.operators.samples import Sample
from suites.ops.table import is_recorded

from .all_bits import ALL_BITS, in_all_bits
from .computing import Subject, Tally, recorded, written
from .database import database, function_name, in_place_name
from .packing import Packed
from .samples import KINDS, samples_of
from .table import WITHOUT_OUT, family

#: Properties checked for a sample, in this order; the catalogue's other properties need inputs of their own.
PROPERTIES = ("forward", "special", "layout", "backward", "out", "in-place")
_ALL = tuple(dtype for held in KINDS.values() for dtype in held)


def record(name: str) -> Golden:
    """Draw samples of an operator, compute their results, and return the golden; it is reproducible bit for bit."""
    infos = database()[name]
    function = resolve(function_name(infos[0]))
    in_place = in_place_name(infos[0])
    backward = {str(each).removeprefix("torch.") for info in infos for each in info.supported_backward_dtypes("cpu")}
    subject = Subject(
        operator=Operator(name, function, lambda _: (), grad_outputs=ALL_OUTPUTS, one_set_of_inputs=True),
        infos=infos,
        in_place=resolve(in_place) if in_place else None,
        has_out=name not in WITHOUT_OUT and all(info.supports_out for info in infos),
        differentiable=frozenset(backward if infos[0].supports_autograd else ()),
    )
    packed, tally = Packed(), Tally()
    said, moves = [], []
    for drawn_in, sample, found in _found(subject, packed, tally):
        said.append({**written(sample, packed), "dtypes": found})
        moves.append(_only_moves(subject.operator, sample, drawn_in))
    if not said:
        hint = "take it out of tools/ops/names.txt, and say why in tools/ops/table.json"
        raise AscendError(f"no sample of {name} can be recorded: {dict(tally.refused)}", hint=hint)
    meta = {
        "form": FORM,
        "entry": to_builtins(_entry(subject, said, MOVE if True in moves and False not in moves else FUNCTION)),
        "admitted_by": dict(sorted(tally.admitted.items())),
        "refused": dict(sorted(tally.refused.items())),
        "table": packed.table,
        "samples": said,
    }
    return Golden(PREFIX + name, packed.arrays(), meta)


def _found(subject: Subject, packed: Packed, tally: Tally) -> Iterator[tuple[str, Sample, dict[str, Any]]]:
    """Yield the dtype in which a sample was drawn, the sample, and its recordings in the dtypes that support it.

    One set of inputs serves all dtypes of a kind.
    """
    known = {str(each).removeprefix("torch.") for info in subject.infos for each in info.supported_dtypes("cpu")}
    wanted = {each for each in known if is_recorded(subject.operator.name, each)}
    taken: Counter[str] = Counter()
    for kind, held in KINDS.items():
        dtypes = tuple(each for each in held if each in wanted)
        drawn_in = kind if kind in dtypes or not dtypes else dtypes[0]
        for sample in samples_of(subject.operator, subject.infos, getattr(torch, drawn_in), taken) if dtypes else ():
            # A sample without tensors determines its own dtype: in another dtype's case it would be the same call.
            if found := recorded(subject, sample, dtypes if sample.values() else (drawn_in,), packed, tally):
                yield drawn_in, sample, found
    for dtype, (at_most, *_) in ALL_BITS.items():
        tried = in_all_bits(subject, dtype, taken) if dtype in wanted else ()
        made = ((dtype, sample, recorded(subject, sample, (dtype,), packed, tally)) for sample in tried)
        yield from itertools.islice((each for each in made if each[2]), at_most)


def _entry(subject: Subject, said: Iterable[Mapping[str, Any]], exactness: str) -> Entry:
    asked: dict[str, set[str]] = {}
    for sample in said:
        for dtype, found in sample["dtypes"].items():
            asked.setdefault(dtype, set()).update(found["asked"])
    info, name = subject.infos[0], subject.operator.name
    function = function_name(info)
    return Entry(
        name=name,
        function=function,
        family=family(name, function, type(info).__name__),
        exactness=exactness,
        properties={
            dtype: tuple(each for each in PROPERTIES if each in asked[dtype]) for dtype in _ALL if dtype in asked
        },
        in_place=in_place_name(info),
    )


def _only_moves(operator: Operator, sample: Sample, dtype: str) -> bool | None:
    """Return whether each result element is an input element or zero; None if the sample cannot show it."""
    kind = getattr(torch, dtype)
    if not (kind.is_floating_point or kind.is_complex):
        return None
    args, kwargs = sample.arguments(operator.name, kind)
    given = [each.to(torch.complex128).flatten() for each in tensors((args, kwargs))]
    try:
        results = [each.detach() for each in tensors(operator.function(*args, **kwargs))]
    except Exception:  # noqa: BLE001 - a failing call shows nothing
        return False
    known = {0j, *(value for each in given for value in each.tolist())}
    found = (each for each in results if each.is_floating_point() or each.is_complex())
    values = [value for each in found for value in each.to(torch.complex128).flatten().tolist()]
    values = [value for value in values if not cmath.isnan(value)]
    if not known.issuperset(values):
        return False
    return True if len(set(values)) > 2 else None
