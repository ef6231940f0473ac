"""Operators whose samples were taken from a database once: read from their goldens, with nothing of torch's tests."""
