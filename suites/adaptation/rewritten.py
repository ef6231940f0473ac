"""A vision transformer rewritten for another device: other names, separate projections, and typical mistakes.

It takes its weights from an original; a map of names relates their modules.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
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
    """A vision transformer: its heads and blocks, the names of its parts, and one input.

    ``ends`` are the original's modules that do as the rewritten stem, norm and classifier; ``block`` is the name of a
    block with ``{}`` for its number, ``parts`` are those of :data:`PARTS` in it. ``given`` are the parameter before the
    patches and the position embedding; ``qkv`` are weight and bias of a block's joint projection.
    """

    make: Callable[[], nn.Module]
    input: Callable[[], Tensor]
    heads: int
    depth: int
    ends: tuple[str, str, str]
    block: str
    parts: tuple[str, ...]
    given: tuple[str, str]
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
        heads=small.HEADS,
        depth=small.DEPTH,
        ends=("patches", "ln", "head"),
        block="layers.{}",
        parts=("ln1", "attention.out", "attention", "ln2", "mlp.0", "mlp.1", "mlp.2"),
        given=("token", "places"),
        qkv=("attention.qkv.weight", "attention.qkv.bias"),
    ),
    "vit_b_16": Original(
        make=lambda: make_model("vit_b_16", MODES["float32"], torch.device("cpu")),
        input=lambda: images(1),
        heads=architectures.HEADS,
        depth=architectures.LAYERS,
        ends=("conv_proj", "encoder.ln", "heads.head"),
        block="encoder.layers.encoder_layer_{}",
        parts=("ln_1", "self_attention.out_proj", "self_attention", "ln_2", "mlp.0", "mlp.1", "mlp.3"),
        given=("class_token", "encoder.pos_embedding"),
        qkv=("self_attention.in_proj_weight", "self_attention.in_proj_bias"),
    ),
}


class TanhGelu(nn.Module):
    """GELU by its tanh approximation, written out: torch_npu may compute the exact one for ``approximate="tanh"``."""

    def forward(self, x: Tensor) -> Tensor:
        return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


class Attention(nn.Module):
    def __init__(self, heads: int, joint: Sequence[Tensor], out: nn.Module) -> None:
        super().__init__()
        self.heads, self.causal = heads, False
        self.q, self.k, self.v = (nn.Linear(len(joint[1]) // 3, len(joint[1]) // 3) for _ in "qkv")
        for each, weight, bias in zip((self.q, self.k, self.v), *(part.chunk(3) for part in joint), strict=True):
            each.load_state_dict({"weight": weight, "bias": bias})
        self.out = out

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (each(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for each in (self.q, self.k, self.v))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        out: Tensor = self.out(mixed.transpose(1, 2).flatten(2))
        return out


class Block(nn.Module):
    def __init__(self, of: Original, original: nn.Module) -> None:
        super().__init__()
        parts = dict(zip(PARTS, (original.get_submodule(each) for each in of.parts), strict=True))
        joint = [original.get_parameter(each) for each in of.qkv]
        self.before, self.attend = parts["before"], Attention(of.heads, joint, parts["attend.out"])
        self.between, self.act, self.up = (parts[each] for each in ("between", "act", "up"))
        self.drop, self.down = nn.Dropout(0.0), parts["down"]

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attend(self.before(x))
        out: Tensor = x + self.down(self.drop(self.act(self.up(self.between(x)))))
        return out


class RewrittenViT(nn.Module):
    """Takes copies of an original's parts, with a projection each for queries, keys and values."""

    def __init__(self, of: Original, original: nn.Module) -> None:
        super().__init__()
        original = copy.deepcopy(original)
        stem, after, classifier = (original.get_submodule(each) for each in of.ends)
        self.stem, (self.token, self.places) = stem, (original.get_parameter(each) for each in of.given)
        blocks = (original.get_submodule(of.block.format(number)) for number in range(of.depth))
        self.blocks = nn.ModuleList(Block(of, each) for each in blocks)
        self.after, self.classifier = after, classifier

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.stem(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(tokens), -1, -1), tokens], 1) + self.places
        for block in self.blocks:
            x = block(x)
        logits: Tensor = self.classifier(self.after(x)[:, 0])
        return logits


#: Typical mistakes: a change that breaks the model's last block, and the module in it ("": itself) in which it begins.
#: The mask is between the projections, and dropout has no counterpart in the original: the module around each shows it.
SLIPS: Mapping[str, tuple[Callable[[nn.Module], None], str]] = {
    "tanh-gelu": (lambda block: block.add_module("act", TanhGelu()), "act"),
    "causal-mask": (lambda block: setattr(block.get_submodule("attend"), "causal", True), "attend"),
    "active-dropout": (lambda block: block.add_module("drop", nn.Dropout(0.1).train()), ""),
}
