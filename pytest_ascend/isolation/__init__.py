"""Cases in child processes, so that the run continues when a device hangs or kills the process that uses it.

Imports neither pytest nor torch. The caller says what a child does and receives its answers.
"""

from __future__ import annotations

from pytest_ascend.isolation.attempts import Attempt
from pytest_ascend.isolation.cards import Card
from pytest_ascend.isolation.process import Channel, Child, Deadline, Task, start
from pytest_ascend.isolation.supervisor import Settings, Supervisor

__all__ = ["Attempt", "Card", "Channel", "Child", "Deadline", "Settings", "Supervisor", "Task", "start"]
