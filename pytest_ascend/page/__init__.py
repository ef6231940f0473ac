"""Pages: their text and drawings. No verdict depends on anything computed here."""

from types import SimpleNamespace as View

#: Data of a template, built in one place that names its fields; a template raises if one is missing.
__all__ = ["View"]
