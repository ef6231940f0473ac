"""Genuine logs of every chip and kind: each must be certified once the label of the emulated device is taken away.

    python -m tools.evaluation genuine FOLDER                         level smoke on each chip, whole
    python -m tools.evaluation genuine FOLDER --level standard --chip 310P
    python -m tools.evaluation genuine FOLDER --kinds                 a few cases: sharded, continued, distributed, ...

A run of FOLDER/NAME that is there already is not made again. Each certificate is verified after it was signed. Exit
code 1 if a log of a whole run is refused, or one that earns nothing is not refused for the reasons that it must be.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import click

from pytest_ascend.certificate import tiers
from pytest_ascend.certificate.judgement import Refused, certify, verify
from pytest_ascend.certificate.package import CertificateError
from pytest_ascend.records.bounds import moment
from pytest_ascend.runlog.reading import read
from pytest_ascend.verdict import merge
from tools.evaluation.support import run_suite, table

from . import genuine, runs

CHIPS = ("910B1", "910_93", "310P", "950")
TIER = "distributed"


def _run(report: Path, *options: str) -> Path:
    run_suite(report, *options)
    return report / "run.jsonl"


def _some(report: Path, *options: str) -> Path:
    """Run cases that pass, and one that the release waives, of several suites at level smoke."""
    return _run(report, "--ascend-level=smoke", "--ascend-suite=environment,random,errors", *options)


def _part(report: Path) -> Path:
    return _some(report, "--ascend-shard=1/2")


def _merged(report: Path) -> Path:
    parts = [_some(report / f"part-{each}", f"--ascend-shard={each}/2") for each in (1, 2)]
    merge.merge([read(each) for each in parts], report / "run.jsonl")
    return report / "run.jsonl"


def _continued(report: Path) -> Path:
    log = _some(report, "-n2")
    log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:-9]))  # as a kill leaves it
    return _some(report, "-n1", "--ascend-resume")


@dataclass(frozen=True)
class Kind:
    """How a log is made, and by which requirements it is refused; without any, it is certified."""

    make: Callable[[Path], Path]
    refused_by: frozenset[str] = frozenset()
    keeps_selection: bool = False


KINDS: Mapping[str, Kind] = {
    "whole": Kind(_some),
    "merged of two shards": Kind(_merged),
    "one shard": Kind(_part, frozenset({"header"})),
    "continued on fewer cards": Kind(_continued),
    "challenged": Kind(
        lambda report: _run(
            report, "--ascend-level=smoke", "--ascend-certify=challenge=20261126", "--ascend-suite=ops",
            "-k=softmax and float32",
        )
    ),
    "with a selection (-k)": Kind(
        lambda report: _some(report, "-k=uniform or environment"), frozenset({"subset"}), keeps_selection=True
    ),
    "exploring": Kind(
        lambda report: _run(report, "--ascend-explore=10s"),
        frozenset({"subset", "options", "records"}),
        keeps_selection=True,
    ),
    "distributed": Kind(
        lambda report: _run(report, "--ascend-level=smoke", "--ascend-suite=distributed", "--ascend-ranks=2")
    ),
    "of other numerics": Kind(lambda report: _some(report, "--ascend-emulate=numerics=chip:7")),
}  # fmt: skip


def asked(path: Path, *, keeps_selection: bool = False) -> tuple[genuine.Log, dict[str, str]]:
    """Ask for a certificate for a log without its label; return the log, and the reasons by requirement."""
    log = genuine.as_npu(genuine.parsed(path.read_bytes()))
    selection = log["header"]["selection"]
    release, on = genuine.release_of(log), moment(log["footer"]["finished"]).date()
    if keeps_selection:
        log["header"]["selection"] = selection
    with (
        tempfile.TemporaryDirectory(prefix="genuine-") as scratch,
        mock.patch.dict(tiers.TIERS, genuine.tiers(log["header"]["level"])),  # type: ignore[arg-type]
    ):
        path, folder = genuine.finished(Path(scratch, "run.jsonl"), log), Path(scratch, "certificate")
        try:
            certify(path, tiers.TIERS[TIER], release, issuer="A test", key=runs.KEY, folder=folder, on=on)
            verify(folder, runs.KEY.public_key(), release)
        except Refused as error:
            return log, {each.id: each.says for each in error.refusals}
        except CertificateError as error:
            return log, {error.part or "certificate": error.message}
    return log, {}


@click.command(help=__doc__)
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--level", default="smoke", show_default=True)
@click.option("--chip", "chips", multiple=True, default=CHIPS, show_default=True, help="Repeatable.")
@click.option("--kinds", is_flag=True, help="A few cases of each kind of log in place of whole runs.")
def main(folder: Path, level: str, chips: tuple[str, ...], kinds: bool) -> None:
    """Make the logs that are not there, ask for a certificate for each, and print a row of Markdown."""
    made = dict(KINDS) if kinds else {}
    for chip in () if kinds else chips:
        made[f"{chip}, level {level}"] = Kind(
            lambda report, chip=chip: _run(report, f"--ascend-level={level}", f"--ascend-emulate=chip={chip}")  # type: ignore[misc]
        )
    rows, is_well = [], True
    for name, kind in made.items():
        report = folder / "".join(each if each.isalnum() else "-" for each in name)
        path = report / "run.jsonl" if (report / "run.jsonl").exists() else kind.make(report)
        log, found = asked(path, keeps_selection=kind.keeps_selection)
        is_well = is_well and kind.refused_by == set(found)
        counts = log["footer"]["counts"]
        said = (
            f"refused, as it must be: {', '.join(sorted(found))}"
            if kind.refused_by == set(found)
            else f"REFUSED: {found}"
        )
        rows.append((name, f"{len(log['records']):,}", counts.get("waived", 0), said if found else "certified"))
    click.echo("\n".join(table(("log", "cases", "waived", "result"), rows)))
    sys.exit(not is_well)
