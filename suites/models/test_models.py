"""ResNet50 and ViT-B/16 compute what PyTorch promises: outputs, loss, gradients, training, in every mode.

Batches of one to eight in several dtypes, layouts and modes are judged layer by layer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TypeAlias

import pytest
import torch
from torch import Tensor

from pytest_ascend.golden import GoldenStore
from pytest_ascend.parity.ensemble import Observed
from pytest_ascend.parity.model import Computation
from pytest_ascend.precision import Verdict
from pytest_ascend.precision.formats import ALLOWANCES
from pytest_ascend.precision.kernel_fallbacks import once
from pytest_ascend.records.case import Case, Measure
from pytest_ascend.run.case_context import Reproduce
from pytest_ascend.run.comparing import PrecisionCompare

from . import CASES_OF_RUN, OF_ALONE, OF_RUNS, OF_VARIANTS
from .computation import MODES, forward, images, train, weights
from .goldens import expected, reference_runs
from .passing import ALIKE, copied, one_pass, right, short
from .variants import ALONE, VARIANT_OF, Variant


def agreement(classes: Tensor, exact: Tensor) -> float:
    """Return the share of the correct top five in ``classes`` (N, 5); ``exact`` are logits (N, classes)."""
    right = exact.topk(5).indices
    return float((classes[:, :, None] == right[:, None, :]).any(1).double().mean())


def lost(classes: Tensor, exact: Tensor, reference_runs: Sequence[Tensor], dtype: torch.dtype) -> Tensor:
    """Return (N, 5) how far each chosen class's exact logit is below the fifth best, beyond the tolerance; else 0.

    Two logits may swap if their errors can explain the distance: the error that the judge allows one element, given
    ``reference_runs`` logits. A class named twice counts as an infinite loss.
    """
    off = max(float((each.double() - exact).abs().max()) for each in reference_runs)
    ulp = torch.finfo(dtype).eps * float(exact.abs().max())
    reach = 2 * (ALLOWANCES.element_ulps * ulp + ALLOWANCES.largest * off)
    fifth = exact.topk(5).values[:, 4:]
    missing = (fifth - reach - exact.gather(1, classes)).clamp(min=0)
    twice = (classes[:, :, None] == classes[:, None, :]).tril(-1).any(-1)
    return missing.masked_fill(twice, float("inf"))


@pytest.fixture(scope="module", autouse=True)
def _weights_let_go() -> Iterator[None]:
    yield
    weights.cache_clear()


@pytest.fixture(scope="module")
def passed(npu_device: torch.device) -> Callable[[Variant], Observed]:
    return once(lambda variant: one_pass(variant, copied(variant), npu_device), of="device")


@pytest.mark.ascend_cases("models", *OF_VARIANTS)
def test_variant(
    case: Case,
    passed: Callable[[Variant], Observed],
    precision_compare: PrecisionCompare,
    ascend_measure: Measure,
    npu_device: torch.device,
    _ascend_reproduce: Callable[[Reproduce], None],
) -> None:
    variant, aspect = VARIANT_OF[case]
    _ascend_reproduce(computation(variant).reproduce(case.id, npu_device))
    actual, reference = passed(variant), right(variant)
    precision_compare(
        actual[aspect],
        reference.expected(aspect),
        reference_runs=reference.samples(aspect),
        name=aspect,
        # A ReLU or a max pooling may choose differently; ViT has neither.
        branching=aspect == "gradients" and variant.model == "resnet50",
        locate=FIRST.get(aspect),
    )
    if aspect == "forward":
        classes, exact = actual["top five"]["classes"], reference.expected("forward")["logits"]
        reference_runs = [each["logits"] for each in reference.samples("forward")]
        ascend_measure("top_5_agreement", agreement(classes, exact))
        gap = lost(classes, exact, reference_runs, actual["forward"]["logits"].dtype)
        precision_compare(gap, torch.zeros_like(gap), name="top-5 classes that are none", standard="binary")


def _name_of(place: int, what: str, verdict: Verdict) -> str:
    path = [leaf.path for leaf in verdict.leaves if not leaf.agrees][place]
    name = path.partition("['")[2].removesuffix("']")
    return f"{what}: {name or path}"


#: Items in which the first fault is named: layers in the order of completion, parameters in forward order.
FIRST = {
    "layers": partial(_name_of, 0, "first wrong layer"),
    "gradients": partial(_name_of, -1, "first wrong gradient on the way back"),
}


@pytest.mark.ascend_cases("models", *OF_ALONE)
def test_every_layer_alone(
    case: Case,
    precision_compare: PrecisionCompare,
    npu_device: torch.device,
    _ascend_reproduce: Callable[[Reproduce], None],
) -> None:
    model, mode = ALONE[case]
    variant = Variant(model, mode, 1, training=True, channels_last=False)
    _ascend_reproduce(computation(variant, alone=True).reproduce(case.id, npu_device))
    precision_compare.layers(copied(variant), short(images(1)), autocast=MODES[mode].autocast)


def computation(variant: Variant, *, alone: bool = False) -> Computation:
    exact = (variant.model, variant.batch, variant.training or variant.model in ALIKE)
    return Computation(
        imports=("from pytest_ascend.system.bundled import module",),
        setup=(
            "variants, suite = module('suites.models.variants'), module('suites.models.passing')",
            f"variant = variants.{variant!r}",
            "model = suite.copied(variant)",
        ),
        actual="suite.one_pass(variant, model, device)",
        exact=f"suite.exact{exact!r}",
        reference_runs="suite.one_pass(variant, suite.copied(variant), cpu)",
        layers="model, suite.short(suite.images(1)), autocast=suite.MODES[variant.mode].autocast" if alone else "",
    )


Observe: TypeAlias = Callable[[str, str, str], dict[str, Tensor]]


@pytest.fixture(scope="module")
def observe(npu_device: torch.device) -> Observe:
    """Return the device's results for a model in a mode, by property; one training serves three of them."""
    run = once(lambda compute, model, mode: compute(model, MODES[mode], npu_device), of="device")
    return lambda model, mode, what: run(forward if what == "forward" else train, model, mode)[what]


@pytest.mark.ascend_cases("models", *OF_RUNS)
def test_model(
    case: Case,
    observe: Observe,
    golden_store: GoldenStore,
    precision_compare: PrecisionCompare,
    npu_device: torch.device,
    _ascend_reproduce: Callable[[Reproduce], None],
) -> None:
    model, mode = next(run for run, cases in CASES_OF_RUN.items() if case in cases)
    what = case.property.rpartition("-")[2]
    _ascend_reproduce(computation_of_run(model, mode, what).reproduce(case.id, npu_device))
    right = expected(golden_store, model, what)
    allowed_by = reference_runs(golden_store, model, mode, what)
    precision_compare(observe(model, mode, what), right, reference_runs=allowed_by, name=what)


def computation_of_run(model: str, mode: str, what: str) -> Computation:
    call = f"suite.{'forward' if what == 'forward' else 'train'}({model!r}, suite.MODES[{{!r}}], {{}})"
    return Computation(
        imports=("from pytest_ascend.system.bundled import module",),
        setup=("suite = module('suites.models.computation')",),
        actual=call.format(mode, "device"),
        exact=call.format("float64", "cpu"),
        reference_runs=call.format(mode, "cpu"),
    )
