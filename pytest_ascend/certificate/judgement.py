"""Make a certificate of a run, and judge one that somebody shows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from pytest_ascend.certificate import package, signing
from pytest_ascend.certificate.package import EVIDENCE, LOG, CertificateError, Package
from pytest_ascend.certificate.release import Release
from pytest_ascend.certificate.requirements import Refusal, Subject, refusals
from pytest_ascend.certificate.revocation import Revocations, of_release
from pytest_ascend.certificate.statement import CHOSEN, newer_releases, statement
from pytest_ascend.certificate.tiers import NEWER_CANN, TIERS, Tier
from pytest_ascend.environment.compatibility import Compatibility
from pytest_ascend.errors import AscendError, RunLogError
from pytest_ascend.records.text import one_line
from pytest_ascend.runlog.reading import opened, read_from
from pytest_ascend.system.untrusted import strict_json
from pytest_ascend.verdict.summary import summarise


class Refused(AscendError):
    """A run that cannot be certified. ``refusals`` are all of the reasons."""

    exit_code = 1

    def __init__(self, tier: Tier, found: tuple[Refusal, ...]) -> None:
        reasons = "".join(f"\n  {each.id}: {one_line(each.says)}" for each in found)
        hint = "docs/certification.md says what each tier asks for"
        super().__init__(f"this run cannot be certified for the tier {tier.name}:{reasons}", hint=hint)
        self.refusals = found


@dataclass(frozen=True, kw_only=True, slots=True)
class Issue:
    """Who certifies what: the run log, the tier, the signer, and the folder to write."""

    log: Path
    tier: Tier
    issuer: str
    key: Ed25519PrivateKey
    folder: Path


def certify(issue: Issue, release: Release, *, on: date) -> dict[str, Any]:
    """Write a certificate, and give what it says. Raises Refused with all reasons where the run does not earn it."""
    with opened(issue.log) as log:
        subject = Subject(summary=summarise(read_from(issue.log, log)), tier=issue.tier, release=release, on=on)
        found = refusals(subject)
        if found:
            raise Refused(issue.tier, found)
        said = statement(subject, issuer=issue.issuer, key=signing.fingerprint(issue.key.public_key()))
        parts = {EVIDENCE[name]: each for name, each in release.parts.items()}
        return package.write(issue.folder, said, parts, log, issue.key)


def verify(folder: Path, key: Ed25519PublicKey, release: Release) -> Package:
    """Check a certificate in full: its bytes, that they are judged by this release, and that the run earns it.

    Raises CertificateError, which says what is wrong and in which part. Whether it still holds is :func:`ended`.
    """
    with package.opened(folder, key) as found:
        _check_release(found, release)
        _check_evidence(found, release)
        return found


def ended(said: Any, *, on: date, compatibility: Compatibility, revocations: Revocations | None) -> Iterator[str]:
    """Yield the reasons for which a certificate does not hold any more, or not yet, on a day."""
    if date.fromisoformat(said["issued"]) > on:
        yield f"it was issued on {said['issued']}, which is still to come"
    if date.fromisoformat(said["expires"]) < on:
        yield f"it expired on {said['expires']}"
    newer = newer_releases(said["stack"]["cann"], compatibility)
    if len(newer) >= NEWER_CANN:
        yield f"{len(newer)} releases of CANN are newer than {said['stack']['cann']}: {', '.join(newer)}"
    if revocations and revocations.stale_after < on:
        yield f"the list of revocations is stale since {revocations.stale_after}: ask the issuer for a newer one"
    withdrawn = revocations.find(of_release(str(said["release"]))) if revocations else None
    if withdrawn:
        yield one_line(f"its release was withdrawn on {withdrawn['since']}: {withdrawn['reason']}")
    revoked = revocations.find(said["id"]) if revocations else None
    if revoked:
        yield one_line(f"it was revoked on {revoked['since']}: {revoked['reason']}")


def _check_release(found: Package, release: Release) -> None:
    version = str(found.said["release"])
    if version != release.version:
        message = f"it was made by pytest-ascend {one_line(version)[:80]}; this is {release.version}"
        raise CertificateError(message, hint="check it with that release, installed from its official place")
    for name, file in EVIDENCE.items():
        if found.parts[file] != release.parts[name]:
            differing = _first_difference(found.parts[file], release.parts[name])
            hint = "install the release from its official place; then ask the issuer"
            message = f"{file} is not that of pytest-ascend {release.version}{differing}"
            raise CertificateError(message, part=file, hint=hint)


def _first_difference(theirs: bytes, mine: bytes) -> str:
    """Name a file that differs, where both are lists of files."""
    try:
        one, other = strict_json(theirs), json.loads(mine)
        names = sorted(name for name in {*one, *other} if one.get(name) != other.get(name))
    except (ValueError, AttributeError, TypeError):
        return ""
    return f": {one_line(names[0])[:200]} differs" if names else ""


def _check_evidence(found: Package, release: Release) -> None:
    """Judge the run anew, by the day on which the certificate was issued, and compare what comes out of it."""
    said = found.said
    try:
        subject = _subject(found, release)
        again = statement(subject, issuer=said["issuer"], key=said["key"])
    except (RunLogError, KeyError, TypeError, ValueError, OverflowError) as error:
        why = error.message if isinstance(error, RunLogError) else str(error)
        raise CertificateError(f"{LOG} does not bear the certificate out: {why}", part=LOG) from error
    reasons = refusals(subject)
    if reasons:
        said_so = "; ".join(one_line(f"{each.id}: {each.says}") for each in reasons[:3])
        raise CertificateError(f"{LOG} does not earn the certificate: {said_so}", part=LOG)
    if unknown := sorted(set(said) - {*again, "id", "parts"}):
        message = f"{package.STATEMENT} says {one_line(unknown[0])[:80]!r}, which no certificate of this release says"
        raise CertificateError(message, part=package.STATEMENT)
    for name, value in again.items():
        if name not in CHOSEN and said.get(name) != json.loads(json.dumps(value)):
            message = f"{package.STATEMENT} says another {name!r} than {LOG} gives"
            raise CertificateError(message, part=package.STATEMENT)


def _subject(found: Package, release: Release) -> Subject:
    found.log.seek(0)
    summary = summarise(read_from(Path(LOG), found.log))
    # An unknown tier is a KeyError, which says that the evidence does not give it.
    tier, issued = TIERS[found.said["tier"]], date.fromisoformat(found.said["issued"])
    return Subject(summary=summary, tier=tier, release=release, on=issued)
