"""Issue a certificate for a run, and verify one."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import islice
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from pytest_ascend.certificate import package, signing
from pytest_ascend.certificate.package import EVIDENCE, LOG, CertificateError, Package
from pytest_ascend.certificate.release import Release
from pytest_ascend.certificate.requirements import Candidate, Refusal, refusals
from pytest_ascend.certificate.revocation import Revocations, of_release
from pytest_ascend.certificate.statement import CHOSEN, newer_releases, statement
from pytest_ascend.certificate.tiers import ALL, NEWER_CANN, Tier
from pytest_ascend.environment.compatibility import Compatibility
from pytest_ascend.records.case import OPTIONAL
from pytest_ascend.records.outcome import Passed
from pytest_ascend.records.record import ResultRecord
from pytest_ascend.runlog.reading import LogReader, opened
from pytest_ascend.system import figures
from pytest_ascend.system.errors import AscendError, RunLogError
from pytest_ascend.system.files import strict_json
from pytest_ascend.system.text import one_line
from pytest_ascend.verdict import evidence
from pytest_ascend.verdict.diff import ERROR_DRIFT, FIX, OTHER, REGRESSION, SLOWER, compare
from pytest_ascend.verdict.summary import Summary, summarise

#: Allowed loss of speed relative to another run on the same stack, beyond the spread of its samples.
SPEED_SHARE = 0.25
#: Kinds of change from the claimed result to the result found, with a description of each.
_WRONG = {
    **dict.fromkeys((REGRESSION, FIX, OTHER), "says {before}, and is {after} here"),
    ERROR_DRIFT: "says that it used {before} of its limit, and used {after} here",
    SLOWER: "says {name} {before}, and it is {after} here",
}


class Refused(AscendError):
    """A run that cannot be certified. ``refusals`` has all reasons."""

    exit_code = 1

    def __init__(self, tier: Tier, found: tuple[Refusal, ...]) -> None:
        reasons = "".join(f"\n  {each.id}: {one_line(each.says)}" for each in found)
        hint = "docs/certification.md lists what each tier requires"
        super().__init__(f"this run cannot be certified for the tier {tier.name}:{reasons}", hint=hint)
        self.refusals = found


@dataclass(frozen=True, slots=True)
class Verified:
    """A certificate that is unaltered and earned: its statement, and the run behind it."""

    claims: Mapping[str, Any]
    summary: Summary


def certify(
    log: Path,
    tier: Tier,
    release: Release,
    *,
    issuer: str,
    key: Ed25519PrivateKey,
    folder: Path,
    on: date,
    confirms: tuple[Path, Ed25519PublicKey] | None = None,
) -> dict[str, Any]:
    """Write a certificate for a log to a folder, and return its statement.

    ``confirms`` is another issuer's certificate that the run confirms, with the public key of that issuer. Raises
    Refused with all reasons if the run does not earn the tier.
    """
    with opened(log) as file:
        candidate = Candidate(summary=summarise(LogReader(log, file).run()), tier=tier, release=release, on=on)
        if found := refusals(candidate):
            raise Refused(tier, found)
        name, confirmed = signing.fingerprint(key.public_key()), None
        if confirms:
            theirs = _verified(*confirms, release)
            if (confirms[0] / package.CONFIRMED).exists():
                raise CertificateError(f"{confirms[0]} confirms another certificate itself", hint="confirm that one")
            _refuse_unconfirmed(theirs, name, candidate)
            confirmed = _named(theirs[0].claims, confirms[0])
        claims = statement(candidate, issuer=issuer, key=name, confirms=confirmed)
        parts = {EVIDENCE[name]: each for name, each in release.parts.items()}
        return package.write(folder, claims, parts, file, key, confirmed=confirms[0] if confirms else None)


def _named(claims: Mapping[str, Any], folder: Path) -> dict[str, str]:
    """Return the reference by which a certificate names another one that it confirms."""
    return {name: str(claims[name]) for name in ("id", "issuer", "key")} | {"sha256": package.digest(folder)}


def verify(
    folder: Path, key: Ed25519PublicKey, release: Release, *, others: Sequence[Ed25519PublicKey] = ()
) -> Verified:
    """Check a certificate in full: its bytes, its release (which must be this one), and that the run earns it.

    If it confirms another issuer's, both are checked together; the other's public key is among ``others``. Raises
    CertificateError, which names the part and the problem. :func:`ended` tells whether it is still valid.
    """
    found, candidate = _verified(folder, key, release)
    claims, inner = found.claims.get("confirms"), folder / package.CONFIRMED
    if bool(claims) != inner.exists():
        raise CertificateError(f"{package.CONFIRMED}/ is not what the certificate says", part=package.CONFIRMED)
    if claims:
        known = {signing.fingerprint(each): each for each in others}
        if str(claims["key"]) not in known:
            issuer = one_line(str(claims["issuer"]))[:200]
            message = f"it confirms a certificate by {issuer}, whose key is {claims['key']}"
            hint = "give that public key, too: --key FILE --key FILE"
            raise CertificateError(message, part=package.CONFIRMED, hint=hint)
        try:
            theirs = _verified(inner, known[claims["key"]], release)
        except CertificateError as error:
            part = f"{package.CONFIRMED}/{error.part}"
            raise CertificateError(f"the certificate that it confirms: {error.message}", part=part) from error
        if (inner / package.CONFIRMED).exists():
            raise CertificateError("the certificate that it confirms has another one inside", part=package.CONFIRMED)
        if dict(claims) != _named(theirs[0].claims, inner):
            raise CertificateError("it confirms another certificate than the one inside", part=package.CONFIRMED)
        _refuse_unconfirmed(theirs, str(found.claims["key"]), candidate)
    return Verified(found.claims, candidate.summary)


def _verified(folder: Path, key: Ed25519PublicKey, release: Release) -> tuple[Package, Candidate]:
    with package.opened(folder, key) as found:
        version = str(found.claims["release"])
        if version != release.version:
            message = f"it was made by pytest-ascend {one_line(version)[:80]}; this is {release.version}"
            raise CertificateError(message, hint="check it with that release, installed from its official source")
        for name, file in EVIDENCE.items():
            if found.parts[file] != release.parts[name]:
                differing = _first_difference(found.parts[file], release.parts[name])
                hint = "install the release from its official source; then ask the issuer"
                message = f"{file} is not that of pytest-ascend {release.version}{differing}"
                raise CertificateError(message, part=file, hint=hint)
        return found, _check_evidence(found, release)


def _refuse_unconfirmed(theirs: tuple[Package, Candidate], key: str, candidate: Candidate) -> None:
    """Raise CertificateError if a run does not support another issuer's certificate, or is the same run."""
    claims, other = theirs[0].claims, theirs[1]
    mine, run = candidate.summary.run.header, other.summary.run.header
    is_copied = False
    for kind in ("duration_s", "measurements", "series"):
        ours, its = (dict(_times(of.results, kind)) for of in (candidate, other))
        both = ours.keys() & its.keys()
        if len(both) >= 8:  # fewer may be equal by chance, and because of a clock's resolution
            # In two different runs, at most half of the times are bitwise equal.
            is_copied |= sum(ours[key] == its[key] for key in both) > len(both) / 2
    same = ("chip", "driver", "cann", "torch", "torch_npu", "torch_npu_commit", *OPTIONAL)
    differing = [name for name in same if getattr(mine.stack, name) != getattr(run.stack, name)]
    disagreeing = disagreements(other.summary, candidate.summary)
    reasons = {
        f"it is of the same issuer's key, {key}": claims["key"] == key,
        "it is of the same run": mine.run_id == run.run_id or is_copied,
        f"it is of the tier {claims['tier']}": claims["tier"] != candidate.tier.name,
        f"it is of another stack: {', '.join(differing)}": bool(differing),
        f"the two runs disagree: {'; '.join(disagreeing[:3])}": bool(disagreeing),
    }
    for reason in (reason for reason, holds in reasons.items() if holds):
        hint = "run the suites again on another machine with the same stack, and certify that run"
        raise CertificateError(f"this run does not confirm {claims['id']}: {reason}", part=package.CONFIRMED, hint=hint)


def _times(results: Sequence[ResultRecord], kind: str) -> Iterator[tuple[tuple[str, str, int], float]]:
    """Yield times of a run, and figures computed from them, each with a key to find it in the other run."""
    for result in results:
        found: Mapping[str, Any] = {kind: result.duration_s} if kind == "duration_s" else getattr(result, kind)
        for name, given in found.items():
            times = given if kind == "series" else (given,)
            if name.endswith(("_s", "_ms", "_us")):
                yield from (((result.case.id, name, place), each) for place, each in enumerate(times) if each)


def ended(claims: Any, *, on: date, compatibility: Compatibility, revocations: Revocations | None) -> Iterator[str]:
    """Yield why a certificate is not valid on a day: expired, revoked or not yet valid."""
    if date.fromisoformat(claims["issued"]) > on:
        yield f"it was issued on {claims['issued']}, which is still to come"
    if date.fromisoformat(claims["expires"]) < on:
        yield f"it expired on {claims['expires']}"
    newer = newer_releases(claims["stack"]["cann"], compatibility)
    if len(newer) >= NEWER_CANN:
        yield f"{len(newer)} releases of CANN are newer than {claims['stack']['cann']}: {', '.join(newer)}"
    if revocations and revocations.stale_after < on:
        yield f"the list of revocations is stale since {revocations.stale_after}: ask the issuer for a newer one"
    names = {of_release(str(claims["release"])): "its release was withdrawn", claims["id"]: "it was revoked"}
    for name, what in names.items():
        if revocations and (found := revocations.find(name)):
            yield one_line(f"{what} on {found['since']}: {found['reason']}")


def _first_difference(theirs: bytes, mine: bytes) -> str:
    """Return the name of a file that differs, if both are lists of files."""
    try:
        one, other = strict_json(theirs), json.loads(mine)
        names = sorted(name for name in {*one, *other} if one.get(name) != other.get(name))
    except (ValueError, AttributeError, TypeError):
        return ""
    return f": {one_line(names[0])[:200]} differs" if names else ""


def _check_evidence(found: Package, release: Release) -> Candidate:
    """Judge the run again, as of the day of issue, and compare the results."""
    claims = found.claims
    try:
        found.log.seek(0)
        summary = summarise(LogReader(Path(LOG), found.log).run())
        # An unknown tier raises KeyError: the evidence does not support it.
        tier, issued = ALL[claims["tier"]], date.fromisoformat(claims["issued"])
        candidate = Candidate(summary=summary, tier=tier, release=release, on=issued)
        again = statement(candidate, issuer=claims["issuer"], key=claims["key"], confirms=claims.get("confirms"))
    except (RunLogError, KeyError, TypeError, ValueError, OverflowError) as error:
        why = error.message if isinstance(error, RunLogError) else str(error)
        raise CertificateError(f"{LOG} does not support the certificate: {why}", part=LOG) from error
    reasons = refusals(candidate)
    if reasons:
        said_so = "; ".join(one_line(f"{each.id}: {each.says}") for each in reasons[:3])
        raise CertificateError(f"{LOG} does not earn the certificate: {said_so}", part=LOG)
    if unknown := sorted(set(claims) - {*again, "id", "parts"}):
        message = f"{package.STATEMENT} says {one_line(unknown[0])[:80]!r}, which no certificate of this release says"
        raise CertificateError(message, part=package.STATEMENT)
    for name, value in again.items():
        if name not in CHOSEN and claims.get(name) != json.loads(json.dumps(value)):
            message = f"{package.STATEMENT} has another {name!r} than {LOG}"
            raise CertificateError(message, part=package.STATEMENT)
    return candidate


def disagreements(claimed: Summary, found: Summary) -> list[str]:
    """Return how the run ``found`` contradicts ``claimed``, one sentence per case that differs.

    Only cases that both executed are compared. Outcomes are compared without waivers, and so are the number of
    comparisons and of elements. Outputs that are bitwise equal on every correct device are compared by their digests;
    all others were judged in both runs, and may use at most twice the share of their limit. A CPU or GPU recomputes the
    inputs, and the number of elements compared.
    """
    messages: dict[str, str] = {}
    is_npu = found.run.header.stack.device == "npu"
    if is_npu:
        changes = compare(claimed, found, speed_share=SPEED_SHARE).changes
        messages = {
            each.id: f"{each.id}: {text.format(before=each.before, after=each.after, name=figures.words(each.name))}"
            for kind, text in _WRONG.items()
            for each in changes[kind]
        }
    theirs = {each.case.id: each for each in claimed.results}
    for each in found.results:
        known = theirs.get(each.case.id)
        if known and each.case.id not in messages:
            for why in islice(_differing(known, each, is_npu=is_npu), 1):
                messages[each.case.id] = f"{each.case.id}: {why}"
    return [figures.one_line(sentence) for sentence in messages.values()]


def _differing(claimed: ResultRecord, found: ResultRecord, *, is_npu: bool) -> Iterator[str]:
    """Yield which comparisons, and which outputs, of a case differ from the claimed ones."""
    if evidence.below(claimed) == evidence.below(found) == Passed.name:
        parts = ([leaf for each in of.verdicts for leaf in each.leaves or (each,)] for of in (claimed, found))
        said, here = ([int(leaf.metrics.get("count", 0)) for leaf in leaves] for leaves in parts)
        if said != here:
            yield f"has {len(said):,} comparisons of {sum(said):,} elements, and {len(here):,} of {sum(here):,} here"
    digests = {} if evidence.below(found) == "not-run" else found.digests
    if digests and not claimed.digests:
        yield "has no digests of its outputs"
    for name, mine in digests.items():
        theirs = claimed.digests.get(name)
        if theirs is None or theirs.inputs != mine.inputs:
            yield f"{name} is of other inputs"
        elif is_npu and mine.exact and theirs.outputs != mine.outputs:
            yield f"{name} has other bits than every right device gives"
