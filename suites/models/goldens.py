"""The goldens of the model suite: the exact results, in float64, and reference runs in each mode."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from functools import cache, partial

import torch
from torch import Tensor

from pytest_ascend.golden import GoldenRecipe, GoldenStore
from pytest_ascend.parity.ensemble import channels_last, move
from pytest_ascend.precision import Samples
from pytest_ascend.precision.kernel_fallbacks import without_onednn
from pytest_ascend.precision.orders import other_order

from . import RUNS
from .computation import MODELS, MODES, Observed, Prepare, forward, preserve_layout, train

CPU = torch.device("cpu")
#: Number of results with the largest errors that a golden keeps, for each of its tensors.
KEPT_WAYS = 3


def moved(key: str, by: int = 1) -> Prepare:
    """Return a function that moves every weight of a model as ``move`` does, by the numbers of the goldens."""
    return partial(move, key=key, by=by, numbers="models")


def unfused_attention() -> AbstractContextManager[None]:
    """Compute attention as two products and a softmax, instead of in blocks. Needs torch 2.3."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    return sdpa_kernel(SDPBackend.MATH)


Way = tuple[Callable[[], AbstractContextManager[None]], Prepare]
USUAL: Way = (contextlib.nullcontext, preserve_layout)
CHANNELS_LAST: Way = (contextlib.nullcontext, channels_last)
UNFUSED: Way = (unfused_attention, preserve_layout)
OTHER_ORDER: Way = (other_order, preserve_layout)
WITHOUT_ONEDNN: Way = (without_onednn, preserve_layout)


def _moves(count: int, by: int) -> tuple[Way, ...]:
    return tuple((contextlib.nullcontext, moved(f"move {number}", by)) for number in range(count))


#: By model and mode. In float32, only a few ReLUs of ResNet50 differ between results, and each changes some gradients
#: more than a thousand roundings do: another order of summation flips all those that may flip. AdamW under autocast
#: takes whole steps from gradients that are only rounding: many results are needed to cover these.
WAYS: Mapping[tuple[str, str], tuple[Way, ...]] = {
    ("resnet50", "float32"): (USUAL, WITHOUT_ONEDNN, CHANNELS_LAST, OTHER_ORDER, *_moves(12, by=2)),
    ("resnet50", "autocast-bfloat16"): (USUAL, CHANNELS_LAST, *_moves(3, by=2**14)),
    ("resnet50", "autocast-float16"): (USUAL, *_moves(2, by=2**11)),
    ("vit_b_16", "float32"): (USUAL, WITHOUT_ONEDNN, UNFUSED, *_moves(3, by=1)),
    ("vit_b_16", "autocast-bfloat16"): (USUAL, UNFUSED, *_moves(12, by=2**14)),
}


def most_wrong(found: list[Observed], expected: Observed) -> list[Observed]:
    """Return, by tensor, the results with the largest errors, largest first. Raises ValueError for non-finite ones."""
    kept: list[Observed] = [{each: {} for each in found[0]} for _ in found[:KEPT_WAYS]]
    for each, tensors in found[0].items():
        for name in tensors:
            ranked, right = [one[each][name] for one in found], expected[each].get(name)
            if not all(tensor.isfinite().all() for tensor in ranked):
                raise ValueError("a reference run is not finite")
            if right is not None:
                ranked.sort(key=lambda tensor: -float((tensor.double() - right.double()).norm()))
            for place, tensor in zip(kept, ranked, strict=False):
                place[each][name] = tensor
    return kept


EXACT = "float64"
HOW_EXACT = "float64 on the CPU throughout, from float32 weights and images, which float64 holds exactly"
HOW_REFERENCE_RUNS = "{mode} on the CPU in {ways} ways; of each tensor the {kept} results with the largest errors"


def goldens() -> Iterator[GoldenRecipe]:
    for model, mode in (*((model, EXACT) for model in MODELS), *(run[:2] for run in RUNS)):
        ways = len(WAYS.get((model, mode), ()))
        how = HOW_REFERENCE_RUNS.format(mode=mode, ways=ways, kept=min(KEPT_WAYS, ways)) if ways else HOW_EXACT
        make = partial(_tensors, model, mode)
        yield GoldenRecipe(id=_id(model, mode), make=make, how=how, seed=f"models/{model}")


def expected(store: GoldenStore, model: str, what: str) -> dict[str, Tensor]:
    """Return the exact results for the property ``what``: float64 tensors by name. Raises GoldenError."""
    return _unpack(store.read(_id(model, EXACT)).tensors, f"{what}/")


def reference_runs(store: GoldenStore, model: str, mode: str, what: str) -> Samples:
    tensors = store.read(_id(model, mode)).tensors
    ways = sorted({name.split("/")[0] for name in tensors})
    return Samples(_unpack(tensors, f"{way}/{what}/") for way in ways)


@cache
def _computed(model: str, mode: str, prepare: Prepare = preserve_layout) -> Observed:
    return forward(model, MODES[mode], CPU, prepare) | train(model, MODES[mode], CPU, prepare)


def _tensors(model: str, mode: str) -> dict[str, Tensor]:
    kept = {"": _computed(model, EXACT)}
    if mode != EXACT:
        found = []
        for context, prepare in WAYS[model, mode]:
            with context():
                found.append(_computed(model, mode, prepare))
        kept = {f"{place}/": one for place, one in enumerate(most_wrong(found, kept[""]))}
    return {
        f"{prefix}{what}/{name}": tensor
        for prefix, observed in kept.items()
        for what, tensors in observed.items()
        for name, tensor in tensors.items()
    }


def _id(model: str, mode: str) -> str:
    return f"models/{model}/{mode}"


def _unpack(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
