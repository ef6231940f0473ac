"""Sentences of pages and terminals, as data: a key into each language's table of words, and its values.

The interface and the judge's findings (``words/findings.zh.json``) are translated; device and test messages are not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, reduce
from typing import TypeAlias

from pytest_ascend.system import bundled, figures
from pytest_ascend.system.suites import suites
from pytest_ascend.system.translation import CHINESE, ENGLISH, translated

#: Code of a language (BCP 47) -> its own name. Logs and terminals are in English.
LANGUAGES: Mapping[str, str] = {"en": "English", "zh": "中文"}

#: A value is text, another phrase, or a list that the language joins ("a, b and c").
Value: TypeAlias = "str | Phrase | tuple[str | Phrase, ...]"


@dataclass(frozen=True, slots=True)
class Phrase:
    """A sentence or a label in every language; ``str()`` gives the English one."""

    key: str
    values: Mapping[str, Value] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.text(ENGLISH)

    def __bool__(self) -> bool:
        return bool(self.key)

    def text(self, language: str) -> str:
        """Return the phrase in a language. Raises KeyError for a key or a value that the language's table lacks."""
        words = table(language)
        return words[self.key].format_map({name: _text(each, language) for name, each in self.values.items()})

    def to_data(self) -> str | list[object]:
        """Return builtins for a page's script, which writes the phrase in the reader's language."""
        return [self.key, {name: _data(each) for name, each in self.values.items()}] if self.values else self.key


def say(key: str, **values: Value) -> Phrase:
    """Return the phrase of a key."""
    return Phrase(key, values)


def in_both(text: str, of: str = "doctor") -> Phrase | str:
    """Return foreign text in both languages, by the table ``of`` its kind; unchanged if there is no translation."""
    chinese = translated(text, CHINESE, of)
    return say("foreign.text", en=text, zh=chinese) if chinese != text else text


#: An empty phrase.
SILENCE = Phrase("")


@cache
def table(language: str) -> Mapping[str, str]:
    """Read a bundled language's words; titles of suites come from the suites."""
    titles = {f"suite.{name}": suite.title.get(language, suite.title[ENGLISH]) for name, suite in suites().items()}
    return {"": "", **bundled.table(f"verdict/words/{language}.json"), **titles}


def counted(key: str, count: int) -> Phrase:
    """Return "1 case" or "12 cases": ``key`` is the plural, ``key`` with ".one" the singular."""
    return say(f"{key}.one") if count == 1 else say(key, n=f"{count:,}")


def commas(parts: Sequence[Phrase]) -> Phrase:
    """Join phrases with commas only, without "and"."""
    *most, last = parts or (SILENCE,)
    return reduce(lambda rest, part: say("list.pair", first=part, rest=rest), reversed(most), last)


def _text(value: Value, language: str) -> str:
    if isinstance(value, Phrase):
        return value.text(language)
    if isinstance(value, str):
        return figures.one_line(value)
    *most, last = (_text(each, language) for each in value)
    words = table(language)
    return f"{words['list.comma'].join(most)}{words['list.last']}{last}" if most else last


def _data(value: Value) -> object:
    if isinstance(value, Phrase):
        return {"say": value.to_data()}
    return figures.one_line(value) if isinstance(value, str) else {"list": [_data(each) for each in value]}
