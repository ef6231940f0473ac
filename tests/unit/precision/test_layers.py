import copy

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from pytest_ascend.errors import UsageError
from pytest_ascend.precision import layers, models, plot


class Block(nn.Module):
    """Uses one module twice, an in-place activation, a tuple and a mapping."""

    def __init__(self):
        super().__init__()
        self.shared = nn.Linear(8, 8)
        self.activation = nn.ReLU(inplace=True)
        self.norm = nn.LayerNorm(8)
        self.out = nn.GELU()

    def forward(self, x, *, scale=1.0):
        y = self.activation(self.shared(x))
        y = self.norm(self.shared(y) + x)
        return (self.out(y) * scale, {"hidden": y})


class Checkpointed(nn.Module):
    def __init__(self, use_reentrant):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(8, 8), nn.GELU())
        self.use_reentrant = use_reentrant

    def forward(self, x):
        return checkpoint(self.inner, x, use_reentrant=self.use_reentrant).sum(-1)


class WrongGelu(nn.Module):
    """Right in the reference, wrong in float32, as a device would be."""

    def forward(self, x):
        return nn.functional.gelu(x, approximate="none" if x.dtype == torch.float64 else "tanh")


class Rewritten(nn.Module):
    def __init__(self, original):
        super().__init__()
        self.a, self.b, self.c = copy.deepcopy(original[0]), WrongGelu(), copy.deepcopy(original[2])

    def forward(self, x):
        return self.c(self.b(self.a(x)))


class OnDevice(nn.Module):
    """Wrong on one device only: in the run that is captured, not when it is computed again."""

    runs = 0

    def __init__(self, wrong):
        super().__init__()
        self.wrong = wrong

    def forward(self, x):
        type(self).runs += 1
        return self.wrong(x) if type(self).runs == 1 else x * 2


@pytest.fixture
def x():
    torch.manual_seed(0)
    return torch.randn(16, 8)


@pytest.mark.parametrize("autocast", [None, torch.bfloat16])
def test_an_honest_run_agrees_in_every_layer(x, autocast):
    report = layers(Block(), x, autocast=autocast)
    assert report.agrees
    assert report.first is None
    labels = [layer.label for layer in report.layers]
    assert labels == ["shared", "activation", "shared (call 2)", "norm", "out", "(model)"]


def test_the_model_and_its_inputs_are_left_as_they_were(x):
    model, before = Block(), x.clone()
    state = copy.deepcopy(model.state_dict())
    layers(model, x, scale=2.0)
    assert torch.equal(x, before)
    assert all(torch.equal(state[name], value) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_checkpointed_blocks_are_seen_once_with_their_gradients(x, use_reentrant):
    report = layers(Checkpointed(use_reentrant), x.requires_grad_())
    assert report.agrees
    assert len(report.layers) == 4
    assert report.layers[1].backward is not None


def test_the_first_wrong_layer_is_named_and_not_those_after_it(x, monkeypatch):
    monkeypatch.setattr(OnDevice, "runs", 0)
    model = nn.Sequential(nn.Linear(8, 8), OnDevice(lambda x: x * 2.001), nn.Linear(8, 8), nn.Tanh())
    report = layers(model, x, backward=False)
    assert report.first.label == "1"
    assert [layer.label for layer in report.layers if not layer.agrees] == ["1", "(model)"]
    assert next(report.explain()) == "first wrong layer: 1 (OnDevice)"


def test_a_wrong_gradient_is_found_in_its_layer(x, monkeypatch):
    monkeypatch.setattr(OnDevice, "runs", 0)
    double = OnDevice(lambda x: x * 2 + 0.5 * (x - x.detach()))
    report = layers(nn.Sequential(nn.Linear(8, 8), double, nn.Linear(8, 8)), x)
    assert report.first.label == "1"
    assert report.first.forward.agrees
    assert not report.first.backward.agrees


def test_active_dropout_is_not_judged(x):
    report = layers(nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5)), x)
    assert [layer.note for layer in report.layers] == ["", "active dropout: not judged", "active dropout: not judged"]
    assert report.agrees


def test_a_rewritten_model_is_compared_by_names(x):
    original = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 8))
    mine = Rewritten(original)
    report = models(mine, original, x, names={"a": "0", "b": "1", "c": "2"})
    assert report.first.label == "b = 1"
    assert [layer.agrees for layer in report.layers] == [True, False, False]


def test_unknown_names_and_other_things_than_models_are_refused(x):
    with pytest.raises(UsageError, match="no module 'nowhere'"):
        models(nn.Linear(8, 8), nn.Linear(8, 8), x, names={"nowhere": ""})
    with pytest.raises(UsageError, match=r"not a torch\.nn\.Module"):
        layers(len, x)


def test_the_plot_holds_one_mark_for_each_layer_and_no_markup_from_names(x):
    report = layers(nn.Sequential(nn.Linear(8, 8), nn.Tanh()), x)
    picture = plot(report.layers)
    assert picture.count("<circle") == 3
    assert "http" not in picture.replace("http://www.w3.org/2000/svg", "")
