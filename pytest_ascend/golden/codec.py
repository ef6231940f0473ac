"""Goldens as bytes: safetensors for the tensors, canonical JSON for everything said about them.

The same tensors and meta always give the same bytes: names are sorted, nothing depends on time or machine. Importing
this module loads no torch.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pytest_ascend.system.untrusted import strict_json

if TYPE_CHECKING:
    from torch import Tensor

#: safetensors keeps its string table unordered; with a single entry there is no order to differ.
META_KEY = "golden"


@dataclass(frozen=True, slots=True)
class Golden:
    """Tensors by name, and what is known of them.

    ``id`` is the name ("ops/relu"); ``tensors`` are on the CPU, contiguous; ``meta`` holds builtins that JSON knows.
    """

    id: str
    tensors: Mapping[str, Tensor]
    meta: Mapping[str, Any] = field(default_factory=dict)


def canonical_json(data: Any, *, indent: int | None = None) -> str:
    """Return the one JSON text of ``data``. Raises ValueError for NaN and infinity, TypeError for what JSON lacks."""
    separators = (",", ": ") if indent else (",", ":")
    return json.dumps(data, sort_keys=True, ensure_ascii=True, allow_nan=False, indent=indent, separators=separators)


def encode(golden: Golden) -> bytes:
    """Return the canonical bytes. Raises TypeError or ValueError where ``meta`` is no plain JSON."""
    from safetensors.torch import save  # noqa: PLC0415 - loads torch

    tensors = {name: _plain(golden.tensors[name]) for name in sorted(golden.tensors)}
    return bytes(save(tensors, metadata={META_KEY: canonical_json({"id": golden.id, "meta": dict(golden.meta)})}))


def decode(data: bytes) -> Golden:
    """Read what :func:`encode` wrote; each call gives new tensors. Raises ValueError on anything else."""
    from safetensors import SafetensorError  # noqa: PLC0415 - belongs to the next line
    from safetensors.torch import load  # noqa: PLC0415 - loads torch

    try:
        tensors = load(data)
        said = strict_json(_metadata(data)[META_KEY])
        return Golden(id=said["id"], tensors=tensors, meta=said["meta"])
    except (SafetensorError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"no golden: {type(error).__name__}: {error}") from error


def _plain(tensor: Tensor) -> Tensor:
    """Detach a tensor from autograd, device, strides and shared storage: safetensors takes none of them."""
    import torch  # noqa: PLC0415 - see the module's docstring

    return tensor.detach().to("cpu").clone(memory_format=torch.contiguous_format)


def _metadata(data: bytes) -> dict[str, str]:
    """Read the string table of a file that safetensors has accepted: its reader of bytes gives tensors only."""
    (length,) = struct.unpack_from("<Q", data)
    table = strict_json(data[8 : 8 + length])["__metadata__"]
    if not isinstance(table, dict):
        raise TypeError("the string table is no object")
    return table
