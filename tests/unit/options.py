"""What the options of a command tell their users."""

from __future__ import annotations

from pathlib import Path

import click


def unexplained(command: click.Command) -> list[str]:
    """Return the options without help, and those with a default that is not shown."""
    options = [each for each in command.params if isinstance(each, click.Option) and not each.hidden]
    silent = [f"{each.name} has no help" for each in options if not each.help]
    known = [each for each in options if isinstance(each.default, (str, int, float)) and each.default]
    return silent + [f"the default of {each.name} is not shown" for each in known if not each.show_default]


def placeholders(command: click.Command) -> dict[str, str]:
    """Return the placeholder of each parameter that names one, by the parameter's name."""
    return {str(each.name): each.metavar for each in command.params if each.metavar}


def paths(command: click.Command) -> set[str]:
    """Return the names of the parameters that are given as pathlib's paths."""
    with click.Context(command) as context:
        given = {
            str(each.name): each.type.convert(".", each, context)
            for each in command.params
            if isinstance(each.type, click.Path)
        }
    return {name for name, value in given.items() if isinstance(value, Path)}
