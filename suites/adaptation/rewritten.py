"""A vision transformer rewritten for another device: renamed modules, separate projections, and typical mistakes.

It takes its weights from an original; a mapping of names relates their modules.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from torch import Tensor, nn

from ..models import architectures
from ..models.computation import MODES, images
from ..models.computation import make as make_model
from ..training import recipes as small

#: Name of an original's block, and the names of its parts by those of the rewritten block.
BLOCK = "encoder.layers.encoder_layer_{}"
PARTS = {
    "before": "ln_1",
    "attend.out": "self_attention.out_proj",
    "attend": "self_attention",
    "between": "ln_2",
    "up": "mlp.0",
    "act": "mlp.1",
    "down": "mlp.3",
}


def names(original: architectures.VisionTransformer) -> dict[str, str]:
    """Return the rewritten model's module names, each with its counterpart in the original."""
    blocks = [(f"blocks.{number}", BLOCK.format(number)) for number in range(len(original.encoder.layers))]
    of_parts = {f"{mine}.{part}": f"{theirs}.{its}" for part, its in PARTS.items() for mine, theirs in blocks}
    return {"stem": "conv_proj", **of_parts, **dict(blocks), "after": "encoder.ln", "classifier": "heads.head"}


#: Functions that make an original, with exact GELU, and an input.
ORIGINALS: Mapping[str, tuple[Callable[[], Any], Callable[[], Tensor]]] = {
    "small-vit": (lambda: small.make("small-vit", activation=nn.GELU), lambda: images(2, 32, "training/rewritten", 4)),
    "vit_b_16": (lambda: make_model("vit_b_16", MODES["float32"], torch.device("cpu")), lambda: images(1)),
}


class TanhGelu(nn.Module):
    """GELU by its tanh approximation, written out: torch_npu may compute the exact one for ``approximate="tanh"``."""

    def forward(self, x: Tensor) -> Tensor:
        return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


class Attention(nn.Module):
    def __init__(self, of: architectures.SelfAttention) -> None:
        super().__init__()
        self.heads, self.causal = of.heads, False
        self.q, self.k, self.v = (nn.Linear(of.out_proj.in_features, of.out_proj.in_features) for _ in "qkv")
        joint = zip((self.q, self.k, self.v), of.in_proj_weight.chunk(3), of.in_proj_bias.chunk(3), strict=True)
        for each, weight, bias in joint:
            each.load_state_dict({"weight": weight, "bias": bias})
        self.out = of.out_proj

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (each(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for each in (self.q, self.k, self.v))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        out: Tensor = self.out(mixed.transpose(1, 2).flatten(2))
        return out


class Block(nn.Module):
    def __init__(self, of: Any) -> None:
        super().__init__()
        self.before, self.attend, self.between = of.ln_1, Attention(of.self_attention), of.ln_2
        self.up, self.act, self.down = (of.mlp[place] for place in (0, 1, 3))
        self.drop = nn.Dropout(0.0)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attend(self.before(x))
        out: Tensor = x + self.down(self.drop(self.act(self.up(self.between(x)))))
        return out


class RewrittenViT(nn.Module):
    """A rewrite of an original with copies of its parts, and separate projections for queries, keys and values."""

    def __init__(self, original: architectures.VisionTransformer) -> None:
        super().__init__()
        original = copy.deepcopy(original)
        encoder = original.encoder
        self.stem, self.token, self.places = original.conv_proj, original.class_token, encoder.pos_embedding
        self.blocks = nn.ModuleList(Block(each) for each in encoder.layers)
        self.after, self.classifier = encoder.ln, original.heads[0]

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.stem(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(tokens), -1, -1), tokens], 1) + self.places
        for block in self.blocks:
            x = block(x)
        logits: Tensor = self.classifier(self.after(x)[:, 0])
        return logits


#: Typical mistakes: a change to the model's last block, and the module in the block ("": the block) where it begins.
#: The mask, between the projections, and dropout, without a counterpart in the original, show in the module around.
SLIPS: Mapping[str, tuple[Callable[[nn.Module], None], str]] = {
    "tanh-gelu": (lambda block: block.add_module("act", TanhGelu()), "act"),
    "causal-mask": (lambda block: setattr(block.get_submodule("attend"), "causal", True), "attend"),
    "active-dropout": (lambda block: block.add_module("drop", nn.Dropout(0.1).train()), ""),
}
