"""Keys and signatures: Ed25519 (RFC 8032), from the library ``cryptography``; no cryptography of our own."""

from __future__ import annotations

import base64
import hashlib
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import cast

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from pytest_ascend.system.errors import UsageError, as_error
from pytest_ascend.system.files import read_regular


def fingerprint(key: Ed25519PublicKey) -> str:
    """Return the fingerprint of a key: the SHA-256 of its 32 bytes, in hex."""
    raw = key.public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
    return hashlib.sha256(raw).hexdigest()


def make_keys(private: Path, passphrase: str) -> Ed25519PublicKey:
    """Write a new private key, readable only by its owner, and beside it the public one (``.pub``).

    Raises UsageError if one of the files exists: an overwritten key would be lost.
    """
    key = Ed25519PrivateKey.generate()
    protection: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if passphrase:
        protection = serialization.BestAvailableEncryption(passphrase.encode())
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, protection)
    shown = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    _write_new(private, pem, 0o600)
    try:
        _write_new(Path(f"{private}.pub"), shown, 0o644)
    except UsageError:
        private.unlink()
        raise
    return key.public_key()


def private_key(path: Path, passphrase: str) -> Ed25519PrivateKey:
    """Read a private key. Raises UsageError for a file without one, or a wrong passphrase."""
    secret = passphrase.encode() or None
    key = _key(path, "private", lambda pem: serialization.load_pem_private_key(pem, secret), Ed25519PrivateKey)
    return cast("Ed25519PrivateKey", key)


def public_key(path: Path) -> Ed25519PublicKey:
    """Read a public key. Raises UsageError for a file without one."""
    return cast("Ed25519PublicKey", _key(path, "public", serialization.load_pem_public_key, Ed25519PublicKey))


def _key(path: Path, name: str, load: Callable[[bytes], object], kind: type) -> object:
    with as_error(f"cannot read the key {path}", "make a pair with 'pytest-ascend certificate-key FILE'"):
        content = read_regular(path, 10_000)  # a PEM file has a few hundred bytes
    message = f"{path} holds no {name} Ed25519 key that can be read"
    hint = "give the file that 'pytest-ascend certificate-key' wrote, and its passphrase where it has one"
    with as_error(message, hint, ValueError, TypeError, UnsupportedAlgorithm):
        key = load(content)
        if not isinstance(key, kind):
            raise TypeError("it is a key of another kind")
        return key


def sign(key: Ed25519PrivateKey, purpose: str, digest: str) -> str:
    """Sign a SHA-256 for one purpose, so that a signature cannot be reused for another; return base64."""
    return base64.b64encode(key.sign(_message(purpose, digest))).decode("ascii")


def is_signed(key: Ed25519PublicKey, purpose: str, digest: str, signature: str) -> bool:
    """Return whether ``signature`` is this key's, of this digest, for this purpose."""
    try:
        raw = base64.b64decode(signature, validate=True)
        if base64.b64encode(raw).decode("ascii") != signature:
            return False
        key.verify(raw, _message(purpose, digest))
    except (InvalidSignature, ValueError):
        return False
    return True


def is_digest(text: object) -> bool:
    """Return whether this is a SHA-256 in hex."""
    return isinstance(text, str) and re.fullmatch(r"[0-9a-f]{64}", text) is not None


def _message(purpose: str, digest: str) -> bytes:
    return f"pytest-ascend {purpose} v1\n{digest}\n".encode()


def _write_new(path: Path, content: bytes, mode: int) -> None:
    with (
        as_error(f"cannot write the key {path}", "choose another name: keys are never overwritten"),
        os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file,
    ):
        file.write(content)
