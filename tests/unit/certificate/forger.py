"""The forger: alters a run before and after it is signed, and tells by what each certificate is refused.

    python -m tools.evaluation forger            a line for each forgery that is not refused
    python -m tools.evaluation forger --table    the table in docs/certification.md

The forger holds the issuer's key, and works everything out again that follows from the log: the statement, its words,
the hashes. Exit code 1 where a forgery holds that is not among those which nobody can tell from the truth by the log.
"""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import click
from msgspec import to_builtins

from pytest_ascend.certificate import package
from pytest_ascend.certificate.judgement import ended, verify
from pytest_ascend.certificate.package import CertificateError
from pytest_ascend.certificate.requirements import Candidate
from pytest_ascend.certificate.statement import statement
from pytest_ascend.certificate.tiers import TIERS
from pytest_ascend.certificate.words import words
from pytest_ascend.environment.compatibility import load
from pytest_ascend.errors import AscendError
from pytest_ascend.runlog.reading import read
from pytest_ascend.verdict.summary import summarise
from tests.unit.certificate import runs
from tests.unit.certificate.forgeries import AFTER, BEFORE, SAID, UNSEEN, Change, parsed, written

#: A run with a waiver and with a case that the CPU computed.
FATES = runs.ended(5, "fallback") | runs.ended(7, "waived", waiver=runs.WAIVER)
RELEASE = runs.release_for(FATES)
#: What is left to whoever reads the log, and who is not the issuer.
NOT_REFUSED = "holds"


def signed_from(folder: Path, genuine: Path, change: Change) -> Path:
    """Sign a log that was altered, with a statement worked out of it as far as it goes."""
    log = parsed((genuine / package.LOG).read_bytes())
    change(log)
    path = folder / "run.jsonl"
    path.write_bytes(written(log))
    for _ in range(2):  # the footer that these records give; the second one does not contradict the first
        with contextlib.suppress(AscendError, KeyError):
            log["footer"] = {**log["footer"], **to_builtins(summarise(read(path)).footer(log["footer"]["finished"]))}
            path.write_bytes(written(log) if not log.get("keeps_footer") else path.read_bytes())
    said = json.loads((genuine / package.STATEMENT).read_text(encoding="utf-8"))
    try:
        tier = TIERS[said["tier"]]
        subject = Candidate(summary=summarise(read(path)), tier=tier, release=RELEASE, on=runs.ISSUED)
        again = json.loads(package.encoded(statement(subject, issuer=said["issuer"], key=said["key"])))
        said = again if words({**again, "id": ""}) else said
    except (AscendError, KeyError, TypeError, ValueError, AttributeError):
        pass  # the statement of the genuine run, then
    return _written(folder, genuine, said, path.read_bytes())


def _written(folder: Path, genuine: Path, said: dict[str, object], log: bytes) -> Path:
    parts = {name: (genuine / name).read_bytes() for name in package.EVIDENCE.values()}
    package.write(folder / "forged", said, parts, io.BytesIO(log), runs.KEY)
    return folder / "forged"


def refused_by(certificate: Path) -> str:
    """Return what refuses a certificate: the first requirement, or the part of it that is wrong."""
    try:
        found = verify(certificate, runs.KEY.public_key(), RELEASE)
        over = list(ended(found.claims, on=runs.ISSUED, compatibility=load(), revocations=None))
        return "what it says of its time" if over else NOT_REFUSED
    except CertificateError as error:
        earned = error.message.partition("does not earn the certificate: ")[2]
        return earned.partition(":")[0] or error.part or "the certificate as a whole"


def played(genuine: Path, scratch: Path) -> Iterator[tuple[str, str, str]]:
    """Yield each forgery: when it was made, its name, and by what it was refused."""
    kinds = {"before signing": BEFORE, "before signing, unseen": UNSEEN}
    for when, table in kinds.items():
        for name, change in table.items():
            yield when, name, refused_by(signed_from(_fresh(scratch), genuine, change))
    said = json.loads((genuine / package.STATEMENT).read_text(encoding="utf-8"))
    log = (genuine / package.LOG).read_bytes()
    for name, more in SAID.items():
        yield "in the statement", name, refused_by(_written(_fresh(scratch), genuine, {**said, **more}, log))
    for name, alter in AFTER.items():
        forged = Path(shutil.copytree(genuine, _fresh(scratch) / "forged"))
        alter(forged)
        yield "after signing", name, refused_by(forged)


def _fresh(scratch: Path) -> Path:
    return Path(tempfile.mkdtemp(dir=scratch))


@click.command(help=__doc__)
@click.option("--table", is_flag=True, help="Print the table of docs/certification.md.")
def main(table: bool) -> None:
    """Play every forgery once."""
    with tempfile.TemporaryDirectory(prefix="forger-") as folder:
        genuine = runs.certificate(Path(folder), "performance", FATES)
        if refused_by(genuine) != NOT_REFUSED:
            raise SystemExit("the genuine certificate is refused")
        found = list(played(genuine, Path(folder)))
    holding = [name for when, name, by in found if by == NOT_REFUSED and name not in UNSEEN]
    if table:
        click.echo(_table(found))
    for name in holding:
        click.echo(f"HOLDS: {name}")
    refused = sum(by != NOT_REFUSED for *_, by in found)
    click.echo(f"{refused} of {len(found)} forgeries refused by name; {len(UNSEEN)} cannot be told from the truth")
    sys.exit(bool(holding))


def _table(found: list[tuple[str, str, str]]) -> str:
    counts = Counter((when, by) for when, _, by in found if by != NOT_REFUSED)
    rows = [f"| {when} | `{by}` | {count} |" for (when, by), count in sorted(counts.items())]
    return "\n".join(["| forged | refused by | forgeries |", "|---|---|---|", *rows])
