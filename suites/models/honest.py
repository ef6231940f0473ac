"""Honest results: what the CPU makes of the same inputs in the same dtype, by several ways that are all right.

They differ in order and blocking of sums, as a device does too. Of their errors the judge learns what to allow.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager

import torch
from torch import Tensor, nn

from pytest_ascend.parity.ensemble import channels_last, without_onednn
from pytest_ascend.run import inputs

from .computation import MODES, Observed, Prepare, as_it_is, forward, train

CPU = torch.device("cpu")
#: Of all ways, the results with the largest errors that a golden keeps, for each of its tensors.
KEPT_WAYS = 3


def moved(key: str, by: int = 1) -> Prepare:
    """Move every weight by -1, 0 or 1 times ``by`` units in the last place of float32.

    The exact result of slightly other weights is what a backward-stable implementation gives. Results of several such
    moves show what one ReLU more or less that rounding pushes across its kink does to gradients. Under autocast,
    ``by`` has to be so large that some weights are rounded to a neighbour of where they were.
    """

    def prepare(model: nn.Module) -> nn.Module:
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                step = inputs.integers(f"models/{key}/{name}", parameter.shape, low=-1, high=2).to(torch.int32)
                step[parameter == 0] = 0  # zero has no neighbours among the bits
                bits = parameter.view(torch.int32)
                bits += step * by
        return model

    return prepare


@contextlib.contextmanager
def two_threads() -> Iterator[None]:
    """Compute in two threads: sums are split in another way than in the one that goldens are built with."""
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def unfused_attention() -> AbstractContextManager[None]:
    """Compute attention as two products and a softmax, instead of in blocks. Needs torch 2.3."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    return sdpa_kernel(SDPBackend.MATH)


Way = tuple[Callable[[], AbstractContextManager[None]], Prepare]


def _moves(count: int, by: int) -> tuple[Way, ...]:
    return tuple((contextlib.nullcontext, moved(f"move {number}", by)) for number in range(count))


USUAL: Way = (contextlib.nullcontext, as_it_is)
CHANNELS_LAST: Way = (contextlib.nullcontext, channels_last)
UNFUSED: Way = (unfused_attention, as_it_is)
TWO_THREADS: Way = (two_threads, as_it_is)
WITHOUT_ONEDNN: Way = (without_onednn, as_it_is)

#: By model and mode. In float32 only a few ReLUs of ResNet50 go the other way in each result, and each does to some
#: gradients what a thousand roundings do not: it takes many results to have seen that for every parameter. So it does
#: for AdamW under autocast, which makes whole steps of gradients that are nothing but rounding.
WAYS: Mapping[tuple[str, str], tuple[Way, ...]] = {
    ("resnet50", "float32"): (USUAL, TWO_THREADS, WITHOUT_ONEDNN, CHANNELS_LAST, *_moves(12, by=2)),
    ("resnet50", "autocast-bfloat16"): (USUAL, CHANNELS_LAST, *_moves(3, by=2**14)),
    ("resnet50", "autocast-float16"): (USUAL, *_moves(2, by=2**11)),
    ("vit_b_16", "float32"): (USUAL, WITHOUT_ONEDNN, UNFUSED, *_moves(3, by=1)),
    ("vit_b_16", "autocast-bfloat16"): (USUAL, UNFUSED, *_moves(12, by=2**14)),
}


def results(model: str, mode: str) -> list[Observed]:
    """Compute all properties of a model in every way."""
    return [_result(model, mode, *way) for way in WAYS[model, mode]]


def most_wrong(found: list[Observed], expected: Observed) -> list[Observed]:
    """Give, tensor by tensor, the results with the largest errors, the largest first: no lucky ones.

    Raises ValueError for a result that is not finite, which would allow a device the same.
    """
    kept: list[Observed] = [{each: {} for each in found[0]} for _ in found[:KEPT_WAYS]]
    for each, tensors in found[0].items():
        for name in tensors:
            ranked = _by_error([one[each][name] for one in found], expected[each].get(name))
            for place, tensor in zip(kept, ranked, strict=False):
                place[each][name] = tensor
    return kept


def _by_error(tensors: list[Tensor], right: Tensor | None) -> list[Tensor]:
    if not all(tensor.isfinite().all() for tensor in tensors):
        raise ValueError("an honest result is not finite")
    if right is None:
        return tensors
    return sorted(tensors, key=lambda tensor: -float((tensor.double() - right.double()).norm()))


def _result(model: str, mode: str, context: Callable[[], AbstractContextManager[None]], prepare: Prepare) -> Observed:
    with context():
        return forward(model, MODES[mode], CPU, prepare) | train(model, MODES[mode], CPU, prepare)
