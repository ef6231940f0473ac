"""Read and write a store's files with care: bounded, without links that lead outside, never half-written."""

from __future__ import annotations

import contextlib
import hashlib
import re
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock
from msgspec import Struct, ValidationError, convert, to_builtins

from pytest_ascend.system.errors import GoldenError, as_error
from pytest_ascend.system.files import cache_folder, canonical_json, read_regular, strict_json

if TYPE_CHECKING:
    from torch import Tensor

SCHEMA = 1
#: Parts of letters, digits, "_", "-", "+" and inner dots, joined by "/": they cannot lead out of a folder.
ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_+-]*(\.[A-Za-z0-9_+-]+)*(/[A-Za-z0-9_][A-Za-z0-9_+-]*(\.[A-Za-z0-9_+-]+)*)*")
#: Far more than any bundled golden (a few MB); larger files are refused.
LARGEST_BYTES = 256 * 1024 * 1024
BUILD = "pytest-ascend baseline build"
#: The only key of the string table: safetensors does not order it, and a single entry needs no order.
META_KEY = "golden"


@dataclass(frozen=True, slots=True)
class Golden:
    """Tensors by name, and their metadata.

    ``id`` is the name ("ops/relu"); ``tensors`` are on the CPU, contiguous; ``meta`` holds JSON values.
    """

    id: str
    tensors: Mapping[str, Tensor]
    meta: Mapping[str, Any] = field(default_factory=dict)


def encode(golden: Golden) -> bytes:
    """Return the canonical bytes. Raises TypeError or ValueError if ``meta`` is not plain JSON."""
    import torch  # noqa: PLC0415 - see the package's docstring
    from safetensors.torch import save  # noqa: PLC0415 - loads torch

    # Without autograd, strides and shared storage, which safetensors does not accept.
    tensors = {
        name: tensor.detach().to("cpu").clone(memory_format=torch.contiguous_format)
        for name, tensor in sorted(golden.tensors.items())
    }
    return bytes(save(tensors, metadata={META_KEY: canonical_json({"id": golden.id, "meta": dict(golden.meta)})}))


def decode(data: bytes) -> Golden:
    """Decode the bytes of :func:`encode` into new tensors. Raises ValueError on anything else."""
    from safetensors import SafetensorError  # noqa: PLC0415 - belongs to the next line
    from safetensors.torch import load  # noqa: PLC0415 - loads torch

    try:
        tensors = load(data)
        # The string table of a file that safetensors accepted: its reader of bytes returns only tensors.
        (length,) = struct.unpack_from("<Q", data)
        table = strict_json(data[8 : 8 + length])["__metadata__"]
        if not isinstance(table, dict):
            raise TypeError("the string table is no object")
        meta = strict_json(table[META_KEY])
        return Golden(id=meta["id"], tensors=tensors, meta=meta["meta"])
    except (SafetensorError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"no golden: {type(error).__name__}: {error}") from error


def read_bounded(root: Path, path: Path, golden_id: str) -> bytes:
    """Read a regular file below ``root``, up to a limit. Raises GoldenError for links, other kinds and larger files."""
    try:
        if not path.resolve(strict=True).is_relative_to(root.resolve()):
            raise damaged(path, "it leads out of the store", golden_id)
        return read_regular(path, LARGEST_BYTES, follow=False)
    except FileNotFoundError as error:
        raise GoldenError(f"{path} is missing", path=str(path), hint=_hint(golden_id)) from error
    except (OSError, RuntimeError) as error:
        raise damaged(path, f"it cannot be read: {getattr(error, 'strerror', None) or error}", golden_id) from error


@contextlib.contextmanager
def locked(root: Path) -> Iterator[None]:
    """Lock a store against other processes. The lock is outside the store, since stores are copied and published.

    Raises GoldenError if the folder of locks cannot be created.
    """
    name = hashlib.sha256(str(root.resolve()).encode()).hexdigest()
    hint = "make the folder writable, or set PYTEST_ASCEND_CACHE to another one"
    with as_error("the store cannot be locked", hint, why=str, raises=partial(GoldenError, path=str(root))):
        folder = cache_folder() / "locks"
        folder.mkdir(exist_ok=True)
    with FileLock(folder / f"golden-{name[:32]}.lock"):
        yield


def damaged(path: Path, reason: str, golden_id: str) -> GoldenError:
    """Return the error for a file that cannot be trusted, with a hint on how to get a good one."""
    return GoldenError(f"{path} is damaged: {reason}", path=str(path), hint=_hint(golden_id))


def _hint(golden_id: str) -> str:
    remedy = f"make it anew: '{BUILD} {golden_id}'" if golden_id else f"delete it and make all anew: '{BUILD}'"
    return f"restore the file from version control or the package, or {remedy}"


@dataclass(frozen=True, kw_only=True, slots=True)
class GoldenRecipe:
    """The recipe of one golden.

    ``id`` begins with the suite's name ("ops/relu"). ``make`` takes no arguments and returns the tensors by name, or a
    :class:`Golden` whose metadata extends the recipe's; it is called only when the golden is built, and must return the
    same values each time. ``how`` is a sentence on how the values are computed. ``version`` is incremented when the
    recipe's values change. ``seed`` names the inputs. ``meta`` holds JSON values for the test that reads the golden.
    """

    id: str
    make: Callable[[], Mapping[str, Tensor] | Golden]
    how: str
    version: int = 1
    seed: str = "0"
    meta: Mapping[str, Any] = field(default_factory=dict)


class Provenance(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a golden was made.

    ``how`` is a sentence on how the values were computed, ``generator`` the code ("ops@1"), ``seed`` the inputs;
    ``torch``, ``numpy`` and ``machine`` tell what computed it.
    """

    how: str
    generator: str
    seed: str
    torch: str
    numpy: str
    machine: str


class Entry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One golden in the manifest. ``sha256`` and ``size_bytes`` are those of its file."""

    sha256: str
    size_bytes: int
    made: Provenance

    def same_but_for_versions(self, other: Entry) -> bool:
        """Return whether content and provenance are the same, apart from versions and machine."""
        mine, theirs = ((each.sha256, each.made.how, each.made.generator, each.made.seed) for each in (self, other))
        return mine == theirs


def is_id(text: str) -> bool:
    """Return whether ``text`` can be the ID of a golden."""
    return len(text) <= 200 and ID.fullmatch(text) is not None


def encode_manifest(entries: Mapping[str, Entry]) -> bytes:
    """Return the canonical bytes of ``manifest.json``."""
    body = {"schema": SCHEMA, "goldens": to_builtins(entries)}
    signed = {**body, "sha256": hashlib.sha256(canonical_json(body).encode()).hexdigest()}
    return (canonical_json(signed, indent=1) + "\n").encode()


def decode_manifest(data: bytes) -> dict[str, Entry]:
    """Decode the bytes of :func:`encode_manifest`. Raises ValueError with the reason on anything else."""
    body = strict_json(data)
    if not isinstance(body, dict) or body.get("schema") != SCHEMA:
        raise ValueError(f"its schema is not {SCHEMA}")
    try:
        entries = convert(body["goldens"], dict[str, Entry])
        if strange := [name for name in entries if not is_id(name)]:
            raise TypeError(f"of {strange[0]!r}")
    except (KeyError, TypeError, ValidationError) as error:
        raise ValueError(f"an entry is malformed: {error}") from error
    if encode_manifest(entries) != data:
        raise ValueError("its content does not match its own hash")
    return entries
