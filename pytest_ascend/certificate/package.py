"""A certificate as a folder: the signed statement, its signature, its words, and the evidence, each a file.

The signature is over the statement's SHA-256, the statement has the SHA-256 of each part, and the words are made of the
statement: no byte of the folder is outside of that chain, and what breaks it is named.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from pytest_ascend.certificate import signing
from pytest_ascend.certificate.statement import identity
from pytest_ascend.certificate.words import words
from pytest_ascend.errors import AscendError, UsageError
from pytest_ascend.golden.codec import canonical_json, strict_json

STATEMENT, SIGNATURE, WORDS, LOG = "certificate.json", "certificate.sig", "certificate.txt", "run.jsonl"
#: Parts of a release -> their file.
EVIDENCE = {
    "manifest": "manifest.json",
    "goldens": "goldens.json",
    "expectations": "expectations.json",
    "rules": "rules.json",
}
FILES = (STATEMENT, SIGNATURE, WORDS, LOG, *EVIDENCE.values())
#: What a statement must have, at least; all else is compared with what the evidence gives.
FIELDS: Mapping[str, type] = {
    **dict.fromkeys(("id", "release", "tier", "issued", "issuer", "key", "expires"), str),
    **dict.fromkeys(("stack", "run", "counts", "figures", "parts"), dict),
    **dict.fromkeys(("means", "fallbacks", "waived", "not_covered"), list),
}
#: A log of 200,000 records is smaller.
LARGEST_BYTES = 2 << 30
_PURPOSE = "certificate"


class CertificateError(AscendError):
    """A certificate that does not hold; ``part`` is the file of it that is wrong, "" where it is none in particular."""

    exit_code = 1

    def __init__(
        self, message: str, *, part: str = "", hint: str = "ask the issuer for the certificate as it was made"
    ) -> None:
        super().__init__(message, hint=hint)
        self.part = part


@dataclass(frozen=True, slots=True)
class Package:
    """A certificate whose files are what was signed. ``parts`` are the bytes of each file, by its name."""

    said: Mapping[str, Any]
    parts: Mapping[str, bytes]


def write(folder: Path, said: Mapping[str, Any], parts: Mapping[str, bytes], key: Ed25519PrivateKey) -> dict[str, Any]:
    """Write a certificate of ``said`` with its ``parts`` into a new folder, and give what was signed.

    Raises UsageError where the folder is there already or cannot be written; nothing is left behind then.
    """
    listed = {name: _listed(content) for name, content in sorted(parts.items())}
    signed = {**{name: value for name, value in said.items() if name != "id"}, "parts": listed}
    signed["id"] = identity(signed)
    text = _encoded(signed)
    digest = hashlib.sha256(text).hexdigest()
    signature = {"sha256": digest, "key": said["key"], "signature": signing.sign(key, _PURPOSE, digest)}
    files = {**parts, STATEMENT: text, SIGNATURE: _encoded(signature), WORDS: words(strict_json(text)).encode()}
    _write(folder, files)
    return signed


def read(folder: Path, key: Ed25519PublicKey) -> Package:
    """Read a certificate and check that every byte is the one that was signed.

    Raises CertificateError, which names the part, where one is not; UsageError where there is no certificate.
    """
    parts = _files(folder)
    _check_signature(parts, key)
    said = _statement(parts[STATEMENT])
    for problem in _problems(said, parts):
        raise problem
    return Package(said, {name: parts[name] for name in (LOG, *EVIDENCE.values())})


def _statement(content: bytes) -> dict[str, Any]:
    """Read the statement, whose signature holds: what it lacks, its issuer left out."""
    said = strict_json(content)
    right = isinstance(said, dict) and all(isinstance(said.get(name), kind) for name, kind in FIELDS.items())
    known = right and all(date_of(said[name]) for name in ("issued", "expires")) and _can_be_said(said)
    if not known or said["id"] != identity({name: value for name, value in said.items() if name != "id"}):
        raise CertificateError(f"{STATEMENT} is no statement of this form, though it is signed", part=STATEMENT)
    return dict(said)


def _can_be_said(said: Mapping[str, Any]) -> bool:
    try:
        return bool(words(said))
    except (KeyError, TypeError, AttributeError, ValueError):
        return False


def date_of(text: str) -> date | None:
    """Read a day, None where it is none."""
    try:
        return date.fromisoformat(text)
    except ValueError:
        return None


def _check_signature(parts: Mapping[str, bytes], key: Ed25519PublicKey) -> None:
    """Tell an altered statement from an altered signature and from another's key."""
    actual, mine = hashlib.sha256(parts[STATEMENT]).hexdigest(), signing.fingerprint(key)
    said = _signature(parts[SIGNATURE])
    holds = signing.is_signed(key, _PURPOSE, said["sha256"], said["signature"])
    if holds and said["sha256"] != actual:
        raise _altered(STATEMENT)
    if holds and said["key"] == mine:
        return
    if holds or signing.is_signed(key, _PURPOSE, actual, said["signature"]) or said["key"] == mine:
        raise _altered(SIGNATURE)
    if _names_key(parts[STATEMENT], mine):
        raise _altered(SIGNATURE)
    hint = "give the public key of who issued it; its fingerprint must be known to you from elsewhere"
    raise CertificateError(
        f"{SIGNATURE}: signed by another key, {said['key']}; yours is {mine}", part=SIGNATURE, hint=hint
    )


def _signature(content: bytes) -> dict[str, str]:
    try:
        said = strict_json(content)
        right = set(said) == {"sha256", "key", "signature"} and all(isinstance(each, str) for each in said.values())
        if (
            not right
            or _encoded(said) != content
            or not all(signing.is_digest(said[name]) for name in ("sha256", "key"))
        ):
            raise ValueError("of another form")
    except (ValueError, TypeError, RecursionError) as error:
        raise _altered(SIGNATURE) from error
    return dict(said)


def _names_key(content: bytes, fingerprint: str) -> bool:
    return f'"key": "{fingerprint}"'.encode() in content


def _problems(said: Mapping[str, Any], parts: Mapping[str, bytes]) -> Iterator[CertificateError]:
    for name in (LOG, *EVIDENCE.values()):
        if said["parts"].get(name) != _listed(parts[name]):
            yield _altered(name)
    if words(said).encode() != parts[WORDS]:
        yield _altered(WORDS)


def _listed(content: bytes) -> dict[str, Any]:
    return {"sha256": hashlib.sha256(content).hexdigest(), "size_bytes": len(content)}


def _altered(part: str) -> CertificateError:
    return CertificateError(f"{part} was altered: it is not what was signed", part=part)


def _encoded(data: Mapping[str, Any]) -> bytes:
    return f"{canonical_json(data, indent=1)}\n".encode()


def _files(folder: Path) -> dict[str, bytes]:
    """Read every file of a certificate, no link followed; what does not belong there is refused."""
    try:
        names = sorted(os.listdir(folder))  # noqa: PTH208 (names as they are, undecodable ones too)
    except OSError as error:
        hint = "give the folder that 'pytest-ascend certify' wrote"
        raise UsageError(f"cannot read the certificate {folder}: {error.strerror or error}", hint=hint) from error
    for name in FILES:
        if name not in names:
            raise CertificateError(f"{name} is missing", part=name)
    for name in names:
        if name not in FILES:
            raise CertificateError(f"{name!r} does not belong to the certificate", part=name)
    return {name: _bytes(folder / name) for name in FILES}


def _bytes(path: Path) -> bytes:
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode) or status.st_size > LARGEST_BYTES:
                raise CertificateError(f"{path.name} is no regular file of a certificate", part=path.name)
            return file.read()
    except OSError as error:
        raise CertificateError(f"{path.name} cannot be read: {error.strerror or error}", part=path.name) from error


def _write(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write beside, then rename: there is a whole certificate, or none."""
    beside = folder.with_name(f".{folder.name}.{os.getpid()}")
    try:
        if folder.exists():
            raise FileExistsError(17, "it is there already")
        beside.mkdir(parents=True)
        for name, content in files.items():
            (beside / name).write_bytes(content)
        beside.rename(folder)
    except OSError as error:
        shutil.rmtree(beside, ignore_errors=True)
        hint = "choose another folder: --output DIR; certificates are never written over"
        raise UsageError(f"cannot write the certificate {folder}: {error.strerror or error}", hint=hint) from error
