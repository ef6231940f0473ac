"""What one rank does: it takes a device, joins the others, and calls what it is told."""

from __future__ import annotations

import importlib
import os
import traceback
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_ascend.isolation import Channel

if TYPE_CHECKING:
    import torch

#: torch's backend by the type of device.
BACKENDS = {"npu": "hccl", "cuda": "nccl", "cpu": "gloo"}


@dataclass(frozen=True, slots=True)
class Place:
    """Where a function runs: which rank of how many, its device, and a folder that all ranks share."""

    rank: int
    count: int
    device: torch.device
    folder: Path


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """What a rank needs to know before its first call."""

    kind: str
    rank: int
    count: int
    store: Path
    limit_s: float

    def live(self, channel: Channel) -> None:
        """Join, then answer calls until there are none."""
        _speak_into(said_by(self.store, self.rank))
        warnings.simplefilter("ignore")  # what torch says of its own names is no subject of these cases
        device = None
        while "function" in (call := channel.receive()):
            try:
                device = device or self._join()
                place = Place(self.rank, self.count, device, Path(call["folder"]))
                answer = _answer(_function(call["function"])(place, **call["arguments"]), place)
            except Exception as error:  # noqa: BLE001  (whatever a rank raises is its answer)
                answer = {"failure": f"{type(error).__name__}: {error}", "detail": traceback.format_exc()}
            channel.send(**answer)

    def _join(self) -> torch.device:
        self._prepare_environment()
        import torch
        from torch import distributed

        torch.set_num_threads(1)
        if self.kind == "npu":
            from pytest_ascend.device.npu import Npu

            npu = Npu(self.rank, emulated=os.environ.get("PYTEST_ASCEND_EMULATED") == "1")
            device = npu.torch_device()
            npu.pin_numerics()
        else:
            device = torch.device(self.kind, self.rank) if self.kind != "cpu" else torch.device("cpu")
        distributed.init_process_group(
            BACKENDS[self.kind],
            store=distributed.FileStore(str(self.store), self.count),  # type: ignore[attr-defined]
            rank=self.rank,
            world_size=self.count,
            timeout=timedelta(seconds=max(30.0, self.limit_s)),
        )
        return device

    def _prepare_environment(self) -> None:
        emulated = max(self.count, int(os.environ.get("PYTEST_ASCEND_EMULATED_DEVICES", "1")))
        # A rank that waits for another says so before the call's time is over.
        waits_s = str(max(2, int(self.limit_s / 2)))
        os.environ.update(
            RANK=str(self.rank),
            LOCAL_RANK=str(self.rank),
            WORLD_SIZE=str(self.count),
            LOCAL_WORLD_SIZE=str(self.count),
            PYTEST_ASCEND_EMULATED_DEVICES=str(emulated),
            HCCL_EXEC_TIMEOUT=waits_s,
            HCCL_CONNECT_TIMEOUT=waits_s,
        )


def said_by(store: Path, rank: int) -> Path:
    """Return the file of what a rank and its libraries print."""
    return store.with_name(f"{store.name}-said-{rank}")


def _speak_into(path: Path) -> None:
    """Have what this process and its libraries print go into a file: the terminal is the parent's."""
    with path.open("ab") as said:
        for stream in (1, 2):
            os.dup2(said.fileno(), stream)


def _function(name: str) -> Any:
    module, _, attribute = name.partition(":")
    return reduce(getattr, attribute.split("."), importlib.import_module(module))


def _answer(found: Mapping[str, Any] | None, place: Place) -> dict[str, Any]:
    """Put tensors into a file, and everything else into the message."""
    import torch
    from safetensors.torch import save_file

    found = found or {}
    tensors = {name: each.detach().cpu().contiguous() for name, each in found.items() if isinstance(each, torch.Tensor)}
    path = place.folder / f"answer-{place.rank}.safetensors" if tensors else None
    if path:
        save_file({name: each.clone() for name, each in tensors.items()}, path)
    return {"path": str(path or ""), "said": {name: each for name, each in found.items() if name not in tensors}}
