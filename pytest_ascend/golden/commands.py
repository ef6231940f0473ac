"""The command group ``pytest-ascend baseline``: make, check and show goldens."""

from __future__ import annotations

import os
from pathlib import Path

import click
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from pytest_ascend.golden.build import ALL, load_recipes, tell_suites
from pytest_ascend.golden.build import build as build_goldens
from pytest_ascend.golden.store import GoldenStore
from pytest_ascend.system.bundled import folder
from pytest_ascend.system.errors import UsageError

_where = click.option(
    "--baselines",
    type=click.Path(file_okay=False, path_type=Path),
    help="The folder of baselines; goldens are in its folder 'golden'. Default: the bundled one.",
)


@click.group()
def baseline() -> None:
    """Make, check and show the stored goldens that a device is compared with."""
    # Goldens are made on the CPU. If torch_npu is installed without CANN, torch imports only without loading it.
    os.environ.setdefault("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")


@baseline.command()
@_where
@click.argument("ids", metavar="[ID]...", nargs=-1)
def build(baselines: Path | None, ids: tuple[str, ...]) -> None:
    """Make the goldens of the bundled suites, and show what changed. With ID: only those with this prefix.

    Nothing is written before all of them are made; unchanged files stay untouched.
    """
    console = Console(highlight=False)
    with Progress(console=console) as progress:
        recipes = load_recipes(folder("suites"), ids or ALL)
        changes = build_goldens(_store(baselines), recipes, only=ids or ALL, progress=progress)
    if baselines is None:
        tell_suites(folder("suites"), _store(None))
    for kind in ("added", "changed", "removed"):
        for each in getattr(changes, kind):
            console.print(f"{kind}: {each}", markup=False)
    counts = (f"{len(getattr(changes, kind))} {kind}" for kind in changes.__slots__)
    console.print(", ".join(counts), markup=False)


@baseline.command()
@_where
def verify(baselines: Path | None) -> None:
    """Read every golden and check it against the manifest. Exit code 1 if anything is wrong."""
    store = _store(baselines)
    problems = list(store.problems())
    for problem in problems:
        click.echo(str(problem), err=True)
    if problems:
        raise SystemExit(1)
    count = len(store.ids())
    click.echo(f"{count} golden{'s are' if count != 1 else ' is'} in {store.root}, as the manifest says")


@baseline.command()
@_where
@click.argument("golden_id", metavar="ID")
@click.option("--reason", required=True, help="Why: it is shown wherever the golden would have been used.")
def revoke(baselines: Path | None, golden_id: str, reason: str) -> None:
    """Stop using a golden.

    Its cases have no verdict until it is made again, with different content.
    """
    if not reason.strip():
        raise UsageError("--reason is empty", hint="say what is wrong with the golden, and who says so")
    path = _store(baselines).revoke(golden_id, reason.strip())
    click.echo(f"{golden_id} is revoked, in {path}")


@baseline.command()
@_where
@click.argument("golden_id", metavar="[ID]", default="")
def show(baselines: Path | None, golden_id: str) -> None:
    """Show a golden's tensors and how they were made. Without ID: list all ids."""
    store = _store(baselines)
    if not golden_id:
        click.echo("\n".join(each + (" (revoked)" if each in store.revoked() else "") for each in store.ids()))
        return
    golden = store.decoded(golden_id)
    entry = store.entries()[golden_id]
    console = Console(highlight=False, soft_wrap=True)
    stored = {"file": store.path(golden_id), "bytes": entry.size_bytes, "sha256": entry.sha256}
    made = {name: getattr(entry.made, name) for name in entry.made.__struct_fields__}
    stored |= {"revoked": store.revoked()[golden_id].reason} if golden_id in store.revoked() else {}
    # Of long lists only the lengths.
    meta = {key: f"{len(held)} entries" if isinstance(held, list) else held for key, held in golden.meta.items()}
    for name, value in {**stored, **made, "meta": meta}.items():
        console.print(f"{name + ':':<11}{value}", markup=False)
    table = Table("tensor", "dtype", "shape", "least", "largest")
    for name, tensor in sorted(golden.tensors.items()):
        ends = [f"{each.item():.6g}" for each in tensor.double().aminmax()] if tensor.numel() else ["", ""]
        table.add_row(name, str(tensor.dtype).removeprefix("torch."), str(list(tensor.shape)), *ends)
    console.print(table, markup=False)


def _store(baselines: Path | None) -> GoldenStore:
    if baselines is not None and not baselines.is_dir():
        raise UsageError(f"--baselines: {baselines} is not a folder", hint="make it first, or leave the option out")
    return GoldenStore((baselines or folder("baselines")) / "golden")
