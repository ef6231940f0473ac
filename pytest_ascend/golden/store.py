"""A folder of goldens: one safetensors file each, and a manifest with their hashes.

Files are untrusted: name, kind, size and hash are checked before the content is decoded, and the content before use.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from msgspec import Struct, convert, to_builtins

from pytest_ascend.golden import files
from pytest_ascend.golden.files import Entry, Golden, Provenance
from pytest_ascend.system.errors import GoldenError
from pytest_ascend.system.files import canonical_json, strict_json, write_if_new

T = TypeVar("T")
NAME = "revoked.json"
SUFFIX = ".safetensors"
SCHEMA = 1


class Revocation(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Why a golden is revoked, and the SHA-256 of its file."""

    sha256: str
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Changes:
    """The result of a flush, as sorted IDs."""

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()


class GoldenStore:
    """The goldens below ``root``. Files are cached as bytes, and decoded again for each reader."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._entries: dict[str, Entry] | None = None
        self._read: dict[str, bytes] = {}
        self._staged: dict[str, tuple[bytes, Entry]] = {}
        self._revoked: dict[str, Revocation] | None = None

    @property
    def manifest(self) -> Path:
        """Return the path of the manifest."""
        return self.root / "manifest.json"

    def path(self, golden_id: str) -> Path:
        """Return the path of a golden. Raises GoldenError for an ID that could lead out of the store."""
        if not files.is_id(golden_id):
            message = f"{golden_id!r} is not the id of a golden"
            raise GoldenError(message, path=str(self.root), hint="ids look like 'ops/relu'")
        return self.root / f"{golden_id}{SUFFIX}"

    def entries(self) -> dict[str, Entry]:
        """Return the manifest, by ID. Raises GoldenError if it is missing or damaged."""
        if self._entries is None:
            self._entries = self._parsed(self.manifest, files.decode_manifest)
        return dict(self._entries)

    def _parsed(self, path: Path, decode: Callable[[bytes], T]) -> T:
        data = files.read_bounded(self.root, path, "")
        try:
            return decode(data)
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise files.damaged(path, str(error), "") from error

    def ids(self) -> tuple[str, ...]:
        """Return all IDs, sorted."""
        return tuple(sorted(self.entries()))

    def read(self, golden_id: str) -> Golden:
        """Read one golden.

        Raises GoldenError, which names the file, if it is missing, truncated, damaged, not in the manifest or revoked.
        """
        golden = self.decoded(golden_id)
        if revoked := self.revoked().get(golden_id):
            hint = "there is no verdict until it is corrected and built again, see baselines/README.md"
            message = f"the golden {golden_id!r} is revoked: {revoked.reason}"
            raise GoldenError(message, path=str(self.path(golden_id)), hint=hint)
        return golden

    def decoded(self, golden_id: str) -> Golden:
        """Read one golden even if it is revoked. Raises GoldenError as :meth:`read` does."""
        path = self.path(golden_id)
        if golden_id not in self._read:
            entry = self.entries().get(golden_id)
            if entry is None:
                message = f"no golden {golden_id!r}: the manifest does not list {path}"
                hint = f"run '{files.BUILD} {golden_id}', or update pytest-ascend"
                raise GoldenError(message, path=str(path), hint=hint)
            data = files.read_bounded(self.root, path, golden_id)
            if len(data) != entry.size_bytes:
                raise files.damaged(path, f"{len(data)} bytes instead of {entry.size_bytes}", golden_id)
            if hashlib.sha256(data).hexdigest() != entry.sha256:
                raise files.damaged(path, "its SHA-256 is not the one in the manifest", golden_id)
            self._read[golden_id] = data
        try:
            golden = files.decode(self._read[golden_id])
        except ValueError as error:
            raise files.damaged(path, str(error), golden_id) from error
        if golden.id != golden_id:
            raise files.damaged(path, f"it holds the golden {golden.id!r}", golden_id)
        return golden

    def revoked(self) -> dict[str, Revocation]:
        """Return the revocations in force, by ID: the golden still has the revoked content. Raises GoldenError."""
        if self._revoked is None:
            path = self.root / NAME
            self._revoked = self._parsed(path, _revocations) if path.exists() else {}
        known = self.entries()
        return {
            name: each for name, each in self._revoked.items() if name in known and known[name].sha256 == each.sha256
        }

    def revoke(self, golden_id: str, reason: str) -> Path:
        """Revoke a golden's present content, and return the path of the list. Raises GoldenError if there is none."""
        self.decoded(golden_id)
        with files.locked(self.root):
            entry = Revocation(sha256=self.entries()[golden_id].sha256, reason=reason)
            self._revoked = None
            data = {"schema": SCHEMA, "revoked": to_builtins({**self.revoked(), golden_id: entry})}
            write_if_new(self.root / NAME, (canonical_json(data, indent=1) + "\n").encode())
        self._revoked = None
        return self.root / NAME

    def stage(self, golden: Golden, made: Provenance) -> bytes:
        """Add a golden to the next :meth:`flush`, and return its bytes. Nothing is written yet."""
        self.path(golden.id)
        data = files.encode(golden)
        entry = Entry(sha256=hashlib.sha256(data).hexdigest(), size_bytes=len(data), made=made)
        self._staged[golden.id] = (data, entry)
        return data

    def flush(self, *, remove: Iterable[str] = ()) -> Changes:
        """Write the staged goldens, delete ``remove``, then replace the manifest; unchanged files are not touched.

        A golden with the same bytes and provenance keeps its entry, so that the manifest still names the versions that
        made it. Raises GoldenError if the present manifest is damaged.
        """
        self.root.mkdir(parents=True, exist_ok=True)
        with files.locked(self.root):
            self._entries = None  # another process may have changed the manifest
            before = self.entries() if self.manifest.exists() else {}
            after = {name: entry for name, entry in before.items() if name not in set(remove)}
            for name, (data, entry) in sorted(self._staged.items()):
                old = before.get(name)
                after[name] = old if old and old.same_but_for_versions(entry) else entry
                write_if_new(self.path(name), data)
            write_if_new(self.manifest, files.encode_manifest(after))
            for name in before.keys() - after.keys():
                self.path(name).unlink(missing_ok=True)
        staged = sorted(self._staged.keys() & before.keys())
        changes = Changes(
            added=tuple(sorted(after.keys() - before.keys())),
            changed=tuple(name for name in staged if before[name] != after[name]),
            unchanged=tuple(name for name in staged if before[name] == after[name]),
            removed=tuple(sorted(before.keys() - after.keys())),
        )
        self._entries, self._read, self._staged = after, {}, {}
        return changes

    def problems(self) -> Iterator[GoldenError]:
        """Read everything again and yield the errors found: in the manifest, in goldens, unlisted files."""
        fresh, listed = GoldenStore(self.root), {self.manifest, self.root / NAME}
        try:
            ids = fresh.ids()
        except GoldenError as error:
            yield error
            return
        for golden_id in ids:
            listed.add(self.path(golden_id))
            try:
                fresh.decoded(golden_id)
            except GoldenError as error:
                yield error
        for path in sorted(self.root.rglob("*")):
            if path not in listed and (path.is_symlink() or not path.is_dir()):
                hint = "remove it, or build the goldens again"
                yield GoldenError(f"the manifest does not list {path}", path=str(path), hint=hint)


def _revocations(data: bytes) -> dict[str, Revocation]:
    content = strict_json(data)
    if content["schema"] != SCHEMA:
        raise ValueError(f"its schema is {content['schema']!r}, not {SCHEMA}")
    found = convert(content["revoked"], dict[str, Revocation])
    if wrong := [name for name, each in found.items() if not files.is_id(name) or not each.reason]:
        raise TypeError(f"of {wrong[0]!r}")
    return found
