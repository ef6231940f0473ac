"""``pytest-ascend add-findings``: turn findings of exploration into cases of the suites."""

from __future__ import annotations

from pathlib import Path

import click

from pytest_ascend.coverage import manifest
from pytest_ascend.operators import exploring
from pytest_ascend.system.bundled import folder
from pytest_ascend.system.errors import UsageError


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
def add(files: tuple[Path, ...]) -> None:
    """Add findings of --ascend-explore to the suites, as permanent cases.

    FILES are findings in ascend-report/findings. Each operator and dtype with a finding gets a case
    ops/OPERATOR/found/DTYPE; the manifest is frozen again.
    """
    suites = folder("suites")
    findings = [exploring.read(each) for each in files]
    known = {(case.subject, case.dtype) for case in manifest.load(suites) if case.property == "sweep"}
    for path, finding in zip(files, findings, strict=True):
        if (finding.operator, finding.dtype) not in known:
            message = f"{path}: this release has no generated calls of {finding.operator} in {finding.dtype}"
            raise UsageError(message, hint="keep it with the release that found it")
    new = exploring.add(suites / "ops" / exploring.KEPT, findings)
    cases = manifest.collect(suites)
    manifest.write(suites, cases)
    click.echo(f"{len(new)} of {len(findings)} findings are new; {len(cases)} cases in {suites / manifest.NAME}")
