"""Cases in child processes, so that a device can hang or kill the one that uses it and the run goes on.

Free of pytest and torch: what a child does, and what becomes of its answers, is given from above.
"""

from __future__ import annotations

from pytest_ascend.isolation.attempts import Attempt, Decision, End
from pytest_ascend.isolation.cards import Card
from pytest_ascend.isolation.process import Channel, Child, Task, start
from pytest_ascend.isolation.supervisor import Listener, Settings, Supervisor

__all__ = [
    "Attempt",
    "Card",
    "Channel",
    "Child",
    "Decision",
    "End",
    "Listener",
    "Settings",
    "Supervisor",
    "Task",
    "start",
]
