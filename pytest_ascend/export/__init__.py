"""A run for terminals and other programs."""
