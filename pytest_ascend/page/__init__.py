"""Pages: their text and drawings. No verdict depends on anything computed here."""
