"""``pytest-ascend diagnose distributed``: why the ranks of a training differ, or why it differs from one process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import click

from pytest_ascend.distributed import finding
from pytest_ascend.distributed.finding import Finding, Line
from pytest_ascend.system.errors import UsageError, as_error, with_type
from pytest_ascend.system.files import open_regular, strict_json, write_file
from pytest_ascend.system.templates import templates_of
from pytest_ascend.system.translation import ENGLISH, language_option, translated

_LARGEST_BYTES, _LONGEST_LINE_BYTES = 1 << 30, 1 << 24


@click.group()
def diagnose() -> None:
    """Find out why something is wrong."""


@diagnose.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    default=Path("ascend-distributed"),
    show_default=True,
    help="Folder for the records and the page.",
)
@click.option(
    "--against", type=click.Path(path_type=Path, exists=True), help="This command's records of a run on one process."
)
@language_option
@click.argument("command", nargs=-1, required=True)
def distributed(output: Path, against: Path | None, language: str, command: tuple[str, ...]) -> None:
    """Run a training on several ranks, and find out why they differ.

    For example: pytest-ascend diagnose distributed -- torchrun --nproc-per-node 8 train.py

    The training runs unchanged. Exits with 1 if a cause is found, else with the training's own exit code.
    """
    # The reference may be in the folder that is emptied, and mistakes are reported before hours of training.
    reference = read(against) if against else None
    with as_error(f"cannot write {output}", "choose another place, or make room there"):
        output.mkdir(parents=True, exist_ok=True)
        for each in output.glob("rank-*.jsonl"):  # of an earlier diagnosis; nothing else is removed
            each.unlink()
    startup = Path(__file__).parent / "startup"
    paths = filter(None, [str(startup), os.environ.get("PYTHONPATH")])
    environment = {**os.environ, "PYTEST_ASCEND_RECORD": str(output.resolve()), "PYTHONPATH": os.pathsep.join(paths)}
    environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    with as_error(f"{command[0]} cannot be started", "give a program on the PATH"):
        code = subprocess.run(command, env=environment, check=False).returncode  # noqa: S603
    ranks = read(output)
    found = finding.findings(ranks)
    if reference:
        found += compared(ranks, reference, against)
    cost = finding.cost(ranks)
    say = partial(translated, language=language, of="ranks")
    for line in terminal_lines(found, len(ranks), cost, say):
        click.echo(line)
    page = output / "diagnosis.html"
    write_file(page, page_html(found, len(ranks), cost, language))
    click.echo(f"page: {page}")
    sys.exit(1 if any(not each.is_note for each in found) else code)


def compared(
    ranks: Mapping[int, Sequence[Line]], reference: Mapping[int, Sequence[Line]], where: Path | None
) -> list[Finding]:
    """Return the findings against a run on one process. Raises UsageError if its records are of another kind."""
    message = f"{where} has no records of one process"
    hint = "give the folder that --output named in the run on one process"
    with as_error(message, hint, LookupError, TypeError, ValueError, AttributeError, why=with_type):
        return finding.against(ranks, reference)


def read(folder: Path) -> dict[int, list[Line]]:
    """Return the lines of each rank. Raises UsageError if there are none, or they cannot be read."""
    ranks = ((path.stem.removeprefix("rank-"), path) for path in sorted(folder.glob("rank-*.jsonl")))
    found = {int(rank): _lines(path) for rank, path in ranks if rank.isdecimal()}
    if not found:
        hint = "is the command started by torchrun (or another launcher that sets RANK), and does it get to a step?"
        raise UsageError(f"nothing was recorded in {folder}", hint=hint)
    return found


def _lines(path: Path) -> list[Line]:
    """Return the lines of a rank. A killed rank's last line may be incomplete."""
    with as_error(f"{path} is not a rank's record", "run the diagnosis again", OSError, ValueError, why=str):
        with open_regular(path, _LARGEST_BYTES) as file:
            lines = []
            while line := file.readline(_LONGEST_LINE_BYTES + 1):
                if len(line) > _LONGEST_LINE_BYTES:
                    raise ValueError(f"a line has more than {_LONGEST_LINE_BYTES:,} bytes")
                if line.endswith(b"\n"):
                    lines.append(strict_json(line, constants=True))
                    if "kind" not in lines[-1]:
                        raise ValueError("a line does not say of what kind it is")
        return lines


def terminal_lines(found: Sequence[Finding], ranks: int, cost: float, say: Callable[[str], str] = str) -> list[str]:
    """Return the lines for the terminal; ``say`` translates a sentence."""
    lines = [f"pytest-ascend: {say(f'{ranks} ranks; recording took {cost:.1%} of their time')}"]
    causes = [each for each in found if not each.is_note]
    lines += [] if causes else [say("no cause found: the ranks behave as expected")]
    for each in found:
        lines += [
            f"{say('note' if each.is_note else 'CAUSE')}: {say(each.cause)} ({say(each.where)})",
            f"  {say(each.words)}",
            f"  {say('what to do')}: {say(each.remedy)}",
        ]
    return lines


def page_html(found: Sequence[Finding], ranks: int, cost: float, language: str = ENGLISH) -> str:
    """Return the page: one row per cause, earliest step first."""
    say = partial(translated, language=language, of="ranks")
    causes = [each for each in found if not each.is_note]
    title = f"{say('Why ranks differ')}: {say(causes[0].cause)}" if causes else say("The ranks behave as expected")
    said = say(f"{ranks} ranks; recording took {cost:.1%} of their time")
    template = templates_of("pytest_ascend.distributed", "", keep_trailing_newline=True).get_template("diagnosis.html")
    return template.render(language=language, say=say, title=title, cost=said, found=found)
