"""The commands ``certify``, ``verify``, ``revoke`` and ``certificate-key``."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from datetime import date
from functools import partial
from pathlib import Path

import click
from cryptography import x509

from pytest_ascend.certificate import export, judgement, package, revocation, signing, timestamp
from pytest_ascend.certificate.release import installed
from pytest_ascend.certificate.rerun import rerun
from pytest_ascend.certificate.tiers import ALL, SAMPLE, TIERS
from pytest_ascend.certificate.words import words
from pytest_ascend.coverage import expectations
from pytest_ascend.environment.compatibility import BUNDLED, load
from pytest_ascend.runlog.contents import TimeStamped
from pytest_ascend.runlog.reading import LogReader, log_of
from pytest_ascend.system.errors import UsageError, with_type
from pytest_ascend.system.files import write_file
from pytest_ascend.system.text import one_line
from pytest_ascend.system.translation import language_option
from pytest_ascend.verdict.summary import summarise

#: The variable for a key's passphrase: command lines are visible to others.
PASSPHRASE = "PYTEST_ASCEND_PASSPHRASE"  # noqa: S105 (the name of a variable)

#: Number of disagreements of a re-execution that are listed.
_SHOWN = 10

_path = click.Path(path_type=Path)
_file = partial(click.option, type=_path, metavar="FILE")
_key = _file("--key", required=True, help="The private key, in PEM.")
_passphrase = click.option("--passphrase", envvar=PASSPHRASE, default="", hidden=True)


@click.command()
@click.argument("run", type=_path)
@_key
@click.option("--tier", type=click.Choice([*TIERS, SAMPLE.name]), required=True, help="What is to be certified.")
@click.option("--issuer", required=True, help="The issuer's name, as readers know it.", metavar="NAME")
@click.option("-o", "--output", type=_path, help="The folder to write; by default beside the log.", metavar="DIR")
@click.option("--confirms", type=_path, help="A certificate of another issuer that RUN confirms.", metavar="DIR")
@click.option("--confirms-key", type=_path, help="The public key of that issuer.", metavar="FILE")
@_passphrase
def certify(
    *,
    run: Path,
    key: Path,
    tier: str,
    issuer: str,
    output: Path | None,
    confirms: Path | None,
    confirms_key: Path | None,
    passphrase: str,
) -> None:
    """Certify RUN, a run log or its folder, and sign the certificate.

    With --confirms, RUN is your own run on the stack of another issuer's certificate: if both agree case by case, the
    new certificate lists both issuers. Exit code 1, with all reasons, if the run does not earn the certificate.
    """
    if bool(confirms) != bool(confirms_key):
        hint = "give the public key of the other issuer"
        raise UsageError("--confirms and --confirms-key belong together", hint=hint)
    if not issuer.strip():
        raise UsageError("--issuer is empty", hint="give the name by which readers know you")
    log = log_of(run)
    to = output or log.with_name(f"certificate-{tier}")
    theirs = (confirms, signing.public_key(confirms_key)) if confirms and confirms_key else None
    signer, today = signing.private_key(key, passphrase), expectations.today()
    issued = judgement.certify(
        log, ALL[tier], installed(), issuer=issuer, key=signer, folder=to, on=today, confirms=theirs
    )
    click.echo(f"certificate {issued['id']}: {to}")
    until = f"tier {tier}, holds until {issued['expires']}"
    click.echo(f"{until}; publish the folder as it is, and the public key elsewhere")


@click.command()
@click.argument("certificate", type=_path)
@_file(
    "--key", "keys", multiple=True, required=True, help="The issuer's public key, in PEM; again for a second issuer."
)
@_file("--revocations", help="The issuer's signed list of revocations.")
@_file("--compatibility", default=BUNDLED, help="Newer compatibility data.")
@_file("--authority", help="The root certificate of the time-stamp authority, in PEM.")
@click.option("--on", "day", help="The day to judge by; today if not given.", metavar="YYYY-MM-DD")
@click.option("--rerun", "count", type=click.IntRange(1, 100_000), help="Number of cases to execute here.", metavar="N")
@language_option
@click.option("--rerun-device", default="auto", show_default=True, help="Where: as --ascend-device.", metavar="DEVICE")
def verify(
    *,
    certificate: Path,
    keys: tuple[Path, ...],
    revocations: Path | None,
    compatibility: Path,
    authority: Path | None,
    day: str | None,
    count: int | None,
    rerun_device: str,
    language: str,
) -> None:
    """Check the folder CERTIFICATE: every byte, the run behind it, and whether it is still valid.

    Needs no network and no device, only the issuer's public key and the release that made it. With --rerun, that many
    random cases of the run are executed again on an NPU of the same chip. Exit code 0 if it is valid, 1 if not.
    """
    try:
        on = date.fromisoformat(day) if day else expectations.today()
    except ValueError as error:
        raise UsageError(f"--on={day} is no day", hint="write it as in 2026-12-31") from error
    public = [signing.public_key(each) for each in keys]
    issuer = next((each for each in public if signing.fingerprint(each) == package.signer(certificate)), public[0])
    roots = timestamp.roots_of(authority) if authority else ()
    known = revocation.read(revocations, issuer) if revocations else None
    found = judgement.verify(certificate, issuer, installed(), others=public)
    click.echo(words(found.claims, language), nl=False)
    click.echo("")
    reasons = list(judgement.ended(found.claims, on=on, compatibility=load(compatibility), revocations=known))
    reasons += _stamps_that_do_not_hold(found, roots)
    reasons += _rerun(found, count, rerun_device) if count and not reasons else ()
    for each in reasons:
        click.secho(f"DOES NOT HOLD: {each}", fg="red", bold=True)
    click.echo(f"revocations: {f'as of {known.as_of}' if known else 'not checked; give --revocations FILE'}")
    if found.claims["time_stamps"] and not roots:
        click.echo("time-stamps: not checked; give the root certificate of the authority, --authority FILE")
    if not count:
        click.echo("re-execution: none; on an NPU of the same chip, --rerun 200 executes 200 cases of the run again")
    if not reasons:
        click.secho("HOLDS: every byte is what was signed.", fg="green", bold=True)
        click.secho("If the log is true, the run earns the tier.", bold=True)
    sys.exit(1 if reasons else 0)


def _stamps_that_do_not_hold(found: judgement.Verified, roots: Sequence[x509.Certificate]) -> Iterator[str]:
    """Yield why time-stamps of the log are not from the authority with these roots; nothing without roots."""
    stamps = [each for each in found.summary.run.events if isinstance(each, TimeStamped) and each.answer]
    if roots and not stamps:
        yield "the log has no time-stamp that the authority could have given"
    try:
        for each in stamps if roots else ():
            timestamp.check(each.answer, each.digest, roots)
    except timestamp.TimestampError as error:
        yield error.message


def _rerun(found: judgement.Verified, count: int, device: str) -> Iterator[str]:
    done = rerun(found.summary, count, device=device)
    where = f"{done.stack.chip or done.stack.device}, CANN {done.stack.cann}, driver {done.stack.driver or 'unknown'}"
    never = f" ({done.never:,} more cannot be executed again)" if done.never else ""
    click.echo(f"re-execution: {done.executed:,} of {done.of:,} cases{never}, sampled at random, on {one_line(where)}")
    if done.stack.emulated:
        click.secho("THIS IS THE EMULATED DEVICE: what it computes says nothing about the chip.", bold=True)
    elif done.stack.device != "npu":
        click.secho("THIS IS NO NPU: only inputs and the number of compared elements were computed again.", bold=True)
    shown = done.disagreements[:_SHOWN]
    yield from (f"executed again, {each}" for each in shown)
    if len(done.disagreements) > len(shown):
        yield f"executed again, {len(done.disagreements) - len(shown):,} more cases disagree"
    if not done.disagreements:
        click.echo("re-execution: what must be equal is, and what is judged agrees")


@click.command()
@click.argument("certificate_id", required=False, default="")
@click.option("--release", default="", help="Withdraw every certificate of this release instead.", metavar="VERSION")
@_key
@click.option("--reason", required=True, help="Why it is revoked; everybody can read this.")
@_file("--list", "path", required=True, help="The list to create or extend.")
@click.option(
    "--fresh-days",
    type=click.IntRange(1, 3660),
    default=revocation.FRESH_DAYS,
    show_default=True,
    help="Days for which the list is valid.",
)
@_passphrase
def revoke(
    *, certificate_id: str, release: str, key: Path, reason: str, path: Path, fresh_days: int, passphrase: str
) -> None:
    """Add the certificate with the number CERTIFICATE_ID to the issuer's list of revocations, and sign the list."""
    if bool(certificate_id) == bool(release):
        raise UsageError("nothing to revoke, or two things", hint="give the number of a certificate, or --release")
    if certificate_id and (len(certificate_id) != 32 or set(certificate_id) - set("0123456789abcdef")):
        raise UsageError(f"{certificate_id!r} is not a certificate number", hint="it has 32 hexadecimal digits")
    signer, on = signing.private_key(key, passphrase), expectations.today()
    name = certificate_id or revocation.of_release(release)
    count = revocation.add(path, name, reason, signer, on=on, fresh_days=fresh_days)
    click.echo(f"{path}: {count} revoked; publish it where the public key is")


@click.command("certificate-export")
@click.argument("certificate", type=_path)
@click.option("--format", "form", type=click.Choice(["in-toto", "xlsx"]), required=True, help="Output format.")
@_file("-o", "--output", required=True, help="The file to write.")
@_file("--key", required=True, help="For in-toto the issuer's private key, which signs; for xlsx the public one.")
@_passphrase
def certificate_export(*, certificate: Path, form: str, output: Path, key: Path, passphrase: str) -> None:
    """Write CERTIFICATE for other tools: as an in-toto statement in a DSSE envelope, or as an Excel workbook.

    Verifies it with the issuer's key first.
    """
    private = signing.private_key(key, passphrase) if form == "in-toto" else None
    with package.opened(certificate, private.public_key() if private else signing.public_key(key)) as found:
        found.log.seek(0)
        summary = summarise(LogReader(Path(package.LOG), found.log).run())
        claims = found.claims
        kinds = (LookupError, TypeError, AttributeError, ValueError)  # the signer may omit anything
        message, why = f"{package.STATEMENT} is none of this release", lambda error: one_line(with_type(error))
        with package.refused(message, package.STATEMENT, *kinds, why=why):
            content = export.in_toto(claims, summary, private) if private else export.workbook(claims, summary)
    write_file(output, content)
    click.echo(f"{form}: {output}")


@click.command("certificate-key")
@click.argument("private", type=_path)
@_passphrase
def certificate_key(*, private: Path, passphrase: str) -> None:
    """Generate a pair of keys: PRIVATE, to be kept secret, and PRIVATE.pub, to be published."""
    public = signing.make_keys(private, passphrase)
    click.echo(f"private key: {private} ({'encrypted' if passphrase else f'not encrypted; {PASSPHRASE} would'})")
    click.echo(f"public key:  {private}.pub")
    click.echo(f"fingerprint: {signing.fingerprint(public)}")
