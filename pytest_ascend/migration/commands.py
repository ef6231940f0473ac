"""The command ``pytest-ascend census``, and ``census diff``."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Column, Table

from pytest_ascend.environment.chips import npu_of
from pytest_ascend.migration.census import NAMESPACES, bring_up, encode, on_chip, read, take
from pytest_ascend.records.census import KINDS, PARTS, SCHEMA, Census, compare
from pytest_ascend.system.errors import UsageError
from pytest_ascend.system.files import canonical_json, write_file

SCOPE = (
    "Read from torch's dispatcher; nothing was computed. It is true of this torch_npu on any chip and CANN. "
    "Only a run shows whether CANN has the functions that a kernel calls, and the chip the dtype: pytest --ascend"
)
EMULATED = "torch_npu was imported on the EMULATED CANN, which makes no difference to what it registers."

_as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON and nothing else.")
_file = click.Path(path_type=Path)


@click.group(invoke_without_command=True)
@_as_json
@click.option("-o", "--output", type=_file, help="Write the census as JSON into this file.")
@click.option("--show", multiple=True, type=click.Choice(list(KINDS)), help="Name the operators of a kind. Repeatable.")
@click.option("--emulated", is_flag=True, help="Import torch_npu on the emulated CANN, whatever is on this machine.")
@click.option("--chip", help="Also show CANN's documented objections to native operators on a chip.")
@click.pass_context
def census(
    ctx: click.Context, *, as_json: bool, output: Path | None, show: tuple[str, ...], emulated: bool, chip: str | None
) -> None:
    """Show what computes each operator of the installed torch_npu: the NPU, other operators, the CPU, or nothing.

    Takes seconds and uses no device.
    """
    if ctx.invoked_subcommand:
        # Options before a subcommand's name have no effect.
        given = [name for name, value in ctx.params.items() if value]
        if given:
            message = f"--{given[0].removeprefix('as_')} has no effect before {ctx.invoked_subcommand}"
            raise UsageError(message, hint="put options after the name of the command")
        return
    if as_json and show:
        raise UsageError("--json and --show exclude each other", hint="the JSON names every operator with its kind")
    wanted_chip = npu_of(chip) if chip else None
    on_emulated = bring_up(emulated=emulated)
    taken = take()
    documentation = on_chip(taken, wanted_chip) if wanted_chip else None
    if output:
        write_file(output, encode(taken, documentation))
    if as_json:
        click.echo(encode(taken, documentation), nl=False)
        return
    objected = documentation["objections"] if documentation else {}
    for kind in [kind for kind in KINDS if kind in show]:
        names = [name for name, its in taken.operators.items() if its == kind]
        lines = (f"{name}  {'; '.join(objected[name])}" if name in objected else name for name in names)
        click.echo("\n".join([*lines, f"{len(names):,} {kind}", ""]))
    console = Console(highlight=False)
    console.print(_versions(taken), markup=False)
    counts = taken.counts()
    totals = {name: f"{sum(counts[name, kind] for kind in KINDS):,}" for name in NAMESPACES}
    columns = [Column(f"{name}::", total, justify="right") for name, total in totals.items()]
    table = Table(Column("kind", "all"), *columns, "what it means", show_footer=True)
    for kind, meaning in KINDS.items():
        table.add_row(kind, *(f"{counts[name, kind]:,}" for name in NAMESPACES), meaning)
    console.print(table)
    if documentation:
        console.print(_on_chip(documentation), markup=False)
    console.print(SCOPE, markup=False)
    if on_emulated:
        console.print(EMULATED, markup=False)
    if output:
        click.echo(f"census: {output}")


@census.command()
@click.argument("old", type=_file)
@click.argument("new", type=_file)
@_as_json
def diff(old: Path, new: Path, as_json: bool) -> None:
    """Show what was gained and lost from the census OLD to the census NEW.

    An operator is lost if OLD does not leave it to the CPU, and NEW does, or lacks it; operators that torch itself
    removed are listed separately. torch_npu's own operators come first. Exit code 1 if anything was lost.
    """
    before, after = read(old), read(new)
    difference = compare(before, after)
    if as_json:
        parts = {part: {name: each._asdict() for name, each in found.items()} for part, found in difference.items()}
        said = {"schema": SCHEMA, "type": "census-diff", "old": before.stack, "new": after.stack, **parts}
        click.echo(canonical_json(said, indent=1))
        sys.exit(1 if difference["lost"] else 0)
    click.echo(f"old: {_versions(before)}\nnew: {_versions(after)}")
    for part, found in difference.items():
        for name, change in found.items():
            click.echo(f"{part:<8} {name}: {change.before} -> {change.after}")
    counts = {part: len(found) for part, found in difference.items()}
    # Changes that torch_npu did not make.
    other = {"removed": "removed by torch itself", "added": "added by torch itself"}
    click.echo(
        ", ".join(f"{counts[part]:,} {other.get(part, part)}" for part in PARTS if part not in other or counts[part])
    )
    sys.exit(1 if difference["lost"] else 0)


def _on_chip(found: Mapping[str, Any]) -> str:
    """Return how many operators each objection applies to, most first, and how to list them."""
    objections = Counter(re.sub(r"aclnn\w+ ", "", each) for parts in found["objections"].values() for each in parts)
    counts = (f"  {count:>6,} {what}" for what, count in objections.most_common())
    first = (
        f"On {found['chip']}, CANN's documentation has objections to {len(found['objections']):,} of the"
        f" {found['documented']:,} native operators that it documents{':' if objections else '.'}"
    )
    none = [] if found["bfloat16"] else [f"{found['chip']} has no bfloat16 at all, which is not counted."]
    formats = ", ".join(f"{kind} {how}" for kind, how in found["float32_products"].items())
    default = f"Float32 there by torch_npu's defaults: {formats}."
    return "\n".join([first, *counts, *none, default, "Which: --show native"])


def _versions(taken: Census) -> str:
    commit = f" (commit {taken.torch_npu_commit[:12]})" if taken.torch_npu_commit else ""
    return f"torch {taken.torch or 'unknown'}, torch_npu {taken.torch_npu or 'unknown'}{commit}"
