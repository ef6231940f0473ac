"""RFC 3161 time-stamps of lines of a run log: an authority certifies when a line, and all lines before it, existed.

``rfc3161-client`` (the extra ``certificate``) makes requests and checks responses; only time-stamps need it.
"""

from __future__ import annotations

import base64
import urllib.request
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, cast

from cryptography import x509

from pytest_ascend.system.errors import AscendError, UsageError, as_error
from pytest_ascend.system.files import read_regular
from pytest_ascend.system.text import one_line

#: A response with its certificates has a few thousand bytes.
_LARGEST_BYTES = 1 << 18
INSTALL = "pip install 'pytest-ascend[certificate]'"


class TimestampError(AscendError):
    """A time-stamp that is invalid, or that an authority did not issue."""

    exit_code = 1


def _library() -> Any:
    with as_error("time-stamps need the library rfc3161-client", INSTALL, ImportError):
        import rfc3161_client  # noqa: PLC0415  (an extra)

        return rfc3161_client


def take(authority: str, line: bytes) -> str:
    """Have an authority stamp a line of a log, and return its response in base64.

    Raises UsageError without the library or a valid address, TimestampError unless the authority time-stamps this line.
    """
    if not authority.startswith(("http://", "https://")):
        message = f"{authority!r} is not the address of a time-stamp authority"
        raise UsageError(message, hint="give http://... or https://...")
    library = _library()
    query = library.TimestampRequestBuilder().data(line).hash_algorithm(library.HashAlgorithm.SHA256)
    query = query.nonce(nonce=True).cert_request(cert_request=True).build()
    headers = {"Content-Type": "application/timestamp-query", "Accept": "application/timestamp-reply"}
    request = urllib.request.Request(authority, data=query.as_bytes(), headers=headers)  # noqa: S310  (checked above)
    message = f"the time-stamp authority {authority} gave no time-stamp"
    hint = "see that it can be reached from here; the run can be made without --ascend-certify=timestamp"
    with as_error(message, hint, OSError, ValueError, why=_in_a_line, raises=TimestampError):
        with urllib.request.urlopen(request, timeout=20.0) as answer:  # noqa: S310
            content = answer.read(_LARGEST_BYTES)
        stamp, wanted = library.decode_timestamp_response(content).tst_info, query.message_imprint.message
        if stamp.nonce != query.nonce or stamp.message_imprint.message != wanted:
            raise ValueError("it stamped something else")
    return base64.b64encode(content).decode("ascii")


def _in_a_line(error: Exception) -> str:
    return one_line(str(getattr(error, "reason", "") or error))[:200]


def moment_of(answer: str, digest: str) -> datetime:
    """Return when the line with this SHA-256 was stamped, by the response; the authority is not checked here.

    Raises TimestampError for a response for another line, or an invalid one.
    """
    response = _decoded(answer)
    if response.tst_info.message_imprint.message.hex() != digest:
        raise TimestampError("a time-stamp is of another line", hint="ask the issuer for the log as it was written")
    return cast("datetime", response.tst_info.gen_time)


def check(answer: str, digest: str, roots: Sequence[x509.Certificate]) -> None:
    """Check that an authority with these roots stamped the line. Raises TimestampError if it did not."""
    library = _library()
    builder = library.VerifierBuilder()
    for root in roots:
        builder = builder.add_root_certificate(root)
    kinds = (library.VerificationError, ValueError)
    hint = "give the root certificate of the authority that is named, from the authority itself"
    with as_error("a time-stamp does not hold", hint, *kinds, why=_in_a_line, raises=TimestampError):
        builder.build().verify(_decoded(answer), bytes.fromhex(digest))


def roots_of(path: Path) -> tuple[x509.Certificate, ...]:
    """Read root certificates in PEM. Raises UsageError for a file without any."""
    hint = "give the root certificate that the authority publishes"
    with as_error(f"{path} holds no certificate in PEM that can be read", hint, OSError, ValueError):
        return tuple(x509.load_pem_x509_certificates(read_regular(path, _LARGEST_BYTES)))


def _decoded(answer: str) -> Any:
    library = _library()
    try:
        response = library.decode_timestamp_response(base64.b64decode(answer, validate=True))
        response.tst_info.gen_time  # noqa: B018  (a refusal has none)
        return response
    except ValueError as error:
        hint = "ask the issuer for the log as it was written"
        raise TimestampError("a time-stamp of the log cannot be read", hint=hint) from error
