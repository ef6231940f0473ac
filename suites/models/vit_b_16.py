"""ViT-B/16, frozen: what goldens were made of must not change under them.

A. Dosovitskiy et al., "An image is worth 16x16 words", ICLR 2021: twelve pre-norm encoder layers over 196 patches and
a class token. Parameters have the names and shapes of torchvision's ``vit_b_16``.
"""

from __future__ import annotations

from collections import OrderedDict

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from torch import Tensor, nn

IMAGE, PATCH, WIDTH, HEADS, LAYERS, MLP_WIDTH = 224, 16, 768, 12, 12, 3072
TOKENS = (IMAGE // PATCH) ** 2 + 1
#: The epsilon of every LayerNorm, as in the authors' code.
EPS = 1e-6


class SelfAttention(nn.Module):
    """Every token looks at every token: (N, tokens, width) to the same."""

    def __init__(self) -> None:
        super().__init__()
        self.in_proj_weight = nn.Parameter(torch.empty(3 * WIDTH, WIDTH))
        self.in_proj_bias = nn.Parameter(torch.empty(3 * WIDTH))
        self.out_proj = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, _ = x.shape
        projected = F.linear(x, self.in_proj_weight, self.in_proj_bias)
        q, k, v = projected.reshape(batch, tokens, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v)
        out: Tensor = self.out_proj(mixed.transpose(1, 2).reshape(batch, tokens, WIDTH))
        return out


class EncoderLayer(nn.Module):
    """Attention, then two linear layers, each added to what came in: (N, tokens, width) to the same."""

    def __init__(self) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(WIDTH, eps=EPS)
        self.self_attention = SelfAttention()
        self.ln_2 = nn.LayerNorm(WIDTH, eps=EPS)
        # Dropout has no parameters, yet its places number the layers behind it.
        self.mlp = nn.Sequential(
            nn.Linear(WIDTH, MLP_WIDTH), nn.GELU(), nn.Dropout(0.0), nn.Linear(MLP_WIDTH, WIDTH), nn.Dropout(0.0)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.self_attention(self.ln_1(x))
        out: Tensor = x + self.mlp(self.ln_2(x))
        return out


class Encoder(nn.Module):
    """Position embedding, twelve layers and a last normalisation: (N, tokens, width) to the same."""

    def __init__(self) -> None:
        super().__init__()
        self.pos_embedding = nn.Parameter(torch.empty(1, TOKENS, WIDTH))
        layers = ((f"encoder_layer_{index}", EncoderLayer()) for index in range(LAYERS))
        self.layers = nn.Sequential(OrderedDict(layers))
        self.ln = nn.LayerNorm(WIDTH, eps=EPS)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.ln(self.layers(x + self.pos_embedding))
        return out


class VisionTransformer(nn.Module):
    """Images (N, 3, 224, 224) to the logits (N, classes) of their class."""

    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        self.class_token = nn.Parameter(torch.empty(1, 1, WIDTH))
        self.conv_proj = nn.Conv2d(3, WIDTH, PATCH, PATCH)
        self.encoder = Encoder()
        self.heads = nn.Sequential(OrderedDict(head=nn.Linear(WIDTH, classes)))

    def forward(self, x: Tensor) -> Tensor:
        patches = self.conv_proj(x).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.class_token.expand(x.shape[0], -1, -1), patches], dim=1)
        logits: Tensor = self.heads(self.encoder(tokens)[:, 0])
        return logits
