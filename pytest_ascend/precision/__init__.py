"""Judge a device's results: metrics, standards, verdicts, and the layer in which a model goes wrong."""

from pytest_ascend.precision.compare import PassRate, Samples, compare, pass_rate
from pytest_ascend.precision.layers import Layer, LayerReport, plot
from pytest_ascend.precision.layers import layers as _layers
from pytest_ascend.precision.settings import DEFAULT, STANDARDS, Standard, explain, standard_of
from pytest_ascend.precision.whole import by_cann_too
from pytest_ascend.precision.whole import models as _models
from pytest_ascend.precision.whole import whole as _whole
from pytest_ascend.records.verdict import Limit, Verdict, Worst

#: The functions as scripts use them; the fixture ``precision_compare`` calls the originals.
whole, layers, models = by_cann_too(_whole), by_cann_too(_layers), by_cann_too(_models)

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
