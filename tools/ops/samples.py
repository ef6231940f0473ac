"""From the database's samples to recorded ones, whose tensors hold only numbers that every dtype of a kind can hold."""

from __future__ import annotations

import contextlib
import itertools
import random
import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import torch
from torch.utils._pytree import tree_map

from pytest_ascend.operators.calling import forward
from pytest_ascend.operators.operator import Operator
from pytest_ascend.operators.replay import Unwritable, write
from pytest_ascend.operators.samples import SPECIAL, Sample, StoredTensor, call, laid_out

from .choosing import LARGEST, choose, size
from .table import NEVER_EMPTY, NEVER_NAN, ONE_TENSOR, REFUSED, TAKEN, WITHOUT_PLACES

#: A function that replaces the drawn numbers by those to keep.
Change: TypeAlias = Callable[[torch.Tensor], torch.Tensor]

#: Number of candidates examined: usual samples, and reference inputs of each variant.
_USUAL, _REFERENCE = 120, 60
#: Kinds of dtypes that share one set of inputs: the dtype in which they are drawn, and all that hold them.
KINDS: Mapping[str, tuple[str, ...]] = {
    "float32": ("float32", "float16", "bfloat16", "float64"),
    "complex64": ("complex64",),
    "int32": ("int64", "int32", "int16", "int8"),
    "uint8": ("uint8",),
    "bool": ("bool",),
}
#: Number of samples kept per operator, by the dtype in which they are drawn.
AT_MOST = {torch.float32: 7, torch.complex64: 4, torch.int32: 4, torch.int64: 4}
_OTHERS = 3
#: Number of tensors of a list that are kept: the last, which are the smallest.
_LISTED = 5
_NAME_LENGTH = 100
#: Infos whose operators define their results for NaN and infinities, element by element or for a sum.
_NONFINITE = ("UnaryUfuncInfo", "BinaryUfuncInfo", "ReductionOpInfo")


def samples_of(
    operator: Operator, infos: tuple[Any, ...], drawn_in: torch.dtype, taken: Counter[str]
) -> Iterator[Sample]:
    """Yield an operator's samples to keep, drawn in a dtype, with names that are not in ``taken``."""
    found: list[Sample] = []
    for info in infos:
        if drawn_in in info.supported_dtypes("cpu"):
            found += _kept(operator, info, drawn_in, len(infos))
    undefined = any(part in operator.name for part in NEVER_NAN)
    special = type(infos[0]).__name__ in _NONFINITE and drawn_in.is_floating_point and not undefined
    for sample in (*found, *(_nonfinite(found) if special else ())):
        yield named(sample, taken)


def _kept(operator: Operator, info: Any, drawn_in: torch.dtype, variants: int) -> tuple[Sample, ...]:
    """Choose among the samples of a variant; if all are large, keep the smallest."""
    at_most = AT_MOST.get(drawn_in, _OTHERS)
    share = at_most if variants == 1 else max(2, at_most // variants + 1)
    candidates = list(drawn(operator, info, drawn_in, rounded))
    for largest in (LARGEST, 4 * LARGEST):
        usable = [each for each in candidates if is_usable(operator, drawn_in, each, largest)]
        if usable:
            return choose(usable, share if largest == LARGEST else 2)
    return ()


def is_usable(operator: Operator, drawn_in: torch.dtype, sample: Sample, largest: int) -> bool:
    """Return whether the CPU supports the call, and its inputs and results are small enough."""
    if size(sample) > largest or _is_left_out(operator.name, sample):
        return False
    try:
        args, kwargs = sample.arguments(operator.name, drawn_in)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return sum(each.numel() for each in forward(operator, operator.function, args, kwargs)) <= largest
    except Exception:  # noqa: BLE001 - a call that raises is no sample
        return False


def _is_left_out(name: str, sample: Sample) -> bool:
    """Return whether a sample does not test a device, or is left out by table.py."""
    tensors, given = sample.values(), (*sample.args, *sample.kwargs.values())
    if not tensors and not any(isinstance(each, torch.device) for each in given):
        return True
    empty = name in NEVER_EMPTY and any(0 in each.shape for each in tensors)
    places = name in WITHOUT_PLACES and any(
        each is True for each in (sample.kwargs.get("return_indices"), *sample.args)
    )
    refused = name in TAKEN and not TAKEN[name](*sample.args, **sample.kwargs)
    return empty or places or refused or (name in ONE_TENSOR and len(tensors) > 1)


def _nonfinite(found: list[Sample]) -> Iterator[Sample]:
    usable = (each for each in found if any(v.follows and 0 not in v.shape and v.shape for v in _tensors(each)))
    for sample in itertools.islice(usable, 2):
        first = next(v for v in _tensors(sample) if v.follows and v.shape)
        swap = lambda leaf: leaf.with_nonfinite() if leaf is first else leaf  # noqa: B023, E731
        args, kwargs = tree_map(swap, (sample.args, dict(sample.kwargs)))
        yield Sample(name=f"{sample.name}, not all finite", args=args, kwargs=kwargs, group=SPECIAL)


def _tensors(sample: Sample) -> list[StoredTensor]:
    return [each for each in sample.values() if isinstance(each, StoredTensor)]


def drawn(operator: Operator, info: Any, drawn_in: torch.dtype, change: Change) -> Iterator[Sample]:
    """Yield the database's samples for a variant of an operator, with the numbers of their tensors changed."""
    number = zlib.crc32(f"ops/opinfo/{operator.name}/{info.variant_test_name}/{drawn_in}".encode())
    torch.manual_seed(number)
    random.seed(number)
    np.random.seed(number)
    grad = info.supports_autograd and (drawn_in.is_floating_point or drawn_in.is_complex)
    usual = itertools.islice(_asked(info.sample_inputs, drawn_in, grad), _USUAL)
    reference: Iterator[Any] = iter(())
    if getattr(info, "reference_inputs_func", None) is not None:
        reference = itertools.islice(_asked(info.reference_inputs, drawn_in, grad), _REFERENCE)
    for given in itertools.chain(usual, reference):
        with contextlib.suppress(Unwritable):
            yield _sample(given, drawn_in, change)


def _asked(samples: Any, drawn_in: torch.dtype, grad: bool) -> Iterator[Any]:
    """Query the database; if it stops with an error, keep the samples up to then."""
    with contextlib.suppress(Exception), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield from samples("cpu", drawn_in, requires_grad=grad)


def _sample(given: Any, drawn_in: torch.dtype, change: Change) -> Sample:
    """Describe a sample. Raise Unwritable if it cannot be written down."""
    known: dict[int, StoredTensor] = {}

    def stored(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        return known.setdefault(id(leaf), stored_tensor(leaf, drawn_in, change))

    # Take only the last of long lists of tensors, and of the arguments that belong to each of them.
    long = len(given.input) if isinstance(given.input, list) else 0

    def cut(each: Any) -> Any:
        return each[-_LISTED:] if isinstance(each, list) and len(each) == long > _LISTED else each

    args, kwargs = tree_map(
        stored, (tuple(map(cut, (given.input, *given.args))), {key: cut(each) for key, each in given.kwargs.items()})
    )
    if any(kwargs.get(name) in values for name, values in REFUSED.items()):
        raise Unwritable("an argument that is left out")
    if isinstance(kwargs.get("device"), str):
        kwargs["device"] = torch.device(kwargs["device"])
    write((args, kwargs), lambda _: None)
    # JSON objects are unordered: arguments stored in it are sorted, and so are their gradients.
    return replace(call(*args, **kwargs), kwargs=dict(sorted(kwargs.items())))


def stored_tensor(tensor: torch.Tensor, drawn_in: torch.dtype, change: Change) -> StoredTensor:
    """Return a stored copy, with numbers changed if the tensor has the case's dtype. Raise Unwritable."""
    if tensor.layout is not torch.strided or tensor.is_quantized:
        raise Unwritable("a tensor that is not strided")
    plain = tensor.detach().resolve_conj().resolve_neg()
    follows = tensor.dtype is drawn_in
    dense = plain.contiguous()
    stride = None if plain.is_contiguous() else tuple(plain.stride())
    if stride and not torch.equal(laid_out(dense, stride).nan_to_num(), dense.nan_to_num()):
        raise Unwritable("a tensor that overlaps itself")
    kept = change(dense) if follows else dense.clone()
    return StoredTensor(tensor=kept, follows=follows, grad=tensor.requires_grad, stride=stride)


def rounded(tensor: torch.Tensor) -> torch.Tensor:
    """Return numbers that both bfloat16 and float16 hold; NaN and infinities are unchanged."""
    if tensor.is_complex():
        return torch.view_as_complex(rounded(torch.view_as_real(tensor)).contiguous())
    if not tensor.is_floating_point():
        return tensor.clone()
    limit = 2.0**15
    cut = torch.where(tensor.isfinite(), tensor.clamp(-limit, limit), tensor)
    return cut.to(torch.bfloat16).to(torch.float16).to(torch.bfloat16).to(tensor.dtype)


def named(sample: Sample, taken: Counter[str], suffix: str = "") -> Sample:
    """Return the sample with a short, unique name."""
    name = sample.name if len(sample.name) <= _NAME_LENGTH else sample.name[: _NAME_LENGTH - 1] + "…"
    name += suffix
    taken[name] += 1
    return replace(sample, name=name if taken[name] == 1 else f"{name} #{taken[name]}")
