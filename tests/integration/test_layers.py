"""``precision_compare.layers``: every module of a model, on the device."""

from __future__ import annotations

import pytest

from tests.integration.conftest import Run

MODEL = """
import torch

def model():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))

def test_right(precision_compare):
    report = precision_compare.layers(model(), torch.linspace(-1, 1, 64).reshape(8, 8))
    assert len(report.layers) >= 3
"""


def test_a_model_is_judged_layer_by_layer(ascend: Run, pytester: pytest.Pytester) -> None:
    pytester.makepyfile(MODEL)
    ascend().assert_outcomes(passed=1)


def test_the_first_wrong_layer_is_named(ascend_apart: Run, pytester: pytest.Pytester) -> None:
    pytester.makepyfile(MODEL.replace("ReLU", "GELU"))
    result = ascend_apart("--ascend-device=emulated", "--ascend-fault=gelu-by-tanh")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*first wrong layer: 1 (GELU)*"])
