"""Recorded samples in numbers with all bits: what they are, and that operators that can show a cut input have some."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from pytest_ascend.golden import GoldenStore
from pytest_ascend.operators.calling import upstream
from pytest_ascend.operators.operator import Operator
from pytest_ascend.operators.replay import recording
from pytest_ascend.operators.samples import Sample, StoredTensor, call
from pytest_ascend.precision.nested import widened
from pytest_ascend.system.bundled import folder
from suites.ops.table import RECORDED, is_recorded
from tools.ops.all_bits import ALL_BITS, cut
from tools.ops.choosing import in_turn

STORE = GoldenStore(folder("baselines") / "golden")


def source(*shape: int) -> StoredTensor:
    return StoredTensor(tensor=torch.arange(float(torch.Size(shape).numel())).reshape(shape), grad=True)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
def test_to_cut_is_to_round_as_a_dtype_of_so_many_bits_does(dtype: torch.dtype) -> None:
    bits = {torch.float16: 11, torch.bfloat16: 8, torch.float32: 24}[dtype]
    spread = torch.linspace(-9, 9, 998, dtype=torch.float64)  # none so small that float16 has fewer bits for it
    numbers = torch.cat([spread, torch.tensor([0.0, torch.inf, -torch.inf, torch.nan])])
    assert not cut(numbers, bits).equal(numbers)
    assert cut(numbers, bits).nan_to_num(7).equal(numbers.to(dtype).double().nan_to_num(7))


def test_both_parts_of_a_complex_number_are_cut() -> None:
    assert cut(torch.tensor([1 + 2**-9 + 1j + 2**-12 * 1j]), 8).tolist() == [1 + 1j]


def test_samples_come_in_turn_until_all_is_shown_and_then_anew() -> None:
    calls = [call(source(4), dim=dim) for dim in (0, 0, 1, 1)]
    assert [each.kwargs["dim"] for each in in_turn(calls)] == [0, 1, 0, 1]


def test_what_comes_from_above_has_all_bits_too() -> None:
    operator = Operator("some", torch.exp, lambda _: (), one_set_of_inputs=True)
    outputs = [torch.exp(source(99).tensor.requires_grad_())]
    usual, whole = (Sample(name="99", args=(source(99),), all_bits=each) for each in (False, True))
    (held,) = upstream(operator, usual, outputs, torch.float32)
    assert held.equal(held.bfloat16().float())
    assert held.equal(held.half().float())
    (held,) = upstream(operator, whole, outputs, torch.float32)
    assert (held != held.half().float()).sum() > 90
    (wide,) = upstream(operator, whole, [outputs[0].double()], torch.float32)
    assert wide.equal(held.double())


def in_all_bits(name: str, dtype: str) -> Iterator[Sample]:
    """Yield the samples of a recorded operator in a dtype whose numbers have all its bits."""
    entry = RECORDED[name]
    for property_ in entry.properties[dtype]:
        yield from (each for each in recording(STORE, entry.golden_id).samples(property_, dtype) if each.all_bits)


def test_these_samples_have_more_bits_than_a_device_that_cuts_leaves() -> None:
    for name, entry in RECORDED.items():
        for dtype, (_, bits, _) in ALL_BITS.items():
            for sample in in_all_bits(name, dtype) if dtype in entry.properties else ():
                made = [each.make("", getattr(torch, dtype)) for each in sample.values()]
                numbers = [widened(each) for each in made if each.is_floating_point() or each.is_complex()]
                assert any(not cut(each, bits).equal(each) for each in numbers), f"{name}: {sample.name}"


#: Operators that are recorded in float32 and have no such sample.
WITHOUT = {
    # what they give does not depend on the last bits of an input
    *(
        "_foreach_ceil",
        "_foreach_floor",
        "_foreach_round",
        "_foreach_sign",
        "_foreach_trunc",
        "allclose",
        "angle",
        "byte",
    ),
    *("argwhere", "bool", "chalf", "equal", "half", "isin", "isneginf", "isposinf", "isreal", "linalg.matrix_rank"),
    *("masked.argmax", "masked.argmin", "nonzero_static", "sgn"),
    # no tensor goes in, or nothing of it comes out
    *("fill", "full", "logspace", "new_full", "new_ones", "new_zeros", "ones", "scalar_tensor", "zero_", "zeros"),
    *(name for name in RECORDED if name.startswith("signal.windows.")),
    # no second reference agrees: SciPy's degrees are not cut to whole ones
    *("special.chebyshev_polynomial_t", "special.chebyshev_polynomial_u", "special.laguerre_polynomial_l"),
    *("special.legendre_polynomial_p", "special.shifted_chebyshev_polynomial_t"),
    "special.shifted_chebyshev_polynomial_u",
}


def test_every_operator_that_can_show_a_cut_input_in_float32_does() -> None:
    asked = (name for name, each in RECORDED.items() if is_recorded(name, "float32") and "float32" in each.properties)
    assert {name for name in asked if not any(in_all_bits(name, "float32"))} == WITHOUT
