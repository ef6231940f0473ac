"""Modes that change numbers, each judged by what it promises; afterwards float32 is float32 again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from pytest_ascend.device.npu import with_modes
from pytest_ascend.precision import Samples
from pytest_ascend.records.case import Case
from pytest_ascend.run.comparing import PrecisionCompare

from .catalogue import CASES, MODES
from .products import FRACTION_BITS, PRODUCTS, Product, hf32

_BY_NAME = {product.name: product for product in PRODUCTS}


@pytest.mark.parametrize("case", CASES, ids=[case.id for case in CASES])
def test_mode(
    case: Case,
    npu_device: torch.device,
    precision_compare: PrecisionCompare,
    ascend_measure: Callable[[str, float], None],
) -> None:
    product, modes = _BY_NAME[case.subject], MODES[case.property]
    for mode, value in modes.items():
        ascend_measure(f"mode_{mode}", int(value))
    with with_modes(modes):
        found = computed(product, npu_device)
    rounds = FRACTION_BITS if case.property == product.mode else ()
    compare(precision_compare, product, found, rounds, f"{product.name} in {case.property}")
    compare(precision_compare, product, computed(product, npu_device), (), f"{product.name} in float32 again")


def computed(product: Product, device: torch.device) -> dict[str, torch.Tensor]:
    return {
        name: product.function(first.to(device), second.to(device)).detach().cpu()
        for name, (first, second) in product.pairs().items()
    }


def compare(
    judge: PrecisionCompare, product: Product, found: dict[str, torch.Tensor], rounds: tuple[int, ...], name: str
) -> None:
    """Judge by float64; honest is float32, and what comes of inputs that are rounded to so many bits."""
    pairs = product.pairs()
    expected = {key: product.function(a.double(), b.double()).detach() for key, (a, b) in pairs.items()}
    plain = {key: product.function(a, b).detach() for key, (a, b) in pairs.items()}
    rounded = [
        {key: product.function(hf32(a, bits), hf32(b, bits)).detach() for key, (a, b) in pairs.items()}
        for bits in rounds
    ]
    terms: dict[str, Any] = {} if rounds else {"accumulation": 512}
    judge(found, expected, honest=Samples([plain, *rounded]), name=name, **terms)
