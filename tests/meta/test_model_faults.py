"""The model suite's goldens accept a correct CPU and catch what is wrong, and the first wrong property says where."""

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor, nn

from pytest_ascend.golden import GoldenStore
from pytest_ascend.golden.commands import reproducible
from pytest_ascend.precision import compare
from pytest_ascend.system.bundled import folder
from suites.models import PROPERTIES
from suites.models.computation import MODES, forward, train
from suites.models.goldens import expected, moved, reference_runs

STORE = GoldenStore(folder("baselines") / "golden")
CPU = torch.device("cpu")

Fault = Callable[[nn.Module], object]


@pytest.fixture(autouse=True)
def as_goldens_are_made() -> Iterator[None]:
    """Compute in one thread, which is also the quickest where other tests run beside this one."""
    with reproducible():
        yield


def first_wrong(model: str, fault: Fault) -> tuple[str, str]:
    """Return the first property that disagrees in float32, and its headline; empty where all agree."""

    def prepare(module: nn.Module) -> nn.Module:
        fault(module)
        return module

    seen = forward(model, MODES["float32"], CPU, prepare)
    for what in PROPERTIES:
        if what == "loss":
            seen |= train(model, MODES["float32"], CPU, prepare)
        right, allowed_by = expected(STORE, model, what), reference_runs(STORE, model, "float32", what)
        verdict = compare(seen[what], right, reference_runs=allowed_by, name=what)
        if not verdict.agrees:
            return what, verdict.headline
    return "", ""


def on_gradient(parameter: str, change: Callable[[Tensor], Tensor]) -> Fault:
    return lambda module: module.get_parameter(parameter).register_hook(change)


def lose_largest(gradient: Tensor) -> Tensor:
    """Lose the largest element: a usual one is less than what a ReLU that falls the other way changes."""
    changed = gradient.clone()
    changed.view(-1)[gradient.abs().argmax()] = 0
    return changed


def input_in_bfloat16(name: str) -> Fault:
    def fault(module: nn.Module) -> None:
        module.get_submodule(name).register_forward_pre_hook(lambda _, given: (given[0].bfloat16().float(),))

    return fault


def swap_channels(module: nn.Module) -> None:
    weight = module.get_parameter("layer2.1.conv2.weight").detach()
    weight[[0, 1]] = weight[[1, 0]].clone()


def wrong_momentum(module: nn.Module) -> None:
    for each in module.modules():
        if isinstance(each, nn.BatchNorm2d):
            each.momentum = 0.2


def tanh_gelu(module: nn.Module) -> None:
    gelu = module.get_submodule("encoder.layers.encoder_layer_6.mlp.1")
    assert isinstance(gelu, nn.GELU)
    gelu.approximate = "tanh"


@pytest.mark.drawn(3, "models")
@pytest.mark.parametrize("key", ["another", "third", "one", "fourth"])
def test_a_reference_run_that_the_goldens_have_not_seen_is_accepted(key: str) -> None:
    assert first_wrong("resnet50", moved(key)) == ("", "")


@pytest.mark.drawn(3, "models")
@pytest.mark.parametrize(
    ("model", "fault", "what", "where"),
    [
        pytest.param("resnet50", swap_channels, "forward", "", id="two output channels swapped"),
        pytest.param("resnet50", input_in_bfloat16("layer3.1.conv2"), "forward", "", id="one convolution in bfloat16"),
        pytest.param(
            "resnet50",
            on_gradient("fc.bias", lambda g: g * 1.01),
            "gradients",
            "'fc.bias'",
            id="a bias gradient 1 % off",
        ),
        pytest.param(
            "resnet50",
            on_gradient("layer4.0.conv2.weight", lose_largest),
            "gradients",
            "'layer4.0.conv2.weight'",
            id="the largest element of a gradient lost",
        ),
        pytest.param("resnet50", wrong_momentum, "training", "running_", id="another momentum of running statistics"),
        pytest.param("vit_b_16", tanh_gelu, "forward", "", id="one GELU by its tanh approximation"),
    ],
)
def test_a_fault_is_caught_where_it_is(model: str, fault: Fault, what: str, where: str) -> None:
    found, headline = first_wrong(model, fault)
    assert found == what
    assert where in headline
