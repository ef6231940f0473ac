"""The frozen models have the names and shapes of torchvision's weights, and deterministic weights that suit them."""

import hashlib
import math

import pytest
import torch
from torch import Tensor, nn

from suites.models.computation import MODELS, MODES, images, make, state, targets

CPU = torch.device("cpu")
Shapes = dict[str, tuple[int, ...]]


def batch_norm(name: str, channels: int) -> Shapes:
    vectors = {f"{name}.{each}": (channels,) for each in ("weight", "bias", "running_mean", "running_var")}
    return {**vectors, f"{name}.num_batches_tracked": ()}


def linear(name: str, into: int, out: int) -> Shapes:
    return {f"{name}.weight": (out, into), f"{name}.bias": (out,)}


def layer_norm(name: str) -> Shapes:
    return {f"{name}.weight": (768,), f"{name}.bias": (768,)}


def bottleneck(name: str, channels: int, width: int, *, first: bool) -> Shapes:
    shapes = {
        f"{name}.conv1.weight": (width, channels, 1, 1),
        **batch_norm(f"{name}.bn1", width),
        f"{name}.conv2.weight": (width, width, 3, 3),
        **batch_norm(f"{name}.bn2", width),
        f"{name}.conv3.weight": (4 * width, width, 1, 1),
        **batch_norm(f"{name}.bn3", 4 * width),
    }
    if first:
        shapes[f"{name}.downsample.0.weight"] = (4 * width, channels, 1, 1)
        shapes |= batch_norm(f"{name}.downsample.1", 4 * width)
    return shapes


def resnet50() -> Shapes:
    shapes = {"conv1.weight": (64, 3, 7, 7), **batch_norm("bn1", 64)}
    channels = 64
    for stage, width, blocks in ((1, 64, 3), (2, 128, 4), (3, 256, 6), (4, 512, 3)):
        for block in range(blocks):
            shapes |= bottleneck(f"layer{stage}.{block}", channels, width, first=block == 0)
            channels = 4 * width
    return {**shapes, **linear("fc", 2048, 1000)}


def vit_b_16() -> Shapes:
    shapes = {
        "class_token": (1, 1, 768),
        "conv_proj.weight": (768, 3, 16, 16),
        "conv_proj.bias": (768,),
        "encoder.pos_embedding": (1, 197, 768),
    }
    for layer in range(12):
        name = f"encoder.layers.encoder_layer_{layer}"
        shapes |= layer_norm(f"{name}.ln_1") | layer_norm(f"{name}.ln_2")
        shapes |= {f"{name}.self_attention.in_proj_weight": (2304, 768), f"{name}.self_attention.in_proj_bias": (2304,)}
        shapes |= linear(f"{name}.self_attention.out_proj", 768, 768)
        shapes |= linear(f"{name}.mlp.0", 768, 3072) | linear(f"{name}.mlp.3", 3072, 768)
    return shapes | layer_norm("encoder.ln") | linear("heads.head", 768, 1000)


TABLES = {"resnet50": (resnet50(), 25_557_032), "vit_b_16": (vit_b_16(), 86_567_656)}

#: Hashes of the weights as they were when the goldens were made.
DIGESTS = {
    "resnet50": "b6c3bc09cd422b04",
    "vit_b_16": "7ffb1de7d180776f",
    "images": "9f9bb15db2d5465b",
    "targets": "c5f2e41b42d2986d",
}


def digest(tensors: dict[str, Tensor]) -> str:
    found = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        found.update(name.encode())
        found.update(tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()[:16]


def skeleton(name: str) -> nn.Module:
    with torch.device("meta"):
        return MODELS[name].make()


@pytest.mark.parametrize("name", TABLES)
def test_names_and_shapes_are_torchvisions(name: str) -> None:
    assert {key: tuple(value.shape) for key, value in skeleton(name).state_dict().items()} == TABLES[name][0]


@pytest.mark.parametrize("name", TABLES)
def test_the_number_of_parameters_is_the_published_one(name: str) -> None:
    assert sum(parameter.numel() for parameter in skeleton(name).parameters()) == TABLES[name][1]


@pytest.mark.parametrize("name", TABLES)
def test_weights_and_inputs_stay_as_they_are(name: str) -> None:
    assert digest(state(name, skeleton(name))) == DIGESTS[name]


def test_images_and_targets_stay_as_they_are() -> None:
    assert digest({"images": images(2)}) == DIGESTS["images"]
    assert digest({"targets": targets(2)}) == DIGESTS["targets"]


def test_a_batch_begins_alike_whatever_its_size() -> None:
    assert images(3)[:2].equal(images(2))
    assert targets(8)[:2].equal(targets(2))


@pytest.mark.parametrize("name", TABLES)
def test_logits_tell_images_apart(name: str) -> None:
    model = make(name, MODES["float32"], CPU).eval()
    with torch.no_grad():
        logits = model(images(2))
    assert logits.isfinite().all()
    assert 0.5 < logits.std() < 5
    assert (logits[0] - logits[1]).std() > 0.2 * logits.std()


def test_activations_of_resnet50_neither_vanish_nor_explode() -> None:
    model = make("resnet50", MODES["float32"], CPU).train()
    seen: dict[str, float] = {}
    for name, module in model.named_modules():
        if isinstance(module, nn.BatchNorm2d | nn.Conv2d):
            module.register_forward_hook(lambda _, __, out, name=name: seen.update({name: float(out.detach().std())}))
    with torch.no_grad():
        model(images(2))
    assert len(seen) == 106
    assert all(0.05 < spread < 5 for spread in seen.values()), seen


def test_a_convolutions_weights_add_up_to_nothing_in_every_output() -> None:
    weights = state("resnet50", skeleton("resnet50"))["layer1.0.conv2.weight"].double().flatten(1)
    assert weights.sum(1).abs().max() < 1e-4 * weights.abs().sum(1).min()
    assert math.isclose(weights.var(), 3.0 / weights.shape[1], rel_tol=0.05)
