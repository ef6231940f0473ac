"""Pages: their text and drawings. No verdict depends on anything computed here."""

from types import SimpleNamespace as View

#: What a template reads. It is built in one place, which names its fields; a template raises for one that is missing.
__all__ = ["View"]
