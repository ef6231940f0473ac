"""The list of revoked certificates, signed with the key that issued them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from pytest_ascend.certificate import signing
from pytest_ascend.certificate.package import CertificateError, encoded, refused
from pytest_ascend.system.errors import as_error
from pytest_ascend.system.files import canonical_json, read_regular, strict_json, write_if_new

#: 2: adds ``stale_after``, and revoked releases.
SCHEMA = 2
#: Days for which a list is valid, unless its issuer sets another number.
FRESH_DAYS = 90
_PURPOSE = "revocations"


@dataclass(frozen=True, slots=True)
class Revocations:
    """A list whose signature was checked: ``entries`` have ``id``, ``since`` and ``reason``.

    Do not rely on it after the day ``stale_after``: a newer list may have more entries.
    """

    as_of: str
    stale_after: date
    entries: tuple[Mapping[str, str], ...]

    def find(self, certificate_id: str) -> Mapping[str, str] | None:
        """Return the entry of a certificate, None if it is not revoked."""
        return next((each for each in self.entries if each["id"] == certificate_id), None)


def read(path: Path, key: Ed25519PublicKey) -> Revocations:
    """Read a list. Raises CertificateError if it was altered or has another key, UsageError if it is missing."""
    with as_error(f"cannot read the revocations {path}", "give the list that the issuer publishes"):
        content = read_regular(path, 16 << 20)
    kinds = (ValueError, KeyError, TypeError, AttributeError)
    with refused(f"the list of revocations {path} is damaged", path.name, *kinds, why=str):
        data = strict_json(content)
        body = {name: data[name] for name in ("schema", "as_of", "stale_after", "revoked")}
        entries = tuple({name: str(each[name]) for name in ("id", "since", "reason")} for each in data["revoked"])
        stale_after = date.fromisoformat(data["stale_after"])
        holds = data["schema"] == SCHEMA and signing.is_signed(key, _PURPOSE, _digest(body), str(data["signature"]))
    if not holds or encoded(data) != content:
        message = f"the list of revocations {path} was altered, or signed by another key"
        raise CertificateError(message, part=path.name)
    return Revocations(str(data["as_of"]), stale_after, entries)


def of_release(version: str) -> str:
    """Return the name of a release as it is written in a list."""
    return f"pytest-ascend {version}"


def add(
    path: Path, certificate_id: str, reason: str, key: Ed25519PrivateKey, *, on: date, fresh_days: int = FRESH_DAYS
) -> int:
    """Add a certificate, or a release, to a list, sign it again, and return its length.

    The list is created if necessary; it is stale ``fresh_days`` after the day ``on``.
    """
    known = read(path, key.public_key()).entries if path.exists() else ()
    entries = [dict(each) for each in known if each["id"] != certificate_id]
    entries.append({"id": certificate_id, "since": on.isoformat(), "reason": reason})
    stale_after = (on + timedelta(days=fresh_days)).isoformat()
    body: dict[str, Any] = {"schema": SCHEMA, "as_of": on.isoformat(), "stale_after": stale_after, "revoked": entries}
    write_if_new(path, encoded({**body, "signature": signing.sign(key, _PURPOSE, _digest(body))}))
    return len(entries)


def _digest(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(canonical_json(body).encode()).hexdigest()
