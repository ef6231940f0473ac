"""Faults of a device in language models are found by the suite ``inference``, each with its first wrong layer."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from pytest_ascend.precision import Samples, compare
from suites.inference import decoders
from suites.inference.test_inference import first_layer
from suites.inference.ways import computed, expected, reference_runs

pytestmark = pytest.mark.usefixtures("full_float32")


def expert_dropped(of: Any) -> Callable[..., Any]:
    return lambda run, x, weight, index: of(run, x, weight.where(index != 3, 0), index)


def interleaved(of: Any) -> Callable[..., Any]:
    return lambda run, x: of(run, decoders.neighbours(x))


def one_place_late(of: Any) -> Callable[..., Any]:
    return lambda arch, positions, dtype: of(arch, positions - int(positions.shape[1] == 1), dtype)


def padding_leaks(of: Any) -> Callable[..., Any]:
    def mix(run: Any, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        run.mask = torch.ones_like(run.mask).tril()
        return of(run, query, key, value)

    return mix


def logits_in_bfloat16(of: Any) -> Callable[..., Any]:
    def layers(run: Any, x: Tensor) -> dict[str, Tensor]:
        found = of(run, x)
        return {**found, "logits": found["logits"].bfloat16().to(x.dtype)}

    return layers


def scale_of_next_head(of: Any) -> Callable[..., Any]:
    return lambda x: of(x) * (x.roll(1, 1).abs().amax(-1, keepdim=True) / x.abs().amax(-1, keepdim=True))


#: Fault -> function of the decoders, model, way, and the layer that is named.
FAULTS = {
    expert_dropped: ("sent", "qwen3-moe", "prefill", "model.layers.0.mlp"),
    interleaved: ("rotated", "qwen3", "prefill", "model.layers.0.self_attn"),
    one_place_late: ("angles", "qwen3", "chunks", "model.layers.0.self_attn"),
    padding_leaks: ("mix", "qwen3", "padded-left", "model.layers.0.self_attn"),
    scale_of_next_head: ("in_int8", "qwen3", "int8-cache", "model.layers.0.self_attn"),
    logits_in_bfloat16: ("layers", "qwen3", "prefill", "logits"),
}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda each: each.__name__)
def test_a_fault_is_found_with_its_layer(fault: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    name, model, way, layer = FAULTS[fault]
    exact, runs = expected(model, way), reference_runs(model, way, torch.float32)
    right = getattr(decoders, name)
    monkeypatch.setattr(decoders, name, fault(right))
    verdict = compare(
        computed(model, way, torch.float32, torch.device("npu")), exact, reference_runs=Samples(runs), name=way
    )
    assert not verdict.agrees
    assert re.fullmatch(f"first wrong layer: {layer}", first_layer(verdict))
