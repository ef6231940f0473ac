"""Speed of several ranks: collectives by size, and a training step on 1, 2, 4 ... ranks with each optimization."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, TypeAlias

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.debugging_hooks import noop_hook

from pytest_ascend.distributed.ranks import Place

from . import RUNGS
from .training import Block

T = torch.Tensor

#: Bytes of a message: up to a gigabyte on hardware, few if the host moves it.
HARDWARE_BYTES, HOST_BYTES = tuple(2**power for power in range(12, 31, 3)), (2**12, 2**15, 2**18, 2**21)
#: Timed rounds, after as many untimed ones, and calls per round.
ROUNDS, CALLS = 5, 4
#: Number of untimed steps, and of timed ones.
WARM, STEPS = 3, 10

#: Collective -> bytes through a rank's link per byte of the message, on n ranks; the message is the larger of a rank's
#: input and output. Source: NVIDIA's nccl-tests, doc/PERFORMANCE.md.
BUS: Mapping[str, Callable[[int], float]] = {
    "all_reduce": lambda n: 2 * (n - 1) / n,
    **dict.fromkeys(("all_gather_into_tensor", "reduce_scatter_tensor", "all_to_all_single"), lambda n: (n - 1) / n),
    **dict.fromkeys(("broadcast", "send_recv"), lambda _: 1.0),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Size:
    """A decoder's width, heads and layers; batch and tokens per card; the side of an image of each sample."""

    width: int
    heads: int
    layers: int
    batch: int
    tokens: int
    image: int


HARDWARE = Size(width=2048, heads=16, layers=8, batch=4, tokens=1024, image=448)
HOST = Size(width=64, heads=4, layers=2, batch=2, tokens=16, image=56)
#: Side of a patch of an image.
PATCH = 14


class VisionLanguage(nn.Module):
    """A decoder that sees an image before the text, in the form of InternVL3 (Chen et al., 2024)."""

    def __init__(self, size: Size, text: nn.Module) -> None:
        super().__init__()
        width = size.width // 2
        self.patches = nn.Conv2d(3, width, PATCH, PATCH)
        self.encoder = nn.Sequential(*(Block(width, size.heads // 2) for _ in range(size.layers // 2)))
        self.projector, self.text = nn.Linear(4 * width, size.width), text

    def forward(self, images: T, text: T) -> T:
        """Map (batch, 3, side, side) and (batch, tokens, width) to (batch, tokens of both, width)."""
        x = self.encoder(self.patches(images).flatten(2).transpose(1, 2))
        half = images.shape[-1] // PATCH // 2
        x = x.view(len(x), half, 2, half, 2, -1).transpose(2, 3).reshape(len(x), half * half, -1)
        made: T = self.text(torch.cat((self.projector(x), text), 1))
        return made


def on_device(name: str, device: torch.device) -> Any:
    """Call a function of the device's module, e.g. torch.npu.synchronize(device); 0 on the CPU, which has none."""
    return getattr(getattr(torch, device.type), name)(device) if device.type != "cpu" else 0


# --- collectives ---


def collective(place: Place, how: str, sizes: Sequence[int]) -> dict[str, Any]:
    """Return the seconds per call, by round and by message size in bytes; all ranks begin together."""
    found = []
    for size in sizes:
        call, seconds = _prepared(place, how, size), []
        for _ in range(2 * ROUNDS):
            dist.barrier()
            on_device("synchronize", place.device)
            start = time.perf_counter()
            for _ in range(CALLS):
                call()
            on_device("synchronize", place.device)
            seconds.append((time.perf_counter() - start) / CALLS)
        found.append(seconds[ROUNDS:])
    return {"seconds": found}


def _prepared(place: Place, how: str, size: int) -> Callable[[], object]:
    share = max(1, size // 4 // place.count)
    whole, part = (torch.ones(each, device=place.device) for each in (share * place.count, share))
    other = torch.empty_like(whole)

    def ring() -> None:
        send = dist.P2POp(dist.isend, whole, (place.rank + 1) % place.count)
        for work in dist.batch_isend_irecv([send, dist.P2POp(dist.irecv, other, (place.rank - 1) % place.count)]):
            work.wait()

    calls: dict[str, Callable[[], object]] = {
        "all_reduce": lambda: dist.all_reduce(whole, dist.ReduceOp.MAX),  # its result does not change
        "all_gather_into_tensor": lambda: dist.all_gather_into_tensor(whole, part),
        "reduce_scatter_tensor": lambda: dist.reduce_scatter_tensor(part, whole),
        "all_to_all_single": lambda: dist.all_to_all_single(other, whole),
        "broadcast": lambda: dist.broadcast(whole, 0),
        "send_recv": ring,
    }
    return calls[how]


# --- a training step ---


def steps(place: Place, name: str, small: bool) -> dict[str, Any]:
    """Train on the first 1, 2, 4 ... ranks; the others wait.

    Return for each of these counts, if this rank takes part, the seconds of each step and the peak memory in bytes, for
    normal training and (``silent``) with collectives that do nothing.
    """
    stepped, _, rung = name.rpartition("-")
    found: dict[str, list[Any]] = {"seconds": [], "silent": [], "peak of seconds": [], "peak of silent": []}
    for members in counts(place.count):
        ranks = list(range(members))
        real = dist.group.WORLD if members == place.count else dist.new_group(ranks)
        # A torch backend whose collectives return at once and move nothing.
        import torch.testing._internal.distributed.fake_pg  # noqa: F401  (which registers it)

        silent = dist.new_group(ranks, backend=(f"{place.device.type}:fake"))
        for kind, group in (("seconds", real), ("silent", silent)) if place.rank < members else ():
            gc.collect()  # cycles may keep parts of the previous training
            on_device("reset_peak_memory_stats", place.device)
            found[kind].append(_timed(place, stepped, rung, HOST if small else HARDWARE, group))
            found[f"peak of {kind}"].append(int(on_device("max_memory_allocated", place.device)))
        dist.barrier()
        for group in (silent, *([real] if members != place.count else [])):
            if place.rank < members:
                dist.destroy_process_group(group)
    return found


def counts(ranks: int) -> list[int]:
    return [*(2**power for power in range((ranks - 1).bit_length())), ranks]


def _timed(place: Place, name: str, rung: str, size: Size, group: Any) -> list[float]:
    torch.manual_seed(0)
    blocks = (Block(size.width, size.heads) for _ in range(size.layers))
    whole: nn.Module = nn.Sequential(*blocks, nn.LayerNorm(size.width))
    given = [torch.randn(size.batch, size.tokens, size.width)]
    if name == "vision-language":
        whole = VisionLanguage(size, whole)
        given.insert(0, torch.randn(size.batch, 3, size.image, size.image))
    given = [each.to(place.device) for each in given]
    has = RUNGS[: RUNGS.index(rung) + 1]
    model = _parallel(place, has, whole.to(place.device), group)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, fused="fused" in has or None)
    found = []
    for _ in range(WARM + STEPS):
        start = time.perf_counter()
        optimizer.zero_grad()
        model(*given).float().square().mean().backward()
        optimizer.step()
        on_device("synchronize", place.device)
        found.append(time.perf_counter() - start)
    return found[WARM:]


def _parallel(place: Place, has: Sequence[str], model: nn.Module, group: Any) -> nn.Module:
    if "sharded" not in has:  # by DDP; else by FSDP 2
        ids = [place.device] if place.device.type != "cpu" else None
        wrapped = nn.parallel.DistributedDataParallel(model, device_ids=ids, process_group=group)
        if "fake" in dist.get_backend(group):
            # DDP needs a result, which collectives that do nothing lack: return the bucket itself.
            wrapped.register_comm_hook(None, noop_hook)
        return wrapped
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    settings: dict[str, Any] = {"mesh": DeviceMesh.from_group(group, place.device.type)}
    if "amp" in has:
        can = getattr(getattr(torch, place.device.type), "is_bf16_supported", None)
        half = torch.bfloat16 if can is None or can() else torch.float16
        settings["mp_policy"] = MixedPrecisionPolicy(param_dtype=half, reduce_dtype=torch.float32)
    for layer in model.modules() if "overlapped" in has else ():
        if isinstance(layer, Block):
            fully_shard(layer, **settings)
    fully_shard(model, **settings)
    return model


# --- figures ---

Figures: TypeAlias = Iterator[tuple[str, float | list[float]]]


def slowest(by_rank: Sequence[Sequence[float]]) -> float:
    return float(median(max(each) for each in zip(*by_rank, strict=True)))


def figures_of_collective(how: str, sizes: Sequence[int], by_rank: Sequence[Sequence[Sequence[float]]]) -> Figures:
    seconds = [slowest(each) for each in zip(*by_rank, strict=True)]
    rates = [size / each * 1e-9 for size, each in zip(sizes, seconds, strict=True)]
    on_bus = [BUS[how](len(by_rank)) * each for each in rates]
    yield "message_bytes", [float(each) for each in sizes]
    yield "latency_by_size_us", [each * 1e6 for each in seconds]
    yield "algorithm_bandwidth_by_size_gb_per_s", rates
    yield "bus_bandwidth_by_size_gb_per_s", on_bus
    yield "latency_p50_us", seconds[0] * 1e6
    yield "algorithm_bandwidth_gb_per_s", max(rates)
    yield "bus_bandwidth_gb_per_s", max(on_bus)


def figures_of_steps(ranks: Sequence[Mapping[str, Sequence[Any]]], batch: int) -> Figures:
    """Yield the measurements of a training step; each card has its own batch, so perfect scaling takes no time."""
    used = counts(len(ranks))
    seconds, silent = (
        # A rank only has figures for the counts in which it takes part.
        [slowest([rank[name][-at] for rank in ranks if len(rank[name]) >= at]) for at in range(len(used), 0, -1)]
        for name in ("seconds", "silent")
    )
    efficiency = [seconds[0] / each for each in seconds]
    exposed = [max(0.0, 1 - without / each) for without, each in zip(silent, seconds, strict=True)]
    peak = [float(rank["peak of seconds"][-1]) for rank in ranks]
    yield "rank_count", [float(each) for each in used]
    yield "latency_by_ranks_us", [each * 1e6 for each in seconds]
    yield "scaling_efficiency_by_ranks", efficiency
    yield "exposed_communication_by_ranks", exposed
    yield "peak_memory_by_card_bytes", peak
    yield "items_per_call", float(batch * len(ranks))
    yield "latency_p50_us", seconds[-1] * 1e6
    yield "throughput_items_per_s", batch * len(ranks) / seconds[-1]
    yield "scaling_efficiency", efficiency[-1]
    yield "exposed_communication", exposed[-1]
    yield "peak_memory_bytes", max(peak)
