"""Training on several ranks, and on one process: a few steps of a small model on the whole batch."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from pytest_ascend.distributed.ranks import Place

T = torch.Tensor

STEPS, RATE, MOMENTUM = 3, 0.1, 0.9
BATCH = 16
CLIP = 0.05


class Unused(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.used, self.unused = make("perceptron"), nn.Linear(4, 4)

    def forward(self, x: T) -> T:
        return self.used(x)  # type: ignore[no-any-return]


class Block(nn.Module):
    """One layer of a decoder: causal attention and a gated MLP, both on normalized input."""

    def __init__(self, size: int = 32, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(size), nn.LayerNorm(size)
        self.q, self.k, self.v, self.o = (nn.Linear(size, size, bias=False) for _ in range(4))
        self.gate, self.up = (nn.Linear(size, 2 * size, bias=False) for _ in range(2))
        self.down = nn.Linear(2 * size, size, bias=False)

    def forward(self, x: T) -> T:
        """Map (batch, length, size) to the same. The number of heads follows from a rank's share."""
        y = self.first(x)
        heads = (-1, x.shape[-1] // self.heads)
        q, k, v = (each(y).unflatten(-1, heads).transpose(1, 2) for each in (self.q, self.k, self.v))
        weights = (q @ k.transpose(-1, -2)) * (x.shape[-1] // self.heads) ** -0.5
        seen = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device).tril()
        mixed = weights.masked_fill(~seen, float("-inf")).softmax(-1) @ v
        x = x + self.o(mixed.transpose(1, 2).flatten(2))
        y = self.second(x)
        return x + self.down(nn.functional.silu(self.gate(y)) * self.up(y))  # type: ignore[no-any-return]


class Seeing(nn.Module):
    """A frozen image encoder, a projector, and a decoder of (batch, 4 + 6, 32): up to four images, six tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(32, 64), nn.SiLU(), nn.Linear(64, 32)).requires_grad_(False)
        self.projector, self.decoder = nn.Linear(32, 32), make("decoder")

    def forward(self, x: T) -> T:
        """Return (batch, 6, 32). Only existing images pass the encoder: their number differs between ranks."""
        images = x[:, :4]
        there = images.abs().sum(-1) > 0
        features = self.projector(self.encoder(images[there]))
        seen = torch.zeros_like(images).masked_scatter(there[..., None].expand_as(images), features)
        made: T = self.decoder(torch.cat((seen, x[:, 4:]), 1))[:, 4:]
        return made


MODELS: Mapping[str, Callable[[], nn.Module]] = {
    # No GELU: CANN uses another formula, and the ranks are what is judged here.
    "perceptron": lambda: nn.Sequential(nn.Linear(32, 64), nn.SiLU(), nn.Linear(64, 32)),
    "convolution": lambda: nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, 32)
    ),
    "unused": Unused,
    "decoder": lambda: nn.Sequential(Block(), Block(), nn.LayerNorm(32), nn.Linear(32, 32, bias=False)),
    "seeing": Seeing,
}


def make(name: str) -> nn.Module:
    torch.manual_seed(0)
    return MODELS[name]()


def inputs(name: str) -> tuple[T, T]:
    generator = torch.Generator().manual_seed(1)
    shape = {"convolution": (3, 10, 10), "decoder": (6, 32), "seeing": (10, 32)}.get(name, (32,))
    target = (6, 32) if name in ("decoder", "seeing") else (32,)
    x, y = (torch.randn(BATCH, *each, generator=generator) for each in (shape, target))
    if name == "seeing":  # one image in the first samples, four in the last
        x[:, :4] *= (torch.arange(4) <= torch.arange(BATCH)[:, None] * 4 // BATCH)[..., None]
    return x, y


def reference(name: str, dtype: torch.dtype, *, clip: bool = False) -> dict[str, T]:
    x, y = (each.to(dtype) for each in inputs(name))
    return trained(make(name).to(dtype), x, y, clip=clip)


def _full(x: Any) -> T:
    return (x.full_tensor() if hasattr(x, "full_tensor") else x).detach().cpu()  # type: ignore[no-any-return]


def _mean(loss: T) -> T:
    mean = loss.detach().clone()
    dist.all_reduce(mean, dist.ReduceOp.AVG)
    return mean


def _part(place: Place, name: str) -> tuple[T, T]:
    x, y = (each.chunk(place.count)[place.rank].to(place.device) for each in inputs(name))
    return x, y


def trained(
    model: nn.Module,
    x: T,
    y: T,
    *,
    mean: Callable[[T], T] = torch.Tensor.detach,
    optimizer: torch.optim.Optimizer | None = None,
    clip: bool = False,
    norms: bool = True,
    micro: int = 1,
    share: int = 1,
    foreach: bool | None = None,
    whole: AbstractContextManager[Any] | None = None,
) -> dict[str, T]:
    """Train on the given data, a rank's part or the whole batch; return losses, norms, weights, momenta and buffers.

    ``mean`` averages this process's loss over all ranks. Within ``whole``, parameters are those of all ranks. Momenta
    are not returned for a given ``optimizer``, nor for one whose parameters are parts of others.
    """
    has_momenta = optimizer is None and whole is None
    optimizer = optimizer or torch.optim.SGD(model.parameters(), RATE, momentum=MOMENTUM, foreach=foreach)
    losses, totals = [], []
    for _ in range(STEPS):
        optimizer.zero_grad()
        total = torch.zeros((), device=x.device, dtype=x.dtype)
        for index, (a, b) in enumerate(zip(x.chunk(micro), y.chunk(micro), strict=True)):
            waits = index + 1 < micro and hasattr(model, "no_sync")
            with model.no_sync() if waits else contextlib.nullcontext():  # type: ignore[operator]
                loss = nn.functional.mse_loss(model(a), b) / micro
                (loss / share).backward()  # type: ignore[no-untyped-call]
            total += loss.detach()
        if norms:
            totals.append(nn.utils.clip_grad_norm_(model.parameters(), CLIP if clip else 1e9))
        optimizer.step()
        losses.append(mean(total))
    told = {"loss": torch.stack([_full(each).double() for each in losses])}
    if norms:
        told["gradient norm"] = torch.stack([_full(each).double() for each in totals])
    states = {id(p): state for p, state in optimizer.state.items()} if has_momenta else {}
    with whole or contextlib.nullcontext():
        for name, p in model.named_parameters():
            told[f"weight {name}"] = _full(p).clone()
            if (momentum := states.get(id(p), {}).get("momentum_buffer")) is not None:
                told[f"momentum {name}"] = _full(momentum).clone()
    told |= {f"buffer {name}": _full(each).clone() for name, each in model.named_buffers() if each.is_floating_point()}
    return {name.replace("module.", ""): each for name, each in told.items()}


def by_ddp(place: Place, name: str, hook: str = "", sync: bool = False, zero: bool = False, **how: Any) -> Any:
    model = make(name).to(place.device)
    if sync:
        model = nn.SyncBatchNorm.convert_sync_batchnorm(model)  # type: ignore[no-untyped-call]
    wrapped = nn.parallel.DistributedDataParallel(
        model, device_ids=[place.rank] if place.device.type != "cpu" else None, find_unused_parameters=name == "unused"
    )
    if hook:
        from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

        wrapped.register_comm_hook(None, getattr(default_hooks, hook))
    if zero:
        from torch.distributed.optim import ZeroRedundancyOptimizer

        how["optimizer"] = ZeroRedundancyOptimizer(wrapped.parameters(), torch.optim.SGD, lr=RATE, momentum=MOMENTUM)
    return trained(wrapped, *_part(place, name), mean=_mean, **how)


def fully_sharded_1(place: Place, name: str) -> Any:
    from torch.distributed.fsdp import FullyShardedDataParallel

    device_id = place.device if place.device.type != "cpu" else None
    model = FullyShardedDataParallel(make(name).to(place.device), device_id=device_id, use_orig_params=True)
    whole = FullyShardedDataParallel.summon_full_params(model)
    told = trained(model, *_part(place, name), mean=_mean, norms=False, whole=whole)
    return {each.replace("_fsdp_wrapped_", "").replace("fsdp_wrapped_module.", ""): x for each, x in told.items()}


def fully_sharded_2(place: Place, name: str, clip: bool = False) -> Any:
    from torch.distributed.fsdp import fully_shard

    mesh = _mesh(place)
    model = make(name).to(place.device)
    for layer in model.children():
        if any(True for _ in layer.parameters()):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return trained(model, *_part(place, name), mean=_mean, clip=clip)


def _mesh(place: Place) -> Any:
    from torch.distributed.device_mesh import init_device_mesh

    return init_device_mesh(place.device.type, (place.count,))


def tensor_parallel(place: Place, name: str, sequence: bool = False) -> Any:
    from torch.distributed.tensor import Shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    mesh, model = _mesh(place), make(name).to(place.device)
    plan: dict[str, Any] = {"0": ColwiseParallel(), "2": RowwiseParallel()}
    if name == "decoder":
        plan = {}
        for block in ("0", "1"):
            plan |= {f"{block}.{each}": ColwiseParallel() for each in ("q", "k", "v", "gate", "up")}
            plan |= {f"{block}.{each}": RowwiseParallel() for each in ("o", "down")}
    if sequence:
        plan = {"0": ColwiseParallel(input_layouts=Shard(0)), "2": RowwiseParallel(output_layouts=Shard(0))}
    model = parallelize_module(model, mesh, plan)
    if sequence:
        return trained(model, *_part(place, name), mean=_mean, share=place.count)
    x, y = (each.to(place.device) for each in inputs(name))
    # Some parameters are DTensors and some are not; one call for all of them fails.
    return trained(model, x, y, norms=name != "decoder", foreach=False)


def pipeline(place: Place, name: str, schedule: str) -> Any:
    from torch.distributed import pipelining

    layers = list(make(name).children())
    between: list[nn.Module] = [nn.Identity()]
    parts = [layers[:2], *[between] * (place.count - 2), layers[2:]]
    mine = nn.Sequential(*parts[place.rank]).to(place.device)
    stage = pipelining.PipelineStage(mine, place.rank, place.count, place.device)
    schedules: Any = getattr(pipelining, schedule)
    runs = schedules(stage, n_microbatches=max(4, place.count), loss_fn=nn.functional.mse_loss)
    x, y = (each.to(place.device) for each in inputs(name))
    losses: list[T] = []
    last = {"target": y, "losses": losses} if place.rank == place.count - 1 else {}
    runs.step(*([x] if place.rank == 0 else []), **last)
    offset = 0 if place.rank == 0 else 2
    found = {f"gradient {int(n.split('.')[0]) + offset}.{n.split('.')[1]}": p.grad for n, p in mine.named_parameters()}
    return found | ({"loss": torch.stack(losses).mean().double()} if losses else {})


def experts(place: Place) -> Any:
    from torch.distributed.nn.functional import all_to_all_single

    x, _ = _part(place, "perceptron")
    x.requires_grad_()
    weight = torch.full((), float(place.rank + 2), device=place.device, requires_grad=True)
    to = (torch.arange(len(x)) * 7 + place.rank) % place.count
    order = to.argsort(stable=True)
    send = torch.bincount(to, minlength=place.count)
    counts = [torch.zeros_like(send).to(place.device) for _ in range(place.count)]
    dist.all_gather(counts, send.to(place.device))
    receive = [int(each[place.rank]) for each in counts]
    there = all_to_all_single(x.new_empty(sum(receive), x.shape[1]), x[order.to(place.device)], receive, send.tolist())  # type: ignore[no-untyped-call]
    done = all_to_all_single(torch.empty_like(x), there * weight, send.tolist(), receive)  # type: ignore[no-untyped-call]
    back = done[order.argsort().to(place.device)]
    back.sum().backward()
    assert x.grad is not None
    assert weight.grad is not None
    return {"out": back, "gradient": x.grad, "weight gradient": weight.grad, "to": to}


def redistributed(place: Place) -> Any:
    from torch.distributed.tensor import Partial, Replicate, Shard, distribute_tensor

    mesh, (x, _) = _mesh(place), inputs("perceptron")
    rows = distribute_tensor(x.to(place.device), mesh, [Shard(0)])
    columns = rows.redistribute(mesh, [Shard(1)])
    product = columns @ columns.T
    return {
        "columns": columns.to_local(),
        "whole": columns.redistribute(mesh, [Replicate()]).to_local(),
        "product": product.redistribute(mesh, [Replicate()]).to_local(),  # type: ignore[attr-defined]
        "rows": product.redistribute(mesh, [Shard(0)]).full_tensor(),  # type: ignore[attr-defined]
        "partial": rows.sum(0).redistribute(mesh, [Replicate()]).to_local(),  # type: ignore[attr-defined]
        "is partial": torch.tensor(isinstance(rows.sum(0).placements[0], Partial)),  # type: ignore[attr-defined]
    }


def checkpoint(place: Place, path: str, load: bool = False) -> Any:
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_model_state_dict
    from torch.distributed.fsdp import fully_shard

    model = make("perceptron").to(place.device)
    fully_shard(model, mesh=_mesh(place))
    state: dict[str, Any] = dict(get_model_state_dict(model))
    if not load:
        dcp.save(state, checkpoint_id=path)  # type: ignore[attr-defined]
        return {}
    for each in state.values():
        each.to_local().zero_()
    dcp.load(state, checkpoint_id=path)  # type: ignore[attr-defined]
    return {name: each.full_tensor() for name, each in state.items()}


def of_torchvision(place: Place, name: str) -> Any:
    """Compute gradients of ResNet50 or ViT-B/16, with few layers, by DDP, each rank on its images."""
    model, x, y = vision(name)
    wrapped = nn.parallel.DistributedDataParallel(model.to(place.device))
    x, y = (each.chunk(place.count)[place.rank].to(place.device) for each in (x, y))
    nn.functional.mse_loss(wrapped(x), y).backward()  # type: ignore[no-untyped-call]
    grads = ((n.removeprefix("module."), p.grad) for n, p in wrapped.named_parameters())
    return {n: g.flatten()[:4096] for n, g in grads if g is not None}


def vision(name: str) -> tuple[nn.Module, T, T]:
    """Return the model, without batch statistics and with SiLU instead of GELU, and images and targets."""
    from ..models.architectures import ResNet50, VisionTransformer

    torch.manual_seed(0)
    model = ResNet50() if name == "resnet50" else VisionTransformer(activation=nn.SiLU)
    size = 64 if name == "resnet50" else 224
    generator = torch.Generator().manual_seed(2)
    x, y = torch.randn(4, 3, size, size, generator=generator), torch.randn(4, 1000, generator=generator)
    return model.eval(), x, y
