"""``pytest-ascend upstream``: run third-party tests written for any device; compare their results with a real NPU's."""

from __future__ import annotations

import os
import re
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import click

from pytest_ascend.emulator.bootstrap import environment
from pytest_ascend.emulator.choices import checked_memory
from pytest_ascend.emulator.settings import EmulatorSettings
from pytest_ascend.environment import cards
from pytest_ascend.records.record import ResultRecord
from pytest_ascend.runlog import reading
from pytest_ascend.system.errors import UsageError
from pytest_ascend.system.files import write_between, write_file
from pytest_ascend.system.text import parse_size
from pytest_ascend.upstream import comparison, lists, running

PATH, FILE = click.Path(path_type=Path, exists=True), click.Path(path_type=Path)
#: Half of the tests, by the SHA-256 of their ids: see :func:`lists.half`.
HALF = click.Choice(["even", "odd"])
DEVICE, FORM = click.Choice(["emulated", "npu", "cpu"]), click.Choice(["configs", "disabled", "ids", "lines"])
REPORT = "The folder for log and page."


class _Default(click.Group):
    """A group whose first argument may be a checkout: upstream CHECKOUT is upstream run CHECKOUT."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            args = ["run", *args]
        return super().parse_args(ctx, args)


@click.group(cls=_Default)
def upstream() -> None:
    """Run PyTorch's own tests on a device, and compare the results with those known from real NPUs.

    upstream CHECKOUT is short for upstream run CHECKOUT.
    """


def _sample(_: click.Context, __: click.Parameter, text: str) -> tuple[int, int]:
    if sample := running.sample_of(text):
        return sample
    raise click.BadParameter(f"expected K/N such as 1/20, got {text!r}")


def _regex(_: click.Context, __: click.Parameter, text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise click.BadParameter(f"{text!r} is no regular expression: {error}") from error
    return text


_match = click.option(
    "-k", "match", default="", callback=_regex, metavar="REGEX", help="Tests whose CLASS::NAME has a match."
)


@upstream.command()
@click.argument("checkout", type=PATH)
@click.option("--files", multiple=True, metavar="PATTERN", help="Files below the folder of tests, as nn/*.py.")
@click.option("--sample", default="1/1", callback=_sample, metavar="K/N", help="K of N tests, by hash.")
@click.option("--seed", default=0, help="Draws another sample.")
@click.option("--half", type=HALF, default=None, help="Tests by the SHA-256 of their id.")
@_match
@click.option("--list", "known", multiple=True, type=PATH, help="What a real NPU does not pass: compare with it.")
@click.option("--only", type=click.Choice(["listed", "unlisted"]), default=None, help="Tests by that list.")
@click.option("--everything", is_flag=True, help="Also what torch_npu.testing leaves out by name.")
@click.option("--device", type=DEVICE, default="emulated", show_default=True, help="Where the tests run.")
@click.option("--chip", default="", help="Of the emulated device, as 910_93.")
@click.option("--memory", default="4GiB", metavar="SIZE", help="Of the emulated device.")
@click.option("-o", "--report", type=FILE, default="upstream-report", show_default=True, help=REPORT)
@click.option("--jobs", type=click.IntRange(min=1), default=1, help="Files at a time.")
@click.option("--deadline", "test_s", default=60.0, metavar="SECONDS", help="For a test.")
@click.option("--file-deadline", "file_s", default=1800.0, metavar="SECONDS", help="For a file.")
def run(checkout: Path, report: Path, known: tuple[Path, ...], files: tuple[str, ...], **given: Any) -> None:
    """Run the tests in CHECKOUT, and write a run log and a page to a folder.

    CHECKOUT is a checkout of PyTorch, or of Ascend/pytorch, whose folder "test" has copies for its torch, or any folder
    or file of unittest. For PyTorch, the files that are generic over devices run unless --files names others. Exit code
    1 if a test did not pass.
    """
    if given["only"] and not known:
        raise UsageError("--only needs a list", hint="add --list FILE")
    chosen = running.files_of(checkout.resolve(), files)
    memory_bytes, chip, jobs = checked_memory(parse_size(given.pop("memory"))), given.pop("chip"), given.pop("jobs")
    choice = running.Choice(listed=lists.read(known), **given)
    # Also set here: the report names the CANN that was requested.
    settings = {"PYTORCH_TESTING_DEVICE_ONLY_FOR": "cpu" if choice.device == "cpu" else "privateuse1"}
    settings["TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"] = "1"  # tests written before torch 2.6 load their own saved files
    if choice.device == "emulated":
        settings |= environment(EmulatorSettings(memory_bytes=memory_bytes, chip=chip).resolved())
    os.environ.update(settings)
    variables = settings | {"TORCH_DEVICE_BACKEND_AUTOLOAD": str(int(choice.device != "cpu"))}
    rows: list[ResultRecord] = []
    skipped: dict[str, Counter[str]] = {}
    names: list[str] = []
    with ThreadPoolExecutor(jobs) as pool:
        for seen in pool.map(lambda each: running.run(each, choice, variables), chosen):
            mine = list(seen.records())
            rows += mine
            names += [f"{seen.file}::{each}" for each in seen.all]
            left = (each["reason"][:120] for each in seen.events.values() if each["outcome"] == "skipped")
            skipped[seen.file] = Counter(left)
            counted = Counter(row.outcome_name for row in mine) + Counter(skipped=skipped[seen.file].total())
            click.echo(f"{seen.file}: {', '.join(f'{n} {name}' for name, n in counted.items()) or 'nothing to run'}")
    few, of = choice.sample
    counts = running.write(report, choice, rows, skipped, f"{len(chosen)} files of others' tests, {few}/{of}")
    # All tests of the files that ran, by node id: rules are derived from and written for them.
    write_file(report / "tests.txt", "".join(f"{each}\n" for each in names))
    for why, count in Counter(comparison.cause(each.outcome) for each in rows if each.reason).most_common(60):
        click.echo(f"{count:5}  {why}")
    if known:
        click.echo(comparison.table(comparison.compare(rows, choice.listed), "the list"))
    total = sum(counts.values())
    left_out = sum(each.total() for each in skipped.values())
    share = 100 * counts["passed"] / max(1, total)
    click.echo(f"{total} tests executed, {share:.1f} % pass, {left_out} skipped; {report / 'conformance.html'}")
    sys.exit(int(counts["passed"] != total))


@upstream.command()
@click.argument("logs", type=PATH, nargs=-1, required=True)
@click.option("--list", "known", multiple=True, type=PATH, required=True, help="What a real NPU does not pass.")
@click.option("--name", default="the list", help="What the list is called in the table.")
@_match
@click.option("--half", type=HALF, default=None, help="Only ids whose SHA-256 is even, or odd.")
@click.option(
    "--write", "page", type=(str, PATH), metavar="MARK PAGE", help="Put the table between <!-- MARK --> lines."
)
def compare(logs: tuple[Path, ...], known: tuple[Path, ...], page: tuple[str, Path] | None, **given: Any) -> None:
    """Compare the logs of runs with lists of tests that a real NPU does not pass."""
    every = [row for log in logs for row in reading.read(reading.log_of(log)).records]
    rows = [row for row in every if re.search(given["match"], row.node_id)]
    found = comparison.compare(rows, lists.read(known), given["half"] or "")
    made = comparison.table(found, given["name"])
    if page:
        write_between(page[1], page[0], made)
    else:
        click.echo(made)


@upstream.command("import")
@click.argument("known", type=PATH, nargs=-1, required=True)
@click.option("--tests", type=PATH, required=True, help="All tests, as upstream run writes tests.txt.")
@click.option("--source", default="", help="Where the lists are from, with the day.")
@click.option("--half", type=HALF, default=None, help="Look at the tests of one half only.")
@click.option("-o", "--output", type=FILE, default="rules.json", show_default=True, help="The file to write.")
def import_(known: tuple[Path, ...], tests: Path, source: str, half: str | None, output: Path) -> None:
    """Derive rules from lists: which operators do not pass which tests in which dtypes, and why."""
    from pytest_ascend.upstream import rules

    listed, operators = lists.read(known), rules.operators_of_torch()
    named = ((each, listed.of(*each.split("::", 1))) for each in lists.ids(tests))
    ids = [each for each, entry in named if not half or lists.half(entry.id if entry else each) == half]
    made = rules.derive(listed, ids, source or ", ".join(each.name for each in known), operators)
    write_file(output, rules.write(made))
    out, there = set(rules.excluded(made, ids, operators)), {each for each in ids if listed.of(*each.split("::", 1))}
    wider, others = sum(each.count > 1 for each in made), len(out - there)
    said = f"{len(made)} rules, {wider} of them for several tests, stand for {len(there)} tests"
    click.echo(f"{said}, and exclude {others} others")


@upstream.command("export")
@click.argument("rules_file", type=PATH, required=False)
@click.option("--as", "form", type=FORM, default="configs", show_default=True, help="The form of the list.")
@click.option("--tests", type=PATH, help="All tests, as upstream run writes tests.txt; configs needs none.")
@click.option("-o", "--output", type=FILE, default=Path("-"), help="The file to write; - is standard output.")
def export(rules_file: Path | None, form: str, tests: Path | None, output: Path) -> None:
    """Write rules as PrivateUse1TestBase.set_test_configs takes them, or as a list of tests.

    By default the bundled rules: tests that an Atlas A3 does not pass, by the even half of its list.
    """
    from pytest_ascend.upstream import rules

    known, operators = rules.read(rules_file or cards.RULES), rules.operators_of_torch()
    if form == "configs":
        text = rules.as_configs(known, operators)
    elif tests is None:
        raise UsageError(f"--as {form} names tests", hint="add --tests with the names of all tests")
    else:
        text = rules.as_list(rules.excluded(known, lists.ids(tests), operators), form)
    if str(output) == "-":
        click.echo(text, nl=False)
    else:
        write_file(output, text)
        click.echo(f"{len(text.splitlines()):,} lines: {output}")
