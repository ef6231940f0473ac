"""A decoder served as vLLM Ascend does: pages, prompts in chunks beside decoding, and captured graphs that decode.

The loop of captured decoding is that of the suite ``graphs``; here it computes a real decoder, by torch_npu's
operators, and the generated tokens are compared with float64's for each text alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from pytest_ascend.device import npu
from pytest_ascend.parity.language import Continuation, Generation
from pytest_ascend.run import inputs

from ..graphs.server import HALF, Captured, Request, Server, attend, batch_of
from .decoders import Architecture, Run, Weights, angles, layers, weights
from .ways import States, beside_others, cast, continuation, last_places

ARCH = Architecture(width=128, heads=4, kv_heads=2, size=64, rotated=64, inner=128, yarn=4.0)
#: For each request: the step at which it arrives, its prompt tokens and its given tokens; then tokens of a chunk.
REQUESTS, CHUNK = ((0, 7, 6), (1, 5, 4)), 4
#: torch_npu's mask of causal attention for all lengths, in its sparse mode 3.
CAUSAL = 2048


@dataclass
class Text(Request):
    """A request with the number of its given tokens, of its cached tokens, and its results."""

    wanted: int
    done: int = 0
    made: list[States] = field(default_factory=list)


class FusedRun(Run):
    def norm(self, name: str, x: Tensor) -> Tensor:
        made: Tensor = npu.operator("npu_rms_norm")(x, self.weights[f"{self.at}{name}.weight"], 1e-6)[0]
        return made


class Decoding(Server):
    """The server's loop with a decoder of the Qwen3 kind. ``spans`` are tokens of each request in a mixed step."""

    cached = len(ARCH.mixers), ARCH.kv_heads * ARCH.size

    def __init__(self, device: torch.device) -> None:
        super().__init__(device)
        self.weights = cast(weights("server", ARCH), HALF, device)
        rows = self.weights["model.embed_tokens.weight"]
        self.embedding = torch.cat([rows, torch.full_like(rows[:1], float("nan"))])
        self.causal = torch.ones(CAUSAL, CAUSAL, dtype=torch.bool, device=device).triu(1)
        self.spans: list[int] = []

    def forward(self, size: int, inputs: States, lengths: list[int], cache: Any, made: Captured | None) -> States:
        given = {name: each[:size] for name, each in inputs.items()}
        positions, numbers = given["positions"][None], iter(range(len(ARCH.mixers)))

        def paged(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            kept = cache[next(numbers)]
            for pages, new in zip(kept, (key, value), strict=True):
                pages.view(-1, pages.shape[-1]).index_copy_(0, given["slots"], new[0].transpose(0, 1).flatten(1))
            rows = query[0].transpose(0, 1).contiguous()
            if self.spans:
                return self.mixed(rows, kept, given["tables"], lengths).flatten(1)[None]
            return self.attention(rows, kept, given["tables"], lengths, made).flatten(1)[None]

        hidden = torch.where(given["valid"] > 0, self.embedding[given["tokens"]], 0.0)
        turn = angles(ARCH, positions, HALF)
        run = FusedRun(ARCH, self.weights, positions, positions, turn, {}, paged=paged)
        return {name: each[0] for name, each in layers(run, hidden[None]).items()}

    def mixed(self, query: Tensor, kept: Any, tables: Tensor, lengths: list[int]) -> Tensor:
        ends = torch.tensor(self.spans).cumsum(0).tolist()
        last = [end - 1 for end in ends]
        given, counts = (query, *kept, tables[last]), [lengths[place] for place in last]
        found: Tensor = attend(given, counts, ends, atten_mask=self.causal, sparse_mode=3)[0]
        return found

    def serve(self, texts: list[Text]) -> None:
        """Compute the next tokens of all texts: by a replay if each has one, else eagerly, prompts in chunks."""
        spans = [min(CHUNK, len(each.tokens) - each.done) for each in texts]
        rows = [(text, text.done + place) for text, span in zip(texts, spans, strict=True) for place in range(span)]
        decodes = all(span == 1 for span in spans)
        size = min(each for each in (1, 2, 4) if each >= len(rows)) if decodes else len(rows)
        batch = batch_of(rows, size, ARCH.vocabulary)
        if decodes:
            found = {name: each.clone() for name, each in self.step(batch).items()}
        else:
            self.spans = spans
            buffers, self.buffers = self.buffers, self.new_buffers(size)
            self.write(batch)
            found = self.forward(size, self.buffers, batch.lengths, self.cache, None)
            self.buffers, self.spans = buffers, []
        end = 0
        for text, span in zip(texts, spans, strict=True):
            end += span
            text.done += span
            if text.done == len(text.tokens):
                text.made.append({name: each[end - 1 : end].cpu() for name, each in found.items()})
                text.tokens.append(int(text.made[-1]["logits"].argmax()))


def prompt(number: int, length: int) -> list[int]:
    return inputs.integers(f"inference/request {number}", (length,), low=0, high=ARCH.vocabulary).tolist()


def served(device: torch.device, kind: type[Decoding] = Decoding) -> Generation:
    """Serve the requests, and return the generated results with float64's and reference runs of each text alone."""
    texts = [Text([2 * n, 2 * n + 1], prompt(n, length), wanted) for n, (_, length, wanted) in enumerate(REQUESTS)]
    with torch.no_grad():
        server = kind(device)
        server.capture()
        for number in range(max(come + length + wanted for come, length, wanted in REQUESTS)):
            pairs = zip(texts, REQUESTS, strict=True)
            if running := [text for text, (come, *_) in pairs if come <= number and len(text.made) < text.wanted]:
                server.serve(running)
        new = min(wanted for _, _, wanted in REQUESTS)
        actual = continuation([text.made[:new] for text in texts])
        rows = [torch.tensor([each.tokens[: n + new - 1]]) for each, (_, n, _) in zip(texts, REQUESTS, strict=True)]

        def alone(given: Weights) -> Continuation:
            return continuation([last_places(ARCH, given, row, new) for row in rows])

        return beside_others(actual, weights("server", ARCH), HALF, alone)
