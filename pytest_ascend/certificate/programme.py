"""The certification programme: disputes about cases, and a registry of certificates as a folder in a repository."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date, timedelta
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import click

from pytest_ascend.certificate import package, revocation, signing
from pytest_ascend.certificate.judgement import ended, verify
from pytest_ascend.certificate.package import CertificateError
from pytest_ascend.certificate.release import Release, installed
from pytest_ascend.certificate.tiers import ACCEPTED, SAMPLE
from pytest_ascend.certificate.words import NAMES
from pytest_ascend.coverage import expectations, manifest
from pytest_ascend.environment.compatibility import Compatibility, load
from pytest_ascend.records.case import OPTIONAL, Stack
from pytest_ascend.system.bundled import folder
from pytest_ascend.system.errors import AscendError, UsageError, as_error
from pytest_ascend.system.files import read_regular, strict_json, write_if_new
from pytest_ascend.system.text import one_line, table

#: The parts of a stack by which a certificate is listed.
_STACK = ("chip", "driver", "cann", "torch", "torch_npu")
#: A stack with which the format of a list is checked.
_ANY = Stack(device="npu", emulated=False)
_path = click.Path(path_type=Path)
_file = partial(click.option, type=_path, metavar="FILE")


@click.command()
@click.argument("case")
@click.option("--reason", required=True, help="Why the case is wrong, or why it is decided so, in a sentence.")
@click.option("--evidence", default="", help="A file that shows it, or its address.", metavar="FILE|URL")
@click.option("--by", required=True, help="Who files it, or who decides.", metavar="NAME")
@_file("--list", "path", default="disputes.json", show_default=True, help="The list of known deviations to extend.")
@click.option("--decide", type=click.Choice(["device", "case"]), help="End the dispute: which of both was wrong.")
def dispute(case: str, *, reason: str, evidence: str, by: str, path: Path, decide: str | None) -> None:
    """File a dispute that CASE is wrong, not the device, or decide one.

    The case is recorded as disputed by every run with --ascend-expectations=FILE, and for everyone once FILE is the
    release's own list. A decided dispute no longer has an effect, and stays in the list as a record.
    """
    try:
        known = read_regular(path, expectations.LIMIT_BYTES) if path.exists() else b'{"schema": 2, "causes": []}'
        data: Any = strict_json(known)
        expectations.parse(json.dumps(data).encode(), _ANY)
        data = {**data, "causes": list(data["causes"]), "decided": list(data.get("decided", ()))}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise UsageError(f"cannot read {path}: {error}", hint="docs/expectations.md describes the file") from error
    except KeyError as error:
        raise UsageError(f"{path} has no causes: it is of schema 1", hint="name another file: --list FILE") from error
    disputes, today = [each for each in data["causes"] if each.get("outcome") == "disputed"], expectations.today()
    open_ = [each for each in disputes if list(each.get("cases", ())) == [case]]
    if decide:
        if not open_:
            raise UsageError(f"{path}: there is no open dispute about {case}", hint="give the id of a disputed case")
        data["causes"] = [each for each in data["causes"] if each not in open_]
        ends = {"decision": f"the {decide} was wrong", "decided": today.isoformat(), "by": by, "because": reason}
        data["decided"] += [{**each, **ends} for each in open_]
    elif open_:
        raise UsageError(f"{path}: {case} is disputed already", hint="decide it: --decide device, or --decide case")
    else:
        data["causes"].append(_entry(case, reason, evidence, by, today))
    content = json.dumps(data, indent=1, ensure_ascii=False) + "\n"
    expectations.parse(content.encode(), _ANY)
    write_if_new(path, content.encode())
    click.echo(f"{path}: {case} is {f'decided: the {decide} was wrong' if decide else 'disputed'}")


def _entry(case: str, reason: str, evidence: str, by: str, today: date) -> dict[str, Any]:
    if case not in {each.id for each in manifest.load(folder("suites"))}:
        hint = "'pytest --ascend --ascend-level=full --collect-only -q' lists the cases"
        raise UsageError(f"this release has no case {case!r}", hint=hint)
    if not evidence:
        hint = "give a file that shows that the case is wrong, or an address"
        raise UsageError("a dispute needs --evidence", hint=hint)
    if not evidence.startswith(("http://", "https://")):
        with as_error(f"cannot read the evidence {evidence}", "give a file, or an address that begins with https://"):
            digest = sha256(read_regular(Path(evidence), 64 << 20)).hexdigest()
        evidence = f"{Path(evidence).name}, SHA-256 {digest}"
    name = sha256(f"{case} {today}".encode()).hexdigest()[:8]
    expires = (today + timedelta(days=90)).isoformat()  # by then it has to be decided, or filed again
    return {"cause": f"dispute-{name}", "outcome": "disputed", "reason": reason, "cases": [case], "source": evidence,
            "owner": by, "expires": expires, "why": f"filed on {today}"}  # fmt: skip


@dataclass(kw_only=True, slots=True)
class Entry:
    """One certificate of a registry: its folder, its statement if it was verified, and why it is not valid."""

    folder: Path
    claims: Mapping[str, Any] = field(default_factory=dict)
    reasons: list[str] = field(default_factory=list)
    others: list[str] = field(default_factory=list)

    @property
    def key(self) -> tuple[str, ...]:
        """Return a key that is equal for certificates with the same claims about the same stack."""
        stack = self.claims.get("stack", {})
        beside = ", ".join(f"{NAMES[name]} {stack[name]}" for name in OPTIONAL if stack.get(name))
        return (str(self.claims.get("tier")), *(str(stack.get(name)) for name in _STACK), beside)


@click.command()
@click.argument("registry", type=_path)
@click.option("--submission", type=_path, help="Check this certificate as well, as if it were listed.", metavar="DIR")
@_file("-o", "--output", help="Write who is certified for what, as Markdown.")
def registry(registry: Path, submission: Path | None, output: Path | None) -> None:
    """Check every certificate of the folder REGISTRY, and a submission to it.

    REGISTRY has certificates/, keys/ with the issuers' public keys (*.pub), and revocations/ with their lists (*.json).
    Each certificate is verified, and must not be expired, revoked, a sample, or of a release that is no longer
    accepted. Exit code 1 if the submission, or without one any certificate, is not valid.
    """
    found = entries(registry, submission, installed(), load(), on=expectations.today())
    for each in found:
        named = (f"{NAMES[name]} {version}" for name, version in zip(_STACK, each.key[1:], strict=False))
        stack = ", ".join(filter(None, (*named, each.key[-1])))
        what = f"{each.key[0]} for {stack}, by {each.claims['issuer']}" if each.claims else "unverified"
        also = f"; also certified by {', '.join(each.others)}" if each.others else ""
        state = f"DOES NOT HOLD: {'; '.join(each.reasons)}" if each.reasons else f"holds until {each.claims['expires']}"
        click.echo(one_line(f"{each.folder.name}: {what}: {state}{also}"))
    if output:
        write_if_new(output, page(found).encode())
        click.echo(f"page: {output}")
    checked = [each for each in found if submission in (None, each.folder)]
    sys.exit(any(each.reasons for each in checked))


def entries(
    registry: Path, submission: Path | None, release: Release, compatibility: Compatibility, *, on: date
) -> list[Entry]:
    """Verify the certificates of a registry.

    Raises UsageError for a folder of another kind, CertificateError for a list of revocations that no issuer signed.
    """
    with as_error(f"{registry} is no registry", "make the folders certificates and keys in it"):
        folders = sorted(each for each in (registry / "certificates").iterdir() if each.is_dir())
        folders = [each for each in folders if not (submission and submission.exists() and each.samefile(submission))]
        keys = {signing.fingerprint(key): key for key in map(signing.public_key, sorted(registry.glob("keys/*.pub")))}
    lists = []
    for path in sorted(registry.glob("revocations/*.json")):
        for name, key in keys.items():
            with suppress(CertificateError):
                lists.append((name, revocation.read(path, key)))
                break
        else:
            message = f"{path} is damaged, or signed by no key of the registry"
            raise CertificateError(message, part=path.name, hint="ask its issuer for it, or for the public key")
    found = []
    for path in (*folders, *([submission] if submission else ())):
        entry = Entry(folder=path)
        try:
            signer = package.signer(path)
            if signer in keys:
                entry.claims = verify(path, keys[signer], release, others=list(keys.values())).claims
            else:
                entry.reasons.append(f"its key {signer} is not in {registry / 'keys'}")
        except AscendError as error:
            entry.reasons.append(error.message)
        found.append(entry)
    for each in (entry for entry in found if entry.claims):
        claims = each.claims
        for revoked in [known for name, known in lists if name == claims["key"]] or (None,):
            said = ended(claims, on=on, compatibility=compatibility, revocations=revoked)
            each.reasons += [why for why in said if why not in each.reasons]
        until = ACCEPTED.get(str(claims["release"]))
        if until is None or (until and date.fromisoformat(until) < on):
            each.reasons.append(f"certificates of release {claims['release']} are accepted until {until or 'never'}")
        if claims["tier"] == SAMPLE.name:
            each.reasons.append("it is a sample")
        alike = {other.claims["issuer"] for other in found if other.claims and other.key == each.key}
        each.others = sorted(alike - {claims["issuer"]})
    return found


def page(found: list[Entry]) -> str:
    """Return who is certified for what, as Markdown."""
    columns = ("tier", *(NAMES[name] for name in _STACK), "libraries", "issuer", "certificate", "until", "also by")
    holding = sorted((each for each in found if each.claims and not each.reasons), key=lambda each: each.key)
    names = ("issuer", "id", "expires")
    rows = [(*each.key, *(str(each.claims[name]) for name in names), ", ".join(each.others)) for each in holding]
    return f"# Certified stacks\n\n{table(columns, rows) if rows else 'None.'}\n"
