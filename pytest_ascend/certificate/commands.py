"""The commands ``certify``, ``verify``, ``revoke`` and ``certificate-key``."""

from __future__ import annotations

import sys
from datetime import date
from pathlib import Path

import click

from pytest_ascend.certificate import package, revocation, signing, statement
from pytest_ascend.certificate.judgement import Issue, ended
from pytest_ascend.certificate.judgement import certify as make
from pytest_ascend.certificate.judgement import verify as check
from pytest_ascend.certificate.release import installed
from pytest_ascend.certificate.tiers import TIERS
from pytest_ascend.certificate.words import words
from pytest_ascend.environment.compatibility import BUNDLED, load
from pytest_ascend.errors import UsageError

#: Where the passphrase of a key is taken from: nothing secret belongs on a command line, which others can see.
PASSPHRASE = "PYTEST_ASCEND_PASSPHRASE"  # noqa: S105 (the name of a variable)

_path = click.Path(path_type=Path)
_key = click.option("--key", type=_path, required=True, help="The private key, in PEM.", metavar="FILE")
_passphrase = click.option("--passphrase", envvar=PASSPHRASE, default="", hidden=True)


@click.command()
@click.argument("run", type=_path)
@_key
@click.option("--tier", type=click.Choice(list(TIERS)), required=True, help="What is to be certified.")
@click.option("--issuer", required=True, help="Who certifies, as readers know them.", metavar="NAME")
@click.option("-o", "--output", type=_path, help="The folder to write; by default beside the log.", metavar="DIR")
@_passphrase
def certify(*, run: Path, key: Path, tier: str, issuer: str, output: Path | None, passphrase: str) -> None:
    """Certify RUN, a run log or the folder that holds one, and sign the certificate.

    Exit code 1, with all reasons, where the run does not earn it.
    """
    log = run / package.LOG if run.is_dir() else run
    folder = output or log.with_name(f"certificate-{tier}")
    issue = Issue(log=log, tier=TIERS[tier], issuer=issuer, key=signing.private_key(key, passphrase), folder=folder)
    said = make(issue, installed(), on=statement.today())
    click.echo(f"certificate {said['id']}: {folder}")
    click.echo(f"tier {tier}, holds until {said['expires']}; publish the folder as it is, and the public key elsewhere")


@click.command()
@click.argument("certificate", type=_path)
@click.option("--key", type=_path, required=True, help="The issuer's public key, in PEM.", metavar="FILE")
@click.option("--revocations", type=_path, help="The issuer's signed list of revocations.", metavar="FILE")
@click.option("--compatibility", type=_path, default=BUNDLED, help="Newer compatibility data.", metavar="FILE")
@click.option("--on", "day", help="The day to judge by; today if not given.", metavar="YYYY-MM-DD")
def verify(*, certificate: Path, key: Path, revocations: Path | None, compatibility: Path, day: str | None) -> None:
    """Check CERTIFICATE, the folder of one: every byte, the run behind it, and whether it still holds.

    Needs no network and no device, only the issuer's public key and the release that made it. Exit code 0 where it
    holds, 1 where it does not.
    """
    public = signing.public_key(key)
    known = revocation.read(revocations, public) if revocations else None
    found = check(certificate, public, installed())
    click.echo(words(found.said), nl=False)
    reasons = list(ended(found.said, on=_day(day), compatibility=load(compatibility), revocations=known))
    click.echo("")
    for each in reasons:
        click.secho(f"DOES NOT HOLD: {each}", fg="red", bold=True)
    click.echo(f"revocations: {f'as of {known.as_of}' if known else 'not looked at; give --revocations FILE'}")
    if not reasons:
        click.secho("HOLDS: every byte is what was signed.", fg="green", bold=True)
        click.secho("If the log is true, the run earns the tier.", bold=True)
    sys.exit(1 if reasons else 0)


@click.command()
@click.argument("certificate_id", required=False, default="")
@click.option("--release", default="", help="Withdraw every certificate of this release instead.", metavar="VERSION")
@_key
@click.option("--reason", required=True, help="Why it holds no more, for everybody to read.")
@click.option("--list", "path", type=_path, required=True, help="The list to begin, or to add to.", metavar="FILE")
@click.option(
    "--fresh-days",
    type=click.IntRange(1, 3660),
    default=revocation.FRESH_DAYS,
    show_default=True,
    help="How long the list is relied on.",
)
@_passphrase
def revoke(
    *, certificate_id: str, release: str, key: Path, reason: str, path: Path, fresh_days: int, passphrase: str
) -> None:
    """Put the certificate with the number CERTIFICATE_ID on the issuer's list of revocations, and sign the list."""
    if bool(certificate_id) == bool(release):
        raise UsageError("nothing to revoke, or two things", hint="give the number of a certificate, or --release")
    if certificate_id and (len(certificate_id) != 32 or set(certificate_id) - set("0123456789abcdef")):
        raise UsageError(f"{certificate_id!r} is no number of a certificate", hint="it has 32 hexadecimal digits")
    signer, on = signing.private_key(key, passphrase), statement.today()
    name = certificate_id or revocation.of_release(release)
    count = revocation.add(path, name, reason, signer, on=on, fresh_days=fresh_days)
    click.echo(f"{path}: {count} revoked; publish it where the public key is")


@click.command("certificate-key")
@click.argument("private", type=_path)
@_passphrase
def certificate_key(*, private: Path, passphrase: str) -> None:
    """Make a pair of keys: PRIVATE, to be kept, and PRIVATE.pub, to be published."""
    public = signing.make_keys(private, passphrase)
    click.echo(f"private key: {private} ({'encrypted' if passphrase else f'not encrypted; {PASSPHRASE} would'})")
    click.echo(f"public key:  {signing.public_path(private)}")
    click.echo(f"fingerprint: {signing.fingerprint(public)}")


def _day(text: str | None) -> date:
    try:
        return date.fromisoformat(text) if text else statement.today()
    except ValueError as error:
        raise UsageError(f"--on={text} is no day", hint="write it as in 2026-12-31") from error
