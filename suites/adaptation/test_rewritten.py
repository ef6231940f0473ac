"""A rewritten model is told from its original: where it is the same, and where it is not, from which layer on."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from pytest_ascend import precision
from pytest_ascend.run.comparing import PrecisionCompare

from . import CASES_OF_REWRITING, CASES_OF_SLIPS
from .rewritten import ORIGINALS, SLIPS, RewrittenViT


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.ascend_case(case), id=case.id) for name, case in CASES_OF_REWRITING],
)
def test_separate_projections(name: str, precision_compare: PrecisionCompare) -> None:
    of = ORIGINALS[name]
    original = of.make().eval()
    precision_compare.models(RewrittenViT(of, original).eval(), original, of.input(), names=of.names)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.ascend_case(case), id=case.id) for name, case in CASES_OF_SLIPS]
)
def test_slip(name: str, npu_device: torch.device, ascend_measure: Callable[[str, float], None]) -> None:
    """What is another model has to look like one, and from the module on in which it begins to be."""
    of, slip = ORIGINALS["small-vit"], SLIPS[name]
    original = of.make().eval()
    model = RewrittenViT(of, original).eval()
    last = f"blocks.{of.depth - 1}"
    slip.change(model.get_submodule(last))
    torch.manual_seed(0)  # of dropout
    report = precision.models(model, original, of.input(), names=of.names, device=npu_device)
    assert report.first is not None, f"a model with {name} was taken for its original"
    ascend_measure("output_error", report.layers[-1].output_error)
    ascend_measure("first_wrong_layer", [layer.label for layer in report.layers].index(report.first.label))
    begins = f"{last}.{slip.where}"
    expected = f"{begins} = {of.names[begins]}"
    assert report.first.label == expected, f"begins in {expected}, seen first in:\n" + "\n".join(report.explain())
