"""The forger: alters genuine logs before and after they are signed, and says by what each certificate is refused.

    python -m tools.evaluation forger RUN...              a line for each forgery of these logs that is not refused
    python -m tools.evaluation forger --share 3 RUN...    a third of the forgeries with each log, another for each
    python -m tools.evaluation forger --rerun 40 RUN      re-executes cases that unseen forgeries alter
    python -m tools.evaluation forger --table RUN...      by what forgeries are refused

RUN is the log of any run on the emulated device, or its folder: whole, merged, continued, or of some cases. Its label
is taken away, and its cases are taken for all of the release. The genuine log must be certified. The forger holds the
issuer's key, and works everything out again that follows from the log. Exit code 1 if a genuine log is refused, a
forgery is certified that is not among those that a log cannot show, or re-execution reveals other ones than it should.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from datetime import date
from pathlib import Path
from unittest import mock

import click

from pytest_ascend.certificate import package, rerun, tiers
from pytest_ascend.certificate.judgement import Refused, certify, disagreements, verify
from pytest_ascend.certificate.package import CertificateError
from pytest_ascend.certificate.release import Release
from pytest_ascend.certificate.requirements import Candidate, refusals
from pytest_ascend.errors import AscendError
from pytest_ascend.records.bounds import moment
from pytest_ascend.runlog.reading import read
from pytest_ascend.verdict.summary import summarise
from tests.unit.certificate import genuine, runs
from tests.unit.certificate.forgeries import AFTER, BEFORE, REVEALED, SAID, UNSEEN, Absent
from tests.unit.certificate.genuine import Log

TIER = "distributed"
NOT_REFUSED = "holds"


def played(genuine_log: Log, scratch: Path, share: slice = slice(None)) -> Iterator[tuple[str, str, str]]:
    """Yield each forgery of a log: when it was made, its name, and by what it was refused; first the genuine log."""
    release = genuine.release_of(genuine_log)
    on = moment(genuine_log["footer"]["finished"]).date()
    with mock.patch.dict(tiers.TIERS, genuine.tiers(genuine_log["header"]["level"])):  # type: ignore[arg-type]
        yield "never", "nothing", refused_by(scratch, genuine.copied(genuine_log), release, on)
        for when, table in {"before signing": BEFORE, "before signing, unseen": UNSEEN}.items():
            for name, change in [*table.items()][share]:
                forged = genuine.copied(genuine_log)
                try:
                    change(forged)
                except Absent:
                    continue
                if when == "before signing" and genuine.copied(forged) == genuine.copied(genuine_log):
                    continue  # the log says so already, as one of level smoke that it is of level smoke
                yield when, name, refused_by(scratch, forged, release, on)
        yield from _after(scratch, genuine.copied(genuine_log), release, on, share)


def revealed(genuine_log: Log, scratch: Path, count: int) -> Iterator[tuple[str, list[str]]]:
    """Execute cases that unseen forgeries alter, ``count`` at most; yield each forgery with what disagrees."""
    forged, altered = dict[str, Log](), dict[str, None]()
    for name, change in UNSEEN.items():
        found = genuine.copied(genuine_log)
        with suppress(Absent):
            change(found)
            forged[name] = found
            pairs = zip(genuine_log["records"], found["records"], strict=True)
            altered |= dict.fromkeys([one["case"]["id"] for one, other in pairs if one != other][:count])
    claimed = summarise(read(genuine.finished(scratch / "run.jsonl", genuine.copied(genuine_log))))
    sampled = [each for each in claimed.results if each.case.id in altered and rerun._place(each)][:count]
    here = rerun._executed(claimed, sampled, "emulated", scratch)
    for name, log in {"nothing": genuine.copied(genuine_log), **forged}.items():
        yield name, disagreements(summarise(read(genuine.finished(scratch / "run.jsonl", log))), here)


def refused_by(scratch: Path, log: Log, release: Release, on: date) -> str:
    """Return what refuses a log: the first requirement, or "the log" if it is none."""
    try:
        summary = summarise(read(genuine.finished(scratch / "run.jsonl", log)))
    except AscendError:
        return "run.jsonl"
    found = refusals(Candidate(summary=summary, tier=tiers.TIERS[TIER], release=release, on=on))
    return found[0].id if found else NOT_REFUSED


def _after(scratch: Path, log: Log, release: Release, on: date, share: slice) -> Iterator[tuple[str, str, str]]:
    """Yield what is done to a certificate: to its statement, and to its files after it was signed."""
    folder, key = scratch / "certificate", runs.KEY
    path = genuine.finished(scratch / "run.jsonl", log)
    try:
        said = certify(path, tiers.TIERS[TIER], release, issuer="A Vendor", key=key, folder=folder, on=on)
    except Refused:
        return
    parts = {name: (folder / name).read_bytes() for name in package.EVIDENCE.values()}
    for name, more in [each for each in SAID.items() if {**said, **each[1]} != said][share]:
        forged = Path(tempfile.mkdtemp(dir=scratch)) / "forged"
        with path.open("rb") as file:
            package.write(forged, {**said, **more}, parts, file, key)
        yield "in the statement", name, _verified(forged, release, on)
    for name, alter in [*AFTER.items()][share]:
        forged = Path(shutil.copytree(folder, Path(tempfile.mkdtemp(dir=scratch)) / "forged"))
        alter(forged)
        yield "after signing", name, _verified(forged, release, on)


def _verified(certificate: Path, release: Release, on: date) -> str:
    from pytest_ascend.certificate.judgement import ended
    from pytest_ascend.environment.compatibility import load

    try:
        found = verify(certificate, runs.KEY.public_key(), release)
        over = list(ended(found.claims, on=on, compatibility=load(), revocations=None))
        return "what it says of its time" if over else NOT_REFUSED
    except CertificateError as error:
        earned = error.message.partition("does not earn the certificate: ")[2]
        return earned.partition(":")[0] or error.part or "the certificate as a whole"
    finally:
        shutil.rmtree(certificate.parent)


@click.command(help=__doc__)
@click.argument("logs", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--share", default=1, show_default=True, help="Each log takes one of so many forgeries.")
@click.option("--rerun", "count", default=0, help="Re-execute so many of the cases that unseen forgeries alter.")
@click.option("--table", is_flag=True, help="Print by what forgeries are refused.")
def main(logs: tuple[Path, ...], share: int, count: int, table: bool) -> None:
    """Play every forgery with each log, or a share of them."""
    is_well, found = True, list[tuple[str, str, str]]()
    for place, log in enumerate(logs):
        path = log / package.LOG if log.is_dir() else log
        given = genuine.as_npu(genuine.parsed(path.read_bytes()))
        with tempfile.TemporaryDirectory(prefix="forger-") as folder:
            (_, _, first), *forged = played(given, Path(folder), slice(place % share, None, share))
        with tempfile.TemporaryDirectory(prefix="forger-") as folder:
            for name, said in revealed(given, Path(folder), count) if count else ():
                is_well = is_well and bool(said) == (name in REVEALED)
                click.echo(f"{log}: re-execution of {name!r}: {said[0] if said else 'agrees'}")
        holding = [name for _, name, by in forged if by == NOT_REFUSED and name not in UNSEEN]
        for name in holding:
            click.echo(f"{log}: HOLDS: {name}")
        refused = sum(by != NOT_REFUSED for *_, by in forged)
        unseen = sum(by == NOT_REFUSED for _, name, by in forged if name in UNSEEN)
        click.echo(f"{log}: the genuine log {first}; {refused} of {len(forged)} forgeries refused, {unseen} unseen")
        is_well = is_well and first == NOT_REFUSED and not holding
        found += forged
    if table:
        click.echo(_table(found))
    sys.exit(not is_well)


def _table(found: list[tuple[str, str, str]]) -> str:
    once = {(when, name): by for when, name, by in found if by != NOT_REFUSED}
    counts = Counter((when, by) for (when, _), by in once.items())
    whens = {when: [f"`{by}` {n}" for (at, by), n in counts.most_common() if at == when] for when, _ in once}
    total = Counter(when for when, _ in once)
    rows = [f"| {when} | {total[when]} | {', '.join(each)} |" for when, each in whens.items()]
    return "\n".join(["| forged | forgeries | refused by |", "|---|---|---|", *rows])
