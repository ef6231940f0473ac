"""A model from a folder of transformers: ``config.json``, with or without weights. Nothing in it is run or unpickled.

The code comes from the installed transformers; weights are only read from safetensors. A folder without weights gets
random weights, and a small configuration of a large model.
"""

from __future__ import annotations

import inspect
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from pytest_ascend.system.dispatching import Watch
from pytest_ascend.system.errors import UsageError, as_error
from pytest_ascend.system.files import read_regular, strict_json

CONFIG, CONFIG_LIMIT_BYTES = "config.json", 16 * 2**20
#: Weights, in one file or by the index of several; and pickled ones, which are never read.
WEIGHTS, PICKLED = ("model.safetensors", "model.safetensors.index.json"), ("*.bin", "*.pt", "*.pth", "*.ckpt")
#: Settings that name code, files or formats outside of the architecture.
IGNORED = {
    *("auto_map", "quantization_config", "attn_implementation", "experts_implementation"),
    *("torch_dtype", "dtype", "transformers_version", "id2label", "label2id"),
}

#: Number of parameters above which a folder without weights gets a small configuration.
SMALL_FROM = 20_000_000
#: The largest numbers of a small configuration, by transformers' names.
LARGEST = {
    "vocab_size": 256, "hidden_size": 64, "out_hidden_size": 64, "intermediate_size": 128,
    "moe_intermediate_size": 32, "shared_expert_intermediate_size": 32, "num_hidden_layers": 2, "depth": 2,
    "num_attention_heads": 4, "num_heads": 4, "head_dim": 16, "num_experts": 8, "num_local_experts": 8,
    "n_routed_experts": 8, "num_experts_per_tok": 2, "n_group": 2, "topk_group": 1, "first_k_dense_replace": 1,
    "q_lora_rank": 32, "kv_lora_rank": 32, "qk_rope_head_dim": 8, "qk_nope_head_dim": 16, "v_head_dim": 16,
    "linear_key_head_dim": 16, "linear_value_head_dim": 16, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
    "sliding_window": 8, "num_position_embeddings": 16,
}  # fmt: skip
#: Patches along the side of a small image.
SIDE = 4
#: Samples of an input, tokens of each, and number of padding tokens in the last sample.
BATCH, LENGTH, PADDING = 2, 20, 3
#: Number of inputs drawn, of which the one whose routers are furthest from a tie is used; up to how many parameters.
DRAWS, DRAWN_UP_TO = 16, 100_000_000

GENERATIVE = ("ForCausalLM", "ForConditionalGeneration")


def is_folder(name: str) -> bool:
    """Return whether a model's name is that of a folder with a configuration."""
    return (Path(name) / CONFIG).is_file()


def generates(name: str) -> bool:
    """Return whether a folder's model generates text: its configuration names such an architecture, or none."""
    return any(str(each).endswith(GENERATIVE) for each in _content(name).get("architectures") or GENERATIVE)


def refuse_unusable(name: str) -> None:
    """Raise UsageError for a folder that gives no model, as far as that can be decided without building it."""
    _class_of(name, _config(name))
    _has_weights(name)


@lru_cache(maxsize=1)
def made(name: str) -> tuple[nn.Module, dict[str, Any]]:
    """Return the model of a folder in float32 and evaluation mode, and inputs for it. Raises UsageError."""
    config = _config(name)
    kind = _class_of(name, config)
    torch.manual_seed(0)
    if _has_weights(name):
        load: Any = kind.from_pretrained
        model = load(name, config=config, dtype=torch.float32, local_files_only=True, use_safetensors=True).eval()
    else:
        model = _built(name, kind, config).eval()
    # Use the inputs whose routers are furthest from a tie, where correct devices may choose different experts.
    draws = DRAWS if sum(each.numel() for each in model.parameters()) <= DRAWN_UP_TO else 1
    inputs = [_inputs(model, seed) for seed in range(draws)]
    best, found = -math.inf, inputs[0]
    for each in inputs:
        margins = [math.inf]
        with torch.no_grad(), Watch(lambda *called: margins.extend(_margin(*called))):  # noqa: B023
            model(**each)
        if (nearest := min(margins)) > best:
            best, found = nearest, each
        if nearest == math.inf:
            break
    return model, found


def _content(name: str) -> dict[str, Any]:
    hint = "name a folder that save_pretrained() wrote"
    with as_error(f"{name}/{CONFIG}", hint, OSError, ValueError, why=str):
        content = strict_json(read_regular(Path(name) / CONFIG, CONFIG_LIMIT_BYTES), constants=True)
    if not isinstance(content, dict) or not isinstance(content.get("model_type"), str):
        raise UsageError(f"{name}/{CONFIG} names no model_type", hint=hint)
    return content


def _config(name: str) -> Any:
    content = _content(name)
    os.environ.setdefault("HF_HUB_OFFLINE", "1")  # read by transformers' first import: nothing is downloaded
    hint = "pip install transformers, or name a factory of yours, as package.module:function"
    with as_error(f"{name} is a folder of transformers, which cannot be imported", hint, ImportError):
        import transformers  # noqa: PLC0415 - optional
    known, architecture = transformers.CONFIG_MAPPING, content["model_type"]
    if architecture not in known:
        own = "; the folder brings code of its own, which is never run" if "auto_map" in content else ""
        message = f"{name}: transformers {transformers.__version__} has no architecture {architecture[:80]!r}{own}"
        hint = "use a version that has it, a checkpoint converted for transformers, or a factory of yours"
        raise UsageError(message, hint=hint)
    hint = f"see that it loads with transformers {transformers.__version__}"
    with as_error(f"{name}/{CONFIG} is no configuration of {architecture}", hint, Exception, why=_shortly):
        return known[architecture].from_dict(_cleaned(content))


def _shortly(error: Exception) -> str:
    """Return the beginning of an error that a class of transformers raises for a configuration, which may be any."""
    return str(error)[:500]


def _cleaned(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _cleaned(each) for key, each in value.items() if key not in IGNORED and not key.startswith("_")}
    return [_cleaned(each) for each in value] if isinstance(value, list) else value


def _class_of(name: str, config: Any) -> Any:
    """Return the class of transformers that the configuration names, else the one that generates text."""
    import transformers  # noqa: PLC0415 - optional

    if config.is_encoder_decoder:
        message = f"{name}: {config.model_type} encodes one text and decodes another, and no inputs are made for that"
        hint = "write a function that returns the model and its inputs, and name it as package.module:function"
        raise UsageError(message, hint=hint)
    for named in config.architectures or ():
        found = getattr(transformers, str(named), None)
        if isinstance(found, type) and issubclass(found, transformers.PreTrainedModel):
            return found
    for auto in ("AutoModelForCausalLM", "AutoModelForImageTextToText", "AutoModel"):
        if type(config) in (kinds := getattr(transformers, auto)._model_mapping):  # noqa: SLF001 - public under no name
            found = kinds[type(config)]
            return found[0] if isinstance(found, tuple) else found
    raise UsageError(f"{name}: transformers has no model of {config.model_type}", hint="name a factory of yours")


def _has_weights(name: str) -> bool:
    """Return whether a folder has weights. Raises UsageError for unsupported ones: pickled and quantized weights."""
    if any((Path(name) / each).is_file() for each in WEIGHTS):
        if _content(name).get("quantization_config"):
            hint = f"give the weights before quantization, or {CONFIG} alone for random ones"
            raise UsageError(f"{name} has quantized weights, which have no float64 values to judge by", hint=hint)
        return True
    pickled = sorted(each.name for pattern in PICKLED for each in Path(name).glob(pattern))
    if pickled:
        hint = f"convert them to safetensors, or give {CONFIG} alone for random ones"
        raise UsageError(f"{name} has pickled weights alone ({pickled[0]}), and a pickle may run code", hint=hint)
    return False


def _built(name: str, kind: Any, config: Any) -> nn.Module:
    """Return a model with random weights, in a small configuration if it is large."""
    message = f"{name}: {config.model_type} cannot be built in a small configuration"
    with as_error(message, f"write small numbers into {CONFIG} yourself", Exception, why=_shortly):
        with torch.device("meta"):
            size = sum(each.numel() for each in kind(config).parameters())
        is_small = size <= SMALL_FROM
        model: nn.Module = kind(config if is_small else type(config).from_dict(_shrunk(config.to_dict(), {})))
    # Scale random weights by their fan-in: transformers' 0.02 leaves hardly a signal in a small model.
    convolutions = {id(each.weight) for each in model.modules() if isinstance(each, nn.Conv1d | nn.Conv2d | nn.Conv3d)}
    with torch.no_grad():
        for each in model.parameters():
            if each.dim() < 2:
                each.add_(torch.empty_like(each).uniform_(-0.1, 0.1))
            elif (std := float(each.std())) > 0:
                terms = math.prod(each.shape[1:]) if id(each) in convolutions else each.shape[-1]
                each.mul_(terms**-0.5 / std)
    return model


def _shrunk(given: Mapping[str, Any], tokens: dict[int, int]) -> dict[str, Any]:
    """Return a configuration with numbers up to :data:`LARGEST`, and each kind of layer still in it."""
    made: dict[str, Any] = {
        key: _shrunk(each, tokens) if isinstance(each, dict) else each for key, each in _cleaned(given).items()
    }
    made |= {key: min(made[key], most) for key, most in LARGEST.items() if isinstance(made.get(key), int)}
    heads = given.get("num_attention_heads")
    if given.get("num_key_value_heads"):
        made["num_key_value_heads"] = made["num_attention_heads"] // (1 if given["num_key_value_heads"] == heads else 2)
    if kinds := given.get("layer_types"):
        last = max(kinds.index(each) for each in kinds)
        made["num_hidden_layers"] = max(last + 1, made["num_hidden_layers"])
        made["layer_types"] = kinds[: made["num_hidden_layers"]]
    if "qk_rope_head_dim" in given:  # these follow from others
        made.pop("head_dim", None), made.pop("qk_head_dim", None)
    if "deepstack_visual_indexes" in given:
        made["deepstack_visual_indexes"] = [0]
    if "image_size" in given and "patch_size" in given:
        made["image_size"] = [SIDE * each for each in _pair(given["patch_size"])]
    if "image_seq_length" in given:
        made["image_seq_length"] = int((SIDE * given["downsample_ratio"]) ** 2)
    if sections := given.get("mrope_section"):
        half = LARGEST["head_dim"] // 2
        rest = [half * each // sum(sections) for each in sections[1:]]
        made["mrope_section"] = [half - sum(rest), *rest]
    for key, token in given.items():
        if key.endswith("_token_id") and isinstance(token, int) and token >= LARGEST["vocab_size"]:
            made[key] = tokens.setdefault(token, LARGEST["vocab_size"] - 1 - len(tokens))
    return made


def _pair(value: Any) -> list[int]:
    return [value, value] if isinstance(value, int) else list(value)


def _inputs(model: nn.Module, seed: int) -> dict[str, Any]:
    """Return random tokens, with labels for a model that has a loss, and with images for one that takes them."""
    config: Any = model.config
    takes = inspect.signature(model.forward).parameters
    draw = torch.Generator().manual_seed(seed)
    special = {each for key, each in config.to_dict().items() if key.endswith("_token_id") and isinstance(each, int)}
    vocabulary = (getattr(config, "text_config", None) or config).vocab_size
    known = torch.tensor([each for each in range(min(vocabulary, 2**15)) if each not in special])
    tokens = known[torch.randint(len(known), (BATCH, LENGTH), generator=draw)]
    images = IMAGES.get(config.model_type)
    mask = torch.ones_like(tokens)
    mask[-1, -PADDING:] = 0
    found = {"input_ids": tokens, "attention_mask": mask, **(images(config, tokens, draw) if images else {})}
    if "mm_token_type_ids" in takes and images is not None:
        found["mm_token_type_ids"] = (tokens == config.image_token_id).int()
    if "labels" in takes and hasattr(model, "generate"):
        found["labels"] = torch.where(mask > 0, tokens, -100)
    return found


def _place(tokens: Tensor, config: Any, counts: list[int], before: int | None = None) -> None:
    """Write this many image tokens into each sample, starting at its third token."""
    for row, count in zip(tokens, counts, strict=True):
        row[2 : 2 + count] = config.image_token_id
        if before is not None:
            row[1] = before


def _tiles(config: Any, tokens: Tensor, draw: torch.Generator) -> dict[str, Tensor]:
    """Return tiles as InternVL takes them: three for the first sample's image, one for the others'."""
    counts = [min(3, (LENGTH - 2 - PADDING) // config.image_seq_length), *[1] * (BATCH - 1)]
    if counts[0] < 1:
        return {}
    _place(tokens, config, [each * config.image_seq_length for each in counts])
    vision = config.vision_config
    shape = (sum(counts), vision.num_channels, *_pair(vision.image_size))
    return {"pixel_values": torch.randn(shape, generator=draw)}


def _patches(config: Any, tokens: Tensor, draw: torch.Generator) -> dict[str, Tensor]:
    """Return patches as Qwen-VL takes them: images of different sizes."""
    vision = config.vision_config
    merge = vision.spatial_merge_size
    grids = torch.tensor([[1, 2 * merge, (2 + place) * merge] for place in range(BATCH)])
    _place(tokens, config, (grids.prod(1) // merge**2).tolist(), config.vision_start_token_id)
    pixels = vision.in_channels * vision.temporal_patch_size * math.prod(_pair(vision.patch_size))
    patches = torch.randn((int(grids.prod(1).sum()), pixels), generator=draw)
    return {"pixel_values": patches, "image_grid_thw": grids}


#: Functions that generate the images of an architecture, and write their tokens.
IMAGES = {"internvl": _tiles, "qwen3_vl": _patches, "qwen3_vl_moe": _patches, "qwen2_5_vl": _patches}


def _margin(func: Any, args: Sequence[Any]) -> Iterator[float]:
    """Yield the distance of a router's operator from a tie: between the last value that is taken and the next one."""
    if func.overloadpacket.__name__ == "topk" and args[0].is_floating_point() and args[1] < args[0].shape[-1]:
        best = args[0].topk(args[1] + 1, -1).values
        yield float((best[..., -2] - best[..., -1]).min())
