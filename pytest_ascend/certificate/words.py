"""The certificate as text: derived from the statement alone, so that it cannot differ from it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pytest_ascend.certificate.tiers import NEWER_CANN, SAMPLE, TIERS, Tier
from pytest_ascend.records.case import OPTIONAL
from pytest_ascend.system.bundled import table
from pytest_ascend.system.text import one_line


def outside(tier: Tier) -> str:
    """Return the sentence of a statement that says that it does not cover a tier."""
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
    """Return the readable name of each part of a stack in a statement; of optional ones where they are installed."""
    return {part: name for part, name in NAMES.items() if part not in OPTIONAL or stack.get(part)}


def words(claims: Mapping[str, Any], language: str = "en") -> str:
    """Return the text of ``certificate.txt``, or of ``certificate.zh.txt`` in the language "zh"."""
    return "\n".join(one_line(line) for line in _lines(claims, language)) + "\n"


def _lines(claims: Mapping[str, Any], language: str) -> Iterator[str]:
    texts, translated = TEXTS[language], _TRANSLATED.get(language, {})
    nothing = [f"  {texts['nothing']}"]
    heading = {key: ("", text) for key, text in texts.items()}
    yield texts["title"].format(tier=claims["tier"])
    yield texts["number"].format(id=claims["id"])
    yield ""
    run = claims["run"]
    yield texts["by"].format(id=run["id"], finished=run["finished"], release=claims["release"])
    yield from (f"  {translated.get(each, each)}" for each in claims["means"])
    yield from heading["tested"]
    for part, name in parts_of(claims["stack"]).items():
        yield f"  {translated.get(part, name)}: {claims['stack'].get(part) or texts['unknown']}"
    yield f"  {texts['level']}: {run['level']}"
    yield f"  {texts['challenge']}: {run.get('challenge') or texts['no-challenge']}"
    for suite, counts in claims["counts"].items():
        yield f"  {suite}: {', '.join(f'{count} {name}' for name, count in counts.items())}"
    for case, measured in claims["figures"].items():
        figures = (f"{name} {value:.6g}" for name, value in measured.items())
        yield f"  {case}: {', '.join(figures) or texts['unmeasured']}"
    yield from heading["not-covered"]
    yield from (f"  {translated.get(each, each)}" for each in claims["not_covered"])
    for suite, count in claims.get("not_again", {}).items():
        yield f"  {texts['not-again'].format(suite=suite, count=count)}"
    yield from heading["limits"]
    for each in claims["limits"]:
        yield f"  {texts['limit'].format(**{**each, 'count': len(each['cases'])})}"
        yield f"    {', '.join(sorted({case.split('/')[1] for case in each['cases']}))}"
    yield from [] if claims["limits"] else nothing
    yield from heading["waived"]
    yield from (f"  {texts['waiver'].format(**each)}" for each in claims["waived"])
    yield from [] if claims["waived"] else nothing
    for key in ("disputed", "fallbacks"):
        yield from heading[key]
        yield from (f"  {each}" for each in claims[key] or [texts["nothing"]])
    yield from heading["holds"]
    yield f"  {texts['until'].format(expires=claims['expires'], newer=NEWER_CANN)}"
    yield from heading["issuer"]
    yield f"  {texts['issued'].format(issued=claims['issued'], issuer=claims['issuer'], key=claims['key'])}"
    for each in claims.get("time_stamps", ()):
        yield f"  {texts['stamped'].format(time=each['time'], authority=each['authority'])}"
    if confirms := claims.get("confirms"):
        yield f"  {texts['confirms'].format(**{key: confirms[key] for key in ('id', 'issuer', 'key')})}"
        yield f"  {texts['both']}"
    yield from (f"  {texts[key]}" for key in ("independent", "rests", "warranty"))


def counted_cases(count: int) -> str:
    """Return a number of cases: "1 case", "2,000 cases"."""
    return "1 case" if count == 1 else f"{count:,} cases"


def named(names: Sequence[str], most: int = 3) -> str:
    """Return the first names, and the number of others."""
    rest = f" and {len(names) - most:,} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{rest}"
