"""Settings that change numbers, each judged by its guarantees; and every input of a format in one call.

Afterwards float32 must be float32 again. Functions are judged by their largest error, or by the only right result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch

from pytest_ascend.device import Device
from pytest_ascend.device.npu import knows_infinities, with_modes
from pytest_ascend.operators.accuracy import largest_error
from pytest_ascend.precision import Samples
from pytest_ascend.records.case import Case, Measure
from pytest_ascend.run.comparing import Disagreement, PrecisionCompare

from . import CASTS, DETERMINISTIC, MODES, OVERFLOWS, PRODUCTS, ROUNDS, Product, ends, inputs_of, integers, saturated

T = torch.Tensor
_BY_NAME = {product.name: product for product in PRODUCTS}


@pytest.mark.ascend_cases("numerics", *MODES)
def test_mode(
    case: Case, npu_device: torch.device, precision_compare: PrecisionCompare, ascend_measure: Measure
) -> None:
    product, modes = _BY_NAME[case.subject], MODES[case.property]
    for mode, value in modes.items():
        ascend_measure(f"mode_{mode}", float(value) if not isinstance(value, str) else 1.0)
    name = f"{product.name} in {case.property}"
    with with_modes(modes):
        found = computed(product, npu_device)
        again = computed(product, npu_device) if case.property in DETERMINISTIC else found
    if case.property == "half-allowed":  # outside its range half precision guarantees nothing
        found, again = {"usual": found["usual"]}, {"usual": again["usual"]}
    compare(precision_compare, product, found, ROUNDS.get(case.property, ()), name)
    precision_compare(again, found, standard="binary", name=f"{name}, called again")
    compare(precision_compare, product, computed(product, npu_device), (), f"{product.name} in float32 again")


def computed(product: Product, device: torch.device) -> dict[str, T]:
    return {
        name: product.function(first.to(device), second.to(device)).detach().cpu()
        for name, (first, second) in product.pairs().items()
    }


def compare(
    judge: PrecisionCompare, product: Product, found: dict[str, T], rounds: Sequence[Callable[[T], T]], name: str
) -> None:
    """Compare with float64; reference runs compute in float32, once without and once with each input rounding."""
    pairs = {key: pair for key, pair in product.pairs().items() if key in found}
    expected, *runs = (
        {key: product.function(change(a), change(b)).detach() for key, (a, b) in pairs.items()}
        for change in (torch.Tensor.double, torch.Tensor.float, *rounds)
    )
    judge(found, expected, reference_runs=Samples(runs), name=name, accumulation=None if rounds else 512)


@pytest.mark.ascend_cases("numerics", "inf-nan")
def test_inf_nan(
    case: Case, npu_device: torch.device, precision_compare: PrecisionCompare, ascend_measure: Measure
) -> None:
    dtype, has_infinities = getattr(torch, case.dtype), knows_infinities()
    ascend_measure("mode_inf_nan", float(has_infinities))
    x = ends(dtype)
    found, expected, reference_runs = (
        {name: function(each).cpu() for name, function in OVERFLOWS.items()}
        for each in (x.to(npu_device), x.double(), x)
    )
    for results in () if has_infinities else (expected, reference_runs):
        results |= {name: saturated(each, dtype) for name, each in results.items()}
    mode = "infinities" if has_infinities else "saturation"
    precision_compare(found, expected, reference_runs=reference_runs, name=f"overflow, in the mode of {mode}")


@pytest.mark.ascend_cases("numerics", "accuracy", "gradient")
def test_accuracy(case: Case, _ascend_device: Device, npu_device: torch.device, ascend_measure: Measure) -> None:
    found, at, wrong = largest_error(
        case.subject,
        inputs_of(case.dtype, is_sampled=_ascend_device.emulated or npu_device.type == "cpu"),
        npu_device,
        _ascend_device.chip(),
        has_infinities=npu_device.type != "npu" or knows_infinities(),
        is_gradient=case.property == "gradient",
    )
    ascend_measure("error_ulp", min(found, 1e9))
    ascend_measure("error_at", at)
    if wrong:
        raise Disagreement(wrong)


@pytest.mark.ascend_cases("numerics", "cast")
def test_cast(case: Case, npu_device: torch.device, precision_compare: PrecisionCompare) -> None:
    make, to = CASTS[case.subject]
    given = make()
    precision_compare(given.to(npu_device).to(to), given.to(to), standard="binary", name=case.subject)


@pytest.mark.ascend_cases("numerics", "pairs", "integers")
def test_integers(case: Case, npu_device: torch.device, precision_compare: PrecisionCompare) -> None:
    function, given = integers(case)
    actual = function(*(each.to(npu_device) for each in given))
    precision_compare(actual, function(*given), standard="binary", name=case.subject)
