"""Records each step of a rank's training as fingerprints: data, gradients, weights, buffers, random state.

Fingerprints are linear: the fingerprint of a sum is the sum of the fingerprints. Thus the records of all ranks before
and after show whether and how gradients were reduced, without a copy of any of them.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch.optim import optimizer as optimizers
from torch.utils.data import DistributedSampler

from pytest_ascend.system.dispatching import tensors_in

#: Number of sampled elements of a tensor, of its last elements, and of the pieces that the sample is summed in.
SAMPLE, TAIL, PIECES = 1 << 15, 16, 4
#: Rows of a batch that get their own fingerprint.
ROWS = 512


def fingerprint(tensor: Any) -> dict[str, Any]:
    """Return a tensor's fingerprint: weighted sums of pieces, magnitudes, the same of its last elements, a CRC."""
    x = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    x = x.detach().reshape(-1)
    part, tail = x[:: max(1, x.numel() // SAMPLE)].cpu(), x[-TAIL:].cpu()
    wide, last = part.double(), tail.double()
    weights = (torch.arange(len(wide), dtype=torch.float64) * 0.6180339887498949).remainder(1.0) + 0.5
    pieces = torch.tensor_split(torch.stack([wide * weights, wide.abs() * weights]), PIECES, 1)
    return {
        "numel": x.numel(),
        "dtype": str(x.dtype).removeprefix("torch."),
        "sums": [float(each[0].sum()) for each in pieces],
        "sizes": [float(each[1].sum()) for each in pieces],
        "tail": [float(each) for each in last],
        "crc": zlib.crc32(part.contiguous().view(torch.uint8).numpy().tobytes()) if part.numel() else 0,
    }


class Recorder:
    """Writes lines of JSON: one for each recorded thing, with its step."""

    def __init__(self, path: Path) -> None:
        path.write_bytes(b"")
        self.file = path.open("a", encoding="utf-8")  # another launcher with the same rank number appends
        self.pid = os.getpid()
        self.step = 0
        self.depth = 0
        self.spent_s = 0.0
        self.began = time.perf_counter()
        self.local: dict[int, dict[str, Any]] = {}
        self.names: dict[int, str] = {}
        self.busy = False
        self.is_wrapped = False
        self.passes = 0

    @property
    def is_recorded(self) -> bool:
        """Return whether this step is recorded: all of the first steps, later ones at an interval."""
        return self.step < 20 or self.step % 10 == 0

    def note(self, kind: str, **data: Any) -> None:
        """Write a line."""
        self.file.write(json.dumps({"kind": kind, "step": self.step, **data}, default=str) + "\n")

    def close(self) -> None:
        """Write the cost of recording, and close."""
        self.note("end", spent_s=self.spent_s, whole_s=time.perf_counter() - self.began)
        self.file.close()

    def timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a hook that measures its own time, does not record itself, and never fails the training."""

        @functools.wraps(function)
        def hook(*args: Any, **kwargs: Any) -> Any:
            if self.busy or self.file.closed or os.getpid() != self.pid:  # a fork, such as a DataLoader worker
                return None
            start, self.busy = time.perf_counter(), True
            try:
                return function(*args, **kwargs)
            except Exception as error:  # noqa: BLE001 - failing to record must not end a training
                self.note("lost", what=f"{type(error).__name__}: {error}")
                return None
            finally:
                self.busy = False
                self.spent_s += time.perf_counter() - start

        return hook

    def entering(self, module: Any, args: Any) -> None:
        """Note, before a call, data of the outermost module and buffers of the outermost one that is not a wrapper."""
        self.depth += 1
        wraps = isinstance(module, torch.nn.parallel.DistributedDataParallel)
        if self.depth == 1 and module.training and torch.is_grad_enabled():
            self._note_model(module)
            tensors = [each for each in tensors_in(args) if each.dim()] if self.is_recorded else []
            if tensors:
                rows = tensors[0].detach()[:ROWS].cpu().contiguous()
                rows = rows.flatten(1 if rows.dim() > 1 else 0).double()
                self.note("data", rows=[zlib.crc32(row.contiguous().numpy().tobytes()) for row in rows])
        is_inner = self.depth == (2 if self.is_wrapped else 1) and not wraps
        if is_inner and module.training and self.is_recorded:
            buffers = {name: fingerprint(each) for name, each in module.named_buffers() if each.is_floating_point()}
            self.note("buffers", of=buffers)

    def _note_model(self, module: Any) -> None:
        self.is_wrapped = isinstance(module, torch.nn.parallel.DistributedDataParallel)
        fresh = [(n, p) for n, p in module.named_parameters() if id(p) not in self.names]
        for name, parameter in fresh:
            self.names[id(parameter)] = name.removeprefix("module.")
            if parameter.requires_grad:
                parameter.register_post_accumulate_grad_hook(self.timed(self._gradient))
        if not fresh:
            return
        local = [
            name
            for name, each in module.named_modules()
            if isinstance(each, torch.nn.modules.batchnorm._BatchNorm)  # noqa: SLF001 - there is no public name
            and not isinstance(each, torch.nn.SyncBatchNorm)
        ]
        self.note(
            "model",
            wrapped=type(module).__name__,
            sharded=any(hasattr(p, "to_local") for _, p in fresh),
            frozen=[n.removeprefix("module.") for n, p in fresh if not p.requires_grad],
            local_batch_norm=local,
        )

    def _gradient(self, parameter: Any) -> None:
        if self.is_recorded and parameter.grad is not None:
            self.local[id(parameter)] = fingerprint(parameter.grad)

    def before_step(self, optimizer: Any, *_: Any) -> None:
        """Note the gradients about to be used, and those that this rank computed."""
        for name, parameter in self._parameters(optimizer) if self.is_recorded else ():
            if parameter.grad is not None:
                self.note("gradient", name=name, used=fingerprint(parameter.grad), local=self.local.get(id(parameter)))

    def after_step(self, optimizer: Any, *_: Any) -> None:
        """Note the weights, and the device's next random numbers."""
        if self.is_recorded:
            for name, parameter in self._parameters(optimizer):
                self.note("weight", name=name, of=fingerprint(parameter))
            device = next((p.device for _, p in self._parameters(optimizer)), torch.device("cpu"))
            state = getattr(torch, device.type).get_rng_state() if device.type != "cpu" else torch.get_rng_state()
            self.note("random", device=device.type, crc=zlib.crc32(state.numpy().tobytes()))
        self.note("stepped", passes=self.passes)
        self.local.clear()
        self.step += 1

    def leaving(self, module: Any, *_: Any) -> None:
        """Note the end of a module's call."""
        self.depth -= 1
        if self.depth == 0 and module.training and torch.is_grad_enabled():
            self.passes += 1

    def _parameters(self, optimizer: Any) -> Iterator[tuple[str, Any]]:
        for index, parameter in enumerate(p for group in optimizer.param_groups for p in group["params"]):
            yield self.names.get(id(parameter), f"parameter {index}"), parameter

    def collective(self, name: str, given: Any) -> Any:
        """Wrap a collective of torch.distributed: note fingerprints of its inputs and outputs."""

        @functools.wraps(given)
        def called(*args: Any, **kwargs: Any) -> Any:
            tensors = tensors_in((args, kwargs))
            if self.busy or not self.is_recorded or not tensors or kwargs.get("async_op"):
                return given(*args, **kwargs)
            before = self.timed(lambda: [fingerprint(each) for each in tensors])()
            found = given(*args, **kwargs)
            self.timed(self._collected)(name, args, kwargs, before, tensors)
            return found

        return called

    def _collected(self, name: str, args: Any, kwargs: Any, before: Any, tensors: Any) -> None:
        named = (each for each in map(str, (*args, *kwargs.values())) if "RedOpType" in each or "ReduceOp" in each)
        op, group = next(named, "SUM").rpartition(".")[2], str(kwargs.get("group") or "")
        after = [fingerprint(each) for each in tensors]
        self.note("collective", name=name, op=op, group=group, before=before, after=after)


def install(folder: Path) -> None:
    """Record this process if it is a rank: to ``rank-N.jsonl`` in the folder."""
    recorder = Recorder(folder / f"rank-{int(os.environ['RANK'])}.jsonl")
    recorder.note("start", ranks=int(os.environ.get("WORLD_SIZE", "1")), command=sys.argv)
    atexit.register(recorder.close)
    torch.nn.modules.module.register_module_forward_pre_hook(recorder.timed(recorder.entering))
    torch.nn.modules.module.register_module_forward_hook(recorder.timed(recorder.leaving), always_call=True)
    optimizers.register_optimizer_step_pre_hook(recorder.timed(recorder.before_step))
    optimizers.register_optimizer_step_post_hook(recorder.timed(recorder.after_step))
    for name in ("all_reduce", "broadcast", "all_gather_into_tensor", "reduce_scatter_tensor"):
        setattr(torch.distributed, name, recorder.collective(name, getattr(torch.distributed, name)))
    begins = DistributedSampler.__iter__

    def begin(sampler: Any) -> Any:
        recorder.note("epoch", epoch=sampler.epoch, shuffle=sampler.shuffle, sampler=id(sampler))
        return begins(sampler)

    DistributedSampler.__iter__ = begin  # type: ignore[method-assign]
