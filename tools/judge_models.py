"""Architectures of transformers and diffusers with random weights, and what they are called with: small ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import torch
from torch import nn

#: Makes a model in evaluation mode, and the keywords it is called with.
Make: TypeAlias = Callable[[], tuple[nn.Module, dict[str, Any]]]


def _words(batch: int = 2, length: int = 12, below: int = 99) -> dict[str, Any]:
    return {"input_ids": torch.randint(1, below, (batch, length))}


def _labelled(**given: Any) -> dict[str, Any]:
    words = _words()
    return {**words, "labels": words["input_ids"].clone(), **given}


def _transformer(model: str, config: str, given: Callable[[], dict[str, Any]], **settings: Any) -> Make:
    def make() -> tuple[nn.Module, dict[str, Any]]:
        import transformers  # noqa: PLC0415 - takes seconds

        made = getattr(transformers, model)(getattr(transformers, config)(**settings))
        return made.eval(), given()

    return make


def _diffuser(model: str, given: Callable[[], dict[str, Any]], **settings: Any) -> Make:
    def make() -> tuple[nn.Module, dict[str, Any]]:
        import diffusers  # noqa: PLC0415

        return getattr(diffusers, model)(**settings).eval(), given()

    return make


_SMALL = {"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
_WIDE = {**_SMALL, "intermediate_size": 64}
_DECODER = {**_WIDE, "num_key_value_heads": 2, "max_position_embeddings": 64}
_IMAGE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}


def _pixels(size: int = 32) -> dict[str, Any]:
    return {"pixel_values": torch.randn(2, 3, size, size)}


def _both() -> dict[str, Any]:
    words = _words()
    return {**words, "decoder_input_ids": words["input_ids"].clone(), "labels": words["input_ids"].clone()}


def _block() -> tuple[nn.Module, dict[str, Any]]:
    """Return what the README judges."""
    return nn.Sequential(nn.Linear(128, 64), nn.GELU()), {"input": torch.randn(8, 128)}


ARCHITECTURES: Mapping[str, Make] = {
    "the README's block": _block,
    "GPT-2": _transformer("GPT2LMHeadModel", "GPT2Config", _labelled, vocab_size=99, n_embd=32, n_layer=2, n_head=4),
    "Llama": _transformer("LlamaForCausalLM", "LlamaConfig", _labelled, **_DECODER),
    "Qwen 3": _transformer("Qwen3ForCausalLM", "Qwen3Config", _labelled, **_DECODER, head_dim=8),
    "Gemma 2": _transformer(
        "Gemma2ForCausalLM", "Gemma2Config", _labelled, **_DECODER, head_dim=8, hidden_activation="gelu"
    ),
    "Mixtral": _transformer("MixtralForCausalLM", "MixtralConfig", _labelled, **_DECODER, num_local_experts=4),
    "OPT": _transformer(
        "OPTForCausalLM", "OPTConfig", _labelled, **_SMALL, ffn_dim=64, word_embed_proj_dim=32, pad_token_id=0
    ),
    "BLOOM": _transformer("BloomForCausalLM", "BloomConfig", _labelled, **_SMALL),
    "BERT": _transformer("BertForMaskedLM", "BertConfig", _labelled, **_WIDE),
    "DistilBERT": _transformer(
        "DistilBertModel", "DistilBertConfig", _words, vocab_size=99, dim=32, n_layers=2, n_heads=4, hidden_dim=64
    ),
    "ALBERT": _transformer("AlbertModel", "AlbertConfig", _words, **_WIDE, embedding_size=16),
    "DeBERTa": _transformer("DebertaV2Model", "DebertaV2Config", _words, **_WIDE),
    "T5": _transformer(
        "T5ForConditionalGeneration", "T5Config", _both, vocab_size=99, d_model=32, d_kv=8, d_ff=64,
        num_layers=2, num_heads=4,
    ),
    "BART": _transformer(
        "BartForConditionalGeneration", "BartConfig", _both, vocab_size=99, d_model=32, encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=64, decoder_ffn_dim=64,
    ),
    "ViT": _transformer("ViTModel", "ViTConfig", _pixels, **_IMAGE, image_size=32, patch_size=8),
    "ConvNeXt": _transformer(
        "ConvNextModel", "ConvNextConfig", _pixels, hidden_sizes=[16, 32], depths=[1, 1], num_stages=2
    ),
    "ResNet": _transformer(
        "ResNetModel", "ResNetConfig", _pixels, embedding_size=16, hidden_sizes=[16, 32], depths=[1, 1],
        layer_type="basic",
    ),
    "Swin": _transformer(
        "SwinModel", "SwinConfig", _pixels, image_size=32, patch_size=4, embed_dim=16, depths=[1, 1], num_heads=[2, 4],
        window_size=4,
    ),
    "Wav2Vec 2": _transformer(
        "Wav2Vec2Model", "Wav2Vec2Config", lambda: {"input_values": torch.randn(2, 400)}, **_IMAGE, conv_dim=[16, 16],
        conv_stride=[5, 2], conv_kernel=[10, 3], num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=4,
        num_feat_extract_layers=2, vocab_size=32,
    ),
    "UNet": _diffuser(
        "UNet2DConditionModel",
        lambda: {
            "sample": torch.randn(1, 4, 8, 8), "timestep": torch.tensor([3]),
            "encoder_hidden_states": torch.randn(1, 5, 16)
        },
        sample_size=8, block_out_channels=(32, 64), layers_per_block=1, cross_attention_dim=16, attention_head_dim=8,
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"), up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
    ),
    "VAE": _diffuser(
        "AutoencoderKL", lambda: {"sample": torch.randn(1, 3, 16, 16)}, block_out_channels=(32,), latent_channels=4,
        norm_num_groups=8,
    ),
}  # fmt: skip


def made(name: str) -> tuple[nn.Module, dict[str, Any]]:
    """Make an architecture; its weights and inputs are the same each time."""
    torch.manual_seed(0)
    return ARCHITECTURES[name]()
