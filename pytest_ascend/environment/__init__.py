"""What this machine is and has, each statement with the evidence for it."""

from pytest_ascend.environment.signs import Sign, signs
from pytest_ascend.environment.stack import collect

__all__ = ["Sign", "collect", "signs"]
