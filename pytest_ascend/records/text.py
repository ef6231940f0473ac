"""Foreign text in a form in which it can neither hide nor act."""

from __future__ import annotations

import re

#: What a page must not pass through: controls other than tab and line end, characters that turn the direction of
#: writing or cannot be seen, and lone surrogates, which no file can hold.
_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ufffe\uffff\ud800-\udfff]"
)


def visible(text: str) -> str:
    """Return ``text`` with everything unseen written as Python escapes it, so that it can neither hide nor act."""
    # What is printable, nearly all there is, is known to be so without a search.
    return text if text.isprintable() else _UNSEEN.sub(_escaped, text)


def one_line(text: str) -> str:
    """Return ``text`` as :func:`visible` does, on one line."""
    return text if text.isprintable() else visible(text).replace("\n", "\\n").replace("\t", "\\t")


def _escaped(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape", "surrogatepass").decode("ascii")
