"""ResNet50 and ViT-B/16 in every dtype, layout and mode, with one, three and eight images, layer by layer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import TypeAlias

import pytest
import torch
from torch import Tensor

from pytest_ascend.parity.ensemble import Observed, Reference
from pytest_ascend.precision import Verdict
from pytest_ascend.precision.formats import ALLOWANCES
from pytest_ascend.run.comparing import PrecisionCompare

from .passing import MODES, copied, one_pass, right, short
from .variants import CASES_ALONE, CASES_OF_VARIANTS, Variant
from .weights import images


def agreement(classes: Tensor, exact: Tensor) -> float:
    """Return the share of the right five classes that ``classes`` (N, 5) has too; ``exact`` are logits (N, classes)."""
    right = exact.topk(5).indices
    return float((classes[:, :, None] == right[:, None, :]).any(1).double().mean())


def lost(classes: Tensor, exact: Tensor, honest: Sequence[Tensor], dtype: torch.dtype) -> Tensor:
    """Return (N, 5) how far the exact logit of each chosen class lies below the fifth best, beyond what may be; else 0.

    Two logits may change places if both may be off by what lies between them: by what the judge allows one element,
    given ``honest`` logits. A class that is named twice lost everything.
    """
    off = max(float((each.double() - exact).abs().max()) for each in honest)
    ulp = torch.finfo(dtype).eps * float(exact.abs().max())
    reach = 2 * (ALLOWANCES.element_ulps * ulp + ALLOWANCES.largest * off)
    fifth = exact.topk(5).values[:, 4:]
    missing = (fifth - reach - exact.gather(1, classes)).clamp(min=0)
    ordered, order = classes.sort(1)
    twice = torch.zeros_like(classes, dtype=torch.bool)
    twice[:, 1:] = ordered[:, 1:] == ordered[:, :-1]
    return missing.masked_fill(twice.gather(1, order.argsort(1)), float("inf"))


Passed: TypeAlias = Callable[[Variant], tuple[Observed, Reference]]


@pytest.fixture(scope="module")
def passed(npu_device: torch.device) -> Passed:
    """Run a variant once for all that is looked at, on the device and on the CPU."""

    @cache
    def both(variant: Variant) -> tuple[Observed, Reference]:
        return one_pass(variant, copied(variant), npu_device), right(variant)

    return both


@pytest.mark.parametrize(
    ("variant", "aspect"),
    [
        pytest.param(variant, aspect, marks=pytest.mark.ascend_case(case), id=case.id)
        for variant, aspect, case in CASES_OF_VARIANTS
    ],
)
def test_variant(
    variant: Variant,
    aspect: str,
    passed: Passed,
    precision_compare: PrecisionCompare,
    ascend_measure: Callable[[str, float], None],
) -> None:
    actual, reference = passed(variant)
    precision_compare(
        actual[aspect],
        reference.expected(aspect),
        honest=reference.samples(aspect),
        name=aspect,
        # A ReLU or a max pooling may decide otherwise, of which ViT has none.
        branching=aspect == "gradients" and variant.model == "resnet50",
        locate=FIRST.get(aspect),
    )
    if aspect == "forward":
        classes, exact = actual["top five"]["classes"], reference.expected("forward")["logits"]
        honest = [each["logits"] for each in reference.samples("forward")]
        ascend_measure("top_5_agreement", agreement(classes, exact))
        gap = lost(classes, exact, honest, actual["forward"]["logits"].dtype)
        precision_compare(gap, torch.zeros_like(gap), name="top-5 classes that are none", standard="binary")


def first_layer(verdict: Verdict) -> str:
    """Name the first layer that is wrong: they are in the order in which they ended."""
    return f"first wrong layer: {_wrong(verdict)[0]}"


def last_parameter(verdict: Verdict) -> str:
    """Name the first wrong gradient on the way back: parameters are in the order of the way there."""
    return f"first wrong gradient on the way back: {_wrong(verdict)[-1]}"


FIRST = {"layers": first_layer, "gradients": last_parameter}


def _wrong(verdict: Verdict) -> list[str]:
    return [leaf.path.partition("['")[2].removesuffix("']") or leaf.path for leaf in verdict.leaves if not leaf.agrees]


@pytest.mark.parametrize(
    ("model", "mode"),
    [pytest.param(model, mode, marks=pytest.mark.ascend_case(case), id=case.id) for model, mode, case in CASES_ALONE],
)
def test_every_layer_alone(model: str, mode: str, precision_compare: PrecisionCompare) -> None:
    variant = Variant(model, mode, 1, training=True, channels_last=False)
    precision_compare.layers(copied(variant), short(images(1)), autocast=MODES[mode].autocast)
