"""The list of a store's goldens: the hash of each file, how it was made and with what.

``manifest.json`` is canonical JSON with a hash over itself, so that a flipped bit in it is found as well.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from pytest_ascend.golden.files import canonical_json
from pytest_ascend.system.untrusted import strict_json

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class Content:
    """What a golden holds, for a recipe that knows only afterwards what to say of it: ``meta`` adds to its own."""

    tensors: Mapping[str, Tensor]
    meta: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class GoldenRecipe:
    """One golden to be made.

    ``id`` begins with the suite's name ("ops/relu"). ``make`` takes nothing and gives the tensors by name, or
    :class:`Content`; it is called only when the golden is built, and must give the same values each time. ``how`` says
    in one sentence how the values are computed. ``version`` is raised whenever the same recipe is to give other
    values. ``seed`` names the inputs. ``meta`` holds builtins that JSON knows, for the test that reads the golden.
    """

    id: str
    make: Callable[[], Mapping[str, Tensor] | Content]
    how: str
    version: int = 1
    seed: str = "0"
    meta: Mapping[str, Any] = field(default_factory=dict)


SCHEMA = 1
#: Parts of letters, digits, "_", "-", "+" and inner dots, joined by "/": nothing that leads out of a folder.
ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_+-]*(\.[A-Za-z0-9_+-]+)*(/[A-Za-z0-9_][A-Za-z0-9_+-]*(\.[A-Za-z0-9_+-]+)*)*")
ID_LENGTH = 200


@dataclass(frozen=True, kw_only=True, slots=True)
class Made:
    """How a golden was made and with what.

    ``how`` says in a sentence how the values were computed, ``generator`` by which code ("ops@1"), ``seed`` from which
    inputs; ``torch``, ``numpy`` and ``machine`` with what.
    """

    how: str
    generator: str
    seed: str
    torch: str
    numpy: str
    machine: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """One golden in the manifest. ``sha256`` and ``size_bytes`` are of its file."""

    sha256: str
    size_bytes: int
    made: Made

    @classmethod
    def of(cls, data: bytes, made: Made) -> Entry:
        """Describe the bytes of a golden."""
        return cls(sha256=hashlib.sha256(data).hexdigest(), size_bytes=len(data), made=made)

    def same_but_for_versions(self, other: Entry) -> bool:
        """Whether both say the same of content and way of making; by which versions it was made is left aside."""
        mine, theirs = self.made, other.made
        return self.sha256 == other.sha256 and all(
            getattr(mine, name) == getattr(theirs, name) for name in ("how", "generator", "seed")
        )


def is_id(text: str) -> bool:
    """Whether ``text`` can name a golden."""
    return len(text) <= ID_LENGTH and ID.fullmatch(text) is not None


def encode_manifest(entries: Mapping[str, Entry]) -> bytes:
    """Return the canonical bytes of ``manifest.json``."""
    body = {"schema": SCHEMA, "goldens": {name: asdict(entry) for name, entry in entries.items()}}
    return (canonical_json({**body, "sha256": _digest(body)}, indent=1) + "\n").encode()


def decode_manifest(data: bytes) -> dict[str, Entry]:
    """Read what :func:`encode_manifest` wrote, byte for byte. Raises ValueError with the reason on anything else."""
    body = strict_json(data)
    if not isinstance(body, dict) or body.get("schema") != SCHEMA:
        raise ValueError(f"its schema is not {SCHEMA}")
    try:
        entries = {name: _entry(name, given) for name, given in body["goldens"].items()}
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"an entry is malformed: {error}") from error
    if encode_manifest(entries) != data:
        raise ValueError("its content does not match its own hash")
    return entries


def _entry(name: str, given: Mapping[str, Any]) -> Entry:
    made = Made(**given["made"])
    entry = Entry(**{**given, "made": made})
    texts = (entry.sha256, *asdict(made).values())
    if not is_id(name) or type(entry.size_bytes) is not int or not all(isinstance(text, str) for text in texts):
        raise TypeError(f"of {name!r}")
    return entry


def _digest(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(canonical_json(body).encode()).hexdigest()
