"""Careful access to the operating system: bounded files, programs that may hang, errors with a hint, and texts."""
