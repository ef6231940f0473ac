"""The command line ``pytest-ascend``. Each command is imported only when it is used, so that ``--help`` is fast."""

from __future__ import annotations

import difflib
import errno
import importlib
import os
import sys

import click

from pytest_ascend.system.bundled import table
from pytest_ascend.system.errors import AscendError, UsageError, choice
from pytest_ascend.system.text import visible
from pytest_ascend.system.version import __version__

#: The commands in ``--help`` by section, each with its module and its help line, so that nothing is imported.
SECTIONS: dict[str, dict[str, tuple[str, str]]] = table("commands.json")
COMMANDS = {name: its for section in SECTIONS.values() for name, its in section.items()}
#: Former names of commands, to be removed in the next release.
FORMER = {"contact": "collect", "keep": "add-findings", "replay": "check-dump"}

#: Commands of a group that are defined in another package than the group.
SUBCOMMANDS = {
    "baseline": {
        "published": "pytest_ascend.page.commands:published",
        "record": "pytest_ascend.performance.commands:record",
    }
}


#: Commands that compute on the CPU by default, without torch_npu, which torch would autoload and which needs CANN.
ON_THE_CPU = ("accuracy", "add-findings", "check-dump", "upstream")


#: Exit codes after an interruption by the user, and after output that could not be written.
INTERRUPTED, INFRASTRUCTURE = 2, 7


class LazyGroup(click.Group):
    """A group that imports its commands by name."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the command names, sorted."""
        return sorted({*COMMANDS, *super().list_commands(ctx)})

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Refuse arguments with a NUL, which no file name can contain, for every command."""
        if any("\0" in each for each in args):
            raise UsageError("an argument contains a NUL", hint="no file can be called so")
        return super().parse_args(ctx, args)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command."""
        if now := FORMER.get(cmd_name):
            click.echo(f"pytest-ascend {cmd_name} is now pytest-ascend {now}; the former name goes soon", err=True)
            cmd_name = now
        if cmd_name not in COMMANDS:
            if difflib.get_close_matches(cmd_name, COMMANDS):
                ctx.fail(f"there is no command {cmd_name}: {choice(cmd_name, COMMANDS)}")
            return super().get_command(ctx, cmd_name)
        if cmd_name in ON_THE_CPU:
            os.environ.setdefault("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")
        command = _load(COMMANDS[cmd_name][0])
        for name, where in SUBCOMMANDS.get(cmd_name, {}).items():
            if isinstance(command, click.Group):
                command.add_command(_load(where), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """List the commands in sections, without importing any."""
        for title, commands in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name, line) for name, (_, line) in commands.items()])


def _load(where: str) -> click.Command:
    module, _, name = where.partition(":")
    command = getattr(importlib.import_module(module), name)
    if not isinstance(command, click.Command):
        raise TypeError(f"{where} is no command")
    return command


@click.group(cls=LazyGroup)
@click.version_option(__version__, prog_name="pytest-ascend")
def cli() -> None:
    """Conformance of Huawei Ascend NPUs: what goes with `pytest --ascend`."""


def main() -> None:
    """Run the command line; errors that the user can act on become a message and the exit code of pytest --ascend."""
    try:
        code = cli(standalone_mode=False)
        sys.stdout.flush()
    except AscendError as error:
        click.echo(f"ERROR: {visible(str(error))}", err=True)
        code = error.exit_code
    except click.ClickException as error:
        error.show()
        code = AscendError.exit_code
    except click.Abort:
        code = INTERRUPTED
    except OSError as error:
        if error.errno not in {errno.ENOSPC, errno.EDQUOT} or error.filename:
            raise
        click.echo(f"ERROR: the output could not be written: {error.strerror}", err=True)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the rest is discarded when Python exits
        code = INFRASTRUCTURE
    sys.exit(code if isinstance(code, int) else 0)


if __name__ == "__main__":
    main()
