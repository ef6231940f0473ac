"""The command group ``pytest-ascend baseline``: build, check and show goldens.

Building them is always deliberate, and reproducible bit for bit on the same machine.
"""

from __future__ import annotations

import contextlib
import math
import os
import platform
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from pytest_ascend.golden.files import Golden, GoldenRecipe, Provenance, encode
from pytest_ascend.golden.store import Changes, GoldenStore
from pytest_ascend.system.bundled import folder, module
from pytest_ascend.system.errors import AscendError, GoldenError, UsageError
from pytest_ascend.system.programs import for_now

if TYPE_CHECKING:
    from torch import Tensor

#: Without a progress bar, one line is written per this many goldens.
EVERY = 20
#: Prefixes of IDs; this one matches all IDs.
ALL = ("",)
_where = click.option(
    "--baselines",
    type=click.Path(file_okay=False, path_type=Path),
    help="The folder of baselines; goldens are in its folder 'golden'. Default: the bundled one.",
)


@click.group()
def baseline() -> None:
    """Build, check and show the stored goldens with which a device's results are compared."""
    # Goldens are made on the CPU. With torch_npu but without CANN, torch imports only if it does not load torch_npu.
    os.environ.setdefault("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")


@baseline.command()
@_where
@click.argument("ids", metavar="[ID]...", nargs=-1)
def build(baselines: Path | None, ids: tuple[str, ...]) -> None:
    """Make the goldens of the bundled suites, and show what changed. With ID: only those with this prefix.

    Nothing is written before all of them are made; unchanged files stay untouched.
    """
    console = Console(highlight=False, markup=False)
    with Progress(console=console) as progress:
        recipes = load_recipes(folder("suites"), ids or ALL)
        changes = build_goldens(_store(baselines), recipes, only=ids or ALL, progress=progress)
    if baselines is None:
        tell_suites(folder("suites"), _store(None))
    for kind in ("added", "changed", "removed"):
        for each in getattr(changes, kind):
            console.print(f"{kind}: {each}")
    console.print(", ".join(f"{len(getattr(changes, kind))} {kind}" for kind in changes.__slots__))


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
    console = Console(highlight=False, soft_wrap=True, markup=False)
    stored = {"file": store.path(golden_id), "bytes": entry.size_bytes, "sha256": entry.sha256}
    made = {name: getattr(entry.made, name) for name in entry.made.__struct_fields__}
    stored |= {"revoked": store.revoked()[golden_id].reason} if golden_id in store.revoked() else {}
    # For long lists, only the lengths.
    meta = {key: f"{len(held)} entries" if isinstance(held, list) else held for key, held in golden.meta.items()}
    for name, value in {**stored, **made, "meta": meta}.items():
        console.print(f"{name + ':':<11}{value}")
    table = Table("tensor", "dtype", "shape", "least", "largest")
    for name, tensor in sorted(golden.tensors.items()):
        ends = [f"{each.item():.6g}" for each in tensor.double().aminmax()] if tensor.numel() else ["", ""]
        table.add_row(name, str(tensor.dtype).removeprefix("torch."), str(list(tensor.shape)), *ends)
    console.print(table)


def _store(baselines: Path | None) -> GoldenStore:
    if baselines is not None and not baselines.is_dir():
        raise UsageError(f"--baselines: {baselines} is not a folder", hint="make it first, or leave the option out")
    return GoldenStore((baselines or folder("baselines")) / "golden")


def load_recipes(suites: Path, only: tuple[str, ...] = ALL) -> list[GoldenRecipe]:
    """Return the recipes of the suites with a ``goldens.py`` whose IDs may begin with one of ``only``.

    Recipes that need more than an installation are in ``tools/SUITE/goldens.py`` of a checkout. Raises AscendError if
    IDs clash or do not begin with their suite's name.
    """
    recipes: list[GoldenRecipe] = []
    for file in _files(suites):
        suite = f"{file.parent.name}/"
        if not any(suite.startswith(each) or each.startswith(suite) for each in only):
            continue
        offered = list(_recipes_in(file).goldens())
        strays = [recipe.id for recipe in offered if not recipe.id.startswith(suite)]
        _refuse(strays, f"{file} offers goldens of another suite", "begin their ids with the suite's name")
        recipes += offered
    ids = [recipe.id for recipe in recipes]
    _refuse(sorted({each for each in ids if ids.count(each) > 1}), "goldens are offered twice", "rename one of them")
    return recipes


def tell_suites(suites: Path, store: GoldenStore) -> None:
    """Call ``built`` in each suite's ``goldens.py`` that defines it, to update files derived from its goldens."""
    for file in _files(suites):
        built = getattr(_recipes_in(file), "built", None)
        if built is not None:
            built(store)


def build_goldens(
    store: GoldenStore, recipes: Iterable[GoldenRecipe], *, only: tuple[str, ...] = ALL, progress: Progress
) -> Changes:
    """Make the goldens whose IDs begin with one of ``only``, and replace those that changed.

    Nothing is written before all are made. Goldens of the same suites without a recipe are removed. Raises AscendError.
    """
    known = list(recipes)
    chosen = [recipe for recipe in known if recipe.id.startswith(only)]
    strangers = [each for each in only if not any(recipe.id.startswith(each) for recipe in known)]
    hint = "look at the ids with 'baseline show'; the goldens of operators are made in a checkout, by tools/ops"
    _refuse(strangers, "no recipe makes a golden of that name", hint)
    task = progress.add_task("goldens", total=len(chosen))
    with reproducible():
        import numpy  # noqa: ICN001, PLC0415 - for its version only
        import torch  # noqa: PLC0415 - see reproducible

        machine = f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}"
        made_with = {"torch": str(torch.__version__), "numpy": numpy.__version__, "machine": machine}
        for number, recipe in enumerate(chosen, start=1):
            progress.update(task, description=recipe.id)
            if not progress.console.is_terminal and (number % EVERY == 0 or number == len(chosen)):
                progress.console.print(f"{number} of {len(chosen)}: {recipe.id}", markup=False)
            try:
                made = recipe.make()
                content = made if isinstance(made, Golden) else Golden(recipe.id, made)
                golden = replace(content, id=recipe.id, meta={**recipe.meta, **content.meta})
            except Exception as error:
                message = f"the golden {recipe.id!r} could not be made: {type(error).__name__}: {error}"
                raise AscendError(message, hint="nothing was written; correct its recipe and build again") from error
            generator = f"{recipe.id.split('/')[0]}@{recipe.version}"
            data = store.stage(golden, Provenance(how=recipe.how, generator=generator, seed=recipe.seed, **made_with))
            with contextlib.suppress(GoldenError):
                old = store.read(golden.id)
                if encode(old) != data:
                    progress.console.print(f"{golden.id}: {difference(old, golden)}", markup=False)
            progress.advance(task)
    # Goldens that no recipe makes any more, in suites with recipes: users' own goldens are left alone.
    ids = {recipe.id for recipe in known}
    suites = {each.split("/")[0] for each in ids}
    there = [each for each in store.ids() if each.startswith(only)] if store.manifest.exists() else []
    return store.flush(remove=[each for each in there if each.split("/")[0] in suites and each not in ids])


@contextlib.contextmanager
def reproducible() -> Iterator[None]:
    """Make torch compute the same bits each time: one thread, deterministic algorithms."""
    import torch  # noqa: PLC0415 - the command line shows its help without torch

    from pytest_ascend.system.dispatching import one_thread  # noqa: PLC0415 - loads torch

    before = torch.are_deterministic_algorithms_enabled()
    # Threads split sums, so their number affects the last bits.
    with one_thread(), for_now(torch.use_deterministic_algorithms, True, before):
        yield


def difference(old: Golden, new: Golden) -> str:
    """Describe in one line how two versions of a golden differ: in names and shapes, or else by how much."""
    forms = [{name: (each.shape, each.dtype) for name, each in golden.tensors.items()} for golden in (old, new)]
    if forms[0] != forms[1]:
        return "other tensors, shapes or dtypes"
    shares = {name: _share(old.tensors[name], new.tensors[name]) for name in new.tensors}
    worst = max(shares, key=shares.__getitem__, default="")
    return f"largest relative difference {shares[worst]:.2g}, in {worst}" if worst and shares[worst] else "other meta"


def _share(old: Tensor, new: Tensor) -> float:
    """Return the largest difference relative to the largest value; infinity if a non-finite value changed."""
    before, after = old.flatten().double(), new.flatten().double()
    changed = ~(before.eq(after) | (before.isnan() & after.isnan()))
    if not changed.any():
        return 0.0
    largest = after[after.isfinite()].abs().max() if after.isfinite().any() else after.new_zeros(())
    share = float((before - after)[changed].abs().max() / largest.clamp_min(1e-300))
    return share if math.isfinite(share) else math.inf


def _files(suites: Path) -> list[Path]:
    of_tools = (file for file in suites.parent.glob("tools/*/goldens.py") if (suites / file.parent.name).is_dir())
    return sorted([*suites.glob("*/goldens.py"), *of_tools])


def _recipes_in(file: Path) -> ModuleType:
    above, folder = file.parent.parent.name, file.parent.name
    return module(f"{above}.{folder}.goldens", file.parent.parent.parent)


def _refuse(names: list[str], what: str, hint: str) -> None:
    if names:
        raise AscendError(f"{what}: {', '.join(map(repr, names))}", hint=hint)
