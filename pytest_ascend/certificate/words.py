"""The certificate as text: derived from the statement alone, so that the two cannot differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from jinja2 import Template

from pytest_ascend.certificate.tiers import NEWER_CANN, SAMPLE, TIERS, Tier
from pytest_ascend.records.case import OPTIONAL
from pytest_ascend.system.bundled import table
from pytest_ascend.system.templates import templates_of
from pytest_ascend.system.text import one_line, some_of


def outside(tier: Tier) -> str:
    """Return the sentence by which a statement excludes a tier."""
    return f"the tier {tier.name}: that {tier.means}"


_DATA = table("certificate/words.json")
#: The parts of a stack, with readable names.
NAMES: Mapping[str, str] = _DATA["names"]
#: Language -> the texts of a certificate, by key. Other sentences of the run and the release are not translated.
TEXTS: Mapping[str, Mapping[str, str]] = _DATA["texts"]
#: Language -> the translation of each sentence of a statement that is the release's own.
_TRANSLATED = {
    language: {
        **{tier.means: given["tiers"][tier.name] for tier in (*TIERS.values(), SAMPLE)},
        **{
            outside(tier): given["outside"].format(tier=name, means=given["tiers"][name])
            for name, tier in TIERS.items()
        },
        **given["parts"],
        **given["sentences"],
    }
    for language, given in _DATA["translated"].items()
}


def parts_of(stack: Mapping[str, Any]) -> dict[str, str]:
    """Return the readable name of each part of a stack in a statement; optional parts only if installed."""
    return {part: name for part, name in NAMES.items() if part not in OPTIONAL or stack.get(part)}


def words(claims: Mapping[str, Any], language: str = "en") -> str:
    """Return the text of ``certificate.txt``, or of ``certificate.zh.txt`` in the language "zh"."""
    of_language = {"texts": TEXTS[language], "translated": _TRANSLATED.get(language, {})}
    parts = parts_of(claims["stack"])
    return _template().render(claims=claims, run=claims["run"], parts=parts, newer=NEWER_CANN, **of_language)


@cache
def _template() -> Template:
    """Return the template, in which each value stays on one line. It is not HTML."""
    how = {"autoescape": False, "finalize": lambda value: one_line(str(value)), "keep_trailing_newline": True}
    found = templates_of("pytest_ascend.certificate", "", **how)
    found.filters["operators"] = lambda cases: ", ".join(sorted({case.split("/")[1] for case in cases}))
    return found.get_template("words.txt")


def of_cases(names: Sequence[str], what: str) -> Iterator[str]:
    """Yield a sentence about cases if there are any: "2 cases did not run: ops/add, ops/mul"."""
    if names:
        yield f"{len(names):,} {'case' if len(names) == 1 else 'cases'} {what}: {some_of(names)}"
