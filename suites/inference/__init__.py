"""The cases of language models in serving: every variant of computing a text gives the float64 result."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from pytest_ascend.records.case import Case

#: Variants for every model: all tokens at once, in chunks, token by token, in a batch with padding, a separate and a
#: merged adapter, generated, and how far a training's log-probabilities are from those of token by token.
WAYS = ("prefill", "chunks", "steps", "padded-left", "padded-right", "lora", "lora-merged", "greedy", "drift")
#: Model -> further variants: sequences in one row, drafts that are verified, keys and values in int8, tokens drawn by
#: seed, identical experts, experts of limited capacity, drafts of the model's own head.
MODELS = {
    "qwen3": ("packed", "drafted", "int8-cache", "sampled"),
    "qwen3-moe": ("packed", "ties", "capacity"),
    "deepseek-v3": ("packed", "speculative"),
    "deepseek-v3.2": ("packed",),
    "qwen3-next": (),
    "internvl3": ("packed",),
}


#: Variants at level standard, for all models and for some; the rest is at level full.
EARLY = ("prefill", "steps", "padded-left", "greedy", "ties", "capacity", "sampled", "speculative")
ALSO = {
    *(("qwen3", "packed", "float32"), ("qwen3", "drafted", "float32"), ("internvl3", "packed", "float32")),
    ("qwen3", "drift", "bfloat16"),
}


def _cases() -> Iterator[Case]:
    of_models = partial(Case, suite="inference", family="models")
    for model, more in MODELS.items():
        for way in (*WAYS, *more):
            # In bfloat16, a wrong element cannot be distinguished from a number that int8 rounds to the other
            # neighbour, nor from the result of another key with nearly the same score.
            only = way in ("int8-cache", "sampled") or model == "deepseek-v3.2"
            for dtype in ("float32",) if only else ("float32", "bfloat16"):
                is_early = (way in EARLY and dtype == "float32") or (model, way, dtype) in ALSO
                level = "standard" if is_early else "full"
                level = "smoke" if (model, way, level) == ("qwen3", "steps", "standard") else level
                yield of_models(subject=model, property=way, dtype=dtype, level=level)
    yield of_models(subject="server", property="generate", dtype="float16", level="standard")


CASES = tuple(_cases())
