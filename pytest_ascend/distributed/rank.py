"""One rank: takes a device, joins the others, and runs the calls that it is sent."""

from __future__ import annotations

import importlib
import os
import traceback
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_ascend.isolation.process import Channel

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class Place:
    """Where a function runs: the rank, the number of ranks, its device, and a folder that all ranks share."""

    rank: int
    count: int
    device: torch.device
    folder: Path


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """What a rank needs before its first call; ``devices`` are the indices of the devices of all ranks."""

    kind: str
    rank: int
    devices: Sequence[int]
    store: Path
    limit_s: float

    def live(self, channel: Channel) -> None:
        """Join the group, then answer calls until there are none."""
        # Redirect the output of this process and its libraries to a file: the terminal belongs to the parent
        with output_file(self.store, self.rank).open("ab") as file:
            for stream in (1, 2):
                os.dup2(file.fileno(), stream)
        warnings.simplefilter("ignore")  # torch's warnings about its own names do not matter here
        device = None
        while "function" in (call := channel.receive()):
            try:
                device = device or self._join()
                place = Place(self.rank, len(self.devices), device, Path(call["folder"]))
                module, _, attribute = call["function"].partition(":")
                function = reduce(getattr, attribute.split("."), importlib.import_module(module))
                answer = _answer(function(place, **call["arguments"]), place)  # type: ignore[operator]
            except Exception as error:  # noqa: BLE001 - whatever a rank raises is its answer
                answer = {"failure": f"{type(error).__name__}: {error}", "detail": traceback.format_exc()}
            channel.send(**answer)

    def _join(self) -> torch.device:
        count, given = len(self.devices), int(os.environ.get("PYTEST_ASCEND_EMULATED_DEVICES", "1"))
        emulated = max(max(self.devices) + 1, count, given)
        # A rank that waits for another reports it before the call's time is over.
        waits_s = str(max(2, int(self.limit_s / 2)))
        os.environ.update(
            RANK=str(self.rank),
            LOCAL_RANK=str(self.rank),
            WORLD_SIZE=str(count),
            LOCAL_WORLD_SIZE=str(count),
            PYTEST_ASCEND_EMULATED_DEVICES=str(emulated),
            HCCL_EXEC_TIMEOUT=waits_s,
            HCCL_CONNECT_TIMEOUT=waits_s,
        )
        import torch
        from torch import distributed

        torch.set_num_threads(1)
        if self.kind == "npu":
            from pytest_ascend.device.npu import Npu, show_only

            npu = Npu(show_only(self.devices)[self.rank], emulated=os.environ.get("PYTEST_ASCEND_EMULATED") == "1")
            device = npu.torch_device()
            npu.pin_numerics()
        else:
            device = torch.device(self.kind, self.devices[self.rank]) if self.kind != "cpu" else torch.device("cpu")
        distributed.init_process_group(
            {"npu": "hccl", "cuda": "nccl", "cpu": "gloo"}[self.kind],
            store=distributed.FileStore(str(self.store), count),  # type: ignore[attr-defined]
            rank=self.rank,
            world_size=count,
            timeout=timedelta(seconds=max(30.0, self.limit_s)),
        )
        return device


def output_file(store: Path, rank: int) -> Path:
    """Return the file for the output of a rank and its libraries."""
    return store.with_name(f"{store.name}-said-{rank}")


def _answer(found: Mapping[str, Any] | None, place: Place) -> dict[str, Any]:
    """Write tensors to a file, and put everything else into the message."""
    import torch
    from safetensors.torch import save_file

    found = found or {}
    tensors = {name: each.detach().cpu().contiguous() for name, each in found.items() if isinstance(each, torch.Tensor)}
    path = place.folder / f"answer-{place.rank}.safetensors" if tensors else None
    if path:
        save_file({name: each.clone() for name, each in tensors.items()}, path)
    return {"path": str(path or ""), "values": {name: each for name, each in found.items() if name not in tensors}}
