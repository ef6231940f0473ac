"""Sentences of doctors and judges in other languages, by tables of English sentences with places for values.

Logs are in English. What nobody translated stands as it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache, lru_cache
from typing import Any

from pytest_ascend.system.bundled import table

#: Codes of the languages (BCP 47). English is what logs have.
LANGUAGES = ENGLISH, CHINESE = ("en", "zh")

#: Tables by name: the file without its language, and what a place for a value may hold.
_TABLES: Mapping[str, tuple[str, str]] = {
    "doctor": ("doctor/", "(.+)"),
    "findings": ("verdict/words/findings.", "((?:(?!: ).)+)"),
    "analysis": ("migration/", "(.+?)"),
    "ranks": ("distributed/", "(.+?)"),
}
_HOLE = re.compile(r"\{\d\}")


@lru_cache(maxsize=4096)
def translated(text: str, language: str, of: str = "doctor") -> str:
    """Return a sentence in a language, by the table ``of`` its kind, as it is where that has no words for it.

    Of findings each part is translated by itself: ``name: one; another``.
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
    if of == "findings" and constants and rest and len(text) < 500:  # a longer one is a message of others
        found = translated(rest, language, of)
        return f"{translated(head, language, of)}：{found}" if found != rest else text
    parts = text.split(", ")
    return "、".join(constants[each] for each in parts) if all(each in constants for each in parts) else text


def language_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the option ``--language``."""
    import click  # noqa: PLC0415 - not needed by pytest

    kind, says = click.Choice(LANGUAGES), "Language of the output."
    return click.option("--language", type=kind, default=ENGLISH, show_default=True, help=says)(command)


@cache
def _table(language: str, of: str) -> tuple[Mapping[str, str], tuple[tuple[re.Pattern[str], str], ...]]:
    """Return the sentences that are constant, and those with places for values as patterns, the longest first."""
    if language == ENGLISH:
        return {}, ()
    name, value = _TABLES[of]
    said: dict[str, str] = table(f"{name}{language}.json")
    holed = sorted((each for each in said if _HOLE.search(each)), key=len, reverse=True)
    patterns = (re.compile(value.join(map(re.escape, _HOLE.split(each))), re.DOTALL) for each in holed)
    return said, tuple(zip(patterns, (said[each] for each in holed), strict=True))
