"""The tables of the adaptation suite belong together, and hue is turned as by the standard library."""

from __future__ import annotations

import colorsys

import pytest
import torch

from suites import adaptation as catalogue
from suites.adaptation.pipeline import hue
from suites.adaptation.rewritten import ORIGINALS


def test_every_original_has_its_case() -> None:
    assert catalogue.REWRITTEN.keys() == ORIGINALS.keys()


@pytest.mark.parametrize("shift", [0.15, -0.4, 0.0])
def test_hue_is_that_of_the_standard_library(shift: float) -> None:
    torch.manual_seed(0)
    image = torch.rand(1, 3, 6, 6, dtype=torch.float64)
    image[0, :, 0, 0] = 0.3  # grey
    image[0, :, 0, 1] = torch.tensor([0.5, 0.5, 0.2])  # two channels alike
    turned = hue(image, shift)
    for pixel, found in zip(image[0].flatten(1).T.tolist(), turned[0].flatten(1).T.tolist(), strict=True):
        h, s, v = colorsys.rgb_to_hsv(*pixel)
        assert found == pytest.approx(colorsys.hsv_to_rgb((h + shift) % 1, s, v), abs=1e-12)
