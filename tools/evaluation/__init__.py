"""Evaluations of pytest-ascend itself: ``python -m tools.evaluation``."""
