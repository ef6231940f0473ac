"""Exporters of a run for terminals and other programs."""
