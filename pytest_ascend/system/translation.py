"""Translations of sentences of the doctor and the judge, by tables of English sentences with placeholders.

Logs are in English. Untranslated text stays unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache, lru_cache
from typing import Any

from pytest_ascend.system.bundled import table

#: Codes of the languages (BCP 47). Logs are in English.
LANGUAGES = ENGLISH, CHINESE = ("en", "zh")

#: Tables by name: the file name without its language, and the pattern that a placeholder matches.
_TABLES: Mapping[str, tuple[str, str]] = {
    "doctor": ("doctor/", "(.+)"),
    "findings": ("verdict/words/findings.", "((?:(?!: ).)+)"),
    "analysis": ("migration/", "(.+?)"),
    "ranks": ("distributed/", "(.+?)"),
}
_HOLE = re.compile(r"\{\d\}")


@lru_cache(maxsize=4096)
def translated(text: str, language: str, of: str = "doctor") -> str:
    """Return a sentence in a language, by the table ``of`` its kind; unchanged if that has no translation.

    Each part of a finding is translated by itself: ``name: one; another``.
    """
    constants, patterns = _table(language, of)
    if text in constants:
        return constants[text]
    head, _, rest = text.partition(": ")
    if head in constants and rest in constants:
        return f"{constants[head]}：{constants[rest]}"
    if of == "findings" and constants and "; " in text:
        return "；".join(translated(each, language, of) for each in text.split("; "))
    for pattern, words in patterns:
        if match := pattern.fullmatch(text):
            return words.format(*(translated(each, language, of) for each in match.groups()))
    if of == "findings" and constants and rest and len(text) < 500:  # a longer one is a foreign message
        found = translated(rest, language, of)
        return f"{translated(head, language, of)}：{found}" if found != rest else text
    parts = text.split(", ")
    return "、".join(constants[each] for each in parts) if all(each in constants for each in parts) else text


def language_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the option ``--language`` to a command."""
    import click  # noqa: PLC0415 - not needed by pytest

    kind, says = click.Choice(LANGUAGES), "Language of the output."
    return click.option("--language", type=kind, default=ENGLISH, show_default=True, help=says)(command)


@cache
def _table(language: str, of: str) -> tuple[Mapping[str, str], tuple[tuple[re.Pattern[str], str], ...]]:
    """Return the constant sentences, and those with placeholders as patterns, the longest first."""
    if language == ENGLISH:
        return {}, ()
    name, value = _TABLES[of]
    said: dict[str, str] = table(f"{name}{language}.json")
    holed = sorted((each for each in said if _HOLE.search(each)), key=len, reverse=True)
    patterns = (re.compile(value.join(map(re.escape, _HOLE.split(each))), re.DOTALL) for each in holed)
    return said, tuple(zip(patterns, (said[each] for each in holed), strict=True))
