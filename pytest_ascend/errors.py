"""Exceptions that users of this package catch. Each says what happened, what was expected, and what to do next."""

from pytest_ascend.system.errors import *  # noqa: F403
