"""A vision transformer rewritten for another device: other names, separate projections, and typical mistakes.

It takes its weights from an original; a map of names relates their modules.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from torch import Tensor, nn

from ..models import architectures
from ..models.computation import MODES, images
from ..models.computation import make as make_model
from ..training import recipes as small


@dataclass(frozen=True, kw_only=True, slots=True)
class Original:
    """A vision transformer: its sizes, the names of its parts, and one input.

    ``ends`` are the original's modules that do as the rewritten stem, norm and classifier; ``block`` is the name of a
    block with ``{}`` for its number, ``parts`` are those of :data:`PARTS` in it. ``leading`` is the parameter before
    the patches, ``places`` the position embedding; ``qkv`` are weight and bias of a block's joint projection.
    """

    make: Callable[[], nn.Module]
    input: Callable[[], Tensor]
    width: int
    heads: int
    depth: int
    patch: int
    inner: int
    classes: int
    ends: tuple[str, str, str]
    block: str
    parts: tuple[str, ...]
    leading: str
    places: str
    qkv: tuple[str, str]

    @property
    def names(self) -> dict[str, str]:
        blocks = [(f"blocks.{number}", self.block.format(number)) for number in range(self.depth)]
        parts = zip(PARTS, self.parts, strict=True)
        of_parts = {f"{mine}.{part}": f"{theirs}.{its}" for part, its in parts for mine, theirs in blocks}
        stem, after, classifier = self.ends
        return {"stem": stem, **of_parts, **dict(blocks), "after": after, "classifier": classifier}


#: Parts of a rewritten block.
PARTS = ("before", "attend.out", "attend", "between", "up", "act", "down")


def _small_vit() -> nn.Module:
    """Return the model of the training suite with the usual GELU, which the rewritten model has, too."""
    model = small.make("small-vit")
    for each in model.modules():
        if isinstance(each, nn.GELU):
            each.approximate = "none"
    return model


ORIGINALS: Mapping[str, Original] = {
    "small-vit": Original(
        make=_small_vit,
        input=lambda: small.images("rewritten", 2),
        width=small.WIDTH,
        heads=small.HEADS,
        depth=small.DEPTH,
        patch=small.PATCH,
        inner=2 * small.WIDTH,
        classes=small.CLASSES,
        ends=("patches", "ln", "head"),
        block="layers.{}",
        parts=("ln1", "attention.out", "attention", "ln2", "mlp.0", "mlp.1", "mlp.2"),
        leading="token",
        places="places",
        qkv=("attention.qkv.weight", "attention.qkv.bias"),
    ),
    "vit_b_16": Original(
        make=lambda: make_model("vit_b_16", MODES["float32"], torch.device("cpu")),
        input=lambda: images(1),
        width=architectures.WIDTH,
        heads=architectures.HEADS,
        depth=architectures.LAYERS,
        patch=architectures.PATCH,
        inner=architectures.MLP_WIDTH,
        classes=1000,
        ends=("conv_proj", "encoder.ln", "heads.head"),
        block="encoder.layers.encoder_layer_{}",
        parts=("ln_1", "self_attention.out_proj", "self_attention", "ln_2", "mlp.0", "mlp.1", "mlp.3"),
        leading="class_token",
        places="encoder.pos_embedding",
        qkv=("self_attention.in_proj_weight", "self_attention.in_proj_bias"),
    ),
}


class TanhGelu(nn.Module):
    """GELU by its tanh approximation, written out: torch_npu may compute the exact one for ``approximate="tanh"``."""

    def forward(self, x: Tensor) -> Tensor:
        return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.causal = heads, False
        self.q, self.k, self.v, self.out = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (each(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for each in (self.q, self.k, self.v))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        out: Tensor = self.out(mixed.transpose(1, 2).flatten(2))
        return out


class Block(nn.Module):
    def __init__(self, width: int, heads: int, inner: int, eps: float) -> None:
        super().__init__()
        self.before, self.attend = nn.LayerNorm(width, eps), Attention(width, heads)
        self.between, self.act = nn.LayerNorm(width, eps), nn.GELU()
        self.up, self.drop, self.down = nn.Linear(width, inner), nn.Dropout(0.0), nn.Linear(inner, width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attend(self.before(x))
        out: Tensor = x + self.down(self.drop(self.act(self.up(self.between(x)))))
        return out


class RewrittenViT(nn.Module):
    def __init__(self, of: Original, original: nn.Module) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, of.width, of.patch, of.patch)
        self.token = nn.Parameter(original.get_parameter(of.leading).detach().clone())
        self.places = nn.Parameter(original.get_parameter(of.places).detach().clone())
        self.blocks = nn.ModuleList(Block(of.width, of.heads, of.inner, 1e-6) for _ in range(of.depth))
        self.after, self.classifier = nn.LayerNorm(of.width, 1e-6), nn.Linear(of.width, of.classes)
        for mine, theirs in of.names.items():
            module = self.get_submodule(mine)
            if not any(True for _ in module.children()):
                module.load_state_dict(original.get_submodule(theirs).state_dict())
        for number, block in enumerate(self.blocks):
            thirds = (original.get_parameter(f"{of.block.format(number)}.{key}").chunk(3) for key in of.qkv)
            for name, weight, bias in zip("qkv", *thirds, strict=True):
                block.get_submodule(f"attend.{name}").load_state_dict({"weight": weight, "bias": bias})

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.stem(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(tokens), -1, -1), tokens], 1) + self.places
        for block in self.blocks:
            x = block(x)
        logits: Tensor = self.classifier(self.after(x)[:, 0])
        return logits


@dataclass(frozen=True, slots=True)
class PlantedMistake:
    """A change that breaks the model, in the last block.

    ``where`` is the module in it whose input is right and whose output is wrong; "" is the block itself.
    """

    change: Callable[[nn.Module], None]
    where: str


#: Typical mistakes. The mask is between the projections, and dropout has no counterpart in the original: the module
#: around each shows it.
SLIPS: Mapping[str, PlantedMistake] = {
    "tanh-gelu": PlantedMistake(lambda block: block.add_module("act", TanhGelu()), "act"),
    "causal-mask": PlantedMistake(lambda block: setattr(block.get_submodule("attend"), "causal", True), "attend"),
    "active-dropout": PlantedMistake(lambda block: block.add_module("drop", nn.Dropout(0.1).train()), ""),
}
