"""What a run was judged by: the frozen manifest, goldens, expectations, and every file of the suites and judges.

Each is identified by its hash. A run writes these hashes to its log; a certificate has the lists behind them; a
verifier compares both with an installation of the same release.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_ascend.golden.files import decode_manifest, read_bounded
from pytest_ascend.golden.store import SUFFIX
from pytest_ascend.system.bundled import PACKAGE, folder
from pytest_ascend.system.errors import AscendError, GoldenError
from pytest_ascend.system.files import canonical_json, read_regular
from pytest_ascend.system.version import __version__


@dataclass(frozen=True, kw_only=True, slots=True)
class Release:
    """The bytes that a run is judged by: ``manifest``, ``goldens``, ``expectations`` and ``rules``."""

    version: str
    parts: Mapping[str, bytes]

    def hashes(self) -> dict[str, str]:
        """Return the SHA-256 of each part, as in a run log."""
        return {name: hashlib.sha256(content).hexdigest() for name, content in self.parts.items()}


def used(suites: Path, baselines: Path, expectations: Sequence[Path]) -> dict[str, str]:
    """Return the hashes of what a run uses, as in the header of its log; "" for a missing part.

    ``expectations`` are all files of known deviations: with any in addition to the bundled one, the hash differs.
    """
    return Release(version=__version__, parts=_parts(suites, baselines, expectations, absent=b"")).hashes()


def installed() -> Release:
    """Return this installation's parts. Raises GoldenError if one of its goldens was altered."""
    suites, baselines = folder("suites"), folder("baselines")
    parts = _parts(suites, baselines, (baselines / "expectations.json",))
    for problem in altered_goldens(baselines / "golden", parts["goldens"]):
        raise problem
    return Release(version=__version__, parts=parts)


def _parts(
    suites: Path, baselines: Path, expectations: Sequence[Path], absent: bytes | None = None
) -> Mapping[str, bytes]:
    return {
        "manifest": _read(suites / "manifest.json", absent),
        "goldens": _read(baselines / "golden" / "manifest.json", absent),
        "expectations": b"".join(_read(each, absent) for each in expectations),
        "rules": rules(suites),
    }


def altered_goldens(root: Path, manifest: bytes) -> Iterator[GoldenError]:
    """Compare every golden below ``root`` with the manifest."""
    try:
        entries = decode_manifest(manifest)
    except ValueError as error:
        path = root / "manifest.json"
        yield GoldenError(f"{path} is damaged: {error}", path=str(path), hint="reinstall pytest-ascend")
        return
    for golden_id, entry in entries.items():
        path = root / f"{golden_id}{SUFFIX}"
        if hashlib.sha256(read_bounded(root, path, golden_id)).hexdigest() != entry.sha256:
            message = f"the golden {path} was altered: its SHA-256 is not the one in the manifest"
            yield GoldenError(message, path=str(path), hint="reinstall pytest-ascend")


def rules(suites: Path) -> bytes:
    """Return the hash of each file of the package and the suites, as canonical JSON.

    All of them matter: source, the known deviations of operators (``operators.json``), compatibility data, the division
    into shards. Compiled files are excluded.
    """
    paths = {f"suites/{path.relative_to(suites).as_posix()}": path for path in _files(suites)}
    for path in _files(PACKAGE):
        below = path.relative_to(PACKAGE)
        if below.parts[0] not in ("suites", "baselines"):  # other folders of an installed package are not our code
            paths[f"pytest_ascend/{below.as_posix()}"] = path
    hashes = {name: hashlib.sha256(_read(path)).hexdigest() for name, path in paths.items()}
    return f"{canonical_json(hashes, indent=1)}\n".encode()


def _files(root: Path) -> Iterator[Path]:
    """Yield the files of a release, without files compiled from them and hidden files."""
    for path in sorted(root.rglob("*")):
        is_hidden = any(part.startswith((".", "__pycache__")) for part in path.relative_to(root).parts)
        if not is_hidden and path.suffix not in (".pyc", ".so", ".o") and path.is_file():
            yield path


def _read(path: Path, absent: bytes | None = None) -> bytes:
    """Return the content of a file. If it cannot be read, return ``absent`` or raise AscendError."""
    try:
        return read_regular(path, 64 << 20)
    except OSError as error:
        if absent is not None:
            return absent
        message = f"this installation cannot judge: {path}: {error.strerror or error}"
        raise AscendError(message, hint="reinstall pytest-ascend") from error
