"""Benchmarks: what a nightly run measures, and that it asks for memory before it takes it."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch

from pytest_ascend.emulator.settings import USUAL_MEMORY
from pytest_ascend.performance.verdict import PLACES
from pytest_ascend.system.text import parse_size
from suites.benchmarks import CASES, sizes
from suites.benchmarks import test_benchmarks as suite
from suites.benchmarks.operators import rows
from suites.benchmarks.sizes import HOST, preparations


@dataclass
class Card:
    label: str = "npu:0"
    place: str = "meta"

    def torch_device(self) -> torch.device:
        return torch.device(self.place)


def test_level_standard_sees_a_slower_training_inference_copy_product_and_attention() -> None:
    early = {f"{case.subject}/{case.property}" for case in CASES if case.level == "standard"}
    models = {f"{model}/{work}" for model in ("resnet50", "vit_b_16") for work in ("inference", "training-step")}
    assert models | {"add-4x4/launch", "bmm-scores/latency", "attention-vit/latency"} < early
    assert {name.partition("-device")[0] for name in early if name.endswith("/copy")} == {"to", "from"}


def test_what_is_prepared_fits_into_half_of_what_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sizes, "free_bytes", lambda _: 1000.0)
    assert [preparations(Card(), needed, 32) for needed in (0, 10, 100, 300, 1000)] == [32, 32, 5, 1, 1]
    with pytest.raises(NotImplementedError, match=r"npu:0 has 0 MiB free.*--ascend-emulate=memory"):
        preparations(Card(), 1001, 32)


def test_every_operator_fits_the_emulated_card(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = float(parse_size(USUAL_MEMORY))
    monkeypatch.setattr(sizes, "free_bytes", lambda _: usual)
    for row in rows(HOST):
        held = row.held_bytes(torch.float32)
        assert 0 < held * preparations(Card(), held, PLACES) <= usual / 2, row.name


def test_the_host_has_no_limit() -> None:
    assert preparations(Card(place="cpu"), 1 << 60, 32) == 32


def test_a_device_on_which_nothing_fits_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise torch.OutOfMemoryError("no room")

    monkeypatch.setattr(suite, "sizes_of", lambda _: HOST)
    monkeypatch.setattr(suite, "inference", full)
    (case, *_) = (each for each in CASES if each.property == "batch-sizes")
    with pytest.raises(AssertionError, match="not even one sample fits"):
        suite.test_batch_sizes(case, Card(), lambda *_: None)
