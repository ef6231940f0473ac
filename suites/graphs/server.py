"""A small server loop with captured decoding, written from the documentation of vLLM Ascend and of SGLang.

Three batch sizes are captured from one pool, largest first. A step pads its requests to the next size; the rows of
padding must change nothing. Keys and values are in pages. Lengths are host numbers, which a task update changes;
tokens, positions, slots and block tables are device buffers, which are written in place before the replay.

Possible mistakes of a server are in separate methods: the tests of the suite override them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch
from torch import Tensor

from .workloads import Same, numbers

_torch: Any = torch  # with torch.npu, which torch_npu adds
Named: TypeAlias = dict[str, Tensor]
SIZES = (4, 2, 1)
LAYERS, HEADS, DEPTH, VOCABULARY = 2, 2, 64, 32
#: Rows of padding begin with NaN, which must not spread.
PADDING_TOKEN = VOCABULARY
WIDTH = HEADS * DEPTH
#: Tokens of a page, pages in all, and pages of a request. The last page belongs to the padding.
PAGE, PAGES, OF_REQUEST = 128, 9, 2
PADDING_SLOT = (PAGES - 1) * PAGE
HALF = torch.float16


@dataclass
class Request:
    """A decoding request: its pages, and its tokens so far, of which all but the last are in the cache."""

    pages: list[int]
    tokens: list[int]


@dataclass
class Batch:
    """The numbers of a step on the host, for all rows of a size; ``valid`` is 0 in rows of padding."""

    tokens: list[int]
    positions: list[int]
    slots: list[int]
    tables: list[list[int]]
    lengths: list[int]
    valid: list[float]


@dataclass
class Captured:
    """The graph of a batch size; for each attention, the handle, the event and the arguments for its update.

    Results and arguments are held weakly: the pool owns their memory.
    """

    graph: Any
    results: dict[str, Any] = field(default_factory=dict)
    tasks: list[tuple[Any, Any, tuple[Any, ...]]] = field(default_factory=list)


def batch_of(rows: Sequence[tuple[Request, int]], size: int, padding: int = PADDING_TOKEN) -> Batch:
    """Return a step's numbers for requests and positions, padded to the graph's size."""
    pad = size - len(rows)
    return Batch(
        tokens=[each.tokens[place] for each, place in rows] + [padding] * pad,
        positions=[place for _, place in rows] + [0] * pad,
        slots=[each.pages[place // PAGE] * PAGE + place % PAGE for each, place in rows] + [PADDING_SLOT] * pad,
        tables=[each.pages for each, _ in rows] + [[PAGES - 1] * OF_REQUEST] * pad,
        lengths=[place + 1 for _, place in rows] + [1] * pad,
        valid=[1.0] * len(rows) + [0.0] * pad,
    )


class Server:
    """A decoder of two layers on a device, with its graphs. ``step`` is the server's, ``eager`` must equal it."""

    #: Layers, and numbers of a token's keys in each.
    cached = LAYERS, WIDTH

    def __init__(self, device: torch.device) -> None:
        self.device, self.pool = device, _torch.npu.graph_pool_handle()
        of_layer = [(WIDTH, 3 * WIDTH), (WIDTH, WIDTH), (WIDTH, 2 * WIDTH), (2 * WIDTH, WIDTH)]
        shapes = [(VOCABULARY + 1, WIDTH), (PAGE * OF_REQUEST, WIDTH), *of_layer * LAYERS]
        made = (numbers(device, seed, *shape) for seed, shape in enumerate(shapes))
        self.embedding, self.places, *rest = ((each / 8).to(HALF) for each in made)
        self.embedding[PADDING_TOKEN] = float("nan")
        self.layers = [rest[4 * i : 4 * i + 4] for i in range(LAYERS)]
        self.cache = self.empty_cache()
        self.updating = _torch.npu.Stream()
        self.buffers = self.new_buffers(max(SIZES))
        self.scale = torch.ones(1, device=device, dtype=HALF)
        self.graphs: dict[int, Captured] = {}

    def empty_cache(self) -> list[tuple[Tensor, Tensor]]:
        layers, width = self.cached
        shape = (PAGES, PAGE, width)
        return [tuple(torch.zeros(shape, device=self.device, dtype=HALF) for _ in "kv") for _ in range(layers)]  # type: ignore[misc]

    def new_buffers(self, size: int) -> Named:
        names = ("tokens", "positions", "slots")
        integers = {name: torch.zeros(size, dtype=torch.int64, device=self.device) for name in names}
        tables = torch.zeros(size, OF_REQUEST, dtype=torch.int32, device=self.device)
        return {**integers, "tables": tables, "valid": torch.zeros(size, 1, device=self.device)}

    def forward(self, size: int, inputs: Named, lengths: list[int], cache: Any, made: Captured | None) -> Named:
        """Compute a step for all rows; while a graph is captured, each attention is a task group."""
        given = {name: each[:size] for name, each in inputs.items()}
        valid = given["valid"] > 0
        hidden = torch.where(valid, self.embedding[given["tokens"]] + self.places[given["positions"]], self.padding())
        found = {"embedding": hidden}
        for number, (projected, out, up, down) in enumerate(self.layers):
            query, key, value = torch.split(hidden @ projected, WIDTH, 1)
            for kept, new in zip(cache[number], (key, value), strict=True):
                kept.view(-1, WIDTH).index_copy_(0, given["slots"], new)
            attended = self.attention(query.reshape(size, HEADS, DEPTH), cache[number], given["tables"], lengths, made)
            hidden = hidden + attended.reshape(size, WIDTH) @ out
            found[f"attention of layer {number}"] = attended
            # Quantized with one scale for all rows, so that nonzero padding would be noticed.
            hidden = torch.where(valid, hidden, self.padding())
            scale = hidden.abs().amax() / 127
            hidden = hidden + ((hidden / scale).round() * scale @ up).relu() @ down
            found[f"layer {number}"] = hidden
        hidden = self.reduced(hidden)
        return {**found, "logits": torch.where(valid, hidden @ self.embedding[:VOCABULARY].t(), 0.0)}

    def attention(self, query: Tensor, cache: Any, tables: Tensor, lengths: list[int], made: Captured | None) -> Tensor:
        """Attend to the pages of each row, up to its length, which is a host number."""
        out, rest = torch.empty_like(query), torch.empty(1, dtype=HALF, device=self.device)
        given = (query, *cache, tables, out, rest)
        if made is None:
            attend(given, lengths)
            return out
        stream, event = _torch.npu.current_stream(), _torch.npu.ExternalEvent()
        event.wait(stream)
        event.reset(stream)
        _torch.npu.graph_task_group_begin(stream)
        attend(given, lengths)
        made.tasks.append((_torch.npu.graph_task_group_end(stream), event, given))
        return out

    def capture(self) -> None:
        for size in SIZES:
            self.forward(size, self.buffers, [1] * size, self.empty_cache(), None)
            made = self.graphs[size] = Captured(_torch.npu.NPUGraph())
            with _torch.npu.graph(made.graph, pool=self.pool):
                results = self.forward(size, self.buffers, [1] * size, self.cache, made)
            made.results = {name: weak(each) for name, each in results.items()}
            made.tasks = [(*task, tuple(map(weak, given))) for *task, given in made.tasks]

    # --- possible mistakes of a server ---

    def padding(self) -> Any:
        return 0.0

    def reduced(self, hidden: Tensor) -> Tensor:
        return hidden * self.scale

    def write(self, batch: Batch) -> None:
        for name, buffer in self.buffers.items():
            values = torch.tensor(getattr(batch, name), dtype=buffer.dtype).view(-1, *buffer.shape[1:])
            buffer[: len(values)].copy_(values)

    def order(self, made: Captured) -> list[int]:
        return list(range(len(made.tasks)))

    def update(self, made: Captured, batch: Batch) -> None:
        with _torch.npu.stream(self.updating):
            for (handle, *_), place in zip(made.tasks, self.order(made), strict=True):
                _torch.npu.graph_task_update_begin(self.updating, handle)
                attend(made.tasks[place][-1], batch.lengths)
                _torch.npu.graph_task_update_end(self.updating)
            for _, event, _ in made.tasks:
                event.record(self.updating)

    def step(self, batch: Batch) -> Named:
        made = self.graphs[len(batch.tokens)]
        self.write(batch)
        made.graph.replay()
        self.update(made, batch)
        return made.results


def weak(x: Tensor) -> Tensor:
    """Return a tensor of the same memory that does not own it: the pool reuses it for later captures."""
    import torch_npu  # only there on an NPU

    found: Tensor = torch_npu._C._weak_ref_tensor(x)  # noqa: SLF001 - what servers use
    return found


def attend(given: Sequence[Tensor], lengths: list[int], ends: Sequence[int] = (), **how: Any) -> Any:
    """Return attention over pages, or write it to outputs; a row is a request, unless ``ends`` say where these end."""
    import torch_npu  # only there on an NPU

    query, keys, values, tables, *out = given
    operator = torch_npu.npu_fused_infer_attention_score
    how |= {"block_table": tables, "block_size": PAGE, "input_layout": "TND", **({"out": out} if out else {})}
    how |= {"actual_seq_lengths": list(ends or range(1, len(query) + 1)), "actual_seq_lengths_kv": lengths}
    how |= {"num_heads": query.shape[1], "num_key_value_heads": keys.shape[-1] // query.shape[2]}
    return (operator.out if out else operator)(query, keys, values, **how, scale=query.shape[2] ** -0.5)


def served(device: torch.device, same: Same, kind: type[Server] = Server) -> None:
    with torch.no_grad():
        server = kind(device)
        server.capture()
        cache, running = server.empty_cache(), dict[int, Request]()
        eager = Server(device)
        for number in range(9):
            # Requests by arrival: the step in which they arrive, the step in which they have ended, their first token.
            for name, (begins, ends, token) in enumerate(((0, 9, 3), (0, 5, 7), (1, 9, 11), (6, 9, 13))):
                if begins == number:
                    running[name] = Request([2 * name, 2 * name + 1], [token])
                if ends == number:
                    del running[name]
            requests = list(running.values())
            size = min(each for each in SIZES if each >= len(requests))
            batch = batch_of([(each, len(each.tokens) - 1) for each in requests], size)
            server.scale.fill_(1 + number % 2)
            eager.scale.fill_(1 + number % 2)
            eager.write(batch)
            expected = eager.forward(size, eager.buffers, batch.lengths, cache, None)
            where = f"graph of {size} rows, step {number}:"
            for what, actual in server.step(batch).items():
                same(actual[: len(requests)], expected[what][: len(requests)], f"{where} {what}")
            for layer, (mine, theirs) in enumerate(zip(server.cache, cache, strict=True)):
                for what, kept, wanted in zip(("keys", "values"), mine, theirs, strict=True):
                    same(kept[:-1], wanted[:-1], f"{where} {what} of layer {layer} in the cache")
            tokens = expected["logits"].argmax(-1).tolist()
            for request, token in zip(requests, tokens, strict=False):
                request.tokens.append(token)
