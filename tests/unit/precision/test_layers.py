import copy
import gc
from collections import OrderedDict
from dataclasses import dataclass

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from pytest_ascend.errors import UsageError
from pytest_ascend.precision import layers, models, plot, whole
from pytest_ascend.precision.kernel_fallbacks import cann_formulas


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
def test_a_correct_run_agrees_in_every_layer(x, autocast):
    report = layers(Block(), x, autocast=autocast)
    assert report.agrees
    assert report.first is None
    labels = [layer.label for layer in report.layers]
    assert labels == ["shared", "activation", "shared (call 2)", "norm", "out", "(model)"]


def test_reports_keep_figures_and_no_reference_runs(x):
    """Of a ViT on a chip whose products are in half precision they were 13 GiB."""
    report = layers(Block(), x)
    judged = [each for layer in report.layers for each in (layer.forward, layer.backward) if each is not None]
    assert {type(leaf.metrics) for each in judged for leaf in each.leaves} == {dict}


def test_copies_of_the_model_are_given_back(x):
    """With their graphs: of a model of a GiB, each call would keep several."""

    class Only(Block):
        pass

    model = Only()
    layers(model, x)
    gc.collect()
    assert sum(type(each) is Only for each in gc.get_objects()) == 1


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
    with pytest.raises(UsageError, match=r"not a torch\.nn\.Module"):
        models(nn.Linear(8, 8), len, x)
    with pytest.raises(UsageError, match="names is"):
        models(nn.Linear(8, 8), nn.Linear(8, 8), x, names=["a"])
    with pytest.raises(UsageError, match="no module in common"):
        models(nn.Linear(8, 8), nn.Linear(8, 8), x, names={})
    for judge in (layers, whole):
        with pytest.raises(UsageError, match="autocast is 'bf16'"):
            judge(nn.Linear(8, 8), x, autocast="bf16")


def test_the_plot_holds_one_mark_for_each_layer_and_no_markup_from_names(x):
    report = layers(nn.Sequential(nn.Linear(8, 8), nn.Tanh()), x)
    picture = plot(report.layers)
    assert picture.count("<circle") == 3
    assert "http" not in picture.replace("http://www.w3.org/2000/svg", "")


class WrongWeightGradient(nn.Module):
    """Its gradient is right for the input and 0.1 % off for the weight: on the device only."""

    runs = 0

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(8))

    def forward(self, x):
        type(self).runs += 1
        spoilt = self.weight + 1e-3 * (self.weight - self.weight.detach()) if type(self).runs == 1 else self.weight
        return x * spoilt


def test_the_gradients_of_parameters_are_judged(x, monkeypatch):
    report = layers(Block(), x)
    leaves = {leaf.path for layer in report.layers for leaf in (layer.backward.leaves if layer.backward else ())}
    assert "shared backward['grad weight']" in leaves
    assert "shared (call 2) backward['grad bias']" in leaves
    monkeypatch.setattr(WrongWeightGradient, "runs", 0)
    report = layers(nn.Sequential(nn.Linear(8, 8), WrongWeightGradient(), nn.Tanh()), x)
    assert report.first.label == "1"
    assert [leaf.agrees for leaf in report.first.backward.leaves] == [True, False]


def test_parameters_that_a_module_takes_from_its_parts_are_judged_with_it(x):
    report = layers(nn.MultiheadAttention(8, 2), x, x, x)
    assert report.agrees
    paths = {leaf.path for leaf in report.layers[-1].backward.leaves}
    assert {"(model) backward['grad in_proj_weight']", "(model) backward['grad out_proj.weight']"} <= paths


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_parameters_of_checkpointed_blocks_are_judged_and_given_back(x, use_reentrant):
    model = Checkpointed(use_reentrant)
    report = layers(model, x.requires_grad_())
    found = [leaf.path for layer in report.layers for leaf in (layer.backward.leaves if layer.backward else ())]
    assert "inner.0 backward['grad weight']" in found
    assert not any("weight" in vars(module) for module in model.modules())


class Returned(nn.Module):
    """Gives back a tensor that it uses again itself, and a tuple of torch's own making."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        y = self.first(x)
        return self.second(y), y, y.max(-1)


def test_outputs_that_are_used_again_have_their_own_gradient(x):
    verdict = layers(Returned(), x.requires_grad_()).layers[-1].backward
    assert verdict.agrees
    assert max(leaf.metrics["ulp_p50"] for leaf in verdict.leaves) < 16


def test_weights_that_a_module_keeps_in_lists_are_judged(x):
    report = layers(nn.LSTM(8, 4, num_layers=2), x)
    assert report.agrees
    paths = {leaf.path for leaf in report.layers[0].backward.leaves}
    assert "(model) backward['grad weight_hh_l1']" in paths


def test_frozen_parameters_have_no_gradient(x):
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8)).requires_grad_(False)
    assert all(layer.backward is None for layer in layers(model, x).layers)


def test_an_output_that_is_used_inside_as_well_is_judged_by_what_comes_from_outside() -> None:
    """A decoder layer gives its keys and values, which its attention uses, too."""

    class Attending(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.k = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            k = self.k(x)
            return x * k.sin(), k

    class Holding(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Attending()

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            out, k = self.inner(x)
            return out.cos(), k * 2

    torch.manual_seed(0)
    assert layers(Holding(), torch.randn(3, 4, requires_grad=True)).agrees


def test_a_cache_that_a_module_returns_is_the_one_that_it_keeps(x) -> None:
    class Cache:
        def __init__(self, row: torch.Tensor) -> None:
            self.row = row

    class Keeping(nn.Module):
        def forward(self, x: torch.Tensor) -> Cache:
            self.kept = Cache(x * 2)
            return self.kept

    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Keeping()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            cache = self.inner(x)
            assert cache is self.inner.kept  # what is written into one is seen in the other
            return cache.row * 3

    assert layers(Outer(), x).agrees


class Keeping(nn.Module):
    """Keeps an inner tensor, which the model around it uses: ``leaves`` says which."""

    def __init__(self, leaves):
        super().__init__()
        self.a, self.b, self.leaves = nn.Linear(8, 8), nn.Linear(8, 8), leaves

    def forward(self, x):
        inner = self.a(self.a(x))
        out = self.b(inner)
        self.kept = {"input": x, "inner": inner, "output": out, "neither": inner * 2}[self.leaves]
        return out


class Taking(nn.Module):
    def __init__(self, leaves):
        super().__init__()
        self.encoder, self.head = Keeping(leaves), nn.Linear(8, 2)

    def forward(self, x):
        y = self.encoder(x)
        return self.head(self.encoder.kept) + self.head(y)


@pytest.mark.parametrize("leaves", ["input", "inner", "output", "neither"])
def test_nobody_is_accused_of_a_tensor_that_leaves_a_module_by_another_way_than_its_output(x, leaves):
    report = layers(Taking(leaves), x.requires_grad_())
    assert report.agrees
    encoder = next(layer for layer in report.layers if layer.label == "encoder")
    assert (encoder.backward is None) == (leaves == "neither")
    assert ("leaves it by another way" in encoder.note) == (leaves == "neither")
    assert all(layer.backward is not None for layer in report.layers if layer is not encoder)


def test_hidden_states_that_hooks_take_are_summed(x):
    class Hooked(nn.Module):
        def __init__(self):
            super().__init__()
            self.parts = nn.Sequential(nn.Linear(8, 8), nn.ReLU(inplace=True), nn.Linear(8, 8))

        def forward(self, x):
            taken = []
            handles = [each.register_forward_hook(lambda _m, _a, output: taken.append(output)) for each in self.parts]
            y = self.parts(x)
            for handle in handles:
                handle.remove()
            return y + taken[0] * taken[1]

    report = layers(Hooked(), x.requires_grad_())
    assert report.agrees
    assert all(layer.backward is not None for layer in report.layers)


def test_a_wrong_gradient_in_a_module_that_keeps_a_tensor_is_found(x, monkeypatch):
    monkeypatch.setattr(OnDevice, "runs", 0)
    model = Taking("inner")
    model.encoder.b = OnDevice(lambda x: x * 2 + 0.5 * (x - x.detach()))
    report = layers(model, x.requires_grad_())
    assert report.first.label == "encoder.b"
    assert not report.first.backward.agrees


class Attention(nn.Module):
    def __init__(self, is_causal):
        super().__init__()
        self.qkv, self.proj, self.is_causal = nn.Linear(8, 24), nn.Linear(8, 8), is_causal

    def forward(self, x):
        mixed = nn.functional.scaled_dot_product_attention(*self.qkv(x).chunk(3, -1), is_causal=self.is_causal)
        return self.proj(mixed)


def test_of_a_rewritten_model_the_module_is_named_whose_input_agrees(x):
    original = nn.Sequential(nn.LayerNorm(8), Attention(False), nn.Linear(8, 8))
    mine = nn.Sequential(nn.LayerNorm(8), Attention(True), nn.Linear(8, 8))
    mine.load_state_dict(original.state_dict())
    report = models(mine, original, x[None])
    assert [layer.label for layer in report.layers if not layer.agrees] == ["1.proj", "1", "2", "(model)"]
    assert list(report.explain())[:3] == [
        "first wrong layer: 1 (Attention)",
        "  its input agrees with the original's, its output does not",
        "  inside it, 1.proj is the first whose input is wrong: look at the code before that call",
    ]
    report = models(mine, original, x[None], names={"2": "2"})
    assert list(report.explain())[1].startswith("  its input is wrong already")


@dataclass
class States(OrderedDict):
    """An output as transformers has them: what is None is no part of it."""

    last: torch.Tensor
    weights: tuple | None = None

    def __post_init__(self):
        super().__init__({name: each for name, each in vars(self).items() if each is not None})


class LastFirst(nn.Module):
    """Sets the last field of its output before the first one."""

    def forward(self, x):
        output = States(x.exp())
        del output["last"]
        output["weights"], output["last"] = (x.sin(),), output.last
        return output


def test_a_gradient_stays_with_its_field_of_an_output_in_whatever_order_fields_were_set(x):
    class Uses(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = LastFirst()

        def forward(self, x):
            output = self.inner(x)
            return 3 * output["last"] + output["weights"][0]

    report = layers(Uses(), x.requires_grad_())
    assert report.agrees
    assert report.layers[0].backward is not None


class ByHand(Attention):
    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        weights = (q @ k.mT / 8**0.5).softmax(-1)
        return self.proj(weights @ v), weights


class BySdpa(Attention):
    def forward(self, x):
        return super().forward(x), None


class Returning(nn.Module):
    def __init__(self, attention):
        super().__init__()
        self.attn = attention

    def forward(self, x):
        made, weights = self.attn(x)
        return States(made, weights)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_one_of_both_models_leaves_out_is_not_compared_and_named(x, dtype):
    original = Returning(ByHand(False)).to(dtype)
    for is_causal in (False, True):
        mine = Returning(BySdpa(is_causal)).to(dtype)
        mine.load_state_dict(original.state_dict())
        for model, other in ((mine, original), (original, mine)):
            report = models(model, other, x[None].to(dtype))
            assert report.agrees is not is_causal
            assert "not compared, as one of the models has None there: attn[1], (model)['weights']" in report.explain()
            if is_causal:
                assert report.first.label == "attn"


def test_an_output_of_which_nothing_is_left_is_wrong(x):
    class Forgot(BySdpa):
        def forward(self, x):
            super().forward(x)

    original = nn.Sequential(Attention(False))
    mine = nn.Sequential(Forgot(False))
    mine.load_state_dict(original.state_dict())
    report = models(mine, original, x[None])
    assert report.first.label == "0"
    assert report.first.forward.headline == "expected a tensor, got None"


def test_a_model_may_keep_the_function_that_it_finds_under_other_formulas(x):
    """As Informer does with ``self.activation = F.gelu``: copies count as a use, and compute as usual afterwards."""

    class Keeps(nn.Module):
        def __init__(self):
            super().__init__()
            self.activation = nn.functional.gelu

        def forward(self, x):
            return self.activation(x)

    with cann_formulas() as how:
        model = copy.deepcopy(Keeps())
        by_tanh = model(x)
    assert how.used
    assert torch.equal(by_tanh, nn.functional.gelu(x, approximate="tanh"))
    assert torch.equal(model(x), nn.functional.gelu(x))
