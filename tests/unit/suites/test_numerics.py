"""The judge of numeric modes: HF32 passes where it is allowed, and nothing coarser; float32 is float32 elsewhere."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from pytest_ascend.run.comparing import Disagreement, PrecisionCompare
from suites.numerics.products import FRACTION_BITS, PRODUCTS, Product, hf32
from suites.numerics.test_numerics import compare

MODES = [pytest.param(each, id=each.name) for each in PRODUCTS]
Change = Callable[[torch.Tensor], torch.Tensor]


def judged(product: Product, change: Change, rounds: tuple[int, ...]) -> None:
    found = {name: product.function(change(a), change(b)).detach() for name, (a, b) in product.pairs().items()}
    compare(PrecisionCompare(lambda _: None), product, found, rounds, product.name)


@pytest.mark.parametrize("product", MODES)
def test_hf32_is_what_the_mode_promises_and_nothing_else(product: Product) -> None:
    for bits in FRACTION_BITS:
        judged(product, lambda x, bits=bits: hf32(x, bits), FRACTION_BITS)
        with pytest.raises(Disagreement):
            judged(product, lambda x, bits=bits: hf32(x, bits), ())
    judged(product, lambda x: x, FRACTION_BITS)
    judged(product, lambda x: x, ())


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda x: x.bfloat16().float(), id="bfloat16"),
        pytest.param(lambda x: x.half().float(), id="float16"),
        pytest.param(lambda x: x * (1 + 2.0**-9), id="a bias"),
    ],
)
@pytest.mark.parametrize("product", MODES)
def test_coarser_than_hf32_is_refused(product: Product, change: Change) -> None:
    with pytest.raises(Disagreement):
        judged(product, change, FRACTION_BITS)
