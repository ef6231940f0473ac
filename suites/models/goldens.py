"""The goldens of the model suite: what is right, in float64, and honest results in each way of computing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache, partial

from torch import Tensor

from pytest_ascend.golden import GoldenRecipe, GoldenStore
from pytest_ascend.precision import Samples

from .catalogue import RUNS
from .computation import MODELS, MODES, Observed, forward, train
from .honest import CPU, KEPT_WAYS, WAYS, most_wrong, results

EXACT = "float64"
HOW_EXACT = "float64 on the CPU throughout, from float32 weights and images, which float64 holds exactly"
HOW_HONEST = "{mode} on the CPU in {ways} ways; of each tensor the {kept} results with the largest errors"


def goldens() -> Iterator[GoldenRecipe]:
    """List the goldens: for each model one in float64, and one for each of its ways of computing."""
    for model in MODELS:
        make = partial(_exact_tensors, model)
        yield GoldenRecipe(id=_id(model, EXACT), make=make, how=HOW_EXACT, seed=f"models/{model}")
    for model, mode, _ in RUNS:
        how = HOW_HONEST.format(mode=mode, ways=len(WAYS[model, mode]), kept=min(KEPT_WAYS, len(WAYS[model, mode])))
        make = partial(_honest_tensors, model, mode)
        yield GoldenRecipe(id=_id(model, mode), make=make, how=how, seed=f"models/{model}")


def expected(store: GoldenStore, model: str, what: str) -> dict[str, Tensor]:
    """Read what is right for the property ``what``: float64 tensors by name. Raises GoldenError."""
    return _unpack(store.read(_id(model, EXACT)).tensors, f"{what}/")


def honest(store: GoldenStore, model: str, mode: str, what: str) -> Samples:
    """Read honest results for the property ``what``. Raises GoldenError."""
    tensors = store.read(_id(model, mode)).tensors
    ways = sorted({name.split("/")[0] for name in tensors})
    return Samples(_unpack(tensors, f"{way}/{what}/") for way in ways)


def _exact_tensors(model: str) -> dict[str, Tensor]:
    return _pack(_exact(model), "")


def _honest_tensors(model: str, mode: str) -> dict[str, Tensor]:
    kept = most_wrong(results(model, mode), _exact(model))
    return {name: tensor for place, one in enumerate(kept) for name, tensor in _pack(one, f"{place}/").items()}


@cache
def _exact(model: str) -> Observed:
    """Compute once what several goldens of a build need; it is small."""
    return forward(model, MODES[EXACT], CPU) | train(model, MODES[EXACT], CPU)


def _id(model: str, mode: str) -> str:
    return f"models/{model}/{mode}"


def _pack(observed: Observed, prefix: str) -> dict[str, Tensor]:
    return {f"{prefix}{what}/{name}": tensor for what, tensors in observed.items() for name, tensor in tensors.items()}


def _unpack(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
