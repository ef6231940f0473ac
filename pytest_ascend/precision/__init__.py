"""Judging what a device computed: figures, standards, verdicts, and the layer where a model goes wrong."""

from pytest_ascend.precision.compare import Samples, compare
from pytest_ascend.precision.explain import explain
from pytest_ascend.precision.layer_report import Layer, LayerReport
from pytest_ascend.precision.layers import layers
from pytest_ascend.precision.models import models
from pytest_ascend.precision.plot import plot
from pytest_ascend.precision.rate import PassRate, pass_rate
from pytest_ascend.precision.standards import DEFAULT, STANDARDS, Standard, standard_of
from pytest_ascend.precision.whole import whole
from pytest_ascend.records.verdict import Limit, Verdict, Worst

__all__ = [
    "DEFAULT",
    "STANDARDS",
    "Layer",
    "LayerReport",
    "Limit",
    "PassRate",
    "Samples",
    "Standard",
    "Verdict",
    "Worst",
    "compare",
    "explain",
    "layers",
    "models",
    "pass_rate",
    "plot",
    "standard_of",
    "whole",
]
