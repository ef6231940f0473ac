"""The command ``pytest-ascend doctor``."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import click
from rich.cells import cell_len
from rich.console import Console, Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from pytest_ascend.doctor.examination import examine
from pytest_ascend.doctor.findings import ERROR, NOTE, SEVERITIES, UNKNOWN, WARNING, Diagnosis
from pytest_ascend.environment.compatibility import BUNDLED, load
from pytest_ascend.environment.evidence import COMMIT, LIBRARIES
from pytest_ascend.environment.machine import NPU_SMI_LIMIT_S, Machine, copied_machine, this_machine
from pytest_ascend.system.errors import UsageError, as_error
from pytest_ascend.system.files import read_regular
from pytest_ascend.system.text import one_line
from pytest_ascend.system.translation import ENGLISH, language_option, translated

_STYLES = {ERROR: "bold red", WARNING: "yellow", NOTE: "cyan", UNKNOWN: "magenta"}
_PLURALS = {ERROR: "errors", WARNING: "warnings", NOTE: "notes", UNKNOWN: "unknown"}
#: Longest version or place that is shown in full; --json has all.
_WIDEST = 32


def show(console: Console, diagnosis: Diagnosis, language: str = ENGLISH) -> None:
    """Print a diagnosis."""
    say = partial(translated, language=language)
    console.print(Text(say(f"pytest-ascend doctor: {diagnosis.machine}"), style="bold"))
    console.print()
    console.print(_stack(diagnosis, say))
    unknown = [str(each["name"]) for each in diagnosis.components if not each["version"]]
    missing = [name for name in unknown if name not in LIBRARIES]
    if missing:
        console.print(Text(say(f"not found: {', '.join(missing)}")), soft_wrap=False)
    for finding in diagnosis.findings:
        console.print()
        head = Text.assemble(
            (say(finding.severity.upper()) + "  ", _STYLES[finding.severity]),
            (say(finding.what), "bold"),
            (f"  [{finding.id}]", "dim"),
        )
        table = Table.grid(padding=(0, 2, 0, 0))
        table.add_column(style="dim", no_wrap=True)
        table.add_column(overflow="fold")
        seen = [("seen" if index == 0 else "", each) for index, each in enumerate(finding.evidence)]
        for name, text in (*seen, ("why", finding.why), ("do", finding.remedy)):
            table.add_row(say(name), Text(text if name == "seen" else say(text)))
        console.print(Group(head, Padding(table, (0, 0, 0, 2))))
    console.print()
    console.print(Text(say(closing(diagnosis)), style="bold"))


def closing(diagnosis: Diagnosis) -> str:
    """Return a sentence with the number of findings and the compatibility data used."""
    counts = Counter(finding.severity for finding in diagnosis.findings)
    counted = [f"{n} {each if n == 1 else _PLURALS[each]}" for each in SEVERITIES if (n := counts[each])]
    return f"{', '.join(counted) or 'nothing wrong was found'}. Judged by {diagnosis.judged_by}."


def _stack(diagnosis: Diagnosis, say: Callable[[str], str]) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    rows = []
    for each in diagnosis.components:
        if version := one_line(str(each["version"])):
            shown = version[: 12 if each["name"] == COMMIT else _WIDEST]
            # The best source of a version, and how many others agree and disagree.
            evidence, differing, sources = each["evidence"], each["disagreeing"], Text()
            if differing:
                sources.append(say(f"{len(differing)} disagree") + "  ", style="bold yellow")
            source = one_line(evidence[0]["source"])
            # The end of a long path is more informative than its beginning.
            sources.append(source if len(source) <= _WIDEST else f".../{'/'.join(source.rsplit('/', 2)[-2:])}")
            if agreeing := len(evidence) - len(differing) - 1:
                sources.append(say(f" and {agreeing} more"))
            rows.append((say(str(each["name"])), shown, sources))
    # On a narrow terminal the places are shortened.
    table.add_column(no_wrap=True, min_width=max((cell_len(name) for name, _, _ in rows), default=0))
    table.add_column(style="bold", no_wrap=True, min_width=max((len(version) for _, version, _ in rows), default=0))
    table.add_column(style="dim", no_wrap=True, overflow="ellipsis")
    for name, version, sources in rows:
        table.add_row(Text(name), Text(version), sources)
    if diagnosis.devices:
        healths = Counter(str(each["health"]) for each in diagnosis.devices)
        counted = ", ".join(f"{count} {health}" for health, count in healths.items())
        table.add_row(say("devices"), str(len(diagnosis.devices)), Text(say(f"health: {counted}")))
    return table


_path = click.Path(path_type=Path)


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON and nothing else.")
@language_option
@click.option("--root", type=_path, help="Look at the files below DIR: a mounted image, or a copy.", metavar="DIR")
@click.option("--environ", type=_path, help="With --root: its variables, as `env` prints them.", metavar="FILE")
@click.option("--npu-smi", type=_path, help="With --root: what `npu-smi info` printed there.", metavar="FILE")
@click.option("--compatibility", type=_path, default=BUNDLED, help="Newer compatibility data.", metavar="FILE")
@click.option(
    "--wait", "wait_s", type=float, default=NPU_SMI_LIMIT_S, help="Time limit of npu-smi in seconds.", show_default=True
)
def doctor(
    *,
    as_json: bool,
    language: str,
    root: Path | None,
    environ: Path | None,
    npu_smi: Path | None,
    compatibility: Path,
    wait_s: float,
) -> None:
    """Show what is installed, whether the versions match, and why an NPU does not work.

    Takes less than two seconds, imports no torch and changes nothing. Exit code 1 if something keeps the NPU from
    working or its results from being trusted, 0 otherwise: warnings and notes alone are not failures.
    """
    diagnosis = examine(_machine(root, environ, npu_smi, wait_s), load(compatibility))
    if as_json:
        click.echo(json.dumps(diagnosis.to_dict(), indent=1))
    else:
        show(Console(highlight=False, soft_wrap=False), diagnosis, language)
    sys.exit(1 if diagnosis.errors else 0)


def _machine(root: Path | None, environ: Path | None, npu_smi: Path | None, wait_s: float) -> Machine:
    if root is None:
        if environ or npu_smi:
            name = "--environ" if environ else "--npu-smi"
            raise UsageError(f"{name} goes with --root", hint="without --root, the doctor looks at this machine itself")
        return this_machine(limit_s=min(max(0.0, wait_s), 3600.0))
    if not root.is_dir():
        raise UsageError(
            f"--root={root} is not a folder", hint="give the folder that stands for / of the other machine"
        )
    variables = dict(line.split("=", 1) for line in _text(environ).splitlines() if "=" in line) if environ else {}
    return copied_machine(root, variables, _text(npu_smi) if npu_smi else None)


def _text(path: Path) -> str:
    with as_error(f"cannot read {path}", "give a text file"):
        return read_regular(path, 1 << 20).decode("utf-8", errors="replace")
