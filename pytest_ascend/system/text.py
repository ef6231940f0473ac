"""Make untrusted text visible and harmless, on terminals and in Markdown; parse sizes and times."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from pytest_ascend.system.errors import UsageError

#: Characters that a page must not contain: control characters other than tab and line end, characters that change the
#: direction of writing or are invisible, and lone surrogates, which no file can hold.
_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ufffe\uffff\ud800-\udfff]"
)


#: Characters with a meaning in GitHub's Markdown or in HTML: underscores at the edge of a word, numbers of issues,
#: addresses, names of emoji, marks of headings and lists at the start. Others stay, for readers elsewhere.
_ACTIVE = re.compile(
    r"[\\`*{}\[\]<>|~&@$]|(?<!\w)_|_(?!\w)|#(?=\w)|:(?=//|[\w+-]+:)|(?<=www)\.|^[#+-]|(?<=^\d)[.)](?=\s)", re.IGNORECASE
)
#: Unit -> bytes: K and KiB are powers of 1024, KB of 1000 (IEC 80000-13).
UNITS = {"": 1, "B": 1}
for _power, _letter in enumerate("KMGT", start=1):
    UNITS |= {_letter: 1024**_power, f"{_letter}IB": 1024**_power, f"{_letter}B": 1000**_power}


def visible(text: str) -> str:
    """Return ``text`` with every invisible character as a Python escape, so that it can neither hide nor act."""
    # Printable text, which is nearly all of it, needs no search.
    return text if text.isprintable() else _UNSEEN.sub(lambda found: ascii(found[0])[1:-1], text)


def one_line(text: str) -> str:
    """Return ``text`` as :func:`visible` does, on a single line."""
    return text if text.isprintable() else visible(text).replace("\n", "\\n").replace("\t", "\\t")


def cell(text: str) -> str:
    """Return untrusted text as one line of Markdown without tags, links, mentions, emphasis or cell borders."""
    return _ACTIVE.sub(lambda match: f"&#{ord(match[0])};", one_line(text))


def some_of(names: Sequence[str], most: int = 3) -> str:
    """Return the first names, and how many more there are."""
    rest = f" and {len(names) - most:,} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{rest}"


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table of foreign texts as Markdown."""
    head = [f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
    return "\n".join([*head, *(f"| {' | '.join(cell(each) for each in row)} |" for row in rows)])


def parse_size(text: str) -> int:
    """Return the bytes of ``512M``, ``8GiB``, ``1.5G`` or ``1073741824``. Raises UsageError for all else, and for 0."""
    match = re.fullmatch(r"(\d{1,18}(?:\.\d{1,9})?)\s*([A-Za-z]*)", text.strip(), flags=re.ASCII)
    unit = UNITS.get(match[2].upper()) if match else None
    size = int(float(match[1]) * unit) if match and unit else 0
    if not size:
        hint = "give bytes, or a number and a unit, as in 512MiB or 8G"
        raise UsageError(f"{text!r} is not a memory size", hint=hint)
    return size


def parse_share(text: str) -> float:
    """Return ``5%`` or ``0.05`` as a fraction. Raises UsageError for all else, for 0, and for 100 % or more."""
    match = re.fullmatch(r"(\d{1,3}(?:\.\d{1,9})?)\s*(%?)", text.strip(), flags=re.ASCII)
    share = float(match[1]) / (100 if match[2] else 1) if match else 0.0
    if not 0 < share < 1:
        raise UsageError(f"{text!r} is no share", hint="give percent, as in 5%, or a number below 1, as in 0.05")
    return share


def parse_duration(text: str) -> float:
    """Return ``90``, ``90s``, ``30m`` or ``1h`` in seconds, up to a year. Raises UsageError for all else."""
    unit = {"s": 1, "m": 60, "h": 3600}.get(text[-1:], 0)
    try:
        value = float(text[:-1] if unit else text) * (unit or 1) if text.isascii() else 0.0
    except ValueError:
        value = 0.0
    if not 0 < value < 366 * 86400:  # no run takes longer
        raise UsageError(f"{text}: invalid duration", hint="seconds, minutes or hours, such as 600, 30m or 1h")
    return value
