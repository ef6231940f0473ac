"""Faults of a device in language models are found by the suite ``inference``, each with its first wrong layer."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from pytest_ascend.precision import Samples, compare
from pytest_ascend.run.comparing import Disagreement, PrecisionCompare
from suites.inference import decoders, test_inference, ways
from suites.inference.test_inference import first_layer
from suites.inference.ways import computed, expected, reference_runs
from tests.forks import emulated

pytestmark = pytest.mark.usefixtures("full_float32")


def expert_dropped(of: Any) -> Callable[..., Any]:
    return lambda run, x, weight, index: of(run, x, weight.where(index != 3, 0), index)


def interleaved(of: Any) -> Callable[..., Any]:
    return lambda run, x: of(run, decoders.neighbours(x))


def one_place_late(of: Any) -> Callable[..., Any]:
    return lambda arch, positions, dtype: of(arch, positions - int(positions.shape[1] == 1), dtype)


def padding_leaks(of: Any) -> Callable[..., Any]:
    def mix(run: Any, *given: Any) -> Tensor:
        run.mask = torch.ones_like(run.mask).tril()
        return of(run, *given)

    return mix


def logits_in_bfloat16(of: Any) -> Callable[..., Any]:
    def layers(run: Any, x: Tensor) -> dict[str, Tensor]:
        found = of(run, x)
        return {**found, "logits": found["logits"].bfloat16().to(x.dtype)}

    return layers


def scores_of_first_head(of: Any) -> Callable[..., Any]:
    def indexed(run: Any, x: Tensor, asked: Tensor) -> Tensor:
        right = run.weights
        run.weights = {k: v * (torch.arange(len(v), device=v.device) < 1)[:, None] if "weights_proj" in k else v
                       for k, v in right.items()}  # fmt: skip
        found = of(run, x, asked)
        run.weights = right
        return found

    return indexed


def scale_of_next_head(of: Any) -> Callable[..., Any]:
    return lambda x: of(x) * (x.roll(1, 1).abs().amax(-1, keepdim=True) / x.abs().amax(-1, keepdim=True))


#: Fault -> function of the decoders, model, way, and the layer that is named.
FAULTS = {
    expert_dropped: ("sent", "qwen3-moe", "prefill", "model.layers.0.mlp"),
    interleaved: ("rotated", "qwen3", "prefill", "model.layers.0.self_attn"),
    one_place_late: ("angles", "qwen3", "chunks", "model.layers.0.self_attn"),
    padding_leaks: ("mix", "qwen3", "padded-left", "model.layers.0.self_attn"),
    scores_of_first_head: ("indexed", "deepseek-v3.2", "prefill", "model.layers.0.self_attn"),
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


@pytest.mark.skipif(
    torch.backends.cpu.get_cpu_capability() == "AVX512",
    reason="MKL's functions for AVX-512 depend on the batch; with MKL_ENABLE_INSTRUCTIONS=AVX2 they do not",
)
def test_with_level_3_of_determinism_a_batch_changes_no_bit(tmp_path: Path) -> None:
    program = """
import torch, torch_npu
from pytest_ascend.emulator.kernels import linear
from suites.inference.ways import LENGTHS, alone_and_in_a_batch

def longest():
    found = alone_and_in_a_batch("qwen3-next", "padded-right", torch.float32, torch.device("npu"))
    assert found[2]
    return torch.equal(*(each[: LENGTHS[0]] for each in found[:2]))

print(longest())
linear._row_by_row = lambda function, *operands, **how: function(*operands, **how)
print(longest())
"""
    assert emulated(program, tmp_path, cann="9.2.0").split()[-2:] == ["True", "False"]


def test_a_draft_that_differs_is_not_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    """All drafts wrong, all right, or as they come: the tokens are those of greedy decoding."""
    arch, found = ways.prepared("deepseek-v3", "speculative")
    texts = ways.Texts(arch, ways.cast(found, torch.float64))
    with torch.no_grad():
        plain, as_they_come = texts.greedy(), texts.speculative()
        monkeypatch.setattr(ways, "draft", lambda *_: torch.nn.functional.one_hot(torch.tensor([63]), 64))
        wrong = texts.speculative()
    for each in (as_they_come, wrong):
        assert torch.equal(each.tokens, plain.tokens)
        torch.testing.assert_close(each.logits, plain.logits)


def test_a_server_that_accepts_each_draft_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ways, "is_accepted", lambda best, guess: True)
    with pytest.raises(Disagreement, match="first token that differs"):
        ways.generation("deepseek-v3", "speculative", torch.float32, torch.device("npu")).judge(
            PrecisionCompare(note=lambda _: None)
        )


def seed_ignored(logits: Tensor, seed: int) -> Tensor:
    return ways.sampled(logits, 7)


def seed_forgotten(logits: Tensor, seed: int) -> Tensor:
    return ways.sampled(logits, int(torch.seed() % 2**31))


def noise_is_uniform(logits: Tensor, seed: int) -> Tensor:
    noise = torch.rand(logits.shape, generator=torch.Generator(logits.device).manual_seed(seed), device=logits.device)
    return (logits.softmax(-1) / noise).argmax(-1).cpu()


def temperature_twice(logits: Tensor, seed: int) -> Tensor:
    return ways.sampled(logits / 0.9, seed)


def likeliest_only(logits: Tensor, seed: int) -> Tensor:
    return ways.sampled(logits, seed).where(torch.arange(len(logits)) % 16 > 0, logits[0].argmax().cpu())


@pytest.mark.parametrize("fault", [seed_ignored, seed_forgotten, noise_is_uniform, temperature_twice, likeliest_only])
def test_tokens_that_are_not_drawn_as_they_should_be_are_noticed(fault: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(test_inference, "sampled", fault)
    with torch.random.fork_rng(devices=[]), pytest.raises((Disagreement, pytest.fail.Exception)):
        test_inference.judge_sampling(
            "qwen3", torch.float32, torch.device("npu"), PrecisionCompare(note=lambda _: None)
        )
