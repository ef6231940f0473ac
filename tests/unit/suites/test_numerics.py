"""The judge of numeric modes: HF32 passes where it is allowed, and nothing coarser; float32 is float32 elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch

from pytest_ascend import precision
from pytest_ascend.run.comparing import Disagreement, PrecisionCompare
from suites.numerics import CASTS, OF_INTEGERS, OVERFLOWS, PRODUCTS, ROUNDS, Product, ends, half, integers, saturated
from suites.numerics.test_numerics import compare

MODES = [pytest.param(each, id=each.name) for each in PRODUCTS]
Change = Callable[[torch.Tensor], torch.Tensor]


def judged(product: Product, change: Change, rounds: Sequence[Change]) -> None:
    found = {name: product.function(change(a), change(b)).detach() for name, (a, b) in product.pairs().items()}
    compare(PrecisionCompare(lambda _: None), product, found, rounds, product.name)


@pytest.mark.parametrize("product", MODES)
def test_hf32_is_what_the_mode_promises_and_nothing_else(product: Product) -> None:
    for change in ROUNDS[product.mode]:
        judged(product, change, ROUNDS[product.mode])
        with pytest.raises(Disagreement):
            judged(product, change, ())
    judged(product, lambda x: x, ROUNDS[product.mode])
    judged(product, lambda x: x, ())


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda x: x.bfloat16().float(), id="bfloat16"),
        pytest.param(half, id="float16"),
        pytest.param(lambda x: x * (1 + 2.0**-9), id="a bias"),
    ],
)
@pytest.mark.parametrize("product", MODES)
def test_coarser_than_hf32_is_refused(product: Product, change: Change) -> None:
    with pytest.raises(Disagreement):
        judged(product, change, ROUNDS[product.mode])


@pytest.mark.parametrize("product", MODES)
def test_half_precision_passes_where_it_is_allowed_and_nothing_coarser(product: Product) -> None:
    def usual(change: Change) -> None:
        first, second = product.pairs()["usual"]
        found = {"usual": product.function(change(first), change(second)).detach()}
        compare(PrecisionCompare(lambda _: None), product, found, ROUNDS["half-allowed"], product.name)

    usual(half)
    usual(lambda x: x)
    with pytest.raises(Disagreement):
        usual(lambda x: x.bfloat16().float())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_saturation_is_told_from_infinities(dtype: torch.dtype) -> None:
    x = ends(dtype)
    for function in OVERFLOWS.values():
        reference_runs = function(x)
        assert not reference_runs.isfinite().all()
        assert saturated(reference_runs, dtype).isfinite().all()
        assert compared(reference_runs, function(x.double()), reference_runs)
        assert not compared(saturated(reference_runs, dtype), function(x.double()), reference_runs)


def compared(actual: torch.Tensor, expected: torch.Tensor, reference_runs: torch.Tensor) -> bool:
    return precision.compare(actual, expected, reference_runs=reference_runs).agrees


@pytest.mark.parametrize("name", CASTS)
def test_every_tie_and_its_neighbours_are_cast(name: str) -> None:
    make, to = CASTS[name]
    given = make()
    truncated = (
        given.view(torch.int32).bitwise_and(-(2**16)).view(torch.float32) if given.dtype is torch.float32 else None
    )
    assert len(given) >= 256
    if truncated is not None:
        assert not torch.equal(truncated.to(to), given.to(to))
    assert (
        (given.to(torch.float64).abs() < 2**-126).any()
        or not given.is_floating_point()
        or to in (torch.int8, torch.uint8, torch.int16)
    )


def test_every_pair_of_8_bits_and_every_integer_of_16_is_an_input() -> None:
    for case in OF_INTEGERS:
        function, given = integers(case)
        assert len({*zip(*(each.tolist() for each in given), strict=True)}) == (
            2**16 if len(given) == 2 else len(given[0])
        )
        assert function(*given).shape == given[0].shape
        assert len(given[0]) == 2 ** (8 if case.dtype.endswith("8") and len(given) == 1 else 16)
