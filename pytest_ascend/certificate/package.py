"""A certificate as a folder: the signed statement, its signature, its text, and the evidence, each a file.

The signature covers the statement's SHA-256, the statement the SHA-256 of each part, and the text follows from the
statement: every byte of the folder is covered, and an error names the part that breaks the chain.
"""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from jinja2 import TemplateError

from pytest_ascend.certificate import signing
from pytest_ascend.certificate.statement import identity
from pytest_ascend.certificate.words import words
from pytest_ascend.runlog.reading import SIZE_LIMIT_BYTES
from pytest_ascend.system.errors import AscendError, UsageError, as_error, reason, with_type
from pytest_ascend.system.files import canonical_json, open_regular, read_regular, strict_json
from pytest_ascend.system.text import one_line

STATEMENT, SIGNATURE, LOG = "certificate.json", "certificate.sig", "run.jsonl"
#: The statement as text: file -> language.
WORDS = {"certificate.txt": "en", "certificate.zh.txt": "zh"}
#: Parts of a release -> their file.
EVIDENCE = {name: f"{name}.json" for name in ("manifest", "goldens", "expectations", "rules")}
#: The folder of the certificate that this one confirms, complete, as its issuer made it.
CONFIRMED = "confirmed"
FILES = (STATEMENT, SIGNATURE, *WORDS, LOG, *EVIDENCE.values())
#: The required fields of a statement; everything else is compared with what follows from the evidence.
FIELDS: Mapping[str, type] = {
    **dict.fromkeys(("id", "release", "tier", "issued", "issuer", "key", "expires"), str),
    **dict.fromkeys(("stack", "run", "counts", "figures", "parts"), dict),
    **dict.fromkeys(("means", "fallbacks", "waived", "not_covered"), list),
}
#: The signature is read first, then the statement, then the parts with their listed sizes.
SIGNATURE_LIMIT_BYTES, STATEMENT_LIMIT_BYTES, PART_LIMIT_BYTES = 10_000, 16 << 20, 64 << 20
_PURPOSE = "certificate"


HINT = "ask the issuer for the certificate as it was made"


class CertificateError(AscendError):
    """An invalid certificate; ``part`` is the file that is wrong, "" if it is not a single one."""

    exit_code = 1

    def __init__(self, message: str, *, part: str = "", hint: str = HINT) -> None:
        super().__init__(message, hint=hint)
        self.part = part


def refused(
    message: str, part: str, *kinds: type[Exception], why: Callable[[Exception], str] = reason
) -> AbstractContextManager[None]:
    """Turn errors of these kinds, and errors of the operating system, into CertificateError about a part."""
    return as_error(message, HINT, *kinds, why=why, raises=partial(CertificateError, part=part))


@dataclass(frozen=True, slots=True)
class Package:
    """A certificate whose files match their signature.

    ``parts`` has the bytes of each other part, by name; ``log`` is a copy that cannot change after the check.
    """

    claims: Mapping[str, Any]
    parts: Mapping[str, bytes]
    log: BinaryIO


def write(
    folder: Path,
    claims: Mapping[str, Any],
    parts: Mapping[str, bytes],
    log: BinaryIO,
    key: Ed25519PrivateKey,
    *,
    confirmed: Path | None = None,
) -> dict[str, Any]:
    """Write a certificate of ``claims``, ``parts`` and ``log`` to a new folder, and return the signed statement.

    ``confirmed`` is the folder of the certificate that it confirms, which is copied into it. Raises UsageError, and
    leaves nothing behind, if the folder exists or cannot be written.
    """
    listed = {name: _listed(io.BytesIO(content)) for name, content in sorted(parts.items())} | {LOG: _listed(log)}
    signed = {**{name: value for name, value in claims.items() if name != "id"}, "parts": listed}
    signed["id"] = identity(signed)
    text = encoded(signed)
    digest = hashlib.sha256(text).hexdigest()
    signature = {"sha256": digest, "key": claims["key"], "signature": signing.sign(key, _PURPOSE, digest)}
    files = {**parts, STATEMENT: text, SIGNATURE: encoded(signature)}
    files |= {name: words(strict_json(text), language).encode() for name, language in WORDS.items()}
    # A temporary folder is renamed at the end, so that no incomplete certificate is left.
    beside = folder.with_name(f".{folder.name}.{os.getpid()}")
    try:
        if folder.exists():
            raise FileExistsError(17, "it is there already")
        beside.mkdir(parents=True)
        for name, content in files.items():
            (beside / name).write_bytes(content)
        with (beside / LOG).open("wb") as copy:
            _listed(log, copy)
        if confirmed:
            shutil.copytree(confirmed, beside / CONFIRMED)
        beside.rename(folder)
    except OSError as error:
        shutil.rmtree(beside, ignore_errors=True)
        hint = "choose another folder: --output DIR; certificates are never overwritten"
        raise UsageError(f"cannot write the certificate {folder}: {error.strerror or error}", hint=hint) from error
    return signed


@contextmanager
def opened(folder: Path, key: Ed25519PublicKey) -> Iterator[Package]:
    """Read a certificate and check every byte against the signature.

    Raises CertificateError, which names the part, on a mismatch; UsageError if there is no certificate.
    """
    _refuse_strangers(folder)
    signed = _bytes(folder / STATEMENT, STATEMENT_LIMIT_BYTES)
    _check_signature(signed, _bytes(folder / SIGNATURE, SIGNATURE_LIMIT_BYTES), key)
    claims = _statement(signed)
    for name, language in WORDS.items():
        if _bytes(folder / name, PART_LIMIT_BYTES) != words(claims, language).encode():
            raise _altered(name)
    parts = {name: _bytes(folder / name, PART_LIMIT_BYTES) for name in EVIDENCE.values()}
    for name, content in parts.items():
        if claims["parts"].get(name) != _listed(io.BytesIO(content)):
            raise _altered(name)
    listed = claims["parts"].get(LOG)
    size = listed.get("size_bytes") if isinstance(listed, dict) else None
    with tempfile.TemporaryFile(prefix="pytest-ascend-") as log:
        with refused(f"{LOG} cannot be read", LOG), open_regular(folder / LOG, SIZE_LIMIT_BYTES, follow=False) as file:
            if os.fstat(file.fileno()).st_size != size or _listed(file, log) != listed:
                raise _altered(LOG)
        yield Package(claims, parts, log)


def _statement(content: bytes) -> dict[str, Any]:
    """Parse a statement with a valid signature: a missing field was omitted by the issuer."""
    kinds = (LookupError, TypeError, AttributeError, ValueError, OverflowError, TemplateError)
    message = f"{STATEMENT} is not a valid statement, although it is signed"
    with refused(message, STATEMENT, *kinds, why=lambda error: one_line(with_type(error))[:200]):
        claims: dict[str, Any] = strict_json(content)
        wrong = [name for name, kind in FIELDS.items() if not isinstance(claims[name], kind)]
        if wrong or claims["id"] != identity(claims):
            raise ValueError(f"{(wrong or ['id'])[0]} is another than it must be")
        for name in ("issued", "expires"):
            date.fromisoformat(claims[name])
        words(claims)
        return claims


def _check_signature(statement: bytes, signature: bytes, key: Ed25519PublicKey) -> None:
    """Distinguish an altered statement, an altered signature and a different key."""
    actual, mine = hashlib.sha256(statement).hexdigest(), signing.fingerprint(key)
    signed = _signature(signature)
    holds = signing.is_signed(key, _PURPOSE, signed["sha256"], signed["signature"])
    if holds and signed["sha256"] != actual:
        raise _altered(STATEMENT)
    if holds and signed["key"] == mine:
        return
    if holds or signing.is_signed(key, _PURPOSE, actual, signed["signature"]) or signed["key"] == mine:
        raise _altered(SIGNATURE)
    if f'"key": "{mine}"'.encode() in statement:
        raise _altered(SIGNATURE)
    hint = "give the issuer's public key; you must know its fingerprint from another source"
    message = f"{SIGNATURE}: signed by another key, {signed['key']}; yours is {mine}"
    raise CertificateError(message, part=SIGNATURE, hint=hint)


def signer(folder: Path) -> str:
    """Return the fingerprint of the key that a certificate claims to be signed with, without checking it.

    Raises UsageError if there is no certificate, CertificateError if a file is missing.
    """
    _refuse_strangers(folder)
    return _signature(_bytes(folder / SIGNATURE, SIGNATURE_LIMIT_BYTES))["key"]


def digest(folder: Path) -> str:
    """Return the SHA-256 of the statement of a certificate."""
    return hashlib.sha256(_bytes(folder / STATEMENT, STATEMENT_LIMIT_BYTES)).hexdigest()


def _signature(content: bytes) -> dict[str, str]:
    try:
        fields = strict_json(content)
        right = set(fields) == {"sha256", "key", "signature"} and isinstance(fields["signature"], str)
        if not (
            right and all(map(signing.is_digest, (fields["sha256"], fields["key"]))) and encoded(fields) == content
        ):
            raise ValueError("of another form")
    except (ValueError, TypeError) as error:
        raise _altered(SIGNATURE) from error
    return dict(fields)


def _altered(part: str) -> CertificateError:
    return CertificateError(f"{part} was altered: it is not what was signed", part=part)


def encoded(data: Mapping[str, Any]) -> bytes:
    """Return the canonical text of a statement or a signature."""
    return f"{canonical_json(data, indent=1)}\n".encode()


def _refuse_strangers(folder: Path) -> None:
    """Raise CertificateError for a missing file, or one that does not belong to a certificate."""
    with as_error(f"cannot read the certificate {folder}", "give the folder that 'pytest-ascend certify' wrote"):
        names = sorted(os.listdir(folder))  # noqa: PTH208 (names as they are, undecodable ones too)
    for name in FILES:
        if name not in names:
            raise CertificateError(f"{name} is missing", part=name)
    for name in names:
        if name not in FILES and not (name == CONFIRMED and (folder / name).is_dir()):
            raise CertificateError(f"{name!a} does not belong to the certificate", part=name)


def _bytes(path: Path, limit_bytes: int) -> bytes:
    with refused(f"{path.name} cannot be read", path.name):
        return read_regular(path, limit_bytes, follow=False)


def _listed(file: BinaryIO, copy: BinaryIO | None = None) -> dict[str, Any]:
    """Return SHA-256 and size of a file, read in steps of 1 MiB, and write it to ``copy``."""
    digest, size = hashlib.sha256(), 0
    file.seek(0)
    while part := file.read(1 << 20):
        digest.update(part)
        size += len(part)
        if copy:
            copy.write(part)
    return {"sha256": digest.hexdigest(), "size_bytes": size}
