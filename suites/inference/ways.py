"""Variants of computing the same texts. Each returns every layer's results for the same tokens, in the same order."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, TypeAlias

import torch
from torch import Tensor

from pytest_ascend.parity import ensemble
from pytest_ascend.parity.language import Continuation, Generation
from pytest_ascend.precision.kernel_fallbacks import products_in_float32
from pytest_ascend.precision.orders import other_order
from pytest_ascend.run import inputs
from pytest_ascend.system.programs import for_now

from .decoders import ARCHITECTURES, IMAGE, PATCH, SIDE, Architecture, Weights, draft, forward, weights

States: TypeAlias = dict[str, Tensor]

#: Tokens of the prompts, image tokens of each from its third token on, and tokens that are generated.
LENGTHS, IMAGES, NEW = (13, 9), (8, 4), 4
CPU = torch.device("cpu")


class Texts:
    """Two texts of different lengths (1, tokens), for one model on a device; each method is a variant of :data:`WAYS`.

    ``tiles`` are those of all texts' images, which have four tokens for each; None for a text-only model.
    """

    def __init__(self, arch: Architecture, given: Weights) -> None:
        self.arch, self.weights = arch, given
        like = given["lm_head.weight"]
        self.rows = list[Tensor]()
        for number, (length, images) in enumerate(zip(LENGTHS, IMAGES, strict=True)):
            row = inputs.integers(f"inference/prompt {number}", (1, length), low=0, high=IMAGE)
            if arch.vision:
                row[:, 2 : 2 + images] = IMAGE
            self.rows.append(row.to(like.device))
        sides = SIDE * PATCH, SIDE * PATCH
        self.tiles = inputs.normal("inference/tiles", (3, 3, *sides)).to(like) if arch.vision else None
        self.images = [None] * len(self.rows) if self.tiles is None else torch.split(self.tiles, [2, 1])

    def each(self, parts: Callable[[int], list[int]]) -> States:
        found = []
        for row, image in zip(self.rows, self.images, strict=True):
            kept: dict[str, Any] = {}
            for place, part in enumerate(torch.split(row, parts(row.shape[1]), 1)):
                found.append(forward(self.arch, self.weights, part, cache=kept, tiles=None if place else image))
        return self._joined([{name: x.flatten(0, -2) for name, x in each.items()} for each in found])

    def prefill(self) -> States:
        return self.each(lambda length: [length])

    def chunks(self) -> States:
        return self.each(lambda length: [length] if length < 10 else [10, 1, length - 11])

    def steps(self) -> States:
        first = 1 if not self.arch.vision else 2 + max(IMAGES)
        return self.each(lambda length: [min(first, length), *[1] * (length - first)])

    def drafted(self) -> States:
        """Verify drafts of three tokens at once, of which one or two are right; the rest is removed from the cache."""
        found = []
        for row in self.rows:
            kept, place, turn = {}, 0, 0  # type: dict[str, Any], int, int
            while place < row.shape[1]:
                right = min(1 + turn % 2, row.shape[1] - place)
                draft = torch.cat([row[:, place : place + right], row.new_full((1, 3 - right), 7)], 1)
                made = forward(self.arch, self.weights, draft, cache=kept)
                place, turn = place + right, turn + 1
                kept = shortened(kept, place)
                found.append({name: x[:, :right].flatten(0, -2) for name, x in made.items()})
        return self._joined(found)

    def padded(self, *, left: bool) -> States:
        """Compute both texts in a batch, the shorter one with padding, whose results are left out."""
        longest = max(each.shape[1] for each in self.rows)
        rows, segments = [], []
        for row in self.rows:
            pad = row.new_full((1, longest - row.shape[1]), 5)
            rows.append(torch.cat([pad, row] if left else [row, pad], 1))
            kinds = [torch.full_like(pad, -1), torch.zeros_like(row)]
            segments.append(torch.cat(kinds if left else kinds[::-1], 1))
        made = forward(self.arch, self.weights, torch.cat(rows), segments=torch.cat(segments), tiles=self.tiles)
        valid = torch.cat(segments) >= 0
        return {name: x[valid] if x.shape[:2] == valid.shape else x.flatten(0, -2) for name, x in made.items()}

    def packed(self) -> States:
        segments = torch.cat([torch.full_like(row, number) for number, row in enumerate(self.rows)], 1)
        made = forward(self.arch, self.weights, torch.cat(self.rows, 1), segments=segments, tiles=self.tiles)
        return {name: x.flatten(0, -2) for name, x in made.items()}

    def drift(self) -> States:
        """Return how far the log-probabilities of a training pass are from those of serving, token by token."""
        logs = [each["logits"].float().log_softmax(-1) for each in (self.prefill(), self.steps())]
        return {"log-probabilities": logs[0] - logs[1]}

    def greedy(self) -> Continuation:
        ends, chosen = [], []
        for number, row in enumerate(self.rows):
            kept: dict[str, Any] = {}
            made = [forward(self.arch, self.weights, row, cache=kept, tiles=self.images[number])]
            for place in range(NEW):
                best = made[-1]["logits"][:, -1].argmax(-1)
                chosen.append(best.cpu())
                if place < NEW - 1:
                    made.append(forward(self.arch, self.weights, best.to(row.device)[:, None], cache=kept))
            ends.append([{name: x[:, -1] for name, x in each.items()} for each in made])
        return continuation(ends, torch.stack(chosen).view(len(self.rows), NEW))

    def given(self, tokens: Tensor) -> Continuation:
        """Return the results at the positions continued by ``tokens`` (texts, new), each text computed at once."""
        ends = [
            last_places(self.arch, self.weights, torch.cat([row, new[None, :-1]], 1), NEW, images)
            for row, new, images in zip(self.rows, tokens, self.images, strict=True)
        ]
        return continuation(ends, tokens)

    def speculative(self) -> Continuation:
        """Continue each text by drafts, each verified with the token before it; rejected ones leave the cache.

        Every second draft is the head's, which has random weights and is seldom right; the others are right.
        """
        right, ends, chosen = self.greedy().tokens, [], []
        last = f"{self.arch.stem}layers.{len(self.arch.mixers) - 1}.mlp"
        for number, row in enumerate(self.rows):
            kept: dict[str, Any] = {}
            made = forward(self.arch, self.weights, row, cache=kept)
            states, known, turn = [made[last]], row, 0
            ends.append([{name: x[:, -1] for name, x in made.items()}])
            while len(ends[-1]) < NEW:
                known = torch.cat([known, ends[-1][-1]["logits"].argmax(-1)[:, None]], 1)
                guess = draft(self.arch, self.weights, known[:, 1:], torch.cat(states, 1)).argmax(-1)
                if turn % 2 == 0:
                    guess = right[number, len(ends[-1])].to(guess).view(1)
                made = forward(self.arch, self.weights, torch.cat([known[:, -1:], guess[:, None]], 1), cache=kept)
                accepted = 1 + is_accepted(made["logits"][:, 0].argmax(-1), guess)
                ends[-1] += [{name: x[:, place] for name, x in made.items()} for place in range(accepted)]
                states.append(made[last][:, :accepted])
                known, turn = torch.cat([known, guess[:, None]], 1)[:, : known.shape[1] + accepted - 1], turn + 1
                kept = shortened(kept, known.shape[1])
            known = torch.cat([known, ends[-1][-1]["logits"].argmax(-1)[:, None]], 1)
            chosen.append(known[0, row.shape[1] :][:NEW].cpu())
            ends[-1] = ends[-1][:NEW]
        return continuation(ends, torch.stack(chosen))

    @staticmethod
    def _joined(found: Sequence[States]) -> States:
        names = dict.fromkeys(name for each in found for name in each)
        return {name: torch.cat([each[name] for each in found if name in each]) for name in names}


def last_places(
    arch: Architecture, given: Weights, row: Tensor, count: int, images: Tensor | None = None
) -> list[States]:
    """Return the results at each of the last positions of a text (1, tokens), all computed at once."""
    made = forward(arch, given, row, tiles=images)
    of_text = {name: x for name, x in made.items() if x.shape[:2] == row.shape}
    return [{name: x[:, place] for name, x in of_text.items()} for place in range(row.shape[1] - count, row.shape[1])]


def is_accepted(best: Tensor, guess: Tensor) -> bool:
    """Return whether a draft is accepted: the model's own choice is the same."""
    return bool(best == guess)


def shortened(kept: Mapping[str, Any], length: int) -> dict[str, Any]:
    """Return a cache with this many tokens: keys are (batch, heads, tokens, size), latent entries have no heads."""
    return {name: x[:, :, :length] if x.dim() == 4 else x[:, :length] for name, x in kept.items()}


def continuation(ends: Sequence[Sequence[States]], tokens: Tensor | None = None) -> Continuation:
    """Return the generation: by text and token the last position's results, and the best tokens if none are given."""
    names = [name for name in ends[0][0] if name in ends[0][-1]]
    found = {name: torch.stack([torch.cat([each[name] for each in text]) for text in ends]).cpu() for name in names}
    logits = found.pop("logits")
    return Continuation(logits.argmax(-1) if tokens is None else tokens, logits, found)


WAYS: Mapping[str, Callable[[Texts], States]] = {
    "padded-left": lambda texts: texts.padded(left=True),
    "padded-right": lambda texts: texts.padded(left=False),
    "int8-cache": Texts.steps,
    **{name: getattr(Texts, name) for name in ("chunks", "steps", "drafted", "packed", "drift")},
}


def prepared(model: str, way: str) -> tuple[Architecture, dict[str, Tensor]]:
    arch = replace(ARCHITECTURES[model], drafts=way == "speculative")
    found = weights(model, arch)
    arch = replace(arch, capacity=3 if way == "capacity" else 0, quantized=way == "int8-cache")
    if way == "ties":  # experts 0 and 1 are identical, so either may be chosen
        for name, each in found.items():
            if ".experts." in name or name.endswith(".gate.weight"):
                each[1] = each[0]
    if way.startswith("lora"):
        for name in [name for name in found if name.endswith(("q_proj.weight", "o_proj.weight", "out_proj.weight"))]:
            (out, into), stem = found[name].shape, name.removesuffix("weight")
            for of, shape, std in (("a", (4, into), 0.1), ("b", (out, 4), 0.5)):
                made = inputs.normal(f"inference/{of}/{name}", shape, std=std)
                found[f"{stem}lora_{of.upper()}.weight"] = made.bfloat16().float()
    return arch, found


def merged(given: Weights) -> dict[str, Tensor]:
    found = {name: each for name, each in given.items() if ".lora_" not in name}
    for name in [name for name in given if name.endswith("lora_A.weight")]:
        stem = name.removesuffix("lora_A.weight")
        found[f"{stem}weight"] = found[f"{stem}weight"] + given[f"{stem}lora_B.weight"] @ given[name]
    return found


def moved(given: Weights, number: int) -> dict[str, Tensor]:
    """Move each weight by -1, 0 or 1 units in the last place."""
    return {name: ensemble.moved(each, f"inference/move {number}/{name}") for name, each in given.items()}


def cast(given: Weights, dtype: torch.dtype, device: torch.device = CPU) -> dict[str, Tensor]:
    return {name: each.to(device, dtype) for name, each in given.items()}


def computed(model: str, way: str, dtype: torch.dtype, device: torch.device) -> States:
    arch, found = prepared(model, way)
    found = cast(found, dtype, device)
    texts = Texts(arch, merged(found) if way == "lora-merged" else found)
    with torch.no_grad():
        return {name: each.cpu() for name, each in WAYS.get(way, Texts.prefill)(texts).items()}


def alone_and_in_a_batch(model: str, way: str, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor, bool]:
    """Return each text's logits in a batch and alone, and whether CANN promises equal bits for the longest text.

    Determinism is requested. The longest text comes first: nothing is promised for padding. Source: Ascend/op-plugin
    517f2e7d (2026-08-21), documentation of torch_npu.npu.set_deterministic_level: level 3, since CANN 9.2.0.
    """
    before: Any = torch.get_deterministic_debug_mode()
    backend, is_promised = getattr(torch, device.type), False
    with warnings.catch_warnings(), contextlib.ExitStack() as stack:
        warnings.simplefilter("ignore")
        stack.enter_context(for_now(torch.set_deterministic_debug_mode, "warn", before))
        with contextlib.suppress(AttributeError, RuntimeError):  # an older torch_npu, or CANN
            stack.enter_context(for_now(backend.set_deterministic_level, 3, 1))
            is_promised = True
        batch, alone = (computed(model, each, dtype, device)["logits"] for each in (way, "prefill"))
    return batch, alone, is_promised


def expected(model: str, way: str) -> States:
    """Return float64's results for each text alone, all tokens at once; none for the variant "drift"."""
    made = _alone(model, way if way in OWN else "prefill")
    return made if way != "drift" else {"log-probabilities": torch.zeros_like(made["logits"])}


@cache
def _alone(model: str, way: str) -> States:
    arch, found = prepared(model, way)
    with torch.no_grad():
        return Texts(arch, cast(found, torch.float64)).prefill()


#: Variants with weights or an architecture of their own; others share reference runs.
OWN = ("ties", "capacity", "lora", "lora-merged", "int8-cache", "drift")


def reference_runs(model: str, way: str, dtype: torch.dtype) -> list[States]:
    """Return the CPU's results in the dtype: of the variant itself, and of moved weights and other orders."""
    return [computed(model, way, dtype, CPU), *_usual_runs(model, way if way in OWN else "prefill", dtype)]


@cache
def _usual_runs(model: str, way: str, dtype: torch.dtype) -> list[States]:
    arch, found = prepared(model, way)
    base = cast(found, dtype)
    compute = WAYS["drift"] if way == "drift" else Texts.prefill
    with torch.no_grad(), products_in_float32():
        runs = [compute(Texts(arch, each)) for each in (base, *(moved(base, number) for number in range(3)))]
        for number in range(2):
            with other_order(number):
                runs.append(compute(Texts(arch, base)))
    return runs


def sampled(logits: Tensor, seed: int) -> Tensor:
    """Return tokens (draws) by probabilities of ``logits`` (draws, vocabulary), as vLLM draws them for a seed."""
    noise = torch.empty_like(logits).exponential_(generator=torch.Generator(logits.device).manual_seed(seed))
    return (logits.softmax(-1) / noise).argmax(-1).cpu()


def generation(model: str, way: str, dtype: torch.dtype, device: torch.device) -> Generation:
    """Return a device's generation, with float64's and reference runs of the same tokens computed at once."""
    arch, found = prepared(model, way)
    with torch.no_grad():
        actual = getattr(Texts(arch, cast(found, dtype, device)), way)()
        return beside_others(actual, found, dtype, lambda given: Texts(arch, given).given(actual.tokens))


def beside_others(
    actual: Continuation, given: Weights, dtype: torch.dtype, compute: Callable[[Weights], Continuation]
) -> Generation:
    exact, base = compute(cast(given, torch.float64)), cast(given, dtype)
    with products_in_float32():
        runs = [compute(each) for each in (base, *(moved(base, number) for number in range(4)))]
    return Generation(actual, exact, runs, torch.nn.Identity())
